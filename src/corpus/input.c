/*
 * input.c - lines of text from plain, gzip or xz files. First stage of the walk.
 *
 * Two buffers: raw bytes as read(2) gives them, and decoded text from which lines are handed out
 * in place. The text buffer grows only when one line does not fit. No byte is searched for a line
 * end twice, so the time to read a line grows with its length.
 *
 * The file is recognized before its first line is handed out: its compression by its first bytes,
 * as soon as they can belong to one format only, then UTF-16 and line ends other than line feeds by
 * the first line or the first megabyte.
 *
 * Call order: open, line or ready..., free.
 */
#include "corpus/input.h"

#include "base/error.h"
#include "base/file.h"

#include <errno.h>
#include <lzma.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum {
    RAW_BYTES = 64 << 10,
    CHUNK_BYTES = 256 << 10,
    LOOK_BYTES = 1 << 20 /* text without a line feed up to here is taken to have none */
};

/* The memory that decoding xz may take; what xz -9 writes takes 65 MiB. */
static const uint64_t XZ_MEMORY = 256u << 20;

enum format { UNKNOWN, PLAIN, GZIP, XZ, REFUSED };

struct heed_lines {
    char *path;
    int fd;
    bool lent;       /* the caller closes the descriptor */
    size_t line_max; /* bytes; a longer line is cut */
    enum format format;
    z_stream gzip;
    lzma_stream xz;
    bool in_member; /* gzip: inside one of the members laid end to end */
    bool raw_end;   /* read(2) gave its last byte */
    bool text_end;  /* the decoder gave its last byte */
    bool skip_rest; /* the last line handed out was cut; its rest is to be skipped */
    bool looked;    /* text_look has found nothing wrong */
    bool begun;     /* a line was handed out */
    char *text;     /* text[at..n) is decoded and not handed out yet */
    size_t at, n, cap;
    size_t seen; /* bytes from at on that are known to have no line feed */
    size_t raw_at, raw_n;
    unsigned char raw[RAW_BYTES];
};

/* Appends the bytes of one read(2) to raw[raw_at..raw_n), which is empty or begins at 0. */
static enum heed_status raw_read(struct heed_lines *in, struct heed_error *err)
{
    ssize_t n;
    if (in->raw_at == in->raw_n) in->raw_at = in->raw_n = 0;
    while ((n = read(in->fd, in->raw + in->raw_n, RAW_BYTES - in->raw_n)) < 0) {
        /* A process that shares the pipe may have set O_NONBLOCK on it. */
        struct pollfd wait = {.fd = in->fd, .events = POLLIN};
        bool later = errno == EAGAIN && poll(&wait, 1, -1) >= 0;
        if (!later && errno != EINTR) return error_errno(err, "cannot read %s", in->path);
    }
    if (n == 0) in->raw_end = true;
    in->raw_n += (size_t)n;
    return HEED_OK;
}

static enum heed_status truncated(const struct heed_lines *in, const char *format,
                                  struct heed_error *err)
{
    return error_set(err, HEED_EFORMAT, "%s is truncated: its %s data stops before the end mark",
                     in->path, format);
}

static enum heed_status corrupt(const struct heed_lines *in, const char *format, const char *why,
                                struct heed_error *err)
{
    return error_set(err, HEED_EFORMAT, "%s is corrupt: its %s data has %s", in->path, format, why);
}

/* Each decoder takes some raw bytes and writes at most `room` bytes of text, perhaps none; it sets
 * text_end at the end. */

static enum heed_status plain_decode(struct heed_lines *in, char *out, size_t room, size_t *got)
{
    size_t n = in->raw_n - in->raw_at;
    if (n > room) n = room;
    memcpy(out, in->raw + in->raw_at, n);
    in->raw_at += n;
    in->text_end = n == 0 && in->raw_end;
    *got = n;
    return HEED_OK;
}

