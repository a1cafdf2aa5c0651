/*
 * model.c - heed.h's model: weights and vocabulary of a model directory, loaded once and shared by
 * all sessions.
 */
#include <pthread.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/file.h"
#include "decode/session.h"
#include "model/config.h"
#include "ops/engine.h"
#include "store/files.h"
#include "store/weights.h"

/* Loads the weights for translation. A model whose matrices cannot be cut into panels
 * (parameters_fit_panels) keeps its plain f32 matrices unless another type is asked for. */
static enum heed_status weights_open(struct heed_model *m, const struct heed_config *c,
                                     enum heed_weights weights, const char *path,
                                     struct heed_error *err)
{
    static const enum type type[] = {TYPE_F32, TYPE_PACKED_F32, TYPE_PACKED_BF16, TYPE_PACKED_I8};
    struct backend *be = m->engine->be;
    if ((unsigned)weights > HEED_WEIGHTS_INT8)
        return error_set(err, HEED_EARG, "weights are %d, expected 0 to %d", weights,
                         HEED_WEIGHTS_INT8);
    if (parameters_fit_panels(c) || weights > HEED_WEIGHTS_F32)
        return weights_open_packed(&m->p, be, c, type[weights], path, err);
    enum heed_status s = parameters_open(&m->p, be, c, precision_f32, err);
    if (!s) s = weights_load(m->p, &(struct flat){"", m->p->master}, 1, path, err);
    return s;
}

/* A vocabulary and how its loading ended. */
struct vocabulary {
    const char *dir;
    int size; /* expected */
    struct heed_tokenizer *tokenizer;
    enum heed_status status;
    struct heed_error err;
};

static void *vocabulary_load(void *arg)
{
    struct vocabulary *v = arg;
    char path[4096];
    v->status = file_join(path, sizeof path, v->dir, MODEL_VOCAB, &v->err);
    if (v->status) return NULL;
    if (!(v->tokenizer = heed_tokenizer_load(path, &v->err)))
        v->status = v->err.status;
    else if (heed_tokenizer_size(v->tokenizer) != v->size)
        v->status = error_set(&v->err, HEED_EFORMAT, "%s has %d pieces, expected %d by config.json",
                              path, heed_tokenizer_size(v->tokenizer), v->size);
    return NULL;
}

/* The vocabulary is loaded by a second thread, since that takes about as long as checking small
 * weights. Where both are wrong, the error names the vocabulary. */
static enum heed_status model_open(struct heed_model *m, const char *dir, enum heed_weights weights,
                                   struct heed_error *err)
{
    char path[4096];
    struct heed_config c;
    pthread_t thread;
    enum heed_status s = file_join(path, sizeof path, dir, MODEL_CONFIG, err);
    if (!s) s = config_load(&c, path, err);
    if (!s) s = file_join(path, sizeof path, dir, MODEL_WEIGHTS, err);
    if (s) return s;
    struct vocabulary v = {.dir = dir, .size = c.vocab_size};
    bool beside = pthread_create(&thread, NULL, vocabulary_load, &v) == 0;
    if (!beside) vocabulary_load(&v);
    pthread_mutex_lock(&m->engine->lock);
    if (beside || !v.status) s = weights_open(m, &c, weights, path, err);
    pthread_mutex_unlock(&m->engine->lock);
    if (beside) pthread_join(thread, NULL);
    m->tokenizer = v.tokenizer;
    if (v.status && err) *err = v.err;
    return v.status ? v.status : s;
}

struct heed_model *heed_model_load(struct heed_engine *e, const char *dir,
                                   enum heed_weights weights, struct heed_error *err)
{
    if (!e || !dir) {
        error_null(err, e ? "dir" : "engine");
        return NULL;
    }
    struct heed_model *m = calloc(1, sizeof *m);
    if (!m) {
        error_memory(err, sizeof *m, "a model");
        return NULL;
    }
    m->engine = e;
    if (model_open(m, dir, weights, err)) {
        heed_model_free(m);
        return NULL;
    }
    return m;
}

void heed_model_free(struct heed_model *m)
{
    if (!m) return;
    pthread_mutex_lock(&m->engine->lock);
    parameters_free(m->p);
    pthread_mutex_unlock(&m->engine->lock);
    heed_tokenizer_free(m->tokenizer);
    free(m);
}

const struct heed_config *heed_model_config(const struct heed_model *m)
{
    return m ? &m->p->config : NULL;
}

const struct heed_tokenizer *heed_model_tokenizer(const struct heed_model *m)
{
    return m ? m->tokenizer : NULL;
}
