/*
 * samples.h - samples.jsonl: what a model makes of a few pairs of the validation text, and how it
 * attends to one of them, at every validation.
 */
#ifndef HEED_TRAIN_SAMPLES_H
#define HEED_TRAIN_SAMPLES_H
#include "model/run.h"

struct samples;

struct samples_options {
    struct heed_corpus corpus; /* the validation text */
    const struct heed_tokenizer *tokenizer;
    const char *dir; /* of the run */
    int64_t step;    /* lines of later steps are removed from the file */
};

/* Chooses the pairs, which are the same whenever the text is. p must outlive the samples, and each
 * line tells of the values that p has then. */
enum heed_status samples_open(struct samples **out, const struct parameters *p,
                              const struct samples_options *o, struct heed_error *err);
/* Appends the line of a step. */
enum heed_status samples_write(struct samples *s, int64_t step, struct heed_error *err);
void samples_free(struct samples *s);

#endif
