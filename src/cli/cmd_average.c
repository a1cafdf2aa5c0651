/*
 * cmd_average.c - `heed average`: the mean of the weights of checkpoints (paper 6.1).
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "heed.h"

/* The step in the name of a checkpoint's directory, step-N; -1: the name has none. */
static int64_t step_of(const char *dir)
{
    int64_t step = -1;
    const char *name = dir;
    for (const char *p = strstr(dir, "step-"); p; p = strstr(p + 1, "step-")) name = p;
    return sscanf(name, "step-%" SCNd64, &step) == 1 ? step : -1;
}

/* "2 models of steps 500 to 1,000"; without the steps where a name has none. */
static void report(const struct words *dirs, const char *out)
{
    int64_t first = step_of(dirs->v[0]), last = first;
    for (int i = 1; i < dirs->n && first >= 0; i++) {
        int64_t step = step_of(dirs->v[i]);
        if (step > last) last = step;
        if (step < first) first = step;
    }
    char n[CLI_NUMBER_MAX], from[CLI_NUMBER_MAX], to[CLI_NUMBER_MAX], bytes[CLI_NUMBER_MAX];
    fprintf(stderr, "%s: the mean of %s model%s", out, cli_count(n, dirs->n),
            dirs->n == 1 ? "" : "s");
    if (first >= 0 && first == last) fprintf(stderr, " of step %s", cli_count(from, first));
    if (first >= 0 && first < last)
        fprintf(stderr, " of steps %s to %s", cli_count(from, first), cli_count(to, last));
    fprintf(stderr, ", %s bytes of weights\n", cli_count(bytes, cli_weights_bytes(out)));
}

int cmd_average(int argc, char **argv)
{
    struct words checkpoints = {0};
    const char *out = NULL;
    bool quiet = false;
    const struct option option[] = {
        {"out", "DIR", "where the averaged model goes", .string = &out, .required = true},
        {"quiet", NULL, "print errors only", .flag = &quiet},
    };
    const struct usage usage = {
        .command = "average",
        .summary = "average the weights of checkpoints",
        .synopsis = "--out DIR CHECKPOINT...",
        .about =
            "The mean of the last few checkpoints of a training is a better model than the last\n"
            "one. DIR must be a directory of its own, outside of the training's.",
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
        if (code == CLI_DONE && !quiet) report(&checkpoints, out);
    }
    words_release(&checkpoints);
    return code;
}
