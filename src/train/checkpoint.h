/*
 * checkpoint.h - the files of a training run: saving and loading.
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
    /* To save: the whole moments, and with shared parameters the whole master, in host memory,
     * where the optimizer has a part of them; else NULL. */
    const void *m, *v, *master;
};

/* Writes checkpoints/step-N and publishes it (checkpoint_publish); then removes all checkpoints but
 * the newest `keep` and the last regular one. */
enum heed_status checkpoint_save(const struct checkpoint *c, const struct progress *p, int keep,
                                 struct heed_error *err);
/* The steps of the checkpoints on disk, newest first; *steps is malloced. Removes checkpoints that
 * were left half written or half removed. */
enum heed_status checkpoint_list(const char *out, int64_t **steps, int *n, struct heed_error *err);
/* The number of shards of the run in `out`, by its newest checkpoint that can be read; 0: there is
 * none. */
enum heed_status checkpoint_shards(const char *out, int *shards, struct heed_error *err);
/* Reads the record of a step and checks that the files beside it are those it was saved with. */
enum heed_status checkpoint_read(const struct checkpoint *c, int64_t step,
                                 const struct recipe *given, struct progress *p,
                                 struct heed_error *err);
/* Checks that a checkpoint has the configuration and the vocabulary of this run. */
enum heed_status checkpoint_check(const struct checkpoint *c, int64_t step, struct heed_error *err);
/* Loads weights and moments of a step; of shared parameters, the own slices of the master alone. On
 * failure their arrays may be partly overwritten. */
enum heed_status checkpoint_load(const struct checkpoint *c, int64_t step, struct heed_error *err);
/* Renames a damaged checkpoint to checkpoints/damaged-step-N, so that nothing is lost. */
enum heed_status checkpoint_set_aside(const char *out, int64_t step, struct heed_error *err);
/* Makes the model in OUT itself that of a checkpoint; checkpoint_save does so, too. */
enum heed_status checkpoint_publish(const struct checkpoint *c, int64_t step,
                                    struct heed_error *err);
/* Writes the present weights to OUT/best. */
enum heed_status checkpoint_best(const struct checkpoint *c, struct heed_error *err);

#endif
