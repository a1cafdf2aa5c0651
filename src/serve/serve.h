/*
 * serve.h - an HTTP server over the library: translation, language detection, training runs to
 * watch, and the page. docs/api.md describes what it answers.
 *
 * Call order: serve_open, which starts its threads; serve_reload, serve_stop and serve_stopped at
 * any time; serve_free.
 */
#ifndef HEED_SERVE_H
#define HEED_SERVE_H
#include <stdbool.h>

#include "heed.h"

struct server;

struct serve_options {
    const char *const *model; /* [models] directories, or NAME=DIRECTORY */
    int models;
    const char *const *watch; /* [watches] directories of training runs */
    int watches;
    const char *device;     /* of the models: see heed_engine_open */
    int threads;            /* of each model; 0: all cores */
    int sessions;           /* of each model; they share its threads */
    const char *host;       /* address to listen at */
    int port;               /* 0: any that is free */
    const char *api_keys;   /* a file with a key a line; NULL: none is needed */
    const char *cors;       /* origin whose pages may use the server, or "*"; NULL: none */
    const char *access_log; /* a file, or "-" for standard output; NULL: none */
    int max_body;           /* bytes of a request */
    int max_text;           /* characters of a text */
    int max_texts;          /* texts of a request */
    int max_queue;          /* requests that wait for a translation or are being translated */
    int max_connections;
    int max_per_client; /* requests of one address at once, and half its connections; 0: no limit */
    int timeout;        /* seconds that a translation may take */
    int patience;       /* seconds that a client may take to send the headers of a request, to send
                         * its body, and half of those it may take to read the reply */
    /* Sentences for whoever runs the server; may be called by any thread, and may be NULL. */
    void (*say)(void *user, const char *sentence);
    void *user;
};

struct serve_options serve_defaults(void);

/* Loads the models and begins to answer. Strings of the options must live as long as the server. */
struct server *serve_open(const struct serve_options *o, struct heed_error *err);
/* http://HOST:PORT/ */
const char *serve_url(const struct server *s);
/* Loads the models anew, in the background, and opens the access log again. */
void serve_reload(struct server *s);
/* Takes no more connections and finishes what was accepted; with `now`, ends it instead. */
void serve_stop(struct server *s, bool now);
/* Whether all that was accepted has been answered, after serve_stop. */
bool serve_stopped(const struct server *s);
/* Stops it at once, where it has not stopped yet. */
void serve_free(struct server *s);

#endif
