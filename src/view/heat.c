/*
 * heat.c - see heat.h. Cells of one colour that lie below each other are one rectangle, and all
 * rectangles of a colour are one path, since a map may have a hundred thousand cells.
 */
#include "view/heat.h"

#include <math.h>

enum { TITLE = 42, CELL = 22, TALL = 330, GAP = 12 };

struct heat_range heat_range(const struct heed_heat_map *m)
{
    double lo = 0, hi = 0;
    for (size_t i = 0; i < (size_t)m->rows * m->cols; i++) {
        lo = fmin(lo, (double)m->value[i]);
        hi = fmax(hi, (double)m->value[i]);
    }
    if (lo < 0) lo = -(hi = fmax(hi, -lo));
    return (struct heat_range){lo, hi};
}

static double cells_height(const struct heed_heat_map *m)
{
    return fmin((double)m->rows * CELL, TALL);
}

double heat_height(const struct heed_heat_map *m, double width)
{
    (void)width;
    return TITLE + cells_height(m) + SVG_AXIS_HEIGHT + GAP + SVG_KEY_HEIGHT;
}

static enum svg_colour colour_of(const struct heed_heat_map *m, struct heat_range range, int row,
                                 int col)
{
    double x = (double)m->value[(size_t)row * m->cols + col];
    if (range.hi <= 0) return svg_ramp(0);
    return range.lo < 0 ? svg_signed_ramp(x / range.hi) : svg_ramp(x / range.hi);
}

/* Adds the cells of a colour to a path. Returns whether there are any. */
static bool cells_of(struct svg *s, const struct heed_heat_map *m, struct heat_range range,
                     enum svg_colour colour, bool draw, double x, double y, double w, double h)
{
    for (int c = 0; c < m->cols; c++)
        for (int r = 0, n; r < m->rows; r += n) {
            for (n = 0; r + n < m->rows && colour_of(m, range, r + n, c) == colour;) n++;
            if (n && !draw) return true;
            if (n) svg_data(s, "M%.5g %.5gh%.4gv%.4gh-%.4gz", x + c * w, y + r * h, w, n * h, w);
            if (!n) n = 1;
        }
    return false;
}

static void cells(struct svg *s, const struct heed_heat_map *m, double x, double y, double width)
{
    struct heat_range range = heat_range(m);
    double w = width / m->cols, h = cells_height(m) / m->rows;
    int first = range.lo < 0 ? SVG_SIGNED : SVG_WEIGHT;
    for (int i = 0; i <= SVG_RAMP_MAX; i++) {
        enum svg_colour colour = (enum svg_colour)(first + i);
        if (!cells_of(s, m, range, colour, false, x, y, w, h)) continue;
        svg_path_begin(s, &(struct svg_pen){0}, colour);
        cells_of(s, m, range, colour, true, x, y, w, h);
        svg_path_end(s);
    }
}

void heat_draw(struct svg *s, const struct heed_heat_map *m, double x, double y, double width)
{
    struct heat_range range = heat_range(m);
    double top = y + TITLE, bottom = top + cells_height(m), right = x + width;
    struct svg_axis rows = {
        .lo = m->first_row - 0.5, .hi = m->first_row + m->rows - 0.5, .from = top, .to = bottom};
    double left = x + svg_axis_width(&rows);
    struct svg_axis cols = {
        .lo = m->first_col - 0.5, .hi = m->first_col + m->cols - 0.5, .from = left, .to = right};
    char key[160];
    svg_text(s, &(struct svg_text){.x = x, .y = y + 14, .bold = true}, m->title);
    snprintf(key, sizeof key, "%s down, %s across", m->row, m->col);
    svg_text(s, &(struct svg_text){.x = x, .y = y + 32, .colour = SVG_FAINT, .size = 12}, key);
    svg_axis_left(s, &rows, left, right);
    svg_axis_below(s, &cols, top, bottom, m->col);
    cells(s, m, left, top, right - left);
    svg_ramp_key(s, left, bottom + SVG_AXIS_HEIGHT + GAP, range.lo < 0, range.lo, range.hi,
                 "value");
}
