/*
 * safetensors.c - named tensors in a file, in the format Hugging Face reads and writes.
 *
 *     8 bytes    length of the header, little-endian
 *     header     JSON: "name": {"dtype", "shape", "data_offsets": [begin, end)}, and
 *                "__metadata__", a map of strings; padded with spaces
 *     data       the tensors end to end, offsets counted from its first byte
 *
 * Weights and optimizer state live in such files. A file is read in this order: map it, check the
 * header against the file, check the tensors against each other, check the CRC, copy tensors that
 * are not aligned. Only then does a caller see a pointer. The mapping is read-only and private.
 * Nobody may write to a mapped file or shorten it; file_write does neither, it replaces the file.
 */
#include "store/safetensors.h"

#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/file.h"
#include "store/crc.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the data section is little-endian");

enum {
    LENGTH_BYTES = 8,
    HEADER_MOST = 100000000, /* the limit of the reference implementation */
    DATA_ALIGN = 64,
    CRC_BYTES = 4 << 20,    /* size of the blocks in which the CRC is computed */
    CACHE_LIMIT = 64 << 20, /* files up to this size stay in memory once they are read; of larger
                             * ones, the pages that were used are dropped */
};

static const char *const DTYPE[] = {
    [TYPE_F32] = "F32",
    [TYPE_BF16] = "BF16",
    [TYPE_F64] = "F64",
    [TYPE_I8] = "I8",
};

enum { DTYPES = sizeof DTYPE / sizeof *DTYPE };

const char *tensor_dtype(enum type type)
{
    assert((int)type < DTYPES);
    return DTYPE[type];
}

static const char METADATA[] = "__metadata__";

/* ---- writing ---- */

static json_t *entry_make(const struct tensor *t, size_t begin)
{
    json_t *shape = json_array();
    for (int i = 0; i < t->dims; i++)
        if (json_array_append_new(shape, json_integer(t->shape[i])) != 0) {
            json_decref(shape);
            return NULL;
        }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", DTYPE[t->type], "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)(begin + t->bytes));
}

/* The header as JSON, or NULL when out of memory. */
static json_t *header_make(const struct tensor *t, int n)
{
    uint32_t crc = 0;
    for (int i = 0; i < n; i++) crc = crc_add(crc, t[i].data, t[i].bytes);
    char digits[9];
    snprintf(digits, sizeof digits, "%08" PRIx32, crc);

    json_t *header = json_pack("{s:{s:s, s:s}}", METADATA, "format", "heed", "crc32", digits);
    size_t begin = 0;
    for (int i = 0; header && i < n; i++) {
        assert(!json_object_get(header, t[i].name));
        if (json_object_set_new(header, t[i].name, entry_make(&t[i], begin)) != 0) {
            json_decref(header);
            return NULL;
        }
        begin += t[i].bytes;
    }
    return header;
}

/* The bytes of the file before the data, malloced: the length, and the header padded with spaces so
 * that the data begins at a multiple of DATA_ALIGN. NULL when out of memory. */
static char *header_format(const struct tensor *t, int n, size_t *len)
{
    json_t *header = header_make(t, n);
    size_t text = header ? json_dumpb(header, NULL, 0, JSON_COMPACT) : 0;
    size_t total = (LENGTH_BYTES + text + DATA_ALIGN - 1) / DATA_ALIGN * DATA_ALIGN;
    char *out = text ? malloc(total) : NULL;
    if (out) {
        memset(out, ' ', total);
        for (int i = 0; i < LENGTH_BYTES; i++)
            out[i] = (char)((uint64_t)(total - LENGTH_BYTES) >> (8 * i));
        *len = total;
        if (json_dumpb(header, out + LENGTH_BYTES, text, JSON_COMPACT) != text) {
            free(out);
            out = NULL;
        }
    }
    json_decref(header);
    return out;
}

enum heed_status safetensors_write(const char *path, const struct tensor *t, int n,
                                   struct heed_error *err)
{
    for (int i = 0; i < n; i++) {
        assert(t[i].dims == 1 || t[i].dims == 2);
        assert(t[i].bytes == (size_t)t[i].shape[0] * (t[i].dims == 2 ? (size_t)t[i].shape[1] : 1) *
                                 type_size(t[i].type));
    }
    size_t len = 0;
    size_t parts = (size_t)n + 1;
    char *header = header_format(t, n, &len);
    struct file_part *part = malloc(parts * sizeof *part);
    enum heed_status st;
    if (header && part) {
        part[0] = (struct file_part){header, len};
        for (int i = 0; i < n; i++) part[i + 1] = (struct file_part){t[i].data, t[i].bytes};
        st = file_write(path, part, n + 1, err);
    } else {
        st = error_memory(err, parts * sizeof *part, path);
    }
    free(part);
    free(header);
    return st;
}

