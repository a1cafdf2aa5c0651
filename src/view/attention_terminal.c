/*
 * attention_terminal.c - maps of attention in characters: in colours where the terminal has them,
 * in five shades otherwise.
 *
 * The colours are those of the dark theme. Every cell sets its background, so that a map looks the
 * same on a light and on a dark terminal.
 */
#include <string.h>

#include "base/utf8.h"
#include "view/attention.h"
#include "view/text.h"
#include "view/theme.h"

/* ---- characters ---- */

/* How many columns of a terminal a string takes: Chinese, Japanese, Korean and full-width
 * characters take two each. */
static int columns_of(const char *s)
{
    int n = 0;
    for (size_t k, left = strlen(s); left; s += k, left -= k) {
        int32_t c = 0;
        k = utf8_next(s, left, &c);
        if (k == 0) k = 1; /* the terminal shows something for a byte that is no character */
        n += (c >= 0x3000 && c <= 0xd7ff) || (c >= 0xff00 && c <= 0xffff) ? 2 : 1;
    }
    return n;
}

static int widest(const char *const *piece, int n)
{
    int most = 0;
    for (int i = 0; i < n; i++) {
        int w = columns_of(attention_label(piece[i]));
        if (w > most) most = w;
    }
    return most;
}

/* ---- cells ---- */

/* Which of the 6 levels of xterm's colour cube (0, 95, 135, 175, 215, 255) is nearest. */
static int cube_level(int v)
{
    return v < 48 ? 0 : v < 115 ? 1 : (v - 35) / 40;
}

/* The escape sequence that sets the foreground (38) or the background (48). */
static void write_colour(FILE *f, int ground, double weight, int colours)
{
    struct rgb c = theme_rgb(svg_ramp(weight), true);
    if (colours > 256)
        fprintf(f, "\x1b[%d;2;%d;%d;%dm", ground, c.r, c.g, c.b);
    else
        fprintf(f, "\x1b[%d;5;%dm", ground,
                16 + 36 * cube_level(c.r) + 6 * cube_level(c.g) + cube_level(c.b));
}

static const char *shade_of(double weight)
{
    static const char *const shade[] = {" ", "\xe2\x96\x91", "\xe2\x96\x92", "\xe2\x96\x93",
                                        "\xe2\x96\x88"};
    enum { SHADES = sizeof shade / sizeof shade[0] };
    int level = (int)(weight * SHADES);
    return shade[level < SHADES ? level : SHADES - 1];
}

/* A row of cells that are `width` characters wide. */
static void write_row(FILE *f, const struct heed_attention_map *m, int layer, int head, int query,
                      int width, int colours)
{
    for (int k = 0; k < m->keys; k++) {
        double w = (double)attention_weight(m, layer, head, query, k);
        if (colours) write_colour(f, 48, w, colours);
        for (int i = 0; i < width; i++) fputs(colours ? " " : shade_of(w), f);
    }
    if (colours) fputs("\x1b[0m", f);
}

/* ---- a map ---- */

static int line_width(const struct heed_attention_view *v)
{
    return v->columns > 0 ? v->columns : 80;
}

static void write_map(FILE *f, const struct heed_attention *a, const struct heed_attention_view *v)
{
    const struct heed_attention_map *m = &a->map[v->use];
    int margin = widest(m->query, m->queries);
    int width = margin + 1 + 2 * m->keys > line_width(v) ? 1 : 2; /* of a cell */
    /* Each key is on a line of its own, with a rule down to its column. */
    for (int k = 0; k < m->keys; k++) {
        fprintf(f, "%*s ", margin, "");
        for (int i = 0; i < k; i++) fputs(width == 2 ? "\xe2\x94\x82 " : "\xe2\x94\x82", f);
        text_visible(f, attention_label(m->key[k]));
        fputc('\n', f);
    }
    for (int q = 0; q < m->queries; q++) {
        const char *name = attention_label(m->query[q]);
        fprintf(f, "%*s", margin - columns_of(name), "");
        text_visible(f, name);
        fputc(' ', f);
        write_row(f, m, v->layer, v->head, q, width, v->colours);
        fputc('\n', f);
    }
}

/* ---- a grid ---- */

/* Two queries in one line of characters, whose upper halves have the colour of the first. */
static void write_half_rows(FILE *f, const struct heed_attention_map *m, int layer, int head,
                            int query, int colours)
{
    for (int k = 0; k < m->keys; k++) {
        bool two = query + 1 < m->queries;
        write_colour(f, 38, (double)attention_weight(m, layer, head, query, k), colours);
        if (two)
            write_colour(f, 48, (double)attention_weight(m, layer, head, query + 1, k), colours);
        fputs("\xe2\x96\x80", f);
        if (k + 1 == m->keys || !two) fputs("\x1b[0m", f);
    }
}

/* The maps of heads [first, last) side by side. */
static void write_maps(FILE *f, const struct heed_attention_map *m, int layer, int first, int last,
                       int colours)
{
    int step = colours ? 2 : 1;
    for (int h = first; h < last; h++) {
        char name[32];
        int n = snprintf(name, sizeof name, "%d.%d", layer + 1, h + 1);
        if (n > m->keys) name[m->keys > 0 ? m->keys : 0] = '\0', n = m->keys;
        fprintf(f, "%s%*s", name, h + 1 < last ? m->keys - n + 1 : 0, "");
    }
    fputc('\n', f);
    for (int q = 0; q < m->queries; q += step) {
        for (int h = first; h < last; h++) {
            if (h > first) fputc(' ', f);
            if (colours)
                write_half_rows(f, m, layer, h, q, colours);
            else
                write_row(f, m, layer, h, q, 1, 0);
        }
        fputc('\n', f);
    }
}

static void write_grid(FILE *f, const struct heed_attention *a, const struct heed_attention_view *v)
{
    for (int use = 0; use < HEED_USES; use++) {
        const struct heed_attention_map *m = &a->map[use];
        if (v->use != HEED_USES && (int)v->use != use) continue;
        int across = (line_width(v) + 1) / (m->keys + 1);
        if (across < 1) across = 1;
        fprintf(f, "%s: layer.head; rows %s, columns %s\n",
                attention_use_name((enum heed_attention_use)use),
                attention_query_side((enum heed_attention_use)use),
                attention_key_side((enum heed_attention_use)use));
        for (int l = 0; l < m->layers; l++)
            for (int h = 0; h < m->heads; h += across)
                write_maps(f, m, l, h, h + across < m->heads ? h + across : m->heads, v->colours);
    }
}

void attention_terminal(FILE *f, const struct heed_attention *a,
                        const struct heed_attention_view *v)
{
    if (v->drawing == HEED_DRAW_GRID)
        write_grid(f, a, v);
    else
        write_map(f, a, v);
}
