/*
 * layers.c - the layers of table 1; see layers.h.
 *
 * The recurrent layer is an LSTM (Hochreiter and Schmidhuber 1997) whose squashing functions are
 * SiLU, s(z) = z / (1 + exp(-z)), the gate that the devices have:
 *
 *     [o i g f] = W [x_t, h_t-1]     c_t = s(f) c_t-1 + s(i) g     h_t = s(c_t) o
 *
 * It does the products, the elementwise operations and the n dependent steps of one with logistic
 * functions and tanh. A step forward is a product of LAYER_SENTENCES rows, three gates, a sum and a
 * copy; a step backward is a product, three gates and two sums. The gradient of W is one product
 * after all steps. A row of `gates` holds [c_t o i g f c_t-1], so that each pair that is gated lies
 * side by side.
 *
 * The rows of the recurrent and the convolutional layer are ordered by position, then by sentence;
 * those of attention by sentence, then by position.
 */
#include "paper/layers.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/random.h"

static const struct activation plain = {0};
static const struct mat absent = {0};
static const struct drop nothing = {0};

/* ---- memory ---- */

/* The type of statistics and of the gradients of weights. */
static enum type master(const struct layer *l)
{
    return l->type == TYPE_F64 ? TYPE_F64 : TYPE_F32;
}

static enum heed_status matrix(struct layer *l, struct mat *m, int rows, int cols, enum type type,
                               bool kept, struct heed_error *err)
{
    const struct ops *op = l->be->op;
    size_t bytes = (size_t)rows * cols * type_size(type);
    void *p = NULL;
    enum heed_status st = op->alloc(l->be, &p, bytes, USED_WHOLE, err);
    if (st) return st;
    l->block[l->blocks++] = p;
    *m = mat_make(p, rows, cols, type);
    op->zero(l->be, p, bytes);
    if (kept) l->kept += bytes;
    return HEED_OK;
}

/* Fills a matrix with uniform numbers of this variance, a function of seed and place; transposed:
 * with the numbers that the transposed matrix would get. */
static enum heed_status fill(struct layer *l, struct mat m, double variance, uint64_t seed,
                             bool transposed, struct heed_error *err)
{
    const struct ops *op = l->be->op;
    size_t n = (size_t)m.rows * m.cols;
    float *host = malloc(n * sizeof *host);
    void *device = NULL;
    if (!host) return error_memory(err, n * sizeof *host, "a layer");
    for (int i = 0; i < m.rows; i++) {
        for (int j = 0; j < m.cols; j++) {
            size_t at = transposed ? (size_t)j * m.rows + i : (size_t)i * m.cols + j;
            double unit = (double)(random_at(seed, at, 0) >> 11) * 0x1p-53;
            host[(size_t)i * m.cols + j] = (float)((2 * unit - 1) * sqrt(3 * variance));
        }
    }
    enum heed_status st = op->alloc(l->be, &device, n * sizeof *host, USED_WHOLE, err);
    if (!st) {
        op->upload(l->be, device, host, n * sizeof *host);
        op->cast(l->be, m, mat_make(device, m.rows, m.cols, TYPE_F32));
        st = op->sync(l->be, err);
        op->free(l->be, device);
    }
    free(host);
    return st;
}

static enum heed_status weights(struct layer *l, int i, int rows, int cols, uint64_t seed,
                                struct heed_error *err)
{
    enum heed_status st = matrix(l, &l->w[i], rows, cols, l->type, false, err);
    if (!st) st = matrix(l, &l->dw[i], rows, cols, master(l), false, err);
    if (!st) st = fill(l, l->w[i], 1.0 / cols, random_at(seed, 1, (uint64_t)i), false, err);
    return st;
}

/* ---- open ---- */

enum { HEAD = 64 }; /* columns of a head, where d is not smaller */

