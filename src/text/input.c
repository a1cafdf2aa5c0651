/*
 * input.c - lines of text from plain, gzip or xz files. First stage of the walk.
 *
 * Two buffers: raw bytes as read(2) gives them, and decoded text from which lines are handed out
 * in place. The text buffer grows only when one line does not fit, and never past twice
 * INPUT_LINE_MAX, so memory is bounded whatever the file holds.
 *
 * Call order: open, line..., free.
 */
#include "text/input.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <lzma.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { RAW_BYTES = 64 << 10, CHUNK_BYTES = 256 << 10 };

/* xz -9 asks for 65 MiB; a file that wants more than this is not text for us. */
static const uint64_t XZ_MEMORY = 256u << 20;

enum format { PLAIN, GZIP, XZ };

struct input {
    char *path;
    int fd;
    enum format format;
    z_stream gzip;
    lzma_stream xz;
    bool in_member; /* gzip: inside one of the members laid end to end */
    bool raw_end;   /* read(2) gave its last byte */
    bool text_end;  /* the decoder gave its last byte */
    bool skip_rest; /* the line handed out was cut; the rest up to its line end goes */
    bool begun;     /* a line was handed out */
    char *text;     /* text[at..n) is decoded and not handed out yet */
    size_t at, n, cap;
    size_t raw_at, raw_n;
    unsigned char raw[RAW_BYTES];
};

/* Appends what read(2) gives behind raw[0..raw_n). */
static enum heed_status raw_read(struct input *in, struct heed_error *err)
{
    ssize_t n;
    do n = read(in->fd, in->raw + in->raw_n, RAW_BYTES - in->raw_n);
    while (n < 0 && errno == EINTR);
    if (n < 0) return error_errno(err, "cannot read %s", in->path);
    if (n == 0) in->raw_end = true;
    in->raw_n += (size_t)n;
    return HEED_OK;
}

/* Leaves raw[raw_at..raw_n) empty only at the end of the file. */
static enum heed_status raw_need(struct input *in, struct heed_error *err)
{
    if (in->raw_at < in->raw_n || in->raw_end) return HEED_OK;
    in->raw_at = in->raw_n = 0;
    return raw_read(in, err);
}

static enum heed_status truncated(const struct input *in, const char *format,
                                  struct heed_error *err)
{
    return error_set(err, HEED_EFORMAT, "%s is truncated: its %s data stops before the end mark",
                     in->path, format);
}

static enum heed_status corrupt(const struct input *in, const char *format, const char *why,
                                struct heed_error *err)
{
    return error_set(err, HEED_EFORMAT, "%s is corrupt: its %s data has %s", in->path, format, why);
}

/* The decoders write at most room bytes and give *got > 0 unless the text ends. */

static enum heed_status plain_decode(struct input *in, char *out, size_t room, size_t *got,
                                     struct heed_error *err)
{
    enum heed_status st = raw_need(in, err);
    if (st) return st;
    size_t n = in->raw_n - in->raw_at;
    if (n > room) n = room;
    memcpy(out, in->raw + in->raw_at, n);
    in->raw_at += n;
    in->text_end = n == 0;
    *got = n;
    return HEED_OK;
}

static enum heed_status gzip_decode(struct input *in, char *out, size_t room, size_t *got,
                                    struct heed_error *err)
{
    z_stream *z = &in->gzip;
    z->next_out = (unsigned char *)out;
    z->avail_out = (uInt)room;
    while (z->avail_out == room) {
        enum heed_status st = raw_need(in, err);
        if (st) return st;
        if (in->raw_at == in->raw_n) {
            if (in->in_member) return truncated(in, "gzip", err);
            in->text_end = true;
            break;
        }
        if (!in->in_member) {
            /* Tapes and block devices pad the last member with zeros. */
            if (in->raw[in->raw_at] == 0) {
                in->raw_at++;
                continue;
            }
            inflateReset(z);
            in->in_member = true;
        }
        z->next_in = in->raw + in->raw_at;
        z->avail_in = (uInt)(in->raw_n - in->raw_at);
        int r = inflate(z, Z_NO_FLUSH);
        in->raw_at = in->raw_n - z->avail_in;
        if (r == Z_MEM_ERROR) return error_memory(err, 1 << 16, "gzip decoding");
        if (r == Z_STREAM_END)
            in->in_member = false;
        else if (r != Z_OK && r != Z_BUF_ERROR)
            return corrupt(in, "gzip", z->msg ? z->msg : "an unknown fault", err);
    }
    *got = room - z->avail_out;
    return HEED_OK;
}

