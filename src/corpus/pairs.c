/*
 * pairs.c - the lines of a corpus as pairs, from the first file to the last. Between input and
 * batch.
 */
#include "corpus/pairs.h"

#include "base/error.h"
#include "corpus/input.h"

#include <stdlib.h>
#include <string.h>

struct pairs {
    char **src, **tgt; /* [n] names of files; tgt NULL: the src files hold pairs, tab-separated */
    int n;
    int file;               /* index of the file being read; n at the end */
    struct heed_lines *in;  /* the source file, or file of pairs, being read; NULL between files */
    struct heed_lines *in2; /* the target file being read */
    int64_t lines;          /* pairs taken from the file being read */
    int64_t taken;          /* pairs taken from all files */
    int64_t *of_file;       /* [n] pairs of each file that was read to its end; -1: not known */
    struct pair current;
    bool held; /* current was read and is not taken yet */
};

static void names_free(char **name, int n)
{
    for (int i = 0; name && i < n; i++) free(name[i]);
    free(name);
}

static char **names_copy(const char *const *name, int n)
{
    char **copy = calloc((size_t)n, sizeof *copy);
    for (int i = 0; copy && i < n; i++) {
        if (!(copy[i] = strdup(name[i]))) {
            names_free(copy, n);
            return NULL;
        }
    }
    return copy;
}

static void file_end(struct pairs *p)
{
    input_free(p->in);
    input_free(p->in2);
    p->in = p->in2 = NULL;
    p->lines = 0;
}

static enum heed_status file_begin(struct pairs *p, struct heed_error *err)
{
    enum heed_status st = input_open(&p->in, p->src[p->file], err);
    if (!st && p->tgt) st = input_open(&p->in2, p->tgt[p->file], err);
    if (st) file_end(p);
    return st;
}

static enum heed_status files_check(struct pairs *p, struct heed_error *err)
{
    for (p->file = 0; p->file < p->n; p->file++) {
        enum heed_status st = file_begin(p, err);
        if (st) return st;
        file_end(p);
    }
    p->file = 0;
    return HEED_OK;
}

enum heed_status pairs_open(struct pairs **out, const struct heed_corpus *c, struct heed_error *err)
{
    if (c->n <= 0 || !c->src) return error_set(err, HEED_EARG, "the corpus names no file");
    struct pairs *p = calloc(1, sizeof *p);
    if (!p) return error_memory(err, sizeof *p, "a corpus");
    p->n = c->n;
    p->src = names_copy(c->src, c->n);
    if (c->tgt) p->tgt = names_copy(c->tgt, c->n);
    p->of_file = malloc((size_t)c->n * sizeof *p->of_file);
    for (int i = 0; p->of_file && i < c->n; i++) p->of_file[i] = -1;
    enum heed_status st;
    if (!p->src || (c->tgt && !p->tgt) || !p->of_file)
        st = error_memory(err, (size_t)c->n * sizeof *p->src, "the names of a corpus");
    else
        st = files_check(p, err);
    if (st) {
        pairs_free(p);
        return st;
    }
    *out = p;
    return HEED_OK;
}

void pairs_free(struct pairs *p)
{
    if (!p) return;
    file_end(p);
    names_free(p->src, p->n);
    names_free(p->tgt, p->n);
    free(p->of_file);
    free(p);
}

void pairs_rewind(struct pairs *p)
{
    file_end(p);
    p->file = 0;
    p->taken = 0;
    p->held = false;
}

const char *pairs_name(const struct pairs *p)
{
    return p->src[0];
}

/* The error about two files of unequal length. One side has ended after p->lines lines; one line
 * more was read of `longer`, whose other lines are counted here. */
static enum heed_status sides_differ(struct pairs *p, struct heed_lines *longer,
                                     struct heed_error *err)
{
    int64_t more = 1;
    for (;;) {
        const char *line;
        size_t len;
        enum heed_status st = input_line(longer, &line, &len, err);
        if (st) return st;
        if (!line) break;
        more++;
    }
    const char *a = p->src[p->file], *b = p->tgt[p->file];
    return error_set(
        err, HEED_EFORMAT,
        "%s has %lld lines, %s ends after %lld: each line must have its translation in "
        "the other file",
        longer == p->in ? a : b, (long long)(p->lines + more), longer == p->in ? b : a,
        (long long)p->lines);
}

/* Reads a line of each side into p->current, whose src is NULL at the end of the files. */
static enum heed_status sides_read(struct pairs *p, struct heed_error *err)
{
    struct pair *x = &p->current;
    enum heed_status st = input_line(p->in, &x->src, &x->src_len, err);
    if (!st) st = input_line(p->in2, &x->tgt, &x->tgt_len, err);
    if (st) return st;
    if (!x->src != !x->tgt) return sides_differ(p, x->src ? p->in : p->in2, err);
    return HEED_OK;
}

bool pair_split(struct pair *out, const char *line, size_t len)
{
    const char *tab = memchr(line, '\t', len);
    if (!tab && len > 0) return false;
    *out = (struct pair){.src = line, .tgt = tab ? tab + 1 : line};
    if (!tab) return true;
    out->src_len = (size_t)(tab - line);
    out->tgt_len = len - out->src_len - 1;
    const char *second = memchr(out->tgt, '\t', out->tgt_len);
    if (second) out->tgt_len = (size_t)(second - out->tgt);
    return true;
}

static enum heed_status columns_read(struct pairs *p, struct heed_error *err)
{
    const char *line;
    size_t len;
    enum heed_status st = input_line(p->in, &line, &len, err);
    p->current = (struct pair){0};
    if (st || !line || pair_split(&p->current, line, len)) return st;
    return error_set(err, HEED_EFORMAT, "%s, line %lld: no tab between source and target",
                     p->src[p->file], (long long)p->lines + 1);
}

enum heed_status pairs_peek(struct pairs *p, struct pair *out, struct heed_error *err)
{
    while (!p->held && p->file < p->n) {
        enum heed_status st = p->in ? HEED_OK : file_begin(p, err);
        if (!st) st = p->tgt ? sides_read(p, err) : columns_read(p, err);
        if (st) return st;
        p->held = p->current.src != NULL;
        if (p->held) break;
        if (p->lines == 0) return error_set(err, HEED_EFORMAT, "%s is empty", p->src[p->file]);
        p->of_file[p->file] = p->lines;
        file_end(p);
        p->file++;
    }
    *out = p->held ? p->current : (struct pair){0};
    return HEED_OK;
}

void pairs_take(struct pairs *p)
{
    p->lines += p->held;
    p->taken += p->held;
    p->held = false;
}

int64_t pairs_of_file(const struct pairs *p, int i)
{
    return p->of_file[i];
}

int64_t pairs_taken(const struct pairs *p)
{
    return p->taken;
}
