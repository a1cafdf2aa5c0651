/*
 * attention.c - pictures of attention: an SVG, and characters for a terminal.
 *
 * A picture has a row for each token of the translation and a column for each token of the source.
 * The darker a cell, the higher the attention weight.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/locale.h"
#include "base/utf8.h"
#include "heed.h"

static enum heed_status check(const struct heed_attention *a, enum heed_picture kind, int layer,
                              int head, struct heed_error *err)
{
    if (!a) return error_null(err, "attention");
    if (kind != HEED_PICTURE_SVG && kind != HEED_PICTURE_TERMINAL)
        return error_set(err, HEED_EARG, "kind of picture is %d, expected %d or %d", (int)kind,
                         HEED_PICTURE_SVG, HEED_PICTURE_TERMINAL);
    if (layer < 0 || layer >= a->layers)
        return error_set(err, HEED_EARG, "layer is %d, expected 0 to %d", layer, a->layers - 1);
    if (head < -1 || head >= a->heads)
        return error_set(err, HEED_EARG, "head is %d, expected 0 to %d, or -1 for their mean", head,
                         a->heads - 1);
    return HEED_OK;
}

/* The weight of one cell in one head, or its mean over the heads where head is -1. */
static float weight(const struct heed_attention *a, int layer, int head, int target, int source)
{
    size_t map = (size_t)a->targets * a->sources, cell = (size_t)target * a->sources + source;
    const float *w = a->weight + (size_t)layer * a->heads * map + cell;
    if (head >= 0) return w[head * map];
    float sum = 0;
    for (int h = 0; h < a->heads; h++) sum += w[h * map];
    return sum / (float)a->heads;
}

/* ---- tokens as labels ---- */

static const char space[] = "\xe2\x96\x81"; /* U+2581, which vocabularies write for a space */

/* A token without the U+2581 at its front; a token that is only U+2581 stays as it is. */
static const char *label(const char *piece)
{
    size_t n = sizeof space - 1;
    return strncmp(piece, space, n) == 0 && piece[n] ? piece + n : piece;
}

/* How many columns of a terminal a string takes: Chinese, Japanese, Korean and full-width
 * characters take two each. */
static int columns(const char *s)
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
        int w = columns(label(piece[i]));
        if (w > most) most = w;
    }
    return most;
}

/* ---- SVG ---- */

enum { CELL = 28, FONT = 15, COLUMN = 8, WIDE = 11, GAP = 8, TITLE = 34, KEY = 46 }; /* pixels */

static void escape(FILE *f, const char *s)
{
    for (; *s; s++) {
        switch (*s) {
        case '<':
            fputs("&lt;", f);
            break;
        case '>':
            fputs("&gt;", f);
            break;
        case '&':
            fputs("&amp;", f);
            break;
        case '"':
            fputs("&quot;", f);
            break;
        default:
            if ((unsigned char)*s >= ' ') fputc(*s, f);
        }
    }
}

static void svg_labels(FILE *f, const struct heed_attention *a, int left, int top)
{
    for (int i = 0; i < a->sources; i++) {
        int x = left + i * CELL + CELL / 2, y = top - GAP;
        fprintf(f, "<text transform=\"translate(%d %d) rotate(-50)\">", x, y);
        escape(f, label(a->source[i]));
        fputs("</text>\n", f);
    }
    fputs("<g text-anchor=\"end\">\n", f);
    for (int j = 0; j < a->targets; j++) {
        fprintf(f, "<text x=\"%d\" y=\"%d\">", left - GAP, top + j * CELL + CELL / 2 + FONT / 3);
        escape(f, label(a->target[j]));
        fputs("</text>\n", f);
    }
    fputs("</g>\n", f);
}

/* Every cell has a tooltip with its tokens and its weight. */
static void svg_cells(FILE *f, const struct heed_attention *a, int layer, int head, int left,
                      int top)
{
    fputs("<g fill=\"#08306b\" stroke=\"#d9dee6\" stroke-width=\"1\">\n", f);
    for (int j = 0; j < a->targets; j++)
        for (int i = 0; i < a->sources; i++) {
            float w = weight(a, layer, head, j, i);
            fprintf(f,
                    "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill-opacity=\"%.3f\">"
                    "<title>",
                    left + i * CELL, top + j * CELL, CELL, CELL, (double)w);
            escape(f, label(a->target[j]));
            fputs(" \xe2\x86\x90 ", f); /* an arrow to the left */
            escape(f, label(a->source[i]));
            fprintf(f, ": %.3f</title></rect>\n", (double)w);
        }
    fputs("</g>\n", f);
}

