/*
 * engine.c - opens and closes the device for users of heed.h.
 */
#include "ops/engine.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"

struct heed_engine *heed_engine_open(const char *device, int threads, struct heed_error *err)
{
    struct heed_engine *e = malloc(sizeof *e);
    if (!e) {
        error_memory(err, sizeof *e, "an engine");
        return NULL;
    }
    e->threads = threads;
    snprintf(e->device, sizeof e->device, "%s", device);
    if (backend_open(&e->be, device, threads, err)) {
        free(e);
        return NULL;
    }
    return e;
}

void heed_engine_free(struct heed_engine *e)
{
    if (!e) return;
    e->be->op->close(e->be);
    free(e);
}
