/*
 * validate.h - how good the model is on validation text, which it does not train on: loss, BLEU and
 * chrF, and a few translations for a reader (samples.h).
 */
#ifndef HEED_TRAIN_VALIDATE_H
#define HEED_TRAIN_VALIDATE_H
#include "cluster/cluster.h"
#include "model/run.h"

struct validator;

struct validation {
    double nll;        /* -log p per target token, without label smoothing */
    double bleu, chrf; /* of greedy translations; -1 when not asked for */
};

struct validator_options {
    struct heed_corpus corpus;
    const struct heed_tokenizer *tokenizer;
    struct heed_cluster *cluster; /* whose ranks share the work; NULL: none */
    int batch_tokens;
    int threads;          /* that read and tokenize the text; 0: all cores */
    const char *tokenize; /* tokenizer of BLEU, see heed_bleu; NULL: only samples are translated */
    const char *dir;      /* of the run, where the samples are */
    int64_t step;         /* samples of later steps are removed */
};

/* Reads the whole corpus once and keeps its tokens. p must outlive the validator, and each
 * validation uses the values that p has then. */
enum heed_status validator_open(struct validator **out, const struct parameters *p,
                                const struct validator_options *o, struct heed_error *err);
/* At a step; appends its samples. r: a run with room for batch_tokens rows on each side, which
 * computes the loss; its gradients do not change. */
enum heed_status validate(struct validator *v, struct run *r, int64_t step, struct validation *out,
                          struct heed_error *err);
void validator_free(struct validator *v);

#endif
