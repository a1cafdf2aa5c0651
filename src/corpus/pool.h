/*
 * pool.h - pairs of the corpus as ids in memory. Between crew and plan.
 *
 * A pool is filled with the next pairs of a corpus that is read from its start to its end. Where
 * such a pool ends is decided by bytes of text, not by tokens, so that a resumed run finds its pool
 * again without tokenizing. How a pool is filled with pairs from anywhere in the corpus is in
 * shuffle.h.
 *
 * Call order: fill (or skip), release.
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
    bool last; /* the epoch ends with this pool */
};

struct crew;

struct pool_options {
    size_t text_bytes; /* a pool ends before the line that would go past this */
    int longest; /* tokens of a sentence, its mark included; a pair with a longer one is dropped */
    uint64_t random;         /* seed of the subword dropout of this epoch */
    const atomic_bool *stop; /* true, set by another thread: pool_fill gives up and returns soon */
};

/* Bytes that a pair counts in addition to its text, so that memory is bounded for a corpus of very
 * short lines too. */
enum { POOL_PAIR_BYTES = 16 };

enum heed_status pool_fill(struct pool *p, struct pairs *in, struct crew *crew,
                           const struct pool_options *o, struct heed_error *err);
/* Reads past the pairs that pool_fill would take. */
enum heed_status pool_skip(struct pairs *in, const struct pool_options *o, bool *last,
                           struct heed_error *err);
void pool_clear(struct pool *p);
void pool_release(struct pool *p);

#endif
