/*
 * fields.h - names and values from outside: the query of a URL, forms as browsers encode them, the
 * members of a JSON object. Values are UTF-8; what is not is mended where it is read.
 */
#ifndef HEED_SERVE_FIELDS_H
#define HEED_SERVE_FIELDS_H
#include <stdbool.h>
#include <stddef.h>

struct field {
    char *name, *value; /* NUL-terminated; a NUL inside was mended */
};

/* {0} is empty. */
struct fields {
    struct field *v; /* [n] */
    int n;
};
void fields_release(struct fields *f);

/* The value of the first field with this name; NULL: there is none. */
const char *fields_find(const struct fields *f, const char *name);

/* Each adds what it reads; false: out of memory, or, for a multipart body, the body is no such one
 * or has more than FIELDS_MOST parts. */
enum { FIELDS_MOST = 64 };
bool fields_add(struct fields *f, const char *name, const char *value);
/* "q=a%20b&source=en": application/x-www-form-urlencoded */
bool fields_read_urlencoded(struct fields *f, const char *text, size_t n);
/* multipart/form-data; type is the header Content-Type, which says the boundary */
bool fields_read_multipart(struct fields *f, const char *type, const char *text, size_t n);

#endif
