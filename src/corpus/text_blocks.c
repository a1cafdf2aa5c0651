/*
 * text_blocks.c - the blocks of cut-up compressed files; see text_blocks.h.
 *
 * An xz file lists its blocks at its end. bgzip writes gzip members of at most 64 KB of text, each
 * with its compressed size in its header and its decoded size at its end, so that a reader can go
 * from member to member without decoding. Where a list cannot be read, the file counts as not cut
 * up: whoever decodes it from its start finds out what is wrong with it.
 */
#include "corpus/text_blocks.h"

#include <lzma.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "corpus/text.h"

/* Compressed bytes of a block: no encoder writes many more than it reads. */
enum { PACKED_MAX = TEXT_BLOCK_MAX + (64 << 10) };

/* The memory that the list of the blocks of an xz file may take, and that decoding a block may. */
static const uint64_t LIST_MEMORY = 256u << 20, XZ_MEMORY = 256u << 20;

struct place {
    int64_t at;     /* in the file */
    int64_t text;   /* where its text begins */
    uint32_t n;     /* bytes in the file */
    uint32_t check; /* xz: the kind of checksum */
};

struct blocks {
    const char *path; /* lent */
    int fd;
    bool xz;
    struct place *place; /* [n + 1] */
    size_t n, cap;
};

/* Appends a block with `bytes` of text. *fits: the block is small enough. */
static enum heed_status place_add(struct blocks *b, struct place p, uint64_t bytes, bool *fits,
                                  struct heed_error *err)
{
    *fits = bytes <= TEXT_BLOCK_MAX && p.n <= PACKED_MAX;
    if (!*fits || bytes == 0) return HEED_OK;
    enum heed_status st =
        array_reserve(&b->place, &b->cap, b->n + 2, sizeof *b->place, "the blocks of a file", err);
    if (st) return st;
    int64_t end = (b->n ? b->place[b->n].text : 0) + (int64_t)bytes;
    p.text = end - (int64_t)bytes;
    b->place[b->n++] = p;
    b->place[b->n] = (struct place){.text = end};
    return HEED_OK;
}

/* ---- xz ---- */

/* Reads the list of the stream that ends at *end, and its padding; sets *end to where it begins. */
static lzma_index *stream_list(int fd, int64_t *end)
{
    uint8_t footer[LZMA_STREAM_HEADER_SIZE];
    lzma_stream_flags flags;
    lzma_index *list = NULL;
    uint64_t memory = LIST_MEMORY;
    int64_t padding = 0;
    static const uint8_t zero[4];
    for (;; padding += 4) {
        int64_t at = *end - padding - LZMA_STREAM_HEADER_SIZE;
        if (at < 0 || !file_read_at(fd, footer, sizeof footer, at)) return NULL;
        if (memcmp(footer + sizeof footer - 4, zero, 4) != 0) break;
    }
    int64_t at = *end - padding - LZMA_STREAM_HEADER_SIZE;
    if (lzma_stream_footer_decode(&flags, footer) != LZMA_OK) return NULL;
    if ((int64_t)flags.backward_size > at || flags.backward_size > LIST_MEMORY) return NULL;
    uint8_t *bytes = malloc(flags.backward_size);
    size_t used = 0;
    at -= (int64_t)flags.backward_size;
    if (bytes && file_read_at(fd, bytes, flags.backward_size, at) &&
        lzma_index_buffer_decode(&list, &memory, NULL, bytes, &used, flags.backward_size) !=
            LZMA_OK)
        list = NULL;
    free(bytes);
    if (!list) return NULL;
    int64_t begin = *end - padding - (int64_t)lzma_index_stream_size(list);
    if (begin < 0 || lzma_index_stream_flags(list, &flags) != LZMA_OK ||
        lzma_index_stream_padding(list, (lzma_vli)padding) != LZMA_OK) {
        lzma_index_end(list, NULL);
        return NULL;
    }
    *end = begin;
    return list;
}

/* The list of the blocks of all streams of a file; NULL where it cannot be read. */
static lzma_index *file_list(int fd, int64_t bytes)
{
    lzma_index *all = NULL;
    while (bytes > 0) {
        lzma_index *one = stream_list(fd, &bytes);
        if (!one || (all && lzma_index_cat(one, all, NULL) != LZMA_OK)) {
            lzma_index_end(one, NULL);
            lzma_index_end(all, NULL);
            return NULL;
        }
        all = one;
    }
    return all;
}

static enum heed_status xz_find(struct blocks *b, int64_t bytes, bool *fit, struct heed_error *err)
{
    lzma_index_iter at;
    enum heed_status st = HEED_OK;
    lzma_index *list = file_list(b->fd, bytes);
    *fit = list != NULL;
    if (!list) return HEED_OK;
    lzma_index_iter_init(&at, list);
    while (!st && *fit && !lzma_index_iter_next(&at, LZMA_INDEX_ITER_NONEMPTY_BLOCK)) {
        uint64_t n = at.block.total_size;
        struct place p = {.at = (int64_t)at.block.compressed_file_offset,
                          .n = n <= PACKED_MAX ? (uint32_t)n : PACKED_MAX + 1,
                          .check = (uint32_t)at.stream.flags->check};
        st = place_add(b, p, at.block.uncompressed_size, fit, err);
    }
    lzma_index_end(list, NULL);
    return st;
}

