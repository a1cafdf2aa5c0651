/*
 * curves.c - see curves.h.
 */
#include "view/curves.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"

enum { TITLE_LINE = 20, LABEL_LINE = 22, MARGIN = 16 };

static bool shown(double v, bool log)
{
    return isfinite(v) && (!log || v > 0);
}

static bool point_shown(const struct curves *c, const struct curve *k, int i)
{
    return shown(k->x[i], c->x_log) && shown(k->y[i], c->y_log);
}

/* The least and the greatest x, or y, of all points. */
static void range(const struct curves *c, bool of_y, double *lo, double *hi)
{
    *lo = INFINITY;
    *hi = -INFINITY;
    for (int k = 0; k < c->n; k++)
        for (int i = 0; i < c->curve[k].n; i++) {
            double v = of_y ? c->curve[k].y[i] : c->curve[k].x[i];
            if (!point_shown(c, &c->curve[k], i)) continue;
            *lo = fmin(*lo, v);
            *hi = fmax(*hi, v);
        }
}

static void draw_point(struct svg *s, const struct curve *k, int series, int i, double x, double y)
{
    char tip[256], at_x[SVG_NUMBER], at_y[SVG_NUMBER];
    svg_number(at_x, k->x[i]);
    svg_number(at_y, k->y[i]);
    snprintf(tip, sizeof tip, "%s%s%s: %s", k->name ? k->name : "", k->name ? ", " : "", at_x,
             at_y);
    svg_tip_begin(s, tip);
    svg_circle(s, x, y, 3, svg_series(series));
    svg_tip_end(s);
}

static void draw_curve(struct svg *s, const struct curves *c, int series, const struct svg_axis *x,
                       const struct svg_axis *y)
{
    const struct curve *k = &c->curve[series];
    const struct svg_pen pen = {svg_series(series), 2, 0, series};
    bool open = false;
    for (int i = 0; i < k->n; i++) {
        bool show = point_shown(c, k, i);
        if (open && !show) svg_path_end(s);
        if (!open && show) svg_path_begin(s, &pen, SVG_NONE);
        if (show)
            svg_data(s, "%s%.2f %.2f", open ? "L" : "M", svg_axis_at(x, k->x[i]),
                     svg_axis_at(y, k->y[i]));
        open = show;
    }
    if (open) svg_path_end(s);
    for (int i = 0; i < k->n && c->points; i++)
        if (point_shown(c, k, i))
            draw_point(s, k, series, i, svg_axis_at(x, k->x[i]), svg_axis_at(y, k->y[i]));
}

/* The legend has as many entries as the curves up to the last that has a name. */
static double legend(struct svg *s, bool draw, const struct curves *c, double x, double y, double w)
{
    int n = 0;
    for (int i = 0; i < c->n; i++)
        if (c->curve[i].name) n = i + 1;
    const char **name = calloc((size_t)n + 1, sizeof *name);
    if (!name) return 0; /* a picture without memory fails in svg_end */
    for (int i = 0; i < n; i++) name[i] = c->curve[i].name ? c->curve[i].name : "";
    double height = svg_legend(s, draw, x, y, w, name, n);
    free(name);
    return height;
}

void curves_panel(struct svg *s, const struct curves *c, double x, double y, double w, double h)
{
    double lo, hi;
    svg_text(s, &(struct svg_text){.x = x, .y = y + 14, .bold = true}, c->title);
    y += TITLE_LINE, h -= TITLE_LINE;
    double used = legend(s, true, c, x, y, w);
    y += used, h -= used;
    svg_text(s, &(struct svg_text){.x = x, .y = y + 13, .colour = SVG_FAINT}, c->y_label);
    double top = y + LABEL_LINE, bottom = y + h - SVG_AXIS_HEIGHT;

    range(c, true, &lo, &hi);
    if (c->y_zero && !c->y_log && lo > 0) lo = 0;
    struct svg_axis vertical = svg_axis_over(lo, hi, c->y_log, bottom, top);
    double left = x + svg_axis_width(&vertical), right = x + w - MARGIN;
    range(c, false, &lo, &hi);
    struct svg_axis horizontal = svg_axis_over(lo, hi, c->x_log, left, right);
    svg_axis_left(s, &vertical, left, right);
    svg_axis_below(s, &horizontal, top, bottom, c->x_label);
    for (int i = 0; i < c->n; i++) draw_curve(s, c, i, &horizontal, &vertical);
}

enum heed_status curves_picture(const struct curves *panel, int n, const char *heading,
                                const char *note, char **out, struct heed_error *err)
{
    enum { WIDTH = 440, HEIGHT = 320, HEAD = 44, NOTE = 22 };
    int across = n > 1 ? 2 : 1, down = (n + across - 1) / across;
    double width = MARGIN + across * (WIDTH + MARGIN);
    double head = note ? HEAD + NOTE : HEAD;
    width = fmax(width, svg_bold_width(heading, SVG_HEADING) + 2 * MARGIN);
    if (note) width = fmax(width, svg_text_width(note, SVG_FONT) + 2 * MARGIN);
    /* Panels are equally high; a long legend makes them higher. */
    double high = HEIGHT;
    for (int i = 0; i < n; i++)
        high = fmax(high, HEIGHT - TITLE_LINE + legend(NULL, false, &panel[i], 0, 0, WIDTH));
    struct svg s;
    svg_begin(&s, width, head + down * (high + MARGIN), heading);
    svg_heading(&s, MARGIN, 28, heading);
    if (note) svg_text(&s, &(struct svg_text){.x = MARGIN, .y = 50, .colour = SVG_FAINT}, note);
    for (int i = 0; i < n; i++)
        curves_panel(&s, &panel[i], MARGIN + i % across * (WIDTH + MARGIN),
                     head + i / across * (high + MARGIN), WIDTH, high);
    return svg_end(&s, out, err);
}
