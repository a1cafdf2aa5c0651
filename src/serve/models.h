/*
 * models.h - the models that are served, each with its workers. A model whose directory changes is
 * loaded anew beside the old one: requests that come after go to the new one, and the old one is
 * freed when its last request has ended.
 *
 * Call order: models_open, models_add...; models_pick and model_release from any thread;
 * models_tick and models_reload from one thread, again and again; models_close.
 */
#ifndef HEED_SERVE_MODELS_H
#define HEED_SERVE_MODELS_H
#include <stdatomic.h>
#include <stdbool.h>

#include "heed.h"
#include "serve/worker.h"

/* One version of a model, as it was loaded. */
struct model {
    char *name, *dir;
    struct heed_model *heed;
    struct worker **worker; /* [workers] */
    int workers;
    const char *const *language; /* [languages] that it translates to, and from; none: not known */
    int languages;
    char from[16], to[16]; /* of a model without language tags, whose name says its two languages,
                            * as "en-de" does; empty: it has tags, or its languages are not known */
    const char *pair[2];   /* both of them, which `language` points at then */
    atomic_int users;      /* who holds it, the list of models included */
    struct model *next;    /* in the list of models that are waiting to be freed */
};

struct models;

struct models_options {
    const char *device;
    int threads; /* of a worker */
    int workers; /* of a model */
    struct worker_options worker;
    /* Says one sentence to whoever runs the server: a model was loaded anew, or could not be. */
    void (*say)(void *user, const char *sentence);
    void *user;
};

struct models *models_open(const struct models_options *o, struct heed_error *err);
/* Loads a model. what: its directory, or NAME=DIRECTORY; the name of a directory is its own. */
enum heed_status models_add(struct models *m, const char *what, struct heed_error *err);
void models_close(struct models *m);

/* Looks for directories that have changed, and frees what is used no longer: about once a second.
 */
void models_tick(struct models *m);
/* Loads all models anew. */
void models_reload(struct models *m);

/* Model i as it is now, from 0 on; NULL: there is none, or m is NULL. The caller releases it. */
struct model *models_at(struct models *m, int i);
/* The first model with this name, or, where name is NULL, one that translates from one language to
 * another; from NULL: from any. NULL: there is none. The caller releases it. */
struct model *models_pick(struct models *m, const char *name, const char *from, const char *to);
void model_release(struct model *model);
/* The worker that has least to do. */
struct worker *model_worker(const struct model *model);
/* The counts of all its workers together. */
struct worker_counts model_count(const struct model *model);
/* The model's own spelling of a language that it translates from or to; NULL: it does not. */
const char *model_source(const struct model *model, const char *written);
const char *model_target(const struct model *model, const char *written);
/* How many times models were loaded anew, and could not be. */
void models_loads(struct models *m, int *loaded, int *failed);

#endif
