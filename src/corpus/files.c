/*
 * files.c - the files of a corpus with random access to their pairs; see files.h.
 *
 * The files are numbered as a list: file 2i is source i and file 2i + 1 its target, or, where both
 * sides are in one file, file i is pair of sides i.
 */
#include "corpus/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "corpus/index.h"
#include "corpus/input.h"

enum { UNPACK_BYTES = 1 << 20 }; /* of text that are written at once */

struct files {
    int n, sides;             /* files of source or pairs; 1 or 2 */
    const char **name;        /* [n * sides] lent */
    struct text **text;       /* [n * sides] */
    struct text_stamp *stamp; /* [n * sides] of the named files */
    struct index *index;
};

static int files_count(const struct files *f)
{
    return f->n * f->sides;
}

/* ---- unpacking ---- */

struct unpacking {
    int fd;
    const char *path;
    char *buffer;
    size_t n, cap;
};

static enum heed_status unpacked_flush(struct unpacking *u, struct heed_error *err)
{
    if (!file_append(u->fd, u->buffer, u->n)) return error_errno(err, "cannot write %s", u->path);
    u->n = 0;
    return HEED_OK;
}

static enum heed_status lines_unpack(struct unpacking *u, const char *from, struct heed_error *err)
{
    struct heed_lines *in = NULL;
    const char *line = "";
    size_t len;
    enum heed_status st = input_open(&in, from, err);
    while (!st && !(st = input_line(in, &line, &len, err)) && line) {
        st = array_reserve(&u->buffer, &u->cap, u->n + len + 1, 1, "unpacked text", err);
        if (st) break;
        memcpy(u->buffer + u->n, line, len);
        u->buffer[u->n + len] = '\n';
        u->n += len + 1;
        if (u->n >= UNPACK_BYTES) st = unpacked_flush(u, err);
    }
    if (!st) st = unpacked_flush(u, err);
    input_free(in);
    return st;
}

/* Writes the lines of a compressed file to `to`, under a temporary name at first. */
static enum heed_status file_unpack(const char *from, const char *to, struct heed_error *err)
{
    char temporary[FILE_PATH_MAX];
    struct unpacking u = {.fd = -1, .path = to};
    errno = ENAMETOOLONG;
    if (snprintf(temporary, sizeof temporary, "%s.tmp", to) < (int)sizeof temporary)
        u.fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (u.fd < 0) return error_errno(err, "cannot write %s", to);
    enum heed_status st = lines_unpack(&u, from, err);
    free(u.buffer);
    if (close(u.fd) != 0 && !st) st = error_errno(err, "cannot write %s", to);
    if (!st && rename(temporary, to) != 0) st = error_errno(err, "cannot write %s", to);
    if (st) unlink(temporary);
    return st;
}

/* ---- opening ---- */

static enum heed_status unpacked_path(char out[FILE_PATH_MAX], const char *dir, int i,
                                      struct heed_error *err)
{
    char name[32];
    snprintf(name, sizeof name, "%d.text", i + 1);
    return file_join(out, FILE_PATH_MAX, dir, name, err);
}

/* Opens file i, or its unpacked text. The text stays NULL where that is not there yet. */
static enum heed_status file_begin(struct files *f, int i, const char *dir, struct heed_error *err)
{
    char path[FILE_PATH_MAX];
    enum heed_status st = text_open(&f->text[i], f->name[i], err);
    if (st) return st;
    if (f->text[i]) {
        f->stamp[i] = text_stamp(f->text[i]);
        return HEED_OK;
    }
    st = text_stamp_of(f->name[i], &f->stamp[i], err);
    if (!st) st = unpacked_path(path, dir, i, err);
    return !st && file_exists(path) ? text_open(&f->text[i], path, err) : st;
}

/* Unpacks file i unless it can be read as it is. An unpacked text that is there already does not
 * belong to a good index, so it may be that of another file. */