/* ---- reading ---- */

struct safetensors {
    char *map; /* the whole file */
    size_t map_len;
    const char *data; /* the data section, in map */
    size_t data_len;
    json_t *header; /* owns the names */
    int n;
    struct tensor *tensor;         /* [n] in the order of the data */
    const struct tensor **by_name; /* [n] the same, sorted by name */
    void *copy; /* of the tensors that are not aligned in the file; NULL: there are none */
};

static enum heed_status map_file(struct safetensors *s, const char *path, struct heed_error *err)
{
    int fd;
    enum heed_status st = file_open(path, &fd, err);
    if (st) return st;
    struct stat info;
    if (fstat(fd, &info) != 0) {
        st = error_errno(err, "cannot read %s", path);
    } else if (info.st_size < LENGTH_BYTES) {
        st = error_set(err, HEED_EFORMAT,
                       "%s is not a safetensors file: it has %jd bytes, expected at least %d", path,
                       (intmax_t)info.st_size, LENGTH_BYTES);
    } else {
        void *map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED) {
            st = error_errno(err, "cannot map %s (%jd bytes)", path, (intmax_t)info.st_size);
        } else {
            s->map = map;
            s->map_len = (size_t)info.st_size;
        }
    }
    close(fd);
    return st;
}

/* Finds the header and the data in the map and parses the header. */
static enum heed_status parse_header(struct safetensors *s, const char *path,
                                     struct heed_error *err)
{
    uint64_t len = 0;
    for (int i = 0; i < LENGTH_BYTES; i++) len |= (uint64_t)(unsigned char)s->map[i] << (8 * i);
    size_t room = s->map_len - LENGTH_BYTES;
    if (len > HEADER_MOST || len > room)
        return error_set(err, HEED_EFORMAT,
                         "%s is not a safetensors file or is cut short: header of %" PRIu64
                         " bytes, expected at most %zu",
                         path, len, room < HEADER_MOST ? room : (size_t)HEADER_MOST);
    const char *text = s->map + LENGTH_BYTES;
    if (len == 0 || text[0] != '{')
        return error_set(err, HEED_EFORMAT,
                         "%s is not a safetensors file: its header is not a JSON object", path);
    s->data = text + len;
    s->data_len = room - (size_t)len;

    json_error_t why;
    s->header = json_loadb(text, (size_t)len, JSON_REJECT_DUPLICATES, &why);
    if (!s->header && !why.text[0]) return error_memory(err, (size_t)len, path);
    if (!s->header)
        return error_set(err, HEED_EFORMAT, "%s: the header is not valid JSON at byte %d: %s", path,
                         why.position, why.text);
    return HEED_OK;
}

static enum heed_status parse_type(struct tensor *t, const json_t *dtype, const char *path,
                                   struct heed_error *err)
{
    const char *found = json_string_value(dtype);
    for (int i = 0; found && i < DTYPES; i++)
        if (strcmp(found, DTYPE[i]) == 0) {
            t->type = (enum type)i;
            return HEED_OK;
        }
    return error_set(err, HEED_EFORMAT,
                     "%s: the dtype of tensor %.80s is %.40s, expected F32, BF16, F64 or I8", path,
                     t->name, found ? found : "missing or not a string");
}

/* Sets t->dims, t->shape and t->bytes. */
static enum heed_status parse_shape(struct tensor *t, const json_t *shape, const char *path,
                                    struct heed_error *err)
{
    size_t dims = json_array_size(shape); /* 0 when it is no array */
    if (dims < 1 || dims > 2)
        return error_set(err, HEED_EFORMAT,
                         "%s: tensor %.80s has a shape of %zu dimensions, expected 1 or 2", path,
                         t->name, dims);
    t->dims = (int)dims;
    t->bytes = type_size(t->type);
    for (size_t i = 0; i < dims; i++) {
        const json_t *dim = json_array_get(shape, i);
        t->shape[i] = json_is_integer(dim) ? json_integer_value(dim) : -1;
        if (t->shape[i] < 0)
            return error_set(err, HEED_EFORMAT,
                             "%s: dimension %zu of tensor %.80s is not a whole number of 0 or more",
                             path, i, t->name);
        if (__builtin_mul_overflow(t->bytes, (size_t)t->shape[i], &t->bytes))
            return error_set(err, HEED_EFORMAT,
                             "%s: tensor %.80s has a shape too large for any file", path, t->name);
    }
    return HEED_OK;
}