static enum heed_status open_attention(struct layer *l, uint64_t seed, struct heed_error *err)
{
    int rows = l->n * LAYER_SENTENCES, d = l->d, heads = d > HEAD ? d / HEAD : 1;
    int32_t offset[3 * LAYER_SENTENCES + 1];
    void *device = NULL;
    struct attention *a = &l->a;
    enum heed_status st = matrix(l, &l->x, rows, d, l->type, true, err);
    if (!st) st = matrix(l, &l->qkv, rows, 3 * d, l->type, true, err);
    if (!st) st = matrix(l, &a->o, rows, d, l->type, true, err);
    if (!st) st = matrix(l, &a->lse, rows, heads, master(l), true, err);
    if (!st) st = matrix(l, &l->y, rows, d, l->type, true, err);
    if (!st) st = matrix(l, &l->dx, rows, d, l->type, false, err);
    if (!st) st = matrix(l, &l->dy, rows, d, l->type, false, err);
    if (!st) st = matrix(l, &l->dqkv, rows, 3 * d, l->type, false, err);
    if (!st) st = matrix(l, &l->g.dout, rows, d, l->type, false, err);
    if (!st) st = weights(l, 0, 3 * d, d, seed, err);
    if (!st) st = weights(l, 1, d, d, seed, err);
    if (!st) st = l->be->op->alloc(l->be, &device, sizeof offset, USED_WHOLE, err);
    if (st) return st;
    l->block[l->blocks++] = device;
    for (int i = 0; i <= LAYER_SENTENCES; i++) offset[i] = i * l->n;
    for (int i = 0; i < LAYER_SENTENCES; i++) {
        offset[LAYER_SENTENCES + 1 + i] = i * l->n;
        offset[2 * LAYER_SENTENCES + 1 + i] = l->n;
    }
    l->be->op->upload(l->be, device, offset, sizeof offset);
    const int32_t *at = device;
    a->heads = heads;
    a->q = mat_cols(l->qkv, 0, d);
    a->k = mat_cols(l->qkv, d, d);
    a->v = mat_cols(l->qkv, 2 * d, d);
    a->window = l->window;
    a->seqs = (struct seqs){.n = LAYER_SENTENCES,
                            .q = at,
                            .k = at + LAYER_SENTENCES + 1,
                            .klen = at + 2 * LAYER_SENTENCES + 1,
                            .max_q = l->n,
                            .max_k = l->n};
    l->g.dq = mat_cols(l->dqkv, 0, d);
    l->g.dk = mat_cols(l->dqkv, d, d);
    l->g.dv = mat_cols(l->dqkv, 2 * d, d);
    return l->be->op->sync(l->be, err);
}

static enum heed_status open_recurrent(struct layer *l, uint64_t seed, struct heed_error *err)
{
    int one = LAYER_SENTENCES, rows = l->n * one, d = l->d;
    enum heed_status st = matrix(l, &l->input, rows + one, 2 * d, l->type, true, err);
    if (!st) st = matrix(l, &l->gates, rows + one, 6 * d, l->type, true, err);
    if (!st) st = matrix(l, &l->part, one, d, l->type, false, err);
    if (!st) st = matrix(l, &l->part2, one, d, l->type, false, err);
    if (!st) st = matrix(l, &l->dinput, rows + one, 2 * d, l->type, false, err);
    if (!st) st = matrix(l, &l->dgates, rows + one, 6 * d, l->type, false, err);
    if (!st) st = matrix(l, &l->dy, rows, d, l->type, false, err);
    if (!st) st = weights(l, 0, 4 * d, 2 * d, seed, err);
    if (!st) st = matrix(l, &l->w[1], 2 * d, 4 * d, l->type, false, err);
    if (!st) st = fill(l, l->w[1], 1.0 / (2 * d), random_at(seed, 1, 0), true, err);
    l->x = mat_cols(mat_rows(l->input, 0, rows), 0, d);
    l->y = mat_cols(mat_rows(l->input, one, rows), d, d);
    l->dx = mat_cols(mat_rows(l->dinput, 0, rows), 0, d);
    return st;
}