static enum heed_status file_ready(struct files *f, int i, const char *dir, struct heed_error *err)
{
    char path[FILE_PATH_MAX];
    struct text *as_it_is = NULL;
    enum heed_status st = text_open(&as_it_is, f->name[i], err);
    bool readable = as_it_is != NULL;
    text_free(as_it_is);
    if (st || readable) return st;
    text_free(f->text[i]);
    f->text[i] = NULL;
    st = unpacked_path(path, dir, i, err);
    if (!st) st = file_unpack(f->name[i], path, err);
    return st ? st : text_open(&f->text[i], path, err);
}

static enum heed_status index_get(struct files *f, const char *dir, int threads,
                                  const struct index_watch *watch, struct heed_error *err)
{
    char path[FILE_PATH_MAX];
    struct index_files list = {f->text, f->stamp, f->name, files_count(f)};
    bool all = true;
    enum heed_status st = file_join(path, sizeof path, dir, "lines", err);
    for (int i = 0; i < files_count(f) && !st; i++) {
        st = file_begin(f, i, dir, err);
        all = all && f->text[i];
    }
    if (!st && all) st = index_load(&f->index, path, &list, threads, err);
    if (st || f->index) return st;
    for (int i = 0; i < files_count(f) && !st; i++) st = file_ready(f, i, dir, err);
    return st ? st : index_make(&f->index, path, &list, threads, watch, err);
}

/* Of several processes that open the same directory at once, one makes the index and the others
 * wait for it. Where the file system has no locks they do not, and each makes its own. */
static enum heed_status index_get_alone(struct files *f, const char *dir, int threads,
                                        const struct index_watch *watch, struct heed_error *err)
{
    int lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock < 0) return error_errno(err, "cannot open directory %s", dir);
    while (flock(lock, LOCK_EX) != 0 && errno == EINTR) continue;
    enum heed_status st = index_get(f, dir, threads, watch, err);
    close(lock);
    return st;
}

static enum heed_status sides_check(const struct files *f, struct heed_error *err)
{
    for (int i = 0; i < f->n && f->sides == 2; i++) {
        int64_t src = index_lines(f->index, 2 * i), tgt = index_lines(f->index, 2 * i + 1);
        if (src != tgt)
            return error_set(err, HEED_EFORMAT,
                             "%s has %lld lines, %s has %lld: each line must have its translation "
                             "in the other file",
                             f->name[2 * i], (long long)src, f->name[2 * i + 1], (long long)tgt);
    }
    return HEED_OK;
}

