/*
 * experts_kernels.c - see experts.h. Compiled once per ISA, like kernels.c.
 */
#include "ops/cpu/experts.h"

#include "ops/cpu/vec.h"

INLINE float dot_body(const void *a, enum type ta, const void *b, enum type tb, int n)
{
    vf sum = {0};
    int i = 0;
    for (; i + W <= n; i += W) sum += vf_load(a, i, ta) * vf_load(b, i, tb);
    if (i < n) sum += vf_load_part(a, i, n - i, 0, ta) * vf_load_part(b, i, n - i, 0, tb);
    return vf_sum(sum);
}

static float dot(const void *a, const void *b, int n, enum type t)
{
    return t == TYPE_BF16 ? dot_body(a, TYPE_BF16, b, TYPE_BF16, n)
                          : dot_body(a, TYPE_F32, b, TYPE_F32, n);
}

static void dots(float *out, const void *x, const float *w, int ldw, int experts, int n,
                 enum type t)
{
    for (int e = 0; e < experts; e++) {
        const float *row = w + (size_t)e * ldw;
        out[e] = t == TYPE_BF16 ? dot_body(x, TYPE_BF16, row, TYPE_F32, n)
                                : dot_body(x, TYPE_F32, row, TYPE_F32, n);
    }
}

INLINE void sum_at(void *y, float beta, const struct row_sum *s, int i, int k, enum type t)
{
    vf sum = beta != 0 ? beta * vf_load_part(y, i, k, 0, t) : vf_all(0);
    for (int j = 0; j < s->n; j++) sum += s->factor[j] * vf_load_part(s->x[j], i, k, 0, t);
    for (int e = 0; e < s->experts; e++)
        sum += s->dl[e] * vf_load_part(s->w + (size_t)e * s->ldw, i, k, 0, TYPE_F32);
    vf_store_part(y, i, k, sum, t);
}

INLINE void sum_body(void *y, float beta, const struct row_sum *s, int n, enum type t)
{
    int i = 0;
    for (; i + W <= n; i += W) sum_at(y, beta, s, i, W, t);
    if (i < n) sum_at(y, beta, s, i, n - i, t);
}

static void sum(void *y, float beta, const struct row_sum *s, int n, enum type t)
{
    if (t == TYPE_BF16)
        sum_body(y, beta, s, n, TYPE_BF16);
    else
        sum_body(y, beta, s, n, TYPE_F32);
}

enum { ROW_BLOCK = 128 }; /* rows of a partial sum: summing in two levels loses fewer digits */

/* One vector of columns. The sum is added to dw once, so two backward passes give exactly twice the
 * gradient. */
INLINE void weighted_at(float *dw, const float *dl, int ldl, const void *x, int ldx, int rows,
                        int i, int k, enum type t)
{
    vf total = {0};
    for (int begin = 0; begin < rows; begin += ROW_BLOCK) {
        vf part = {0};
        for (int r = begin; r < rows && r < begin + ROW_BLOCK; r++)
            part += dl[(size_t)r * ldl] * vf_load_part(x, (size_t)r * ldx + i, k, 0, t);
        total += part;
    }
    vf_store_part(dw, i, k, vf_load_part(dw, i, k, 0, TYPE_F32) + total, TYPE_F32);
}

INLINE void weighted_body(float *dw, const float *dl, int ldl, const void *x, int ldx, int rows,
                          int n, enum type t)
{
    int i = 0;
    for (; i + W <= n; i += W) weighted_at(dw, dl, ldl, x, ldx, rows, i, W, t);
    if (i < n) weighted_at(dw, dl, ldl, x, ldx, rows, i, n - i, t);
}

static void weighted_columns(float *dw, const float *dl, int ldl, const void *x, int ldx, int rows,
                             int n, enum type t)
{
    if (t == TYPE_BF16)
        weighted_body(dw, dl, ldl, x, ldx, rows, n, TYPE_BF16);
    else
        weighted_body(dw, dl, ldl, x, ldx, rows, n, TYPE_F32);
}

const struct expert_kernels OF_ISA(experts) = {
    .isa = ISA_TEXT,
    .dot = dot,
    .dots = dots,
    .sum = sum,
    .weighted_columns = weighted_columns,
};
