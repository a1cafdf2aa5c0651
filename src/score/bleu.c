/*
 * bleu.c - BLEU, equal to sacreBLEU's.
 *
 * The score is bp * (p1 p2 p3 p4)^(1/4): the geometric mean of the precisions of the n-grams,
 * counted over the whole corpus, times the brevity penalty. An order without a single match would
 * make it zero; the k-th such order counts as 2^-k matches ("exp" smoothing). An n-gram matches as
 * often as the reference has it that has it most often; the length of the reference is that of the
 * one whose length is nearest to the hypothesis. The score of a sentence shorter than four tokens
 * is the mean over the orders that it has ("effective order").
 */
#include "score/metric.h"
#include "score/ngram.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ORDER = 4 };
/* Counts: match[ORDER], total[ORDER], tokens of the hypothesis, tokens of the reference. */
enum { MATCH = 0, TOTAL = ORDER, HYP_LEN = 2 * ORDER, REF_LEN, COUNTS };

/* The length nearest to that of the hypothesis; the shorter of two that are equally near. */
static size_t nearest_length(const struct ngram *g)
{
    size_t nearest = g->ref[0].n;
    for (int r = 1; r < g->refs; r++) {
        long far = labs((long)nearest - (long)g->hyp.n);
        long here = labs((long)g->ref[r].n - (long)g->hyp.n);
        if (here < far || (here == far && g->ref[r].n < nearest)) nearest = g->ref[r].n;
    }
    return nearest;
}

static enum heed_status bleu_count(const struct scorer *s, double *counts, const char *hyp,
                                   const char *const *ref, int refs, struct heed_error *err)
{
    struct ngram *g = s->room;
    enum heed_status status = ngram_references(g, refs, err);
    if (!status) status = metric_tokenize(&g->hyp, s->tokenizer, hyp, s->lower, err);
    for (int r = 0; r < refs && !status; r++) {
        status = metric_tokenize(&g->ref[r], s->tokenizer, ref[r], s->lower, err);
    }
    if (!status) status = ngram_words(g, err);
    if (!status) status = ngram_match(g, counts + MATCH, ORDER, err);
    if (status) return status;
    for (int n = 1; n <= ORDER; n++) counts[TOTAL + n - 1] = (double)ngram_total(&g->hyp, n);
    counts[HYP_LEN] = (double)g->hyp.n;
    counts[REF_LEN] = (double)nearest_length(g);
    return HEED_OK;
}

static double brevity_penalty(double hyp_len, double ref_len)
{
    if (hyp_len >= ref_len) return 1;
    return hyp_len > 0 ? exp(1 - ref_len / hyp_len) : 0;
}

/* Without a match of single tokens there is no match of any order, and the score is 0 without
 * smoothing. */
static void bleu_score(struct heed_score *s, const double *counts, bool sentence)
{
    const double *match = counts + MATCH, *total = counts + TOTAL;
    s->hyp_len = (long)counts[HYP_LEN];
    s->ref_len = (long)counts[REF_LEN];
    s->brevity_penalty = brevity_penalty(counts[HYP_LEN], counts[REF_LEN]);
    if (match[0] == 0) return;
    double smooth = 1, logs = 0;
    int orders = 0;
    for (; orders < ORDER && total[orders] > 0; orders++) {
        if (match[orders] == 0) smooth *= 2;
        double matches = match[orders] > 0 ? match[orders] : 1 / smooth;
        s->precision[orders] = 100 * matches / total[orders];
        logs += log(s->precision[orders]);
    }
    /* All hypotheses are shorter than the next order: its precision is zero, and so is the score of
     * a corpus. */
    if (orders < ORDER && !sentence) return;
    s->value = s->brevity_penalty * exp(logs / orders);
}

static void bleu_sign(char out[METRIC_SIGNATURE_MAX], const struct scorer *s, bool sentence)
{
    snprintf(out, METRIC_SIGNATURE_MAX, "case:%s|eff:%s|tok:%s|smooth:exp",
             s->lower ? "lc" : "mixed", sentence ? "yes" : "no", s->tokenize);
}

const struct metric metric_bleu = {
    .name = "bleu",
    .title = "BLEU",
    .counts = COUNTS,
    .tokenizes = true,
    .room = sizeof(struct ngram),
    .room_release = ngram_room_release,
    .count = bleu_count,
    .score = bleu_score,
    .sign = bleu_sign,
};
