/*
 * ngram.h - counts the n-grams of a hypothesis that its references have too, for BLEU and chrF.
 *
 * The lines are int32_t symbols: code points, or numbers of words. Memory grows with the longest
 * lines and is reused for the next ones.
 *
 * Call order: for each hypothesis ngram_references, fill hyp and ref, ngram_words where words are
 * to be compared, ngram_match; at the end
 * ngram_room_release.
 */
#ifndef HEED_SCORE_NGRAM_H
#define HEED_SCORE_NGRAM_H
#include "score/tokenize.h"

struct ngram_slot;

enum { NGRAM_UNKNOWN = -1 };

/* A hypothesis, its references and the room to compare them. {0} is empty. */
struct ngram {
    struct metric_text hyp;
    struct metric_text *ref; /* [refs] */
    int refs;
    size_t ref_cap;           /* elements of ref, those beyond refs are kept for their buffers */
    struct ngram_slot *slot;  /* a hash table of what the references have */
    size_t cap;               /* slots allocated */
    size_t mask;              /* slots in use for these lines, minus one */
    int32_t *hyp_id, *ref_id; /* the n-gram that starts at each symbol; references end to end */
    size_t hyp_id_cap, ref_id_cap;
};

/* Makes room for this many references, which the caller then fills. */
enum heed_status ngram_references(struct ngram *g, int refs, struct heed_error *err);
/* Writes one symbol per word over the code points of all lines: equal words get equal symbols, and
 * words of the hypothesis that no reference has get NGRAM_UNKNOWN. */
enum heed_status ngram_words(struct ngram *g, struct heed_error *err);
/* match[n-1] += how many n-grams of hyp are in a reference, each counted at most as often as the
 * reference that has it most often, for n = 1..order. */
enum heed_status ngram_match(struct ngram *g, double *match, int order, struct heed_error *err);
/* How many n-grams a line has. */
long ngram_total(const struct metric_text *t, int n);
/* room: a struct ngram, as the buffers of a metric. */
void ngram_room_release(void *room);

#endif
