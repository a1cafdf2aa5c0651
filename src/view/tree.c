/*
 * tree.c - draws a constituency tree: as lines of characters, or as an SVG with the words in a row
 * at the bottom.
 *
 * In the SVG every node has a strip of its own, as wide as its text and as all its children
 * together, so that no text overlaps another. Lines run down from a node to a bar over its children
 * and from there straight down to each child, in the child's strip.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/minmax.h"
#include "tree/trees.h"
#include "view/svg.h"
#include "view/text.h"

enum { DEPTH_MAX = 1000 }; /* brackets in each other; a drawing of more would be of no use */

/* The node that is drawn at the top: a root without a label that holds one tree is left out. */
static int top_of(const struct tree *t)
{
    return t->node[0].text[0] == '\0' && t->n > 1 && t->node[1].end == t->n;
}

static const char *label_of(const struct tree *t, int i)
{
    return t->node[i].text[0] ? t->node[i].text : "·";
}

/* ---- terminal ---- */

/* Writes the lines that run past node i, one for each ancestor that has children after it. */
static void rails(FILE *to, const struct tree *t, int i, int path[DEPTH_MAX])
{
    int n = 0;
    for (int p = i; p > top_of(t); p = t->node[p].parent) path[n++] = p;
    for (int k = n - 1; k >= 0; k--) {
        bool last = t->node[path[k]].end == t->node[t->node[path[k]].parent].end;
        if (k > 0)
            fputs(last ? "   " : "│  ", to);
        else
            fputs(last ? "└─ " : "├─ ", to);
    }
}

static void terminal(FILE *to, const struct tree *t)
{
    int path[DEPTH_MAX];
    for (int i = top_of(t); i < t->n; i++) {
        rails(to, t, i, path);
        text_visible(to, label_of(t, i));
        if (tree_is_tag(t, i)) {
            fputs("  ", to);
            text_visible(to, t->node[++i].text);
        }
        fputc('\n', to);
    }
}

/* ---- SVG ---- */

enum { STEP = 44, MARGIN = 20, GAP = 16, LINE = 13 };

/* Places of the nodes: [n] each. */
struct layout {
    double *strip; /* width of a node's strip */
    double *left;  /* where it begins */
    int *height;   /* levels above the words */
    int top_height;
};

static void node_style(const struct tree *t, int i, struct svg_text *style)
{
    bool is_tag = tree_is_tag(t, i);
    style->bold = !t->node[i].is_word && !is_tag;
    style->colour = is_tag ? SVG_FAINT : SVG_INK;
}

static double text_width(const struct tree *t, int i)
{
    struct svg_text style = {0};
    node_style(t, i, &style);
    return style.bold ? svg_bold_width(label_of(t, i), SVG_FONT)
                      : svg_text_width(label_of(t, i), SVG_FONT);
}

/* From the last node to the first, so that children come before their parents; then the other way
 * round. */
static void layout_compute(struct layout *l, const struct tree *t)
{
    for (int i = 0; i < t->n; i++) l->strip[i] = l->height[i] = 0;
    for (int i = t->n - 1; i >= 0; i--) {
        double own = text_width(t, i) + GAP;
        if (l->strip[i] < own) l->strip[i] = own;
        int parent = t->node[i].parent;
        if (parent < 0) continue;
        l->strip[parent] += l->strip[i];
        l->height[parent] = int_max(l->height[parent], l->height[i] + 1);
    }
    l->left[0] = MARGIN;
    l->top_height = l->height[top_of(t)];
    for (int i = 0; i < t->n; i++) {
        double children = 0;
        for (int k = i + 1; k < t->node[i].end; k = t->node[k].end) children += l->strip[k];
        double at = l->left[i] + (l->strip[i] - children) / 2;
        for (int k = i + 1; k < t->node[i].end; k = t->node[k].end) {
            l->left[k] = at;
            at += l->strip[k];
        }
    }
}

