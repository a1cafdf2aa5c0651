/*
 * engine.h - what heed.h calls an engine: a backend with an owner.
 */
#ifndef HEED_OPS_ENGINE_H
#define HEED_OPS_ENGINE_H
#include "ops/ops.h"

struct heed_engine {
    struct backend *be;
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
