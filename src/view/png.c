/*
 * png.c - heed_png_of_svg: librsvg draws the SVG, cairo writes the PNG.
 *
 * librsvg is loaded when a PNG is asked for, so that the program starts as fast without it and runs
 * on machines that lack it. It is never unloaded: GLib, which it needs, cannot be.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "view/svg.h"

#define LIBRARY "librsvg-2.so.2"

/* The parts of the libraries' interfaces that are used; both keep them stable. */
struct g_error {
    unsigned domain;
    int code;
    char *message;
};
struct rsvg_rectangle {
    double x, y, width, height;
};
enum { CAIRO_FORMAT_ARGB32 = 0, CAIRO_STATUS_SUCCESS = 0, CAIRO_STATUS_WRITE_ERROR = 11 };
enum { CAIRO_SIZE_MAX = 32767 }; /* pixels */

struct rsvg {
    void *(*new_from_data)(const void *data, size_t len, struct g_error **error);
    int (*set_stylesheet)(void *handle, const void *css, size_t len, struct g_error **error);
    int (*intrinsic_size)(void *handle, double *width, double *height);
    int (*render_document)(void *handle, void *cairo, const struct rsvg_rectangle *viewport,
                           struct g_error **error);
    void (*unref)(void *object);
    void (*error_free)(struct g_error *error);
    void *(*surface_create)(int format, int width, int height);
    int (*surface_status)(void *surface);
    int (*surface_write)(void *surface, int (*write)(void *to, const void *data, unsigned n),
                         void *to);
    void (*surface_destroy)(void *surface);
    void *(*cairo_create)(void *surface);
    void (*cairo_destroy)(void *cairo);
};

/* librsvg needs cairo and GLib, so their functions are found through its handle too. */
static enum heed_status rsvg_load(struct rsvg *r, struct heed_error *err)
{
    const struct {
        const char *name;
        void *to;
    } symbol[] = {
        {"rsvg_handle_new_from_data", &r->new_from_data},
        {"rsvg_handle_set_stylesheet", &r->set_stylesheet},
        {"rsvg_handle_get_intrinsic_size_in_pixels", &r->intrinsic_size},
        {"rsvg_handle_render_document", &r->render_document},
        {"g_object_unref", &r->unref},
        {"g_error_free", &r->error_free},
        {"cairo_image_surface_create", &r->surface_create},
        {"cairo_surface_status", &r->surface_status},
        {"cairo_surface_write_to_png_stream", &r->surface_write},
        {"cairo_surface_destroy", &r->surface_destroy},
        {"cairo_create", &r->cairo_create},
        {"cairo_destroy", &r->cairo_destroy},
    };
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return error_set(err, HEED_EUNSUPPORTED,
                         "a PNG needs librsvg (Debian's package librsvg2-2), which cannot be "
                         "loaded: %s; an SVG needs nothing",
                         dlerror());
    for (size_t i = 0; i < sizeof symbol / sizeof symbol[0]; i++) {
        void *found = dlsym(library, symbol[i].name);
        if (!found)
            return error_set(err, HEED_EUNSUPPORTED,
                             "a PNG needs librsvg 2.52 or newer: " LIBRARY " has no %s",
                             symbol[i].name);
        memcpy(symbol[i].to, &found, sizeof found);
    }
    return HEED_OK;
}

static int append(void *to, const void *data, unsigned n)
{
    FILE *f = to;
    return fwrite(data, 1, n, f) == n ? CAIRO_STATUS_SUCCESS : CAIRO_STATUS_WRITE_ERROR;
}

static enum heed_status encode(const struct rsvg *r, void *surface, unsigned char **png, size_t *n,
                               struct heed_error *err)
{
    char *data = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&data, &len);
    bool bad = !f || r->surface_write(surface, append, f) != CAIRO_STATUS_SUCCESS;
    if (f && fclose(f)) bad = true;
    if (bad) {
        free(data);
        return error_set(err, HEED_ENOMEM, "out of memory: a PNG");
    }
    *png = (unsigned char *)data;
    *n = len;
    return HEED_OK;
}

static enum heed_status refused(const struct rsvg *r, struct g_error *why, struct heed_error *err)
{
    enum heed_status s = error_set(err, HEED_EARG, "librsvg cannot draw the SVG: %s",
                                   why ? why->message : "it gives no reason");
    if (why) r->error_free(why);
    return s;
}

static enum heed_status draw(const struct rsvg *r, void *handle, double scale, unsigned char **png,
                             size_t *n, struct heed_error *err)
{
    double width = 0, height = 0;
    struct g_error *why = NULL;
    r->intrinsic_size(handle, &width, &height);
    if (!(width >= 1 && height >= 1))
        return error_set(err, HEED_EARG, "the SVG is %g by %g pixels, expected at least 1 by 1",
                         width, height);
    double longest = width > height ? width : height;
    if (longest * scale > CAIRO_SIZE_MAX) scale = CAIRO_SIZE_MAX / longest;
    void *surface =
        r->surface_create(CAIRO_FORMAT_ARGB32, (int)(width * scale), (int)(height * scale));
    void *cairo = r->cairo_create(surface);
    const struct rsvg_rectangle page = {0, 0, (int)(width * scale), (int)(height * scale)};
    enum heed_status s;
    if (r->surface_status(surface) != CAIRO_STATUS_SUCCESS)
        s = error_set(err, HEED_ENOMEM, "out of memory: a PNG of %.0f by %.0f pixels", page.width,
                      page.height);
    else if (!r->render_document(handle, cairo, &page, &why))
        s = refused(r, why, err);
    else
        s = encode(r, surface, png, n, err);
    r->cairo_destroy(cairo);
    r->surface_destroy(surface);
    return s;
}

enum heed_status heed_png_of_svg(const char *svg, enum heed_theme theme, double scale,
                                 unsigned char **png, size_t *n, struct heed_error *err)
{
    if (!svg) return error_null(err, "svg");
    if (!png) return error_null(err, "png");
    if (!n) return error_null(err, "n");
    if (!(scale > 0 && scale <= 16))
        return error_set(err, HEED_EARG, "scale is %g, expected more than 0 and at most 16", scale);
    struct rsvg r;
    struct g_error *why = NULL;
    enum heed_status s = rsvg_load(&r, err);
    if (s) return s;
    char *rules = theme == HEED_THEME_DARK ? svg_dark_rules() : NULL;
    if (theme == HEED_THEME_DARK && !rules)
        return error_set(err, HEED_ENOMEM, "out of memory: a PNG");
    void *handle = r.new_from_data(svg, strlen(svg), &why);
    if (!handle || (rules && !r.set_stylesheet(handle, rules, strlen(rules), &why)))
        s = refused(&r, why, err);
    else
        s = draw(&r, handle, scale, png, n, err);
    if (handle) r.unref(handle);
    free(rules);
    return s;
}
