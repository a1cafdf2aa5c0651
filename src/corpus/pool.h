/*
 * pool.h - consecutive pairs of the corpus as ids in memory, and the plan of their batches. Between
 * pairs and batch.
 *
 * Where a pool ends is decided by bytes of text, not by tokens, so that a resumed run finds its
 * pool again without tokenizing.
 *
 * Call order: fill (or skip), plan, release.
 */
#ifndef HEED_CORPUS_POOL_H
#define HEED_CORPUS_POOL_H
#include "corpus/batch.h"
#include "corpus/pairs.h"

#include <stdatomic.h>

struct pool_pair {
    size_t at;        /* the source begins at ids.v[at], and the target follows it */
    int32_t src, tgt; /* lengths in tokens, without marks */
};

/* {0} is empty; a pool may be filled again and keeps its memory. */
struct pool {
    struct heed_ids ids;
    struct pool_pair *pair;
    size_t n, cap;
    struct batch_counts counts;
    bool last; /* the corpus ends with this pool */
};

struct pool_options {
    const struct heed_tokenizer *tokenizer;
    size_t text_bytes; /* a pool ends before the line that would go past this */
    int longest; /* tokens of a sentence, its mark included; a pair with a longer one is dropped */
    int threads; /* at most this many; 0: one per core */
    int shard, shards;       /* only pairs whose number in the corpus modulo shards is shard */
    float subword_dropout;   /* see subword.h; 0: none */
    uint64_t random;         /* seed of the subword dropout of this epoch */
    const atomic_bool *stop; /* true, set by another thread: pool_fill gives up and returns soon */
};

enum heed_status pool_fill(struct pool *p, struct pairs *in, const struct pool_options *o,
                           struct heed_error *err);
/* Reads past the pairs that pool_fill would take. */
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

/* With shuffle, the pairs are sorted by length, those of equal lengths in random order, and cut
 * into batches, and the batches are shuffled; the result is a function of the pool and random.
 * Without shuffle, everything stays in file order. */
enum heed_status plan_make(struct plan *out, const struct pool *p, int batch_tokens, bool shuffle,
                           uint64_t random, struct heed_error *err);
void plan_release(struct plan *p);

#endif
