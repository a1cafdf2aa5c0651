/*
 * test_file.c - whole files: what is read is what was written, and a write that fails leaves the
 * old file and no temporary one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "place.h"

#define assert_says(err, words) assert_non_null(strstr((err).text, words))

/* Replaces the system's write. While stutter is set, every second call is interrupted and the
 * others write 3 bytes at most, as POSIX allows. */
static int stutter;

ssize_t write(int fd, const void *data, size_t n)
{
    if (stutter && stutter++ % 2) {
        errno = EINTR;
        return -1;
    }
    return syscall(SYS_write, fd, data, stutter && n > 3 ? (size_t)3 : n);
}

static void put(const char *path, const char *text)
{
    struct heed_error err;
    struct file_part part = {text, strlen(text)};
    assert_int_equal(file_write(path, &part, 1, &err), HEED_OK);
}

static void assert_content(const char *path, const char *text)
{
    struct heed_error err;
    char *data = NULL;
    size_t len = 0;
    assert_int_equal(file_read(path, 1 << 20, &data, &len, &err), HEED_OK);
    assert_int_equal(len, strlen(text));
    assert_string_equal(data, text);
    free(data);
}

static void test_round_trip(void **state)
{
    struct place *p = *state;
    struct heed_error err;
    const char *path = at(p, "a");
    struct file_part parts[] = {{"one", 3}, {NULL, 0}, {" two", 4}};
    assert_int_equal(file_write(path, parts, 3, &err), HEED_OK);
    assert_content(path, "one two");
    put(path, "new");
    assert_content(path, "new");
    assert_int_equal(file_write(path, NULL, 0, &err), HEED_OK);
    assert_content(path, "");
    assert_false(file_exists(at(p, "a.tmp")));
}

static void test_stuttering_disk(void **state)
{
    struct place *p = *state;
    struct heed_error err;
    struct file_part parts[] = {{"abcdefgh", 8}, {"ijkl", 4}};
    stutter = 1;
    enum heed_status st = file_write(at(p, "a"), parts, 2, &err);
    stutter = 0;
    assert_int_equal(st, HEED_OK);
    assert_content(p->path, "abcdefghijkl");
}

static void test_zero_bytes_inside(void **state)
{
    struct place *p = *state;
    struct heed_error err;
    struct file_part part = {"a\0b", 3};
    char *data;
    size_t len;
    assert_int_equal(file_write(at(p, "a"), &part, 1, &err), HEED_OK);
    assert_int_equal(file_read(p->path, 3, &data, &len, &err), HEED_OK);
    assert_int_equal(len, 3);
    assert_memory_equal(data, "a\0b", 4);
    free(data);
}

static void test_read_refuses(void **state)
{
    struct place *p = *state;
    struct heed_error err;
    char *data = NULL;
    size_t len = 7;
    assert_int_equal(file_read(at(p, "none"), 10, &data, &len, &err), HEED_EIO);
    assert_says(err, p->path);
    assert_says(err, "No such file");
    assert_int_equal(file_read(p->dir, 10, &data, &len, &err), HEED_EIO);
    assert_says(err, "is a directory");
    put(at(p, "a"), "12345");
    assert_int_equal(file_read(p->path, 4, &data, &len, &err), HEED_EFORMAT);
    assert_says(err, "has 5 bytes, expected at most 4");
    assert_null(data);
    assert_int_equal(len, 7);
}

/* A pipe does not say how long it is. */
static void test_read_pipe(void **state)
{
    (void)state;
    struct heed_error err;
    const size_t n = 300000;
    for (size_t limit = n; limit >= n - 1; limit--) {
        int end[2];
        char path[32];
        assert_int_equal(pipe(end), 0);
        snprintf(path, sizeof path, "/dev/fd/%d", end[0]);
        pid_t writer = fork();
        if (writer == 0) {
            signal(SIGPIPE, SIG_IGN);
            close(end[0]);
            for (size_t i = 0; i < n; i++)
                if (write(end[1], "x", 1) != 1) break;
            _exit(0);
        }
        close(end[1]);
        char *data = NULL;
        size_t len = 0;
        enum heed_status st = file_read(path, limit, &data, &len, &err);
        close(end[0]);
        assert_int_equal(waitpid(writer, NULL, 0), writer);
        if (limit == n) {
            assert_int_equal(st, HEED_OK);
            assert_int_equal(len, n);
            assert_int_equal(strlen(data), n);
        } else {
            assert_int_equal(st, HEED_EFORMAT);
            assert_says(err, "299999");
        }
        free(data);
    }
}

