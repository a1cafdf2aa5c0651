/*
 * svg.h - the one place where SVG is written: documents with a light and a dark theme, text that is
 * escaped and measured, shapes, colour ramps, axes and legends.
 *
 * Call order: svg_begin; shapes; svg_end, which returns the text. A failure to allocate is kept and
 * returned by svg_end, so that the calls between need no checks. Coordinates are pixels from the
 * upper left corner; there are no nested transformations, so that what is written can be checked by
 * its coordinates. Numbers are written with a decimal point in every locale.
 *
 * Colours are classes of a style sheet with two sets of rules: the light one, and one for readers
 * who prefer a dark color scheme. Only the rules of the colours that were used are written.
 */
#ifndef HEED_VIEW_SVG_H
#define HEED_VIEW_SVG_H
#include <stdio.h>

#include "base/locale.h"
#include "heed.h"

enum {
    SVG_SERIES_N = 8, /* colours of series, heads or classes */
    SVG_RAMP_MAX = 32 /* number of the last colour of a ramp, which begins at 0 */
};

/* Colours by what they are for. Text is SVG_INK or SVG_FAINT: these two have a contrast of at least
 * 4.5 with the background in both themes. */
enum svg_colour {
    SVG_NONE,  /* no fill */
    SVG_PAPER, /* background */
    SVG_INK,   /* text and axes */
    SVG_FAINT, /* text of less importance */
    SVG_GRID,  /* lines behind the data */
    SVG_SERIES,
    SVG_WEIGHT = SVG_SERIES + SVG_SERIES_N,
    SVG_SIGNED = SVG_WEIGHT + SVG_RAMP_MAX + 1,
    SVG_COLOURS = SVG_SIGNED + SVG_RAMP_MAX + 1
};

/* The colour of series i; more than SVG_SERIES_N series repeat them. */
enum svg_colour svg_series(int i);
/* The colour of a value from 0, which looks like the background, to 1: from light to dark in the
 * light theme, from dark to light in the dark theme. Values outside are limited. */
enum svg_colour svg_ramp(double value);
/* The colour of a value from -1 (orange) over 0 (like the background) to 1 (blue). */
enum svg_colour svg_signed_ramp(double value);

struct svg {
    double width, height;
    const char *title; /* must stay valid until svg_end */
    FILE *to;          /* the shapes so far; NULL: out of memory */
    char *body;
    size_t body_len;
    struct c_locale locale; /* of the caller; the C locale is in force until svg_end */
    bool fills[SVG_COLOURS], strokes[SVG_COLOURS]; /* colours whose rules are needed */
};

/* The title is what screen readers say and browsers show; svg_heading draws it. Width and height
 * may still be changed before svg_end. */
void svg_begin(struct svg *s, double width, double height, const char *title);
/* *out is malloced and NUL-terminated. */
enum heed_status svg_end(struct svg *s, char **out, struct heed_error *err);

/* ---- text ---- */

/* The width of a text in pixels: an estimate that is never too small for DejaVu Sans and Noto Sans
 * and counts Chinese, Japanese and Korean characters as full width. */
double svg_text_width(const char *text, double font_size);
/* The same in bold. */
double svg_bold_width(const char *text, double font_size);

enum svg_anchor { SVG_START, SVG_MIDDLE, SVG_END };
struct svg_text {
    double x, y; /* the baseline at the anchor */
    double size; /* 0: SVG_FONT */
    enum svg_anchor anchor;
    enum svg_colour colour; /* 0: SVG_INK */
    bool bold;
    double angle; /* degrees, clockwise around the anchor */
};
enum { SVG_FONT = 13, SVG_HEADING = 16 };
void svg_text(struct svg *s, const struct svg_text *t, const char *text);
/* A bold line at the usual size of a picture's heading. */
void svg_heading(struct svg *s, double x, double y, const char *text);

/* ---- shapes ---- */

struct svg_pen {
    enum svg_colour colour;
    double width;   /* 0: 1 */
    double opacity; /* 0: 1 */
    int dash;       /* 0: solid; other numbers are other patterns */
};
void svg_rect(struct svg *s, double x, double y, double w, double h, enum svg_colour fill);
void svg_circle(struct svg *s, double x, double y, double r, enum svg_colour fill);
void svg_line(struct svg *s, double x0, double y0, double x1, double y1, const struct svg_pen *pen);
void svg_polyline(struct svg *s, const double *x, const double *y, int n,
                  const struct svg_pen *pen);
/* A path by its data, "M0 0h10", written by the caller with svg_data between begin and end. */
void svg_path_begin(struct svg *s, const struct svg_pen *pen, enum svg_colour fill);
void svg_data(struct svg *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
void svg_path_end(struct svg *s);
/* Shapes between begin and end show this text as a tooltip. */
void svg_tip_begin(struct svg *s, const char *text);
void svg_tip_end(struct svg *s);

/* ---- axes, legends ---- */

/* A range of values and the pixels of its ends. */
struct svg_axis {
    double lo, hi;
    bool log;
    double from, to;
};
/* An axis whose ends are round values and that covers lo to hi. A logarithmic axis of values that
 * are not all above 0 begins at a thousandth of hi. */
struct svg_axis svg_axis_over(double lo, double hi, bool log, double from, double to);
double svg_axis_at(const struct svg_axis *a, double value);
/* Round values within the axis, at most max of them; returns how many there are. */
int svg_axis_ticks(const struct svg_axis *a, double *tick, int max);
/* "10,000", "0.01", "1e9". */
enum { SVG_NUMBER = 32 };
void svg_number(char out[SVG_NUMBER], double value);

/* Grid lines from y = top to y = bottom, tick values below them and the label below these.
 * svg_axis_below needs SVG_AXIS_HEIGHT pixels below `bottom`. */
enum { SVG_AXIS_HEIGHT = 42 };
void svg_axis_below(struct svg *s, const struct svg_axis *x, double top, double bottom,
                    const char *label);
/* Grid lines from x = left to x = right and tick values to the left of them; the width that these
 * need is svg_axis_width. The label of a vertical axis is drawn by the caller above it, where it
 * can be read without turning the head. */
void svg_axis_left(struct svg *s, const struct svg_axis *y, double left, double right);
double svg_axis_width(const struct svg_axis *y);

/* A sample of each series with its name, in lines of at most `width` pixels; y is the top. Returns
 * the height. With draw false only that. */
double svg_legend(struct svg *s, bool draw, double x, double y, double width,
                  const char *const *name, int n);
/* The same with squares in place of lines. */
double svg_box_legend(struct svg *s, bool draw, double x, double y, double width,
                      const char *const *name, int n);
/* The colours of svg_ramp, or of svg_signed_ramp, over values from lo to hi, with a label above and
 * values below; y is the top. */
enum { SVG_KEY_WIDTH = 180, SVG_KEY_HEIGHT = 46 };
void svg_ramp_key(struct svg *s, double x, double y, bool is_signed, double lo, double hi,
                  const char *label);

/* Rules that make the dark theme the only one, for a renderer that knows of no color scheme. */
char *svg_dark_rules(void);

#endif
