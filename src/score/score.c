/*
 * score.c - scores of a corpus, of its sentences, and of several systems with the significance of
 * their differences. What differs between metrics is in struct metric.
 *
 * Call order: scorer_open, corpus_count (the counts of every sentence), then sums of them and
 * metric->score, scorer_close.
 */
#include "base/error.h"
#include "heed.h"
#include "score/metric.h"
#include "score/pcg64.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct metric *const metrics[] = {
    [HEED_METRIC_BLEU] = &metric_bleu,         [HEED_METRIC_CHRF] = &metric_chrf,
    [HEED_METRIC_CHRFPP] = &metric_chrfpp,     [HEED_METRIC_TER] = &metric_ter,
    [HEED_METRIC_PARSEVAL] = &metric_parseval,
};
enum { METRICS = sizeof metrics / sizeof *metrics };

static const struct metric *metric_of(enum heed_metric m)
{
    return (int)m >= 0 && (int)m < METRICS ? metrics[m] : NULL;
}

const char *heed_metric_name(enum heed_metric m)
{
    const struct metric *metric = metric_of(m);
    return metric ? metric->name : NULL;
}

const char *heed_metric_title(enum heed_metric m)
{
    const struct metric *metric = metric_of(m);
    return metric ? metric->title : NULL;
}

/* Lines of text to score: one hypothesis file, or all of those that are compared. */
struct texts {
    const char *const *const *hyp; /* [systems][n] */
    int systems;
    const char *const *const *ref; /* [refs][n] */
    int refs;
    int n; /* lines */
};

/* ---- opening ---- */

static enum heed_status scorer_open(struct scorer *s, const struct heed_scoring *how,
                                    struct heed_error *err)
{
    if (!how) return error_null(err, "how");
    *s = (struct scorer){.metric = metric_of(how->metric), .tokenize = how->tokenize};
    if (!s->metric) return error_set(err, HEED_EARG, "there is no metric %d", (int)how->metric);
    s->lower = how->lowercase || s->metric->lower;
    if (s->metric->tokenizes) {
        s->tokenizer = metric_tokenizer_find(how->tokenize, err);
        if (!s->tokenizer) return HEED_EARG;
    }
    s->room = calloc(1, s->metric->room);
    if (!s->room) return error_memory(err, s->metric->room, "the buffers of a metric");
    return HEED_OK;
}

static void scorer_close(struct scorer *s)
{
    if (s->room) s->metric->room_release(s->room);
    free(s->room);
}

static enum heed_status texts_check(const struct texts *t, const struct scorer *s,
                                    struct heed_error *err)
{
    if (t->n <= 0) {
        return error_set(err, HEED_EARG, "%s of %d sentences: expected at least one",
                         s->metric->title, t->n);
    }
    if (t->refs <= 0) {
        return error_set(err, HEED_EARG, "%s with %d references: expected at least one",
                         s->metric->title, t->refs);
    }
    if (!t->hyp) return error_null(err, "hyp");
    if (!t->ref) return error_null(err, "ref");
    enum heed_status status = HEED_OK;
    for (int k = 0; k < t->systems && !status; k++) {
        status = error_strings(err, "hyp", t->hyp[k], t->n);
    }
    for (int r = 0; r < t->refs && !status; r++) {
        status = error_strings(err, "ref", t->ref[r], t->n);
    }
    return status;
}

/* ---- counts ---- */

/* The counts of every sentence of one system: *out is malloced, [n][metric->counts]. */
static enum heed_status corpus_count(struct scorer *s, const struct texts *t, int system,
                                     double **out, struct heed_error *err)
{
    size_t counts = (size_t)s->metric->counts;
    size_t bytes = (size_t)t->n * counts * sizeof **out,
           ref_bytes = (size_t)t->refs * sizeof(char *);
    double *all = calloc((size_t)t->n, counts * sizeof *all);
    const char **ref = malloc(ref_bytes);
    enum heed_status status = all ? HEED_OK : error_memory(err, bytes, "the counts of a metric");
    if (!status && !ref) status = error_memory(err, ref_bytes, "the references of a line");
    for (int i = 0; i < t->n && !status; i++) {
        for (int r = 0; r < t->refs; r++) ref[r] = t->ref[r][i];
        s->line = i + 1;
        status =
            s->metric->count(s, all + (size_t)i * counts, t->hyp[system][i], ref, t->refs, err);
    }
    free(ref);
    if (status) {
        free(all);
    } else {
        *out = all;
    }
    return status;
}

