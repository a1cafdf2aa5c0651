/*
 * test_input.c - lines are read as they were written, in every format; broken files are errors.
 */
#include "text_files.h"

#include "corpus/input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* Everything a file gives, each line in brackets; "!" and the sentence where it ends in error. The
 * caller frees it. */
static char *lines_of(const char *path)
{
    struct heed_error err = {0};
    struct heed_lines *in = NULL;
    char *out = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&out, &n);
    enum heed_status st = input_open(&in, path, &err);
    const char *line = "";
    size_t len;
    while (!st && !(st = input_line(in, &line, &len, &err)) && line) {
        fputc('[', f);
        fwrite(line, 1, len, f);
        fputc(']', f);
    }
    if (st) {
        assert_int_equal(st, err.status);
        fprintf(f, "!%s", err.text);
    }
    fclose(f);
    input_free(in);
    return out;
}

static void expect(const char *path, const char *lines)
{
    char *got = lines_of(path);
    assert_string_equal(got, lines);
    free(got);
}

static void expect_error(const char *path, const char *words)
{
    char *got = lines_of(path);
    const char *error = strchr(got, '!');
    if (!error || !strstr(error, words)) fail_msg("\"%s\" lacks \"%s\"", got, words);
    assert_non_null(strstr(error, path));
    free(got);
}

static void test_plain(void **state)
{
    (void)state;
    expect(put_text("a", "one\ntwo\n\nthree\n"), "[one][two][][three]");
    expect(put_text("a", "no end"), "[no end]");
    expect(put_text("a", "a\r\nb\r\n\r\nc\rd\r"), "[a][b][][c\rd]");
    expect(put_text("a", "\n"), "[]");
    expect(put_text("a", ""), "");
    expect(put_text("a", "\xef\xbb\xbf"
                         "marked\n\xef\xbb\xbf"
                         "x"),
           "[marked][\xef\xbb\xbfx]");
}

/* Each format is refused by its name, whatever the file is called. */
static void test_other_formats(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *name;
    } other[] = {
        {"\x28\xb5\x2f\xfd\0\0", 6, "compressed by zstd"},
        {"BZh61AY&SY\0", 11, "compressed by bzip2"},
        {"PK\3\4\0", 5, "a zip archive"},
        {"\xff\xfe\x41\0", 4, "UTF-16"},
        {"\xfe\xff\0A", 4, "UTF-16"},
        {"h\0i\0 \0\x16\x20 \0x\0", 12, "UTF-16"},
        {"\0h\0i\0 \x20\x16\0 \0x", 12, "UTF-16"},
        {"one\rtwo", 7, "carriage returns alone"},
        {"one\rtwo\r", 8, "carriage returns alone"},
    };
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++) {
        size_t n;
        expect_error(put("other.txt", other[i].bytes, other[i].n), other[i].name);
        if (i < 3) continue; /* the others are text, which may be compressed */
        unsigned char *gz = gzip_of(other[i].bytes, other[i].n, &n);
        expect_error(put("other.gz", gz, n), other[i].name);
        free(gz);
    }
    expect(put_text("a", "BZh91AY&S is no archive\n"), "[BZh91AY&S is no archive]");
    expect(put_text("a", "PK\3"), "[PK\3]");
    expect(put_text("a", "one\r"), "[one]");
    expect(put_text("a", "\r"), "[]");
    expect(put_text("a", "one\rtwo\nthree\n"), "[one\rtwo][three]");
    /* a file without line feeds is refused after a megabyte, without reading it to the end */
    size_t len = 3 << 20;
    char *mac = malloc(len);
    memset(mac, 'x', len);
    for (size_t i = 1000; i < len; i += 1000) mac[i] = '\r';
    expect_error(put("mac", mac, len), "carriage returns alone");
    mac[0] = '\n';
    char *lines = lines_of(put("mac", mac, len));
    assert_int_equal(strlen(lines), len - 1 + 4);
    free(lines);
    free(mac);
}

/* input_ready says whether the writer of a pipe has sent a whole line, and input_line returns the
 * line as soon as it has. */
