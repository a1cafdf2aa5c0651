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
 * Where phrases are required (after Post and Vilar 2018), candidates that have as many of their
 * tokens compete among themselves, and the places of the living go round among these groups. So
 * the most advanced get further at every step, and no output ends before it has them all.
 *
 * Call order: init; candidates, wanted, advance, until live is 0; then done[..done_n), best first;
 * release.
 */
#ifndef HEED_DECODE_BEAM_H
#define HEED_DECODE_BEAM_H
#include "heed.h"

enum { BEAM_MAX = 64, BEAM_SAMPLED = 256, BEAM_REQUIRED = 16, BEAM_BANNED = 256 };

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
    int eos;
};

/* What is asked of the outputs for one sentence; {0}: nothing. Phrases are not empty. */
struct beam_wish {
    struct heed_ids prefix; /* they begin with this; with the end mark last it is all of them */
    const struct heed_ids *required; /* at most BEAM_REQUIRED phrases they must have ... */
    const struct heed_ids *banned;   /* ... and at most BEAM_BANNED they must not */
    int required_n, banned_n;
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
    struct beam_wish wish;
    int longest; /* tokens of an output, end mark included */
    int live, done_n;
    bool broken; /* the model's numbers were not finite: nothing lives and nothing is done */
    struct hypothesis *alive, *next; /* [width] */
    struct hypothesis *done;         /* [width], best first */
    struct candidate *candidate;     /* of a step */
    void *block;
};

/* Tokens that an output needs for its wish, at least. */
int beam_least(const struct beam_wish *w);

/* One living hypothesis without tokens. wish may be NULL; the caller keeps what it points at. */
enum heed_status beam_init(struct beam *b, const struct beam_options *o, int longest,
                           const struct beam_wish *wish, struct heed_error *err);
void beam_release(struct beam *b);

/* How many of the best next tokens of each living hypothesis advance wants to know: more than
 * width, since some may not be allowed. */
int beam_candidates(const struct beam *b);
/* The most that can be, for outputs of at most `longest` tokens. */
int beam_candidates_max(const struct beam_options *o, int longest);
/* Next tokens of living hypothesis i that advance must know as well, however unlikely: fills
 * id[n], with -1 behind the last. */
void beam_wanted(const struct beam *b, int i, int32_t *id, int n);
/* At most so many. */
int beam_wants(const struct beam *b);
/* id, score: [live][best + wants]; the best first, then those wanted; a score is a log-probability.
 * More of either than were asked for do no harm. */
void beam_advance(struct beam *b, const int32_t *id, const float *score, int best, int wants);

/* ((5 + n) / 6)^alpha */
double beam_penalty(float alpha, int n);

#endif
