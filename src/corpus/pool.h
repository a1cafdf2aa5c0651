/*
 * pool.h - a stretch of the corpus as ids in memory, and the order in which it is cut into batches.
 * Between pairs and batch.
 *
 * Where a pool ends is told from bytes of text, not from tokens: a resumed run finds its pool again
 * by reading alone.
 *
 * Call order: fill (or skip), plan, release.
 */
#ifndef HEED_CORPUS_POOL_H
#define HEED_CORPUS_POOL_H
#include "corpus/batch.h"
#include "corpus/pairs.h"

#include <stdatomic.h>

struct pool_pair {
    size_t at;        /* the source starts at ids.v[at], the target right behind it */
    int32_t src, tgt; /* lengths in tokens, without marks */
};

/* {0} is empty; a pool may be filled again and keeps its memory. */
struct pool {
    struct heed_ids ids;
    struct pool_pair *pair;
    size_t n, cap;
    struct batch_counts counts;
    bool last; /* the corpus ends here */
};

struct pool_options {
    const struct heed_tokenizer *tokenizer;
    size_t text_bytes;       /* a pool ends before the line that would go past this */
    int longest;             /* tokens of a sentence, its mark included */
    int threads;             /* at most so many; 0: one a core */
    float subword_dropout;   /* see subword.h; 0: none */
    uint64_t random;         /* for that; with the number of a pair it decides how this is cut */
    const atomic_bool *stop; /* true: come back soon, with whatever there is */
};

enum heed_status pool_fill(struct pool *p, struct pairs *in, const struct pool_options *o,
                           struct heed_error *err);
/* Reads past what pool_fill would have read. */
enum heed_status pool_skip(struct pairs *in, const struct pool_options *o, bool *last,
                           struct heed_error *err);
void pool_release(struct pool *p);

/* Batch b holds the pairs order[first] to order[first + n - 1] of span[b]. */
struct plan {
    uint32_t *order; /* [pairs of the pool] */
    struct plan_span {
        uint32_t first, n;
    } * span;
    size_t n; /* batches */
};

/* shuffle: the pairs are sorted by length with ties in random order, cut, and the batches
 * shuffled; the result depends on nothing but the pool and random. Else in file order. */
enum heed_status plan_make(struct plan *out, const struct pool *p, int batch_tokens, bool shuffle,
                           uint64_t random, struct heed_error *err);
void plan_release(struct plan *p);

#endif
