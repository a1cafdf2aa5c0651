/*
 * fuzz_input.c - libFuzzer entry: any bytes as a file of text, plain, gzip or xz.
 *
 * The first byte says how the others become a file: as they are, or compressed. As they are, they
 * are either read to the end or refused with a sentence. Where the text is known, because the file
 * is plain or was compressed here, its lines are compared with those that a plain loop finds,
 * unless it is refused for what it looks like: UTF-16, another compression, no line feeds.
 */
#include "corpus/input.h"
#include "fuzz.h"

#include <lzma.h>
#include <zlib.h>

enum { AS_IT_IS, GZIP_OF, XZ_OF, WAYS };

static size_t gzip_of(const uint8_t *data, size_t size, uint8_t *out, size_t cap)
{
    z_stream z = {0};
    if (deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) abort();
    z.next_in = (uint8_t *)data;
    z.avail_in = (uInt)size;
    z.next_out = out;
    z.avail_out = (uInt)cap;
    if (deflate(&z, Z_FINISH) != Z_STREAM_END) abort();
    deflateEnd(&z);
    return z.total_out;
}

static size_t xz_of(const uint8_t *data, size_t size, uint8_t *out, size_t cap, lzma_check check)
{
    size_t n = 0;
    if (lzma_easy_buffer_encode(0, check, NULL, data, size, out, &n, cap) != LZMA_OK) abort();
    return n;
}

static void seed_as_it_is(const char *name, const uint8_t *data, size_t size)
{
    uint8_t seed[4096] = {AS_IT_IS};
    memcpy(seed + 1, data, size);
    fuzz_seed(name, seed, size + 1);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char text[] = "\xef\xbb\xbfone\r\ntwo\n\n\rthree\twith a tab\r\r\nfour\0, no end";
    static const char *const words[] = {"\xef\xbb\xbf",
                                        "\r\n",
                                        "\n",
                                        "\x1f\x8b\x08",
                                        "\xfd"
                                        "7zXZ",
                                        NULL};
    uint8_t file[2048];
    const uint8_t *bytes = (const uint8_t *)text;
    if (!fuzz_begin(argc, argv, words)) return 0;
    seed_as_it_is("plain", bytes, sizeof text);
    size_t n = gzip_of(bytes, sizeof text, file, sizeof file);
    seed_as_it_is("gzip", file, n);
    memcpy(file + n, file, n); /* two members, and zeros behind them, which are padding */
    memset(file + 2 * n, 0, 16);
    seed_as_it_is("members", file, 2 * n + 16);
    n = xz_of(bytes, sizeof text, file, sizeof file, LZMA_CHECK_CRC32);
    seed_as_it_is("xz", file, n);
    n = xz_of(bytes, sizeof text, file, sizeof file, LZMA_CHECK_NONE);
    memcpy(file + n, file, n);
    seed_as_it_is("streams", file, 2 * n);
    for (uint8_t way = 1; way < WAYS; way++) {
        file[0] = way;
        memcpy(file + 1, text, sizeof text);
        fuzz_seed(way == GZIP_OF ? "gzip-of" : "xz-of", file, 1 + sizeof text);
    }
    return 0;
}

/* The next line of a text by the rules of input.h; NULL at its end. */
static const char *line_of(const char **text, size_t *left, bool first, size_t *len)
{
    if (*left == 0) return NULL;
    const char *line = *text, *end = memchr(line, '\n', *left);
    size_t used = end ? (size_t)(end - line) + 1 : *left;
    *len = end ? used - 1 : used;
    if (*len > 0 && line[*len - 1] == '\r') --*len;
    *text += used;
    *left -= used;
    if (first && *len >= 3 && !memcmp(line, "\xef\xbb\xbf", 3)) {
        *len -= 3;
        return line + 3;
    }
    return line;
}

/* text: what the file is known to hold, or NULL. */
static void read_lines(struct heed_lines *in, const char *text, size_t left)
{
    struct heed_error err = {0};
    unsigned sum = 0;
    for (int i = 0;; i++) {
        const char *line, *want;
        size_t len, want_len = 0;
        enum heed_status st = input_line(in, &line, &len, &err);
        if (st) {
            must_explain(st, &err);
            must(!text, "a known text is read to its end");
            return;
        }
        must(len <= INPUT_LINE_MAX, "a line is not too long");
        for (size_t k = 0; line && k < len; k++) sum += (unsigned char)line[k];
        if (text) {
            want = line_of(&text, &left, i == 0, &want_len);
            must(!line == !want, "the file ends where its text ends");
            must(!line || (len == want_len && !memcmp(line, want, len)), "a line is as it was");
        }
        if (!line) break;
    }
    volatile unsigned keep = sum;
    (void)keep;
}

static bool compressed(const uint8_t *data, size_t size)
{
    return (size >= 2 && data[0] == 0x1f && data[1] == 0x8b) || (size >= 6 && !memcmp(data,
                                                                                      "\xfd"
                                                                                      "7zXZ",
                                                                                      6));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fuzz_file file;
    static uint8_t packed[1 << 21];
    if (size < 1 || size > 1 << 20) return 0;
    int way = *data++ % WAYS;
    const char *path, *text = compressed(data, --size) && way == AS_IT_IS ? NULL : (char *)data;
    size_t n = 0;
    if (way == GZIP_OF) n = gzip_of(data, size, packed, sizeof packed);
    if (way == XZ_OF) n = xz_of(data, size, packed, sizeof packed, LZMA_CHECK_CRC64);
    path = fuzz_file_put(&file, n ? packed : data, n ? n : size);

    struct heed_error err = {0};
    struct heed_lines *in = NULL;
    int next = fuzz_next_fd();
    enum heed_status st = input_open(&in, path, &err);
    if (st) {
        must_explain(st, &err);
        must(!in, "a failure leaves the result alone");
        must(!text || strstr(err.text, "expected"), "a known text is refused for its form alone");
    } else {
        read_lines(in, text, size);
    }
    input_free(in);
    must(fuzz_next_fd() == next, "no file is left open");
    return 0;
}
