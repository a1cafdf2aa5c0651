/*
 * utf8.h - UTF-8 from outside, and places in a text as JavaScript counts them.
 */
#ifndef HEED_SERVE_UTF8_H
#define HEED_SERVE_UTF8_H
#include <stdbool.h>
#include <stddef.h>

#include "serve/buffer.h"

/* Appends a text in which each byte that is not UTF-8, and NUL, is replaced by U+FFFD, as `heed
 * translate` does with lines. */
void utf8_mend(struct buffer *out, const char *text, size_t n);
/* Characters of a text that is UTF-8. */
size_t utf8_count(const char *text, size_t n);
/* UTF-16 code units of n bytes of a text that is UTF-8. */
size_t utf8_utf16_units(const char *text, size_t n);

#endif
