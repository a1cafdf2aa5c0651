/*
 * access_log.h - a line for each request: when, who, what, how it ended.
 */
#ifndef HEED_SERVE_ACCESS_LOG_H
#define HEED_SERVE_ACCESS_LOG_H
#include <stdio.h>

#include "serve/call.h"

/* 2026-01-31T12:00:00Z 127.0.0.1 POST /translate 200 123 0.041
 * that is time, address, method, path without its query (which may hold a key), status, bytes of
 * the reply and seconds. Status 499: the client went away. f may be NULL. */
void access_log_write(FILE *f, const char *address, const struct call *c, int status,
                      double seconds);

#endif
