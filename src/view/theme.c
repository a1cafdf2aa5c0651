/*
 * theme.c - the colours of svg.h in both themes; see theme.h.
 *
 * The colours of series differ by at least 0.09 in OKLab also for readers who do not see red or
 * green, and have a contrast of at least 3 with the background. Ramps change their lightness
 * steadily from the background to the far end, so that they are ordered for every reader and in
 * print.
 */
#include "view/theme.h"

#include <math.h>

static const struct rgb fixed[][2] = {
    [SVG_PAPER] = {{0xff, 0xff, 0xff}, {0x0d, 0x11, 0x17}},
    [SVG_INK] = {{0x1f, 0x23, 0x28}, {0xe6, 0xed, 0xf3}},
    [SVG_FAINT] = {{0x59, 0x63, 0x6e}, {0x9a, 0xa4, 0xaf}},
    [SVG_GRID] = {{0xd8, 0xde, 0xe4}, {0x30, 0x36, 0x3d}},
};

static const struct rgb series[SVG_SERIES_N][2] = {
    {{0x15, 0x20, 0x93}, {0x6c, 0x9f, 0xf3}}, /* blue */
    {{0xf0, 0x5a, 0x05}, {0xe0, 0x9f, 0x90}}, /* orange */
    {{0x56, 0x97, 0xa6}, {0x94, 0xe2, 0xed}}, /* teal */
    {{0x7c, 0x16, 0x5b}, {0xe6, 0x4f, 0xa2}}, /* pink */
    {{0x6b, 0x59, 0x18}, {0xfe, 0xd1, 0x01}}, /* yellow */
    {{0x54, 0x52, 0xe8}, {0x82, 0x4c, 0xd0}}, /* violet */
    {{0x14, 0x3b, 0x1b}, {0x16, 0xa9, 0x1f}}, /* green */
    {{0xb8, 0x3d, 0x62}, {0x91, 0x5c, 0x58}}, /* red */
};

/* Colours at equal distances along a ramp; those between are interpolated. */
enum { STOPS = 7 };
static const struct rgb weight_stop[2][STOPS] = {
    {{0xff, 0xff, 0xff},
     {0xd6, 0xec, 0xe1},
     {0x93, 0xd2, 0xc8},
     {0x4e, 0xae, 0xc3},
     {0x2a, 0x80, 0xb8},
     {0x27, 0x52, 0x9a},
     {0x1a, 0x27, 0x63}},
    {{0x0d, 0x11, 0x17},
     {0x1c, 0x2b, 0x5e},
     {0x28, 0x50, 0x92},
     {0x2f, 0x7f, 0xb4},
     {0x52, 0xb0, 0xb4},
     {0x9f, 0xd9, 0xa2},
     {0xf4, 0xf7, 0xb4}},
};
static const struct rgb signed_stop[2][STOPS] = {
    {{0x7f, 0x2a, 0x04},
     {0xd9, 0x5f, 0x0e},
     {0xfd, 0xb8, 0x7c},
     {0xff, 0xff, 0xff},
     {0x92, 0xc5, 0xde},
     {0x2f, 0x83, 0xc0},
     {0x08, 0x3d, 0x7a}},
    {{0xff, 0xc9, 0x99},
     {0xd2, 0x74, 0x2c},
     {0x6b, 0x35, 0x14},
     {0x0d, 0x11, 0x17},
     {0x17, 0x46, 0x74},
     {0x3a, 0x8f, 0xd0},
     {0xa8, 0xdc, 0xff}},
};

enum svg_colour svg_series(int i)
{
    return (enum svg_colour)(SVG_SERIES + i % SVG_SERIES_N);
}

static int step_of(double part)
{
    double at = part < 0 || isnan(part) ? 0 : part > 1 ? 1 : part;
    return (int)lround(at * SVG_RAMP_MAX);
}

enum svg_colour svg_ramp(double value)
{
    return (enum svg_colour)(SVG_WEIGHT + step_of(value));
}

enum svg_colour svg_signed_ramp(double value)
{
    return (enum svg_colour)(SVG_SIGNED + step_of((value + 1) / 2));
}

static unsigned char between(unsigned char a, unsigned char b, double part)
{
    return (unsigned char)lround(a + (b - a) * part);
}

static struct rgb ramp_rgb(const struct rgb stop[STOPS], int step)
{
    double at = (double)step * (STOPS - 1) / SVG_RAMP_MAX;
    int i = at < STOPS - 1 ? (int)at : STOPS - 2;
    struct rgb a = stop[i], b = stop[i + 1];
    double part = at - i;
    return (struct rgb){between(a.r, b.r, part), between(a.g, b.g, part), between(a.b, b.b, part)};
}

struct rgb theme_rgb(enum svg_colour c, bool dark)
{
    if (c >= SVG_SIGNED) return ramp_rgb(signed_stop[dark], (int)c - SVG_SIGNED);
    if (c >= SVG_WEIGHT) return ramp_rgb(weight_stop[dark], (int)c - SVG_WEIGHT);
    if (c >= SVG_SERIES) return series[c - SVG_SERIES][dark];
    return fixed[c][dark];
}

void theme_class(char out[THEME_CLASS], enum svg_colour c)
{
    static const char *const name[] = {
        [SVG_PAPER] = "paper", [SVG_INK] = "ink", [SVG_FAINT] = "faint", [SVG_GRID] = "grid"};
    if (c >= SVG_SIGNED)
        snprintf(out, THEME_CLASS, "d%d", (int)c - SVG_SIGNED);
    else if (c >= SVG_WEIGHT)
        snprintf(out, THEME_CLASS, "w%d", (int)c - SVG_WEIGHT);
    else if (c >= SVG_SERIES)
        snprintf(out, THEME_CLASS, "s%d", (int)c - SVG_SERIES);
    else
        snprintf(out, THEME_CLASS, "%s", name[c]);
}

void theme_rules(FILE *f, const bool *fills, const bool *strokes, bool dark, bool important)
{
    const char *end = important ? " !important" : "";
    for (int c = SVG_PAPER; c < SVG_COLOURS; c++) {
        char name[THEME_CLASS];
        struct rgb v = theme_rgb((enum svg_colour)c, dark);
        theme_class(name, (enum svg_colour)c);
        if (fills[c]) fprintf(f, ".%s{fill:#%02x%02x%02x%s}\n", name, v.r, v.g, v.b, end);
        if (strokes[c]) fprintf(f, ".%s-line{stroke:#%02x%02x%02x%s}\n", name, v.r, v.g, v.b, end);
    }
}

static void variables(FILE *f, bool dark)
{
    fputs(":root {\n", f);
    for (int c = SVG_PAPER; c < SVG_COLOURS; c++) {
        char name[THEME_CLASS];
        struct rgb v = theme_rgb((enum svg_colour)c, dark);
        theme_class(name, (enum svg_colour)c);
        fprintf(f, "    --%s: #%02x%02x%02x;\n", name, v.r, v.g, v.b);
    }
    fputs("}\n", f);
}

void theme_variables(FILE *f)
{
    variables(f, false);
    fputs("@media (prefers-color-scheme: dark) {\n", f);
    variables(f, true);
    fputs("}\n", f);
}
