/*
 * error.c - fills the caller's struct heed_error with one sentence; see error.h.
 */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

static void fill(struct heed_error *err, enum heed_status status, const char *format, va_list ap)
{
    if (!err) return;
    err->status = status;
    vsnprintf(err->text, sizeof err->text, format, ap);
    /* Names and contents of files may contain line ends and control sequences of terminals. */
    for (size_t i = 0, n, len = strlen(err->text); i < len; i += n ? n : 1)
        if ((n = utf8_control(err->text + i, len - i))) memset(err->text + i, '?', n);
}

enum heed_status error_set(struct heed_error *err, enum heed_status status, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    fill(err, status, format, ap);
    va_end(ap);
    return status;
}

enum heed_status error_errno(struct heed_error *err, const char *format, ...)
{
    enum heed_status status = errno == ENOMEM ? HEED_ENOMEM : HEED_EIO;
    const char *why = strerror(errno);
    va_list ap;
    va_start(ap, format);
    fill(err, status, format, ap);
    va_end(ap);
    if (err) {
        size_t n = strlen(err->text);
        snprintf(err->text + n, sizeof err->text - n, ": %s", why);
    }
    return status;
}

enum heed_status error_memory(struct heed_error *err, size_t bytes, const char *what)
{
    return error_set(err, HEED_ENOMEM, "out of memory: %zu bytes for %s", bytes, what);
}

enum heed_status error_null(struct heed_error *err, const char *what)
{
    return error_set(err, HEED_EARG, "%s is NULL", what);
}

enum heed_status error_strings(struct heed_error *err, const char *what, const char *const *v,
                               int n)
{
    if (n < 0) return error_set(err, HEED_EARG, "%s has %d texts, expected at least 0", what, n);
    if (n && !v) return error_null(err, what);
    for (int i = 0; i < n; i++)
        if (!v[i]) return error_set(err, HEED_EARG, "%s[%d] is NULL", what, i);
    return HEED_OK;
}
