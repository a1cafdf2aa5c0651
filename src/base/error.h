/*
 * error.h - fills the caller's struct heed_error with one sentence. Every failing path of the
 * library ends here.
 */
#ifndef HEED_BASE_ERROR_H
#define HEED_BASE_ERROR_H
#include "heed.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Fills err (which may be NULL) and returns status, so that a caller can return the call. A text
 * too long for err is cut at the end, and control characters in it become '?'. */
enum heed_status error_set(struct heed_error *err, enum heed_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Like error_set, with ": " and strerror(errno) at the end. The status is HEED_ENOMEM where errno
 * is ENOMEM, else HEED_EIO. */
enum heed_status error_errno(struct heed_error *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* HEED_ENOMEM: "out of memory: N bytes for WHAT". */
enum heed_status error_memory(struct heed_error *err, size_t bytes, const char *what);
/* HEED_EARG: "WHAT is NULL". */
enum heed_status error_null(struct heed_error *err, const char *what);
/* Checks that v has n strings, none of them NULL, and n is not negative; HEED_EARG otherwise. The
 * error calls the array `what`. */
enum heed_status error_strings(struct heed_error *err, const char *what, const char *const *v,
                               int n);

#ifdef __cplusplus
}
#endif
#endif
