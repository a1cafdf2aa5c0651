/*
 * text_files.h - shared by the tests of text: a folder for their files, and files that are plain,
 * gzip or xz.
 */
#ifndef HEED_TESTS_TEXT_FILES_H
#define HEED_TESTS_TEXT_FILES_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <lzma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

/* The program's folder; every test file lies in it and it is removed at the end. */
static char folder[] = "/tmp/heed-text-XXXXXX";

static int folder_make(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int folder_remove(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* A path in the folder; one of eight buffers in turn. */
static const char *at(const char *name)
{
    static char path[8][128];
    static int turn;
    char *p = path[turn++ % 8];
    snprintf(p, sizeof path[0], "%s/%s", folder, name);
    return p;
}

static const char *put(const char *name, const void *data, size_t len)
{
    const char *path = at(name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
    return path;
}

static inline const char *put_text(const char *name, const char *text)
{
    return put(name, text, strlen(text));
}

/* The caller frees what these two return. */
static inline unsigned char *gzip_of(const void *data, size_t len, size_t *out_len)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    size_t cap = deflateBound(&z, len);
    unsigned char *out = malloc(cap);
    z.next_in = (unsigned char *)data;
    z.avail_in = (uInt)len;
    z.next_out = out;
    z.avail_out = (uInt)cap;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    *out_len = z.total_out;
    deflateEnd(&z);
    return out;
}

static inline unsigned char *xz_of(const void *data, size_t len, size_t *out_len)
{
    size_t cap = lzma_stream_buffer_bound(len);
    unsigned char *out = malloc(cap);
    *out_len = 0;
    assert_int_equal(
        lzma_easy_buffer_encode(1, LZMA_CHECK_CRC32, NULL, data, len, out, out_len, cap), LZMA_OK);
    return out;
}

#endif
