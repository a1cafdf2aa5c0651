/*
 * keys.h - API keys from a file: one a line; empty lines and lines that begin with # are comments.
 */
#ifndef HEED_SERVE_KEYS_H
#define HEED_SERVE_KEYS_H
#include <stdbool.h>

#include "heed.h"

struct keys;

struct keys *keys_open(const char *path, struct heed_error *err);
void keys_free(struct keys *k);
/* The time it takes does not depend on what is in the text, so that nobody finds a key by trying
 * one character after another. */
bool keys_have(const struct keys *k, const char *text);

#endif
