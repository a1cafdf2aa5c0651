/*
 * picture.c - see picture.h.
 */
#include "cli/picture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/cli.h"
#include "cli/out_file.h"

static const struct {
    enum picture_ending ending;
    const char *name;
    enum heed_picture kind;
} formats[] = {{PICTURE_SVG, ".svg", HEED_PICTURE_SVG},
               {PICTURE_PNG, ".png", HEED_PICTURE_SVG},
               {PICTURE_HTML, ".html", HEED_PICTURE_HTML},
               {PICTURE_JSON, ".json", HEED_PICTURE_JSON},
               {PICTURE_MARKDOWN, ".md", HEED_PICTURE_MARKDOWN}};
enum { FORMATS = sizeof formats / sizeof formats[0] };

struct option picture_theme_option(const char **theme)
{
    return (struct option){"theme", NULL, "of a .png; an .svg follows the reader's",
                           .string = theme, .choices = "light|dark"};
}

enum heed_theme picture_theme(const char *name)
{
    return strcmp(name, "dark") == 0 ? HEED_THEME_DARK : HEED_THEME_LIGHT;
}

static bool ends_with(const char *path, const char *ending)
{
    size_t n = strlen(path), m = strlen(ending);
    return n > m && strcasecmp(path + n - m, ending) == 0;
}

static int unknown_ending(const char *path, unsigned endings)
{
    char known[64] = "";
    size_t n = 0;
    for (int i = 0; i < FORMATS; i++) {
        if (!(endings & formats[i].ending)) continue;
        endings &= ~(unsigned)formats[i].ending;
        const char *before = n == 0 ? "" : endings ? ", " : " or ";
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", before, formats[i].name);
    }
    return cli_misuse("--out is %s, expected a name that ends in %s", path, known);
}

int picture_file_init(struct picture_file *f, const char *path, unsigned endings)
{
    for (int i = 0; i < FORMATS; i++) {
        if ((endings & formats[i].ending) && ends_with(path, formats[i].name)) {
            *f = (struct picture_file){path, formats[i].kind, formats[i].ending == PICTURE_PNG};
            return CLI_DONE;
        }
    }
    return unknown_ending(path, endings);
}

static int write_bytes(const char *path, const void *data, size_t n)
{
    struct out_file out;
    int code = out_file_open(&out, path);
    if (code != CLI_DONE) return code;
    fwrite(data, 1, n, out.to);
    return out_file_finish(&out);
}

int picture_file_write(const struct picture_file *f, const char *text, enum heed_theme theme)
{
    const double scale = 2; /* sharp on screens with small pixels */
    if (!f->png) return write_bytes(f->path, text, strlen(text));
    struct heed_error err = {0};
    unsigned char *png = NULL;
    size_t n = 0;
    if (heed_png_of_svg(text, theme, scale, &png, &n, &err) != HEED_OK) {
        return cli_failure("cannot write %s: %s", f->path, err.text);
    }
    int code = write_bytes(f->path, png, n);
    free(png);
    return code;
}

enum heed_picture picture_kind(const struct picture_file *f, bool json)
{
    return f->path ? f->kind : json ? HEED_PICTURE_JSON : HEED_PICTURE_TERMINAL;
}

int picture_show(const struct picture_file *f, const char *text, enum heed_theme theme)
{
    if (f->path) return picture_file_write(f, text, theme);
    fputs(text, stdout);
    return cli_flush();
}
