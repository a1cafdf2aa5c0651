/*
 * heads.c - pictures of a study of heads: grids of all heads by role, entropy and loss, and how
 * much alike heads are, as an SVG; a table for a terminal; JSON.
 */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/minmax.h"
#include "view/heat.h"
#include "view/text.h"

static const char *const use_name[] = {"encoder", "decoder", "cross"};
static const char *const use_title[] = {"Self-attention of the encoder",
                                        "Self-attention of the decoder", "Cross-attention"};

static const char *role_name(const struct heed_head *h)
{
    return heed_role_name(h->use, h->role);
}

/* The number of the first head of a use. */
static int first_head(const struct heed_heads *h, int use)
{
    int first = 0;
    for (int u = 0; u < use; u++) first += h->layers[u] * h->heads;
    return first;
}

/* Mean cosine of two heads of one layer, and of two layers. */
static void mean_alike(const struct heed_heads *h, int use, double *layer, double *layers)
{
    int n = h->layers[use] * h->heads;
    double sum[2] = {0}, count[2] = {0};
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++) {
            int apart = i / h->heads != j / h->heads;
            sum[apart] += (double)h->alike[use][(size_t)i * n + j];
            count[apart]++;
        }
    *layer = count[0] > 0 ? sum[0] / count[0] : NAN;
    *layers = count[1] > 0 ? sum[1] / count[1] : NAN;
}

static bool is_partial(const struct heed_heads *h)
{
    return h->sentences < h->sentences_all;
}

/* ---- terminal ---- */

static void print_number(FILE *to, const char *format, double x)
{
    if (isfinite(x))
        fprintf(to, format, x);
    else
        fputs("       -", to);
}

static void print(FILE *to, const struct heed_heads *h)
{
    if (is_partial(h))
        fprintf(to, "STOPPED after %lld of %lld sentences: all numbers are over these alone\n",
                (long long)h->sentences, (long long)h->sentences_all);
    fprintf(to, "%lld sentences, %lld tokens, %lld pairs skipped; loss %.4f nats a token",
            (long long)h->sentences, (long long)h->tokens, (long long)h->skipped, h->loss);
    if (isfinite(h->bleu)) fprintf(to, "; BLEU %.2f", h->bleu);
    fputs("\n\nattention layer head role           entropy  (of equal) distance  previous same "
          "next  diagonal first end   alike  loss lost BLEU lost\n",
          to);
    for (int i = 0; i < h->n; i++) {
        const struct heed_head *x = &h->head[i];
        fprintf(
            to, "%-9s %5d %4d %-14s %7.2f %11.2f %8.1f %9.2f %4.2f %4.2f %9.2f %5.2f %4.2f %6.2f",
            use_name[x->use], x->layer + 1, x->head + 1, role_name(x), x->entropy, x->relative,
            x->distance, x->previous, x->same, x->next, x->diagonal, x->first, x->end, x->alike);
        print_number(to, "%11.4f", x->loss_lost);
        print_number(to, "%10.2f", x->bleu_lost);
        fputc('\n', to);
    }
    fputs("\nmean cosine of the weights of two heads:\n", to);
    for (int u = 0; u < HEED_USES; u++) {
        double layer, layers;
        mean_alike(h, u, &layer, &layers);
        fprintf(to, "%-9s of one layer %.2f, of two layers %.2f\n", use_name[u], layer, layers);
    }
    if (h->examples) fputs("\nsentences that show it best (lines from 1):\n", to);
    for (int i = 0; i < h->examples; i++) {
        const struct heed_head_example *e = &h->example[i];
        const struct heed_head *x = &h->head[e->head];
        fprintf(to, "%-24s line %d, %s layer %d head %d: %.2f", e->name, e->sentence + 1,
                use_name[x->use], x->layer + 1, x->head + 1, e->score);
        if (e->query >= 0)
            fprintf(to, " from token %d to %d, %d apart", e->query + 1, e->key + 1, e->distance);
        fputc('\n', to);
    }
}

/* ---- JSON ---- */

static void member(FILE *to, const char *name, double x)
{
    fprintf(to, ", \"%s\": ", name);
    text_json_number(to, x);
}

static void head_json(FILE *to, const struct heed_head *x)
{
    fprintf(to, "{\"attention\": \"%s\", \"layer\": %d, \"head\": %d, \"role\": \"%s\"",
            use_name[x->use], x->layer + 1, x->head + 1, role_name(x));
    member(to, "entropy", x->entropy);
    member(to, "relative_entropy", x->relative);
    member(to, "distance", x->distance);
    member(to, "previous", x->previous);
    member(to, "same", x->same);
    member(to, "next", x->next);
    member(to, "diagonal", x->diagonal);
    member(to, "first", x->first);
    member(to, "end", x->end);
    member(to, "alike", x->alike);
    member(to, "loss_lost", x->loss_lost);
    member(to, "bleu_lost", x->bleu_lost);
    fputc('}', to);
}

