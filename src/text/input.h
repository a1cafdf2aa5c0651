/*
 * input.h - lines of text from plain, gzip or xz files. First stage of the walk.
 */
#ifndef HEED_TEXT_INPUT_H
#define HEED_TEXT_INPUT_H
#include "heed.h"
#ifdef __cplusplus
extern "C" {
#endif

struct input;

/* The format is told from the first bytes, not the name. Directories are refused. */
enum heed_status input_open(struct input **out, const char *path, struct heed_error *err);
/* The next line without its line end (\n or \r\n); it stays valid until the next call. *line is
 * NULL at the end of the file. NUL bytes are kept: len counts them. A line longer than
 * INPUT_LINE_MAX is cut there and *len is INPUT_LINE_MAX. Truncated or corrupt compressed data is
 * an error. */
enum heed_status input_line(struct input *in, const char **line, size_t *len,
                            struct heed_error *err);
void input_free(struct input *in);

enum { INPUT_LINE_MAX = 16 << 20 };

#ifdef __cplusplus
}
#endif
#endif
