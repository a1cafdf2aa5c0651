/*
 * search.h - from ids to ids: encode once, then one position at a time with a cache.
 *
 * A search belongs to one thread and shares its weights. Sentences that finish leave the batch, so
 * a step costs only what is still open.
 */
#ifndef HEED_DECODE_SEARCH_H
#define HEED_DECODE_SEARCH_H
#include "model/transformer.h"

struct search;

struct search_marks {
    int bos, eos;
};

enum heed_status search_open(struct search **out, const struct parameters *p,
                             struct search_marks marks, struct heed_error *err);
void search_free(struct search *s);

/* Greedy translation of n sentences, given and returned without marks. A source of more than
 * search_longest tokens is an error of the caller. out[i] is replaced; score[i] is the sum of the
 * log-probabilities. The order of the sentences does not matter: they are batched by length. */
enum heed_status search_greedy(struct search *s, const struct heed_ids *src, int n,
                               struct heed_ids *out, float *score, struct heed_error *err);
/* The most tokens of a source without its end mark. */
int search_longest(const struct search *s);

#endif
