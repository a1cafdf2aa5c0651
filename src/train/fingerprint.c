/*
 * fingerprint.c - size and checksum of files; see fingerprint.h.
 */
#include "train/fingerprint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/locale.h"
#include "store/crc.h"

/* A file of up to SAMPLES * SAMPLE bytes is read whole. Of a larger file SAMPLES pieces of SAMPLE
 * bytes are read: the first, the last and others evenly between. */
enum { SAMPLES = 16, SAMPLE = 64 << 10 };

struct sum {
    uint64_t bytes;
    uint32_t crc;
};

/* Adds n bytes at offset `at` to the checksum. A file that has become shorter meanwhile gets
 * another checksum. */
static bool add_sample(struct sum *s, int fd, char *buffer, size_t n, uint64_t at)
{
    while (n) {
        ssize_t got = pread(fd, buffer, n, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return false;
        if (got == 0) break;
        s->crc = crc_add(s->crc, buffer, (size_t)got);
        n -= (size_t)got;
        at += (uint64_t)got;
    }
    return true;
}

/* Adds the size and the samples of a file. The size is part of the checksum, so that bytes that
 * move from one file of a corpus to the next change it. */
static bool add_content(struct sum *s, int fd, char *buffer, uint64_t size)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(size >> (8 * i));
    s->crc = crc_add(s->crc, bytes, sizeof bytes);
    s->bytes += size;
    bool whole = size <= (uint64_t)SAMPLES * SAMPLE, good = true;
    for (int i = 0; i < SAMPLES && good; i++) {
        uint64_t at = whole ? (uint64_t)i * SAMPLE : (size - SAMPLE) / (SAMPLES - 1) * (uint64_t)i;
        if (at >= size) break;
        if (i == SAMPLES - 1 && !whole) at = size - SAMPLE;
        good = add_sample(s, fd, buffer, size - at < SAMPLE ? (size_t)(size - at) : SAMPLE, at);
    }
    return good;
}

static enum heed_status add_file(struct sum *s, const char *path, struct heed_error *err)
{
    struct stat info;
    int fd;
    enum heed_status st = file_open(path, &fd, err);
    if (st) return st;
    char *buffer = malloc(SAMPLE);
    if (!buffer)
        st = error_memory(err, SAMPLE, path);
    else if (fstat(fd, &info) != 0 || !add_content(s, fd, buffer, (uint64_t)info.st_size))
        st = error_errno(err, "cannot read %s", path);
    close(fd);
    free(buffer);
    return st;
}

enum heed_status fingerprint_file(char out[FINGERPRINT_MAX], const char *path,
                                  struct heed_error *err)
{
    struct sum s = {0};
    enum heed_status st = add_file(&s, path, err);
    if (st) return st;
    snprintf(out, FINGERPRINT_MAX, "%" PRIu64 " bytes, crc32 %08" PRIx32, s.bytes, s.crc);
    return HEED_OK;
}

enum heed_status fingerprint_corpus(char out[FINGERPRINT_MAX], const struct heed_corpus *c,
                                    struct heed_error *err)
{
    struct sum s = {0};
    enum heed_status st = HEED_OK;
    for (int i = 0; i < c->n && !st; i++) {
        st = add_file(&s, c->src[i], err);
        if (!st && c->tgt) st = add_file(&s, c->tgt[i], err);
    }
    if (st) return st;
    int files = c->tgt ? 2 * c->n : c->n;
    out[0] = '\0';
    if (files)
        snprintf(out, FINGERPRINT_MAX, "%d file%s, %" PRIu64 " bytes, crc32 %08" PRIx32, files,
                 files > 1 ? "s" : "", s.bytes, s.crc);
    return HEED_OK;
}

static void mix_format(char out[FINGERPRINT_MAX], const struct heed_corpus *c)
{
    char number[32];
    uint32_t crc = 0;
    size_t len = 0;
    bool equal = true, fits = true;
    snprintf(out, FINGERPRINT_MAX, "temperature %.10g", c->temperature);
    if (c->temperature != 0) return;
    for (int i = 0; c->weight && i < c->n; i++) {
        int n = snprintf(number, sizeof number, "%s%.10g", i ? " " : "", c->weight[i]);
        crc = crc_add(crc, number, (size_t)n);
        equal = equal && c->weight[i] == 1;
        fits = fits && len + (size_t)n < FINGERPRINT_MAX;
        if (fits) memcpy(out + len, number, (size_t)n + 1);
        len += (size_t)n;
    }
    if (equal)
        snprintf(out, FINGERPRINT_MAX, FINGERPRINT_EQUAL);
    else if (!fits)
        snprintf(out, FINGERPRINT_MAX, "%d weights, crc32 %08" PRIx32, c->n, crc);
}

void fingerprint_mix(char out[FINGERPRINT_MAX], const struct heed_corpus *c)
{
    struct c_locale locale = c_locale_enter();
    mix_format(out, c);
    c_locale_leave(locale);
}
