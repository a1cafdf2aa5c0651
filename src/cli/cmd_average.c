/*
 * cmd_average.c - `heed average`: the mean of the weights of checkpoints (paper 6.1).
 */
#include "cli/cli.h"
#include "cli/options.h"
#include "heed.h"

int cmd_average(int argc, char **argv)
{
    struct words checkpoints = {0};
    const char *out = NULL;
    const struct option option[] = {
        {"out", "DIR", "where the averaged model goes", .string = &out, .required = true},
    };
    const struct usage usage = {
        .command = "average",
        .summary = "average the weights of checkpoints",
        .synopsis = "--out DIR CHECKPOINT...",
        .about = "The mean of the last few checkpoints of a training is a better model than the "
                 "last one.",
        .example = "  heed average --out averaged model/checkpoints/step-*",
        .option = option,
        .n = sizeof option / sizeof option[0],
        .rest = &checkpoints,
        .rest_name = "CHECKPOINT directory",
        .rest_min = 1,
    };
    int code = options_parse(&usage, argc, argv);
    if (code == OPTIONS_GO_ON) {
        struct heed_error err = {0};
        code = heed_average(checkpoints.v, checkpoints.n, out, &err) == HEED_OK
                   ? CLI_DONE
                   : cli_failure("%s", err.text);
    }
    words_release(&checkpoints);
    return code;
}
