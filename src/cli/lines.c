/*
 * lines.c - lines of text from a file descriptor; see lines.h.
 */
#include "cli/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/text.h"

void lines_clear(struct lines *l)
{
    for (int i = 0; i < l->n; i++) free(l->v[i]);
    l->n = 0;
}

void lines_release(struct lines *l)
{
    lines_clear(l);
    free(l->v);
    *l = (struct lines){0};
}

static bool lines_add(struct lines *l, const char *text, size_t len)
{
    if (l->n == l->cap) {
        int cap = l->cap ? l->cap * 2 : 64;
        char **v = l->cap > INT_MAX / 2 ? NULL : realloc(l->v, (size_t)cap * sizeof *v);
        if (!v) return false;
        l->v = v;
        l->cap = cap;
    }
    if (len && text[len - 1] == '\r') len--;
    bool mended = false;
    char *copy = text_mend(text, len, &mended);
    if (!copy) return false;
    l->v[l->n++] = copy;
    l->mended += mended;
    return true;
}

void reader_init(struct reader *r, int fd, const char *name)
{
    *r = (struct reader){.fd = fd, .name = name};
}

void reader_release(struct reader *r)
{
    free(r->buf);
    r->buf = NULL;
}

/* Room for more after end: what was given out is dropped, and a longer line gets a longer buffer.
 */
static bool reader_make_room(struct reader *r)
{
    enum { CHUNK = 1 << 16 };
    if (r->start) {
        memmove(r->buf, r->buf + r->start, r->end - r->start);
        r->end -= r->start;
        r->start = 0;
    }
    if (r->cap - r->end >= CHUNK / 2) return true;
    size_t cap = r->cap * 2 + CHUNK;
    char *buf = realloc(r->buf, cap);
    if (!buf) return false;
    r->buf = buf;
    r->cap = cap;
    return true;
}

static bool reader_fill(struct reader *r)
{
    if (!reader_make_room(r)) {
        cli_failure("%s: out of memory: a line of more than %zu bytes", r->name, r->end);
        return false;
    }
    ssize_t n;
    do {
        n = read(r->fd, r->buf + r->end, r->cap - r->end);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        cli_failure("%s: cannot read: %s", r->name, strerror(errno));
        return false;
    }
    r->end += (size_t)n;
    r->eof = n == 0;
    return true;
}

/* The next whole line in the buffer; at the end of the file also one without a line end. */
static bool reader_has_line(const struct reader *r, size_t *len)
{
    const char *from = r->buf + r->start;
    const char *newline = r->end > r->start ? memchr(from, '\n', r->end - r->start) : NULL;
    if (newline) {
        *len = (size_t)(newline - from);
        return true;
    }
    *len = r->end - r->start;
    return r->eof && *len > 0;
}

/* The byte order mark that some editors put at the start of a file is no part of its text. */
static void reader_skip_mark(struct reader *r, size_t *len)
{
    static const char mark[] = {'\xef', '\xbb', '\xbf'};
    if (!r->begun && *len >= sizeof mark && !memcmp(r->buf + r->start, mark, sizeof mark)) {
        r->start += sizeof mark;
        *len -= sizeof mark;
    }
    r->begun = true;
}

static bool reader_would_wait(const struct reader *r)
{
    struct pollfd p = {.fd = r->fd, .events = POLLIN};
    return poll(&p, 1, 0) == 0;
}

bool reader_lines(struct reader *r, struct lines *out, int max)
{
    enum { BYTES = 1 << 20 };
    size_t bytes = 0, len;
    for (int n = 0; n < max && bytes < BYTES;) {
        if (reader_has_line(r, &len)) {
            reader_skip_mark(r, &len);
            if (!lines_add(out, r->buf + r->start, len)) {
                cli_failure("%s: out of memory after %d lines", r->name, out->n);
                return false;
            }
            r->start += len;
            if (r->start < r->end) r->start++; /* the line end itself */
            bytes += len;
            n++;
            continue;
        }
        if (r->eof || (n > 0 && r->answer && reader_would_wait(r))) return true;
        if (!reader_fill(r)) return false;
    }
    return true;
}

bool lines_read_file(struct lines *out, const char *path)
{
    bool is_stdin = strcmp(path, "-") == 0;
    struct reader r;
    reader_init(&r, is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC),
                is_stdin ? "standard input" : path);
    if (r.fd < 0) {
        cli_failure("cannot open %s: %s", path, strerror(errno));
        return false;
    }
    bool good = true;
    for (int before = -1; good && out->n != before;) {
        before = out->n;
        good = reader_lines(&r, out, INT_MAX);
    }
    reader_release(&r);
    if (!is_stdin) close(r.fd);
    return good;
}
