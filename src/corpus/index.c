/*
 * index.c - where the lines of text files begin; see index.h.
 *
 * The file, all numbers little-endian:
 *
 *     8 bytes   "heedline"
 *     4         version
 *     4         number n of text files
 *     4         CRC-32 of the n entries
 *     4         CRC-32 of the offsets
 *     n entries of four 8-byte numbers: bytes and time of the file (struct text_stamp), bytes of
 *               its text, lines
 *     offsets of 6 bytes: for each file those of its lines and of its end
 *
 * To make it, a file is cut into spans that several threads search for line ends. A thread that has
 * searched its span waits for its turn to append the offsets it found, so that they are in order
 * and few are in memory.
 */
#include "corpus/index.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/parallel.h"

static const char MAGIC[8] = "heedline";
enum { VERSION = 1, HEADER = 24, ENTRY = 32, OFFSET = 6 };
enum {
    SPAN = 16 << 20,  /* bytes of text that a thread searches before it writes */
    PIECE = 1 << 20,  /* bytes that it reads at once */
    CHECK = 16 << 20, /* bytes of the index that a thread checks at once */
};

struct entry {
    struct text_stamp stamp;
    int64_t bytes, lines;
    int64_t at; /* of the first of its offsets in the index; not in the file */
};

struct index {
    char *path; /* for errors */
    int fd;
    struct entry *entry; /* [n] */
    int n;
};

static void number_put(unsigned char *out, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++) out[i] = (unsigned char)(x >> (8 * i));
}

static uint64_t number_get(const unsigned char *in, int bytes)
{
    uint64_t x = 0;
    for (int i = 0; i < bytes; i++) x |= (uint64_t)in[i] << (8 * i);
    return x;
}

/* Sets where the offsets of each file begin; returns where the last end. */
static int64_t entries_place(struct entry *e, int n)
{
    int64_t at = HEADER + (int64_t)n * ENTRY;
    for (int i = 0; i < n; i++) {
        e[i].at = at;
        at += (e[i].lines + 1) * OFFSET;
    }
    return at;
}

/* ---- making ---- */

struct making {
    const struct text *text;
    struct text_block block[PARALLEL_MAX];
    char *piece[PARALLEL_MAX];
    int64_t bytes, lines; /* of the text file; lines that are appended */
    int64_t before, all;  /* bytes of the files before it, and of all of them */
    struct index_watch watch;
    int fd;
    const char *path;
    uint32_t crc; /* of all offsets that are appended */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    long turn; /* the span that is appended next; guarded by lock */
    atomic_bool failed;
    enum heed_status status; /* of the first span that failed */
    struct heed_error err;
};

/* Offsets in the form of the file. */
struct offsets {
    unsigned char *v;
    size_t n, cap;
};

static enum heed_status offset_add(struct offsets *o, int64_t at, struct heed_error *err)
{
    enum heed_status st = array_reserve(&o->v, &o->cap, o->n + OFFSET, 1, "an index", err);
    if (st) return st;
    number_put(o->v + o->n, (uint64_t)at, OFFSET);
    o->n += OFFSET;
    return HEED_OK;
}

/* Adds the lines that begin behind a line feed in [from, to). */
static enum heed_status span_search(struct making *m, int thread, struct offsets *o, int64_t from,
                                    int64_t to, struct heed_error *err)
{
    char *piece = m->piece[thread];
    if (!piece && !(piece = m->piece[thread] = malloc(PIECE)))
        return error_memory(err, PIECE, "an index");
    enum heed_status st = from == 0 ? offset_add(o, 0, err) : HEED_OK;
    for (int64_t at = from; at < to && !st && !atomic_load(&m->failed); at += PIECE) {
        size_t n = to - at < PIECE ? (size_t)(to - at) : PIECE;
        text_prefetch(m->text, at + PIECE, to - at > PIECE ? PIECE : 0);
        st = text_read(m->text, &m->block[thread], piece, at, n, err);
        const char *p = piece, *end = piece + n;
        while (!st && p < end && (p = memchr(p, '\n', (size_t)(end - p)))) {
            int64_t next = at + (++p - piece);
            if (next < m->bytes) st = offset_add(o, next, err);
        }
    }
    return st;
}

