/*
 * access_log.h - a line for each request: when, who, what, how it ended.
 */
#ifndef HEED_SERVE_ACCESS_LOG_H
#define HEED_SERVE_ACCESS_LOG_H
#include "heed.h"
#include "serve/call.h"

struct access_log;

/* path: a file that is appended to, or "-" for standard output; it must live as long as the log. */
struct access_log *access_log_open(const char *path, struct heed_error *err);
void access_log_free(struct access_log *l);
/* Opens the file again, because another program has renamed it. Where that fails, the old one is
 * written on. l may be NULL. */
enum heed_status access_log_reopen(struct access_log *l, struct heed_error *err);

/* 2026-01-31T12:00:00Z 127.0.0.1 POST /translate 200 123 0.041
 * that is time, address, method, path without its query (which may hold a key), status, bytes of
 * the reply and seconds. Status 499: the client went away. l may be NULL. */
void access_log_write(struct access_log *l, const char *address, const struct call *c, int status,
                      double seconds);

#endif
