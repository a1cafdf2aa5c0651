/*
 * checkpoint.h - a run on disk.
 *
 * OUT/config.json, vocab.model, model.safetensors are a model directory: the newest weights.
 *
 * OUT/best/ is another: the weights of the best validation.
 *
 * OUT/checkpoints/step-N/ is a model directory with what training needs besides: state.safetensors
 * (Adam's moments) and trainer.json (struct progress).
 *
 * A checkpoint is written under a temporary name, fsynced and renamed, and renamed again before it
 * is removed, so that whatever is named step-N is whole.
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
    int64_t skipped; /* steps in all */
    int skips;       /* steps skipped in a row; the weights may be ruined unless it is 0 */
    int64_t regular; /* the newest checkpoint that was due, where going back goes; 0: none */
    int rollbacks;   /* without peace between them */
    int64_t rollback_step;
    int64_t validated; /* step of the newest validation that was due */
    double best;       /* the best validation, by BLEU or else by -nll; see best_step */
    bool best_is_bleu;
    int64_t best_step; /* 0: none yet */
    int stale;         /* validations since then */
    /* what the data and their order depend on; a run resumed with others would be another run */
    uint64_t seed;
    int batch_tokens, accumulate;
    float subword_dropout;
    enum heed_precision precision;
};

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
/* The newest step on disk, 0 when there is none. What is half written or half removed
 * goes. */
enum heed_status checkpoint_newest(const char *out, int64_t *step, struct heed_error *err);
/* Weights, moments and progress of a step; nothing is changed on failure except the arrays. */
enum heed_status checkpoint_load(const struct checkpoint *c, int64_t step, struct progress *p,
                                 struct heed_error *err);
/* HEED_OK when a checkpoint has the configuration and the vocabulary of this run. */
enum heed_status checkpoint_check(const struct checkpoint *c, int64_t step, struct heed_error *err);
/* OUT's own model becomes that of a checkpoint, as checkpoint_save leaves it. */
enum heed_status checkpoint_publish(const struct checkpoint *c, int64_t step,
                                    struct heed_error *err);
/* OUT/best gets the present weights. */
enum heed_status checkpoint_best(const struct checkpoint *c, struct heed_error *err);

static inline const char *precision_name(enum heed_precision p)
{
    return p == HEED_BF16 ? "bf16" : "f32";
}

#endif
