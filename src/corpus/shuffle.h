/*
 * shuffle.h - pools of pairs from anywhere in the corpus, in the order of order.h. Between files
 * and batch.
 *
 * An epoch is divided among shards: shard s has the places s, s + shards, s + 2 shards and so on of
 * the epoch's order. A pool is as many places of its shard in a row as have about the wanted bytes
 * of text, so that a cursor finds its pool without reading those before.
 *
 * Call order: open; fill, by one thread at a time; free.
 */
#ifndef HEED_CORPUS_SHUFFLE_H
#define HEED_CORPUS_SHUFFLE_H
#include "corpus/crew.h"
#include "corpus/index.h"

struct shuffle_options {
    struct heed_corpus corpus;
    const char *index; /* directory; see files.h */
    int shards;
    int threads;       /* those of the crew that tokenizes */
    size_t text_bytes; /* of a pool, roughly */
    uint64_t seed;
    struct index_watch watch;
};

struct shuffle;

enum heed_status shuffle_open(struct shuffle **out, const struct shuffle_options *o,
                              struct heed_error *err);
void shuffle_free(struct shuffle *s);

/* Pairs of file i, and how often an epoch draws each of them on average. */
int64_t shuffle_pairs(const struct shuffle *s, int i);
double shuffle_weight(const struct shuffle *s, int i);

/* How much of an epoch a shard has read, from 0 to 1, behind a part (0 to 1) of a pool. */
double shuffle_progress(const struct shuffle *s, int shard, int64_t number, double part);
/* Pools of a shard in an epoch. */
int64_t shuffle_pools(const struct shuffle *s, int shard);
/* The pool is in the order of the files. o->text_bytes is not used. */
enum heed_status shuffle_fill(struct shuffle *s, struct pool *p, struct crew *crew, int shard,
                              int64_t epoch, int64_t number, const struct pool_options *o,
                              struct heed_error *err);

#endif
