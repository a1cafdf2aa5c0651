/*
 * engine.h - the engine of heed.h: a device that many threads may use.
 *
 * Only one thread at a time may use a backend. Sessions and trainers have backends of their own
 * (engine_fork). The engine's backend owns the memory of models, which are loaded and freed while
 * its lock is held.
 */
#ifndef HEED_OPS_ENGINE_H
#define HEED_OPS_ENGINE_H
#include <pthread.h>

#include "ops/ops.h"

struct heed_engine {
    struct backend *be;
    pthread_mutex_t lock; /* held by the thread that uses be */
    char device[32];
    int threads; /* as asked for; 0: all cores */
};

/* Opens one more backend on the engine's device, for another thread. Both can read and write the
 * memory of the device. */
static inline enum heed_status engine_fork(const struct heed_engine *e, struct backend **out,
                                           struct heed_error *err)
{
    return backend_open(out, e->device, e->threads, err);
}

#endif
