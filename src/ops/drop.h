/*
 * drop.h - the dropout mask as a pure function of (seed, site, row, column).
 *
 * A 64-bit key is computed once per row; each element is a 32-bit hash of its column and that key,
 * which is cheap in vector registers and the same on every device.
 */
#ifndef HEED_OPS_DROP_H
#define HEED_OPS_DROP_H
#include "base/random.h"
#include "ops/ops.h"

/* The mask of one row: element c is dropped if and only if drop_word(row, c) < threshold. */
struct drop_row {
    uint32_t key0, key1;
    uint32_t threshold; /* p * 2^32; 0: nothing is dropped */
    float scale;        /* 1 / (1 - p) */
};

/* What the rows of one dropout share; for a GPU the host computes it. */
struct drop_site {
    uint64_t key;
    uint32_t threshold;
    float scale;
};

static inline struct drop_site drop_site(struct drop d)
{
    struct drop_site s = {random_mix(random_mix(d.seed) ^ d.site),
                          (uint32_t)((double)d.p * 4294967296.0), 1.0f / (1.0f - d.p)};
    return s;
}

ON_DEVICE static inline struct drop_row drop_site_row(struct drop_site s, uint64_t row)
{
    uint64_t key = random_mix(s.key ^ row);
    struct drop_row r = {(uint32_t)key, (uint32_t)(key >> 32), s.threshold, s.scale};
    return r;
}

static inline struct drop_row drop_row(struct drop d, uint64_t row)
{
    return drop_site_row(drop_site(d), row);
}

ON_DEVICE static inline uint32_t drop_word(struct drop_row r, uint32_t col)
{
    uint32_t x = col * 0x9e3779b1u ^ r.key0;
    x = (x ^ x >> 16) * 0x21f0aaadu;
    x = (x ^ x >> 15) + r.key1;
    x = x * 0x735a2d97u;
    return x ^ x >> 15;
}

/* Uniform in [-1, 1], for the noise of a router. */
ON_DEVICE static inline float drop_noise(struct drop_row r, uint32_t col)
{
    return (float)(int32_t)drop_word(r, col) * 0x1p-31f;
}

/* 0 for a dropped element, 1 / (1 - p) for a kept one */
ON_DEVICE static inline float drop_factor(struct drop_row r, uint32_t col)
{
    return drop_word(r, col) < r.threshold ? 0.0f : r.scale;
}

#endif
