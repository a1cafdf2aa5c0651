/*
 * chrf.c - chrF2 and chrF2++, equal to sacreBLEU's.
 *
 * Precision and recall of character n-grams, n = 1 to 6, whitespace left out, counted over the
 * whole corpus and averaged over the orders; the score is their F with recall weighing beta = 2
 * times as much. chrF++ also has the n-grams of words, n = 1 and 2, as two more orders. Of several
 * references each sentence is compared with the one that gives it the highest score.
 */
#include "base/error.h"
#include "score/metric.h"
#include "score/ngram.h"

#include <stdio.h>
#include <string.h>

enum { CHARACTERS = 6, WORDS = 2, BETA = 2, ORDERS_MAX = CHARACTERS + WORDS };
/* Counts: matches of each order, n-grams of the hypothesis, n-grams of the reference. */
enum { MATCH, HYP, REF, KINDS };

static int metric_orders(const struct metric *m)
{
    return m->counts / KINDS;
}

/* The code points of a line without whitespace. */
static enum heed_status decode_solid(struct metric_text *t, const char *line, bool lower,
                                     struct heed_error *err)
{
    enum heed_status status = metric_decode(t, line, lower, err);
    if (status) return status;
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++) {
        if (!metric_is_space(t->c[i])) t->c[n++] = t->c[i];
    }
    t->n = n;
    return HEED_OK;
}

static double f_score(const double *counts, int orders)
{
    const double *match = counts + MATCH * orders, *hyp = counts + HYP * orders,
                 *ref = counts + REF * orders;
    double precision = 0, recall = 0;
    int both = 0; /* number of orders that both sides have n-grams of */
    for (int n = 0; n < orders; n++) {
        if (hyp[n] == 0 || ref[n] == 0) continue;
        precision += match[n] / hyp[n];
        recall += match[n] / ref[n];
        both++;
    }
    if (!both || precision + recall == 0) return 0;
    precision /= both;
    recall /= both;
    const double weight = BETA * BETA;
    return 100 * ((1 + weight) * precision * recall / (weight * precision + recall));
}

/* Adds the counts of n-grams of the two texts to those of the orders from `first` on. */
static enum heed_status count_orders(struct ngram *g, double *counts, int orders, int first, int n,
                                     struct heed_error *err)
{
    enum heed_status status = ngram_match(g, counts + MATCH * orders + first, n, err);
    for (int i = 0; i < n && !status; i++) {
        double hyp = (double)ngram_total(&g->hyp, i + 1), ref = (double)ngram_total(g->ref, i + 1);
        /* A reference too short for this order does not count against the hypothesis. */
        counts[HYP * orders + first + i] = ref > 0 ? hyp : 0;
        counts[REF * orders + first + i] = ref;
    }
    return status;
}

static enum heed_status count_pair(const struct scorer *s, double *counts, const char *hyp,
                                   const char *ref, struct heed_error *err)
{
    struct ngram *g = s->room;
    int orders = metric_orders(s->metric);
    enum heed_status status = decode_solid(&g->hyp, hyp, s->lower, err);
    if (!status) status = decode_solid(g->ref, ref, s->lower, err);
    if (!status) status = count_orders(g, counts, orders, 0, CHARACTERS, err);
    if (status || orders == CHARACTERS) return status;

    status = metric_decode_words(&g->hyp, hyp, s->lower, err);
    if (!status) status = metric_decode_words(g->ref, ref, s->lower, err);
    if (!status) status = ngram_words(g, err);
    if (!status) status = count_orders(g, counts, orders, CHARACTERS, WORDS, err);
    return status;
}

static enum heed_status chrf_count(const struct scorer *s, double *counts, const char *hyp,
                                   const char *const *ref, int refs, struct heed_error *err)
{
    double best = -1;
    enum heed_status status = ngram_references(s->room, 1, err);
    for (int r = 0; r < refs && !status; r++) {
        double here[KINDS * ORDERS_MAX] = {0};
        status = count_pair(s, here, hyp, ref[r], err);
        double f = f_score(here, metric_orders(s->metric));
        if (f <= best) continue;
        best = f;
        memcpy(counts, here, (size_t)s->metric->counts * sizeof *counts);
    }
    return status;
}

static void chrf_score(struct heed_score *s, const double *counts, bool sentence)
{
    (void)sentence;
    s->value = f_score(counts, CHARACTERS);
}

static void chrfpp_score(struct heed_score *s, const double *counts, bool sentence)
{
    (void)sentence;
    s->value = f_score(counts, CHARACTERS + WORDS);
}

static void chrf_sign(char out[METRIC_SIGNATURE_MAX], const struct scorer *s, bool sentence)
{
    (void)sentence;
    snprintf(out, METRIC_SIGNATURE_MAX, "case:%s|eff:yes|nc:%d|nw:%d|space:no",
             s->lower ? "lc" : "mixed", CHARACTERS, metric_orders(s->metric) - CHARACTERS);
}

const struct metric metric_chrf = {
    .name = "chrf",
    .title = "chrF",
    .counts = KINDS * CHARACTERS,
    .room = sizeof(struct ngram),
    .room_release = ngram_room_release,
    .count = chrf_count,
    .score = chrf_score,
    .sign = chrf_sign,
};

const struct metric metric_chrfpp = {
    .name = "chrf++",
    .title = "chrF++",
    .counts = KINDS * ORDERS_MAX,
    .room = sizeof(struct ngram),
    .room_release = ngram_room_release,
    .count = chrf_count,
    .score = chrfpp_score,
    .sign = chrf_sign,
};
