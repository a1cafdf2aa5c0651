/*
 * chrf.c - chrF2 of a corpus against one reference, equal to sacreBLEU's.
 *
 * Precision and recall of character n-grams, n = 1 to 6, whitespace left out, counted over the
 * whole corpus and averaged over the orders; the score is their F with recall weighing beta = 2
 * times as much.
 *
 * Call order: heed_chrf alone; per pair: decode both lines, drop whitespace, match n-grams.
 */
#include "base/error.h"
#include "heed.h"
#include "score/ngram.h"
#include "score/tokenize.h"

#include <stdio.h>

enum { ORDER = 6, BETA = 2 };

struct counts {
    long match[ORDER], hyp[ORDER], ref[ORDER]; /* n-grams */
};

/* The code points of a line without whitespace. */
static enum heed_status decode_solid(struct metric_text *t, const char *line,
                                     struct heed_error *err)
{
    enum heed_status status = metric_decode(t, line, err);
    if (status) return status;
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++) {
        if (!metric_is_space(t->c[i])) t->c[n++] = t->c[i];
    }
    t->n = n;
    return HEED_OK;
}

static enum heed_status counts_add(struct counts *c, struct ngram *g, const char *hyp,
                                   const char *ref, struct heed_error *err)
{
    enum heed_status status = decode_solid(&g->hyp, hyp, err);
    if (!status) status = decode_solid(&g->ref, ref, err);
    if (!status) status = ngram_match(g, c->match, ORDER, err);
    if (status) return status;
    for (int n = 1; n <= ORDER; n++) {
        long ref_n = ngram_total(&g->ref, n);
        /* A reference too short for this order does not count against the hypothesis. */
        if (ref_n) c->hyp[n - 1] += ngram_total(&g->hyp, n);
        c->ref[n - 1] += ref_n;
    }
    return HEED_OK;
}

static double f_score(const struct counts *c)
{
    double precision = 0, recall = 0;
    int orders = 0; /* number of orders that both sides have n-grams of */
    for (int n = 0; n < ORDER; n++) {
        if (!c->hyp[n] || !c->ref[n]) continue;
        precision += (double)c->match[n] / (double)c->hyp[n];
        recall += (double)c->match[n] / (double)c->ref[n];
        orders++;
    }
    if (!orders || precision + recall == 0) return 0;
    precision /= orders;
    recall /= orders;
    const double weight = BETA * BETA;
    return 100 * ((1 + weight) * precision * recall / (weight * precision + recall));
}

enum heed_status heed_chrf(const char *const *hyp, const char *const *ref, int n,
                           struct heed_score *out, struct heed_error *err)
{
    if (n <= 0) {
        return error_set(err, HEED_EARG, "chrF of %d sentences: expected at least one", n);
    }
    struct counts counts = {0};
    struct ngram g = {0};
    enum heed_status status = error_strings(err, "hyp", hyp, n);
    if (!status) status = error_strings(err, "ref", ref, n);
    if (!status && !out) status = error_null(err, "out");
    for (int i = 0; i < n && !status; i++) status = counts_add(&counts, &g, hyp[i], ref[i], err);
    ngram_release(&g);
    if (status) return status;

    struct heed_score score = {.value = f_score(&counts)};
    snprintf(score.signature, sizeof score.signature,
             "nrefs:1|case:mixed|eff:yes|nc:%d|nw:0|space:no|version:heed-%s", ORDER,
             heed_version());
    *out = score;
    return HEED_OK;
}
