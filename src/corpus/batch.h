/*
 * batch.h - a stream of packed batches from parallel text. Third stage of the walk.
 *
 * A background thread reads pairs, tokenizes them and gathers a pool of about `pool_tokens` tokens;
 * the pool is shuffled, sorted into buckets of like length, cut into batches of at most
 * batch_tokens tokens on each side, and the batches are shuffled. A corpus that fits into one pool
 * is read and tokenized once and shuffled anew each epoch; a larger one streams, pool by pool, so
 * memory stays bounded, and so does one under subword dropout, which cuts the text of a pair as
 * (seed, epoch, number of the pair in the corpus, side) tell. The order is a function of (seed,
 * epoch, pool) alone, and the cursor names a place in it, so that a resumed run sees exactly the
 * batches it would have seen; it finds its pool without tokenizing what lies before, because a pool
 * is measured as text, four bytes a token.
 *
 * Call order: open, next..., free.
 */
#ifndef HEED_CORPUS_BATCH_H
#define HEED_CORPUS_BATCH_H
#include "base/packed.h"
#include "heed.h"

/* The place of the next batch. {0} is the beginning. */
struct batch_cursor {
    int64_t epoch, pool, batch;
};

struct batch_options {
    struct heed_corpus corpus;
    const struct heed_tokenizer *tokenizer;
    int batch_tokens; /* at most this many on each side, begin or end mark included */
    int max_length;   /* a longer sentence (in tokens, with its mark) drops the pair, as does one
                       * longer than batch_tokens */
    int threads;      /* for turning text into ids; 0: one a core; a few are enough */
    uint64_t seed;
    float subword_dropout; /* in [0, 1); see subword.h */
    bool shuffle;          /* training: shuffled and endless; else in file order, once */
    size_t pool_tokens;    /* both sides together; 0: the default */
    struct batch_cursor start;
};

/* Counts over one epoch. */
struct batch_counts {
    int64_t pairs;   /* usable pairs */
    int64_t empty;   /* dropped: a side without tokens */
    int64_t longer;  /* dropped: longer than max_length or batch_tokens */
    int64_t invalid; /* kept: invalid UTF-8 or NUL bytes were replaced with U+FFFD */
    bool all;        /* the corpus was read to its end; else: so far */
};

struct batches;

/* A problem that can be seen at once (missing file, no usable pair in the first pool, sides of
 * unequal length) is reported here; one that shows later comes out of batch_next. */
enum heed_status batch_open(struct batches **out, const struct batch_options *o,
                            struct heed_error *err);
/* *b is NULL at the end (never when shuffling). The batch stays valid until the next call.
 * *after: the cursor of the batch that follows, to be saved with the step that used this one. */
enum heed_status batch_next(struct batches *s, const struct packed **b, struct batch_cursor *after,
                            struct heed_error *err);
struct batch_counts batch_counted(struct batches *s);
void batch_free(struct batches *s);

/* Packs n sentences given as ids without marks, in a block of their own. tgt may be NULL. */
struct packed *packed_make(const struct heed_ids *src, const struct heed_ids *tgt, int n, int bos,
                           int eos, struct heed_error *err);
/* A batch of its own, for one that batch_next lends. */
struct packed *packed_copy(const struct packed *p, struct heed_error *err);
void packed_free(struct packed *p);

#endif