/* Sets t->data to where the tensor lies in the map. */
static enum heed_status parse_offsets(struct tensor *t, const json_t *pair,
                                      const struct safetensors *s, const char *path,
                                      struct heed_error *err)
{
    const json_t *first = json_array_get(pair, 0), *last = json_array_get(pair, 1);
    if (json_array_size(pair) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return error_set(err, HEED_EFORMAT,
                         "%s: data_offsets of tensor %.80s are not a pair of whole numbers", path,
                         t->name);
    json_int_t begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || begin > end || (uint64_t)end > s->data_len)
        return error_set(err, HEED_EFORMAT,
                         "%s: tensor %.80s lies at bytes %lld to %lld of the data, expected within "
                         "0 to %zu; the file may be cut short",
                         path, t->name, (long long)begin, (long long)end, s->data_len);
    if ((uint64_t)(end - begin) != t->bytes)
        return error_set(err, HEED_EFORMAT,
                         "%s: tensor %.80s has %lld bytes, expected %zu by its shape and dtype",
                         path, t->name, (long long)(end - begin), t->bytes);
    t->data = s->data + begin;
    return HEED_OK;
}

static enum heed_status parse_tensors(struct safetensors *s, const char *path,
                                      struct heed_error *err)
{
    size_t most = json_object_size(s->header) + 1; /* calloc of 0 may return NULL */
    s->tensor = calloc(most, sizeof *s->tensor);
    if (!s->tensor) return error_memory(err, most * sizeof *s->tensor, path);
    const char *name;
    json_t *entry;
    json_object_foreach (s->header, name, entry) {
        if (strcmp(name, METADATA) == 0) continue;
        struct tensor *t = &s->tensor[s->n++];
        t->name = name;
        if (!json_is_object(entry))
            return error_set(err, HEED_EFORMAT, "%s: tensor %.80s is not a JSON object", path,
                             name);
        enum heed_status st = parse_type(t, json_object_get(entry, "dtype"), path, err);
        if (!st) st = parse_shape(t, json_object_get(entry, "shape"), path, err);
        if (!st) st = parse_offsets(t, json_object_get(entry, "data_offsets"), s, path, err);
        if (st) return st;
    }
    return HEED_OK;
}

/* Compares two tensors by their place in the file. An empty tensor comes before the one that begins
 * at the same byte. */
