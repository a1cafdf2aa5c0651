/*
 * scores.h - scores of a translation, printed alike by every command.
 *
 * Scripts parse the output: the first word of a line is the metric, the second its value.
 */
#ifndef HEED_CLI_SCORES_H
#define HEED_CLI_SCORES_H
#include "cli/options.h"
#include "heed.h"

/* The entry of an option table that names the tokenizer of BLEU. */
struct option scores_option(const char **tokenize);

/* One line. */
void score_print(enum heed_metric m, const struct heed_score *s);
/* A member of a JSON object: its name and its value, which is an object. */
void score_print_json(enum heed_metric m, const struct heed_score *s);

struct scores {
    struct heed_score bleu, chrf;
};

/* Returns an exit code, after a sentence where it is not CLI_DONE. */
int scores_compute(struct scores *s, const char *const *hyp, const char *const *ref, int n,
                   const char *tokenize);
/* One line a metric. */
void scores_print(const struct scores *s);
/* The members of a JSON object, without its braces. */
void scores_print_json(const struct scores *s);

#endif
