/*
 * assets.h - the files of the page that the server delivers, which the program holds in itself.
 * cmake/assets.cmake writes their table, build/embedded/assets.c, from src/serve/web and from the
 * explorer of src/view.
 */
#ifndef HEED_SERVE_ASSETS_H
#define HEED_SERVE_ASSETS_H
#include <stddef.h>

struct asset {
    const char *name; /* such as "index.html" */
    const char *type; /* value of Content-Type */
    const unsigned char *data;
    size_t n;
    const char *etag; /* a strong one, in its quotation marks: a hash of the content */
};

/* NULL: there is no file of this name. */
const struct asset *asset_find(const char *name);

#endif
