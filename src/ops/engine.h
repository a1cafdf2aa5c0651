/*
 * engine.h - what heed.h calls an engine: a backend with an owner.
 */
#ifndef HEED_OPS_ENGINE_H
#define HEED_OPS_ENGINE_H
#include "ops/ops.h"

struct heed_engine {
    struct backend *be;
    int threads; /* as asked for; 0: all cores */
};

#endif