static enum heed_status xz_error(const struct input *in, lzma_ret r, struct heed_error *err)
{
    if (r == LZMA_BUF_ERROR) return truncated(in, "xz", err);
    if (r == LZMA_MEM_ERROR) return error_memory(err, XZ_MEMORY, "xz decoding");
    if (r == LZMA_MEMLIMIT_ERROR)
        return error_set(
            err, HEED_EUNSUPPORTED, "%s needs %llu MiB to decode, %llu MiB are allowed", in->path,
            (unsigned long long)lzma_memusage(&in->xz) >> 20, (unsigned long long)XZ_MEMORY >> 20);
    if (r == LZMA_OPTIONS_ERROR) return corrupt(in, "xz", "options that are not supported", err);
    return corrupt(in, "xz", r == LZMA_FORMAT_ERROR ? "a wrong header" : "a wrong check sum", err);
}

static enum heed_status xz_decode(struct input *in, char *out, size_t room, size_t *got,
                                  struct heed_error *err)
{
    lzma_stream *x = &in->xz;
    x->next_out = (unsigned char *)out;
    x->avail_out = room;
    while (x->avail_out == room && !in->text_end) {
        enum heed_status st = raw_need(in, err);
        if (st) return st;
        x->next_in = in->raw + in->raw_at;
        x->avail_in = in->raw_n - in->raw_at;
        lzma_ret r = lzma_code(x, x->avail_in ? LZMA_RUN : LZMA_FINISH);
        in->raw_at = in->raw_n - x->avail_in;
        if (r == LZMA_STREAM_END)
            in->text_end = true;
        else if (r != LZMA_OK)
            return xz_error(in, r, err);
    }
    *got = room - x->avail_out;
    return HEED_OK;
}

/* Decodes some more text behind text[at..n); may move it to the front of the buffer. */
static enum heed_status text_more(struct input *in, struct heed_error *err)
{
    if (in->at > 0) {
        memmove(in->text, in->text + in->at, in->n - in->at);
        in->n -= in->at;
        in->at = 0;
    }
    if (in->cap - in->n < CHUNK_BYTES) {
        size_t cap = in->cap ? 2 * in->cap : 2 * CHUNK_BYTES;
        char *text = realloc(in->text, cap);
        if (!text) return error_memory(err, cap, "a line of text");
        in->text = text;
        in->cap = cap;
    }
    size_t got = 0;
    enum heed_status st;
    if (in->format == GZIP)
        st = gzip_decode(in, in->text + in->n, CHUNK_BYTES, &got, err);
    else if (in->format == XZ)
        st = xz_decode(in, in->text + in->n, CHUNK_BYTES, &got, err);
    else
        st = plain_decode(in, in->text + in->n, CHUNK_BYTES, &got, err);
    in->n += got;
    return st;
}

static enum heed_status decoder_start(struct input *in, struct heed_error *err)
{
    static const unsigned char gzip_magic[] = {0x1f, 0x8b};
    static const unsigned char xz_magic[] = {0xfd, '7', 'z', 'X', 'Z', 0};
    while (in->raw_n < sizeof xz_magic && !in->raw_end) {
        enum heed_status st = raw_read(in, err);
        if (st) return st;
    }
    if (in->raw_n >= sizeof gzip_magic && !memcmp(in->raw, gzip_magic, sizeof gzip_magic)) {
        if (inflateInit2(&in->gzip, 15 + 16) != Z_OK)
            return error_memory(err, 1 << 16, "gzip decoding");
        in->format = GZIP;
    } else if (in->raw_n >= sizeof xz_magic && !memcmp(in->raw, xz_magic, sizeof xz_magic)) {
        if (lzma_stream_decoder(&in->xz, XZ_MEMORY, LZMA_CONCATENATED) != LZMA_OK)
            return error_memory(err, XZ_MEMORY, "xz decoding");
        in->format = XZ;
    }
    return HEED_OK;
}

