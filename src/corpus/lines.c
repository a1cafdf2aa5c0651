/*
 * lines.c - heed.h's lines of text, for programs: input, opened for one reading.
 */
#include "base/error.h"
#include "corpus/input.h"

#include <stdlib.h>

struct heed_lines {
    struct input *input;
};

/* path or, where it is NULL, fd. */
static struct heed_lines *lines_open(const char *path, int fd, const char *name,
                                     struct heed_error *err)
{
    struct heed_lines *l = calloc(1, sizeof *l);
    if (!l) {
        error_memory(err, sizeof *l, "lines of text");
        return NULL;
    }
    if (path ? input_open_once(&l->input, path, err) : input_open_fd(&l->input, fd, name, err)) {
        free(l);
        return NULL;
    }
    return l;
}

struct heed_lines *heed_lines_open(const char *path, struct heed_error *err)
{
    if (path) return lines_open(path, -1, NULL, err);
    error_null(err, "path");
    return NULL;
}

struct heed_lines *heed_lines_open_fd(int fd, const char *name, struct heed_error *err)
{
    if (name && fd >= 0) return lines_open(NULL, fd, name, err);
    if (name)
        error_set(err, HEED_EARG, "%s: descriptor is %d, expected one that is open", name, fd);
    else
        error_null(err, "name");
    return NULL;
}

enum heed_status heed_lines_next(struct heed_lines *l, const char **line, size_t *len,
                                 struct heed_error *err)
{
    if (!l) return error_null(err, "lines");
    if (!line || !len) return error_null(err, line ? "len" : "line");
    return input_line(l->input, line, len, err);
}

enum heed_status heed_lines_ready(struct heed_lines *l, bool *ready, struct heed_error *err)
{
    if (!l || !ready) return error_null(err, l ? "ready" : "lines");
    return input_ready(l->input, ready, err);
}

void heed_lines_free(struct heed_lines *l)
{
    if (!l) return;
    input_free(l->input);
    free(l);
}
