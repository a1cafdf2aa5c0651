/*
 * scaling.c - why dot products are divided by sqrt(d_k) (paper 3.2.1).
 *
 * Queries and keys of independent normal numbers of variance 1 go through the device's own
 * `attend`. Their dot product is a sum of d_k products, so its variance is d_k: without the
 * division the softmax puts its whole weight on one key, and its gradient vanishes. attend always
 * divides by sqrt(d_k); for the softmax without the division the queries are multiplied by
 * sqrt(d_k) first.
 *
 * The gradient of the softmax p with respect to its scores is the matrix diag(p) - p pT; what is
 * reported is its Frobenius norm.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "ops/engine.h"
#include "paper/report.h"
#include "paper/study.h"

enum { SENTENCES = 64, QUERIES = 16, KEYS = 64, ROWS = SENTENCES * QUERIES };
enum { WIDTH_LEAST = 4, WIDTH_MOST = 1024 };

static enum heed_status plan(struct heed_study *s, struct heed_error *err)
{
    enum heed_status st = HEED_OK;
    for (int d = WIDTH_LEAST; d <= WIDTH_MOST && !st; d *= 2) {
        char name[ROW_NAME];
        snprintf(name, sizeof name, "dk%d", d);
        st = study_add_row(s, d, name, err, "d_k %d, with and without 1/sqrt(d_k)", d);
    }
    return st;
}

/* ---- random queries and keys ---- */

/* Box and Muller's two normal numbers from two uniform ones; one of them is used. */
static float normal(uint64_t *state)
{
    double u = 1 - random_unit(state), v = random_unit(state);
    return (float)(sqrt(-2 * log(u)) * cos(2 * acos(-1) * v));
}

struct trial {
    int width;       /* d_k */
    float *q, *k;    /* [ROWS][width], [SENTENCES * KEYS][width] */
    float *weights;  /* [ROWS][KEYS] */
    double variance; /* of the dot products */
};

static void trial_release(struct trial *t)
{
    free(t->q);
    free(t->k);
    free(t->weights);
}

static enum heed_status trial_draw(struct trial *t, int width, uint64_t seed,
                                   struct heed_error *err)
{
    size_t queries = (size_t)ROWS * width, keys = (size_t)SENTENCES * KEYS * width;
    uint64_t state = random_at(seed, (uint64_t)width, 0);
    *t = (struct trial){.width = width,
                        .q = malloc(queries * sizeof *t->q),
                        .k = malloc(keys * sizeof *t->k),
                        .weights = calloc((size_t)ROWS * KEYS, sizeof *t->weights)};
    if (!t->q || !t->k || !t->weights)
        return error_memory(err, (queries + keys) * sizeof *t->q, "queries and keys");
    for (size_t i = 0; i < queries; i++) t->q[i] = normal(&state);
    for (size_t i = 0; i < keys; i++) t->k[i] = normal(&state);
    double sum = 0, squares = 0;
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < KEYS; j++) {
            const float *q = t->q + (size_t)i * width;
            const float *k = t->k + ((size_t)(i / QUERIES) * KEYS + j) * width;
            double dot = 0;
            for (int d = 0; d < width; d++) dot += (double)q[d] * (double)k[d];
            sum += dot;
            squares += dot * dot;
        }
    }
    double n = (double)ROWS * KEYS, mean = sum / n;
    t->variance = squares / n - mean * mean;
    return HEED_OK;
}

/* ---- attention on the device ---- */

/* Device memory of an attention with one head, and the offsets of its sentences. */
struct device_attention {
    struct backend *be;
    struct attention a;
    void *block[6];
    int32_t *offset; /* [3 * SENTENCES + 1] q, k and klen */
};

static enum heed_status matrix(struct device_attention *d, int slot, struct mat *m, int rows,
                               int cols, struct heed_error *err)
{
    size_t bytes = (size_t)rows * cols * sizeof(float);
    enum heed_status st = d->be->op->alloc(d->be, &d->block[slot], bytes, USED_WHOLE, err);
    *m = mat_make(d->block[slot], rows, cols, TYPE_F32);
    if (!st) d->be->op->zero(d->be, m->p, bytes);
    return st;
}

static void device_close(struct device_attention *d)
{
    for (size_t i = 0; i < sizeof d->block / sizeof *d->block; i++)
        if (d->block[i]) d->be->op->free(d->be, d->block[i]);
    if (d->offset) d->be->op->free(d->be, d->offset);
    if (d->be) d->be->op->close(d->be);
}

