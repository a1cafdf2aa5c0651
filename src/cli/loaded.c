/*
 * loaded.c - see loaded.h.
 */
#include "cli/loaded.h"

#include "cli/cli.h"

int loaded_open(struct loaded *l, const char *dir)
{
    struct heed_error err = {0};
    if (dir && !*dir) return cli_misuse("--model is '', expected a directory");
    l->dir = dir ? dir : default_model(l->default_dir);
    if (!l->dir) {
        return cli_misuse("--model is missing, and no model came with heed: there is none in %s",
                          l->default_dir);
    }
    l->engine = cli_engine_open(cli_device(), 0);
    if (!l->engine) return CLI_FAILURE;
    l->model = heed_model_load(l->engine, l->dir, HEED_WEIGHTS_AS_STORED, &err);
    return l->model ? CLI_DONE : cli_failure("%s", err.text);
}

void loaded_close(struct loaded *l)
{
    heed_model_free(l->model);
    heed_engine_free(l->engine);
}
