/*
 * validate.h - how good the model is on text it does not train on: loss, perplexity, BLEU
 * and chrF.
 */
#ifndef HEED_TRAIN_VALIDATE_H
#define HEED_TRAIN_VALIDATE_H
#include "model/run.h"

struct validator;

struct validation {
    double nll;        /* -log p per target token, without label smoothing */
    double bleu, chrf; /* of greedy translations; -1 when not asked for */
};

struct validator_options {
    struct heed_corpus corpus;
    const struct heed_tokenizer *tokenizer;
    int batch_tokens;
    int threads;          /* for the text; 0: all cores */
    const char *tokenize; /* of BLEU; NULL: nothing is translated */
};

/* Reads the whole corpus, once, and keeps its tokens. The parameters are read at each validation.
 */
enum heed_status validator_open(struct validator **out, const struct parameters *p,
                                const struct validator_options *o, struct heed_error *err);
/* r: a run with room for batch_tokens rows on each side; its gradients are left alone. */
enum heed_status validate(struct validator *v, struct run *r, struct validation *out,
                          struct heed_error *err);
void validator_free(struct validator *v);

#endif
