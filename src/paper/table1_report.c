/*
 * table1_report.c - the report of table 1: times by length and width, where self-attention and the
 * recurrent layer cross, memory, path lengths.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "paper/path.h"
#include "paper/report.h"
#include "paper/table1.h"

enum { POINTS = 16, WIDTHS = 8 };

static const char *const LABEL[] = {"self-attention", "recurrent", "convolutional", "restricted",
                                    "attention alone"};
enum { ALONE = LAYER_KINDS, SERIES };

/* The times of one width: milliseconds forward and backward together. */
struct width {
    int d, n;
    double at[POINTS]; /* lengths */
    double ms[SERIES][POINTS], forward[SERIES][POINTS], bytes[LAYER_KINDS][POINTS];
};

static struct width *find_width(struct width *list, int *n, int d)
{
    for (int i = 0; i < *n; i++)
        if (list[i].d == d) return &list[i];
    if (*n == WIDTHS) return NULL;
    struct width *w = &list[(*n)++];
    w->d = d;
    for (int i = 0; i < POINTS; i++) {
        for (int k = 0; k < SERIES; k++) w->ms[k][i] = w->forward[k][i] = NAN;
        for (int k = 0; k < LAYER_KINDS; k++) w->bytes[k][i] = NAN;
    }
    return w;
}

static void add_points(struct width *w, int kind, const json_t *points)
{
    int n = (int)json_array_size(points);
    for (int i = 0; i < n && i < POINTS; i++) {
        const json_t *p = json_array_get(points, (size_t)i);
        w->at[i] = result_number(p, "n");
        w->forward[kind][i] = result_number(p, "forward_ms");
        w->ms[kind][i] = w->forward[kind][i] + result_number(p, "backward_ms");
        w->bytes[kind][i] = result_number(p, "kept_bytes");
        if (kind != LAYER_ATTENTION) continue;
        w->forward[ALONE][i] = result_number(p, "attend_forward_ms");
        w->ms[ALONE][i] = w->forward[ALONE][i] + result_number(p, "attend_backward_ms");
    }
    w->n = n < POINTS ? n : POINTS;
}

/* The widths of all rows that are finished; list has room for WIDTHS. */
static int collect(const struct heed_study *s, struct width *list)
{
    int n = 0;
    for (int i = 0; i < s->rows; i++) {
        const json_t *x = s->row[i].result, *points = json_object_get(x, "points");
        struct width *w = points ? find_width(list, &n, (int)result_number(x, "d")) : NULL;
        if (w) add_points(w, s->row[i].number % LAYER_KINDS, points);
    }
    return n;
}

/* The length from which on series a takes longer than series b, between two lengths that were
 * measured by interpolation of the logarithms; 0: from the first on; INFINITY: at none. */
static double crossing(const struct width *w, int a, int b)
{
    for (int i = 0; i < w->n; i++) {
        double x = log(w->ms[a][i] / w->ms[b][i]);
        if (!(x > 0)) continue;
        if (!i) return 0;
        double before = log(w->ms[a][i - 1] / w->ms[b][i - 1]);
        return w->at[i - 1] * pow(w->at[i] / w->at[i - 1], -before / (x - before));
    }
    return INFINITY;
}

static void write_crossing(const struct width *w, int a, int b, FILE *md)
{
    double n = crossing(w, a, b);
    if (isnan(w->ms[a][0]) || isnan(w->ms[b][0]))
        fputs("| - ", md);
    else if (isinf(n))
        fprintf(md, "| beyond %.0f ", w->at[w->n - 1]);
    else if (n == 0)
        fprintf(md, "| below %.0f ", w->at[0]);
    else
        fprintf(md, "| %.0f (%.1f d) ", n, n / w->d);
}

/* ---- tables ---- */