static void json(FILE *to, const struct heed_heads *h)
{
    fprintf(to,
            "{\"sentences\": %lld, \"sentences_all\": %lld, \"stopped\": %s, \"tokens\": %lld, "
            "\"skipped\": %lld",
            (long long)h->sentences, (long long)h->sentences_all, is_partial(h) ? "true" : "false",
            (long long)h->tokens, (long long)h->skipped);
    member(to, "loss", h->loss);
    member(to, "bleu", h->bleu);
    fputs(",\n \"heads\": [", to);
    for (int i = 0; i < h->n; i++) {
        fputs(i ? ",\n  " : "\n  ", to);
        head_json(to, &h->head[i]);
    }
    fputs("],\n \"alike\": {", to);
    for (int u = 0; u < HEED_USES; u++) {
        int n = h->layers[u] * h->heads;
        fprintf(to, "%s\n  \"%s\": [", u ? "," : "", use_name[u]);
        for (int i = 0; i < n; i++) {
            if (i) fputs(",\n   ", to);
            text_json_floats(to, h->alike[u] + (size_t)i * n, n);
        }
        fputc(']', to);
    }
    fputs("},\n \"examples\": [", to);
    for (int i = 0; i < h->examples; i++) {
        const struct heed_head_example *e = &h->example[i];
        const struct heed_head *x = &h->head[e->head];
        fprintf(to,
                "%s\n  {\"name\": \"%s\", \"line\": %d, \"attention\": \"%s\", \"layer\": %d, "
                "\"head\": %d, \"score\": %.6g, \"query\": %d, \"key\": %d, \"distance\": %d}",
                i ? "," : "", e->name, e->sentence + 1, use_name[x->use], x->layer + 1, x->head + 1,
                e->score, e->query + 1, e->key + 1, e->distance);
    }
    fputs("]}\n", to);
}

/* ---- SVG ---- */

enum {
    MARGIN = 24,
    HEAD = 74,
    CELL = 24,
    LABEL = 26,
    SPACE = 34,
    TITLE = 24,
    NARROWEST = 240,
    KEY_LINE = 20
};

/* What the colours of a grid show. */
enum measure { BY_ROLE, BY_ENTROPY, BY_LOSS, MEASURES };

/* The last is left out where nothing was masked. */
static int measures(const struct heed_heads *h)
{
    for (int i = 0; i < h->n; i++)
        if (isfinite(h->head[i].loss_lost)) return MEASURES;
    return BY_LOSS;
}

static const char *const measure_name[] = {"role", "entropy, of equal weights",
                                           "loss lost without the head"};

/* The largest loss lost, for the colours; at least a thousandth. */
static double most_lost(const struct heed_heads *h)
{
    double most = 0.001;
    for (int i = 0; i < h->n; i++)
        if (isfinite(h->head[i].loss_lost)) most = fmax(most, fabs(h->head[i].loss_lost));
    return most;
}

static enum svg_colour colour_of(const struct heed_head *x, enum measure m, double most)
{
    if (m == BY_ROLE) return svg_series((int)x->role);
    if (m == BY_ENTROPY) return svg_ramp(x->relative);
    return isfinite(x->loss_lost) ? svg_signed_ramp(x->loss_lost / most) : SVG_GRID;
}

static void tip(char *out, size_t size, const struct heed_head *x)
{
    size_t n = (size_t)snprintf(
        out, size,
        "%s layer %d head %d: %s; entropy %.2f bits (%.2f); distance %.1f; previous %.2f, same "
        "%.2f, next %.2f, diagonal %.2f, first %.2f, end %.2f; alike %.2f",
        use_name[x->use], x->layer + 1, x->head + 1, role_name(x), x->entropy, x->relative,
        x->distance, x->previous, x->same, x->next, x->diagonal, x->first, x->end, x->alike);
    if (isfinite(x->loss_lost) && n < size)
        snprintf(out + n, size - n, "; loss lost %.4f", x->loss_lost);
}

/* A grid with a row for each layer and a column for each head; returns its height. */
static double grid(struct svg *s, const struct heed_heads *h, int use, enum measure m, double x,
                   double y)
{
    char text[400];
    double most = most_lost(h), left = x + LABEL, top = y + 2 * TITLE - 4;
    const struct svg_text label = {.size = 11, .anchor = SVG_MIDDLE, .colour = SVG_FAINT};
    struct svg_text t = {.x = x, .y = y + 14, .bold = true};
    if (m == BY_ROLE) svg_text(s, &t, use_title[use]);
    t = (struct svg_text){.x = left, .y = y + TITLE + 12, .size = 12, .colour = SVG_FAINT};
    svg_text(s, &t, measure_name[m]);
    for (int l = 0; l < h->layers[use]; l++) {
        t = label;
        t.x = x + LABEL / 2.0, t.y = top + l * CELL + CELL / 2.0 + 4;
        snprintf(text, sizeof text, "%d", l + 1);
        svg_text(s, &t, text);
        for (int k = 0; k < h->heads; k++) {
            const struct heed_head *cell = &h->head[first_head(h, use) + l * h->heads + k];
            tip(text, sizeof text, cell);
            svg_tip_begin(s, text);
            svg_rect(s, left + k * CELL, top + l * CELL, CELL - 2, CELL - 2,
                     colour_of(cell, m, most));
            svg_tip_end(s);
        }
    }
    for (int k = 0; k < h->heads; k++) {
        t = label;
        t.x = left + k * CELL + CELL / 2.0 - 1, t.y = top + h->layers[use] * CELL + 12;
        snprintf(text, sizeof text, "%d", k + 1);
        svg_text(s, &t, text);
    }
    return top + h->layers[use] * CELL + 18 - y;
}

