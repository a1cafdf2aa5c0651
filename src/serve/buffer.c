/*
 * buffer.c - text that grows; see buffer.h.
 */
#include "serve/buffer.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for n more bytes and a NUL. */
static bool reserve(struct buffer *b, size_t n)
{
    if (b->failed) return false;
    if (n < b->cap - b->n && b->cap) return true;
    size_t cap = b->cap ? b->cap : 64;
    while (cap <= b->n + n && cap < SIZE_MAX / 2) cap *= 2;
    char *v = cap > b->n + n ? realloc(b->v, cap) : NULL;
    b->failed = !v;
    if (!v) return false;
    b->v = v;
    b->cap = cap;
    return true;
}

void buffer_put(struct buffer *b, const void *bytes, size_t n)
{
    if (!reserve(b, n)) return;
    if (n) memcpy(b->v + b->n, bytes, n);
    b->n += n;
    b->v[b->n] = '\0';
}

void buffer_text(struct buffer *b, const char *text)
{
    buffer_put(b, text, strlen(text));
}

void buffer_format(struct buffer *b, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(NULL, 0, format, ap);
    va_end(ap);
    if (n < 0 || !reserve(b, (size_t)n)) return;
    va_start(ap, format);
    vsnprintf(b->v + b->n, (size_t)n + 1, format, ap);
    va_end(ap);
    b->n += (size_t)n;
}

char *buffer_take(struct buffer *b)
{
    buffer_put(b, "", 0);
    char *text = b->v;
    if (b->failed) {
        free(text);
        text = NULL;
    }
    *b = (struct buffer){0};
    return text;
}

void buffer_release(struct buffer *b)
{
    free(b->v);
    *b = (struct buffer){0};
}
