/*
 * svg.c - documents, text and shapes; see svg.h. Axes and legends are in svg_axis.c.
 */
#include "view/svg.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "view/theme.h"

/* ---- documents ---- */

void svg_begin(struct svg *s, double width, double height, const char *title)
{
    *s = (struct svg){.width = width, .height = height, .title = title};
    s->locale = c_locale_enter();
    s->to = open_memstream(&s->body, &s->body_len);
    s->fills[SVG_PAPER] = true;
}

/* Writes text with XML's own characters as entities, and U+FFFD for bytes and control characters
 * that XML does not allow. */
static void escape(FILE *f, const char *text)
{
    size_t n;
    for (size_t left = strlen(text); left; text += n, left -= n) {
        int32_t c = 0;
        n = utf8_next(text, left, &c);
        if (n == 0 || utf8_control(text, left) || c == 0xfffe || c == 0xffff) {
            n = n ? n : 1;
            fputs(UTF8_REPLACEMENT, f);
        } else if (c == '<') {
            fputs("&lt;", f);
        } else if (c == '>') {
            fputs("&gt;", f);
        } else if (c == '&') {
            fputs("&amp;", f);
        } else if (c == '"') {
            fputs("&quot;", f);
        } else {
            fwrite(text, 1, n, f);
        }
    }
}

static void document(FILE *f, const struct svg *s)
{
    double w = ceil(s->width), h = ceil(s->height);
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 "
            "0 %.0f %.0f\" role=\"img\" font-family=\"'Noto Sans', 'DejaVu Sans', 'Noto Sans CJK "
            "SC', 'PingFang SC', 'Microsoft YaHei', sans-serif\" font-size=\"%d\">\n<title>",
            w, h, w, h, SVG_FONT);
    escape(f, s->title);
    fputs("</title>\n<style>\n", f);
    theme_rules(f, s->fills, s->strokes, false, false);
    fputs("@media (prefers-color-scheme: dark) {\n", f);
    theme_rules(f, s->fills, s->strokes, true, false);
    fputs("}\n</style>\n<rect width=\"100%\" height=\"100%\" class=\"paper\"/>\n", f);
    fwrite(s->body, 1, s->body_len, f);
    fputs("</svg>\n", f);
}

enum heed_status svg_end(struct svg *s, char **out, struct heed_error *err)
{
    bool bad = !s->to || ferror(s->to);
    if (s->to && fclose(s->to)) bad = true;
    char *text = NULL;
    size_t len;
    FILE *f = bad ? NULL : open_memstream(&text, &len);
    if (f) document(f, s);
    bad = !f || ferror(f);
    if (f && fclose(f)) bad = true;
    c_locale_leave(s->locale);
    free(s->body);
    if (bad) {
        free(text);
        return error_set(err, HEED_ENOMEM, "out of memory: the picture '%s'", s->title);
    }
    *out = text;
    return HEED_OK;
}

char *svg_dark_rules(void)
{
    bool all[SVG_COLOURS];
    memset(all, true, sizeof all);
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    if (f) theme_rules(f, all, all, true, true);
    if (f && fclose(f)) {
        free(text);
        return NULL;
    }
    return text;
}

/* ---- numbers and attributes ---- */

/* A coordinate: two decimals suffice. */
static double pixel(double x)
{
    double r = round(x * 100) / 100;
    return r == 0 ? 0 : r; /* not "-0" */
}

void svg_data(struct svg *s, const char *format, ...)
{
    if (!s->to) return;
    va_list ap;
    va_start(ap, format);
    vfprintf(s->to, format, ap);
    va_end(ap);
}

static void fill_class(struct svg *s, enum svg_colour c)
{
    char name[THEME_CLASS];
    if (c == SVG_NONE) {
        svg_data(s, " fill=\"none\"");
        return;
    }
    theme_class(name, c);
    s->fills[c] = true;
    svg_data(s, " class=\"%s\"", name);
}

/* The class and the attributes of a shape that is drawn with a pen, and filled. */
static void pen_attributes(struct svg *s, const struct svg_pen *pen, enum svg_colour fill)
{
    static const char *const dash[] = {"7 4", "2 4", "10 3 2 3", "1 2"};
    enum { DASHES = sizeof dash / sizeof dash[0] };
    char line[THEME_CLASS], name[THEME_CLASS] = "";
    theme_class(line, pen->colour);
    s->strokes[pen->colour] = true;
    if (fill) {
        s->fills[fill] = true;
        theme_class(name, fill);
    }
    svg_data(s, " class=\"%s-line%s%s\"", line, fill ? " " : "", name);
    if (!fill) svg_data(s, " fill=\"none\"");
    if (pen->width != 0) svg_data(s, " stroke-width=\"%.10g\"", pixel(pen->width));
    if (pen->opacity != 0) svg_data(s, " stroke-opacity=\"%.3g\"", pen->opacity);
    if (pen->dash) svg_data(s, " stroke-dasharray=\"%s\"", dash[(pen->dash - 1) % DASHES]);
}

/* ---- text ---- */

/* Widths of U+0020 to U+007E in hundredths of the font size, the larger of DejaVu Sans's and Noto
 * Sans's. */
static const unsigned char ascii_width[] = {
    32, 41, 46, 84, 64, 96, 78, 28, 40,  40, 56, 84, 32, 37, 32, 38, 64, 64, 64, 64, 64, 64, 64, 64,
    64, 64, 34, 34, 84, 84, 84, 54, 100, 69, 69, 70, 78, 64, 58, 78, 76, 34, 30, 66, 56, 91, 76, 79,
    61, 79, 70, 64, 62, 74, 69, 99, 69,  62, 69, 40, 38, 40, 84, 50, 50, 62, 64, 55, 64, 62, 36, 64,
    64, 28, 28, 58, 28, 98, 64, 62, 64,  64, 42, 53, 40, 64, 60, 82, 60, 60, 53, 64, 56, 64, 84};

