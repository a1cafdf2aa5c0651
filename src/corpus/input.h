/*
 * input.h - lines of text from plain, gzip or xz files. First stage of the walk.
 */
#ifndef HEED_CORPUS_INPUT_H
#define HEED_CORPUS_INPUT_H
#include "heed.h"
#ifdef __cplusplus
extern "C" {
#endif

/* A text file being read is a struct heed_lines here as well as in heed.h. */

/* Opens a regular file of UTF-8 text with line feeds, plain or compressed; the format is recognized
 * by the first bytes, not by the name. Another format is an error that names it, as far as the
 * first megabyte shows it. Lines longer than INPUT_LINE_MAX are cut. */
enum heed_status input_open(struct heed_lines **out, const char *path, struct heed_error *err);
/* The same for text that is read once, which may come from a pipe, with lines of any length.
 * Nothing is read yet: a wrong format is an error of the first input_line. path may be /dev/stdin
 * or /dev/fd/N. The caller closes fd, which errors call `name`. */
enum heed_status input_open_once(struct heed_lines **out, const char *path, struct heed_error *err);
enum heed_status input_open_fd(struct heed_lines **out, int fd, const char *name,
                               struct heed_error *err);
/* The next line without its line end (\n, \r\n, or \r at the end of the file); it stays valid until
 * the next call. *line is NULL at the end of the file. NUL bytes are kept: len counts them. A line
 * that is cut has *len INPUT_LINE_MAX. Truncated or corrupt compressed data is an error. */
enum heed_status input_line(struct heed_lines *in, const char **line, size_t *len,
                            struct heed_error *err);
/* Whether input_line would return without waiting for the writer of a pipe; reads what has arrived.
 */
enum heed_status input_ready(struct heed_lines *in, bool *ready, struct heed_error *err);
void input_free(struct heed_lines *in);

enum { INPUT_LINE_MAX = 16 << 20 };
#define INPUT_LINE_ANY (SIZE_MAX - 1)

#ifdef __cplusplus
}
#endif
#endif
