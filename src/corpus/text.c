/*
 * text.c - random access to the bytes of a text file; see text.h.
 */
#include "corpus/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "corpus/text_blocks.h"

struct text {
    char *path;
    int fd;
    int64_t bytes;
    struct text_stamp stamp;
    struct blocks *blocks; /* NULL: the file is plain */
};

static struct text_stamp stamp_of(const struct stat *info)
{
    const int64_t second = 1000000000;
    return (struct text_stamp){info->st_size,
                               info->st_mtim.tv_sec * second + info->st_mtim.tv_nsec};
}

struct text_stamp text_stamp(const struct text *t)
{
    return t->stamp;
}

enum heed_status text_stamp_of(const char *path, struct text_stamp *out, struct heed_error *err)
{
    struct stat info;
    if (stat(path, &info) != 0) return error_errno(err, "cannot open %s", path);
    *out = stamp_of(&info);
    return HEED_OK;
}

bool text_stamp_equal(struct text_stamp a, struct text_stamp b)
{
    return a.bytes == b.bytes && a.changed == b.changed;
}

enum heed_status text_unchanged(const struct text *t, struct heed_error *err)
{
    struct stat info;
    if (fstat(t->fd, &info) != 0) return error_errno(err, "cannot read %s", t->path);
    if (text_stamp_equal(stamp_of(&info), t->stamp)) return HEED_OK;
    return error_set(err, HEED_EIO,
                     "%s was written to while it was in use: it had %lld bytes at first and has "
                     "%lld now",
                     t->path, (long long)t->stamp.bytes, (long long)info.st_size);
}

/* Looks at the first bytes. */
static enum heed_status compression_find(const struct text *t, bool *compressed,
                                         struct heed_error *err)
{
    static const char gzip[] = "\x1f\x8b", xz[] = "\xfd\x37zXZ";
    char magic[6] = {0};
    for (size_t at = 0; at < sizeof magic;) {
        ssize_t n = pread(t->fd, magic + at, sizeof magic - at, (off_t)at);
        if (n < 0 && errno != EINTR) return error_errno(err, "cannot read %s", t->path);
        if (n == 0) break;
        if (n > 0) at += (size_t)n;
    }
    *compressed = memcmp(magic, gzip, 2) == 0 || memcmp(magic, xz, sizeof xz) == 0;
    return HEED_OK;
}

enum heed_status text_open(struct text **out, const char *path, struct heed_error *err)
{
    struct stat info;
    struct text *t = calloc(1, sizeof *t);
    if (!t || !(t->path = strdup(path))) {
        free(t);
        return error_memory(err, sizeof *t + strlen(path), "a text file");
    }
    t->fd = -1;
    enum heed_status st = file_open(path, &t->fd, err);
    if (!st && fstat(t->fd, &info) != 0) st = error_errno(err, "cannot read %s", path);
    bool compressed = false;
    if (!st) st = compression_find(t, &compressed, err);
    if (!st && compressed) st = blocks_open(&t->blocks, t->fd, t->path, err);
    if (st || (compressed && !t->blocks)) {
        text_free(t);
        if (!st) *out = NULL;
        return st;
    }
    t->stamp = stamp_of(&info);
    t->bytes = compressed ? blocks_bytes(t->blocks) : info.st_size;
    if (!compressed) posix_fadvise(t->fd, 0, 0, POSIX_FADV_RANDOM);
    *out = t;
    return HEED_OK;
}

void text_free(struct text *t)
{
    if (!t) return;
    blocks_free(t->blocks);
    if (t->fd >= 0) close(t->fd);
    free(t->path);
    free(t);
}

int64_t text_bytes(const struct text *t)
{
    return t->bytes;
}

static enum heed_status plain_read(const struct text *t, char *out, int64_t at, size_t n,
                                   struct heed_error *err)
{
    if (file_read_at(t->fd, out, n, at)) return HEED_OK;
    if (errno) return error_errno(err, "cannot read %s", t->path);
    return error_set(err, HEED_EIO,
                     "%s was cut short while it was in use: it ends before byte %lld", t->path,
                     (long long)(at + (int64_t)n));
}

/* Makes block i the one in *b. */
static enum heed_status block_load(const struct text *t, struct text_block *b, long i,
                                   struct heed_error *err)
{
    if (b->text == t && b->number == i) return HEED_OK;
    b->text = NULL;
    if (!b->data && !(b->data = malloc(TEXT_BLOCK_MAX)))
        return error_memory(err, TEXT_BLOCK_MAX, "a block of compressed text");
    enum heed_status st = blocks_decode(t->blocks, i, b->data, err);
    if (st) return st;
    b->text = t;
    b->number = i;
    return HEED_OK;
}

enum heed_status text_read(const struct text *t, struct text_block *block, char *out, int64_t at,
                           size_t n, struct heed_error *err)
{
    if (!t->blocks) return plain_read(t, out, at, n, err);
    while (n) {
        long i = blocks_find(t->blocks, at);
        enum heed_status st = block_load(t, block, i, err);
        if (st) return st;
        size_t from = (size_t)(at - blocks_begin(t->blocks, i));
        size_t some = blocks_length(t->blocks, i) - from;
        if (some > n) some = n;
        memcpy(out, block->data + from, some);
        out += some;
        at += (int64_t)some;
        n -= some;
    }
    return HEED_OK;
}

void text_prefetch(const struct text *t, int64_t at, size_t n)
{
    if (t->blocks && n) blocks_place(t->blocks, blocks_find(t->blocks, at), &at, &n);
    if (n) posix_fadvise(t->fd, at, (off_t)n, POSIX_FADV_WILLNEED);
}

void text_block_release(struct text_block *b)
{
    free(b->data);
    *b = (struct text_block){0};
}
