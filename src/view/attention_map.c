/*
 * attention_map.c - a heat map of one layer: a row for each query, a column for each key.
 *
 * Cells shrink as sentences grow, and labels with them. Where cells are small, the labels of the
 * columns stand upright; otherwise they are slanted, which is easier to read.
 */
#include <math.h>

#include "view/attention.h"
#include "view/svg.h"

enum { MARGIN = 16, GAP = 7, HEAD = 58 };

struct layout {
    double cell, font;
    double angle;              /* of the labels of columns, degrees */
    double left, top;          /* the first cell */
    double bottom, right;      /* the end of the last cell */
    double width, height, key; /* of the picture; where the key begins */
};

static double widest(const char *const *piece, int n, double font)
{
    double most = 0;
    for (int i = 0; i < n; i++) most = fmax(most, svg_text_width(attention_label(piece[i]), font));
    return most;
}

static struct layout layout_of(const struct heed_attention_map *m, const char *title)
{
    const double pi = acos(-1);
    int longest = m->queries > m->keys ? m->queries : m->keys;
    struct layout l = {.cell = fmin(28, fmax(13, floor(760.0 / longest)))};
    bool slanted = l.cell >= 19;
    l.angle = slanted ? -52 : -90;
    /* A line of text is as high as its font size; neighbours are cell * sin(angle) apart. */
    l.font = fmin(15, floor(l.cell * (slanted ? 0.75 : 0.85)));
    double columns = widest(m->key, m->keys, l.font), turn = -l.angle * pi / 180;
    l.left = MARGIN + widest(m->query, m->queries, l.font) + GAP;
    l.top = HEAD + columns * sin(turn) + l.font * cos(turn) + GAP;
    l.right = l.left + m->keys * l.cell;
    l.bottom = l.top + m->queries * l.cell;
    l.key = l.bottom + MARGIN;
    l.height = l.key + SVG_KEY_HEIGHT + GAP;
    double needs = fmax(l.right + columns * cos(turn), l.left + SVG_KEY_WIDTH);
    l.width = fmax(needs, MARGIN + svg_bold_width(title, SVG_HEADING)) + MARGIN;
    return l;
}

static void draw_labels(struct svg *s, const struct heed_attention_map *m, const struct layout *l)
{
    /* The middle of small letters is a third of the font size above the baseline. */
    double third = l->font / 3, slant = l->angle > -90 ? 0 : third;
    for (int k = 0; k < m->keys; k++)
        svg_text(s,
                 &(struct svg_text){.x = l->left + (k + 0.5) * l->cell + slant,
                                    .y = l->top - GAP,
                                    .size = l->font,
                                    .angle = l->angle},
                 attention_label(m->key[k]));
    for (int q = 0; q < m->queries; q++)
        svg_text(s,
                 &(struct svg_text){.x = l->left - GAP,
                                    .y = l->top + (q + 0.5) * l->cell + third,
                                    .size = l->font,
                                    .anchor = SVG_END},
                 attention_label(m->query[q]));
}

/* Cells that have the colour of the background are left out. The others have a tooltip with their
 * tokens and their weight. */
static void draw_cells(struct svg *s, const struct heed_attention_map *m,
                       const struct heed_attention_view *v, const struct layout *l, double most)
{
    for (int q = 0; q < m->queries; q++)
        for (int k = 0; k < m->keys; k++) {
            double w = (double)attention_weight(m, v->layer, v->head, q, k);
            enum svg_colour colour = svg_ramp(w / most);
            char tip[256];
            if (colour == svg_ramp(0)) continue;
            snprintf(tip, sizeof tip, "%.100s \xe2\x86\x92 %.100s: %.3f",
                     attention_label(m->query[q]), attention_label(m->key[k]), w);
            svg_tip_begin(s, tip);
            svg_rect(s, l->left + k * l->cell, l->top + q * l->cell, l->cell, l->cell, colour);
            svg_tip_end(s);
        }
}

static void draw_lines(struct svg *s, const struct heed_attention_map *m, const struct layout *l)
{
    const struct svg_pen pen = {SVG_GRID, 1, 0, 0};
    svg_path_begin(s, &pen, SVG_NONE);
    for (int q = 0; q <= m->queries; q++)
        svg_data(s, "M%.10g %.10gH%.10g", l->left, l->top + q * l->cell, l->right);
    for (int k = 0; k <= m->keys; k++)
        svg_data(s, "M%.10g %.10gV%.10g", l->left + k * l->cell, l->top, l->bottom);
    svg_path_end(s);
}

/* The upper end of the colours: the largest weight, rounded up to tenths. */
static double scale_of(const struct heed_attention_map *m, const struct heed_attention_view *v)
{
    double most = 0;
    for (int q = 0; q < m->queries; q++)
        for (int k = 0; k < m->keys; k++)
            most = fmax(most, (double)attention_weight(m, v->layer, v->head, q, k));
    return fmin(1, fmax(0.1, ceil(most * 10 - 0.01) / 10));
}

enum heed_status attention_svg_map(const struct heed_attention *a,
                                   const struct heed_attention_view *v, char **out,
                                   struct heed_error *err)
{
    const struct heed_attention_map *m = &a->map[v->use];
    char title[ATTENTION_TITLE], axes[ATTENTION_TITLE];
    struct svg s;
    attention_title(title, a, v);
    struct layout l = layout_of(m, title);
    l.left = floor(l.left), l.top = floor(l.top);
    l.right = l.left + m->keys * l.cell, l.bottom = l.top + m->queries * l.cell;
    double most = scale_of(m, v);
    snprintf(axes, sizeof axes, "rows: tokens of the %s; columns: what they look at in the %s",
             attention_query_side(v->use), attention_key_side(v->use));
    svg_begin(&s, fmax(l.width, MARGIN + svg_text_width(axes, SVG_FONT) + MARGIN), l.height, title);
    svg_heading(&s, MARGIN, 26, title);
    svg_text(&s, &(struct svg_text){.x = MARGIN, .y = 46, .colour = SVG_FAINT}, axes);
    draw_labels(&s, m, &l);
    draw_cells(&s, m, v, &l, most);
    draw_lines(&s, m, &l);
    svg_ramp_key(&s, l.left, l.key, false, 0, most, "attention weight");
    return svg_end(&s, out, err);
}
