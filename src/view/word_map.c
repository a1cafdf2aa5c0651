/*
 * word_map.c - a map of words: a point for each word with its name beside it, as an SVG, and its
 * coordinates for a terminal and as JSON.
 *
 * Names do not overlap each other: each goes to the nearest free place around its point, and a thin
 * line leads from the point to a name that is not right beside it.
 */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/minmax.h"
#include "view/svg.h"
#include "view/text.h"

/* ---- names without overlap ---- */

enum { SIZE = 14, POINT = 4, LABEL_HEIGHT = 18 };

struct box {
    double x, y, w, h;
};

static bool overlap(struct box a, struct box b)
{
    return a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
}

/* Whether a name in this box touches none of the first n names and none of the points. */
static bool is_free(struct box a, const struct box *name, int n, const double *x, const double *y,
                    int points, struct box page)
{
    if (a.x < page.x || a.y < page.y || a.x + a.w > page.x + page.w || a.y + a.h > page.y + page.h)
        return false;
    for (int i = 0; i < n; i++)
        if (overlap(a, name[i])) return false;
    for (int i = 0; i < points; i++)
        if (overlap(a, (struct box){x[i] - POINT, y[i] - POINT, 2 * POINT, 2 * POINT}))
            return false;
    return true;
}

/* The place of a name of width w beside a point, in one of eight directions and `away` pixels from
 * it. */
static struct box place(double x, double y, double w, int direction, double away)
{
    static const int dx[] = {1, 0, -1, 0, 1, -1, -1, 1}, dy[] = {0, -1, 0, 1, -1, -1, 1, 1};
    double cx = x + dx[direction] * (away + w / 2);
    double cy = y + dy[direction] * (away + LABEL_HEIGHT / 2.0);
    return (struct box){cx - w / 2, cy - LABEL_HEIGHT / 2.0, w, LABEL_HEIGHT};
}

/* Finds places for all names. A name for which there is none lies on the right of its point. */
static void place_names(struct box *name, const struct heed_word_map *m, const double *x,
                        const double *y, struct box page)
{
    for (int i = 0; i < m->n; i++) {
        double w = svg_text_width(m->word[i], SIZE);
        bool found = false;
        name[i] = place(x[i], y[i], w, 0, POINT + 3);
        for (double away = POINT + 3; away < 240 && !found; away += 9)
            for (int k = 0; k < 8 && !found; k++) {
                struct box b = place(x[i], y[i], w, k, away);
                found = is_free(b, name, i, x, y, m->n, page);
                if (found) name[i] = b;
            }
    }
}

/* ---- SVG ---- */

enum { WIDTH = 860, HEIGHT = 640, MARGIN = 28, HEAD = 70 };

/* A line from a point to its name, where that is not right beside it. */
static void leader(struct svg *s, double x, double y, struct box b)
{
    double to_x = fmin(fmax(x, b.x), b.x + b.w), to_y = fmin(fmax(y, b.y), b.y + b.h);
    if (hypot(to_x - x, to_y - y) < 3 * POINT) return;
    svg_line(s, x, y, to_x, to_y, &(struct svg_pen){.colour = SVG_GRID});
}

static void ends_of(const double *v, int n, double *lo, double *hi)
{
    *lo = *hi = v[0];
    for (int i = 1; i < n; i++) *lo = fmin(*lo, v[i]), *hi = fmax(*hi, v[i]);
}

/* Pixels of the coordinates, on one scale for both axes. */
static void scale(const struct heed_word_map *m, double *x, double *y, struct box page)
{
    const double room = 90; /* for names at the sides */
    double x0, x1, y0, y1;
    ends_of(m->x, m->n, &x0, &x1);
    ends_of(m->y, m->n, &y0, &y1);
    double by = fmin((page.w - 2 * room) / fmax(x1 - x0, 1e-9),
                     (page.h - LABEL_HEIGHT * 4) / fmax(y1 - y0, 1e-9));
    for (int i = 0; i < m->n; i++) {
        x[i] = page.x + page.w / 2 + (m->x[i] - (x0 + x1) / 2) * by;
        y[i] = page.y + page.h / 2 - (m->y[i] - (y0 + y1) / 2) * by;
    }
}