static void span_append(struct making *m, long span, const struct offsets *o, enum heed_status st,
                        const struct heed_error *err)
{
    pthread_mutex_lock(&m->lock);
    while (m->turn != span) pthread_cond_wait(&m->changed, &m->lock);
    if (!st && !atomic_load(&m->failed)) {
        m->crc = (uint32_t)crc32_z(m->crc, o->v, o->n);
        m->lines += (int64_t)(o->n / OFFSET);
        if (!file_append(m->fd, (const char *)o->v, o->n))
            st = error_errno(&m->err, "cannot write %s", m->path);
    } else if (st && !atomic_load(&m->failed)) {
        m->err = *err;
    }
    if (st && !atomic_load(&m->failed)) {
        m->status = st;
        atomic_store(&m->failed, true);
    }
    m->turn++;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

static void span_run(void *arg, int thread, long span)
{
    struct making *m = arg;
    struct heed_error err = {0};
    struct offsets found = {0};
    int64_t from = (int64_t)span * SPAN;
    int64_t to = m->bytes - from < SPAN ? m->bytes : from + SPAN;
    enum heed_status st = HEED_OK;
    if (!atomic_load(&m->failed)) st = span_search(m, thread, &found, from, to, &err);
    span_append(m, span, &found, st, &err);
    free(found.v);
    /* Thread 0 is the one that called parallel_run. The spans up to this one are appended. */
    if (thread == 0 && m->watch.done)
        m->watch.done(m->watch.user, (double)(m->before + to) / (double)m->all);
}

/* Appends the offsets of one file. */
static enum heed_status file_make(struct making *m, struct entry *e, int threads,
                                  struct heed_error *err)
{
    unsigned char end[OFFSET];
    m->bytes = e->bytes;
    m->lines = 0;
    m->turn = 0;
    parallel_run(threads, (long)((m->bytes + SPAN - 1) / SPAN), span_run, m);
    if (m->status && err) *err = m->err;
    if (m->status) return m->status;
    e->lines = m->lines;
    number_put(end, (uint64_t)m->bytes, OFFSET);
    m->crc = (uint32_t)crc32_z(m->crc, end, OFFSET);
    if (!file_append(m->fd, (const char *)end, OFFSET))
        return error_errno(err, "cannot write %s", m->path);
    return HEED_OK;
}

/* Writes the header and the entries to the front of the file. */
static enum heed_status head_write(const struct index *x, uint32_t crc, struct heed_error *err)
{
    size_t bytes = HEADER + (size_t)x->n * ENTRY;
    unsigned char *head = calloc(1, bytes);
    if (!head) return error_memory(err, bytes, "an index");
    for (int i = 0; i < x->n; i++) {
        const struct entry *e = &x->entry[i];
        const int64_t number[] = {e->stamp.bytes, e->stamp.changed, e->bytes, e->lines};
        for (int k = 0; k < 4; k++)
            number_put(head + HEADER + i * ENTRY + 8 * k, (uint64_t)number[k], 8);
    }
    memcpy(head, MAGIC, sizeof MAGIC);
    number_put(head + 8, VERSION, 4);
    number_put(head + 12, (uint64_t)x->n, 4);
    number_put(head + 16, crc32_z(0, head + HEADER, bytes - HEADER), 4);
    number_put(head + 20, crc, 4);
    enum heed_status st = HEED_OK;
    if (lseek(x->fd, 0, SEEK_SET) != 0 || !file_append(x->fd, (const char *)head, bytes))
        st = error_errno(err, "cannot write %s", x->path);
    free(head);
    return st;
}

/* Writes the whole index to x->fd, which is empty. */
static enum heed_status index_write(struct index *x, const struct index_files *f, int threads,
                                    const struct index_watch *watch, struct heed_error *err)
{
    struct making m = {.fd = x->fd, .path = x->path, .watch = *watch};
    pthread_mutex_init(&m.lock, NULL);
    pthread_cond_init(&m.changed, NULL);
    atomic_init(&m.failed, false);
    for (int i = 0; i < f->n; i++) m.all += x->entry[i].bytes;
    enum heed_status st = head_write(x, 0, err); /* keeps its place */
    for (int i = 0; i < f->n && !st; i++) {
        m.text = f->text[i];
        st = file_make(&m, &x->entry[i], threads, err);
        m.before += x->entry[i].bytes;
        if (!st && x->entry[i].lines == 0)
            st = error_set(err, HEED_EFORMAT, "%s is empty", f->name[i]);
        if (!st) st = text_unchanged(f->text[i], err);
    }
    for (int i = 0; i < PARALLEL_MAX; i++) {
        text_block_release(&m.block[i]);
        free(m.piece[i]);
    }
    pthread_cond_destroy(&m.changed);
    pthread_mutex_destroy(&m.lock);
    if (!st) st = head_write(x, m.crc, err);
    return st;
}

/* ---- reading ---- */

/* The checksum of a part of the index, for one thread. */
struct checking {
    const struct index *x;
    int64_t from, to;
    uint32_t *crc; /* [parts] */
    atomic_bool failed;
};

static void part_check(void *arg, int thread, long i)
{
    struct checking *c = arg;
    (void)thread;
    int64_t from = c->from + (int64_t)i * CHECK, to = from + CHECK < c->to ? from + CHECK : c->to;
    unsigned char *piece = malloc(PIECE);
    if (!piece) atomic_store(&c->failed, true);
    uint32_t crc = 0;
    for (int64_t at = from; at < to && !atomic_load(&c->failed); at += PIECE) {
        size_t n = to - at < PIECE ? (size_t)(to - at) : PIECE;
        if (file_read_at(c->x->fd, piece, n, at))
            crc = (uint32_t)crc32_z(crc, piece, n);
        else
            atomic_store(&c->failed, true);
    }
    c->crc[i] = crc;
    free(piece);
}

/* Whether the offsets, which are the bytes [from, to) of the file, have this checksum. */
static bool offsets_check(const struct index *x, int64_t from, int64_t to, uint32_t want,
                          int threads)
{
    long parts = (long)((to - from + CHECK - 1) / CHECK);
    struct checking c = {.x = x, .from = from, .to = to};
    if (!(c.crc = malloc((size_t)parts * sizeof *c.crc))) return false;
    atomic_init(&c.failed, false);
    parallel_run(threads, parts, part_check, &c);
    uint32_t crc = 0;
    for (long i = 0; i < parts; i++) {
        int64_t n = i < parts - 1 ? CHECK : to - from - (int64_t)i * CHECK;
        crc = (uint32_t)crc32_combine(crc, c.crc[i], (z_off_t)n);
    }
    free(c.crc);
    return !atomic_load(&c.failed) && crc == want;
}

/* Sets the entries from those of the file; false where the file is not about these texts. */
static bool entries_read(struct index *x, const unsigned char *in)
{
    for (int i = 0; i < x->n; i++) {
        struct entry *e = &x->entry[i];
        int64_t number[4];
        for (int k = 0; k < 4; k++)
            number[k] = (int64_t)number_get(in + (size_t)i * ENTRY + 8 * k, 8);
        struct text_stamp stamp = {number[0], number[1]};
        if (!text_stamp_equal(stamp, e->stamp) || number[2] != e->bytes) return false;
        if (number[3] < 1 || number[3] > e->bytes) return false;
        e->lines = number[3];
    }
    return true;
}

/* Whether the open file is a whole index of these texts. Sets the numbers of their lines. */
static bool index_check(struct index *x, int threads)
{
    struct stat info;
    size_t bytes = (size_t)x->n * ENTRY;
    unsigned char header[HEADER], *in = malloc(bytes + 1);
    bool good = in && fstat(x->fd, &info) == 0 && file_read_at(x->fd, header, HEADER, 0) &&
                memcmp(header, MAGIC, sizeof MAGIC) == 0 && number_get(header + 8, 4) == VERSION &&
                number_get(header + 12, 4) == (uint64_t)x->n &&
                file_read_at(x->fd, in, bytes, HEADER) &&
                number_get(header + 16, 4) == crc32_z(0, in, bytes) && entries_read(x, in);
    free(in);
    return good && entries_place(x->entry, x->n) == info.st_size &&
           offsets_check(x, HEADER + (int64_t)bytes, info.st_size,
                         (uint32_t)number_get(header + 20, 4), threads);
}

static struct index *index_new(const char *path, const struct index_files *f,
                               struct heed_error *err)
{
    struct index *x = calloc(1, sizeof *x);
    if (x) x->fd = -1;
    if (x) x->path = strdup(path);
    if (x) x->entry = calloc((size_t)f->n, sizeof *x->entry);
    if (!x || !x->path || !x->entry) {
        index_free(x);
        error_memory(err, sizeof *x + (size_t)f->n * sizeof *x->entry, "an index");
        return NULL;
    }
    x->n = f->n;
    for (int i = 0; i < f->n; i++)
        x->entry[i] = (struct entry){.stamp = f->stamp[i], .bytes = text_bytes(f->text[i])};
    return x;
}

enum heed_status index_load(struct index **out, const char *path, const struct index_files *f,
                            int threads, struct heed_error *err)
{
    struct index *x = index_new(path, f, err);
    if (!x) return HEED_ENOMEM;
    x->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (x->fd < 0 || !index_check(x, threads)) {
        index_free(x);
        x = NULL;
    }
    *out = x;
    return HEED_OK;
}

/* There is no fsync: an index that a crash leaves incomplete does not pass its checks. */
enum heed_status index_make(struct index **out, const char *path, const struct index_files *f,
                            int threads, const struct index_watch *watch, struct heed_error *err)
{
    char temporary[FILE_PATH_MAX];
    struct index *x = index_new(path, f, err);
    if (!x) return HEED_ENOMEM;
    errno = ENAMETOOLONG;
    if (snprintf(temporary, sizeof temporary, "%s.tmp", path) < (int)sizeof temporary)
        x->fd = open(temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    enum heed_status st = HEED_OK;
    if (x->fd < 0) st = error_errno(err, "cannot write %s", path);
    if (!st && (st = index_write(x, f, threads, watch, err))) unlink(temporary);
    if (!st && rename(temporary, path) != 0) st = error_errno(err, "cannot write %s", path);
    if (st) {
        index_free(x);
        return st;
    }
    entries_place(x->entry, x->n);
    *out = x;
    return HEED_OK;
}

void index_free(struct index *x)
{
    if (!x) return;
    if (x->fd >= 0) close(x->fd);
    free(x->entry);
    free(x->path);
    free(x);
}

int64_t index_lines(const struct index *x, int file)
{
    return x->entry[file].lines;
}

enum heed_status index_range(const struct index *x, int file, int64_t line, int64_t *at, int64_t *n,
                             struct heed_error *err)
{
    unsigned char in[2 * OFFSET];
    const struct entry *e = &x->entry[file];
    if (!file_read_at(x->fd, in, sizeof in, e->at + line * OFFSET))
        return errno ? error_errno(err, "cannot read %s", x->path)
                     : error_set(err, HEED_EIO, "%s was cut short while it was in use", x->path);
    int64_t from = (int64_t)number_get(in, OFFSET), to = (int64_t)number_get(in + OFFSET, OFFSET);
    if (from >= to || to > e->bytes)
        return error_set(err, HEED_EFORMAT, "%s is damaged: line %lld of file %d", x->path,
                         (long long)line + 1, file + 1);
    *at = from;
    *n = to - from;
    return HEED_OK;
}
