/*
 * svg_axis.c - axes with round values, legends and the key of a colour ramp; see svg.h.
 */
#include <math.h>
#include <string.h>

#include "view/svg.h"

enum { TICKS_MAX = 64, TICK_FONT = 12, TICK_GAP = 6 };

/* ---- round values ---- */

/* The smallest of 1, 2, 5, 10, 20, ... times a power of ten that is at least x. */
static double round_up(double x)
{
    double power = pow(10, floor(log10(x)));
    double part = x / power;
    const double slack = 1 + 1e-9; /* 3 * 0.1 is a little more than 0.3 */
    return power * (part <= slack ? 1 : part <= 2 * slack ? 2 : part <= 5 * slack ? 5 : 10);
}

static double linear_step(double lo, double hi, int parts)
{
    return round_up((hi - lo) / parts);
}

struct svg_axis svg_axis_over(double lo, double hi, bool log, double from, double to)
{
    enum { PARTS = 6 };
    if (!(lo <= hi) || !isfinite(lo) || !isfinite(hi)) lo = log ? 1 : 0, hi = log ? 10 : 1;
    if (log && hi <= 0) lo = 1, hi = 10;
    if (log && lo <= 0) lo = hi / 1000;
    if (lo == hi && log) lo /= 2, hi *= 2;
    if (lo == hi) hi += lo != 0 ? fabs(lo) / 10 : 1;
    struct svg_axis a = {.lo = lo, .hi = hi, .log = log, .from = from, .to = to};
    if (!log) {
        double step = linear_step(lo, hi, PARTS);
        a.lo = step * floor(lo / step + 1e-9);
        a.hi = step * ceil(hi / step - 1e-9);
    } else if (hi / lo >= 100) {
        a.lo = pow(10, floor(log10(lo) + 1e-9));
        a.hi = pow(10, ceil(log10(hi) - 1e-9));
    }
    return a;
}

double svg_axis_at(const struct svg_axis *a, double value)
{
    double part =
        a->log ? log(value / a->lo) / log(a->hi / a->lo) : (value - a->lo) / (a->hi - a->lo);
    return a->from + part * (a->to - a->from);
}

static bool within(const struct svg_axis *a, double v)
{
    double slack = (a->hi - a->lo) * 1e-9;
    return v >= a->lo - slack && v <= a->hi + slack;
}

/* Powers of ten, or, where these are few, also 2 and 5 times as much; every second, third, ...
 * power where there are too many. */
static int log_ticks(const struct svg_axis *a, double *tick, int max)
{
    int first = (int)floor(log10(a->lo)), last = (int)ceil(log10(a->hi)), n = 0;
    bool few = a->hi / a->lo < 100 && max >= 6;
    int every = (last - first) / max + 1;
    for (int e = first; e <= last; e += every) {
        static const double times[] = {1, 2, 5};
        for (int i = 0; i < (few ? 3 : 1); i++) {
            double v = times[i] * pow(10, e);
            if (within(a, v) && n < max) tick[n++] = v;
        }
    }
    return n;
}

int svg_axis_ticks(const struct svg_axis *a, double *tick, int max)
{
    if (a->log) return log_ticks(a, tick, max);
    int n = 0;
    double step = linear_step(a->lo, a->hi, max > 2 ? max - 1 : 1);
    for (double k = ceil(a->lo / step - 1e-9); n < max && within(a, k * step); k++)
        tick[n++] = k == 0 ? 0 : k * step;
    return n;
}

void svg_number(char out[SVG_NUMBER], double value)
{
    double size = fabs(value);
    if (size >= 1e9 || (size > 0 && size < 1e-4)) {
        snprintf(out, SVG_NUMBER, "%.3g", value);
    } else if (size >= 1e4 && value == floor(value)) {
        long long n = (long long)size;
        char digits[SVG_NUMBER];
        int len = snprintf(digits, sizeof digits, "%lld", n), at = 0;
        if (value < 0) out[at++] = '-';
        for (int i = 0; i < len; i++) {
            if (i && (len - i) % 3 == 0) out[at++] = ',';
            out[at++] = digits[i];
        }
        out[at] = '\0';
    } else {
        snprintf(out, SVG_NUMBER, "%.6g", value);
    }
}

/* ---- axes ---- */

static double widest_number(const double *v, int n)
{
    double most = 0;
    for (int i = 0; i < n; i++) {
        char text[SVG_NUMBER];
        svg_number(text, v[i]);
        most = fmax(most, svg_text_width(text, TICK_FONT));
    }
    return most;
}

/* Ticks of a horizontal axis whose values do not touch each other. */
static int horizontal_ticks(const struct svg_axis *x, double tick[TICKS_MAX])
{
    int n = 0;
    for (int max = 12; max >= 2; max--) {
        n = svg_axis_ticks(x, tick, max);
        double room = widest_number(tick, n) + 2 * TICK_GAP;
        bool fits = true;
        for (int i = 1; i < n; i++)
            fits &= fabs(svg_axis_at(x, tick[i]) - svg_axis_at(x, tick[i - 1])) >= room;
        if (fits) return n;
    }
    return n > 1 ? 1 : n;
}