static void counts_add(double *sum, const double *counts, int n)
{
    for (int i = 0; i < n; i++) sum[i] += counts[i];
}

static struct heed_score score_of(const struct metric *m, const double *counts, bool sentence)
{
    struct heed_score score = {0};
    m->score(&score, counts, sentence);
    return score;
}

static struct heed_score score_of_all(const struct metric *m, const double *all, int n)
{
    double sum[METRIC_COUNTS_MAX] = {0};
    for (int i = 0; i < n; i++) counts_add(sum, all + (size_t)i * (size_t)m->counts, m->counts);
    return score_of(m, sum, false);
}

/* resampled: "" or what is to be said about resampling. */
static void score_sign(struct heed_score *score, const struct scorer *s, int refs,
                       const char *resampled, bool sentence)
{
    char own[METRIC_SIGNATURE_MAX];
    s->metric->sign(own, s, sentence);
    snprintf(score->signature, sizeof score->signature, "nrefs:%d|%s%s|version:heed-%s", refs,
             resampled, own, heed_version());
}

/* ---- one system ---- */

/* The score of the corpus, or of each sentence where `sentence` is true. */
static enum heed_status score_texts(const struct heed_scoring *how, const struct texts *t,
                                    struct heed_score *out, bool sentence, struct heed_error *err)
{
    struct scorer s = {0};
    double *all = NULL;
    enum heed_status status = scorer_open(&s, how, err);
    if (!status) status = texts_check(t, &s, err);
    if (!status && !out) status = error_null(err, "out");
    if (!status) status = corpus_count(&s, t, 0, &all, err);
    if (!status && sentence) {
        for (int i = 0; i < t->n; i++) {
            out[i] = score_of(s.metric, all + (size_t)i * (size_t)s.metric->counts, true);
            score_sign(&out[i], &s, t->refs, "", true);
        }
    } else if (!status) {
        *out = score_of_all(s.metric, all, t->n);
        score_sign(out, &s, t->refs, "", false);
    }
    free(all);
    scorer_close(&s);
    return status;
}

enum heed_status heed_score_corpus(const struct heed_scoring *how, const char *const *hyp,
                                   const char *const *const *ref, int refs, int n,
                                   struct heed_score *out, struct heed_error *err)
{
    const struct texts t = {.hyp = &hyp, .systems = 1, .ref = ref, .refs = refs, .n = n};
    return score_texts(how, &t, out, false, err);
}

enum heed_status heed_score_sentences(const struct heed_scoring *how, const char *const *hyp,
                                      const char *const *const *ref, int refs, int n,
                                      struct heed_score *out, struct heed_error *err)
{
    const struct texts t = {.hyp = &hyp, .systems = 1, .ref = ref, .refs = refs, .n = n};
    return score_texts(how, &t, out, true, err);
}

enum heed_status heed_bleu(const char *const *hyp, const char *const *ref, int n,
                           const char *tokenize, struct heed_score *out, struct heed_error *err)
{
    const struct heed_scoring how = {.metric = HEED_METRIC_BLEU, .tokenize = tokenize};
    return heed_score_corpus(&how, hyp, &ref, 1, n, out, err);
}

enum heed_status heed_chrf(const char *const *hyp, const char *const *ref, int n,
                           struct heed_score *out, struct heed_error *err)
{
    const struct heed_scoring how = {.metric = HEED_METRIC_CHRF};
    return heed_score_corpus(&how, hyp, &ref, 1, n, out, err);
}

/* ---- several systems: paired bootstrap resampling ---- */

struct resampling {
    const struct metric *metric;
    int systems, n, samples;
    double **all;    /* [systems] counts of every sentence */
    double *value;   /* [systems][samples] scores */
    uint32_t *drawn; /* [n] sentences of one sample */
};

