/*
 * positions.c - pictures of positions: heat maps and curves below each other as an SVG, characters
 * for a terminal, JSON.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/minmax.h"
#include "view/curves.h"
#include "view/heat.h"
#include "view/text.h"

/* ---- terminal ---- */

enum { COLUMNS = 72, ROWS = 24, BAR = 40 };

/* Shows every n-th row and column of a map that is larger than a terminal. */
static void map_print(FILE *to, const struct heed_heat_map *m)
{
    static const char *const shade[] = {" ", "\xe2\x96\x91", "\xe2\x96\x92", "\xe2\x96\x93",
                                        "\xe2\x96\x88"};
    enum { SHADES = sizeof shade / sizeof shade[0] };
    struct heat_range range = heat_range(m);
    int by_row = (m->rows + ROWS - 1) / ROWS, by_col = (m->cols + COLUMNS - 1) / COLUMNS;
    fprintf(to, "\n%s: %s down (every %d), %s across (every %d), light %.3g to dark %.3g\n",
            m->title, m->row, by_row, m->col, by_col, range.lo, range.hi);
    for (int r = 0; r < m->rows; r += by_row) {
        fprintf(to, "%5d ", m->first_row + r);
        for (int c = 0; c < m->cols; c += by_col) {
            double x = (double)m->value[(size_t)r * m->cols + c];
            double part = range.hi > range.lo ? (x - range.lo) / (range.hi - range.lo) : 0;
            fputs(shade[int_min((int)(part * SHADES), SHADES - 1)], to);
        }
        fputc('\n', to);
    }
}

static void chart_print(FILE *to, const struct heed_chart *c)
{
    int step = (c->n + ROWS - 1) / ROWS;
    double most = 0;
    for (int i = 0; i < c->lines * c->n; i++) most = fmax(most, fabs(c->y[i]));
    for (int l = 0; l < c->lines; l++) {
        fprintf(to, "\n%s, %s: %s, %s\n", c->title, c->name[l], c->x_label, c->y_label);
        for (int i = 0; i < c->n; i += step) {
            double y = c->y[(size_t)l * c->n + i];
            fprintf(to, "%5g %10.4g ", c->x[i], y);
            text_bar(to, most > 0 ? fabs(y) / most : 0, BAR);
            fputc('\n', to);
        }
    }
}

static void print(FILE *to, const struct heed_positions *p)
{
    fprintf(to, "%s\n", p->title);
    for (int i = 0; i < p->said_n; i++) fprintf(to, "%s\n", p->said[i]);
    for (int i = 0; i < p->maps; i++) map_print(to, &p->map[i]);
    for (int i = 0; i < p->charts; i++)
        if (!p->chart[i].y_log) chart_print(to, &p->chart[i]);
}

/* ---- JSON ---- */

static void map_json(FILE *to, const struct heed_heat_map *m)
{
    fputs("{\"title\": ", to);
    text_json_string(to, m->title);
    fprintf(to,
            ", \"row\": \"%s\", \"col\": \"%s\", \"first_row\": %d, \"first_col\": %d,\n"
            "   \"value\": [",
            m->row, m->col, m->first_row, m->first_col);
    for (int r = 0; r < m->rows; r++) {
        fputs(r ? ",\n    " : "\n    ", to);
        text_json_floats(to, m->value + (size_t)r * m->cols, m->cols);
    }
    fputs("]}", to);
}

static void chart_json(FILE *to, const struct heed_chart *c)
{
    fputs("{\"title\": ", to);
    text_json_string(to, c->title);
    fprintf(to, ", \"x_label\": \"%s\", \"y_label\": \"%s\", \"x\": ", c->x_label, c->y_label);
    text_json_doubles(to, c->x, c->n);
    fputs(", \"lines\": [", to);
    for (int l = 0; l < c->lines; l++) {
        fputs(l ? ",\n   {\"name\": " : "\n   {\"name\": ", to);
        text_json_string(to, c->name[l]);
        fputs(", \"y\": ", to);
        text_json_doubles(to, c->y + (size_t)l * c->n, c->n);
        fputc('}', to);
    }
    fputs("]}", to);
}