static enum heed_status device_open(struct device_attention *d, const struct heed_study *s,
                                    int width, struct heed_error *err)
{
    int32_t offset[3 * SENTENCES + 1];
    *d = (struct device_attention){.a = {.heads = 1}};
    enum heed_status st = engine_fork(s->engine, &d->be, err);
    if (st) return st;
    struct attention *a = &d->a;
    st = matrix(d, 0, &a->q, ROWS, width, err);
    if (!st) st = matrix(d, 1, &a->k, SENTENCES * KEYS, width, err);
    if (!st) st = matrix(d, 2, &a->v, SENTENCES * KEYS, width, err);
    if (!st) st = matrix(d, 3, &a->o, ROWS, width, err);
    if (!st) st = matrix(d, 4, &a->lse, ROWS, 1, err);
    if (!st) st = matrix(d, 5, &a->weights, ROWS, KEYS, err);
    if (!st) st = d->be->op->alloc(d->be, (void **)&d->offset, sizeof offset, USED_WHOLE, err);
    if (st) return st;
    for (int i = 0; i <= SENTENCES; i++) offset[i] = i * QUERIES;
    for (int i = 0; i < SENTENCES; i++) {
        offset[SENTENCES + 1 + i] = i * KEYS;
        offset[2 * SENTENCES + 1 + i] = KEYS;
    }
    d->be->op->upload(d->be, d->offset, offset, sizeof offset);
    a->seqs = (struct seqs){.n = SENTENCES,
                            .q = d->offset,
                            .k = d->offset + SENTENCES + 1,
                            .klen = d->offset + 2 * SENTENCES + 1,
                            .max_q = QUERIES,
                            .max_k = KEYS};
    return d->be->op->sync(d->be, err);
}

/* The weights of the queries times `factor`. */
static enum heed_status attend(struct device_attention *d, const struct trial *t, double factor,
                               struct heed_error *err)
{
    const struct ops *op = d->be->op;
    size_t n = (size_t)ROWS * t->width;
    float *q = malloc(n * sizeof *q);
    if (!q) return error_memory(err, n * sizeof *q, "queries");
    for (size_t i = 0; i < n; i++) q[i] = (float)((double)t->q[i] * factor);
    op->upload(d->be, d->a.q.p, q, n * sizeof *q);
    op->upload(d->be, d->a.k.p, t->k, (size_t)SENTENCES * KEYS * t->width * sizeof *t->k);
    op->attend(d->be, &d->a);
    op->download(d->be, t->weights, d->a.weights.p, (size_t)ROWS * KEYS * sizeof *t->weights);
    enum heed_status st = op->sync(d->be, err);
    free(q);
    return st;
}

/* ---- what the weights are like ---- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The Frobenius norm of diag(p) - p pT. 1 - p is computed as the sum of the other weights, which is
 * exact where p is nearly 1. */
static double gradient_norm(const float *p)
{
    double norm = 0;
    for (int i = 0; i < KEYS; i++) {
        double others = 0, squares = 0, x = (double)p[i];
        for (int j = 0; j < KEYS; j++) {
            double y = j == i ? 0 : (double)p[j];
            others += y;
            squares += y * y;
        }
        norm += x * x * (others * others + squares);
    }
    return sqrt(norm);
}

static json_t *describe(const struct trial *t)
{
    double entropy = 0, largest = 0, mean = 0, norm[ROWS];
    for (int i = 0; i < ROWS; i++) {
        const float *p = t->weights + (size_t)i * KEYS;
        double most = 0;
        for (int j = 0; j < KEYS; j++) {
            double x = (double)p[j];
            if (x > 0) entropy -= x * log(x);
            most = fmax(most, x);
        }
        norm[i] = gradient_norm(p);
        mean += norm[i];
        largest += most;
    }
    qsort(norm, ROWS, sizeof *norm, compare);
    json_t *j = json_object();
    result_set(j, "entropy", entropy / ROWS);
    result_set(j, "largest_weight", largest / ROWS);
    result_set(j, "gradient_mean", mean / ROWS);
    result_set(j, "gradient_median", (norm[ROWS / 2 - 1] + norm[ROWS / 2]) / 2);
    return j;
}

static enum heed_status compute(struct heed_study *s, const struct row *r, json_t *result,
                                bool *done, struct heed_error *err)
{
    struct device_attention d;
    struct trial t = {0};
    enum heed_status st = device_open(&d, s, r->number, err);
    if (!st) st = trial_draw(&t, r->number, s->o.seed, err);
    if (!st) {
        json_object_set_new(result, "d_k", json_integer(r->number));
        json_object_set_new(result, "queries", json_integer(ROWS));
        json_object_set_new(result, "keys", json_integer(KEYS));
        result_set(result, "score_variance", t.variance);
        st = attend(&d, &t, 1, err);
    }
    if (!st) {
        json_object_set_new(result, "scaled", describe(&t));
        st = attend(&d, &t, sqrt(r->number), err);
    }
    if (!st) json_object_set_new(result, "unscaled", describe(&t));
    trial_release(&t);
    device_close(&d);
    *done = !st;
    return st;
}

/* ---- report ---- */

enum { WIDTHS = 9 };

struct series {
    double width[WIDTHS], variance[WIDTHS];
    double entropy[2][WIDTHS], largest[2][WIDTHS], mean[2][WIDTHS], median[2][WIDTHS];
    int n;
};

