/*
 * ngram.h - counts the n-grams of a hypothesis that its reference has too, for BLEU and chrF.
 *
 * The two lines are int32_t symbols: code points for chrF, numbers of words for BLEU. Memory grows
 * with the longest pair of lines and is reused for the next pair.
 *
 * Call order: for each pair fill hyp and ref, ngram_words (BLEU), ngram_match; at the end
 * ngram_release.
 */
#ifndef HEED_SCORE_NGRAM_H
#define HEED_SCORE_NGRAM_H
#include "score/tokenize.h"

struct ngram_slot;

/* A pair of lines and the room to compare them. {0} is empty. */
struct ngram {
    struct metric_text hyp, ref;
    struct ngram_slot *slot;  /* a hash table of what the reference has */
    size_t cap;               /* slots allocated */
    size_t mask;              /* slots in use for this pair of lines, minus one */
    int32_t *hyp_id, *ref_id; /* the n-gram that starts at each symbol */
    size_t hyp_cap, ref_cap;
};

/* Writes one symbol per word over the code points of both lines: equal words get equal symbols. */
enum heed_status ngram_words(struct ngram *g, struct heed_error *err);
/* match[n-1] += how many n-grams of hyp are in ref, each counted at most as often as ref has it,
 * for n = 1..order. */
enum heed_status ngram_match(struct ngram *g, long *match, int order, struct heed_error *err);
/* How many n-grams a line has. */
long ngram_total(const struct metric_text *t, int n);
void ngram_release(struct ngram *g);

#endif
