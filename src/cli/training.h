/*
 * training.h - what `heed train` and `heed reproduce` have in common: the options of the text, the
 * model, the optimization and the machine.
 *
 * Call order: training_init, the tables of options, options_parse, training_check,
 * training_release.
 */
#ifndef HEED_CLI_TRAINING_H
#define HEED_CLI_TRAINING_H
#include "cli/options.h"
#include "heed.h"

enum {
    TRAINING_FIELDS = 64,
    OPTIONS_MAX = 128
}; /* most fields of the configuration, and options */

/* Files of parallel text: files of pairs, or files of sources with as many files of targets. */
struct text_files {
    struct words pairs, src, tgt;
    /* of training text, [n]: the names of the files of pairs or sources without the weights behind
     * them, and the weights; NULL where no file has one */
    char **name;
    double *weight;
    float temperature;
};

struct training {
    struct heed_train_options o;
    const char *field[TRAINING_FIELDS]; /* value given for each field of the configuration */
    struct text_files text, valid;
    const char *preset, *precision, *schedule, *device;
    int64_t seed;
    int threads;
    bool quiet;
};

/* A table of options that is put together from parts. */
struct option_table {
    struct option option[OPTIONS_MAX];
    int n;
};
/* size: that of the array. */
void options_add(struct option_table *table, const struct option *option, size_t size);

void training_init(struct training *t);
void training_release(struct training *t);

void training_text_options(struct option_table *table, struct training *t);
void training_model_options(struct option_table *table, struct training *t);
void training_optimization_options(struct option_table *table, struct training *t);
void training_machine_options(struct option_table *table, struct training *t);

/* Sets t->o from the options: OPTIONS_GO_ON, or an exit code after a sentence. Whether there is any
 * training text is up to the caller. */
int training_check(struct training *t);
/* The same for the files of one text, which has no weights; prefix is that of its options: "",
 * "valid-". */
int text_files_check(const struct text_files *f, const char *prefix, struct heed_corpus *out);
void text_files_release(struct text_files *f);

#endif
