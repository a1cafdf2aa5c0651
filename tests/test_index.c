/*
 * test_index.c - random access to pairs gives the lines that reading from the start gives; an index
 * is used again as long as it fits its files, and made again when it does not or is damaged.
 */
#include "text_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/file.h"
#include "corpus/files.h"
#include "corpus/index.h"

/* ---- files that are cut up ---- */

/* xz of several blocks, in as many streams as asked for. */
static unsigned char *xz_blocks(const char *text, size_t len, size_t block, size_t *out_len)
{
    size_t cap = 2 * len + 4096;
    unsigned char *out = malloc(cap);
    lzma_options_lzma lzma;
    assert_false(lzma_lzma_preset(&lzma, 1));
    lzma_filter filter[] = {{LZMA_FILTER_LZMA2, &lzma}, {LZMA_VLI_UNKNOWN, NULL}};
    lzma_stream x = LZMA_STREAM_INIT;
    assert_int_equal(lzma_stream_encoder(&x, filter, LZMA_CHECK_CRC64), LZMA_OK);
    x.next_out = out;
    x.avail_out = cap;
    for (size_t at = 0; at < len; at += block) {
        x.next_in = (const uint8_t *)text + at;
        x.avail_in = len - at < block ? len - at : block;
        assert_int_equal(lzma_code(&x, LZMA_FULL_FLUSH), LZMA_STREAM_END);
    }
    assert_int_equal(lzma_code(&x, LZMA_FINISH), LZMA_STREAM_END);
    *out_len = x.total_out;
    lzma_end(&x);
    return out;
}

/* What bgzip writes: gzip members with their size in the field BC, and an empty one at the end. */
static unsigned char *bgzip_of(const char *text, size_t len, size_t block, size_t *out_len)
{
    size_t cap = 2 * len + 4096, n = 0;
    unsigned char *out = malloc(cap);
    for (size_t at = 0; at <= len; at += block) {
        size_t some = len - at < block ? len - at : block;
        unsigned char extra[6] = {'B', 'C', 2, 0, 0, 0};
        gz_header head = {.extra = extra, .extra_len = sizeof extra, .os = 255};
        z_stream z = {0};
        assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
        assert_int_equal(deflateSetHeader(&z, &head), Z_OK);
        z.next_in = (unsigned char *)text + at;
        z.avail_in = (uInt)some;
        z.next_out = out + n;
        z.avail_out = (uInt)(cap - n);
        assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
        out[n + 16] = (unsigned char)(z.total_out - 1);
        out[n + 17] = (unsigned char)((z.total_out - 1) >> 8);
        n += z.total_out;
        deflateEnd(&z);
    }
    *out_len = n;
    return out;
}

static void put_freed(const char *name, unsigned char *data, const size_t *n)
{
    put(name, data, *n);
    free(data);
}

/* ---- comparison with reading from the start ---- */

static struct files *open_files(const char *src, const char *tgt, const char *dir)
{
    struct heed_error err = {0};
    struct heed_corpus c = {.src = &src, .tgt = tgt ? &tgt : NULL, .n = 1};
    struct files *f;
    if (files_open(&f, &c, dir, 3, NULL, &err)) fail_msg("%s", err.text);
    return f;
}

static void get(struct reader *r, const struct files *f, int64_t pair, struct pair *out)
{
    struct heed_error err = {0};
    struct files_place place = {0, pair};
    if (reader_begin(r, f, &place, 1, &err) || reader_get(r, f, 0, out, &err))
        fail_msg("%s", err.text);
}

static void expect_pair(const struct pair *a, const struct pair *b)
{
    assert_int_equal(a->src_len, b->src_len);
    assert_memory_equal(a->src, b->src, a->src_len);
    assert_int_equal(a->tgt_len, b->tgt_len);
    assert_memory_equal(a->tgt, b->tgt, a->tgt_len);
}