static double node_x(const struct layout *l, int i)
{
    return l->left[i] + l->strip[i] / 2;
}

static double node_y(const struct layout *l, int i)
{
    return MARGIN + LINE + (double)(l->top_height - l->height[i]) * STEP;
}

static void edges(struct svg *s, const struct tree *t, const struct layout *l, int i)
{
    const struct svg_pen pen = {.colour = SVG_FAINT};
    double x = node_x(l, i), y = node_y(l, i), bar = y + 16, last = x;
    for (int k = i + 1; k < t->node[i].end; k = t->node[k].end) {
        last = node_x(l, k);
        svg_line(s, last, bar, last, node_y(l, k) - LINE - 2, &pen);
    }
    svg_line(s, x, y + 6, x, bar, &pen);
    if (last > x) svg_line(s, node_x(l, i + 1), bar, last, bar, &pen);
}

/* The first words of the sentence. */
enum { TITLE_BYTES = 160 };
static void title_write(char title[TITLE_BYTES], const struct tree *t)
{
    size_t n = (size_t)snprintf(title, TITLE_BYTES, "Constituency tree:");
    for (int i = 0; i < t->n; i++) {
        if (!t->node[i].is_word) continue;
        bool fits = n + strlen(t->node[i].text) + sizeof " …" + 1 < TITLE_BYTES;
        n += (size_t)snprintf(title + n, TITLE_BYTES - n, " %s", fits ? t->node[i].text : "…");
        if (!fits) return;
    }
}

static enum heed_status svg(const struct tree *t, struct layout *l, char **out,
                            struct heed_error *err)
{
    layout_compute(l, t);
    char title[TITLE_BYTES];
    title_write(title, t);
    struct svg s;
    svg_begin(&s, l->strip[0] + 2 * MARGIN, MARGIN + LINE + l->top_height * STEP + MARGIN, title);
    for (int i = top_of(t); i < t->n; i++) {
        struct svg_text style = {.x = node_x(l, i), .y = node_y(l, i), .anchor = SVG_MIDDLE};
        node_style(t, i, &style);
        if (t->node[i].end > i + 1) edges(&s, t, l, i);
        svg_text(&s, &style, label_of(t, i));
    }
    return svg_end(&s, out, err);
}

/* ---- both ---- */

static enum heed_status draw_svg(const struct tree *t, char **out, struct heed_error *err)
{
    size_t n = (size_t)t->n;
    struct layout l = {malloc(n * sizeof(double)), malloc(n * sizeof(double)),
                       malloc(n * sizeof(int)), 0};
    enum heed_status status = l.strip && l.left && l.height
                                  ? svg(t, &l, out, err)
                                  : error_memory(err, n * sizeof(double), "the picture of a tree");
    free(l.strip);
    free(l.left);
    free(l.height);
    return status;
}

static enum heed_status draw_terminal(const struct tree *t, char **out, struct heed_error *err)
{
    struct text_out text;
    text_begin(&text);
    if (text.to) terminal(text.to, t);
    return text_end(&text, out, err);
}

enum heed_status heed_tree_picture(const struct heed_trees *trees, int i, enum heed_picture kind,
                                   char **out, struct heed_error *err)
{
    const struct tree *t = trees_at(trees, i, err);
    if (!t) return HEED_EARG;
    if (!out) return error_null(err, "out");
    if (kind != HEED_PICTURE_SVG && kind != HEED_PICTURE_TERMINAL) {
        return error_set(err, HEED_EARG, "a tree is drawn as an SVG or in the terminal");
    }
    int depth = 0;
    enum heed_status status = tree_depth(t, &depth, err);
    if (status) return status;
    if (depth > DEPTH_MAX) {
        return error_set(err, HEED_EARG, "tree %d is %d brackets deep; at most %d can be drawn",
                         i + 1, depth, DEPTH_MAX);
    }
    return kind == HEED_PICTURE_SVG ? draw_svg(t, out, err) : draw_terminal(t, out, err);
}