/* What the colours of the three columns of grids mean. */
static double keys(struct svg *s, const struct heed_heads *h, double y, double column)
{
    static const char *const name[] = {"previous (cross: before aligned)",
                                       "same (cross: alignment)",
                                       "next (cross: after aligned)",
                                       "rest: front and end",
                                       "nearby (cross: diagonal)",
                                       "broad",
                                       "selective",
                                       "mixed"};
    double most = most_lost(h);
    for (int r = 0; r < HEED_ROLES; r++) {
        svg_rect(s, MARGIN + LABEL, y + r * KEY_LINE, KEY_LINE - 6, KEY_LINE - 6, svg_series(r));
        svg_text(s,
                 &(struct svg_text){
                     .x = MARGIN + LABEL + KEY_LINE, .y = y + r * KEY_LINE + 11, .size = 12},
                 name[r]);
    }
    svg_ramp_key(s, MARGIN + column + LABEL, y, false, 0, 1, "entropy, of equal weights");
    if (measures(h) > BY_LOSS)
        svg_ramp_key(s, MARGIN + 2 * column + LABEL, y, true, -most, most, "nats a token");
    return HEED_ROLES * KEY_LINE;
}

static void alike(struct svg *s, const struct heed_heads *h, int use, double x, double y,
                  double width)
{
    int n = h->layers[use] * h->heads;
    const struct heed_heat_map m = {.title = use_title[use],
                                    .row = "head",
                                    .col = "head",
                                    .first_row = 1,
                                    .first_col = 1,
                                    .rows = n,
                                    .cols = n,
                                    .value = h->alike[use]};
    heat_draw(s, &m, x, y, width);
}

static double alike_height(const struct heed_heads *h)
{
    double most = 0;
    for (int u = 0; u < HEED_USES; u++) {
        int n = h->layers[u] * h->heads;
        most = fmax(most, heat_height(&(struct heed_heat_map){.rows = n, .cols = n}, 0));
    }
    return most;
}

static enum heed_status draw(const struct heed_heads *h, char **out, struct heed_error *err)
{
    struct svg s;
    char line[200];
    double column = fmax(NARROWEST, LABEL + h->heads * CELL) + SPACE, y = HEAD;
    double width = MEASURES * column - SPACE;
    svg_begin(&s, width + 2 * MARGIN, 0, "Heads of the model");
    svg_heading(&s, MARGIN, 30, "What the heads of the model do");
    snprintf(line, sizeof line,
             "%s%lld sentences, %lld tokens; loss %.4f nats a token; rows: "
             "layers, columns: heads",
             is_partial(h) ? "STOPPED: " : "", (long long)h->sentences, (long long)h->tokens,
             h->loss);
    svg_text(&s, &(struct svg_text){.x = MARGIN, .y = 54, .colour = SVG_FAINT}, line);
    for (int u = 0; u < HEED_USES; u++) {
        double height = 0;
        for (int m = 0; m < measures(h); m++)
            height = grid(&s, h, u, (enum measure)m, MARGIN + m * column, y);
        y += height + SPACE / 2.0;
    }
    y += keys(&s, h, y, column) + SPACE;
    svg_heading(&s, MARGIN, y,
                "Do heads repeat each other? Mean cosine of their weights, layer by layer");
    y += SPACE / 2.0;
    for (int u = 0; u < HEED_USES; u++) alike(&s, h, u, MARGIN + u * column, y, column - SPACE);
    s.height = y + alike_height(h) + MARGIN;
    return svg_end(&s, out, err);
}

enum heed_status heed_heads_picture(const struct heed_heads *h, enum heed_picture kind, char **out,
                                    struct heed_error *err)
{
    struct text_out t;
    if (!h || !out) return error_null(err, h ? "out" : "heads");
    if (kind == HEED_PICTURE_SVG) return draw(h, out, err);
    if (kind != HEED_PICTURE_TERMINAL && kind != HEED_PICTURE_JSON)
        return error_set(err, HEED_EARG, "kind of picture is %d, expected %d, %d or %d", (int)kind,
                         HEED_PICTURE_SVG, HEED_PICTURE_TERMINAL, HEED_PICTURE_JSON);
    text_begin(&t);
    if (t.to && kind == HEED_PICTURE_JSON) json(t.to, h);
    if (t.to && kind == HEED_PICTURE_TERMINAL) print(t.to, h);
    return text_end(&t, out, err);
}