static void write_times(const struct width *w, FILE *md)
{
    fprintf(md,
            "Milliseconds, forward and backward (forward alone in parentheses), d = %d:\n\n| n |",
            w->d);
    for (int k = 0; k < SERIES; k++) fprintf(md, " %s |", LABEL[k]);
    fputs("\n|---|---|---|---|---|---|\n", md);
    for (int i = 0; i < w->n; i++) {
        fprintf(md, "| %.0f ", w->at[i]);
        for (int k = 0; k < SERIES; k++) {
            double ms = w->ms[k][i];
            int decimals = ms < 1 ? 3 : ms < 10 ? 2 : ms < 100 ? 1 : 0;
            report_cell(md, ms, decimals);
            if (isfinite(ms)) fprintf(md, "(%.*f) ", decimals, w->forward[k][i]);
        }
        fputs("|\n", md);
    }
    fputc('\n', md);
}

static void write_crossings(const struct width *w, int widths, FILE *md)
{
    fputs(
        "## Where they cross\n\nThe paper: self-attention takes fewer operations than a recurrent "
        "layer while n < d, n² d beside n d².\nCounted in multiply-adds, the recurrent layer here "
        "takes 8 n d² a sentence (four gates of 2 d inputs),\nself-attention 4 n d² + 2 n² d with "
        "its projections and 2 n² d without: the counts cross at n = 2 d and\nn = 4 d. Measured, "
        "self-attention takes longer from this n on:\n\n"
        "| d | with projections | attention alone | counted: with, alone |\n|---|---|---|---|\n",
        md);
    for (int i = 0; i < widths; i++) {
        fprintf(md, "| %d ", w[i].d);
        write_crossing(&w[i], LAYER_ATTENTION, LAYER_RECURRENT, md);
        write_crossing(&w[i], ALONE, LAYER_RECURRENT, md);
        fprintf(md, "| %d, %d |\n", 2 * w[i].d, 4 * w[i].d);
    }
    fputs(
        "\nA crossing later than the count says that the n dependent steps of the recurrent layer, "
        "which cannot run\nside by side, cost more than their operations.\n\n",
        md);
}

static void write_memory(const struct width *w, FILE *md)
{
    fprintf(md,
            "## Memory\n\nKiB a position that forward keeps for backward, the input included, d = "
            "%d. Attention keeps no n × n\nmatrix: backward computes the weights again.\n\n| n |",
            w->d);
    for (int k = 0; k < LAYER_KINDS; k++) fprintf(md, " %s |", LABEL[k]);
    fputs("\n|---|---|---|---|---|\n", md);
    for (int i = 0; i < w->n; i++) {
        fprintf(md, "| %.0f ", w->at[i]);
        for (int k = 0; k < LAYER_KINDS; k++)
            report_cell(md, w->bytes[k][i] / 1024 / (w->at[i] * LAYER_SENTENCES), 2);
        fputs("|\n", md);
    }
    fputc('\n', md);
}

/* ---- paths ---- */

struct paths {
    double distance[PATH_DISTANCES], length[LAYER_KINDS][PATH_DISTANCES];
    bool known[LAYER_KINDS];
};

static struct paths collect_paths(const struct heed_study *s)
{
    struct paths p = {.known = {false}};
    for (int i = 0; i < PATH_DISTANCES; i++) p.distance[i] = path_distance[i];
    for (int i = 0; i < s->rows; i++) {
        const json_t *list = json_object_get(s->row[i].result, "paths");
        int kind = s->row[i].number;
        if (!list) continue;
        p.known[kind] = true;
        for (int k = 0; k < PATH_DISTANCES; k++)
            p.length[kind][k] = result_number(json_array_get(list, (size_t)k), "path");
    }
    return p;
}

static void write_paths(const struct paths *p, FILE *md)
{
    fprintf(
        md,
        "## Path length\n\nThe fewest layers, or dependent steps of one recurrent layer, after "
        "which the gradient of an output with\nrespect to an input so many positions away is not "
        "0; the window of restricted self-attention is %d here.\nThe paper: O(1), O(n), O(n/k) "
        "for a convolution of width k that is not dilated, and O(n/r).\n\n| distance |",
        PATH_WINDOW);
    for (int k = 0; k < LAYER_KINDS; k++) fprintf(md, " %s |", LABEL[k]);
    fputs("\n|---|---|---|---|---|\n", md);
    for (int i = 0; i < PATH_DISTANCES; i++) {
        fprintf(md, "| %.0f ", p->distance[i]);
        for (int k = 0; k < LAYER_KINDS; k++)
            report_cell(md, p->known[k] ? p->length[k][i] : NAN, 0);
        fputs("|\n", md);
    }
    fputc('\n', md);
}

