/*
 * svg_check.h - reads an SVG that src/view/svg.c wrote and checks what a reader would complain of:
 * that it is well-formed XML, that no text lies on another or outside the picture, and that text
 * has enough contrast with the background in both themes.
 *
 * svg_faults(text) returns the number of faults, after a line on stderr for each. The parser knows
 * as much of XML as is needed to find every fault of a program that writes it: tags, attributes,
 * the five entities, no comments and no declarations.
 */
#ifndef HEED_TESTS_SVG_CHECK_H
#define HEED_TESTS_SVG_CHECK_H
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "view/svg.h"

enum { SVG_DEPTH = 32, SVG_ATTRIBUTES = 16, SVG_NAME = 32, SVG_VALUE = 4096, SVG_LABELS = 20000 };

struct svg_attribute {
    char name[SVG_NAME];
    const char *value; /* in the text, not NUL-terminated */
    size_t len;
};

struct svg_tag {
    char name[SVG_NAME];
    struct svg_attribute at[SVG_ATTRIBUTES];
    int n;
    bool closes, empty; /* </x>, <x/> */
};

/* A line of text as a rectangle that may be turned around its anchor. */
struct svg_label {
    double x[4], y[4];
    char text[64], colour[SVG_NAME];
};

struct svg_reader {
    const char *from, *at;
    int faults;
    char open[SVG_DEPTH][SVG_NAME];
    int depth;
    double width, height;
    struct svg_label *label;
    int labels, shapes;
    char style[2][16384]; /* rules of the light and of the dark theme */
};

static inline void svg_fault(struct svg_reader *r, const char *what, const char *detail)
{
    if (r->faults++ < 20)
        fprintf(stderr, "SVG, byte %ld: %s: %.60s\n", (long)(r->at - r->from), what, detail);
}

/* ---- XML ---- */

/* Whether the next character is c, which is then behind us. */
static inline bool svg_takes(struct svg_reader *r, char c)
{
    bool here = *r->at == c;
    r->at += here;
    return here;
}