static enum heed_status open_convolution(struct layer *l, uint64_t seed, struct heed_error *err)
{
    int one = LAYER_SENTENCES, rows = l->n * one, d = l->d;
    enum heed_status st = matrix(l, &l->input, rows + 2 * one, d, l->type, true, err);
    if (!st) st = matrix(l, &l->y, rows, d, l->type, true, err);
    if (!st) st = matrix(l, &l->part, rows, d, l->type, false, err);
    if (!st) st = matrix(l, &l->dinput, rows + 2 * one, d, l->type, false, err);
    if (!st) st = matrix(l, &l->dy, rows, d, l->type, false, err);
    for (int i = 0; i < KERNEL && !st; i++) st = weights(l, i, d, d, seed, err);
    l->x = mat_rows(l->input, one, rows);
    l->dx = mat_rows(l->dinput, one, rows);
    return st;
}

static const char *missing(const struct layer *l)
{
    const struct ops *op = l->be->op;
    if (!op->linear_bwd || !op->attend_bwd) return "training";
    if (l->kind == LAYER_RECURRENT && (!op->gate || !op->gate_bwd || !op->add)) return "gates";
    if (l->kind == LAYER_CONVOLUTION && !op->add) return "sums";
    if (l->kind == LAYER_RESTRICTED && !op->attend_forms) return "attention in a window";
    return NULL;
}

enum heed_status layer_open(struct layer *l, struct backend *be, enum layer_kind kind, int n, int d,
                            int window, enum type type, uint64_t seed, struct heed_error *err)
{
    *l = (struct layer){.kind = kind, .n = n, .d = d, .be = be, .type = type};
    if (kind == LAYER_RESTRICTED) l->window = window;
    const char *lacks = missing(l);
    if (lacks)
        return error_set(err, HEED_EUNSUPPORTED, "%s cannot do %s, which this layer needs",
                         be->op->name, lacks);
    enum heed_status st = kind == LAYER_RECURRENT     ? open_recurrent(l, seed, err)
                          : kind == LAYER_CONVOLUTION ? open_convolution(l, seed, err)
                                                      : open_attention(l, seed, err);
    if (!st) st = fill(l, l->x, 1, random_at(seed, 2, 0), false, err);
    if (!st) st = fill(l, l->dy, 1, random_at(seed, 3, 0), false, err);
    if (st) layer_close(l);
    return st;
}

void layer_close(struct layer *l)
{
    for (int i = 0; i < l->blocks; i++) l->be->op->free(l->be, l->block[i]);
    l->blocks = 0;
}

int layer_row(const struct layer *l, int sentence, int position)
{
    bool by_position = l->kind == LAYER_RECURRENT || l->kind == LAYER_CONVOLUTION;
    return by_position ? position * LAYER_SENTENCES + sentence : sentence * l->n + position;
}

/* ---- attention ---- */

void layer_attend(struct layer *l)
{
    l->be->op->attend(l->be, &l->a);
}

void layer_attend_backward(struct layer *l)
{
    l->be->op->attend_bwd(l->be, &l->a, &l->g);
}

static void attention_forward(struct layer *l)
{
    const struct ops *op = l->be->op;
    op->linear(l->be, l->qkv, l->x, l->w[0], absent, plain);
    layer_attend(l);
    op->linear(l->be, l->y, l->a.o, l->w[1], absent, plain);
}

static void attention_backward(struct layer *l)
{
    const struct ops *op = l->be->op;
    op->linear_bwd(l->be, l->g.dout, 0, absent, l->dw[1], l->dy, l->a.o, l->w[1], plain);
    layer_attend_backward(l);
    op->linear_bwd(l->be, l->dx, 0, absent, l->dw[0], l->dqkv, l->x, l->w[0], plain);
}

/* ---- recurrent ---- */

/* The rows of step t; and in those of the gates n blocks of [c o i g f c_before] from `first` on.
 */
static struct mat step_of(struct mat m, int t)
{
    return mat_rows(m, t * LAYER_SENTENCES, LAYER_SENTENCES);
}

static struct mat gates_of(const struct layer *l, struct mat gates, int t, int first, int n)
{
    return mat_cols(step_of(gates, t), first * l->d, n * l->d);
}

enum { CELL = 0, OUT = 1, IN = 2, FORGET = 4, BEFORE = 5, PRODUCTS = 4 };