static void expect_same_pairs(const char *src, const char *tgt)
{
    struct heed_corpus c = {.src = &src, .tgt = tgt ? &tgt : NULL, .n = 1};
    struct files *f = open_files(src, tgt, NULL);
    struct pairs *pairs;
    struct reader r = {0};
    struct pair a, b;
    int64_t n = 0;
    assert_int_equal(pairs_open(&pairs, &c, NULL), HEED_OK);
    while (!pairs_peek(pairs, &a, NULL) && a.src) {
        get(&r, f, n++, &b);
        expect_pair(&a, &b);
        pairs_take(pairs);
    }
    assert_int_equal(files_pairs(f, 0), n);
    pairs_free(pairs);
    reader_release(&r);
    files_free(f);
}

/* Lines of all kinds, with a tab each. */
static char *odd_text(size_t *len)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, len);
    fputs("\xef\xbb\xbfone\teins\r\n\n\r\ntwo\tzwei\tmore\n\xef\xbb\xbfmark\tlater\n", f);
    for (int i = 0; i < 5000; i++)
        fprintf(f, "%d %.*s\t%d\n", i, i % 90,
                "abcdefghij klmnopqrst "
                "uvwxyz abcdefghij klmnopqrst uvwxyz abcdefghij klmnopqrst uvwxyz",
                i * 7);
    for (int i = 0; i < 3000000; i++) fputc('x', f);
    fputs("\tlong\nnul \t", f);
    fwrite("\0\n", 1, 2, f);
    fputs("last\tohne Zeilenende\r", f);
    fclose(f);
    return text;
}

/* ---- the making is watched ---- */

struct seen {
    int calls;
    double part;
};

static void see(void *user, double part)
{
    struct seen *s = user;
    assert_true(part > s->part && part <= 1);
    s->part = part;
    s->calls++;
}

/* An index that is there already is loaded without a word. */
static void test_watch_is_told_how_far_the_index_is(void **state)
{
    (void)state;
    enum { LINES = 500000 }; /* more than one span */
    struct heed_error err = {0};
    struct files *f;
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    for (int i = 0; i < LINES; i++)
        fprintf(out, "%d a line of some length\tand its translation\n", i);
    fclose(out);
    put_freed("watched", (unsigned char *)text, &len);
    const char *name = at("watched");
    struct heed_corpus c = {.src = &name, .n = 1};
    for (int again = 0; again < 2; again++) {
        struct seen seen = {0};
        struct index_watch watch = {see, &seen};
        if (files_open(&f, &c, at("watched.index"), 1, &watch, &err)) fail_msg("%s", err.text);
        files_free(f);
        assert_int_equal(seen.calls > 1, !again);
        assert_true(seen.part == !again);
    }
}

static void test_random_access_gives_the_same_lines(void **state)
{
    (void)state;
    size_t len, n;
    char *text = odd_text(&len);
    put("odd", text, len);
    put_freed("odd.gz", gzip_of(text, len, &n), &n);
    put_freed("odd.xz", xz_of(text, len, &n), &n);
    put_freed("blocks.xz", xz_blocks(text, len, 10007, &n), &n);
    put_freed("large.xz", xz_blocks(text, len, 2 << 20, &n), &n);
    put_freed("odd.bgz", bgzip_of(text, len, 30011, &n), &n);
    size_t half = 0;
    unsigned char *a = xz_blocks(text, len / 2, 9999, &half);
    unsigned char *b = xz_blocks(text + len / 2, len - len / 2, 7777, &n);
    a = realloc(a, half + 8 + n);
    memset(a + half, 0, 8); /* padding between two streams */
    memcpy(a + half + 8, b, n);
    free(b);
    n += half + 8;
    put_freed("streams.xz", a, &n);
    static const char *const name[] = {"odd",      "odd.gz",  "odd.xz",    "blocks.xz",
                                       "large.xz", "odd.bgz", "streams.xz"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) expect_same_pairs(at(name[i]), NULL);
    expect_same_pairs(at("odd"), at("blocks.xz"));
    free(text);
}

