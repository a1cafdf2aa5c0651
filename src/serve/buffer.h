/*
 * buffer.h - text that grows. A buffer that runs out of memory stays as it is and remembers it, so
 * that a caller checks once, at the end.
 */
#ifndef HEED_SERVE_BUFFER_H
#define HEED_SERVE_BUFFER_H
#include <stdbool.h>
#include <stddef.h>

/* {0} is empty. What has been put in is NUL-terminated. */
struct buffer {
    char *v;
    size_t n, cap;
    bool failed; /* memory ran out: something is missing */
};

void buffer_put(struct buffer *b, const void *bytes, size_t n);
void buffer_text(struct buffer *b, const char *text);
void buffer_format(struct buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The text, which the caller frees, "" where nothing was put in; NULL where memory ran out. The
 * buffer is empty then. */
char *buffer_take(struct buffer *b);
void buffer_release(struct buffer *b);

#endif
