/*
 * jsonl.h - a file in the directory of a run to which training appends lines: JSON objects whose
 * first key is "step", in order of the steps.
 */
#ifndef HEED_TRAIN_JSONL_H
#define HEED_TRAIN_JSONL_H
#include <jansson.h>

#include "base/file.h"

struct jsonl {
    int fd;
    char path[FILE_PATH_MAX];
};

/* Opens DIR/NAME for appending. Lines of steps after `step` are removed first, because a resumed
 * run writes them again; so each step is there once, however often a run was interrupted. */
enum heed_status jsonl_open(struct jsonl *f, const char *dir, const char *name, int64_t step,
                            struct heed_error *err);
/* Appends an object, with so many significant digits of its numbers, and releases it; NULL: there
 * was no memory for it. */
enum heed_status jsonl_append(struct jsonl *f, json_t *object, int digits, struct heed_error *err);
void jsonl_close(struct jsonl *f);

#endif