static enum heed_status draw(const struct heed_word_map *m, char **out, struct heed_error *err)
{
    const struct box page = {MARGIN, HEAD, WIDTH - 2 * MARGIN, HEIGHT - HEAD - MARGIN};
    double *x = malloc((size_t)m->n * sizeof *x), *y = malloc((size_t)m->n * sizeof *y);
    struct box *name = malloc((size_t)m->n * sizeof *name);
    struct svg s;
    char note[160];
    enum heed_status status = HEED_ENOMEM;
    if (!x || !y || !name) {
        error_memory(err, (size_t)m->n * sizeof *name, "a map of words");
    } else {
        svg_begin(&s, WIDTH, HEIGHT, "Embeddings of words");
        svg_heading(&s, MARGIN, 28, "Embeddings of words on their two principal components");
        snprintf(note, sizeof note, "Across: %.0f%% of the variance; upward: %.0f%%.",
                 100 * m->share[0], 100 * m->share[1]);
        svg_text(&s, &(struct svg_text){.x = MARGIN, .y = 50, .colour = SVG_FAINT}, note);
        scale(m, x, y, page);
        place_names(name, m, x, y, page);
        for (int i = 0; i < m->n; i++) leader(&s, x[i], y[i], name[i]);
        for (int i = 0; i < m->n; i++) svg_circle(&s, x[i], y[i], POINT, svg_series(0));
        for (int i = 0; i < m->n; i++)
            svg_text(&s, &(struct svg_text){.x = name[i].x, .y = name[i].y + 13, .size = SIZE},
                     m->word[i]);
        status = svg_end(&s, out, err);
    }
    free(x);
    free(y);
    free(name);
    return status;
}

/* ---- terminal, JSON ---- */

static void print(FILE *to, const struct heed_word_map *m)
{
    fprintf(to, "     x      y  word  (across: %.0f%% of the variance, upward: %.0f%%)\n",
            100 * m->share[0], 100 * m->share[1]);
    for (int i = 0; i < m->n; i++) {
        fprintf(to, "%6.3f %6.3f  ", m->x[i], m->y[i]);
        text_visible(to, m->word[i]);
        fputc('\n', to);
    }
}

static void json(FILE *to, const struct heed_word_map *m)
{
    fprintf(to, "{\"variance\": [%.6g, %.6g],\n \"words\": [", m->share[0], m->share[1]);
    for (int i = 0; i < m->n; i++) {
        fputs(i ? ",\n  {\"word\": " : "\n  {\"word\": ", to);
        text_json_string(to, m->word[i]);
        fprintf(to, ", \"x\": %.7g, \"y\": %.7g}", m->x[i], m->y[i]);
    }
    fputs("]}\n", to);
}

enum heed_status heed_word_map_picture(const struct heed_word_map *m, enum heed_picture kind,
                                       char **out, struct heed_error *err)
{
    struct text_out t;
    if (!m || !out) return error_null(err, m ? "out" : "map");
    if (kind == HEED_PICTURE_SVG) return draw(m, out, err);
    if (kind != HEED_PICTURE_TERMINAL && kind != HEED_PICTURE_JSON)
        return error_set(err, HEED_EARG, "kind of picture is %d, expected %d, %d or %d", (int)kind,
                         HEED_PICTURE_SVG, HEED_PICTURE_TERMINAL, HEED_PICTURE_JSON);
    text_begin(&t);
    if (t.to && kind == HEED_PICTURE_JSON) json(t.to, m);
    if (t.to && kind == HEED_PICTURE_TERMINAL) print(t.to, m);
    return text_end(&t, out, err);
}
