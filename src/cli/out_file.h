/*
 * out_file.h - a file that a command writes: the old one stays until the new one is whole.
 *
 * Call order: {0}; out_file_open; write to `to`; out_file_finish, or out_file_drop after a failure.
 */
#ifndef HEED_CLI_OUT_FILE_H
#define HEED_CLI_OUT_FILE_H
#include <stdio.h>

#include "cli/default_model.h"

struct out_file {
    FILE *to;
    const char *path;
    char tmp[CLI_PATH_MAX]; /* name of the temporary file that is written and renamed at the end;
                             * empty: path itself is written, because it is a device or a pipe */
};

/* Return an exit code, after a sentence where it is not CLI_DONE. */
int out_file_open(struct out_file *f, const char *path);
int out_file_finish(struct out_file *f);
/* Removes what was written; fine where nothing was opened, or it was finished. */
void out_file_drop(struct out_file *f);

/* CLI_MISUSE after a sentence where --out would be written over an input. */
int out_file_check(const char *out, const char *option, const char *input);

#endif
