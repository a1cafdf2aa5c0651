/*
 * experts.h - the kernels of a mixture of experts that no other op has: the work of one thread on
 * one row or one strip of columns. experts_kernels.c fills this table once per ISA, experts.c
 * distributes the work.
 *
 * t is the element type of every void pointer; what belongs to the router is f32.
 */
#ifndef HEED_OPS_CPU_EXPERTS_H
#define HEED_OPS_CPU_EXPERTS_H
#include "ops/ops.h"

/* A sum of rows, each times a factor: rows of activations, and rows of the router's matrix. */
struct row_sum {
    int n;                              /* rows of activations */
    const void *x[EXPERTS_PER_ROW_MAX]; /* [n] */
    float factor[EXPERTS_PER_ROW_MAX];  /* [n] */
    int experts;                        /* rows of the router's matrix; 0: none is added */
    const float *w;                     /* [experts] rows, ldw elements apart */
    int ldw;
    const float *dl; /* [experts] their factors */
};

struct expert_kernels {
    const char *isa;
    /* sum over c of a[c] * b[c] */
    float (*dot)(const void *a, const void *b, int n, enum type t);
    /* The same for each of `experts` rows of w, which are ldw elements apart. */
    void (*dots)(float *out, const void *x, const float *w, int ldw, int experts, int n,
                 enum type t);
    /* y = beta*y + s */
    void (*sum)(void *y, float beta, const struct row_sum *s, int n, enum type t);
    /* dw[c] += sum over rows of dl[row * ldl] * x[row][c]: a strip of n columns, in row order */
    void (*weighted_columns)(float *dw, const float *dl, int ldl, const void *x, int ldx, int rows,
                             int n, enum type t);
};

extern const struct expert_kernels experts_baseline, experts_avx2, experts_avx512, experts_dotprod,
    experts_i8mm;

#endif