static enum heed_status draw_paths(struct heed_study *s, const struct paths *p, FILE *md,
                                   struct heed_error *err)
{
    struct curve curve[LAYER_KINDS];
    int n = 0;
    for (int k = 0; k < LAYER_KINDS; k++)
        if (p->known[k])
            curve[n++] = (struct curve){LABEL[k], p->distance, p->length[k], PATH_DISTANCES};
    const struct curves panel = {.title = "Layers or steps between two positions",
                                 .x_label = "distance in positions",
                                 .y_label = "layers, or steps of the recurrent layer",
                                 .x_log = true,
                                 .y_log = true,
                                 .points = true,
                                 .curve = curve,
                                 .n = n};
    return n ? report_curves(s, md, "path.svg", &panel, 1, "Table 1: path length", err) : HEED_OK;
}

/* ---- all ---- */

static enum heed_status draw_times(struct heed_study *s, const struct width *w, int widths,
                                   FILE *md, struct heed_error *err)
{
    struct curve curve[WIDTHS][SERIES];
    struct curves panel[WIDTHS];
    char title[WIDTHS][32];
    for (int i = 0; i < widths; i++) {
        int n = 0;
        for (int k = 0; k < SERIES; k++)
            curve[i][n++] = (struct curve){LABEL[k], w[i].at, w[i].ms[k], w[i].n};
        snprintf(title[i], sizeof title[i], "d = %d", w[i].d);
        panel[i] = (struct curves){.title = title[i],
                                   .x_label = "n, positions of a sentence",
                                   .y_label = "ms, forward and backward, 16 sentences",
                                   .x_log = true,
                                   .y_log = true,
                                   .points = true,
                                   .curve = curve[i],
                                   .n = n};
    }
    return report_curves(s, md, "time.svg", panel, widths, "Table 1: time of one layer", err);
}

static void write_intro(FILE *md)
{
    fprintf(
        md,
        "| layer | operations | dependent steps | longest path |\n|---|---|---|---|\n"
        "| self-attention | O(n² d) | O(1) | O(1) |\n"
        "| recurrent | O(n d²) | O(n) | O(n) |\n"
        "| convolutional | O(k n d²) | O(1) | O(log_k n), not dilated O(n/k) |\n"
        "| restricted self-attention | O(r n d) | O(1) | O(n/r) |\n\n"
        "The paper's table 1, for sequences of n vectors of d numbers. What is timed here, on %d "
        "sentences of n\npositions at once, the fastest of at least three runs, without biases, "
        "dropout, residuals and norms:\n\n"
        "- self-attention: multi-head, heads of 64, with the projections q, k, v and out; "
        "\"attention alone\" is\n  the scores, softmax and sums, which is what n² d counts;\n"
        "- recurrent: an LSTM with SiLU in place of the logistic function and tanh (the products, "
        "elementwise\n  operations and dependencies are those of an LSTM). Each of the n steps is "
        "a product of %d rows and five\n  elementwise kernels forward, and as many backward; the "
        "gradient of the weights is one product at the end;\n"
        "- convolutional: %d neighbouring positions, a product for each, and sums;\n"
        "- restricted: self-attention to positions at most %d away, with its projections.\n\n",
        LAYER_SENTENCES, LAYER_SENTENCES, KERNEL, TABLE1_WINDOW);
}

enum heed_status table1_report(struct heed_study *s, FILE *md, struct heed_error *err)
{
    struct width *w = calloc(WIDTHS, sizeof *w);
    if (!w) return error_memory(err, WIDTHS * sizeof *w, "a report");
    int widths = collect(s, w);
    struct paths p = collect_paths(s);
    enum heed_status st = HEED_OK;
    write_intro(md);
    if (widths) {
        fputs("## Time\n\n", md);
        st = draw_times(s, w, widths, md, err);
        for (int i = 0; i < widths; i++) write_times(&w[i], md);
        write_crossings(w, widths, md);
        write_memory(&w[widths - 1], md);
    }
    write_paths(&p, md);
    if (!st) st = draw_paths(s, &p, md, err);
    free(w);
    return st;
}