static int by_place(const void *a, const void *b)
{
    const struct tensor *x = a, *y = b;
    if (x->data != y->data) return (const char *)x->data < (const char *)y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Checks that the tensors cover the data from its first byte to the end of the file, each byte
 * once. */
static enum heed_status check_cover(struct safetensors *s, const char *path, struct heed_error *err)
{
    qsort(s->tensor, (size_t)s->n, sizeof *s->tensor, by_place);
    size_t at = 0;
    for (int i = 0; i < s->n; i++) {
        const struct tensor *t = &s->tensor[i];
        size_t begin = (size_t)((const char *)t->data - s->data);
        if (begin != at)
            return error_set(err, HEED_EFORMAT,
                             "%s: tensor %.80s %s: it begins at byte %zu of the data, expected %zu",
                             path, t->name,
                             begin < at ? "overlaps the one before" : "leaves a hole before it",
                             begin, at);
        at += t->bytes;
    }
    if (at != s->data_len)
        return error_set(err, HEED_EFORMAT, "%s: %zu bytes of data, expected %zu by its header",
                         path, s->data_len, at);
    return HEED_OK;
}

/* Drops the whole pages within these bytes of the mapped file from memory; reading them again is
 * allowed and loads them from the file. */
static void drop_pages(const struct safetensors *s, const char *data, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const char *map = s->map;
    if (data < map || data >= map + s->map_len) return;
    size_t first = ((size_t)(data - map) + page - 1) / page * page;
    size_t end = (size_t)(data - map) + bytes;
    if (end < s->map_len) end = end / page * page;
    if (first < end) (void)madvise((char *)s->map + first, end - first, MADV_DONTNEED);
}

void safetensors_drop(const struct safetensors *s, const struct tensor *t)
{
    drop_pages(s, t->data, t->bytes);
}

/* Checks that __metadata__ is a map of strings, and the CRC of the data where there is one: files
 * written by other programs have none. */
static enum heed_status check_metadata(const struct safetensors *s, const char *path,
                                       struct heed_error *err)
{
    json_t *metadata = json_object_get(s->header, METADATA);
    if (!metadata) return HEED_OK;
    if (!json_is_object(metadata))
        return error_set(err, HEED_EFORMAT, "%s: %s is not a JSON object", path, METADATA);
    const char *key;
    json_t *value;
    json_object_foreach (metadata, key, value) {
        if (!json_is_string(value))
            return error_set(err, HEED_EFORMAT, "%s: \"%.80s\" of %s is not a string", path, key,
                             METADATA);
    }

    const char *digits = json_string_value(json_object_get(metadata, "crc32"));
    if (!digits) return HEED_OK;
    if (strlen(digits) != 8 || strspn(digits, "0123456789abcdefABCDEF") != 8)
        return error_set(err, HEED_EFORMAT,
                         "%s: \"crc32\" of %s is \"%.80s\", expected 8 hexadecimal digits", path,
                         METADATA, digits);
    uint32_t crc = 0;
    for (size_t at = 0, n; at < s->data_len; at += n) {
        n = s->data_len - at < CRC_BYTES ? s->data_len - at : CRC_BYTES;
        crc = crc_add(crc, s->data + at, n);
        if (s->map_len > CACHE_LIMIT) drop_pages(s, s->data + at, n);
    }
    if (crc != strtoul(digits, NULL, 16))
        return error_set(err, HEED_EFORMAT,
                         "%s is damaged: the CRC-32 of its data is %08" PRIx32 ", expected %s",
                         path, crc, digits);
    return HEED_OK;
}

/* I8 tensors may be panels, which kernels read by cache lines. */
static size_t alignment(enum type type)
{
    return type == TYPE_I8 ? DATA_ALIGN : type_size(type);
}

/* Copies every tensor that is not aligned into the arena. Other programs write headers of any
 * length, and an odd number of BF16 elements may precede an F32. */
static void place_unaligned(struct safetensors *s, struct arena *a)
{
    for (int i = 0; i < s->n; i++) {
        struct tensor *t = &s->tensor[i];
        if (t->bytes == 0 || (uintptr_t)t->data % alignment(t->type) == 0) continue;
        void *to = arena_take(a, t->bytes);
        if (!to) continue;
        memcpy(to, t->data, t->bytes);
        t->data = to;
    }
}

static enum heed_status copy_unaligned(struct safetensors *s, const char *path,
                                       struct heed_error *err)
{
    struct arena a = {0};
    place_unaligned(s, &a);
    if (a.used == 0) return HEED_OK;
    s->copy = aligned_alloc(DATA_ALIGN, a.used);
    if (!s->copy) return error_memory(err, a.used, path);
    a = (struct arena){.base = s->copy, .host = true};
    place_unaligned(s, &a);
    return HEED_OK;
}

static int compare_names(const void *a, const void *b)
{
    const struct tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static enum heed_status sort_names(struct safetensors *s, const char *path, struct heed_error *err)
{
    size_t bytes = ((size_t)s->n + 1) * sizeof *s->by_name; /* malloc of 0 may return NULL */
    s->by_name = malloc(bytes);
    if (!s->by_name) return error_memory(err, bytes, path);
    for (int i = 0; i < s->n; i++) s->by_name[i] = &s->tensor[i];
    qsort(s->by_name, (size_t)s->n, sizeof *s->by_name, compare_names);
    return HEED_OK;
}

enum heed_status safetensors_open(struct safetensors **out, const char *path,
                                  struct heed_error *err)
{
    struct safetensors *s = calloc(1, sizeof *s);
    if (!s) return error_memory(err, sizeof *s, path);
    enum heed_status st = map_file(s, path, err);
    if (!st) st = parse_header(s, path, err);
    if (!st) st = parse_tensors(s, path, err);
    if (!st) st = check_cover(s, path, err);
    if (!st) st = check_metadata(s, path, err);
    if (!st) st = copy_unaligned(s, path, err);
    if (!st) st = sort_names(s, path, err);
    if (st) {
        safetensors_free(s);
        return st;
    }
    *out = s;
    return HEED_OK;
}

int safetensors_count(const struct safetensors *s)
{
    return s->n;
}

const struct tensor *safetensors_at(const struct safetensors *s, int i)
{
    assert(i >= 0 && i < s->n);
    return &s->tensor[i];
}

const struct tensor *safetensors_find(const struct safetensors *s, const char *name)
{
    const struct tensor key = {.name = name}, *wanted = &key;
    const struct tensor **found =
        bsearch(&wanted, s->by_name, (size_t)s->n, sizeof *s->by_name, compare_names);
    return found ? *found : NULL;
}

void safetensors_free(struct safetensors *s)
{
    if (!s) return;
    if (s->map) munmap(s->map, s->map_len);
    json_decref(s->header);
    free(s->by_name);
    free(s->tensor);
    free(s->copy);
    free(s);
}
