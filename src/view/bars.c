/*
 * bars.c - horizontal bars; see bars.h.
 */
#include "view/bars.h"

#include <math.h>

enum { MARGIN = 16, BAR = 9, GAP = 8, PLOT = 520, TICKS_WIDTH = 40 };

static double names_width(const struct bars *b)
{
    double most = 0;
    for (int i = 0; i < b->rows; i++) most = fmax(most, svg_text_width(b->row[i], SVG_FONT));
    return most;
}

static struct svg_axis axis_of(const struct bars *b, double from)
{
    double lo = 0, hi = 0;
    for (int i = 0; i < b->rows * b->n; i++) {
        if (!isfinite(b->value[i])) continue;
        lo = fmin(lo, b->value[i]);
        hi = fmax(hi, b->value[i]);
    }
    if (lo == hi) hi = 1;
    return svg_axis_over(lo, hi, false, from, from + PLOT);
}

static void draw_row(struct svg *s, const struct bars *b, const struct svg_axis *x, int row,
                     double y)
{
    double zero = svg_axis_at(x, 0), height = (double)b->n * BAR;
    svg_text(s,
             &(struct svg_text){
                 .x = x->from - 8, .y = y + height / 2 + SVG_FONT * 0.35, .anchor = SVG_END},
             b->row[row]);
    for (int i = 0; i < b->n; i++) {
        double value = b->value[row * b->n + i], at = svg_axis_at(x, value);
        char number[SVG_NUMBER], tip[256];
        if (!isfinite(value)) continue;
        svg_number(number, value);
        snprintf(tip, sizeof tip, "%s, %s: %s", b->row[row], b->series[i], number);
        svg_tip_begin(s, tip);
        svg_rect(s, fmin(zero, at), y + i * BAR, fmax(fabs(at - zero), 0.5), BAR - 1,
                 svg_series(i));
        svg_tip_end(s);
    }
}

enum heed_status bars_picture(const struct bars *b, char **out, struct heed_error *err)
{
    struct svg s;
    double group = (double)b->n * BAR + GAP, left = MARGIN + names_width(b) + 8;
    struct svg_axis x = axis_of(b, left);
    svg_begin(&s, left + PLOT + TICKS_WIDTH, 0, b->heading);
    double y = MARGIN + SVG_HEADING;
    svg_heading(&s, MARGIN, y, b->heading);
    if (b->note) {
        y += SVG_FONT + 8;
        svg_text(&s, &(struct svg_text){.x = MARGIN, .y = y, .colour = SVG_FAINT}, b->note);
    }
    y += 12;
    y += svg_legend(&s, true, MARGIN, y, s.width - 2 * MARGIN, b->series, b->n) + 8;
    double bottom = y + b->rows * group;
    svg_axis_below(&s, &x, y, bottom, b->x_label);
    for (int i = 0; i < b->rows; i++) draw_row(&s, b, &x, i, y + i * group + GAP / 2.0);
    double zero = svg_axis_at(&x, 0);
    svg_line(&s, zero, y, zero, bottom, &(struct svg_pen){.colour = SVG_INK});
    s.height = bottom + SVG_AXIS_HEIGHT + MARGIN;
    return svg_end(&s, out, err);
}
