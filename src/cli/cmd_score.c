/*
 * cmd_score.c - `heed score`: BLEU and chrF of a translation on standard input.
 *
 * Scripts parse the output: the first word of a line is the metric, the second its value.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/lines.h"
#include "cli/options.h"
#include "heed.h"

static void print_plain(const struct heed_score *bleu, const struct heed_score *chrf)
{
    char hyp[CLI_NUMBER_MAX], ref[CLI_NUMBER_MAX];
    const double *p = bleu->precision;
    printf("BLEU %.2f  %.1f/%.1f/%.1f/%.1f  BP %.3f  (hyp %s, ref %s)  %s\n", bleu->value, p[0],
           p[1], p[2], p[3], bleu->brevity_penalty, cli_count(hyp, bleu->hyp_len),
           cli_count(ref, bleu->ref_len), bleu->signature);
    printf("chrF %.2f  %s\n", chrf->value, chrf->signature);
}

static void print_json(const struct heed_score *bleu, const struct heed_score *chrf)
{
    const double *p = bleu->precision;
    printf(
        "{\"bleu\": {\"score\": %.4f, \"precisions\": [%.4f, %.4f, %.4f, %.4f], "
        "\"brevity_penalty\": %.4f, \"hyp_len\": %ld, \"ref_len\": %ld, \"signature\": \"%s\"},\n"
        " \"chrf\": {\"score\": %.4f, \"signature\": \"%s\"}}\n",
        bleu->value, p[0], p[1], p[2], p[3], bleu->brevity_penalty, bleu->hyp_len, bleu->ref_len,
        bleu->signature, chrf->value, chrf->signature);
}

static int score(const struct lines *hyp, const struct lines *ref, const char *ref_path,
                 const char *tokenize, bool json)
{
    if (hyp->n != ref->n) {
        return cli_failure("standard input has %d lines, %s has %d; they must be equally many",
                           hyp->n, ref_path, ref->n);
    }
    if (hyp->n == 0) return cli_failure("nothing to score: %s has no lines", ref_path);
    struct heed_error err = {0};
    struct heed_score bleu, chrf;
    const char *const *h = (const char *const *)hyp->v, *const *r = (const char *const *)ref->v;
    if (heed_bleu(h, r, hyp->n, tokenize, &bleu, &err) != HEED_OK ||
        heed_chrf(h, r, hyp->n, &chrf, &err) != HEED_OK) {
        return cli_failure("%s", err.text);
    }
    if (json) {
        print_json(&bleu, &chrf);
    } else {
        print_plain(&bleu, &chrf);
    }
    return cli_flush();
}

int cmd_score(int argc, char **argv)
{
    const char *ref_path = NULL, *tokenize = "13a";
    bool json = false;
    const struct option option[] = {
        {"ref", "FILE", "the reference, a sentence a line", .string = &ref_path, .required = true},
        {"tokenize", NULL, "for BLEU", .string = &tokenize, .choices = "13a|zh|intl|char|none"},
        {"json", NULL, "print JSON", .flag = &json},
    };
    const struct usage usage = {
        .command = "score",
        .summary = "BLEU and chrF of a translation",
        .synopsis = "--ref FILE [options] < TRANSLATION",
        .about = "The scores are those of sacreBLEU with the signature that is printed.",
        .example = "  heed translate --model model < test.en | heed score --ref test.de",
        .option = option,
        .n = sizeof option / sizeof option[0],
    };
    int code = options_parse(&usage, argc, argv);
    if (code != OPTIONS_GO_ON) return code;
    if (strcmp(ref_path, "-") == 0) {
        return cli_misuse("--ref is -, expected a file: standard input is the translation");
    }
    struct lines hyp = {0}, ref = {0};
    bool good = lines_read_file(&ref, ref_path) && lines_read_file(&hyp, "-");
    code = good ? score(&hyp, &ref, ref_path, tokenize, json) : CLI_FAILURE;
    lines_release(&hyp);
    lines_release(&ref);
    return code;
}