static void assert_unreadable(const char *path, const char *words)
{
    struct heed_error err = {0};
    char *data = NULL;
    size_t len;
    alarm(10);
    assert_int_equal(file_read(path, 10, &data, &len, &err), HEED_EIO);
    alarm(0);
    assert_says(err, path);
    assert_says(err, words);
    assert_null(data);
}

/* A pipe without a writer and a device that never ends are errors that say so, without waiting. */
static void test_read_refuses_what_is_no_file(void **state)
{
    struct place *p = *state;
    assert_int_equal(mkfifo(at(p, "pipe"), 0600), 0);
    assert_unreadable(p->path, "is a pipe, expected a regular file");
    assert_unreadable("/dev/zero", "is a device, expected a regular file");
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    assert_true(snprintf(address.sun_path, sizeof address.sun_path, "%s", at(p, "socket")) > 0);
    assert_int_equal(bind(s, (struct sockaddr *)&address, sizeof address), 0);
    assert_unreadable(p->path, "is a socket, expected a regular file");
    close(s);
    int dir = open(p->dir, O_RDONLY | O_DIRECTORY);
    char path[32];
    snprintf(path, sizeof path, "/dev/fd/%d", dir);
    assert_unreadable(path, "is a directory, expected");
    close(dir);
    assert_unreadable(path, "Bad file descriptor");
    assert_unreadable("/dev/fd/99999999999999999999", "cannot open");
    assert_unreadable("/dev/fd/", "");
}

/* /dev/full takes the place of the disk: every write to it finds no space. */
static void test_full_disk(void **state)
{
    struct place *p = *state;
    struct heed_error err;
    char path[PATH_MAX];
    strcpy(path, at(p, "model"));
    put(path, "old");
    assert_int_equal(symlink("/dev/full", at(p, "model.tmp")), 0);
    struct file_part parts[] = {{"1234", 4}, {"56", 2}};
    assert_int_equal(file_write(path, parts, 2, &err), HEED_EIO);
    char expected[PATH_MAX + 80];
    snprintf(expected, sizeof expected, "cannot write %s (6 bytes): No space left on device", path);
    assert_string_equal(err.text, expected);
    assert_content(path, "old");
    assert_false(file_exists(at(p, "model.tmp")));
    assert_true(file_exists("/dev/full"));
}