static enum heed_status file_start(struct input *in, struct heed_error *err)
{
    struct stat about;
    in->fd = open(in->path, O_RDONLY | O_CLOEXEC);
    if (in->fd < 0 || fstat(in->fd, &about) < 0)
        return error_errno(err, "cannot open %s", in->path);
    if (!S_ISREG(about.st_mode))
        return error_set(err, HEED_EIO, "%s is a %s, expected a file: text is read more than once",
                         in->path, S_ISDIR(about.st_mode) ? "directory" : "pipe or device");
    return decoder_start(in, err);
}

enum heed_status input_open(struct input **out, const char *path, struct heed_error *err)
{
    struct input *in = calloc(1, sizeof *in);
    if (!in) return error_memory(err, sizeof *in, path);
    in->fd = -1;
    in->xz = (lzma_stream)LZMA_STREAM_INIT;
    in->path = strdup(path);
    enum heed_status st =
        in->path ? file_start(in, err) : error_memory(err, strlen(path) + 1, "a file name");
    if (st) {
        input_free(in);
        return st;
    }
    *out = in;
    return HEED_OK;
}

void input_free(struct input *in)
{
    if (!in) return;
    if (in->format == GZIP) inflateEnd(&in->gzip);
    lzma_end(&in->xz);
    if (in->fd >= 0) close(in->fd);
    free(in->text);
    free(in->path);
    free(in);
}

/* Drops the rest of a line that was cut. */
static enum heed_status rest_skip(struct input *in, struct heed_error *err)
{
    while (in->skip_rest) {
        char *end = memchr(in->text + in->at, '\n', in->n - in->at);
        in->at = end ? (size_t)(end - in->text) + 1 : in->n;
        in->skip_rest = !end && !in->text_end;
        enum heed_status st = in->skip_rest ? text_more(in, err) : HEED_OK;
        if (st) return st;
    }
    return HEED_OK;
}

/* Hands out text[at..at+len); the next line starts used bytes further on. */
static void line_take(struct input *in, size_t len, size_t used, const char **line, size_t *out)
{
    const char *s = in->text + in->at;
    in->at += used;
    if (len > 0 && used > len && s[len - 1] == '\r') len--;
    if (!in->begun && len >= 3 && !memcmp(s, "\xef\xbb\xbf", 3)) {
        s += 3;
        len -= 3;
    }
    in->begun = true;
    *line = s;
    *out = len < INPUT_LINE_MAX ? len : INPUT_LINE_MAX;
}

enum heed_status input_line(struct input *in, const char **line, size_t *len,
                            struct heed_error *err)
{
    enum heed_status st = rest_skip(in, err);
    if (st) return st;
    size_t seen = 0; /* of the text not handed out: without a line end */
    for (;;) {
        size_t have = in->n - in->at;
        const char *s = have ? in->text + in->at : NULL; /* at first there is no buffer */
        const char *end = have > seen ? memchr(s + seen, '\n', have - seen) : NULL;
        if (end) {
            line_take(in, (size_t)(end - s), (size_t)(end - s) + 1, line, len);
            return HEED_OK;
        }
        if (have > INPUT_LINE_MAX + 1) { /* longer than any line that only ends in \r\n there */
            in->skip_rest = true;
            line_take(in, INPUT_LINE_MAX, INPUT_LINE_MAX, line, len);
            return HEED_OK;
        }
        if (in->text_end) {
            *line = NULL;
            *len = 0;
            if (have) line_take(in, have, have, line, len);
            return HEED_OK;
        }
        seen = have;
        if ((st = text_more(in, err))) return st;
    }
}