static bool wide_latin(int32_t c)
{
    return c == 0xa9 || c == 0xae || (c >= 0xbc && c <= 0xbe) || c == 0xc6 || c == 0xe6 ||
           c == 0x126 || c == 0x152 || c == 0x153 || c == 0x174;
}

/* Of a font size of 1; the widest character of each script decides. */
static double character_width(int32_t c)
{
    if (c >= ' ' && c < 0x7f) return ascii_width[c - ' '] / 100.0;
    if (c < 0xa0) return 1.1; /* a control character, which is written as U+FFFD */
    if (c < 0x180) return wide_latin(c) ? 1.1 : 0.85;
    if (c < 0x250) return 1.45;                      /* letters such as U+01C4 */
    if (c >= 0x300 && c < 0x370) return 0;           /* combining marks */
    if (c >= 0x200b && c < 0x2010) return 0;         /* characters that cannot be seen */
    if (c < 0x1100) return 1.25;                     /* Cyrillic, Arabic, ... */
    if (c >= 0x1e00 && c < 0x1f00) return 1;         /* Latin for Vietnamese */
    if (c >= 0x2e80 && c < 0xfff0) return 1;         /* Chinese, Japanese, Korean */
    if (c >= 0x20000 && c < 0x40000) return 1;       /* ... */
    return c >= 0x1f000 && c < 0x20000 ? 1.35 : 1.1; /* emoji; symbols and others */
}

double svg_text_width(const char *text, double font_size)
{
    double width = 0;
    size_t n;
    for (size_t left = strlen(text); left; text += n, left -= n) {
        int32_t c = 0;
        n = utf8_next(text, left, &c);
        width += character_width(n ? c : 0);
        n = n ? n : 1;
    }
    return width * font_size;
}

double svg_bold_width(const char *text, double font_size)
{
    return 1.25 * svg_text_width(text, font_size);
}

void svg_text(struct svg *s, const struct svg_text *t, const char *text)
{
    static const char *const anchor[] = {[SVG_START] = "",
                                         [SVG_MIDDLE] = " text-anchor=\"middle\"",
                                         [SVG_END] = " text-anchor=\"end\""};
    if (!s->to) return;
    double x = pixel(t->x), y = pixel(t->y);
    svg_data(s, "<text x=\"%.10g\" y=\"%.10g\"%s", x, y, anchor[t->anchor]);
    fill_class(s, t->colour ? t->colour : SVG_INK);
    if (t->size != 0) svg_data(s, " font-size=\"%.10g\"", pixel(t->size));
    if (t->bold) svg_data(s, " font-weight=\"bold\"");
    if (t->angle != 0) svg_data(s, " transform=\"rotate(%.10g %.10g %.10g)\"", t->angle, x, y);
    svg_data(s, ">");
    escape(s->to, text);
    svg_data(s, "</text>\n");
}

void svg_heading(struct svg *s, double x, double y, const char *text)
{
    svg_text(s, &(struct svg_text){.x = x, .y = y, .size = SVG_HEADING, .bold = true}, text);
}

/* ---- shapes ---- */

void svg_rect(struct svg *s, double x, double y, double w, double h, enum svg_colour fill)
{
    svg_data(s, "<rect x=\"%.10g\" y=\"%.10g\" width=\"%.10g\" height=\"%.10g\"", pixel(x),
             pixel(y), pixel(w), pixel(h));
    fill_class(s, fill);
    svg_data(s, "/>\n");
}

void svg_circle(struct svg *s, double x, double y, double r, enum svg_colour fill)
{
    svg_data(s, "<circle cx=\"%.10g\" cy=\"%.10g\" r=\"%.10g\"", pixel(x), pixel(y), pixel(r));
    fill_class(s, fill);
    svg_data(s, "/>\n");
}

void svg_line(struct svg *s, double x0, double y0, double x1, double y1, const struct svg_pen *pen)
{
    svg_data(s, "<line x1=\"%.10g\" y1=\"%.10g\" x2=\"%.10g\" y2=\"%.10g\"", pixel(x0), pixel(y0),
             pixel(x1), pixel(y1));
    pen_attributes(s, pen, SVG_NONE);
    svg_data(s, "/>\n");
}

void svg_polyline(struct svg *s, const double *x, const double *y, int n, const struct svg_pen *pen)
{
    svg_data(s, "<polyline points=\"");
    for (int i = 0; i < n; i++)
        svg_data(s, "%s%.10g,%.10g", i ? " " : "", pixel(x[i]), pixel(y[i]));
    svg_data(s, "\" stroke-linejoin=\"round\"");
    pen_attributes(s, pen, SVG_NONE);
    svg_data(s, "/>\n");
}

void svg_path_begin(struct svg *s, const struct svg_pen *pen, enum svg_colour fill)
{
    svg_data(s, "<path");
    if (pen)
        pen_attributes(s, pen, fill);
    else
        fill_class(s, fill);
    svg_data(s, " d=\"");
}

void svg_path_end(struct svg *s)
{
    svg_data(s, "\"/>\n");
}

void svg_tip_begin(struct svg *s, const char *text)
{
    svg_data(s, "<g><title>");
    if (s->to) escape(s->to, text);
    svg_data(s, "</title>");
}

void svg_tip_end(struct svg *s)
{
    svg_data(s, "</g>\n");
}
