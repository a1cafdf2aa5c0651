/*
 * cmd_quantize.c - `heed quantize`: a model with smaller weights.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "heed.h"

int cmd_quantize(int argc, char **argv)
{
    struct words dirs = {0};
    const char *out = NULL, *weights = "int8";
    bool quiet = false;
    const struct option option[] = {
        {"weights", NULL, "int8: a quarter of the size; bf16: half", .string = &weights,
         .choices = "int8|bf16"},
        {"out", "DIR", "where the smaller model goes, not MODEL itself", .string = &out,
         .required = true},
        {"quiet", NULL, "print errors only", .flag = &quiet},
    };
    const struct usage usage = {
        .command = "quantize",
        .summary = "make a model smaller and faster",
        .synopsis = "--out DIR [options] MODEL",
        .about =
            "Matrices are rounded to int8 with a scale for each row, or to bf16; biases and the\n"
            "parameters of layer norms stay f32.\n"
            "heed translate --weights int8 gives the same translations from the large model.",
        .example = "  heed quantize --weights int8 --out model-int8 model",
        .option = option,
        .n = sizeof option / sizeof option[0],
        .rest = &dirs,
        .rest_name = "MODEL directory",
        .rest_min = 1,
    };
    int code = options_parse(&usage, argc, argv);
    if (code == OPTIONS_GO_ON && dirs.n > 1) {
        code = cli_misuse("quantize takes one MODEL, found %d", dirs.n);
    }
    if (code == OPTIONS_GO_ON) {
        struct heed_error err = {0};
        enum heed_weights w = strcmp(weights, "int8") == 0 ? HEED_WEIGHTS_INT8 : HEED_WEIGHTS_BF16;
        code = heed_quantize(dirs.v[0], w, out, &err) == HEED_OK ? CLI_DONE
                                                                 : cli_failure("%s", err.text);
        char before[CLI_NUMBER_MAX], after[CLI_NUMBER_MAX];
        if (code == CLI_DONE && !quiet)
            fprintf(stderr, "%s: %s bytes of weights in %s, %s before\n", out,
                    cli_count(after, cli_weights_bytes(out)), weights,
                    cli_count(before, cli_weights_bytes(dirs.v[0])));
    }
    words_release(&dirs);
    return code;
}
