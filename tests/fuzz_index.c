/*
 * fuzz_index.c - libFuzzer entry: any bytes as the index of a text, and as a compressed file that
 * is read block by block.
 *
 * The first byte says which. An index is made again unless it is right, so every pair of the text
 * is found whatever the bytes are. A compressed file is read to its end or refused with a sentence.
 */
#include "corpus/files.h"
#include "fuzz.h"

#include <lzma.h>

enum { AS_INDEX, AS_TEXT, WAYS };

static const char text[] = "one\teins\ntwo\tzwei\r\n\nthree\tdrei";
static const char *const source[] = {"one", "two", "", "three"};
enum { LINES = 4 };

static char folder[] = "/tmp/heed-fuzz-index-XXXXXX";
static char file_text[64], file_index[96], dir_index[64];

static void remove_all(void)
{
    unlink(file_text);
    unlink(file_index);
    rmdir(dir_index);
    rmdir(folder);
}

static void seed_with(const char *name, int way, const void *data, size_t size)
{
    uint8_t seed[4096] = {(uint8_t)way};
    memcpy(seed + 1, data, size);
    fuzz_seed(name, seed, size + 1);
}

static void seed_xz(void)
{
    enum { BLOCK = 10 };
    uint8_t out[2048];
    lzma_options_lzma lzma;
    if (lzma_lzma_preset(&lzma, 0)) abort();
    lzma_filter filter[] = {{LZMA_FILTER_LZMA2, &lzma}, {LZMA_VLI_UNKNOWN, NULL}};
    lzma_stream x = LZMA_STREAM_INIT;
    if (lzma_stream_encoder(&x, filter, LZMA_CHECK_CRC32) != LZMA_OK) abort();
    x.next_out = out;
    x.avail_out = sizeof out;
    for (size_t at = 0; at < sizeof text; at += BLOCK) {
        x.next_in = (const uint8_t *)text + at;
        x.avail_in = sizeof text - at < BLOCK ? sizeof text - at : BLOCK;
        if (lzma_code(&x, LZMA_FULL_FLUSH) != LZMA_STREAM_END) abort();
    }
    if (lzma_code(&x, LZMA_FINISH) != LZMA_STREAM_END) abort();
    seed_with("xz", AS_TEXT, out, x.total_out);
    lzma_end(&x);
}

static struct files *open_text(void)
{
    struct heed_error err = {0};
    const char *name = file_text;
    struct heed_corpus c = {.src = &name, .n = 1};
    struct files *f = NULL;
    if (files_open(&f, &c, dir_index, 1, NULL, &err)) must(false, err.text);
    return f;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char *const words[] = {"heedline", "\xfd\x37zXZ", "YZ", "BC\x02", NULL};
    /* a member of one letter, and the empty one that ends every file of bgzip */
    static const char member[] = "\x1f\x8b\x08\4\0\0\0\0\0\xff\6\0BC\2\0\x1c\0K\4\0C\xbe\xb7\xe8"
                                 "\1\0\0\0\x1f\x8b\x08\4\0\0\0\0\0\xff\6\0BC\2\0\x1b\0\3\0\0\0\0\0"
                                 "\0\0\0";
    char index[1024];
    if (!mkdtemp(folder)) abort();
    atexit(remove_all);
    snprintf(file_text, sizeof file_text, "%s/text", folder);
    snprintf(dir_index, sizeof dir_index, "%s/index", folder);
    snprintf(file_index, sizeof file_index, "%s/lines", dir_index);
    fuzz_write(file_text, text, sizeof text - 1);
    files_free(open_text());
    if (!fuzz_begin(argc, argv, words)) return 0;
    FILE *f = fopen(file_index, "rb");
    size_t n = f ? fread(index, 1, sizeof index, f) : 0;
    must(n > 0 && n < sizeof index, "the index is small");
    fclose(f);
    seed_with("index", AS_INDEX, index, n);
    seed_with("bgzip", AS_TEXT, member, sizeof member - 1);
    seed_xz();
    return 0;
}

static void index_try(const uint8_t *data, size_t size)
{
    struct heed_error err = {0};
    struct reader r = {0};
    fuzz_write(file_index, data, size);
    struct files *f = open_text();
    must(files_pairs(f, 0) == LINES, "the text has its lines");
    for (int64_t i = 0; i < LINES; i++) {
        struct files_place place = {0, i};
        struct pair p;
        must(!reader_begin(&r, f, &place, 1, &err) && !reader_get(&r, f, 0, &p, &err), err.text);
        must(p.src_len == strlen(source[i]) && !memcmp(p.src, source[i], p.src_len),
             "a pair is the one that was asked for");
    }
    reader_release(&r);
    files_free(f);
}

static void text_try(const char *path)
{
    static char out[4096];
    struct heed_error err = {0};
    struct text_block block = {0};
    struct text *t = NULL;
    enum heed_status st = text_open(&t, path, &err);
    if (st) must_explain(st, &err);
    for (int64_t at = 0; t && !st && at < text_bytes(t); at += (int64_t)sizeof out) {
        int64_t left = text_bytes(t) - at;
        size_t n = left < (int64_t)sizeof out ? (size_t)left : sizeof out;
        text_prefetch(t, at, n);
        if ((st = text_read(t, &block, out, at, n, &err))) must_explain(st, &err);
    }
    text_block_release(&block);
    text_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fuzz_file file;
    if (size < 1) return 0;
    const char *path = fuzz_file_put(&file, data + 1, size - 1);
    int next = fuzz_next_fd();
    if (data[0] % WAYS == AS_INDEX)
        index_try(data + 1, size - 1);
    else
        text_try(path);
    must(fuzz_next_fd() == next, "no file is left open");
    return 0;
}
