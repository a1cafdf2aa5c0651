/*
 * lines.h - lines of text from a file descriptor, as many as are there.
 *
 * Call order: reader_init, reader_lines..., reader_release; lines_clear between calls.
 */
#ifndef HEED_CLI_LINES_H
#define HEED_CLI_LINES_H
#include <stdbool.h>
#include <stddef.h>

/* NUL-terminated lines without their line ends. {0} is empty. */
struct lines {
    char **v;
    int n, cap;
};
void lines_clear(struct lines *l);
void lines_release(struct lines *l);

struct reader {
    int fd;
    const char *name; /* what errors call it */
    char *buf;
    size_t start, end, cap; /* buf[start, end) is read but not yet given out */
    bool eof;
};
void reader_init(struct reader *r, int fd, const char *name);
/* Frees the memory; fd stays open. */
void reader_release(struct reader *r);

/* Adds at most max lines. Returns with fewer at the end of the file and, once there is a line, also
 * when the next one has not arrived: whoever types or pipes a line gets an answer before the next
 * one. Adds none only at the end. A NUL byte, which no C string can hold, becomes U+FFFD.
 * Returns false after a sentence on stderr. */
bool reader_lines(struct reader *r, struct lines *out, int max);

/* Every line of a file; "-" is standard input. Returns false after a sentence on stderr. */
bool lines_read_file(struct lines *out, const char *path);

#endif