static void recurrent_forward(struct layer *l)
{
    const struct ops *op = l->be->op;
    for (int t = 0; t < l->n; t++) {
        struct mat cell = gates_of(l, l->gates, t, CELL, 1);
        op->linear(l->be, gates_of(l, l->gates, t, OUT, PRODUCTS), step_of(l->input, t), l->w[0],
                   absent, plain);
        op->gate(l->be, l->part, gates_of(l, l->gates, t, FORGET, 2), nothing);
        op->gate(l->be, l->part2, gates_of(l, l->gates, t, IN, 2), nothing);
        op->add(l->be, cell, l->part, l->part2, nothing);
        op->gate(l->be, step_of(l->y, t), gates_of(l, l->gates, t, CELL, 2), nothing);
        op->cast(l->be, gates_of(l, l->gates, t + 1, BEFORE, 1), cell);
    }
}

void layer_backward_steps(struct layer *l, int steps)
{
    const struct ops *op = l->be->op;
    size_t all = (size_t)l->dinput.rows * l->dinput.cols * type_size(l->type);
    if (steps < l->n) op->zero(l->be, l->dinput.p, all);
    for (int t = l->n - 1; t >= l->n - steps; t--) {
        /* h goes into y and into the input of the next step, whose gradient is 0 after the last */
        op->add(l->be, l->part, step_of(l->dy, t), mat_cols(step_of(l->dinput, t + 1), l->d, l->d),
                nothing);
        op->gate_bwd(l->be, gates_of(l, l->dgates, t, CELL, 2), absent, l->part,
                     gates_of(l, l->gates, t, CELL, 2), nothing);
        op->add(l->be, l->part2, gates_of(l, l->dgates, t, CELL, 1),
                gates_of(l, l->dgates, t + 1, BEFORE, 1), nothing);
        op->gate_bwd(l->be, gates_of(l, l->dgates, t, IN, 2), absent, l->part2,
                     gates_of(l, l->gates, t, IN, 2), nothing);
        op->gate_bwd(l->be, gates_of(l, l->dgates, t, FORGET, 2), absent, l->part2,
                     gates_of(l, l->gates, t, FORGET, 2), nothing);
        op->linear(l->be, step_of(l->dinput, t), gates_of(l, l->dgates, t, OUT, PRODUCTS), l->w[1],
                   absent, plain);
    }
}

static void recurrent_backward(struct layer *l)
{
    int rows = l->n * LAYER_SENTENCES;
    layer_backward_steps(l, l->n);
    l->be->op->linear_bwd(l->be, absent, 0, absent, l->dw[0],
                          mat_cols(mat_rows(l->dgates, 0, rows), OUT * l->d, PRODUCTS * l->d),
                          mat_rows(l->input, 0, rows), l->w[0], plain);
}

/* ---- convolution ---- */

static void convolution_forward(struct layer *l)
{
    const struct ops *op = l->be->op;
    for (int i = 0; i < KERNEL; i++) {
        struct mat x = mat_rows(l->input, i * LAYER_SENTENCES, l->y.rows);
        op->linear(l->be, i ? l->part : l->y, x, l->w[i], absent, plain);
        if (i) op->add(l->be, l->y, l->y, l->part, nothing);
    }
}

static void convolution_backward(struct layer *l)
{
    const struct ops *op = l->be->op;
    op->zero(l->be, l->dinput.p, (size_t)l->dinput.rows * l->dinput.cols * type_size(l->type));
    for (int i = 0; i < KERNEL; i++) {
        int first = i * LAYER_SENTENCES;
        op->linear_bwd(l->be, mat_rows(l->dinput, first, l->dy.rows), 1, absent, l->dw[i], l->dy,
                       mat_rows(l->input, first, l->dy.rows), l->w[i], plain);
    }
}

/* ---- all ---- */

void layer_forward(struct layer *l)
{
    if (l->kind == LAYER_RECURRENT)
        recurrent_forward(l);
    else if (l->kind == LAYER_CONVOLUTION)
        convolution_forward(l);
    else
        attention_forward(l);
}

void layer_backward(struct layer *l)
{
    if (l->kind == LAYER_RECURRENT)
        recurrent_backward(l);
    else if (l->kind == LAYER_CONVOLUTION)
        convolution_backward(l);
    else
        attention_backward(l);
}
