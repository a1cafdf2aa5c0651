/*
 * metric.h - what a metric is: counts of each sentence, and a score made of their sums.
 *
 * The score of a corpus is made of the sums over its sentences, that of a sentence of its own
 * counts, and those of bootstrap resampling of the sums over sentences that were drawn. So every
 * metric is a pair of functions, and score.c does the rest.
 */
#ifndef HEED_SCORE_METRIC_H
#define HEED_SCORE_METRIC_H
#include "score/tokenize.h"

enum { METRIC_COUNTS_MAX = 24, METRIC_SIGNATURE_MAX = 96 };

/* A metric that is being computed. */
struct scorer {
    const struct metric *metric;
    const struct metric_tokenizer *tokenizer; /* where the metric tokenizes */
    const char *tokenize;                     /* its name */
    bool lower;
    int line;   /* number of the line that is counted, from 1 */
    void *room; /* buffers of the metric, reused from sentence to sentence */
};

struct metric {
    const char *name;  /* as users type it */
    const char *title; /* as it is printed */
    int counts;
    bool tokenizes; /* it has a choice of tokenizers */
    bool lower;     /* it always compares in lower case */
    size_t room;    /* bytes of its buffers, which start as zeros */
    void (*room_release)(void *room);
    /* The counts of one sentence. */
    enum heed_status (*count)(const struct scorer *s, double *counts, const char *hyp,
                              const char *const *ref, int refs, struct heed_error *err);
    /* Fills in the value and the figures beside it. */
    void (*score)(struct heed_score *out, const double *counts, bool sentence);
    /* The part of the signature that is the metric's own. */
    void (*sign)(char out[METRIC_SIGNATURE_MAX], const struct scorer *s, bool sentence);
};

extern const struct metric metric_bleu, metric_chrf, metric_chrfpp, metric_ter, metric_parseval;

#endif