static bool xz_decode(const struct place *p, const uint8_t *in, char *out, size_t n)
{
    lzma_filter filter[LZMA_FILTERS_MAX + 1];
    lzma_block block = {.version = 1, .check = (lzma_check)p->check, .filters = filter};
    size_t in_at, out_at = 0;
    block.header_size = lzma_block_header_size_decode(in[0]);
    if (in[0] == 0 || block.header_size > p->n) return false;
    if (lzma_block_header_decode(&block, NULL, in) != LZMA_OK) return false;
    in_at = block.header_size;
    bool good = lzma_raw_decoder_memusage(filter) <= XZ_MEMORY &&
                lzma_block_buffer_decode(&block, NULL, in, &in_at, p->n, (uint8_t *)out, &out_at,
                                         n) == LZMA_OK &&
                out_at == n;
    for (int i = 0; filter[i].id != LZMA_VLI_UNKNOWN; i++) free(filter[i].options);
    return good;
}

/* ---- bgzip ---- */

enum { HEADER = 12, HEADER_MAX = 64, TAIL = 4 };

static uint32_t number_at(const unsigned char *p, int bytes)
{
    uint32_t x = 0;
    for (int i = 0; i < bytes; i++) x |= (uint32_t)p[i] << (8 * i);
    return x;
}

/* The size of the member whose header begins at h[0..n), from its field BC; 0 where there is none.
 */
static uint32_t member_size(const unsigned char *h, size_t n)
{
    const unsigned char extra = 4; /* the flag of a header with fields */
    if (n < HEADER || memcmp(h, "\x1f\x8b\x08", 3) != 0 || h[3] != extra) return 0;
    size_t end = HEADER + number_at(h + 10, 2);
    if (end > n) return 0;
    for (size_t at = HEADER; at + 4 <= end; at += 4 + number_at(h + at + 2, 2))
        if (h[at] == 'B' && h[at + 1] == 'C' && number_at(h + at + 2, 2) == 2 && at + 6 <= end)
            return number_at(h + at + 4, 2) + 1;
    return 0;
}

static enum heed_status bgzip_find(struct blocks *b, int64_t bytes, bool *fit,
                                   struct heed_error *err)
{
    unsigned char h[HEADER_MAX], tail[TAIL];
    enum heed_status st = HEED_OK;
    *fit = true;
    for (int64_t at = 0; at < bytes && *fit && !st;) {
        size_t n = bytes - at < HEADER_MAX ? (size_t)(bytes - at) : HEADER_MAX;
        uint32_t size = file_read_at(b->fd, h, n, at) ? member_size(h, n) : 0;
        *fit = size > HEADER + TAIL && size <= bytes - at &&
               file_read_at(b->fd, tail, TAIL, at + size - TAIL);
        if (*fit)
            st = place_add(b, (struct place){.at = at, .n = size}, number_at(tail, 4), fit, err);
        at += size;
    }
    return st;
}

static bool gzip_decode(const struct place *p, uint8_t *in, char *out, size_t n)
{
    z_stream z = {
        .next_in = in, .avail_in = p->n, .next_out = (uint8_t *)out, .avail_out = (uInt)n};
    if (inflateInit2(&z, 15 + 16) != Z_OK) return false;
    int end = inflate(&z, Z_FINISH);
    bool good = end == Z_STREAM_END && z.avail_out == 0 && z.avail_in == 0;
    inflateEnd(&z);
    return good;
}

/* ---- both ---- */

enum heed_status blocks_open(struct blocks **out, int fd, const char *path, struct heed_error *err)
{
    struct stat info;
    unsigned char first = 0;
    bool fit = false;
    struct blocks *b = calloc(1, sizeof *b);
    if (!b) return error_memory(err, sizeof *b, "the blocks of a file");
    b->path = path;
    b->fd = fd;
    enum heed_status st = HEED_OK;
    if (fstat(fd, &info) != 0) st = error_errno(err, "cannot read %s", path);
    b->xz = !st && file_read_at(fd, &first, 1, 0) && first == 0xfd;
    if (!st && b->xz) st = xz_find(b, info.st_size, &fit, err);
    if (!st && !b->xz) st = bgzip_find(b, info.st_size, &fit, err);
    if (st || !fit || b->n == 0) {
        blocks_free(b);
        b = NULL;
    }
    if (!st) *out = b;
    return st;
}

void blocks_free(struct blocks *b)
{
    if (!b) return;
    free(b->place);
    free(b);
}

int64_t blocks_bytes(const struct blocks *b)
{
    return b->place[b->n].text;
}

long blocks_find(const struct blocks *b, int64_t at)
{
    size_t low = 0, high = b->n; /* place[low].text <= at < place[high].text */
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (b->place[middle].text <= at)
            low = middle;
        else
            high = middle;
    }
    return (long)low;
}

int64_t blocks_begin(const struct blocks *b, long i)
{
    return b->place[i].text;
}

size_t blocks_length(const struct blocks *b, long i)
{
    return (size_t)(b->place[i + 1].text - b->place[i].text);
}

void blocks_place(const struct blocks *b, long i, int64_t *at, size_t *n)
{
    *at = b->place[i].at;
    *n = b->place[i].n;
}

enum heed_status blocks_decode(const struct blocks *b, long i, char *out, struct heed_error *err)
{
    const struct place *p = &b->place[i];
    uint8_t *in = malloc(p->n);
    if (!in) return error_memory(err, p->n, "a block of compressed text");
    bool good = file_read_at(b->fd, in, p->n, p->at);
    size_t n = blocks_length(b, i);
    good = good && (b->xz ? xz_decode(p, in, out, n) : gzip_decode(p, in, out, n));
    free(in);
    if (good) return HEED_OK;
    return error_set(err, HEED_EFORMAT,
                     "%s is corrupt: block %ld of its %s data, at byte %lld, cannot be decoded",
                     b->path, i + 1, b->xz ? "xz" : "gzip", (long long)p->at);
}
