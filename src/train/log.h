/*
 * log.h - log.jsonl: a line with a JSON object for every event of training.
 */
#ifndef HEED_TRAIN_LOG_H
#define HEED_TRAIN_LOG_H
#include "heed.h"

struct log;

/* Opens DIR/log.jsonl for appending, without the lines of steps after `step`; see jsonl_open. */
enum heed_status log_open(struct log **out, const char *dir, int64_t step, struct heed_error *err);
enum heed_status log_event(struct log *l, const struct heed_event *e, struct heed_error *err);
void log_free(struct log *l);

#endif
