/*
 * cmd_score.c - `heed score`: BLEU and chrF of a translation on standard input.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/lines.h"
#include "cli/options.h"
#include "cli/scores.h"

static int score(const struct lines *hyp, const struct lines *ref, const char *ref_path,
                 const char *tokenize, bool json)
{
    if (!lines_match(hyp, "standard input", ref, ref_path)) return CLI_FAILURE;
    if (hyp->n == 0) return cli_failure("nothing to score: %s has no lines", ref_path);
    struct scores s;
    int code = scores_compute(&s, (const char *const *)hyp->v, (const char *const *)ref->v, hyp->n,
                              tokenize);
    if (code != CLI_DONE) return code;
    if (json) {
        putchar('{');
        scores_print_json(&s);
        puts("}");
    } else {
        scores_print(&s);
    }
    return cli_flush();
}

int cmd_score(int argc, char **argv)
{
    const char *ref_path = NULL, *tokenize = "13a";
    bool json = false;
    const struct option option[] = {
        {"ref", "FILE", "the reference, a sentence a line; plain, .gz or .xz", .string = &ref_path,
         .required = true},
        scores_option(&tokenize),
        {"json", NULL, "print JSON", .flag = &json},
    };
    const struct usage usage = {
        .command = "score",
        .summary = "BLEU and chrF of a translation",
        .synopsis = "--ref FILE [options] < TRANSLATION",
        .about = "The scores are those of sacreBLEU with the signature that is printed.\n"
                 "Give --tokenize zh where the reference is Chinese.",
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
