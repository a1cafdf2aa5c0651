/*
 * loaded.h - a model of a command that looks inside it: --model, or the one that came with heed.
 */
#ifndef HEED_CLI_LOADED_H
#define HEED_CLI_LOADED_H
#include "cli/default_model.h"
#include "heed.h"

struct loaded {
    struct heed_engine *engine;
    struct heed_model *model;
    const char *dir;
    char default_dir[CLI_PATH_MAX];
};

/* Loads the model in dir; NULL: the default model. Returns an exit code, after a sentence where it
 * is not CLI_DONE. A model that was never opened, {0}, can be closed. */
int loaded_open(struct loaded *l, const char *dir);
void loaded_close(struct loaded *l);

#endif