/* Only what cannot be read from the middle is unpacked. */
static void test_unpacking(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool unpacked;
    } file[] = {{"odd", false},     {"odd.gz", true},   {"odd.xz", true},     {"blocks.xz", false},
                {"large.xz", true}, {"odd.bgz", false}, {"streams.xz", false}};
    for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
        files_free(open_files(at(file[i].name), NULL, at("kept")));
        assert_true(file_exists(at("kept/lines")));
        assert_int_equal(file_exists(at("kept/1.text")), file[i].unpacked);
        file_remove_dir(at("kept"), NULL);
    }
}

/* ---- an index that is there already ---- */

static int64_t changed_at(const char *path)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return info.st_ino * 1000003ll + info.st_mtim.tv_sec * 1000000000ll + info.st_mtim.tv_nsec;
}

static void test_index_is_kept(void **state)
{
    (void)state;
    static const char *const name[] = {"odd", "odd.xz"};
    for (int i = 0; i < 2; i++) {
        files_free(open_files(at(name[i]), NULL, at("kept")));
        int64_t lines = changed_at(at("kept/lines"));
        int64_t text = i ? changed_at(at("kept/1.text")) : 0;
        files_free(open_files(at(name[i]), NULL, at("kept")));
        assert_true(lines == changed_at(at("kept/lines")));
        if (i) assert_true(text == changed_at(at("kept/1.text")));
        file_remove_dir(at("kept"), NULL);
    }
}

/* Another file under the same name, and one that has the same size but another time. */
static void test_index_of_another_text_is_made_again(void **state)
{
    (void)state;
    struct reader r = {0};
    struct pair x;
    put_text("text", "a\tb\nc\td\n");
    files_free(open_files(at("text"), NULL, at("kept")));
    put_text("text", "a\tb\nc\td\ne\tf\n");
    struct files *f = open_files(at("text"), NULL, at("kept"));
    assert_int_equal(files_pairs(f, 0), 3);
    files_free(f);
    put_text("text", "a\tbbb\ne\tffff\n");
    struct timespec then[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    assert_int_equal(utimensat(AT_FDCWD, at("text"), then, 0), 0);
    files_free(open_files(at("text"), NULL, at("kept")));
    put_text("text", "aaa\tbb\ne\tfff\n"); /* as long, but its second line begins later */
    then[0].tv_sec = then[1].tv_sec = 2000;
    assert_int_equal(utimensat(AT_FDCWD, at("text"), then, 0), 0);
    f = open_files(at("text"), NULL, at("kept"));
    get(&r, f, 1, &x);
    assert_int_equal(x.tgt_len, 3);
    assert_memory_equal(x.tgt, "fff", 3);
    files_free(f);
    reader_release(&r);
    file_remove_dir(at("kept"), NULL);
}

/* Every byte of the index is changed once, and the file cut at every place: it is never trusted. */
static void test_damaged_index_is_made_again(void **state)
{
    (void)state;
    struct heed_error err = {0};
    char *good, *now;
    size_t n, len;
    put_text("text", "a\tb\nc\td\ne\tf\n");
    files_free(open_files(at("text"), NULL, at("kept")));
    assert_int_equal(file_read(at("kept/lines"), 1 << 20, &good, &n, &err), HEED_OK);
    char *bad = malloc(n + 1);
    for (size_t i = 0; i < 2 * n; i++) {
        memcpy(bad, good, n);
        if (i < n) bad[i] ^= 0x11;
        put("kept/lines", bad, i < n ? n : i - n);
        files_free(open_files(at("text"), NULL, at("kept")));
        assert_int_equal(file_read(at("kept/lines"), 1 << 20, &now, &len, &err), HEED_OK);
        assert_int_equal(len, n);
        assert_memory_equal(now, good, n);
        free(now);
    }
    put("kept/lines", good, n);
    put("kept/lines", bad, 0);
    free(good);
    free(bad);
    file_remove_dir(at("kept"), NULL);
}

/* Processes that open a directory at once: one makes the index, all read it. */
static void test_processes_at_once(void **state)
{
    (void)state;
    enum { PROCESSES = 6 };
    pid_t process[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        if ((process[i] = fork()) > 0) continue;
        struct files *f = open_files(at("odd.gz"), NULL, at("kept"));
        struct reader r = {0};
        struct pair x;
        get(&r, f, 3, &x);
        bool good = files_pairs(f, 0) == 5008 && x.tgt_len == 4 && !memcmp(x.tgt, "zwei", 4);
        reader_release(&r);
        files_free(f);
        _exit(good ? 0 : 1);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(process[i], &status, 0), process[i]);
        assert_int_equal(status, 0);
    }
    assert_false(file_exists(at("kept/lines.tmp")) || file_exists(at("kept/1.text.tmp")));
    file_remove_dir(at("kept"), NULL);
}

