/*
 * lines.h - lines of text from standard input or a file, in blocks.
 *
 * Call order: reader_open, reader_lines..., reader_close; lines_clear between calls.
 */
#ifndef HEED_CLI_LINES_H
#define HEED_CLI_LINES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "heed.h"

/* NUL-terminated lines without their line ends. {0} is empty. */
struct lines {
    char **v;
    int n, cap;
    int64_t mended; /* lines that had invalid UTF-8, those cleared since included */
};
/* Adds a copy of a line. Returns false when out of memory. */
bool lines_add_text(struct lines *l, const char *text);
void lines_clear(struct lines *l);
void lines_release(struct lines *l);

struct reader {
    struct heed_lines *lines;
    const char *name; /* what errors call it */
    bool answer;      /* whoever writes the lines waits for an answer to each */
};
/* "-" is standard input. Returns false after a sentence on stderr. */
bool reader_open(struct reader *r, const char *path);
/* {0} is fine. */
void reader_close(struct reader *r);

/* Adds at most max lines, and about a megabyte at most. Returns with fewer at the end of the file
 * and, where an answer is awaited, once there is a line and the next one has not arrived. Adds none
 * only at the end. NUL and what is not UTF-8 become U+FFFD, one a byte. Returns false after a
 * sentence on stderr. */
bool reader_lines(struct reader *r, struct lines *out, int max);

/* Every line of a file; "-" is standard input. Returns false after a sentence on stderr. */
bool lines_read_file(struct lines *out, const char *path);
/* Whether two texts, which a sentence calls by these names, have as many lines; false after that
 * sentence on stderr. */
bool lines_match(const struct lines *a, const char *a_name, const struct lines *b,
                 const char *b_name);

#endif
