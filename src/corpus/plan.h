/*
 * plan.h - the plan of the batches of a pool. Between pool and batch.
 */
#ifndef HEED_CORPUS_PLAN_H
#define HEED_CORPUS_PLAN_H
#include "corpus/pool.h"

/* Batch b holds the pairs order[first] to order[first + n - 1] of span[b]. */
struct plan {
    uint32_t *order; /* [pairs of the pool] */
    struct plan_span {
        uint32_t first, n;
    } * span;
    size_t n; /* batches */
};

/* With shuffle, the pairs are sorted by length, those of equal lengths in random order, and cut
 * into batches, and the batches are shuffled; the result is a function of the pool and random.
 * Without shuffle, everything stays in file order. */
enum heed_status plan_make(struct plan *out, const struct pool *p, int batch_tokens, bool shuffle,
                           uint64_t random, struct heed_error *err);
void plan_release(struct plan *p);

#endif
