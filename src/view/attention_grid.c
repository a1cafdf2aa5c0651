/*
 * attention_grid.c - a small map of every layer and head: a row of maps for each layer, one block
 * of rows for each use of attention that is asked for.
 *
 * Cells of one colour that lie side by side are one rectangle, and all rectangles of one colour are
 * one path; otherwise a picture of long sentences would have a million elements.
 */
#include <math.h>

#include "view/attention.h"
#include "view/svg.h"

enum { MARGIN = 16, GAP = 10, HEAD = 76, NAME_LINE = 24, LABEL_LINE = 20 };

/* The width of the names of layers. */
static double layer_names(void)
{
    return ceil(svg_text_width("layer 100", 12)) + GAP;
}

static void draw_thumb(struct svg *s, const struct heed_attention_map *m, int layer, int head,
                       double x, double y, double cell)
{
    const struct svg_pen edge = {SVG_GRID, 1, 0, 0};
    bool used[SVG_RAMP_MAX + 1] = {false};
    for (int q = 0; q < m->queries; q++)
        for (int k = 0; k < m->keys; k++)
            used[svg_ramp((double)attention_weight(m, layer, head, q, k)) - svg_ramp(0)] = true;
    for (int step = 1; step <= SVG_RAMP_MAX; step++) {
        enum svg_colour colour = (enum svg_colour)(svg_ramp(0) + step);
        if (!used[step]) continue;
        svg_path_begin(s, NULL, colour);
        for (int q = 0; q < m->queries; q++)
            for (int k = 0; k < m->keys; k++) {
                int n = 0;
                while (k + n < m->keys &&
                       svg_ramp((double)attention_weight(m, layer, head, q, k + n)) == colour)
                    n++;
                if (n)
                    svg_data(s, "M%.6g %.6gh%.6gv%.6gh-%.6gz", x + k * cell, y + q * cell, n * cell,
                             cell, n * cell);
                k += n;
            }
        svg_path_end(s);
    }
    svg_path_begin(s, &edge, SVG_NONE);
    svg_data(s, "M%.6g %.6gh%.6gv%.6gh-%.6gz", x, y, m->keys * cell, m->queries * cell,
             m->keys * cell);
    svg_path_end(s);
}

/* The maps of one use of attention: a row for each layer, a column for each head. */
struct block {
    enum heed_attention_use use;
    const struct heed_attention_map *m;
    char name[ATTENTION_TITLE];
    double cell;          /* size of a cell of a map */
    double across, down;  /* from one map to the next */
    double width, height; /* of all */
};

static struct block block_of(const struct heed_attention *a, enum heed_attention_use use,
                             double thumb)
{
    const struct heed_attention_map *m = &a->map[use];
    int longest = m->queries > m->keys ? m->queries : m->keys;
    struct block b = {.use = use, .m = m, .cell = fmin(10, thumb / longest)};
    if (b.cell > 1) b.cell = floor(2 * b.cell) / 2; /* short numbers, sharp edges */
    snprintf(b.name, sizeof b.name, "%s: rows %s, columns %s", attention_use_name(use),
             attention_query_side(use), attention_key_side(use));
    /* The names of layers and heads need some room even beside small maps. */
    b.across = fmax(m->keys * b.cell, 52) + GAP;
    b.down = fmax(m->queries * b.cell, 14) + GAP;
    b.width = ceil(fmax(layer_names() + m->heads * b.across, svg_bold_width(b.name, SVG_FONT)));
    b.height = NAME_LINE + LABEL_LINE + m->layers * b.down;
    return b;
}

/* x and y: the upper left corner */
static void draw_block(struct svg *s, const struct block *b, double x, double y)
{
    const struct heed_attention_map *m = b->m;
    double left = x + layer_names(), top = y + NAME_LINE + LABEL_LINE;
    char name[64];
    svg_text(s, &(struct svg_text){.x = x, .y = y + 16, .bold = true}, b->name);
    for (int h = 0; h < m->heads; h++) {
        snprintf(name, sizeof name, "head %d", h + 1);
        svg_text(s,
                 &(struct svg_text){
                     .x = left + h * b->across, .y = top - 5, .size = 12, .colour = SVG_FAINT},
                 name);
    }
    for (int l = 0; l < m->layers; l++) {
        snprintf(name, sizeof name, "layer %d", l + 1);
        svg_text(s,
                 &(struct svg_text){
                     .x = x, .y = top + l * b->down + 12, .size = 12, .colour = SVG_FAINT},
                 name);
        for (int h = 0; h < m->heads; h++) {
            snprintf(name, sizeof name, "layer %d, head %d", l + 1, h + 1);
            svg_tip_begin(s, name);
            draw_thumb(s, m, l, h, left + h * b->across, top + l * b->down, b->cell);
            svg_tip_end(s);
        }
    }
}

/* The tokens of a text, as a line that is cut where it is too long. */
static void tokens_line(char *out, size_t size, const char *before, const char *const *piece, int n,
                        double width)
{
    size_t at = (size_t)snprintf(out, size, "%s", before);
    for (int i = 0; i < n && at < size; i++) {
        int k = snprintf(out + at, size - at, " %s", attention_label(piece[i]));
        if (at + (size_t)k >= size - 8 || svg_text_width(out, SVG_FONT) > width) {
            snprintf(out + at, size - at, " \xe2\x80\xa6");
            return;
        }
        at += (size_t)k;
    }
}

enum heed_status attention_svg_grid(const struct heed_attention *a,
                                    const struct heed_attention_view *v, char **out,
                                    struct heed_error *err)
{
    enum { THUMB = 112, THUMB_OF_ALL = 80 }; /* pixels of a map, at most */
    struct block block[HEED_USES];
    const struct heed_attention_map *cross = &a->map[HEED_USE_CROSS];
    double width = MARGIN, height = 0;
    char title[ATTENTION_TITLE], line[1024];
    struct svg s;
    int n = 0;
    for (int use = 0; use < HEED_USES; use++) {
        if (v->use != HEED_USES && (int)v->use != use) continue;
        block[n] =
            block_of(a, (enum heed_attention_use)use, v->use == HEED_USES ? THUMB_OF_ALL : THUMB);
        width += block[n].width + MARGIN;
        height = fmax(height, block[n++].height);
    }
    attention_title(title, a, v);
    width = fmax(fmax(width, 560), svg_bold_width(title, SVG_HEADING) + 2 * MARGIN);
    svg_begin(&s, width, HEAD + height + SVG_KEY_HEIGHT + MARGIN, title);
    svg_heading(&s, MARGIN, 26, title);
    tokens_line(line, sizeof line, "source:", cross->key, cross->keys - 1, width - 3 * MARGIN);
    svg_text(&s, &(struct svg_text){.x = MARGIN, .y = 46, .colour = SVG_FAINT}, line);
    tokens_line(line, sizeof line, "translation:", cross->query, cross->queries - 1,
                width - 3 * MARGIN);
    svg_text(&s, &(struct svg_text){.x = MARGIN, .y = 64, .colour = SVG_FAINT}, line);
    double x = MARGIN;
    for (int i = 0; i < n; i++) {
        draw_block(&s, &block[i], x, HEAD);
        x += block[i].width + MARGIN;
    }
    svg_ramp_key(&s, MARGIN, HEAD + height + 6, false, 0, 1, "attention weight");
    return svg_end(&s, out, err);
}
