/*
 * pairs.h - the lines of a corpus as pairs, from the first file to the last. Between input and
 * batch.
 *
 * Call order: open, then peek and take for each pair, rewind for another pass, free.
 */
#ifndef HEED_CORPUS_PAIRS_H
#define HEED_CORPUS_PAIRS_H
#include "heed.h"

struct pairs;

struct pair {
    const char *src, *tgt; /* src NULL: the end of the corpus */
    size_t src_len, tgt_len;
};

/* Splits a line of a file of pairs at its first two tabs; false where a line that is not empty has
 * none. Text after a second tab is ignored, and an empty line is a pair of empty sentences. */
bool pair_split(struct pair *out, const char *line, size_t len);

/* Every file is opened once, so that a missing one is seen now. Copies the names. */
enum heed_status pairs_open(struct pairs **out, const struct heed_corpus *c,
                            struct heed_error *err);
/* The next pair, which stays the next one until pairs_take; its memory is valid until pairs_peek is
 * called after that. */
enum heed_status pairs_peek(struct pairs *p, struct pair *out, struct heed_error *err);
void pairs_take(struct pairs *p);
/* Pairs of file i, if it was read to its end since the corpus was opened; else -1. */
int64_t pairs_of_file(const struct pairs *p, int i);
/* How many pairs were taken, which is also the number of the next pair, from 0. */
int64_t pairs_taken(const struct pairs *p);
/* Back to the first pair. */
void pairs_rewind(struct pairs *p);
/* The name of the first file, for errors about the corpus as a whole. */
const char *pairs_name(const struct pairs *p);
void pairs_free(struct pairs *p);

#endif
