/*
 * lines.c - heed.h's functions on lines of text: input.h's, which trust their arguments, behind
 * checks of what a caller from outside passes.
 */
#include "base/error.h"
#include "corpus/input.h"

struct heed_lines *heed_lines_open(const char *path, struct heed_error *err)
{
    struct heed_lines *l = NULL;
    if (path)
        input_open_once(&l, path, err);
    else
        error_null(err, "path");
    return l;
}

struct heed_lines *heed_lines_open_fd(int fd, const char *name, struct heed_error *err)
{
    struct heed_lines *l = NULL;
    if (!name)
        error_null(err, "name");
    else if (fd < 0)
        error_set(err, HEED_EARG, "%s: descriptor is %d, expected one that is open", name, fd);
    else
        input_open_fd(&l, fd, name, err);
    return l;
}

enum heed_status heed_lines_next(struct heed_lines *l, const char **line, size_t *len,
                                 struct heed_error *err)
{
    if (!l) return error_null(err, "lines");
    if (!line || !len) return error_null(err, line ? "len" : "line");
    return input_line(l, line, len, err);
}

enum heed_status heed_lines_ready(struct heed_lines *l, bool *ready, struct heed_error *err)
{
    if (!l || !ready) return error_null(err, l ? "ready" : "lines");
    return input_ready(l, ready, err);
}

void heed_lines_free(struct heed_lines *l)
{
    input_free(l);
}
