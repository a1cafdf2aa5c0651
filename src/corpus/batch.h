/*
 * batch.h - a stream of packed batches from parallel text. Third stage of the walk.
 *
 * A background thread draws pairs, tokenizes them and gathers a pool of them. The pairs of a pool
 * are shuffled, sorted by length and cut into batches of at most batch_tokens tokens on each side;
 * then the batches are shuffled.
 *
 * A corpus that fits into one pool of `pool_tokens` is read and tokenized once, and shuffled anew
 * each epoch; under subword dropout it is tokenized anew each epoch, because each cuts the text
 * into other pieces, as a function of (seed, epoch, number of the pair in the corpus, side). A
 * larger corpus, one whose files are weighted, and one that is divided among shards is drawn
 * through an index of its lines in an order that order.h computes (shuffle.h), pool by pool, so
 * that memory stays bounded. Without shuffling, a corpus is read in the order of its files.
 *
 * The order of the batches is a function of (seed, epoch, pool) alone, and the cursor names a place
 * in it, so that a resumed run sees exactly the batches it would have seen.
 *
 * Call order: open, next..., free. Where several streams of a process read one corpus, a shard
 * each: batch_share, then open for each of them, and batch_unshare after the last batch_free.
 */
#ifndef HEED_CORPUS_BATCH_H
#define HEED_CORPUS_BATCH_H
#include "base/packed.h"
#include "corpus/index.h"
#include "heed.h"

/* The place of the next batch. {0} is the beginning. */
struct batch_cursor {
    int64_t epoch, pool, batch;
};

struct batch_options {
    struct heed_corpus corpus;
    const struct heed_tokenizer *tokenizer;
    int batch_tokens; /* at most this many tokens on each side, begin or end mark included */
    int max_length;   /* the same for a sentence; a pair with a longer one is dropped */
    int threads;      /* that tokenize; 0: one per core */
    uint64_t seed;
    float subword_dropout; /* in [0, 1); see subword.h */
    bool shuffle; /* true for training: shuffled, epoch after epoch; false: in file order, once */
    size_t pool_tokens; /* size of a pool, both sides together; 0: the default */
    int shard, shards;  /* with shuffle: this stream has the pairs of one of so many parts of each
                         * epoch, which together have every pair; 0 shards: 1 */
    const char *index;  /* directory for the index of the text; it is created where one is needed.
                         * NULL: the index is not kept */
    struct index_watch watch;    /* of the making of the index */
    struct batch_shared *shared; /* NULL: the stream shares nothing */
    struct batch_cursor start;
};

/* What the streams of a process share: the files and their index, and the threads that tokenize. */
struct batch_shared;

/* The streams are to have the same options, but for `shard` and `start`. */
enum heed_status batch_share(struct batch_shared **out, const struct batch_options *o,
                             struct heed_error *err);
void batch_unshare(struct batch_shared *s);

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
/* Seconds in which batch_next has waited for text that was not tokenized yet. */
double batch_waited(const struct batches *s);

/* What a run has read of a file of its corpus. */
struct batch_file {
    int64_t pairs; /* of the file */
    double weight; /* how often an epoch reads each of them, on average */
    double times;  /* how often each was read, on average, up to the batch that was handed out last,
                    * in all epochs: those before the start of this stream count */
};

/* With shuffle; by the thread that calls batch_next. */
struct batch_file batch_file(const struct batches *s, int i);
void batch_free(struct batches *s);

/* A batch of n sentences given as ids without marks; packed_free frees it. tgt may be NULL. */
struct packed *packed_make(const struct heed_ids *src, const struct heed_ids *tgt, int n, int bos,
                           int eos, struct heed_error *err);
/* A copy of a batch that outlives the next call of batch_next; packed_free frees it. */
struct packed *packed_copy(const struct packed *p, struct heed_error *err);
void packed_free(struct packed *p);

#endif
