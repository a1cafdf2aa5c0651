/*
 * crew.h - threads that tokenize pairs into a pool. Between pairs and pool.
 *
 * The pairs are cut into groups, each of which one thread tokenizes, and the groups are joined in
 * their order, so that the pool does not depend on the number of threads. A crew keeps the
 * tokenizers of its threads from call to call, because they remember the words they have seen.
 *
 * Call order: open, encode..., free.
 */
#ifndef HEED_CORPUS_CREW_H
#define HEED_CORPUS_CREW_H
#include "corpus/pairs.h"
#include "corpus/pool.h"

#include <stdatomic.h>

struct crew_options {
    const struct heed_tokenizer *tokenizer;
    float subword_dropout; /* see subword.h; 0: none */
    int threads;           /* 0: one per core */
};

/* May be used by one thread at a time. */
struct crew;

enum heed_status crew_open(struct crew **out, const struct crew_options *o, struct heed_error *err);
void crew_free(struct crew *c);
int crew_threads(const struct crew *c);

/* What is to be tokenized. The two functions are called by several threads at once; those of one
 * group by one thread, whose number is below crew_threads. */
struct crew_job {
    size_t n;    /* pairs */
    bool few;    /* so little text that one thread does it as fast as several */
    int longest; /* tokens of a sentence, its mark included; a pair with a longer one is dropped */
    uint64_t seed;           /* of the subword dropout */
    const atomic_bool *stop; /* true, set by another thread: crew_encode returns soon */
    void *from;
    /* Tells that pairs [first, first + n) come next; n is at most CREW_GROUP. */
    enum heed_status (*begin)(void *from, int thread, size_t first, size_t n,
                              struct heed_error *err);
    /* Pair i, valid until the next call of this thread. *number decides its subword dropout. */
    enum heed_status (*get)(void *from, int thread, size_t i, struct pair *out, uint64_t *number,
                            struct heed_error *err);
};
enum { CREW_GROUP = 64 };

/* Appends the usable pairs of the job to p, and counts all of them there. */
enum heed_status crew_encode(struct crew *c, const struct crew_job *job, struct pool *p,
                             struct heed_error *err);

#endif
