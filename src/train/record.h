/*
 * record.h - trainer.json: the state of a run besides weights and moments, and the options that a
 * resumed run must share.
 *
 * The file is a flat JSON object. Its last key is a checksum of the others, by which an edited or
 * damaged file is recognized; older files have no checksum and are not checked.
 */
#ifndef HEED_TRAIN_RECORD_H
#define HEED_TRAIN_RECORD_H
#include "corpus/batch.h"
#include "train/fingerprint.h"
#include "train/optimizer.h"

/* The options that the weights of every step depend on, besides configuration and vocabulary, and
 * those by which the best weights are chosen. They must not change when a run is resumed. */
struct recipe {
    char data[FINGERPRINT_MAX]; /* fingerprint of the training text */
    char mix[FINGERPRINT_MAX];  /* weights of its files */
    uint64_t seed;
    int batch_tokens, accumulate, shards, warmup, train_length;
    enum heed_schedule schedule;
    float peak_lr, beta1, beta2, epsilon;
    float label_smoothing, subword_dropout, clip;
    enum heed_precision precision;
    char valid[FINGERPRINT_MAX]; /* fingerprint of the validation text; "": the run has had none */
    enum heed_best best_by;
    char valid_tokenize[FINGERPRINT_MAX]; /* "" unless the best are chosen by BLEU */
};

enum { SHARDS_MAX = 256 };
static inline bool shards_valid(int64_t n)
{
    return n >= 1 && n <= SHARDS_MAX && (n & (n - 1)) == 0;
}

/* The other files of a checkpoint. */
enum { RECORD_FILES = 4 };
extern const char *const record_file[RECORD_FILES];

/* All that a resumed run needs to go on bit for bit, besides weights and moments. */
struct progress {
    int64_t step;
    struct batch_cursor cursor[SHARDS_MAX]; /* of each shard */
    struct guard guard;
    int64_t skipped; /* number of skipped steps in the run */
    int skips;       /* steps skipped in a row; unless it is 0, the weights may be bad */
    int64_t regular; /* step of the newest regular checkpoint, to which rollbacks go; 0: none */
    int rollbacks;   /* number of rollbacks with fewer than ROLLBACK_APART (trainer.c) steps between
                        them */
    int64_t rollback_step; /* step of the newest rollback */
    int64_t validated;     /* step of the newest validation that was due */
    double best;           /* figure of the best validation: larger is better */
    int64_t best_step;     /* step of that validation; 0: there was none */
    int stale;             /* regular validations since then */
    struct recipe recipe;
    char file[RECORD_FILES][FINGERPRINT_MAX]; /* fingerprints of record_file; "": not known */
};

/* NUL-terminated JSON, malloced; NULL when out of memory. */
char *record_format(const struct progress *p);
/* Errors call the text `path`. Parts of the recipe that an older file lacks are taken from `given`.
 */
enum heed_status record_parse(struct progress *p, const struct recipe *given, const char *text,
                              size_t len, const char *path, struct heed_error *err);
/* Lines "OPTION VALUE" of all options of a recipe, malloced; NULL when out of memory. */
char *record_options(const struct recipe *r);
/* HEED_EARG naming the first option in which `given` differs from the recipe of the run in `out`.
 * The options by which the best weights are chosen are compared only where both have validation
 * text. */
enum heed_status record_same_run(const struct recipe *run, const struct recipe *given,
                                 const char *out, struct heed_error *err);

#endif
