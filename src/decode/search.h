/*
 * search.h - from ids to ids: encode once, then one position at a time with a cache.
 *
 * A search belongs to one thread and shares its weights. Sentences are batched by length; those
 * that finish leave the batch, so a step costs only what is still open. What comes out for a
 * sentence does not depend on the others.
 */
#ifndef HEED_DECODE_SEARCH_H
#define HEED_DECODE_SEARCH_H
#include "decode/beam.h"
#include "model/run.h"

struct search;

struct search_options {
    int bos; /* the end mark is in beam.eos */
    struct beam_options beam;
    int longest; /* tokens of an output, end mark included; 0: its source's + 50 (paper 6.1) */
    /* How much is translated at once: hypotheses of a step, or tokens of the sources; 0: the
     * default. */
    int rows, batch_tokens;
    bool watched; /* see search_watch */
};

/* be: as for run_open */
enum heed_status search_open(struct search **out, struct backend *be, const struct parameters *p,
                             const struct search_options *o, struct heed_error *err);
void search_free(struct search *s);

/* A translation: ids without marks, each with its log-probability; when it ended by itself
 * (not cut at its longest length), the end mark's as well. */
struct translation {
    struct heed_ids ids;
    float *token_score; /* [ids.n], or [ids.n + 1] when ended */
    bool ended;
    bool broken;        /* of the first: there are none, since the model's numbers are not finite */
    double logp, score; /* the sum of the former; by the length penalty */
    float *attention;   /* [tokens, heads, source tokens + 1] or NULL: see search_watch */
};
void translation_release(struct translation *t);

/* Translates n sentences, given without marks and of at most search_longest tokens; wish [n] may be
 * NULL. out is [n * nbest], zeroed by the caller, which releases every one of them even on failure;
 * a sentence with fewer hypotheses leaves some zero. Of an empty source there are none, unless a
 * prefix is given. */
enum heed_status search_run(struct search *s, const struct heed_ids *src,
                            const struct beam_wish *wish, int n, struct translation *out,
                            struct heed_error *err);
/* From the next run on no n-gram of so many tokens may come twice; 0: any may. */
void search_no_repeat(struct search *s, int n);
/* From the next run on, translations that are given whole, as prefixes with an end mark, come with
 * the attention that each of their tokens, the end mark included, gave to the source and its end
 * mark in this decoder layer; -1: without. Needs options.watched. */
void search_watch(struct search *s, int layer);
/* The most tokens of a source without its end mark. */
int search_longest(const struct search *s);

#endif
