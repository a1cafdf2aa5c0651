/*
 * heads.h - a study of the heads of a model on a corpus, shared by the files that make it up:
 * heads.c (the corpus, batch by batch), head_weights.c (what the weights of a batch show) and
 * head_examples.c (sentences that show it best).
 */
#ifndef HEED_STUDY_HEADS_H
#define HEED_STUDY_HEADS_H
#include "base/packed.h"
#include "model/run.h"
#include "study/head_stats.h"
#include "study/mask.h"

/* A pair of the corpus, as tokens without begin and end marks. */
struct pair_ids {
    struct heed_ids src, tgt;
    int line; /* counted from 0 */
};

/* The best sentence for something that a head does; line -1: none yet. */
struct best {
    double score;
    int head, line, query, key, distance;
};

/* The pairs of tokens that are looked for in every sentence, see head_examples.c. */
enum { LONG_DISTANCE, ANAPHORA, PAIRS };

/* What a token is, for the search of pairs. */
struct token_kind {
    bool letters;    /* has a letter */
    bool word;       /* begins a word of at least three letters, or is Chinese */
    bool capital;    /* a word that begins with a capital letter, or is Chinese */
    bool pronoun;    /* of the third person */
    bool determiner; /* a, the, this, der, ein and so on */
};

struct study {
    struct heed_heads h; /* the first member: heed_heads_free casts */
    struct heed_heads_options o;
    struct backend *be;
    struct heed_config config;
    struct heed_tokenizer *tokenizer;
    struct parameters *p;
    struct run *run;
    struct mask mask;
    int tag;               /* tokens of the tag before each source */
    int rows;              /* of a batch, on each side, at most */
    struct pair_ids *pair; /* [pairs] */
    int pairs;
    struct token_kind *kind; /* [vocab_size] */

    struct heed_head *head;          /* [h.n] */
    struct head_sums *sums;          /* [h.n] */
    struct head_sums *batch;         /* [h.n] of one sentence */
    struct best (*best)[HEED_ROLES]; /* [h.n] the best sentence for each role */
    struct best pair_best[PAIRS];
    struct heed_head_example *example;
    char (*name)[48];           /* of the examples */
    double *cosines[HEED_USES]; /* sums of heed_heads.alike */
    double queries[HEED_USES];  /* that these are over */
    double *norm;               /* a buffer, [h.n] */
    const float **row;          /* a buffer, [h.n] */
    float *weights;             /* of a batch, as run_attention writes them */
    size_t weights_cap;
    double nll, *nll_without; /* sums over the tokens; [h.n] */
    double *batch_nll;        /* [h.n] of one batch */
};

/* The number of the first head of a use. */
int study_first_head(const struct study *s, enum heed_attention_use use);

/* Adds what the attention weights of a batch show; pair: its first. In head_weights.c. */
enum heed_status study_weights(struct study *s, const struct packed *b, const struct pair_ids *pair,
                               struct heed_error *err);

/* In head_examples.c. */
enum heed_status study_kinds(struct study *s, struct heed_error *err);
/* Looks at one sentence: sums [h.n] of its heads alone. */
void study_best_roles(struct study *s, const struct head_sums *sums, int line, int tokens);
/* Looks at the weights of one query of a head of the encoder, in a sentence of n tokens. The
 * weights of the next query are `stride` floats behind. */
void study_best_pairs(struct study *s, int head, int line, const int32_t *id, int n, int query,
                      const float *weight, size_t stride);
/* Lists the examples of the roles that heads have, and the pairs. */
enum heed_status study_examples(struct study *s, struct heed_error *err);

#endif