/* Draws each sample once, for all systems: that is what makes the test a paired one. */
static void resample(struct resampling *r, uint64_t seed)
{
    int counts = r->metric->counts;
    struct pcg64 random = pcg64_seed(seed);
    for (int k = 0; k < r->samples; k++) {
        for (int i = 0; i < r->n; i++) r->drawn[i] = pcg64_below(&random, (uint32_t)r->n);
        for (int s = 0; s < r->systems; s++) {
            double sum[METRIC_COUNTS_MAX] = {0};
            for (int i = 0; i < r->n; i++) {
                counts_add(sum, r->all[s] + (size_t)r->drawn[i] * (size_t)counts, counts);
            }
            r->value[(size_t)s * (size_t)r->samples + (size_t)k] =
                score_of(r->metric, sum, false).value;
        }
    }
}

static double mean(const double *v, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += v[i];
    return sum / n;
}

/* The probability of a difference as large as that of the scores if the systems were equally good:
 * the part of the samples whose difference, less the mean of all, is larger. */
static double p_value(const double *value, const double *baseline, int n, double difference)
{
    double center = 0;
    for (int i = 0; i < n; i++) center += fabs(value[i] - baseline[i]) / n;
    int larger = 0;
    for (int i = 0; i < n; i++) larger += fabs(value[i] - baseline[i]) - center > difference;
    return (larger + 1.0) / (n + 1.0);
}

static int double_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Half the width of the interval that holds 95% of the values, which are sorted. */
static double half_interval(double *value, int n)
{
    int outside = n / 40;
    qsort(value, (size_t)n, sizeof *value, double_compare);
    return (value[n - outside - 1] - value[outside]) / 2;
}

static void compare(const struct resampling *r, struct heed_comparison *out)
{
    for (int s = r->systems - 1; s >= 0; s--) { /* the baseline's values are sorted last */
        double *value = r->value + (size_t)s * (size_t)r->samples;
        struct heed_comparison *c = &out[s];
        double difference = fabs(c->score.value - out[0].score.value);
        c->p = s > 0 ? p_value(value, r->value, r->samples, difference) : 1;
        c->mean = mean(value, r->samples);
        c->interval = half_interval(value, r->samples);
    }
}

static enum heed_status resampling_open(struct resampling *r, struct heed_error *err)
{
    size_t values = (size_t)r->systems * (size_t)r->samples;
    r->all = calloc((size_t)r->systems, sizeof *r->all);
    r->value = calloc(values, sizeof *r->value);
    r->drawn = calloc((size_t)r->n, sizeof *r->drawn);
    if (r->all && r->value && r->drawn) return HEED_OK;
    return error_memory(err, values * sizeof *r->value, "bootstrap resampling");
}

static void resampling_close(struct resampling *r)
{
    for (int s = 0; r->all && s < r->systems; s++) free(r->all[s]);
    free(r->all);
    free(r->value);
    free(r->drawn);
}

enum heed_status heed_score_systems(const struct heed_scoring *how, const char *const *const *hyp,
                                    int systems, const char *const *const *ref, int refs, int n,
                                    int samples, uint64_t seed, struct heed_comparison *out,
                                    struct heed_error *err)
{
    if (systems < 1 || samples < 1) {
        return error_set(err, HEED_EARG, "%d systems and %d samples: expected at least one of each",
                         systems, samples);
    }
    const struct texts t = {.hyp = hyp, .systems = systems, .ref = ref, .refs = refs, .n = n};
    struct scorer s = {0};
    struct resampling r = {.systems = systems, .n = n, .samples = samples};
    enum heed_status status = scorer_open(&s, how, err);
    if (!status) status = texts_check(&t, &s, err);
    if (!status && !out) status = error_null(err, "out");
    r.metric = s.metric;
    if (!status) status = resampling_open(&r, err);
    for (int k = 0; k < systems && !status; k++) status = corpus_count(&s, &t, k, &r.all[k], err);
    if (!status) {
        char resampled[64];
        snprintf(resampled, sizeof resampled, "bs:%d|seed:%llu|", samples,
                 (unsigned long long)seed);
        for (int k = 0; k < systems; k++) {
            out[k].score = score_of_all(s.metric, r.all[k], n);
            score_sign(&out[k].score, &s, refs, resampled, false);
        }
        resample(&r, seed);
        compare(&r, out);
    }
    resampling_close(&r);
    scorer_close(&s);
    return status;
}