static void test_pipe(void **state)
{
    (void)state;
    struct heed_lines *in;
    const char *line;
    size_t len;
    bool ready;
    static const char *const part[] = {"P", "K is\nhal", "f a line\n", "\nlast"};
    static const char *const lines[] = {NULL, "PK is", "half a line", "", "last"};
    int end[2], taken = 1;
    assert_int_equal(pipe(end), 0);
    assert_int_equal(input_open_fd(&in, end[0], "a pipe", NULL), HEED_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(write(end[1], part[i], strlen(part[i])), strlen(part[i]));
        while (!input_ready(in, &ready, NULL) && ready) {
            assert_int_equal(input_line(in, &line, &len, NULL), HEED_OK);
            assert_int_equal(len, strlen(lines[taken]));
            assert_memory_equal(line, lines[taken++], len);
        }
        static const int now[] = {1, 2, 3, 4};
        assert_int_equal(taken, now[i]);
    }
    close(end[1]);
    assert_int_equal(input_ready(in, &ready, NULL), HEED_OK);
    assert_true(ready);
    assert_int_equal(input_line(in, &line, &len, NULL), HEED_OK);
    assert_memory_equal(line, "last", 4);
    assert_int_equal(input_line(in, &line, &len, NULL), HEED_OK);
    assert_null(line);
    input_free(in);
    close(end[0]);
}

/* Compressed text through a pipe, a byte at a time, and a pipe that does not wait. */
static void test_slow_pipe(void **state)
{
    (void)state;
    static const char text[] = "one\ntwo\nthree";
    for (int form = 0; form < 3; form++) {
        size_t n = sizeof text - 1;
        unsigned char *data = form == 1   ? gzip_of(text, n, &n)
                              : form == 2 ? xz_of(text, n, &n)
                                          : (unsigned char *)strdup(text);
        int end[2];
        assert_int_equal(pipe(end), 0);
        assert_int_equal(fcntl(end[0], F_SETFL, O_NONBLOCK), 0);
        pid_t writer = fork();
        if (writer == 0) {
            for (size_t i = 0; i < n; i++) {
                if (write(end[1], data + i, 1) != 1) _exit(1);
                if (i < 20) usleep(1000);
            }
            _exit(0);
        }
        close(end[1]);
        struct heed_lines *in;
        const char *line;
        size_t len;
        char all[64] = "";
        assert_int_equal(input_open_fd(&in, end[0], "a pipe", NULL), HEED_OK);
        while (!input_line(in, &line, &len, NULL) && line) {
            strncat(all, line, len);
            strcat(all, "|");
        }
        assert_string_equal(all, "one|two|three|");
        assert_int_equal(waitpid(writer, NULL, 0), writer);
        input_free(in);
        close(end[0]);
        free(data);
    }
}

static void test_nul_bytes_are_kept(void **state)
{
    (void)state;
    struct heed_lines *in;
    const char *line;
    size_t len;
    assert_int_equal(input_open(&in, put("a", "x\0y\nz", 5), NULL), HEED_OK);
    assert_int_equal(input_line(in, &line, &len, NULL), HEED_OK);
    assert_int_equal(len, 3);
    assert_memory_equal(line, "x\0y", 3);
    input_free(in);
}

static void test_no_file(void **state)
{
    (void)state;
    expect_error(at("missing"), "No such file");
    expect_error(folder, "is a directory, expected a regular file");
    expect_error("/dev/null", "is a device, expected a regular file");
    assert_int_equal(mkfifo(at("pipe"), 0600), 0);
    alarm(10); /* a pipe that nobody writes to is not waited for */
    expect_error(at("pipe"), "is a pipe, expected a regular file");
    alarm(0);
}

