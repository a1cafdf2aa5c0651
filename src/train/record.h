/*
 * record.h - trainer.json: where a run is, and what makes it this run.
 *
 * A flat JSON object. Its last key is a checksum of the others, so that an edited or damaged file
 * is not taken for what the trainer wrote; files from before there was one load without.
 */
#ifndef HEED_TRAIN_RECORD_H
#define HEED_TRAIN_RECORD_H
#include "corpus/batch.h"
#include "train/fingerprint.h"
#include "train/optimizer.h"

/* What the weights of every step depend on, besides the shape and the vocabulary, and what the best
 * are chosen by. A run that went on with another would be another run. */
struct recipe {
    char data[FINGERPRINT_MAX]; /* of the training text */
    uint64_t seed;
    int batch_tokens, accumulate, warmup;
    float peak_lr, beta1, beta2, epsilon;
    float label_smoothing, subword_dropout, clip;
    enum heed_precision precision;
    char valid[FINGERPRINT_MAX]; /* of the validation text; "": there was none so far */
    enum heed_best best_by;
    char valid_tokenize[FINGERPRINT_MAX]; /* where the best are chosen by BLEU; else "" */
};

/* The other files of a checkpoint. */
enum { RECORD_FILES = 4 };
extern const char *const record_file[RECORD_FILES];

/* All that a resumed run needs to go on bit for bit, besides weights and moments. */
struct progress {
    int64_t step;
    struct batch_cursor cursor;
    struct guard guard;
    int64_t skipped;       /* steps in all */
    int skips;             /* steps skipped in a row; the weights may be ruined unless it is 0 */
    int64_t regular;       /* the newest checkpoint that was due, where going back goes; 0: none */
    int rollbacks;         /* with fewer than STEPS_IN_PEACE (trainer.c) steps between them */
    int64_t rollback_step; /* of the newest */
    int64_t validated;     /* step of the newest validation that was due */
    double best;           /* the best validation: larger is better; see best_step */
    int64_t best_step;     /* 0: none yet */
    int stale;             /* validations since then */
    struct recipe recipe;
    char file[RECORD_FILES][FINGERPRINT_MAX]; /* of the files beside it; "": not known */
};

/* NUL-terminated JSON, malloced; NULL when out of memory. */
char *record_format(const struct progress *p);
/* path is what an error calls the text. What an older file does not say of its recipe is taken from
 * `given`. */
enum heed_status record_parse(struct progress *p, const struct recipe *given, const char *text,
                              size_t len, const char *path, struct heed_error *err);
/* HEED_EARG naming the first option in which `given` differs from the recipe of the run in `out`.
 * What the best are chosen by is compared only where both have validation text. */
enum heed_status record_same_run(const struct recipe *run, const struct recipe *given,
                                 const char *out, struct heed_error *err);

#endif