void svg_axis_below(struct svg *s, const struct svg_axis *x, double top, double bottom,
                    const char *label)
{
    const struct svg_pen grid = {.colour = SVG_GRID}, ink = {.colour = SVG_INK};
    double tick[TICKS_MAX];
    int n = horizontal_ticks(x, tick);
    for (int i = 0; i < n; i++) {
        double at = svg_axis_at(x, tick[i]);
        char text[SVG_NUMBER];
        svg_number(text, tick[i]);
        svg_line(s, at, top, at, bottom, &grid);
        svg_text(s, &(struct svg_text){at, bottom + 18, TICK_FONT, SVG_MIDDLE, SVG_FAINT, false, 0},
                 text);
    }
    svg_line(s, x->from, bottom, x->to, bottom, &ink);
    svg_text(s,
             &(struct svg_text){.x = (x->from + x->to) / 2, .y = bottom + 37, .anchor = SVG_MIDDLE},
             label);
}

/* Ticks of a vertical axis: at least 28 pixels apart. */
static int vertical_ticks(const struct svg_axis *y, double tick[TICKS_MAX])
{
    int max = (int)(fabs(y->to - y->from) / 28) + 1;
    return svg_axis_ticks(y, tick, max > TICKS_MAX ? TICKS_MAX : max);
}

double svg_axis_width(const struct svg_axis *y)
{
    double tick[TICKS_MAX];
    int n = vertical_ticks(y, tick);
    return widest_number(tick, n) + TICK_GAP;
}

void svg_axis_left(struct svg *s, const struct svg_axis *y, double left, double right)
{
    const struct svg_pen grid = {.colour = SVG_GRID};
    double tick[TICKS_MAX];
    int n = vertical_ticks(y, tick);
    for (int i = 0; i < n; i++) {
        double at = svg_axis_at(y, tick[i]);
        char text[SVG_NUMBER];
        svg_number(text, tick[i]);
        svg_line(s, left, at, right, at, &grid);
        svg_text(
            s, &(struct svg_text){left - TICK_GAP, at + 4, TICK_FONT, SVG_END, SVG_FAINT, false, 0},
            text);
    }
}

/* ---- legends ---- */

enum { LEGEND_LINE = 20 };

/* Draws sample i of a legend from x on; `middle` is the height of its middle. */
typedef void sample_draw(struct svg *s, double x, double middle, int i);

static double legend(struct svg *s, sample_draw *sample, double sample_width, double x, double y,
                     double width, const char *const *name, int n)
{
    enum { GAP = 6, BETWEEN = 18 };
    double at = 0, height = n ? LEGEND_LINE : 0;
    for (int i = 0; i < n; i++) {
        double need = sample_width + GAP + svg_text_width(name[i], SVG_FONT);
        if (at > 0 && at + need > width) at = 0, height += LEGEND_LINE;
        if (sample) {
            double middle = y + height - LEGEND_LINE / 2.0;
            sample(s, x + at, middle, i);
            svg_text(s, &(struct svg_text){.x = x + at + sample_width + GAP, .y = middle + 4.5},
                     name[i]);
        }
        at += need + BETWEEN;
    }
    return height;
}

enum { LINE_SAMPLE = 26, BOX_SAMPLE = 11 };

static void line_sample(struct svg *s, double x, double middle, int i)
{
    const struct svg_pen pen = {svg_series(i), 2.5, 0, i};
    svg_line(s, x, middle, x + LINE_SAMPLE, middle, &pen);
}

static void box_sample(struct svg *s, double x, double middle, int i)
{
    svg_rect(s, x, middle - BOX_SAMPLE / 2.0, BOX_SAMPLE, BOX_SAMPLE, svg_series(i));
}

double svg_legend(struct svg *s, bool draw, double x, double y, double width,
                  const char *const *name, int n)
{
    return legend(s, draw ? line_sample : NULL, LINE_SAMPLE, x, y, width, name, n);
}

double svg_box_legend(struct svg *s, bool draw, double x, double y, double width,
                      const char *const *name, int n)
{
    return legend(s, draw ? box_sample : NULL, BOX_SAMPLE, x, y, width, name, n);
}

void svg_ramp_key(struct svg *s, double x, double y, bool is_signed, double lo, double hi,
                  const char *label)
{
    enum { BAR = 12 };
    double step = (double)SVG_KEY_WIDTH / (SVG_RAMP_MAX + 1);
    svg_text(s, &(struct svg_text){.x = x, .y = y + 10, .size = TICK_FONT, .colour = SVG_FAINT},
             label);
    for (int i = 0; i <= SVG_RAMP_MAX; i++) {
        double part = (double)i / SVG_RAMP_MAX;
        /* A little wider than the step, so that no gap shows between two colours. */
        svg_rect(s, x + i * step, y + 15, step + (i < SVG_RAMP_MAX ? 0.5 : 0), BAR,
                 is_signed ? svg_signed_ramp(2 * part - 1) : svg_ramp(part));
    }
    const struct svg_pen edge = {.colour = SVG_GRID};
    svg_path_begin(s, &edge, SVG_NONE);
    svg_data(s, "M%.10g %.10gh%dv%dh-%dz", x, y + 15, SVG_KEY_WIDTH, BAR, SVG_KEY_WIDTH);
    svg_path_end(s);
    for (int i = 0; i <= 2; i++) {
        char text[SVG_NUMBER];
        snprintf(text, sizeof text, "%.3g", lo + (hi - lo) * i / 2);
        svg_text(s,
                 &(struct svg_text){x + i * SVG_KEY_WIDTH / 2.0, y + 15 + BAR + 14, TICK_FONT,
                                    (enum svg_anchor)i, SVG_FAINT, false, 0},
                 text);
    }
}
