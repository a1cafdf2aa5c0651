/*
 * bleu.c - BLEU of a corpus against one reference, equal to sacreBLEU's.
 *
 * The score is bp * (p1 p2 p3 p4)^(1/4): the geometric mean of the precisions of the n-grams,
 * counted over the whole corpus, times the brevity penalty. An order without a single match would
 * make it zero; the k-th such order counts as 2^-k matches ("exp" smoothing).
 *
 * Call order: heed_bleu alone; per pair: tokenize both lines, number their words, match n-grams.
 */
#include "base/error.h"
#include "heed.h"
#include "score/ngram.h"
#include "score/tokenize.h"

#include <math.h>
#include <stdio.h>

enum { ORDER = 4 };

struct counts {
    long match[ORDER];     /* n-grams of the hypotheses that the reference has too */
    long total[ORDER];     /* all n-grams of the hypotheses */
    long hyp_len, ref_len; /* tokens */
};

static enum heed_status counts_add(struct counts *c, struct ngram *g,
                                   const struct metric_tokenizer *k, const char *hyp,
                                   const char *ref, struct heed_error *err)
{
    enum heed_status status = metric_tokenize(&g->hyp, k, hyp, err);
    if (!status) status = metric_tokenize(&g->ref, k, ref, err);
    if (!status) status = ngram_words(g, err);
    if (!status) status = ngram_match(g, c->match, ORDER, err);
    if (status) return status;
    for (int n = 1; n <= ORDER; n++) c->total[n - 1] += ngram_total(&g->hyp, n);
    c->hyp_len += (long)g->hyp.n;
    c->ref_len += (long)g->ref.n;
    return HEED_OK;
}

static double brevity_penalty(long hyp_len, long ref_len)
{
    if (hyp_len >= ref_len) return 1;
    return hyp_len > 0 ? exp(1 - (double)ref_len / (double)hyp_len) : 0;
}

/* Without a match of single tokens there is no match of any order, and the score is 0 without
 * smoothing. */
static void score_fill(struct heed_score *s, const struct counts *c)
{
    s->hyp_len = c->hyp_len;
    s->ref_len = c->ref_len;
    s->brevity_penalty = brevity_penalty(c->hyp_len, c->ref_len);
    if (!c->match[0]) return;
    double smooth = 1, logs = 0;
    for (int n = 0; n < ORDER; n++) {
        /* All hypotheses are shorter than this order: its precision is zero, and so is the score.
         */
        if (!c->total[n]) return;
        if (!c->match[n]) smooth *= 2;
        double match = c->match[n] ? (double)c->match[n] : 1 / smooth;
        s->precision[n] = 100 * match / (double)c->total[n];
        logs += log(s->precision[n]);
    }
    s->value = s->brevity_penalty * exp(logs / ORDER);
}

enum heed_status heed_bleu(const char *const *hyp, const char *const *ref, int n,
                           const char *tokenize, struct heed_score *out, struct heed_error *err)
{
    const struct metric_tokenizer *k = metric_tokenizer_find(tokenize, err);
    if (!k) return HEED_EARG;
    if (n <= 0) {
        return error_set(err, HEED_EARG, "BLEU of %d sentences: expected at least one", n);
    }
    struct counts counts = {0};
    struct ngram g = {0};
    enum heed_status status = error_strings(err, "hyp", hyp, n);
    if (!status) status = error_strings(err, "ref", ref, n);
    if (!status && !out) status = error_null(err, "out");
    for (int i = 0; i < n && !status; i++) status = counts_add(&counts, &g, k, hyp[i], ref[i], err);
    ngram_release(&g);
    if (status) return status;

    struct heed_score score = {0};
    score_fill(&score, &counts);
    snprintf(score.signature, sizeof score.signature,
             "nrefs:1|case:mixed|eff:no|tok:%s|smooth:exp|version:heed-%s", tokenize,
             heed_version());
    *out = score;
    return HEED_OK;
}
