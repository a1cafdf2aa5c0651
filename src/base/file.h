/*
 * file.h - whole files, written so that a crash at any moment leaves the old or the new one.
 */
#ifndef HEED_BASE_FILE_H
#define HEED_BASE_FILE_H
#include "heed.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Opens a regular file for reading. Anything else is an error that names what it is; a pipe that
 * nobody writes to is not waited for. */
enum heed_status file_open(const char *path, int *fd, struct heed_error *err);
/* The same for what is read once, from the front to the end: /dev/stdin and /dev/fd/N, as a shell
 * gives them to a command, may be pipes that are open already. */
enum heed_status file_open_once(const char *path, int *fd, struct heed_error *err);

/* *data is malloced, with a NUL after the last byte that is not counted in *len. A file larger
 * than limit bytes is an error. */
enum heed_status file_read(const char *path, size_t limit, char **data, size_t *len,
                           struct heed_error *err);

struct file_part {
    const void *data;
    size_t len;
};

/* Whether a file holds just these bytes. */
enum heed_status file_same(const char *path, struct file_part part, bool *same,
                           struct heed_error *err);

/* Writes the parts one after another to path + ".tmp", fsyncs it, renames it to path and fsyncs
 * the directory. On failure the temporary file is removed and path is as it was, unless the last
 * of these is what failed. */
enum heed_status file_write(const char *path, const struct file_part *part, int n,
                            struct heed_error *err);

/* Whether file_write can begin: the directory is there and may be written to, and path is new or a
 * regular file. For asking before long work. */
enum heed_status file_check_write(const char *path, struct heed_error *err);
/* Whether both paths lead to one file, by whatever names and links. */
bool file_is_same(const char *a, const char *b);
/* Writes all of the bytes to a descriptor, whatever interrupts it; false: errno says why not. */
bool file_append(int fd, const char *data, size_t len);

/* Creates dir and missing parents; an existing directory is fine. */
enum heed_status file_mkdir(const char *dir, struct heed_error *err);
/* fsyncs a directory, so that a rename inside it survives a crash. */
enum heed_status file_sync_dir(const char *dir, struct heed_error *err);
/* Removes a directory and the plain files in it; a missing one is fine. */
enum heed_status file_remove_dir(const char *dir, struct heed_error *err);
bool file_exists(const char *path);
/* Takes dir for this process: *fd holds the lock until it is closed or the process ends, however
 * it ends. A directory that another process holds is an error. */
enum heed_status file_lock_dir(const char *dir, int *fd, struct heed_error *err);
/* "dir/name" in out[n]; HEED_EARG when it does not fit. */
enum heed_status file_join(char *out, size_t n, const char *dir, const char *name,
                           struct heed_error *err);

#ifdef __cplusplus
}
#endif
#endif