/* ---- errors ---- */

static void expect_error(const char *src, const char *tgt, const char *dir, const char *words)
{
    struct heed_error err = {0};
    struct heed_corpus c = {.src = &src, .tgt = tgt ? &tgt : NULL, .n = 1};
    struct files *f = NULL;
    assert_true(files_open(&f, &c, dir, 2, NULL, &err) != HEED_OK);
    assert_null(f);
    if (!strstr(err.text, words)) fail_msg("\"%s\" lacks \"%s\"", err.text, words);
}

static void test_errors(void **state)
{
    (void)state;
    size_t len, n;
    char *text = odd_text(&len);
    expect_error(at("missing"), NULL, NULL, "missing");
    put_text("three", "a\nb\nc\n");
    put_text("two", "a\nb");
    expect_error(at("three"), at("two"), NULL, "three has 3 lines, ");
    expect_error(at("three"), at("two"), NULL, "two has 2: each line");
    put_text("empty", "");
    expect_error(at("empty"), NULL, NULL, "empty is empty");
    unsigned char *xz = xz_blocks(text, len, 10007, &n);
    put("cut.xz", xz, n - 5000);
    expect_error(at("cut.xz"), NULL, NULL, "cut.xz is truncated");
    xz[n / 2] ^= 1;
    put("bad.xz", xz, n);
    expect_error(at("bad.xz"), NULL, NULL, "bad.xz is corrupt: block ");
    free(xz);
    unsigned char *gz = bgzip_of(text, len, 30011, &n);
    put("cut.bgz", gz, n / 2);
    expect_error(at("cut.bgz"), NULL, NULL, "cut.bgz is truncated");
    gz[n / 2] ^= 1;
    put("bad.bgz", gz, n);
    expect_error(at("bad.bgz"), NULL, NULL, "bad.bgz is corrupt: block ");
    free(gz);
    free(text);
    put_text("file", "");
    expect_error(at("two"), NULL, at("file"), "file");
    expect_error(at("two"), NULL, "/dev/full/x", "/dev/full");
}

/* A file that is written to while it is in use. */
static void test_change_is_noticed(void **state)
{
    (void)state;
    struct heed_error err = {0};
    put_text("text", "a\tb\nc\td\n");
    struct files *f = open_files(at("text"), NULL, NULL);
    assert_int_equal(files_unchanged(f, &err), HEED_OK);
    FILE *more = fopen(at("text"), "a");
    fputs("e\tf\n", more);
    fclose(more);
    assert_int_equal(files_unchanged(f, &err), HEED_EIO);
    assert_non_null(strstr(err.text, "it had 8 bytes at first and has 12 now"));
    files_free(f);
    f = open_files(at("text"), NULL, NULL);
    put_text("text", "a\tb c\td\ne\tf\n"); /* the same size, and other lines */
    struct reader r = {0};
    struct pair x;
    struct files_place place = {0, 0};
    assert_int_equal(reader_begin(&r, f, &place, 1, &err), HEED_OK);
    assert_int_equal(reader_get(&r, f, 0, &x, &err), HEED_EFORMAT);
    assert_non_null(strstr(err.text, "text does not fit its index: line 1 is not one line"));
    reader_release(&r);
    files_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_watch_is_told_how_far_the_index_is),
        cmocka_unit_test(test_random_access_gives_the_same_lines),
        cmocka_unit_test(test_unpacking),
        cmocka_unit_test(test_index_is_kept),
        cmocka_unit_test(test_index_of_another_text_is_made_again),
        cmocka_unit_test(test_damaged_index_is_made_again),
        cmocka_unit_test(test_processes_at_once),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_change_is_noticed),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
