/*
 * fields.c - names and values from outside; see fields.h.
 */
#define _GNU_SOURCE /* memmem */
#include "serve/fields.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "serve/utf8.h"

void fields_release(struct fields *f)
{
    for (int i = 0; i < f->n; i++) {
        free(f->v[i].name);
        free(f->v[i].value);
    }
    free(f->v);
    *f = (struct fields){0};
}

const char *fields_find(const struct fields *f, const char *name)
{
    for (int i = 0; i < f->n; i++) {
        if (!strcmp(f->v[i].name, name)) return f->v[i].value;
    }
    return NULL;
}

/* A copy of n bytes, mended. */
static char *mended(const char *text, size_t n)
{
    struct buffer b = {0};
    utf8_mend(&b, text, n);
    return buffer_take(&b);
}

/* Adds a field of which name and value are n and m bytes long. */
static bool add(struct fields *f, const char *name, size_t n, const char *value, size_t m)
{
    struct field *v = realloc(f->v, (size_t)(f->n + 1) * sizeof *v);
    if (!v) return false;
    f->v = v;
    struct field x = {.name = mended(name, n), .value = mended(value, m)};
    if (x.name && x.value) {
        f->v[f->n++] = x;
        return true;
    }
    free(x.name);
    free(x.value);
    return false;
}

bool fields_add(struct fields *f, const char *name, const char *value)
{
    return add(f, name, strlen(name), value, strlen(value));
}

/* ---- application/x-www-form-urlencoded ---- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Decodes plus signs and percent signs; a percent sign that two digits do not follow stays. Returns
 * the number of bytes written. */
static size_t url_decode(char *out, const char *text, size_t n)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        int high = i + 2 < n && text[i] == '%' ? hex_digit(text[i + 1]) : -1;
        int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
        if (low >= 0) {
            out[len++] = (char)(high * 16 + low);
            i += 2;
        } else {
            out[len++] = text[i] == '+' ? ' ' : text[i];
        }
    }
    return len;
}

bool fields_read_urlencoded(struct fields *f, const char *text, size_t n)
{
    char *decoded = malloc(n + 1);
    bool good = decoded;
    int most = f->n + FIELDS_MOST;
    for (size_t at = 0; good && at < n && f->n < most;) {
        const char *end = memchr(text + at, '&', n - at);
        size_t len = end ? (size_t)(end - text) - at : n - at;
        const char *equals = memchr(text + at, '=', len);
        size_t name = equals ? (size_t)(equals - text) - at : len;
        size_t a = url_decode(decoded, text + at, name);
        size_t b = equals ? url_decode(decoded + a, equals + 1, len - name - 1) : 0;
        if (len) good = add(f, decoded, a, decoded + a, b);
        at += len + 1;
    }
    free(decoded);
    return good;
}

/* ---- multipart/form-data (RFC 7578) ---- */

/* The value of a parameter such as name="q" in n bytes of a header; NULL: it has none. */
static const char *parameter(const char *header, size_t n, const char *name, size_t *len)
{
    size_t k = strlen(name);
    for (size_t i = 0; i + k + 1 < n; i++) {
        bool begins = i == 0 || strchr("; \t", header[i - 1]);
        if (!begins || strncasecmp(header + i, name, k) || header[i + k] != '=') continue;
        const char *value = header + i + k + 1, *end = header + n;
        bool quoted = *value == '"';
        if (quoted) value++;
        const char *p = value;
        while (p < end && !(quoted ? *p == '"' : strchr("; \t\r\n", *p) != NULL)) p++;
        *len = (size_t)(p - value);
        return value;
    }
    return NULL;
}

/* Adds one part: its headers, an empty line, its value. */
static bool read_part(struct fields *f, const char *part, size_t n)
{
    const char *body = memmem(part, n, "\r\n\r\n", 4);
    if (!body) return false;
    size_t head = (size_t)(body - part), name_n;
    const char *name = parameter(part, head, "name", &name_n);
    return name && add(f, name, name_n, body + 4, n - head - 4);
}

bool fields_read_multipart(struct fields *f, const char *type, const char *text, size_t n)
{
    size_t len;
    const char *boundary = parameter(type, strlen(type), "boundary", &len);
    char mark[80] = "\r\n--"; /* a boundary has at most 70 characters */
    if (!boundary || len == 0 || len > 70) return false;
    memcpy(mark + 4, boundary, len);
    len += 4;
    /* the first mark needs no line end before it */
    if (n < len - 2 || memcmp(text, mark + 2, len - 2)) return false;
    const char *end = text + n, *at = text + len - 2;
    for (int parts = 0; parts < FIELDS_MOST; parts++) {
        if (end - at >= 2 && !memcmp(at, "--", 2)) return true;
        if (end - at < 2 || memcmp(at, "\r\n", 2)) return false;
        at += 2;
        const char *next = memmem(at, (size_t)(end - at), mark, len);
        if (!next || !read_part(f, at, (size_t)(next - at))) return false;
        at = next + len;
    }
    return false;
}
