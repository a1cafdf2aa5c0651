/*
 * server.c - the server as a whole: opened, stopped and freed; see serve.h.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/network.h"
#include "serve/server.h"

struct serve_options serve_defaults(void)
{
    return (struct serve_options){
        .device = "cpu",
        .sessions = 1,
        .host = "127.0.0.1",
        .port = 8080,
        .max_body = 4 << 20,
        .max_text = 100000,
        .max_texts = 1024,
        .max_queue = 512,
        .max_connections = 512,
        .max_per_client = 128,
        .timeout = 60,
        .patience = 60,
    };
}

static enum heed_status open_models(struct server *s, struct heed_error *err)
{
    /* A CPU decodes 128 hypotheses a step. Half as many again are ready to take the places of those
     * that finish; more would only keep later requests waiting behind them. */
    enum { CPU_HYPOTHESES = 192, GPU_HYPOTHESES = 6144 };
    bool gpu = !strncmp(s->o.device, "cuda", 4);
    int sessions = s->o.sessions, threads = s->o.threads;
    if (sessions > 1) threads = (threads ? threads : (int)sysconf(_SC_NPROCESSORS_ONLN)) / sessions;
    struct models_options o = {.device = s->o.device,
                               .threads = sessions > 1 && threads < 1 ? 1 : threads,
                               .workers = sessions,
                               .worker = {.hypotheses = gpu ? GPU_HYPOTHESES : CPU_HYPOTHESES,
                                          .queue = (s->o.max_queue + sessions - 1) / sessions},
                               .say = s->o.say,
                               .user = s->o.user};
    if (s->o.models == 0) return HEED_OK;
    s->models = models_open(&o, err);
    enum heed_status status = s->models ? HEED_OK : err->status;
    for (int i = 0; i < s->o.models && !status; i++) {
        status = models_add(s->models, s->o.model[i], err);
    }
    return status;
}

static enum heed_status open_parts(struct server *s, struct heed_error *err)
{
    const char *log = s->o.access_log;
    if (log && !(s->access_log = access_log_open(log, err))) return err->status;
    s->runs = runs_open(s->o.watch, s->o.watches, err);
    if (!s->runs) return err->status;
    if (s->o.api_keys && !(s->keys = keys_open(s->o.api_keys, err))) return err->status;
    if (open_models(s, err)) return err->status;
    s->network = network_open(s, err);
    return s->network ? HEED_OK : err->status;
}

struct server *serve_open(const struct serve_options *o, struct heed_error *err)
{
    struct heed_error ignored;
    if (!err) err = &ignored;
    struct server *s = calloc(1, sizeof *s);
    if (!s) {
        *err = (struct heed_error){HEED_ENOMEM, "out of memory for the server"};
        return NULL;
    }
    s->o = *o;
    metrics_init(&s->metrics);
    if (open_parts(s, err) == HEED_OK) return s;
    serve_free(s);
    return NULL;
}

const char *serve_url(const struct server *s)
{
    return network_url(s->network);
}

void serve_reload(struct server *s)
{
    network_notify(s->network, true);
}

void serve_stop(struct server *s, bool now)
{
    s->draining = true;
    if (now) s->stopping_now = true;
    network_notify(s->network, false);
}

bool serve_stopped(const struct server *s)
{
    return network_stopped(s->network);
}

void serve_free(struct server *s)
{
    if (!s) return;
    network_free(s->network);
    models_close(s->models);
    keys_free(s->keys);
    runs_free(s->runs);
    metrics_release(&s->metrics);
    access_log_free(s->access_log);
    free(s);
}
