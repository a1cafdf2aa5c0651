/*
 * engine.h - what heed.h calls an engine: a device that many threads may use.
 *
 * A backend serves one thread at a time. Sessions and trainers have backends of their own
 * (engine_fork). The engine's is for the memory of models, which are loaded and freed under its
 * lock.
 */
#ifndef HEED_OPS_ENGINE_H
#define HEED_OPS_ENGINE_H
#include <pthread.h>

#include "ops/ops.h"

struct heed_engine {
    struct backend *be;
    pthread_mutex_t lock; /* who holds it uses be */
    char device[32];
    int threads; /* as asked for; 0: all cores */
};

/* One more backend on the engine's device: what is in its memory is seen by both, and each serves a
 * thread of its own. */
static inline enum heed_status engine_fork(const struct heed_engine *e, struct backend **out,
                                           struct heed_error *err)
{
    return backend_open(out, e->device, e->threads, err);
}

#endif