static enum heed_status gzip_decode(struct heed_lines *in, char *out, size_t room, size_t *got,
                                    struct heed_error *err)
{
    z_stream *z = &in->gzip;
    z->next_out = (unsigned char *)out;
    z->avail_out = (uInt)room;
    while (z->avail_out == room && in->raw_at < in->raw_n) {
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
    if (*got == 0 && in->raw_end) {
        if (in->in_member) return truncated(in, "gzip", err);
        in->text_end = true;
    }
    return HEED_OK;
}

static enum heed_status xz_error(const struct heed_lines *in, lzma_ret r, struct heed_error *err)
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

static enum heed_status xz_decode(struct heed_lines *in, char *out, size_t room, size_t *got,
                                  struct heed_error *err)
{
    lzma_stream *x = &in->xz;
    x->next_out = (unsigned char *)out;
    x->avail_out = room;
    while (x->avail_out == room && !in->text_end && (in->raw_at < in->raw_n || in->raw_end)) {
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

/* ---- what the file is ---- */

/* Magic numbers that a file may begin with; '?' matches any byte. */
static const struct magic {
    const char *bytes;
    size_t n;
    enum format format;
    const char *what; /* REFUSED */
} MAGIC[] = {
    {"\x1f\x8b", 2, GZIP, NULL},
    {"\xfd"
     "7zXZ\0",
     6, XZ, NULL},
    {"\x28\xb5\x2f\xfd", 4, REFUSED, "compressed by zstd"},
    {"BZh?1AY&SY", 10, REFUSED, "compressed by bzip2"},
    {"PK\3\4", 4, REFUSED, "a zip archive"},
};

/* How many of the first bytes match m; less than m->n where one differs or is not read yet. */
static size_t magic_match(const struct heed_lines *in, const struct magic *m)
{
    size_t i = 0;
    while (i < m->n && i < in->raw_n &&
           (m->bytes[i] == '?' || in->raw[i] == (unsigned char)m->bytes[i]))
        i++;
    return i;
}

static enum heed_status refused(const struct heed_lines *in, const char *what,
                                struct heed_error *err)
{
    return error_set(err, HEED_EFORMAT,
                     "%s is %s, expected UTF-8 text, plain or compressed by gzip or xz", in->path,
                     what);
}

/* Sets in->format, which stays UNKNOWN while the bytes read so far may be the beginning of a magic
 * number. */
static enum heed_status format_find(struct heed_lines *in, struct heed_error *err)
{
    for (size_t i = 0; i < sizeof MAGIC / sizeof MAGIC[0]; i++) {
        const struct magic *m = &MAGIC[i];
        size_t n = magic_match(in, m);
        if (n < m->n && n == in->raw_n && !in->raw_end) return HEED_OK;
        if (n < m->n) continue;
        if (m->format == REFUSED) return refused(in, m->what, err);
        if (m->format == GZIP && inflateInit2(&in->gzip, 15 + 16) != Z_OK)
            return error_memory(err, 1 << 16, "gzip decoding");
        if (m->format == XZ &&
            lzma_stream_decoder(&in->xz, XZ_MEMORY, LZMA_CONCATENATED) != LZMA_OK)
            return error_memory(err, XZ_MEMORY, "xz decoding");
        in->format = m->format;
        return HEED_OK;
    }
    in->format = PLAIN;
    return HEED_OK;
}

/* UTF-16 begins with a byte order mark, or else has a NUL in most pairs of bytes, always on the
 * same side of the pair. */
static bool is_utf16(const char *s, size_t n)
{
    size_t nul[2] = {0, 0}, pairs = (n < 4096 ? n : 4096) / 2;
    if (n >= 2 && (!memcmp(s, "\xff\xfe", 2) || !memcmp(s, "\xfe\xff", 2))) return true;
    for (size_t i = 0; i < 2 * pairs; i++) nul[i % 2] += s[i] == '\0';
    return pairs >= 2 &&
           ((nul[0] == 0 && nul[1] > pairs / 2) || (nul[1] == 0 && nul[0] > pairs / 2));
}

/* Checks the text before its first line is handed out. feed: that line ends in a line feed. */
static enum heed_status text_look(struct heed_lines *in, bool feed, struct heed_error *err)
{
    size_t n = in->n - in->at;
    const char *s = in->text + in->at;
    in->looked = true;
    if (is_utf16(s, n)) return refused(in, "UTF-16 text", err);
    if (!feed && n > 1 && memchr(s, '\r', n - 1))
        return error_set(err, HEED_EFORMAT,
                         "%s has lines that end in carriage returns alone, expected line feeds",
                         in->path);
    return HEED_OK;
}

/* ---- from bytes to text ---- */

static enum heed_status text_room(struct heed_lines *in, struct heed_error *err)
{
    if (in->at > 0) {
        memmove(in->text, in->text + in->at, in->n - in->at);
        in->n -= in->at;
        in->at = 0;
    }
    if (in->cap - in->n >= CHUNK_BYTES) return HEED_OK;
    size_t cap = in->cap ? 2 * in->cap : 2 * CHUNK_BYTES;
    char *text = realloc(in->text, cap);
    if (!text) return error_memory(err, cap, "a line of text");
    in->text = text;
    in->cap = cap;
    return HEED_OK;
}

static bool needs_raw(const struct heed_lines *in)
{
    return !in->raw_end && (in->format == UNKNOWN || in->raw_at == in->raw_n);
}

/* Calls read(2) at most once and appends some decoded text, perhaps none, to text[at..n), which it
 * may move to the front of the buffer. */
static enum heed_status text_more(struct heed_lines *in, struct heed_error *err)
{
    size_t got = 0;
    enum heed_status st = text_room(in, err);
    if (!st && needs_raw(in)) st = raw_read(in, err);
    if (!st && in->format == UNKNOWN) st = format_find(in, err);
    if (st) return st;
    char *out = in->text + in->n;
    if (in->format == PLAIN) st = plain_decode(in, out, CHUNK_BYTES, &got);
    if (in->format == GZIP) st = gzip_decode(in, out, CHUNK_BYTES, &got, err);
    if (in->format == XZ) st = xz_decode(in, out, CHUNK_BYTES, &got, err);
    in->n += got;
    return st;
}

/* ---- opening ---- */

/* fd: the descriptor of the caller, or -1 where a file is still to be opened. */
static struct heed_lines *input_new(int fd, const char *path, struct heed_error *err)
{
    struct heed_lines *in = calloc(1, sizeof *in);
    if (in) in->path = strdup(path);
    if (!in || !in->path) {
        error_memory(err, sizeof *in + strlen(path), "a text file");
        free(in);
        return NULL;
    }
    in->fd = fd;
    in->lent = fd >= 0;
    in->xz = (lzma_stream)LZMA_STREAM_INIT;
    in->line_max = INPUT_LINE_ANY;
    return in;
}

static enum heed_status line_await(struct heed_lines *in, size_t *len, size_t *used,
                                   struct heed_error *err);

enum heed_status input_open(struct heed_lines **out, const char *path, struct heed_error *err)
{
    size_t len, used;
    struct heed_lines *in = input_new(-1, path, err);
    if (!in) return HEED_ENOMEM;
    in->line_max = INPUT_LINE_MAX;
    enum heed_status st = file_open(path, &in->fd, err);
    if (!st) st = line_await(in, &len, &used, err);
    if (st) {
        input_free(in);
        return st;
    }
    *out = in;
    return HEED_OK;
}

enum heed_status input_open_once(struct heed_lines **out, const char *path, struct heed_error *err)
{
    struct heed_lines *in = input_new(-1, path, err);
    if (!in) return HEED_ENOMEM;
    enum heed_status st = file_open_once(path, &in->fd, err);
    if (st) {
        input_free(in);
        return st;
    }
    *out = in;
    return HEED_OK;
}

enum heed_status input_open_fd(struct heed_lines **out, int fd, const char *name,
                               struct heed_error *err)
{
    struct heed_lines *in = input_new(fd, name, err);
    if (!in) return HEED_ENOMEM;
    *out = in;
    return HEED_OK;
}

void input_free(struct heed_lines *in)
{
    if (!in) return;
    if (in->format == GZIP) inflateEnd(&in->gzip);
    lzma_end(&in->xz);
    if (in->fd >= 0 && !in->lent) close(in->fd);
    free(in->text);
    free(in->path);
    free(in);
}

/* ---- lines ---- */

/* Drops the rest of a line that was cut. */
static enum heed_status rest_skip(struct heed_lines *in, struct heed_error *err)
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

/* Whether the next line or the end of the text is in the buffer. A line has *len bytes, and *used
 * bytes with its line end; at the end of the text both are 0. */
static bool line_find(struct heed_lines *in, size_t *len, size_t *used)
{
    size_t have = in->n - in->at;
    const char *s = have ? in->text + in->at : NULL; /* at first there is no buffer */
    const char *end = have > in->seen ? memchr(s + in->seen, '\n', have - in->seen) : NULL;
    if (end) {
        *len = (size_t)(end - s);
        *used = *len + 1;
        return true;
    }
    in->seen = have;
    bool cut = have > in->line_max + 1; /* a line of line_max bytes may still have \r before \n */
    *len = *used = cut ? in->line_max : have;
    return cut || in->text_end;
}

/* Decodes text until the next line is there. */
static enum heed_status line_await(struct heed_lines *in, size_t *len, size_t *used,
                                   struct heed_error *err)
{
    enum heed_status st = rest_skip(in, err);
    while (!st) {
        bool found = line_find(in, len, used);
        if (!in->looked && (found || in->n - in->at > LOOK_BYTES))
            st = text_look(in, found && *used > *len, err);
        if (found || st) break;
        st = text_more(in, err);
    }
    return st;
}

/* Hands out text[at..at+len); the next line starts used bytes further on. */
static void line_take(struct heed_lines *in, size_t len, size_t used, const char **line,
                      size_t *out)
{
    const char *s = in->text + in->at;
    in->skip_rest = used == len && !(in->text_end && in->at + used == in->n);
    in->at += used;
    in->seen = 0;
    if (len > 0 && !in->skip_rest && s[len - 1] == '\r') len--;
    if (!in->begun && len >= 3 && !memcmp(s, "\xef\xbb\xbf", 3)) {
        s += 3;
        len -= 3;
    }
    in->begun = true;
    *line = s;
    *out = len < in->line_max ? len : in->line_max;
}

enum heed_status input_line(struct heed_lines *in, const char **line, size_t *len,
                            struct heed_error *err)
{
    size_t found, used;
    enum heed_status st = line_await(in, &found, &used, err);
    if (st) return st;
    *line = NULL;
    *len = 0;
    if (used) line_take(in, found, used, line, len);
    return HEED_OK;
}

enum heed_status input_ready(struct heed_lines *in, bool *ready, struct heed_error *err)
{
    size_t len, used;
    while (!(*ready = line_find(in, &len, &used))) {
        struct pollfd p = {.fd = in->fd, .events = POLLIN};
        if (needs_raw(in) && poll(&p, 1, 0) == 0) return HEED_OK;
        enum heed_status st = text_more(in, err);
        if (st) return st;
    }
    return HEED_OK;
}
