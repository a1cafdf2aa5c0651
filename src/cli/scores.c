/*
 * scores.c - BLEU and chrF of a translation; see scores.h.
 */
#include "cli/scores.h"

#include <stdio.h>

#include "cli/cli.h"

struct option scores_option(const char **tokenize)
{
    return (struct option){"tokenize", NULL, "tokenizer of BLEU", .string = tokenize,
                           .choices = "13a|zh|intl|char|none"};
}

int scores_compute(struct scores *s, const char *const *hyp, const char *const *ref, int n,
                   const char *tokenize)
{
    struct heed_error err = {0};
    if (heed_bleu(hyp, ref, n, tokenize, &s->bleu, &err) != HEED_OK ||
        heed_chrf(hyp, ref, n, &s->chrf, &err) != HEED_OK) {
        return cli_failure("%s", err.text);
    }
    return CLI_DONE;
}

void scores_print(const struct scores *s)
{
    char hyp[CLI_NUMBER_MAX], ref[CLI_NUMBER_MAX];
    const struct heed_score *bleu = &s->bleu, *chrf = &s->chrf;
    const double *p = bleu->precision;
    printf("BLEU %.2f  %.1f/%.1f/%.1f/%.1f  BP %.3f  (hyp %s, ref %s)  %s\n", bleu->value, p[0],
           p[1], p[2], p[3], bleu->brevity_penalty, cli_count(hyp, bleu->hyp_len),
           cli_count(ref, bleu->ref_len), bleu->signature);
    printf("chrF %.2f  %s\n", chrf->value, chrf->signature);
}

void scores_print_json(const struct scores *s)
{
    const struct heed_score *bleu = &s->bleu, *chrf = &s->chrf;
    const double *p = bleu->precision;
    printf("\"bleu\": {\"score\": %.4f, \"precisions\": [%.4f, %.4f, %.4f, %.4f], "
           "\"brevity_penalty\": %.4f, \"hyp_len\": %ld, \"ref_len\": %ld, \"signature\": "
           "\"%s\"},\n \"chrf\": {\"score\": %.4f, \"signature\": \"%s\"}",
           bleu->value, p[0], p[1], p[2], p[3], bleu->brevity_penalty, bleu->hyp_len, bleu->ref_len,
           bleu->signature, chrf->value, chrf->signature);
}
