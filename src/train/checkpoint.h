/*
 * checkpoint.h - a run on disk.
 *
 * OUT/config.json, vocab.model, model.safetensors are a model directory: the newest weights.
 *
 * OUT/best/ is another: the weights of the best validation.
 *
 * OUT/checkpoints/step-N/ is a model directory with what training needs besides: state.safetensors
 * (Adam's moments) and trainer.json (record.h).
 *
 * A checkpoint is written under a temporary name, fsynced and renamed, and renamed again before it
 * is removed, so that whatever is named step-N is whole.
 */
#ifndef HEED_TRAIN_CHECKPOINT_H
#define HEED_TRAIN_CHECKPOINT_H
#include "model/parameters.h"
#include "train/optimizer.h"
#include "train/record.h"

struct checkpoint {
    struct parameters *p;
    struct optimizer *opt;
    const struct heed_tokenizer *tokenizer;
    const char *out;
};

/* Writes checkpoints/step-N, points OUT's own model at it, removes all but the newest `keep` and
 * the regular one. */
enum heed_status checkpoint_save(const struct checkpoint *c, const struct progress *p, int keep,
                                 struct heed_error *err);
/* The steps on disk, newest first, malloced. What is half written or half removed goes. */
enum heed_status checkpoint_list(const char *out, int64_t **steps, int *n, struct heed_error *err);
/* The record of a step, once the files beside it were found to be those that it was saved with. */
enum heed_status checkpoint_read(const struct checkpoint *c, int64_t step,
                                 const struct recipe *given, struct progress *p,
                                 struct heed_error *err);
/* HEED_OK when a checkpoint has the configuration and the vocabulary of this run. */
enum heed_status checkpoint_check(const struct checkpoint *c, int64_t step, struct heed_error *err);
/* Weights and moments of a step; nothing is changed on failure except the arrays. */
enum heed_status checkpoint_load(const struct checkpoint *c, int64_t step, struct heed_error *err);
/* A damaged checkpoint becomes checkpoints/damaged-step-N: out of the way, but not lost. */
enum heed_status checkpoint_set_aside(const char *out, int64_t step, struct heed_error *err);
/* OUT's own model becomes that of a checkpoint, as checkpoint_save leaves it. */
enum heed_status checkpoint_publish(const struct checkpoint *c, int64_t step,
                                    struct heed_error *err);
/* OUT/best gets the present weights. */
enum heed_status checkpoint_best(const struct checkpoint *c, struct heed_error *err);

#endif