/* The rows that are finished; 0: scaled, 1: unscaled. */
static struct series collect(const struct heed_study *s)
{
    static const char *const kind[] = {"scaled", "unscaled"};
    struct series all = {.n = 0};
    for (int i = 0; i < s->rows; i++) {
        const json_t *result = s->row[i].result;
        if (!result) continue;
        int n = all.n++;
        all.width[n] = result_number(result, "d_k");
        all.variance[n] = result_number(result, "score_variance");
        for (int k = 0; k < 2; k++) {
            const json_t *x = json_object_get(result, kind[k]);
            all.entropy[k][n] = result_number(x, "entropy");
            all.largest[k][n] = result_number(x, "largest_weight");
            all.mean[k][n] = result_number(x, "gradient_mean");
            all.median[k][n] = result_number(x, "gradient_median");
        }
    }
    return all;
}

static void write_table(const struct series *x, FILE *md)
{
    fputs(
        "| d_k | variance of q·k | entropy, scaled | unscaled | largest weight, scaled | unscaled "
        "| gradient (median), scaled | unscaled | gradient (mean), scaled | unscaled |\n"
        "|---|---|---|---|---|---|---|---|---|---|\n",
        md);
    for (int i = 0; i < x->n; i++) {
        fprintf(md, "| %.0f | %.2f | %.3f | %.3f | %.3f | %.3f | %.4f | %.3g | %.4f | %.4f |\n",
                x->width[i], x->variance[i], x->entropy[0][i], x->entropy[1][i], x->largest[0][i],
                x->largest[1][i], x->median[0][i], x->median[1][i], x->mean[0][i], x->mean[1][i]);
    }
    fputc('\n', md);
}

static enum heed_status draw(struct heed_study *s, const struct series *x, FILE *md,
                             struct heed_error *err)
{
    const double *w = x->width;
    const struct curve entropy[] = {{"with 1/√d_k", w, x->entropy[0], x->n},
                                    {"without", w, x->entropy[1], x->n}};
    const struct curve gradient[] = {{"with 1/√d_k, median", w, x->median[0], x->n},
                                     {"without, median", w, x->median[1], x->n},
                                     {"with 1/√d_k, mean", w, x->mean[0], x->n},
                                     {"without, mean", w, x->mean[1], x->n}};
    const struct curves panel[] = {
        {.title = "Entropy of the attention weights",
         .x_label = "d_k",
         .y_label = "nats; 64 equal weights have 4.16",
         .x_log = true,
         .y_zero = true,
         .points = true,
         .curve = entropy,
         .n = 2},
        {.title = "Gradient of the softmax",
         .x_label = "d_k",
         .y_label = "Frobenius norm of the Jacobian",
         .x_log = true,
         .y_log = true,
         .points = true,
         .curve = gradient,
         .n = 4},
    };
    return report_curves(s, md, "scaling.svg", panel, 2,
                         "Softmax of dot products with and without 1/√d_k", err);
}

static enum heed_status report(struct heed_study *s, FILE *md, struct heed_error *err)
{
    struct series x = collect(s);
    fprintf(
        md,
        "The paper (3.2.1) suspects that for large d_k the dot products grow large and push the "
        "softmax\ninto regions of extremely small gradients: the dot product of two vectors of "
        "d_k independent\nnumbers of variance 1 has variance d_k. Here %d queries and their %d "
        "keys are drawn from a\nnormal distribution; the weights are those that the device's own "
        "attention computes. The gradient is\nthe Frobenius norm of the Jacobian diag(p) - p pᵀ "
        "of the softmax.\n\n",
        ROWS, KEYS);
    if (!x.n) return HEED_OK;
    write_table(&x, md);
    enum heed_status st = draw(s, &x, md, err);
    if (st) return st;
    int last = x.n - 1;
    bool holds =
        x.entropy[1][last] < x.entropy[0][last] / 2 && x.median[1][last] < x.median[0][last] / 10;
    fprintf(
        md,
        "From d_k %.0f to %.0f the variance of q·k goes from %.1f to %.1f. Without the division "
        "the entropy\ngoes from %.2f to %.2f nats and the median gradient from %.3g to %.3g; "
        "with it from %.2f to %.2f\nand from %.3g to %.3g. The paper's claim is %s.\n",
        x.width[0], x.width[last], x.variance[0], x.variance[last], x.entropy[1][0],
        x.entropy[1][last], x.median[1][0], x.median[1][last], x.entropy[0][0], x.entropy[0][last],
        x.median[0][0], x.median[0][last], holds ? "confirmed" : "not confirmed by these rows");
    return HEED_OK;
}

const struct experiment scaling_experiment = {
    .name = "scaling",
    .title = "Why dot products are divided by √d_k (paper 3.2.1)",
    .plan = plan,
    .compute = compute,
    .report = report,
};
