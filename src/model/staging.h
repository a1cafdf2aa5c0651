/*
 * staging.h - arrays of integers on their way to the device.
 *
 * The arrays of a batch, or of a decoding step, are copied end to end into one buffer on the host,
 * which goes to the device in one upload. Each call returns where its array will be on the device.
 */
#ifndef HEED_MODEL_STAGING_H
#define HEED_MODEL_STAGING_H
#include <stddef.h>
#include <stdint.h>

#include "base/packed.h"

struct staging {
    int32_t *host;
    const int32_t *device; /* where the buffer will be */
    size_t used;
};

/* NULL stays NULL. */
const int32_t *stage(struct staging *s, const int32_t *array, int n);
/* Pads the array with `fill` up to `all` integers. */
const int32_t *stage_padded(struct staging *s, const int32_t *array, int n, int all, int32_t fill);
/* 0, 1, ..., n-1 */
const int32_t *stage_count(struct staging *s, int n);
/* Stages a batch that will be at `device`, and returns it with pointers to there. */
struct packed stage_batch(struct staging *s, const struct packed *b, const int32_t *device);

#endif
