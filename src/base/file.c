/*
 * file.c - reads and writes whole files; see file.h.
 *
 * Everything heed keeps on disk (config.json, weights, optimizer state, vocabularies) passes
 * through file_write, so the promise that a crash or a full disk leaves the last good file is kept
 * here and nowhere else. The order that keeps it: write the temporary file, fsync it, rename it
 * over the old one, fsync the directory that holds the name.
 */
#include "base/file.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

/* ---- reading ---- */

enum {
    READ_FIRST = 1 << 16, /* bytes allocated at first for a pipe, whose length is not known */
    WHOLE_MOST = 1 << 30  /* bytes of a file to compare */
};

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)    ? "a directory"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

/* Opening a pipe would wait for a writer, and reading a device may never end. So the file is opened
 * with O_NONBLOCK, which does not wait, and its kind is checked before anything is read. */
enum heed_status file_open(const char *path, int *fd, struct heed_error *err)
{
    struct stat info;
    if (!*path) return error_set(err, HEED_EIO, "cannot open a file whose name is empty");
    int opened = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (opened < 0) {
        bool socket = errno == ENXIO && stat(path, &info) == 0; /* a socket cannot be opened */
        if (!socket) return error_errno(err, "cannot open %s", path);
    } else if (fstat(opened, &info) != 0) {
        enum heed_status st = error_errno(err, "cannot open %s", path);
        close(opened);
        return st;
    }
    if (S_ISREG(info.st_mode)) {
        *fd = opened;
        return HEED_OK;
    }
    if (opened >= 0) close(opened);
    return error_set(err, HEED_EIO, "%s is %s, expected a regular file", path,
                     kind_of(info.st_mode));
}

/* The descriptor that a path such as /dev/fd/63 names; -1 where it names none. */
static int descriptor_named(const char *path)
{
    static const char fd[] = "/dev/fd/";
    if (strcmp(path, "/dev/stdin") == 0) return STDIN_FILENO;
    if (strncmp(path, fd, sizeof fd - 1) != 0) return -1;
    const char *digits = path + sizeof fd - 1;
    size_t n = strspn(digits, "0123456789");
    return n > 0 && n < 9 && digits[n] == '\0' ? atoi(digits) : -1;
}

enum heed_status file_open_once(const char *path, int *fd, struct heed_error *err)
{
    struct stat info;
    int named = descriptor_named(path);
    if (named < 0) return file_open(path, fd, err);
    int copy = fcntl(named, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (copy < 0 || fstat(copy, &info) != 0) {
        enum heed_status st = error_errno(err, "cannot open %s", path);
        if (copy >= 0) close(copy);
        return st;
    }
    if (S_ISDIR(info.st_mode)) {
        close(copy);
        return error_set(err, HEED_EIO, "%s is a directory, expected a file or a pipe", path);
    }
    *fd = copy;
    return HEED_OK;
}

/* Reads until the end of the file or until data holds cap bytes; *len counts them. */
static enum heed_status read_upto(int fd, char *data, size_t cap, size_t *len, const char *path,
                                  struct heed_error *err)
{
    while (*len < cap) {
        ssize_t got = read(fd, data + *len, cap - *len);
        if (got == 0) break;
        if (got > 0)
            *len += (size_t)got;
        else if (errno != EINTR)
            return error_errno(err, "cannot read %s", path);
    }
    return HEED_OK;
}

/* Reads fd to its end into *data, which grows as needed. The size that fstat gives is only a first
 * guess: that of pipes and of files in /proc is 0, and a file may grow meanwhile. */
static enum heed_status read_all(int fd, size_t guess, size_t limit, char **data, size_t *len,
                                 const char *path, struct heed_error *err)
{
    size_t cap = guess;
    for (;;) {
        /* One byte more than the content: it tells the end of the file from a full buffer, and
         * holds the NUL. */
        if (cap > limit) cap = limit;
        char *grown = realloc(*data, cap + 1);
        if (!grown) return error_memory(err, cap + 1, path);
        *data = grown;
        enum heed_status st = read_upto(fd, *data, cap + 1, len, path, err);
        if (st) return st;
        if (*len <= cap) break;
        if (cap == limit)
            return error_set(err, HEED_EFORMAT,
                             "%s has more than %zu bytes, the most that is allowed", path, limit);
        cap = cap > limit / 2 ? limit : cap * 2;
    }
    (*data)[*len] = '\0';
    return HEED_OK;
}

enum heed_status file_read(const char *path, size_t limit, char **data, size_t *len,
                           struct heed_error *err)
{
    assert(limit < SIZE_MAX);
    int fd;
    enum heed_status st = file_open_once(path, &fd, err);
    if (st) return st;
    struct stat info;
    char *content = NULL;
    size_t n = 0;
    if (fstat(fd, &info) != 0) {
        st = error_errno(err, "cannot read %s", path);
    } else if (S_ISREG(info.st_mode) && (uintmax_t)info.st_size > limit) {
        st = error_set(err, HEED_EFORMAT, "%s has %jd bytes, expected at most %zu", path,
                       (intmax_t)info.st_size, limit);
    } else {
        size_t guess =
            S_ISREG(info.st_mode) && info.st_size > 0 ? (size_t)info.st_size : (size_t)READ_FIRST;
        st = read_all(fd, guess, limit, &content, &n, path, err);
    }
    close(fd);
    if (st) {
        free(content);
        return st;
    }
    *data = content;
    *len = n;
    return HEED_OK;
}

enum heed_status file_same(const char *path, struct file_part part, bool *same,
                           struct heed_error *err)
{
    char *data = NULL;
    size_t len = 0;
    enum heed_status st = file_read(path, WHOLE_MOST, &data, &len, err);
    if (!st) *same = len == part.len && memcmp(data, part.data, len) == 0;
    free(data);
    return st;
}

/* ---- writing ---- */

enum { WRITE_MOST = 1 << 30 }; /* bytes of one write(2); some systems refuse 2 GiB */

bool file_append(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t put = write(fd, data, len < WRITE_MOST ? len : WRITE_MOST);
        if (put < 0 && errno == EINTR) continue;
        if (put == 0) errno = ENOSPC; /* not seen of regular files, but must not loop for ever */
        if (put <= 0) return false;
        data += put;
        len -= (size_t)put;
    }
    return true;
}

