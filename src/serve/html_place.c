/*
 * html_place.c - tags of a line put into its translation; see html.h.
 *
 * An element goes around the run of target words that has the most words linked to its source words
 * and the fewest linked to others. Elements side by side are ordered by where they begin in the
 * translation, so that they move with their words. A range of target words is cut up from left to
 * right, which makes the output nest as the source does, whatever the links are.
 */
#include <stdlib.h>
#include <string.h>

#include "serve/html_parts.h"

/* An element, or a tag that stands alone, and the target words that it goes around. */
struct node {
    int open, close; /* numbers of its tags; the same: it stands alone */
    int from, to;    /* target words [from, to) */
};

struct placing {
    struct buffer *out;
    const struct tagged_line *line;
    const struct heed_result *result;
    const struct heed_alignment *a; /* NULL: there is none */
    size_t at;                      /* bytes of the translation that are written */
};

/* Writes the translation up to byte `to`. */
static void write_text(struct placing *p, size_t to)
{
    for (; p->at < to; p->at++) {
        char c = p->result->text[p->at];
        if (c == '&') {
            buffer_text(p->out, "&amp;");
        } else if (c == '<') {
            buffer_text(p->out, "&lt;");
        } else if (c == '>') {
            buffer_text(p->out, "&gt;");
        } else {
            buffer_put(p->out, &c, 1);
        }
    }
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* A tag that stood alone between spaces is set off by spaces again. */
static void write_tag(struct placing *p, const struct tag *t)
{
    buffer_put(p->out, t->text, t->n);
    bool more = p->at < p->result->len && !is_space(p->result->text[p->at]);
    if (t->spaced && t->kind == TAG_ALONE && more) buffer_text(p->out, " ");
}

/* ---- where the alignment puts things ---- */

/* Whether source word i is, at least in part, in the bytes [from, to) of the line. */
static bool word_within(const struct heed_alignment *a, int i, size_t from, size_t to)
{
    const struct heed_span *w = &a->source[i];
    return w->at < to && w->at + w->len > from;
}

/* The run of target words in [lo, hi) with the largest sum, where a word linked into the bytes
 * [from, to) of the source counts 1, one linked elsewhere -1, and others 0. False: no word is
 * linked. */
static bool best_run(const struct placing *p, size_t from, size_t to, int lo, int hi, int *begin,
                     int *end)
{
    int best = 0, sum = 0, start = lo;
    for (int t = lo; t < hi; t++) {
        int link = p->a->link[t];
        bool inside = link >= 0 && word_within(p->a, link, from, to);
        if (sum == 0 && inside) start = t;
        sum += inside ? 1 : link >= 0 ? -1 : 0;
        if (sum < 0) sum = 0;
        if (inside && sum > best) {
            best = sum;
            *begin = start;
            *end = t + 1;
        }
    }
    return best > 0;
}

/* The target word in [lo, hi] before which a tag goes that has `place` bytes of the source before
 * it: behind the words that come from the nearest source word before it. */
static int word_after(const struct placing *p, size_t place, int lo, int hi)
{
    int best = -1, after = lo; /* best: the source word that is found in the translation */
    for (int t = lo; t < hi; t++) {
        int link = p->a->link[t];
        if (link < 0 || link < best || p->a->source[link].at >= place) continue;
        best = link;
        after = t + 1;
    }
    return after;
}

/* Whether an element holds all words of the line. */
static bool holds_all(const struct tagged_line *l, const struct tag *open, const struct tag *close)
{
    return open->place == 0 && close->place >= l->n;
}

static void find_place(const struct placing *p, struct node *n, int lo, int hi)
{
    const struct tag *open = &p->line->tag[n->open], *close = &p->line->tag[n->close];
    bool element = n->open != n->close;
    n->from = lo;
    n->to = hi;
    if (element && holds_all(p->line, open, close)) return;
    if (element && best_run(p, open->place, close->place, lo, hi, &n->from, &n->to)) return;
    n->from = n->to = word_after(p, open->place, lo, hi);
}

/* ---- writing ---- */

static int compare_nodes(const void *a, const void *b)
{
    const struct node *x = a, *y = b;
    return x->from != y->from ? (x->from < y->from ? -1 : 1) : (x->open < y->open ? -1 : 1);
}

/* The elements and single tags right inside of tags [first, end). */
static int list_nodes(const struct tagged_line *l, int first, int end, struct node *out)
{
    int n = 0;
    for (int i = first; i < end; i++) {
        int close = l->nested && l->tag[i].kind == TAG_OPEN ? l->tag[i].partner : i;
        out[n++] = (struct node){.open = i, .close = close};
        i = close;
    }
    return n;
}

static size_t word_start(const struct placing *p, int t)
{
    return t < p->a->targets ? p->a->target[t].at : p->result->len;
}

static size_t word_end(const struct placing *p, int t)
{
    return t < 0 ? 0 : p->a->target[t].at + p->a->target[t].len;
}

/* Writes the target words [lo, hi) with the tags [first, end). nodes: memory for as many nodes as
 * the line has tags; those of an inner range lie behind those of the outer one. */
static void write_range(struct placing *p, int first, int end, int lo, int hi, struct node *nodes)
{
    int n = list_nodes(p->line, first, end, nodes);
    for (int i = 0; i < n; i++) find_place(p, &nodes[i], lo, hi);
    if (p->line->nested) qsort(nodes, (size_t)n, sizeof *nodes, compare_nodes);
    int now = lo;
    for (int i = 0; i < n; i++) {
        const struct node *x = &nodes[i];
        int from = x->from > now ? x->from : now, to = x->to > from ? x->to : from;
        write_text(p, word_start(p, from));
        write_tag(p, &p->line->tag[x->open]);
        now = to;
        if (x->open == x->close) continue;
        write_range(p, x->open + 1, x->close, from, to, nodes + n);
        if (to > from) write_text(p, word_end(p, to - 1));
        write_tag(p, &p->line->tag[x->close]);
    }
}

/* Without an alignment, tags before the first word stay before it, and all others go to the end. */
static void write_unaligned(struct placing *p)
{
    for (int i = 0; i < p->line->tags; i++) {
        const struct tag *t = &p->line->tag[i];
        if (t->place > 0) write_text(p, p->result->len);
        write_tag(p, t);
    }
}

void html_place(struct buffer *out, const struct tagged_line *line, const struct heed_result *r)
{
    struct placing p = {.out = out, .line = line, .result = r, .a = r->alignment};
    struct node *nodes = line->tags && p.a ? malloc((size_t)line->tags * sizeof *nodes) : NULL;
    if (nodes) {
        write_range(&p, 0, line->tags, 0, p.a->targets, nodes);
    } else {
        write_unaligned(&p);
    }
    write_text(&p, r->len);
    free(nodes);
}
