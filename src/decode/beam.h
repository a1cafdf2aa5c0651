/*
 * beam.h - the search for one sentence: which hypotheses live, which are done, when to stop.
 *
 * Knows nothing of the model: it is told the best next tokens of every living hypothesis and says
 * which of them live on. Paper 6.1: beam 4, length penalty 0.6 (Wu et al. 2016, equation 14).
 *
 * A step: the candidates of all living hypotheses are taken best first. One that ends is done; any
 * other lives on, until `width` live. The search is over when nothing lives, when `width` are done,
 * or when no living hypothesis can still come before the last of the n best that are done.
 *
 * With a temperature there is no search: every hypothesis draws its next token.
 *
 * Call order: init; candidates, advance, until live is 0; then done[..done_n), best first; release.
 */
#ifndef HEED_DECODE_BEAM_H
#define HEED_DECODE_BEAM_H
#include "heed.h"

enum { BEAM_MAX = 64, BEAM_SAMPLED = 256 };

struct beam_options {
    int width;            /* hypotheses that live at once; 1: greedy */
    int nbest;            /* how many are wanted, at most width */
    float length_penalty; /* the exponent, alpha */
    int min_length;       /* tokens of an output, without the end mark */
    int no_repeat;        /* no n-gram of so many tokens twice; 0: any */
    /* Sampling: `width` outputs are drawn, each by itself, where temperature is not 0. */
    float temperature; /* log-probabilities are divided by it */
    int top_k;         /* of the so many likeliest tokens, at most BEAM_SAMPLED; 0: of as many */
    float top_p;       /* of those that together have this probability; 0 or 1: of all */
    uint64_t seed;     /* the same seed draws the same */
    const int32_t *banned;
    int banned_n;
    int eos;
};

struct hypothesis {
    int n;              /* tokens so far; a done one has its end mark last unless it was cut */
    int32_t *id;        /* [n] */
    float *token_score; /* [n] their log-probabilities */
    double logp;        /* the sum of these */
    double score;       /* logp by the length penalty; done ones only */
    int parent;         /* place among the living before the last step */
    int rank;           /* sampling: which of the outputs it is */
};

struct beam {
    struct beam_options o;
    int longest; /* tokens of an output, end mark included */
    const int32_t *prefix;
    int prefix_n;
    int live, done_n;
    struct hypothesis *alive, *next; /* [width] */
    struct hypothesis *done;         /* [width], best first */
    void *block;
};

/* One living hypothesis without tokens. Every output begins with prefix[prefix_n], which the caller
 * keeps. */
enum heed_status beam_init(struct beam *b, const struct beam_options *o, int longest,
                           const int32_t *prefix, int prefix_n, struct heed_error *err);
void beam_release(struct beam *b);

/* The only next token, while the prefix lasts; else -1. */
int beam_forced(const struct beam *b);
/* How many of the best next tokens of each living hypothesis advance wants to know: more than
 * width, since some may not be allowed. */
int beam_candidates(const struct beam *b);
/* The same without no_repeat, which adds one for every token of the output. */
int beam_candidates_free(const struct beam_options *o);
/* id, score: [live][stride], best first; the score is a log-probability. n of each row are there.
 */
void beam_advance(struct beam *b, const int32_t *id, const float *score, int n, int stride);

/* ((5 + n) / 6)^alpha */
double beam_penalty(float alpha, int n);

#endif
