/*
 * attention_lines.c - the tokens of one layer in two columns and a line for each weight, in a
 * colour for each head, as in the paper's figures 3 to 5.
 */
#include <math.h>

#include "view/attention.h"
#include "view/svg.h"

enum { MARGIN = 16, GAP = 8, HEAD = 40, SPREAD_MAX = 10 };
static const double least = 0.05; /* lines of less weight would hide the others */

struct layout {
    double row, font, spread; /* heights of a line of text, and of the ends of its heads' lines */
    double left, right;       /* the ends of the lines */
    double top;               /* of the first tokens */
    double width, height, legend;
};

static double widest(const char *const *piece, int n, double font)
{
    double most = 0;
    for (int i = 0; i < n; i++) most = fmax(most, svg_text_width(attention_label(piece[i]), font));
    return most;
}

static int heads_shown(const struct heed_attention_map *m, const struct heed_attention_view *v)
{
    return v->head < 0 ? m->heads : 1;
}

static struct layout layout_of(const struct heed_attention_map *m,
                               const struct heed_attention_view *v, const char *title)
{
    int longest = m->queries > m->keys ? m->queries : m->keys;
    struct layout l = {.row = fmin(24, fmax(15, floor(900.0 / longest)))};
    l.font = fmin(15, floor(l.row * 0.8));
    l.spread = heads_shown(m, v) > 1 ? fmin(SPREAD_MAX, l.row * 0.5) : 0;
    double queries = fmax(widest(m->query, m->queries, l.font),
                          svg_text_width(attention_query_side(v->use), SVG_FONT));
    double keys =
        fmax(widest(m->key, m->keys, l.font), svg_text_width(attention_key_side(v->use), SVG_FONT));
    l.left = floor(MARGIN + queries + GAP);
    /* Steep lines would hide each other. */
    l.right = l.left + fmin(480, fmax(200, longest * l.row * 0.5));
    l.width = fmax(l.right + GAP + keys, MARGIN + svg_bold_width(title, SVG_HEADING)) + MARGIN;
    return l;
}

static double height_of(const struct layout *l, int token, int head, int heads)
{
    double part = heads > 1 ? (double)head / (heads - 1) - 0.5 : 0;
    return l->top + (token + 0.5) * l->row + part * l->spread;
}

static void draw_tokens(struct svg *s, const char *const *piece, int n, double x,
                        enum svg_anchor anchor, const struct layout *l, const char *side)
{
    svg_text(s,
             &(struct svg_text){.x = x, .y = l->top - GAP, .anchor = anchor, .colour = SVG_FAINT},
             side);
    for (int i = 0; i < n; i++)
        svg_text(s,
                 &(struct svg_text){.x = x,
                                    .y = height_of(l, i, 0, 1) + l->font / 3,
                                    .size = l->font,
                                    .anchor = anchor},
                 attention_label(piece[i]));
}

static void draw_head(struct svg *s, const struct heed_attention_map *m,
                      const struct heed_attention_view *v, const struct layout *l, int head)
{
    int heads = heads_shown(m, v), place = heads > 1 ? head : 0;
    for (int q = 0; q < m->queries; q++)
        for (int k = 0; k < m->keys; k++) {
            double w = (double)attention_weight(m, v->layer, head, q, k);
            char tip[256];
            if (w < least) continue;
            const struct svg_pen pen = {svg_series(head), 0.5 + 3.5 * w, 0.1 + 0.9 * w * sqrt(w),
                                        0};
            snprintf(tip, sizeof tip, "head %d: %.100s \xe2\x86\x92 %.100s: %.3f", head + 1,
                     attention_label(m->query[q]), attention_label(m->key[k]), w);
            svg_tip_begin(s, tip);
            svg_line(s, l->left, height_of(l, q, place, heads), l->right,
                     height_of(l, k, place, heads), &pen);
            svg_tip_end(s);
        }
}

/* The names of the heads; a picture of one head has its name in the title. */
static double draw_legend(struct svg *s, bool draw, const struct heed_attention_map *m,
                          const struct heed_attention_view *v, double y, double width)
{
    enum { NAMES = 64, NAME = 16 };
    char text[NAMES][NAME];
    const char *name[NAMES];
    int n = v->head < 0 ? m->heads : 0;
    if (n > NAMES) n = NAMES;
    for (int i = 0; i < n; i++) {
        snprintf(text[i], NAME, "head %d", i + 1);
        name[i] = text[i];
    }
    return svg_box_legend(s, draw, MARGIN, y, width - 2 * MARGIN, name, n);
}

enum heed_status attention_svg_lines(const struct heed_attention *a,
                                     const struct heed_attention_view *v, char **out,
                                     struct heed_error *err)
{
    const struct heed_attention_map *m = &a->map[v->use];
    char title[ATTENTION_TITLE];
    struct svg s;
    attention_title(title, a, v);
    struct layout l = layout_of(m, v, title);
    double legend = draw_legend(NULL, false, m, v, 0, l.width);
    int longest = m->queries > m->keys ? m->queries : m->keys;
    l.top = HEAD + legend + SVG_FONT + 2 * GAP;
    svg_begin(&s, l.width, l.top + longest * l.row + MARGIN, title);
    svg_heading(&s, MARGIN, 26, title);
    draw_legend(&s, true, m, v, HEAD, l.width);
    for (int h = 0; h < m->heads; h++)
        if (v->head < 0 || v->head == h) draw_head(&s, m, v, &l, h);
    draw_tokens(&s, m->query, m->queries, l.left - GAP, SVG_END, &l, attention_query_side(v->use));
    draw_tokens(&s, m->key, m->keys, l.right + GAP, SVG_START, &l, attention_key_side(v->use));
    return svg_end(&s, out, err);
}