static void svg_key(FILE *f, int left, int top)
{
    enum { STEPS = 5, WIDTH = 36 };
    fputs("<g font-size=\"12\" text-anchor=\"middle\" fill=\"#08306b\">\n", f);
    for (int i = 0; i <= STEPS; i++) {
        int x = left + i * WIDTH;
        fprintf(f,
                "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"12\" stroke=\"#d9dee6\" "
                "fill-opacity=\"%.1f\"/><text x=\"%d\" y=\"%d\">%.1f</text>\n",
                x, top, WIDTH, (double)i / STEPS, x + WIDTH / 2, top + 26, (double)i / STEPS);
    }
    fputs("</g>\n", f);
}

static void svg_write(FILE *f, const struct heed_attention *a, int layer, int head)
{
    int left = widest(a->target, a->targets) * COLUMN + 3 * GAP;
    /* The length of the slanted labels; WIDE because all letters of >>de<< are wide. */
    int slope = widest(a->source, a->sources) * WIDE;
    int top = TITLE + slope * 4 / 5 + 2 * GAP;
    int right = left + a->sources * CELL + slope * 2 / 3 + 2 * GAP;
    int width = right > left + 260 ? right : left + 260, bottom = top + a->targets * CELL;
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d "
            "%d\" font-family=\"'Noto Sans', 'DejaVu Sans', 'Noto Sans CJK SC', 'PingFang SC', "
            "'Microsoft YaHei', sans-serif\" font-size=\"%d\" fill=\"#1b1f24\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            width, bottom + KEY + GAP, width, bottom + KEY + GAP, FONT);
    fprintf(f, "<text x=\"%d\" y=\"22\" font-weight=\"bold\">decoder layer %d of %d, ", GAP * 2,
            layer + 1, a->layers);
    if (head < 0)
        fprintf(f, "mean of %d heads</text>\n", a->heads);
    else
        fprintf(f, "head %d of %d</text>\n", head + 1, a->heads);
    svg_labels(f, a, left, top);
    svg_cells(f, a, layer, head, left, top);
    svg_key(f, left, bottom + 2 * GAP);
    fputs("</svg>\n", f);
}

/* ---- terminal ---- */

/* Writes a label with U+FFFD for each control character, which a terminal would obey; it takes as
 * many columns as columns() says. */
static void label_write(FILE *f, const char *s)
{
    for (size_t n, left = strlen(s); left; s += n, left -= n) {
        size_t control = utf8_control(s, left);
        n = control ? control : 1;
        if (control)
            fputs(UTF8_REPLACEMENT, f);
        else
            fputc(*s, f);
    }
}

static void text_write(FILE *f, const struct heed_attention *a, int layer, int head)
{
    static const char *const shade[] = {" ", "\xe2\x96\x91", "\xe2\x96\x92", "\xe2\x96\x93",
                                        "\xe2\x96\x88"};
    enum { SHADES = sizeof shade / sizeof shade[0] };
    int margin = widest(a->target, a->targets);
    /* Each source token is on a line of its own, with a rule down to its column. */
    for (int i = 0; i < a->sources; i++) {
        fprintf(f, "%*s ", margin, "");
        for (int k = 0; k < i; k++) fputs("\xe2\x94\x82 ", f);
        label_write(f, label(a->source[i]));
        fputc('\n', f);
    }
    for (int j = 0; j < a->targets; j++) {
        const char *name = label(a->target[j]);
        fprintf(f, "%*s", margin - columns(name), "");
        label_write(f, name);
        fputc(' ', f);
        for (int i = 0; i < a->sources; i++) {
            int level = (int)(weight(a, layer, head, j, i) * SHADES);
            const char *s = shade[level < SHADES ? level : SHADES - 1];
            fprintf(f, "%s%s", s, s);
        }
        fputc('\n', f);
    }
}

/* ---- both ---- */

enum heed_status heed_attention_picture(const struct heed_attention *a, enum heed_picture kind,
                                        int layer, int head, char **out, struct heed_error *err)
{
    enum heed_status status = out ? check(a, kind, layer, head, err) : error_null(err, "out");
    if (status) return status;
    size_t n;
    char *text = NULL;
    FILE *f = open_memstream(&text, &n);
    struct c_locale locale = c_locale_enter();
    if (f && kind == HEED_PICTURE_SVG)
        svg_write(f, a, layer, head);
    else if (f)
        text_write(f, a, layer, head);
    c_locale_leave(locale);
    bool bad = !f || ferror(f);
    if (f && fclose(f)) bad = true;
    if (bad) {
        free(text);
        return error_set(err, HEED_ENOMEM, "out of memory: a picture of %d by %d tokens",
                         a->targets, a->sources);
    }
    *out = text;
    return HEED_OK;
}