bool file_read_at(int fd, void *out, size_t n, int64_t at)
{
    for (char *p = out; n;) {
        ssize_t got = pread(fd, p, n, at);
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) errno = 0;
        if (got <= 0) return false;
        p += got;
        at += got;
        n -= (size_t)got;
    }
    return true;
}

static bool sync_fully(int fd)
{
    int failed;
    do failed = fsync(fd);
    while (failed && errno == EINTR);
    return !failed;
}

/* Returns false with errno set unless every byte is known to be on the disk. The result of close
 * counts too: network file systems report a full disk there. */
static bool write_parts(const char *path, const struct file_part *part, int n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return false;
    bool good = true;
    for (int i = 0; good && i < n; i++) good = file_append(fd, part[i].data, part[i].len);
    good = good && sync_fully(fd);
    int why = errno;
    if (close(fd) != 0 && good) return false;
    errno = why;
    return good;
}

/* Writes the directory part of path to out, which has room for path, and at least 2 bytes. */
static void parent_of(char *out, const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t n = !slash ? 0 : slash == path ? 1 : (size_t)(slash - path);
    memcpy(out, n ? path : ".", n ? n : 1);
    out[n ? n : 1] = '\0';
}

/* Refuses a path that exists and is no regular file: renaming over /dev/null or a pipe would
 * replace the device with a file. */
static enum heed_status check_target(const char *path, struct heed_error *err)
{
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return error_set(err, HEED_EIO, "cannot write %s: it exists and is not a regular file",
                         path);
    return HEED_OK;
}

enum heed_status file_check_write(const char *path, struct heed_error *err)
{
    char parent[FILE_PATH_MAX];
    struct stat info;
    errno = ENAMETOOLONG;
    if (strlen(path) + sizeof ".tmp" <= sizeof parent) {
        parent_of(parent, path);
        errno = stat(parent, &info) != 0 ? errno : S_ISDIR(info.st_mode) ? 0 : ENOTDIR;
        if (!errno && access(parent, W_OK | X_OK) == 0) return check_target(path, err);
    }
    return error_errno(err, "cannot write %s", path);
}

