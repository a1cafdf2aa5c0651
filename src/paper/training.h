/*
 * training.h - rows that train a model: the options that a row changes, training that is stopped
 * and goes on, what its log says, the model's scores.
 */
#ifndef HEED_PAPER_TRAINING_H
#define HEED_PAPER_TRAINING_H
#include "paper/study.h"

/* Checks that there is text to train on and to validate with. */
enum heed_status training_check_text(const struct heed_study *s, struct heed_error *err);
/* Adds the options of all trainings to the settings of the study. */
enum heed_status training_settings(struct heed_study *s, json_t *settings, struct heed_error *err);
/* The options of a row's training: those of the study and what the row changes, which its `options`
 * say as `heed train` does: "--heads 1 --d-k 64". */
enum heed_status training_options(const struct heed_study *s, const struct row *r,
                                  struct heed_train_options *o, struct heed_error *err);

/* How often a row saves, and how many checkpoints it keeps; {0}: what suits to go on. */
struct training_saves {
    int64_t every;
    int keep;
};

/* Trains, or goes on, in runs/NAME/model. The result gets
 *   options, parameters, steps, source_tokens, target_tokens, flops, seconds
 *   skipped, rollbacks    steps whose gradient was not usable, and returns to a checkpoint
 *   loss                  [step, mean loss of the steps up to it], at most 200 of them
 *   nll, perplexity       of the validation text after the last step
 *   diverged              a sentence, where training ended because of it
 * *done is false where the time was over before the last step. */
enum heed_status training_run(struct heed_study *s, const struct row *r,
                              struct training_saves saves, json_t *result, bool *done,
                              struct heed_error *err);
/* "DIR/runs/NAME/model" */
enum heed_status training_model_dir(const struct heed_study *s, const struct row *r,
                                    char path[FILE_PATH_MAX], struct heed_error *err);
/* The directory of a checkpoint in it. */
enum heed_status training_checkpoint_dir(const struct heed_study *s, const struct row *r,
                                         int64_t step, char path[FILE_PATH_MAX],
                                         struct heed_error *err);
/* Removes checkpoints and moments; the model and its log stay. */
enum heed_status training_finish(struct heed_study *s, const struct row *r, struct heed_error *err);

/* ---- scores ---- */

/* Sentences with their translations. {0} is empty. */
struct test_text {
    char **src, **ref; /* [n] */
    int n;
    size_t src_cap, ref_cap;
};
/* The test text of the study, or its validation text. */
enum heed_status test_text_read(struct test_text *t, const struct heed_study *s,
                                struct heed_error *err);
void test_text_release(struct test_text *t);

/* How a model scores on n sentences. */
struct test_scores {
    double nll; /* -log p of the references per token, end mark included */
    struct heed_score bleu, chrf;
};
/* Scores the model on the sentences whose numbers are in index [n], with the paper's beam 4 and
 * length penalty 0.6. *done is false where the time was over before the end. */
enum heed_status test_score(struct heed_study *s, struct heed_session *session,
                            const struct test_text *t, const int *index, int n,
                            struct test_scores *out, bool *done, struct heed_error *err);
/* Scores the model in a directory on the whole test text; the result gets bleu, chrf, signature and
 * test_nll. */
enum heed_status training_score(struct heed_study *s, const char *dir, json_t *result, bool *done,
                                struct heed_error *err);

#endif
