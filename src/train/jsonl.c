/*
 * jsonl.c - a file of JSON objects that training appends to; see jsonl.h.
 */
#include "train/jsonl.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

/* The step that a line begins with; -1: none. sscanf would be slow, because it first calls strlen
 * on the whole text. */
static long long line_step(const char *line)
{
    static const char prefix[] = "{\"step\":";
    const char *number = line + sizeof prefix - 1;
    char *after;
    if (strncmp(line, prefix, sizeof prefix - 1) != 0) return -1;
    long long step = strtoll(number, &after, 10);
    return after > number ? step : -1;
}

/* How many bytes at the front of text are whole lines of steps up to `step`. */
static size_t kept_bytes(const char *text, size_t len, int64_t step)
{
    size_t kept = 0;
    while (kept < len) {
        const char *line = text + kept, *end = memchr(line, '\n', len - kept);
        long long at = line_step(line);
        if (!end || at < 0 || at > step) break;
        kept = (size_t)(end + 1 - text);
    }
    return kept;
}

/* Removes the lines of steps after `step` from the file. */
static enum heed_status cut(const char *path, int64_t step, struct heed_error *err)
{
    char *text;
    size_t len;
    if (!file_exists(path)) return HEED_OK;
    enum heed_status s = file_read(path, (size_t)4 << 30, &text, &len, err);
    if (s) return s;
    size_t kept = kept_bytes(text, len, step);
    if (kept < len) s = file_write(path, &(struct file_part){text, kept}, 1, err);
    free(text);
    return s;
}

enum heed_status jsonl_open(struct jsonl *f, const char *dir, const char *name, int64_t step,
                            struct heed_error *err)
{
    f->fd = -1;
    enum heed_status s = file_join(f->path, sizeof f->path, dir, name, err);
    if (!s) s = cut(f->path, step, err);
    if (!s) f->fd = open(f->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (!s && f->fd < 0) s = error_errno(err, "cannot write %s", f->path);
    return s;
}

enum heed_status jsonl_append(struct jsonl *f, json_t *object, int digits, struct heed_error *err)
{
    size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(digits);
    char *line = object ? json_dumps(object, flags) : NULL;
    enum heed_status s = HEED_OK;
    if (!line)
        s = error_memory(err, 512, f->path);
    else if (!file_append(f->fd, line, strlen(line)) || !file_append(f->fd, "\n", 1))
        s = error_errno(err, "cannot write %s", f->path);
    free(line);
    json_decref(object);
    return s;
}

void jsonl_close(struct jsonl *f)
{
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
}