static inline bool svg_name(struct svg_reader *r, char out[SVG_NAME])
{
    size_t n = strspn(r->at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-:");
    if (n == 0 || n >= SVG_NAME) return false;
    memcpy(out, r->at, n);
    out[n] = '\0';
    r->at += n;
    return true;
}

/* Text or an attribute's value up to `end`: valid UTF-8, no markup, known entities. */
static inline size_t svg_characters(struct svg_reader *r, char end)
{
    const char *from = r->at;
    while (*r->at && *r->at != end) {
        size_t left = strlen(r->at), n = utf8_char(r->at, left < 8 ? left : 8);
        if (n == 0) svg_fault(r, "not UTF-8", "");
        if (utf8_control(r->at, left) && *r->at != '\n') svg_fault(r, "control character", "");
        if (*r->at == '<') svg_fault(r, "'<' in text", r->at);
        if (*r->at == '&') {
            static const char *const known[] = {"&lt;", "&gt;", "&amp;", "&quot;", "&apos;"};
            bool good = false;
            for (int i = 0; i < 5; i++) good |= strncmp(r->at, known[i], strlen(known[i])) == 0;
            if (!good) svg_fault(r, "unknown entity", r->at);
        }
        r->at += n ? n : 1;
    }
    return (size_t)(r->at - from);
}

/* r->at is behind the '<'. */
static inline bool svg_tag(struct svg_reader *r, struct svg_tag *t)
{
    *t = (struct svg_tag){.closes = svg_takes(r, '/')};
    if (!svg_name(r, t->name)) return false;
    while (*r->at == ' ') {
        r->at++;
        if (t->n == SVG_ATTRIBUTES) return false;
        struct svg_attribute *a = &t->at[t->n];
        if (!svg_name(r, a->name) || strncmp(r->at, "=\"", 2) != 0) return false;
        for (int i = 0; i < t->n; i++)
            if (strcmp(t->at[i].name, a->name) == 0) svg_fault(r, "attribute twice", a->name);
        r->at += 2;
        a->value = r->at;
        a->len = svg_characters(r, '"');
        if (!svg_takes(r, '"')) return false;
        t->n++;
    }
    t->empty = svg_takes(r, '/');
    return svg_takes(r, '>');
}

static inline const struct svg_attribute *svg_find(const struct svg_tag *t, const char *name)
{
    for (int i = 0; i < t->n; i++)
        if (strcmp(t->at[i].name, name) == 0) return &t->at[i];
    return NULL;
}

static inline double svg_value(const struct svg_tag *t, const char *name, double otherwise)
{
    const struct svg_attribute *a = svg_find(t, name);
    return a ? strtod(a->value, NULL) : otherwise;
}

static inline bool svg_says(const struct svg_tag *t, const char *name, const char *value)
{
    const struct svg_attribute *a = svg_find(t, name);
    return a && a->len == strlen(value) && memcmp(a->value, value, a->len) == 0;
}

/* ---- geometry ---- */

static inline void svg_decode(char *out, size_t size, const char *from, size_t n)
{
    size_t to = 0;
    for (size_t i = 0; i < n && to + 1 < size; i++) {
        static const struct {
            const char *name;
            char c;
        } entity[] = {{"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}, {"&quot;", '"'}};
        char c = from[i];
        for (int k = 0; k < 4 && from[i] == '&'; k++)
            if (strncmp(from + i, entity[k].name, strlen(entity[k].name)) == 0) {
                c = entity[k].c;
                i += strlen(entity[k].name) - 1;
                break;
            }
        out[to++] = c;
    }
    out[to] = '\0';
}

static inline void svg_label_add(struct svg_reader *r, const struct svg_tag *t, const char *text)
{
    double size = svg_value(t, "font-size", SVG_FONT), x = svg_value(t, "x", 0);
    double y = svg_value(t, "y", 0), angle = 0;
    bool bold = svg_says(t, "font-weight", "bold");
    double w = bold ? svg_bold_width(text, size) : svg_text_width(text, size);
    double left = svg_says(t, "text-anchor", "end")      ? -w
                  : svg_says(t, "text-anchor", "middle") ? -w / 2
                                                         : 0;
    const struct svg_attribute *turn = svg_find(t, "transform"), *class = svg_find(t, "class");
    if (turn && strncmp(turn->value, "rotate(", 7) == 0) angle = strtod(turn->value + 7, NULL);
    angle *= acos(-1) / 180;
    if (r->labels == SVG_LABELS) return;
    struct svg_label *l = &r->label[r->labels++];
    /* What letters cover: from their tops to the lower ends of g and p. */
    double across[4] = {left, left + w, left + w, left};
    double down[4] = {-0.76 * size, -0.76 * size, 0.22 * size, 0.22 * size};
    for (int i = 0; i < 4; i++) {
        l->x[i] = x + across[i] * cos(angle) - down[i] * sin(angle);
        l->y[i] = y + across[i] * sin(angle) + down[i] * cos(angle);
        double slack = 1;
        if (l->x[i] < -slack || l->y[i] < -slack || l->x[i] > r->width + slack ||
            l->y[i] > r->height + slack)
            svg_fault(r, "text outside the picture", text);
    }
    snprintf(l->text, sizeof l->text, "%.60s", text);
    snprintf(l->colour, sizeof l->colour, "%.*s", class ? (int)class->len : 0,
             class ? class->value : "");
    if (!class) svg_fault(r, "text without a colour", text);
}

/* Whether a line along a side of `a` separates the two. */
static inline bool svg_separated(const struct svg_label *a, const struct svg_label *b)
{
    for (int i = 0; i < 4; i++) {
        double nx = a->y[(i + 1) % 4] - a->y[i], ny = a->x[i] - a->x[(i + 1) % 4];
        double length = hypot(nx, ny);
        if (length == 0) return true;
        double amin = INFINITY, amax = -INFINITY, bmin = INFINITY, bmax = -INFINITY;
        for (int k = 0; k < 4; k++) {
            double pa = (a->x[k] * nx + a->y[k] * ny) / length;
            double pb = (b->x[k] * nx + b->y[k] * ny) / length;
            amin = fmin(amin, pa), amax = fmax(amax, pa);
            bmin = fmin(bmin, pb), bmax = fmax(bmax, pb);
        }
        if (amax <= bmin + 0.01 || bmax <= amin + 0.01) return true;
    }
    return false;
}

static inline void svg_overlaps(struct svg_reader *r)
{
    for (int i = 0; i < r->labels; i++)
        for (int j = i + 1; j < r->labels; j++) {
            const struct svg_label *a = &r->label[i], *b = &r->label[j];
            char both[160];
            if (svg_separated(a, b) || svg_separated(b, a)) continue;
            snprintf(both, sizeof both, "'%.25s' and '%.25s'", a->text, b->text);
            svg_fault(r, "texts overlap", both);
        }
}

/* ---- colours ---- */

static inline double svg_luminance(unsigned rgb)
{
    static const double part[] = {0.2126, 0.7152, 0.0722};
    double sum = 0;
    for (int i = 0; i < 3; i++) {
        double v = (rgb >> (16 - 8 * i) & 255) / 255.0;
        sum += part[i] * (v <= 0.04045 ? v / 12.92 : pow((v + 0.055) / 1.055, 2.4));
    }
    return sum;
}

/* As WCAG 2 defines it: 1 to 21. */
static inline double svg_contrast(unsigned a, unsigned b)
{
    double x = svg_luminance(a), y = svg_luminance(b);
    return (fmax(x, y) + 0.05) / (fmin(x, y) + 0.05);
}

/* The fill of a class; false where the style sheet has none. */
static inline bool svg_fill(const char *style, const char *class, unsigned *rgb)
{
    char rule[64];
    snprintf(rule, sizeof rule, ".%s{fill:#", class);
    const char *found = strstr(style, rule);
    if (found) *rgb = (unsigned)strtoul(found + strlen(rule), NULL, 16);
    return found;
}

static inline void svg_contrasts(struct svg_reader *r)
{
    for (int dark = 0; dark <= 1; dark++) {
        unsigned paper = 0, ink = 0;
        if (!svg_fill(r->style[dark], "paper", &paper)) svg_fault(r, "no background", "");
        for (int i = 0; i < r->labels; i++) {
            const struct svg_label *l = &r->label[i];
            if (!svg_fill(r->style[dark], l->colour, &ink) || svg_contrast(paper, ink) < 4.5)
                svg_fault(r, dark ? "contrast in the dark theme" : "contrast", l->text);
        }
    }
}

static inline void svg_style(struct svg_reader *r, const char *style, size_t n)
{
    char all[sizeof r->style[0]];
    snprintf(all, sizeof all, "%.*s", (int)n, style);
    char *dark = strstr(all, "@media (prefers-color-scheme: dark)");
    if (!dark) {
        svg_fault(r, "no dark theme", "");
        return;
    }
    snprintf(r->style[1], sizeof r->style[1], "%s", dark);
    *dark = '\0';
    snprintf(r->style[0], sizeof r->style[0], "%s", all);
}

/* ---- the document ---- */

static inline void svg_element(struct svg_reader *r, const struct svg_tag *t)
{
    char text[SVG_VALUE];
    const char *from = r->at;
    if (t->closes) {
        if (r->depth == 0 || strcmp(r->open[--r->depth], t->name) != 0)
            svg_fault(r, "closed but not open", t->name);
        return;
    }
    if (r->depth == 0) {
        if (strcmp(t->name, "svg") != 0) svg_fault(r, "not an SVG", t->name);
        r->width = svg_value(t, "width", 0);
        r->height = svg_value(t, "height", 0);
    }
    r->shapes++;
    if (t->empty) return;
    snprintf(r->open[r->depth++], SVG_NAME, "%s", t->name);
    size_t n = svg_characters(r, '<');
    svg_decode(text, sizeof text, from, n);
    if (strcmp(t->name, "text") == 0) svg_label_add(r, t, text);
    if (strcmp(t->name, "style") == 0) svg_style(r, from, n);
}

static inline int svg_faults(const char *text)
{
    static struct svg_reader reader; /* too large for the stack */
    struct svg_reader *r = &reader;
    struct svg_tag t;
    *r = (struct svg_reader){.from = text, .at = text};
    r->label = calloc(SVG_LABELS, sizeof *r->label);
    if (!r->label) return 1;
    do {
        if (!svg_takes(r, '<') || !svg_tag(r, &t)) {
            svg_fault(r, "malformed tag", r->at);
            break;
        }
        svg_element(r, &t);
        if (t.closes || t.empty) svg_characters(r, '<');
        if (r->depth >= SVG_DEPTH) {
            svg_fault(r, "too deep", t.name);
            break;
        }
    } while (r->depth);
    if (*r->at && strcmp(r->at, "\n") != 0) svg_fault(r, "text behind the end", r->at);
    svg_overlaps(r);
    svg_contrasts(r);
    free(r->label);
    return r->faults;
}

#endif