static struct files *files_new(const struct heed_corpus *c, struct heed_error *err)
{
    struct files *f = calloc(1, sizeof *f);
    int sides = c->tgt ? 2 : 1;
    size_t n = (size_t)c->n * (size_t)sides;
    if (f) {
        f->n = c->n;
        f->sides = sides;
        f->name = calloc(n, sizeof *f->name);
        f->text = calloc(n, sizeof *f->text);
        f->stamp = calloc(n, sizeof *f->stamp);
    }
    if (!f || !f->name || !f->text || !f->stamp) {
        files_free(f);
        error_memory(err, n * (sizeof *f->name + sizeof *f->stamp), "the files of a corpus");
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        f->name[i] = sides == 1 ? c->src[i] : i % 2 ? c->tgt[i / 2] : c->src[i / 2];
    return f;
}

enum heed_status files_open(struct files **out, const struct heed_corpus *c, const char *dir,
                            int threads, const struct index_watch *watch, struct heed_error *err)
{
    static const struct index_watch nobody = {0};
    char temporary[] = P_tmpdir "/heed-index-XXXXXX";
    struct files *f = files_new(c, err);
    if (!f) return HEED_ENOMEM;
    enum heed_status st = HEED_OK;
    if (dir)
        st = file_mkdir(dir, err);
    else if (!mkdtemp(temporary))
        st = error_errno(err, "cannot create directory %s", temporary);
    if (!st) st = index_get_alone(f, dir ? dir : temporary, threads, watch ? watch : &nobody, err);
    if (!st) st = sides_check(f, err);
    if (!dir) file_remove_dir(temporary, NULL); /* the files stay until they are closed */
    if (st) {
        files_free(f);
        return st;
    }
    *out = f;
    return HEED_OK;
}

void files_free(struct files *f)
{
    if (!f) return;
    index_free(f->index);
    for (int i = 0; f->text && i < files_count(f); i++) text_free(f->text[i]);
    free(f->name);
    free(f->text);
    free(f->stamp);
    free(f);
}

int64_t files_pairs(const struct files *f, int i)
{
    return index_lines(f->index, i * f->sides);
}

int64_t files_bytes(const struct files *f, int i)
{
    int64_t bytes = 0;
    for (int k = 0; k < f->sides; k++) bytes += text_bytes(f->text[i * f->sides + k]);
    return bytes;
}

enum heed_status files_unchanged(const struct files *f, struct heed_error *err)
{
    enum heed_status st = HEED_OK;
    for (int i = 0; i < files_count(f) && !st; i++) st = text_unchanged(f->text[i], err);
    return st;
}

/* ---- reading ---- */

enum heed_status reader_begin(struct reader *r, const struct files *f,
                              const struct files_place *place, size_t n, struct heed_error *err)
{
    enum heed_status st = HEED_OK;
    for (size_t i = 0; i < n && !st; i++) {
        struct reader_pair *x = &r->pair[i];
        x->place = place[i];
        for (int k = 0; k < f->sides && !st; k++) {
            int file = place[i].file * f->sides + k;
            st = index_range(f->index, file, place[i].pair, &x->at[k], &x->n[k], err);
            if (!st) text_prefetch(f->text[file], x->at[k], (size_t)x->n[k]);
        }
    }
    return st;
}

/* Reads one line of pair x, without its line end, as input_line gives it. */
static enum heed_status line_read(struct reader *r, const struct files *f,
                                  const struct reader_pair *x, int side, size_t *len,
                                  struct heed_error *err)
{
    int file = x->place.file * f->sides + side;
    const struct text *t = f->text[file];
    bool at_end = x->at[side] + x->n[side] == text_bytes(t);
    size_t n = x->n[side] < INPUT_LINE_MAX + 2 ? (size_t)x->n[side] : INPUT_LINE_MAX + 2;
    enum heed_status st = array_reserve(&r->line[side], &r->cap[side], n, 1, "a line", err);
    if (!st) st = text_read(t, &r->block[side], r->line[side], x->at[side], n, err);
    if (st) return st;
    const char *line = r->line[side], *feed = memchr(line, '\n', n);
    bool whole = n == (size_t)x->n[side];
    if (feed ? !whole || feed != line + n - 1 : whole && !at_end)
        return error_set(err, HEED_EFORMAT, "%s does not fit its index: line %lld is not one line",
                         f->name[file], (long long)x->place.pair + 1);
    if (feed) n--;
    if (whole && n > 0 && line[n - 1] == '\r') n--;
    *len = n < INPUT_LINE_MAX ? n : INPUT_LINE_MAX;
    return HEED_OK;
}

/* A file may begin with a byte order mark. */
static void mark_skip(const struct reader_pair *x, const char **line, size_t *len)
{
    if (x->place.pair > 0 || *len < 3 || memcmp(*line, "\xef\xbb\xbf", 3) != 0) return;
    *line += 3;
    *len -= 3;
}

enum heed_status reader_get(struct reader *r, const struct files *f, size_t i, struct pair *out,
                            struct heed_error *err)
{
    const struct reader_pair *x = &r->pair[i];
    size_t len[2] = {0};
    enum heed_status st = HEED_OK;
    for (int k = 0; k < f->sides && !st; k++) st = line_read(r, f, x, k, &len[k], err);
    if (st) return st;
    const char *src = r->line[0], *tgt = r->line[1];
    mark_skip(x, &src, &len[0]);
    if (f->sides == 2) {
        mark_skip(x, &tgt, &len[1]);
        *out = (struct pair){src, tgt, len[0], len[1]};
        return HEED_OK;
    }
    if (pair_split(out, src, len[0])) return HEED_OK;
    return error_set(err, HEED_EFORMAT, "%s, line %lld: no tab between source and target",
                     f->name[x->place.file], (long long)x->place.pair + 1);
}

void reader_release(struct reader *r)
{
    for (int k = 0; k < 2; k++) {
        text_block_release(&r->block[k]);
        free(r->line[k]);
    }
    *r = (struct reader){0};
}
