/*
 * lines.c - lines of text in blocks; see lines.h.
 */
#include "cli/lines.h"

#include <limits.h>
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
    bool mended = false;
    char *copy = text_mend(text, len, &mended);
    if (!copy) return false;
    l->v[l->n++] = copy;
    l->mended += mended;
    return true;
}

bool lines_add_text(struct lines *l, const char *text)
{
    return lines_add(l, text, strlen(text));
}

bool reader_open(struct reader *r, const char *path)
{
    struct heed_error err = {0};
    bool is_stdin = strcmp(path, "-") == 0;
    r->name = is_stdin ? "standard input" : path;
    r->lines =
        is_stdin ? heed_lines_open_fd(STDIN_FILENO, r->name, &err) : heed_lines_open(path, &err);
    if (!r->lines) cli_failure("%s", err.text);
    return r->lines;
}

void reader_close(struct reader *r)
{
    heed_lines_free(r->lines);
    r->lines = NULL;
}

bool reader_lines(struct reader *r, struct lines *out, int max)
{
    enum { BYTES = 1 << 20 };
    struct heed_error err = {0};
    size_t bytes = 0, len;
    const char *line;
    for (int n = 0; n < max && bytes < BYTES; n++) {
        bool ready = true;
        enum heed_status status = HEED_OK;
        if (n > 0 && r->answer) status = heed_lines_ready(r->lines, &ready, &err);
        if (!status && !ready) return true;
        if (!status) status = heed_lines_next(r->lines, &line, &len, &err);
        if (status) {
            cli_failure("%s", err.text);
            return false;
        }
        if (!line) return true;
        if (!lines_add(out, line, len)) {
            cli_failure("%s: out of memory after %d lines", r->name, out->n);
            return false;
        }
        bytes += len;
    }
    return true;
}

bool lines_read_file(struct lines *out, const char *path)
{
    struct reader r = {0};
    bool good = reader_open(&r, path);
    for (int before = -1; good && out->n != before;) {
        before = out->n;
        good = reader_lines(&r, out, INT_MAX);
    }
    reader_close(&r);
    return good;
}

bool lines_match(const struct lines *a, const char *a_name, const struct lines *b,
                 const char *b_name)
{
    if (a->n == b->n) return true;
    cli_failure("%s has %d line%s, %s has %d; they must be equally many", a_name, a->n,
                a->n == 1 ? "" : "s", b_name, b->n);
    return false;
}
