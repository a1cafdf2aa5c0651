/*
 * error.h - one sentence for the caller. Every failing path of the library ends here.
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
/* The same with ": " and the system's words for errno at the end; HEED_EIO, or HEED_ENOMEM. */
enum heed_status error_errno(struct heed_error *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* HEED_ENOMEM: "out of memory: N bytes for WHAT". */
enum heed_status error_memory(struct heed_error *err, size_t bytes, const char *what);
/* HEED_EARG: "WHAT is NULL". */
enum heed_status error_null(struct heed_error *err, const char *what);
/* HEED_OK where n is at least 0 and v holds n strings; else HEED_EARG and which is NULL. */
enum heed_status error_strings(struct heed_error *err, const char *what, const char *const *v,
                               int n);

#ifdef __cplusplus
}
#endif
#endif
