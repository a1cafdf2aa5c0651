/*
 * engine.c - opens and closes the device for users of heed.h.
 */
#include "ops/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static enum heed_status check_arguments(const char *device, int threads, struct heed_error *err)
{
    enum { LONGEST = sizeof((struct heed_engine *)0)->device - 1 };
    if (!device) return error_null(err, "device");
    if (strlen(device) > LONGEST)
        return error_set(err, HEED_EARG, "device is '%.*s...', expected 'cpu', 'ref' or 'cuda:N'",
                         LONGEST, device);
    if (threads < 0)
        return error_set(err, HEED_EARG, "threads is %d, expected 0 (all cores) or more", threads);
    return HEED_OK;
}

struct heed_engine *heed_engine_open(const char *device, int threads, struct heed_error *err)
{
    if (check_arguments(device, threads, err)) return NULL;
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
    pthread_mutex_init(&e->lock, NULL); /* cannot fail without attributes */
    return e;
}

const char *heed_cpu_kernels(int i)
{
    return cpu_isa(i);
}

const char *heed_engine_note(const struct heed_engine *e, enum heed_precision precision)
{
    return e && e->be->op->note ? e->be->op->note(e->be, precision) : NULL;
}

void heed_engine_free(struct heed_engine *e)
{
    if (!e) return;
    e->be->op->close(e->be);
    pthread_mutex_destroy(&e->lock);
    free(e);
}
