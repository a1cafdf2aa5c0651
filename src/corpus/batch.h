/*
 * batch.h - a stream of packed batches from parallel text. Third stage of the walk.
 *
 * A background thread reads pairs, tokenizes them and gathers a pool of about `pool_tokens` tokens.
 * The pairs of a pool are shuffled, sorted by length and cut into batches of at most batch_tokens
 * tokens on each side; then the batches are shuffled.
 *
 * A corpus that fits into one pool is read and tokenized once, and shuffled anew each epoch. A
 * larger corpus is streamed, pool by pool, so that memory stays bounded. Under subword dropout
 * every corpus is streamed, because each epoch cuts the text into other pieces, as a function of
 * (seed, epoch, number of the pair in the corpus, side).
 *
 * The order of the batches is a function of (seed, epoch, pool) alone, and the cursor names a place
 * in it, so that a resumed run sees exactly the batches it would have seen. It finds its pool
 * without tokenizing the text before, because the size of a pool is measured in bytes of text, four
 * per token.
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
    int batch_tokens;  /* at most this many tokens on each side, begin or end mark included */
    int max_length;    /* the same for a sentence; a pair with a longer one is dropped */
    int threads;       /* that tokenize; 0: one per core; a few are enough */
    int shard, shards; /* of each `shards` pairs that follow each other in the corpus, the stream
                        * has number `shard`; shards 0: it has all pairs */
    uint64_t seed;
    float subword_dropout; /* in [0, 1); see subword.h */
    bool shuffle; /* true for training: shuffled, epoch after epoch; false: in file order, once */
    size_t pool_tokens; /* size of a pool, both sides together; 0: the default */
    struct batch_cursor start;
};

/* Counts over one epoch. */
struct batch_counts {
    int64_t pairs;   /* usable pairs */
    int64_t empty;   /* dropped: a side without tokens */
    int64_t longer;  /* dropped: longer than max_length or batch_tokens */
    int64_t invalid; /* kept: invalid UTF-8 or NUL bytes were replaced with U+FFFD */
    bool all;        /* the corpus was read to its end; false: these are the counts so far */
};

struct batches;

/* Reads the first pool, and reports problems up to there (a missing file, no usable pair, sides of
 * unequal length). Problems further on come out of batch_next. */
enum heed_status batch_open(struct batches **out, const struct batch_options *o,
                            struct heed_error *err);
/* The next batch, which stays valid until the next call; *b is NULL at the end, which shuffled
 * batches never reach. *after is the cursor of the batch that follows, to be saved with the step
 * that used this one. */
enum heed_status batch_next(struct batches *s, const struct packed **b, struct batch_cursor *after,
                            struct heed_error *err);
struct batch_counts batch_counted(struct batches *s);
void batch_free(struct batches *s);

/* A batch of n sentences given as ids without marks; packed_free frees it. tgt may be NULL. */
struct packed *packed_make(const struct heed_ids *src, const struct heed_ids *tgt, int n, int bos,
                           int eos, struct heed_error *err);
/* A copy of a batch that outlives the next call of batch_next; packed_free frees it. */
struct packed *packed_copy(const struct packed *p, struct heed_error *err);
void packed_free(struct packed *p);

#endif