static void test_line_longer_than_the_limit(void **state)
{
    (void)state;
    for (size_t extra = 0; extra < 3; extra++) {
        size_t len = INPUT_LINE_MAX + extra * extra * 100000;
        char *big = malloc(len + 8);
        memset(big, 'x', len);
        memcpy(big + len, "\r\nnext\n", 8);
        const char *path = put("big", big, len + 7);
        struct heed_lines *in;
        const char *line;
        size_t got;
        assert_int_equal(input_open(&in, path, NULL), HEED_OK);
        assert_int_equal(input_line(in, &line, &got, NULL), HEED_OK);
        assert_int_equal(got, INPUT_LINE_MAX);
        assert_memory_equal(line, big, got);
        assert_int_equal(input_line(in, &line, &got, NULL), HEED_OK);
        assert_int_equal(got, 4);
        assert_memory_equal(line, "next", 4);
        assert_int_equal(input_line(in, &line, &got, NULL), HEED_OK);
        assert_null(line);
        input_free(in);
        free(big);
    }
}

/* Some text that takes several buffers in every format. */
static char *much_text(size_t *len)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, len);
    uint32_t x = 1;
    for (int i = 0; i < 60000; i++) {
        x = x * 1664525u + 1013904223u;
        fprintf(f, "line %d holds %08x\n", i, x);
    }
    fclose(f);
    return text;
}

static void test_formats_agree(void **state)
{
    (void)state;
    size_t len, gz_len, xz_len;
    char *text = much_text(&len);
    unsigned char *gz = gzip_of(text, len, &gz_len), *xz = xz_of(text, len, &xz_len);
    char *plain = lines_of(put("t", text, len));
    assert_null(strchr(plain, '!'));
    expect(put("t.gz", gz, gz_len), plain);
    expect(put("t.xz", xz, xz_len), plain);
    expect(put("misnamed.txt", gz, gz_len), plain);
    free(plain);
    free(gz);
    free(xz);
    free(text);
}

/* Files laid end to end are one file, zeros behind a gzip file are padding, other bytes are not. */
static void test_members(void **state)
{
    (void)state;
    size_t n, m;
    unsigned char *a = gzip_of("one\ntw", 6, &n), *b = gzip_of("o\n", 2, &m);
    unsigned char all[512] = {0};
    memcpy(all, a, n);
    memcpy(all + n, b, m);
    expect(put("two.gz", all, n + m), "[one][two]");
    expect(put("padded.gz", all, n + m + 100), "[one][two]");
    memcpy(all + n + m, "rubbish", 7);
    expect_error(put("rubbish.gz", all, n + m + 7), "corrupt");
    free(a);
    free(b);
    a = xz_of("one\ntw", 6, &n), b = xz_of("o\n", 2, &m);
    memcpy(all, a, n);
    memcpy(all + n, b, m);
    expect(put("two.xz", all, n + m), "[one][two]");
    memcpy(all + n + m, "rubbish rubbish", 15);
    expect_error(put("rubbish.xz", all, n + m + 15), "corrupt");
    free(a);
    free(b);
}

static void check_broken(const char *name, unsigned char *data, size_t n, size_t magic)
{
    for (size_t cut = magic; cut < n; cut++) expect_error(put(name, data, cut), "truncated");
    for (size_t i = magic; i < n; i++) { /* an error or not, but no crash and no hang */
        data[i] ^= 0x55;
        free(lines_of(put(name, data, n)));
        data[i] ^= 0x55;
    }
}

static void test_broken_files(void **state)
{
    (void)state;
    const char *text = "a few words,\na few more words, and the same words, and the same words\n";
    size_t n;
    unsigned char *gz = gzip_of(text, strlen(text), &n);
    check_broken("broken.gz", gz, n, 2);
    gz[n - 6] ^= 1; /* the check sum */
    expect_error(put("sum.gz", gz, n), "corrupt");
    free(gz);
    unsigned char *xz = xz_of(text, strlen(text), &n);
    check_broken("broken.xz", xz, n, 6);
    xz[n / 2] ^= 1;
    expect_error(put("sum.xz", xz, n), "corrupt");
    free(xz);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),         cmocka_unit_test(test_nul_bytes_are_kept),
        cmocka_unit_test(test_no_file),       cmocka_unit_test(test_line_longer_than_the_limit),
        cmocka_unit_test(test_formats_agree), cmocka_unit_test(test_members),
        cmocka_unit_test(test_broken_files),  cmocka_unit_test(test_other_formats),
        cmocka_unit_test(test_pipe),          cmocka_unit_test(test_slow_pipe),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
