/*
 * server.h - what the parts of the server share.
 */
#ifndef HEED_SERVE_SERVER_H
#define HEED_SERVE_SERVER_H
#include <pthread.h>
#include <stdatomic.h>

#include "serve/access_log.h"
#include "serve/call.h"
#include "serve/keys.h"
#include "serve/metrics.h"
#include "serve/models.h"
#include "serve/runs.h"
#include "serve/serve.h"

struct server {
    struct serve_options o;
    struct models *models;
    struct keys *keys; /* NULL: none is needed */
    struct runs *runs;
    struct metrics metrics;
    struct access_log *access_log; /* NULL: none */
    struct network *network;       /* connections: see network.h */
    atomic_bool draining;          /* no more connections are taken */
    atomic_bool stopping_now;      /* what is under way is ended */
};

/* ---- router.c ---- */

/* Answers a call whose request is complete: sets its reply, or its task and `finish`. */
void route_call(struct call *c);
/* Sets the reply of a call that is over before its body has come, such as for a path that does not
 * exist; false: there is nothing wrong so far. */
bool route_refuse(struct call *c);
/* Ends a call whose task has ended. */
void route_finish(struct call *c);

/* ---- handlers: one for each route ---- */

void api_translate(struct call *c);
void api_detect(struct call *c);
void api_languages(struct call *c);
void api_settings(struct call *c);
void api_health(struct call *c);
void api_suggest(struct call *c);
void api_file(struct call *c);
void api_v1_translate(struct call *c);
void api_v1_models(struct call *c);
void api_v1_runs(struct call *c);
void api_v1_run_log(struct call *c);
void api_v1_run_samples(struct call *c);
void api_v1_run_attention(struct call *c);
void api_v1_run_events(struct call *c);
void api_metrics(struct call *c);
void api_spec(struct call *c);
void api_page(struct call *c);
void api_asset(struct call *c);

#endif