static void json(FILE *to, const struct heed_positions *p)
{
    fputs("{\"title\": ", to);
    text_json_string(to, p->title);
    fputs(",\n \"said\": [", to);
    for (int i = 0; i < p->said_n; i++) {
        if (i) fputs(",\n  ", to);
        text_json_string(to, p->said[i]);
    }
    fputs("],\n \"maps\": [", to);
    for (int i = 0; i < p->maps; i++) {
        if (i) fputs(",\n  ", to);
        map_json(to, &p->map[i]);
    }
    fputs("],\n \"charts\": [", to);
    for (int i = 0; i < p->charts; i++) {
        if (i) fputs(",\n  ", to);
        chart_json(to, &p->chart[i]);
    }
    fputs("]}\n", to);
}

/* ---- SVG ---- */

enum { WIDTH = 880, MARGIN = 24, HEAD = 44, LINE = 20, SPACE = 28, CHART = 320, CURVES_MAX = 64 };

static void chart_draw(struct svg *s, const struct heed_chart *c, double x, double y, double width)
{
    struct curve curve[CURVES_MAX];
    struct curves panel = {.title = c->title,
                           .x_label = c->x_label,
                           .y_label = c->y_label,
                           .y_log = c->y_log,
                           .curve = curve,
                           .n = int_min(c->lines, CURVES_MAX)};
    for (int l = 0; l < panel.n; l++)
        curve[l] = (struct curve){.name = c->lines > 1 ? c->name[l] : NULL,
                                  .x = c->x,
                                  .y = c->y + (size_t)l * c->n,
                                  .n = c->n};
    curves_panel(s, &panel, x, y, width, CHART);
}

/* Writes a sentence into lines of at most `width` pixels; y is the first baseline. Returns the
 * height of the lines. */
static double paragraph(struct svg *s, double x, double y, double width, const char *text)
{
    char line[512] = "";
    double height = 0;
    for (const char *next; *text; text = next) {
        size_t n = strcspn(text, " "), used = strlen(line);
        next = text + n + strspn(text + n, " ");
        snprintf(line + used, sizeof line - used, "%s%.*s", used ? " " : "", (int)n, text);
        bool full = used && svg_text_width(line, SVG_FONT) > width;
        if (full) line[used] = '\0';
        if (full || !*next) {
            svg_text(s, &(struct svg_text){.x = x, .y = y + height}, line);
            height += LINE;
            line[0] = '\0';
            if (full) next = text;
        }
    }
    return height;
}

static enum heed_status draw(const struct heed_positions *p, char **out, struct heed_error *err)
{
    struct svg s;
    double width = WIDTH - 2 * MARGIN, y = HEAD;
    svg_begin(&s, WIDTH, 0, p->title);
    svg_heading(&s, MARGIN, MARGIN + 6, p->title);
    for (int i = 0; i < p->said_n; i++) y += paragraph(&s, MARGIN, y + LINE, width, p->said[i]);
    y += SPACE;
    for (int i = 0; i < p->maps; i++) {
        heat_draw(&s, &p->map[i], MARGIN, y, width);
        y += heat_height(&p->map[i], width) + SPACE;
    }
    for (int i = 0; i < p->charts; i++) {
        chart_draw(&s, &p->chart[i], MARGIN, y, width);
        y += CHART + SPACE;
    }
    s.height = y;
    return svg_end(&s, out, err);
}

/* ---- all ---- */

enum heed_status heed_positions_picture(const struct heed_positions *p, enum heed_picture kind,
                                        char **out, struct heed_error *err)
{
    struct text_out t;
    if (!p) return error_null(err, "positions");
    if (!out) return error_null(err, "out");
    if (kind == HEED_PICTURE_SVG) return draw(p, out, err);
    if (kind != HEED_PICTURE_TERMINAL && kind != HEED_PICTURE_JSON)
        return error_set(err, HEED_EARG, "kind of picture is %d, expected %d, %d or %d", (int)kind,
                         HEED_PICTURE_SVG, HEED_PICTURE_TERMINAL, HEED_PICTURE_JSON);
    text_begin(&t);
    if (t.to && kind == HEED_PICTURE_JSON) json(t.to, p);
    if (t.to && kind == HEED_PICTURE_TERMINAL) print(t.to, p);
    return text_end(&t, out, err);
}