bool file_is_same(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

enum heed_status file_write(const char *path, const struct file_part *part, int n,
                            struct heed_error *err)
{
    char temporary[FILE_PATH_MAX], parent[FILE_PATH_MAX];
    int length = snprintf(temporary, sizeof temporary, "%s.tmp", path);
    if (length < 0 || (size_t)length >= sizeof temporary) {
        errno = ENAMETOOLONG;
        return error_errno(err, "cannot write %s", path);
    }
    enum heed_status found = check_target(path, err);
    if (found) return found;

    size_t total = 0;
    for (int i = 0; i < n; i++) total += part[i].len;
    if (!write_parts(temporary, part, n) || rename(temporary, path) != 0) {
        enum heed_status st = error_errno(err, "cannot write %s (%zu bytes)", path, total);
        unlink(temporary);
        return st;
    }
    parent_of(parent, path);
    return file_sync_dir(parent, err);
}

/* ---- directories ---- */

enum heed_status file_sync_dir(const char *dir, struct heed_error *err)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return error_errno(err, "cannot open directory %s", dir);
    enum heed_status st = HEED_OK;
    /* EINVAL: this file system cannot sync a directory. */
    if (!sync_fully(fd) && errno != EINVAL) st = error_errno(err, "cannot sync directory %s", dir);
    close(fd);
    return st;
}

static bool is_dir(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Creates one directory, whose parent exists. */
static enum heed_status make_one(const char *dir, struct heed_error *err)
{
    char parent[FILE_PATH_MAX];
    if (is_dir(dir)) return HEED_OK;
    if (mkdir(dir, 0777) != 0) {
        if (errno != EEXIST) return error_errno(err, "cannot create directory %s", dir);
        if (is_dir(dir)) return HEED_OK; /* another process has created it meanwhile */
        return error_set(err, HEED_EIO,
                         "cannot create directory %s: it exists and is not a directory", dir);
    }
    parent_of(parent, dir);
    return file_sync_dir(parent, err);
}

enum heed_status file_mkdir(const char *dir, struct heed_error *err)
{
    char path[FILE_PATH_MAX];
    size_t n = strlen(dir);
    if (n >= sizeof path) {
        errno = ENAMETOOLONG;
        return error_errno(err, "cannot create directory %s", dir);
    }
    memcpy(path, dir, n + 1);
    while (n > 1 && path[n - 1] == '/') path[--n] = '\0';
    for (size_t i = 1; i < n; i++) {
        if (path[i] != '/' || path[i - 1] == '/') continue;
        path[i] = '\0';
        enum heed_status st = make_one(path, err);
        if (st) return st;
        path[i] = '/';
    }
    return make_one(path, err);
}

/* Removes the files in the directory that `list` has open; dir is its name for errors. */
static enum heed_status remove_entries(DIR *list, const char *dir, struct heed_error *err)
{
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(list);
        if (!entry) return errno ? error_errno(err, "cannot list directory %s", dir) : HEED_OK;
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
        if (unlinkat(dirfd(list), name, 0) != 0 && errno != ENOENT)
            return error_errno(err, "cannot remove %s/%s", dir, name);
    }
}

enum heed_status file_remove_dir(const char *dir, struct heed_error *err)
{
    /* A symbolic link to a directory is refused, because the directory it points to is not ours. */
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return HEED_OK;
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (!list) {
        enum heed_status st = error_errno(err, "cannot remove directory %s", dir);
        if (fd >= 0) close(fd);
        return st;
    }
    enum heed_status st = remove_entries(list, dir, err);
    closedir(list);
    if (!st && rmdir(dir) != 0 && errno != ENOENT)
        st = error_errno(err, "cannot remove directory %s", dir);
    return st;
}

/* ---- names ---- */

bool file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

enum heed_status file_join(char *out, size_t n, const char *dir, const char *name,
                           struct heed_error *err)
{
    size_t length = strlen(dir);
    const char *slash = length && dir[length - 1] != '/' ? "/" : "";
    size_t need = length + strlen(slash) + strlen(name) + 1;
    if (need > n)
        return error_set(err, HEED_EARG, "path %s%s%s needs %zu bytes, expected at most %zu", dir,
                         slash, name, need, n);
    snprintf(out, n, "%s%s%s", dir, slash, name);
    return HEED_OK;
}

enum heed_status file_lock_dir(const char *dir, int *fd, struct heed_error *err)
{
    int lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock < 0) return error_errno(err, "cannot open directory %s", dir);
    if (flock(lock, LOCK_EX | LOCK_NB)) {
        bool taken = errno == EWOULDBLOCK;
        enum heed_status s = error_errno(err, "cannot lock directory %s", dir);
        close(lock);
        return taken ? error_set(err, HEED_EIO, "%s is in use by another process", dir) : s;
    }
    *fd = lock;
    return HEED_OK;
}
