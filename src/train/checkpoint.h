/*
 * checkpoint.h - a run on disk.
 *
 *     OUT/config.json, vocab.model, model.safetensors   the newest weights: a model directory
 *     OUT/best/...                                      the weights of the best validation,
 * likewise OUT/checkpoints/step-00001000/                    a model directory with what training
 * needs state.safetensors                             Adam's moments trainer.json step, seed, data
 * cursor and the like OUT/log.jsonl
 *
 * A checkpoint is written under a temporary name, fsynced and renamed, so that whatever is named
 * step-N is whole.
 */
#ifndef HEED_TRAIN_CHECKPOINT_H
#define HEED_TRAIN_CHECKPOINT_H
#include "model/parameters.h"
#include "text/batch.h"
#include "train/optimizer.h"

/* trainer.json: all that a resumed run needs to go on bit for bit, besides weights and moments. */
struct progress {
    int64_t step;
    struct batch_cursor cursor;
    struct guard guard;
    int64_t skipped;   /* steps in all */
    double best;       /* the best validation, by BLEU or else by -nll; see best_step */
    int64_t best_step; /* 0: none yet */
    int stale;         /* validations since then */
    /* what the order of the data depends on; a run resumed with others would be another run */
    uint64_t seed;
    int batch_tokens, accumulate;
    enum heed_precision precision;
};

struct checkpoint {
    struct parameters *p;
    struct optimizer *opt;
    const struct heed_tokenizer *tokenizer;
    const char *out;
};

/* Writes checkpoints/step-N, points OUT's own model at it, removes all but the newest `keep`. */
enum heed_status checkpoint_save(const struct checkpoint *c, const struct progress *p, int keep,
                                 struct heed_error *err);
/* The newest step on disk, 0 when there is none. Half-written leftovers are removed. */
enum heed_status checkpoint_newest(const char *out, int64_t *step, struct heed_error *err);
/* Weights, moments and progress of a step; nothing is changed on failure except the arrays. */
enum heed_status checkpoint_load(const struct checkpoint *c, int64_t step, struct progress *p,
                                 struct heed_error *err);
/* The configuration a checkpoint was written with. */
enum heed_status checkpoint_config(const char *out, int64_t step, struct heed_config *config,
                                   struct heed_error *err);
/* OUT/best gets the present weights. */
enum heed_status checkpoint_best(const struct checkpoint *c, struct heed_error *err);

#endif
