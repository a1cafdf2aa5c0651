/*
 * file.h - reads and writes whole files. A crash at any moment of a write leaves the old or the new
 * file.
 */
#ifndef HEED_BASE_FILE_H
#define HEED_BASE_FILE_H
#include "heed.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { FILE_PATH_MAX = 4096 }; /* bytes of a path with its NUL, PATH_MAX on Linux */

/* Opens a regular file for reading. Anything else is an error that says what it is; the call never
 * waits for the writer of a pipe. */
enum heed_status file_open(const char *path, int *fd, struct heed_error *err);
/* Like file_open, for files that are read once from front to end: /dev/stdin and /dev/fd/N, which a
 * shell passes to a command, may also be pipes. */
enum heed_status file_open_once(const char *path, int *fd, struct heed_error *err);

/* Reads a whole file. *data is malloced, with a NUL after the last byte that *len does not count. A
 * file larger than limit bytes is an error. */
enum heed_status file_read(const char *path, size_t limit, char **data, size_t *len,
                           struct heed_error *err);

struct file_part {
    const void *data;
    size_t len;
};

/* Sets *same to whether the file holds exactly these bytes. */
enum heed_status file_same(const char *path, struct file_part part, bool *same,
                           struct heed_error *err);

/* Writes the parts one after another to path + ".tmp", fsyncs it, renames it to path and fsyncs
 * the directory. On failure the temporary file is removed and path is unchanged, unless it was the
 * fsync of the directory that failed. */
enum heed_status file_write(const char *path, const struct file_part *part, int n,
                            struct heed_error *err);

/* Checks before long work that file_write can begin: that the directory exists and is writable, and
 * that path is new or a regular file. */
enum heed_status file_check_write(const char *path, struct heed_error *err);
/* Whether both paths lead to the same file, also through links. */
bool file_is_same(const char *a, const char *b);
/* Writes all of the bytes to a descriptor, and goes on after interruptions. Returns false with
 * errno set on failure. */
bool file_append(int fd, const char *data, size_t len);
/* Reads n bytes at an offset, and goes on after interruptions. Returns false on failure, with errno
 * 0 where the file ends before. */
bool file_read_at(int fd, void *out, size_t n, int64_t at);

/* Creates dir and missing parents; an existing directory is fine. */
enum heed_status file_mkdir(const char *dir, struct heed_error *err);
/* fsyncs a directory, so that a rename inside it survives a crash. */
enum heed_status file_sync_dir(const char *dir, struct heed_error *err);
/* Removes a directory and the files in it; a missing directory is fine. */
enum heed_status file_remove_dir(const char *dir, struct heed_error *err);
bool file_exists(const char *path);
/* Locks dir for this process. *fd holds the lock until it is closed or the process ends, however it
 * ends. A directory that another process has locked is an error. */
enum heed_status file_lock_dir(const char *dir, int *fd, struct heed_error *err);
/* Writes "dir/name" to out[n]; HEED_EARG where it does not fit. */
enum heed_status file_join(char *out, size_t n, const char *dir, const char *name,
                           struct heed_error *err);

#ifdef __cplusplus
}
#endif
#endif
