/*
 * log.h - log.jsonl: one JSON object a line for every event, with the figures of the progress line.
 */
#ifndef HEED_TRAIN_LOG_H
#define HEED_TRAIN_LOG_H
#include "heed.h"

struct log;

/* Opens DIR/log.jsonl. Lines of steps after `step` are dropped first: a resumed run writes them
 * again, so that the log tells of one run, however often it was interrupted. */
enum heed_status log_open(struct log **out, const char *dir, int64_t step, struct heed_error *err);
enum heed_status log_event(struct log *l, const struct heed_event *e, struct heed_error *err);
void log_free(struct log *l);

#endif
