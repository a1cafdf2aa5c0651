/*
 * beam.h - the beam search for one sentence: which hypotheses live, which are finished, when to
 * stop.
 *
 * A beam knows nothing of the model: it is told the best next tokens of every living hypothesis and
 * says which of them live on. Paper 6.1: beam 4, length penalty 0.6 (Wu et al. 2016, equation 14).
 *
 * A step takes the candidates of all living hypotheses, best first. A candidate that ends in the
 * end mark is a finished output; any other lives on, until `width` live. The search is over when
 * nothing lives, when `width` outputs are finished, or when no living hypothesis can still score
 * higher than the last of the `nbest` best finished ones.
 *
 * With a temperature there is no search: `width` outputs are sampled, each by itself.
 *
 * Required phrases are found by grid beam search with dynamic allocation (after Post and Vilar
 * 2018): candidates are grouped by how many tokens of the required phrases they have, and the
 * groups take turns in filling the beam, the most advanced group first. So at least one hypothesis
 * gets further at every step, and no output ends before it has all phrases.
 *
 * Call order: beam_init; then beam_candidates, beam_wanted and beam_advance until live is 0; then
 * done[..done_n) are the outputs, best first; beam_release.
 */
#ifndef HEED_DECODE_BEAM_H
#define HEED_DECODE_BEAM_H
#include "heed.h"

enum { BEAM_MAX = 64, BEAM_SAMPLED = 256, BEAM_REQUIRED = 16, BEAM_BANNED = 256 };

struct beam_options {
    int width;            /* hypotheses that live at once; 1: greedy */
    int nbest;            /* outputs that are asked for, at most width */
    float length_penalty; /* alpha in beam_penalty */
    int min_length;       /* fewest tokens of an output, without the end mark */
    int no_repeat;        /* no n-gram of this many tokens comes twice; 0: repeats are allowed */
    float temperature;    /* sampling: log-probabilities are divided by it; 0: beam search */
    int top_k;     /* sample from the top_k likeliest tokens, at most BEAM_SAMPLED; 0: that */
    float top_p;   /* sample from the likeliest tokens whose probabilities sum up to top_p;
                    * 0 or 1: from all */
    uint64_t seed; /* the same seed samples the same outputs */
    bool trace;    /* keep a node for every hypothesis */
};

/* What every output for a sentence must be like; {0}: no constraint. Phrases are not empty. */
struct constraints {
    struct heed_ids prefix; /* outputs begin with it; if its last token is the end mark, the output
                             * is given as a whole and only scored */
    const struct heed_ids *required; /* phrases in every output, at most BEAM_REQUIRED */
    const struct heed_ids *banned;   /* phrases in no output, at most BEAM_BANNED */
    int required_n, banned_n;
};

/* The fewest tokens that an output with these constraints can have. */
int constraints_length(const struct constraints *c);

struct hypothesis {
    int n;              /* tokens so far; the end mark is the last of a finished output, unless it
                         * was cut at its longest length */
    int32_t *id;        /* [n] */
    float *token_score; /* [n] log-probabilities of the tokens */
    double logp;        /* their sum */
    double score;       /* finished outputs only: logp with the length penalty */
    int parent;         /* index of its prefix among the living hypotheses before the last step */
    int rank;           /* sampling: which of the `width` outputs it is */
    int node;           /* with a trace: the number of its node; -1: it has no tokens */
};

struct beam {
    struct beam_options o;
    struct constraints must;
    int eos;     /* id of the end mark */
    int longest; /* tokens of an output, end mark included */
    int live, done_n;
    bool broken; /* the model gave scores that are not finite: nothing lives, nothing is finished */
    struct hypothesis *alive, *next; /* [width] living hypotheses before and after a step */
    struct hypothesis *done;         /* [width] finished outputs, best first */
    struct candidate *candidate;     /* scratch of a step */
    struct heed_beam_node *node;     /* [nodes] the trace so far; NULL: none is asked for */
    int nodes;
    void *block; /* the memory of all arrays */
};

/* Starts with one living hypothesis without tokens. must may be NULL; the caller keeps what it
 * points to until release. */
enum heed_status beam_init(struct beam *b, const struct beam_options *o,
                           const struct constraints *must, int eos, int longest,
                           struct heed_error *err);
void beam_release(struct beam *b);

/* How many of the best next tokens of each living hypothesis beam_advance needs: more than width,
 * since some may not be allowed. */
int beam_candidates(const struct beam *b);
/* The largest number that beam_candidates returns for any beam of outputs of up to `longest`
 * tokens. */
int beam_candidates_max(int longest);
/* Next tokens of living hypothesis i whose scores beam_advance needs however unlikely they are:
 * fills id[n], with -1 behind the last. */
void beam_wanted(const struct beam *b, int i, int32_t *id, int n);
/* The largest number of such tokens. */
int beam_wants(const struct beam *b);
/* One step. id, score: [live][best + wants], the best tokens first, behind them those of
 * beam_wanted; a score is a log-probability. More of either than this beam asked for change
 * nothing. */
void beam_advance(struct beam *b, const int32_t *id, const float *score, int best, int wants);

/* While something lives: the finished or living hypothesis with the highest score. */
const struct hypothesis *beam_best(const struct beam *b);

/* ((5 + n) / 6)^alpha */
double beam_penalty(float alpha, int n);

#endif
