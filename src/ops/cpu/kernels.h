/*
 * kernels.h - the row kernels of the CPU backend: the work of one thread on one row or one span.
 * kernels.c fills this table once per ISA.
 *
 * Rows are contiguous; t is the element type of every void pointer in the call unless another is
 * named. Vectors of parameters and their gradients are f32. mask: the factors of dropout.
 */
#ifndef HEED_OPS_CPU_KERNELS_H
#define HEED_OPS_CPU_KERNELS_H
#include "ops/drop.h"

struct kernels {
    const char *isa;

    /* y[c] = (e[c]*scale + position[c]) * mask[c]; position may be NULL: nothing is added */
    void (*embed)(void *y, enum type t, const void *e, enum type te, const float *position, int n,
                  float scale, struct drop_row d);
    /* rotate of ops.h for one row of n numbers; width: columns of the table */
    void (*rotate)(void *x, int n, enum type t, const float *table, int width, bool opposite);
    /* de[c] += dy[c] * scale * mask[col + c] for c in [0, n): a strip of a row that begins at
     * column col; de and dy point to the strip */
    void (*embed_bwd)(float *de, const void *dy, enum type t, int col, int n, float scale,
                      struct drop_row d);
    /* y = norm(x + r*mask)*g + b; returns 1/std; xhat may be NULL; y may be x */
    float (*norm)(void *y, void *xhat, const void *x, const void *r, const float *g, const float *b,
                  int n, enum type t, struct drop_row d);
    void (*norm_bwd)(void *dx, void *dr, const void *dy, const void *xhat, float rstd,
                     const float *g, int n, enum type t, struct drop_row d);
    /* The same without r: y = norm(x)*g + b; dx = beta*dx + its gradient */
    float (*norm_alone)(void *y, void *xhat, const void *x, const float *g, const float *b, int n,
                        enum type t);
    void (*norm_alone_bwd)(void *dx, float beta, const void *dy, const void *xhat, float rstd,
                           const float *g, int n, enum type t);
    /* y = x + r*mask; y may be x */
    void (*add)(void *y, const void *x, const void *r, int n, enum type t, struct drop_row d);
    /* dg[c] += sum over rows of dy*xhat, db[c] += sum over rows of dy: a strip of n columns, rows
     * ld elements apart, in row order */
    void (*norm_bwd_columns)(float *dg, float *db, const void *dy, int ldy, const void *xhat,
                             int ldx, int rows, int n, enum type t);
    /* y = f(z) * mask, slope = f'(z) * mask; y may be z, slope may be NULL, f is not ReLU, which is
     * part of the products */
    void (*activate)(void *y, void *slope, const void *z, int n, enum type t,
                     enum activation_kind f, struct drop_row d);
    /* dy *= f'(z) * mask, in place: slope where f keeps one. For ReLU y = f(z) * mask tells, as it
     * is 0 wherever f'(z) or the mask is; for the identity the mask. */
    void (*activate_bwd)(void *dy, const void *y, const void *slope, int n, enum type t,
                         enum activation_kind f, struct drop_row d);
    /* h = silu(left) * right * mask */
    void (*gate)(void *h, const void *left, const void *right, int n, enum type t,
                 struct drop_row d);
    /* The gradients of left and right from that of h. */
    void (*gate_bwd)(void *dleft, void *dright, const void *dh, const void *left, const void *right,
                     int n, enum type t, struct drop_row d);
    /* db[c] += sum over rows of dy: a strip of n columns, in row order */
    void (*add_columns)(float *db, const void *dy, int ld, int rows, int n, enum type t);
    /* xent of ops.h for one row; loss[2] */
    void (*xent)(void *logits, int n, enum type t, int target, float eps, bool grad, float *loss);
    double (*sum_squares)(const float *g, size_t n);
    /* One span of adam in ops.h. factor multiplies g; it includes h's scale and clip. The bias is
     * corrected for h->step. copy: bf16 or NULL */
    void (*adam)(float *p, float *m, float *v, uint16_t *copy, const float *g, size_t n,
                 float factor, const struct adam *h);
    void (*cast)(void *dst, enum type td, const void *src, enum type ts, size_t n);
    /* Takes in n logits of a row, those of ids [first, first + n), as topk.h describes. score and
     * id: the k best of the `seen` logits before them, or all where these are fewer; largest first,
     * among equals the lower id first, a NaN counts as -inf. *top: the largest of the n, not
     * counting NaNs; *sum: the sum of exp(x - *top), a NaN where one of the n is a NaN or +inf. */
    void (*topk)(const void *x, int n, enum type t, int first, int seen, int k, float *score,
                 int32_t *id, float *top, float *sum);
};

extern const struct kernels kernels_baseline, kernels_avx2, kernels_avx512, kernels_dotprod,
    kernels_i8mm;

#endif