/* The disk is full in the middle: the first write is short, the next fails. */
static void test_short_write(void **state)
{
    struct place *p = *state;
    struct heed_error err;
    char path[PATH_MAX];
    strcpy(path, at(p, "model"));
    put(path, "old");
    struct rlimit before, tight;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    tight = (struct rlimit){4096, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    static const char big[10000];
    struct file_part part = {big, sizeof big};
    enum heed_status st = file_write(path, &part, 1, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(st, HEED_EIO);
    assert_says(err, "(10000 bytes): File too large");
    assert_content(path, "old");
    assert_false(file_exists(at(p, "model.tmp")));
}

static void test_write_refuses(void **state)
{
    struct place *p = *state;
    struct heed_error err;
    struct file_part part = {"x", 1};
    assert_int_equal(file_write(at(p, "none/a"), &part, 1, &err), HEED_EIO);
    assert_says(err, "No such file");
    assert_int_equal(file_write(p->dir, &part, 1, &err), HEED_EIO);
    assert_says(err, "not a regular file");
    /* A pipe or a device must not be replaced by a file. */
    struct stat info;
    assert_int_equal(mkfifo(at(p, "pipe"), 0600), 0);
    assert_int_equal(file_write(p->path, &part, 1, &err), HEED_EIO);
    assert_says(err, "not a regular file");
    assert_int_equal(stat(p->path, &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
    char endless[PATH_MAX + 1];
    memset(endless, 'a', PATH_MAX);
    endless[PATH_MAX] = '\0';
    assert_int_equal(file_write(endless, &part, 1, &err), HEED_EIO);
    assert_int_equal(file_mkdir(endless, &err), HEED_EIO);
}

/* A name without a directory is written to the working directory. */
static void test_write_here(void **state)
{
    struct place *p = *state;
    char home[PATH_MAX];
    assert_non_null(getcwd(home, sizeof home));
    assert_int_equal(chdir(p->dir), 0);
    put("a", "here");
    assert_content("a", "here");
    assert_int_equal(chdir(home), 0);
    assert_content(at(p, "a"), "here");
}

static void test_mkdir(void **state)
{
    struct place *p = *state;
    struct heed_error err;
    assert_int_equal(file_mkdir(p->dir, &err), HEED_OK);
    assert_int_equal(file_mkdir(at(p, "x//y/z/"), &err), HEED_OK);
    assert_int_equal(file_mkdir(p->path, &err), HEED_OK);
    put(at(p, "x/y/z/a"), "deep");
    assert_int_equal(file_mkdir(at(p, "x/y/z/a"), &err), HEED_EIO);
    assert_says(err, "not a directory");
    assert_int_equal(file_mkdir(at(p, "x/y/z/a/b"), &err), HEED_EIO);
    assert_says(err, "x/y/z/a: it exists and is not a directory");
    assert_int_equal(file_mkdir("", &err), HEED_EIO);
    assert_int_equal(file_mkdir("/", &err), HEED_OK);
    assert_int_equal(file_sync_dir(at(p, "x"), &err), HEED_OK);
    assert_int_equal(file_sync_dir(at(p, "none"), &err), HEED_EIO);

    assert_int_equal(file_remove_dir(at(p, "x"), &err), HEED_EIO);
    assert_says(err, "x/y");
    assert_int_equal(file_remove_dir(at(p, "x/y/z"), &err), HEED_OK);
    assert_int_equal(file_remove_dir(p->path, &err), HEED_OK);
    assert_int_equal(file_remove_dir(at(p, "x/y"), &err), HEED_OK);
    assert_int_equal(file_remove_dir(at(p, "x"), &err), HEED_OK);
    assert_false(file_exists(p->path));
}

static void test_remove_spares_links(void **state)
{
    struct place *p = *state;
    struct heed_error err;
    char kept[PATH_MAX];
    assert_int_equal(file_mkdir(at(p, "real"), &err), HEED_OK);
    strcpy(kept, p->path);
    put(at(p, "real/a"), "kept");
    assert_int_equal(symlink(kept, at(p, "link")), 0);
    assert_int_equal(file_remove_dir(p->path, &err), HEED_EIO);
    assert_content(at(p, "real/a"), "kept");
    assert_int_equal(file_remove_dir(kept, &err), HEED_OK);
}

static void test_join(void **state)
{
    (void)state;
    struct heed_error err;
    char out[8] = "same";
    assert_int_equal(file_join(out, sizeof out, "abc", "defg", &err), HEED_EARG);
    assert_says(err, "abc/defg needs 9 bytes, expected at most 8");
    assert_string_equal(out, "same");
    assert_int_equal(file_join(out, sizeof out, "abc", "def", &err), HEED_OK);
    assert_string_equal(out, "abc/def");
    assert_int_equal(file_join(out, sizeof out, "/", "a", &err), HEED_OK);
    assert_string_equal(out, "/a");
    assert_int_equal(file_join(out, sizeof out, "", "a", &err), HEED_OK);
    assert_string_equal(out, "a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, place_make, place_remove),
        cmocka_unit_test_setup_teardown(test_stuttering_disk, place_make, place_remove),
        cmocka_unit_test_setup_teardown(test_zero_bytes_inside, place_make, place_remove),
        cmocka_unit_test_setup_teardown(test_read_refuses, place_make, place_remove),
        cmocka_unit_test_setup_teardown(test_read_pipe, place_make, place_remove),
        cmocka_unit_test_setup_teardown(test_read_refuses_what_is_no_file, place_make,
                                        place_remove),
        cmocka_unit_test_setup_teardown(test_full_disk, place_make, place_remove),
        cmocka_unit_test_setup_teardown(test_short_write, place_make, place_remove),
        cmocka_unit_test_setup_teardown(test_write_refuses, place_make, place_remove),
        cmocka_unit_test_setup_teardown(test_write_here, place_make, place_remove),
        cmocka_unit_test_setup_teardown(test_mkdir, place_make, place_remove),
        cmocka_unit_test_setup_teardown(test_remove_spares_links, place_make, place_remove),
        cmocka_unit_test(test_join),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
