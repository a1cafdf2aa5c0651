/*
 * scores.c - scores of a translation; see scores.h.
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

static void parseval_print(const struct heed_parseval *p)
{
    char gold[CLI_NUMBER_MAX], found[CLI_NUMBER_MAX], lines[CLI_NUMBER_MAX], bad[CLI_NUMBER_MAX];
    printf("precision %.2f  recall %.2f  exact %.2f  tags %.2f  (found %s, gold %s)  %s lines, "
           "%s errors  ",
           p->precision, p->recall, p->exact, p->tags, cli_count(found, p->found),
           cli_count(gold, p->gold), cli_count(lines, p->lines), cli_count(bad, p->errors));
}

static void parseval_print_json(const struct heed_parseval *p)
{
    printf("\"precision\": %.4f, \"recall\": %.4f, \"exact\": %.4f, \"tags\": %.4f, "
           "\"matched\": %ld, \"gold\": %ld, \"found\": %ld, \"lines\": %ld, \"errors\": %ld, ",
           p->precision, p->recall, p->exact, p->tags, p->matched, p->gold, p->found, p->lines,
           p->errors);
}

void score_print(enum heed_metric m, const struct heed_score *s)
{
    char hyp[CLI_NUMBER_MAX], ref[CLI_NUMBER_MAX], edits[CLI_NUMBER_MAX];
    const double *p = s->precision;
    printf("%s %.2f  ", heed_metric_title(m), s->value);
    if (m == HEED_METRIC_BLEU) {
        printf("%.1f/%.1f/%.1f/%.1f  BP %.3f  (hyp %s, ref %s)  ", p[0], p[1], p[2], p[3],
               s->brevity_penalty, cli_count(hyp, s->hyp_len), cli_count(ref, s->ref_len));
    } else if (m == HEED_METRIC_TER) {
        printf("(edits %s, ref %.1f)  ", cli_count(edits, s->edits), s->ref_words);
    } else if (m == HEED_METRIC_PARSEVAL) {
        parseval_print(&s->parseval);
    }
    puts(s->signature);
}

void score_print_json(enum heed_metric m, const struct heed_score *s)
{
    const double *p = s->precision;
    printf("\"%s\": {\"score\": %.4f, ", heed_metric_name(m), s->value);
    if (m == HEED_METRIC_BLEU) {
        printf("\"precisions\": [%.4f, %.4f, %.4f, %.4f], \"brevity_penalty\": %.4f, "
               "\"hyp_len\": %ld, \"ref_len\": %ld, ",
               p[0], p[1], p[2], p[3], s->brevity_penalty, s->hyp_len, s->ref_len);
    } else if (m == HEED_METRIC_TER) {
        printf("\"edits\": %ld, \"ref_words\": %.4f, ", s->edits, s->ref_words);
    } else if (m == HEED_METRIC_PARSEVAL) {
        parseval_print_json(&s->parseval);
    }
    printf("\"signature\": \"%s\"}", s->signature);
}

void scores_print(const struct scores *s)
{
    score_print(HEED_METRIC_BLEU, &s->bleu);
    score_print(HEED_METRIC_CHRF, &s->chrf);
}

void scores_print_json(const struct scores *s)
{
    score_print_json(HEED_METRIC_BLEU, &s->bleu);
    printf(",\n ");
    score_print_json(HEED_METRIC_CHRF, &s->chrf);
}
