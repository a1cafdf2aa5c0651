/*
 * runs.h - training runs to watch: the directories that `heed train --out` writes, or directories
 * with such directories in them. Their log.jsonl and samples.jsonl are read as they grow; see
 * docs/file-formats.md.
 */
#ifndef HEED_SERVE_RUNS_H
#define HEED_SERVE_RUNS_H
#include <stdbool.h>

#include "heed.h"

struct runs;

/* dir: [n], which must live as long as the runs. */
struct runs *runs_open(const char *const *dir, int n, struct heed_error *err);
void runs_free(struct runs *r);
/* Wakes the streams whose run has written something, and ends those whose client has gone, or all
 * where `end` says so. */
void runs_tick(struct runs *r, bool end);

#endif
