/*
 * kernels.c - the row kernels of the CPU backend: see kernels.h. Compiled once per ISA:
 * -DISA=baseline, avx2 or avx512 names the table that this file fills and comes with the compiler
 * flags of that ISA. Called by the drivers in cpu.c and linear.c.
 *
 * Each kernel is written once, as an always-inline body over vec.h in which the element type is a
 * constant; the function in the table chooses the type. A function whose name ends in _at computes
 * one vector. It is inlined twice: in the loop over whole vectors, and for the last k < W elements
 * of the row. So the bits of a row depend on that row alone.
 */
#include <assert.h>

#include "ops/adam.h"
#include "ops/bf16.h"
#include "ops/cpu/activation.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/vec.h"

/* Long sums are kept in f32 for this many elements, then added up in double. */
enum { SUM_BLOCK = 1024 };

static const struct drop_row no_drop = {0};

INLINE int int_min(int a, int b)
{
    return a < b ? a : b;
}

/* x times the dropout factors of columns [col, col+W) */
INLINE vf masked(vf x, struct drop_row d, int col)
{
    return d.threshold ? x * vf_drop(d, (uint32_t)col) : x;
}

INLINE float element(const void *p, int i, enum type t)
{
    return t == TYPE_BF16 ? bf16_to_float(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

INLINE void element_set(void *p, int i, float x, enum type t)
{
    if (t == TYPE_BF16)
        ((uint16_t *)p)[i] = bf16_from_float(x);
    else
        ((float *)p)[i] = x;
}

/* ---- embedding: paper 3.4, 3.5 ---- */

INLINE void embed_at(void *y, enum type t, const void *e, enum type te, const float *position,
                     int i, int k, float scale, struct drop_row d)
{
    vf x = vf_load_part(e, i, k, 0, te);
    x = position ? x * scale + vf_load_part(position, i, k, 0, TYPE_F32) : x * scale;
    vf_store_part(y, i, k, masked(x, d, i), t);
}

INLINE void embed_body(void *y, enum type t, const void *e, enum type te, const float *position,
                       int n, float scale, struct drop_row d)
{
    int i = 0;
    for (; i + W <= n; i += W) embed_at(y, t, e, te, position, i, W, scale, d);
    if (i < n) embed_at(y, t, e, te, position, i, n - i, scale, d);
}

INLINE void embed_typed(void *y, enum type t, const void *e, enum type te, const float *position,
                        int n, float scale, struct drop_row d)
{
    if (t == TYPE_BF16 && te == TYPE_BF16)
        embed_body(y, TYPE_BF16, e, TYPE_BF16, position, n, scale, d);
    else if (t == TYPE_BF16)
        embed_body(y, TYPE_BF16, e, TYPE_F32, position, n, scale, d);
    else if (te == TYPE_BF16)
        embed_body(y, TYPE_F32, e, TYPE_BF16, position, n, scale, d);
    else
        embed_body(y, TYPE_F32, e, TYPE_F32, position, n, scale, d);
}

static void embed(void *y, enum type t, const void *e, enum type te, const float *position, int n,
                  float scale, struct drop_row d)
{
    if (position)
        embed_typed(y, t, e, te, position, n, scale, d);
    else
        embed_typed(y, t, e, te, NULL, n, scale, d);
}

INLINE void embed_bwd_at(float *de, const void *dy, enum type t, int col, int i, int k, float scale,
                         struct drop_row d)
{
    vf x = masked(vf_load_part(dy, i, k, 0, t), d, col + i) * scale;
    vf_store_part(de, i, k, vf_load_part(de, i, k, 0, TYPE_F32) + x, TYPE_F32);
}

INLINE void embed_bwd_body(float *de, const void *dy, enum type t, int col, int n, float scale,
                           struct drop_row d)
{
    int i = 0;
    for (; i + W <= n; i += W) embed_bwd_at(de, dy, t, col, i, W, scale, d);
    if (i < n) embed_bwd_at(de, dy, t, col, i, n - i, scale, d);
}

static void embed_bwd(float *de, const void *dy, enum type t, int col, int n, float scale,
                      struct drop_row d)
{
    if (t == TYPE_BF16)
        embed_bwd_body(de, dy, TYPE_BF16, col, n, scale, d);
    else
        embed_bwd_body(de, dy, TYPE_F32, col, n, scale, d);
}

/* ---- rotary positions ---- */

/* k numbers from x, which are pairs. flip: the sign bits of the lanes whose sine is subtracted */
INLINE void rotate_at(void *x, enum type t, const float *table, int i, int at, int k, vu flip)
{
    vf v = vf_load_part(x, i, k, 0, t), turn = vf_load_part(table, at, k, 0, TYPE_F32);
    vf sine = vf_bits(vu_bits(vf_odds(turn)) ^ flip);
    vf_store_part(x, i, k, v * vf_evens(turn) + vf_swap(v) * sine, t);
}

INLINE void rotate_body(void *x, int n, enum type t, const float *table, int width, bool opposite)
{
    vu flip = ((vu_lanes() + (opposite ? 0 : 1)) & 1) << 31;
    for (int head = 0; head < n; head += width) {
        int i = 0;
        for (; i + W <= width; i += W) rotate_at(x, t, table, head + i, i, W, flip);
        if (i < width) rotate_at(x, t, table, head + i, i, width - i, flip);
    }
}

static void rotate(void *x, int n, enum type t, const float *table, int width, bool opposite)
{
    if (t == TYPE_BF16)
        rotate_body(x, n, TYPE_BF16, table, width, opposite);
    else
        rotate_body(x, n, TYPE_F32, table, width, opposite);
}

/* ---- residual, dropout and layer norm: paper 3.1, 5.4 ---- */

/* One row of the norm, which is read in three passes: mean, variance, result. */
struct norm_row {
    const void *x, *r;
    enum type t;
    struct drop_row d;
    float *sum; /* [n] x + r*mask, stored by the first pass; NULL: each pass computes it again */
    bool alone; /* there is no r */
};

INLINE vf norm_first(struct norm_row m, int i, int k)
{
    vf s = vf_load_part(m.x, i, k, 0, m.t);
    if (!m.alone) s += masked(vf_load_part(m.r, i, k, 0, m.t), m.d, i);
    if (m.sum) vf_store_part(m.sum, i, k, s, TYPE_F32);
    return s;
}

INLINE vf norm_again(struct norm_row m, int i, int k)
{
    return m.sum ? vf_load_part(m.sum, i, k, 0, TYPE_F32) : norm_first(m, i, k);
}

INLINE vf norm_square(struct norm_row m, float mean, int i, int k)
{
    vf c = vf_first(norm_again(m, i, k) - mean, k, 0);
    return c * c;
}

INLINE void norm_at(void *y, void *xhat, struct norm_row m, float mean, float rstd, const float *g,
                    const float *b, int i, int k)
{
    vf c = (norm_again(m, i, k) - mean) * rstd;
    if (xhat) vf_store_part(xhat, i, k, c, m.t);
    c = c * vf_load_part(g, i, k, 0, TYPE_F32) + vf_load_part(b, i, k, 0, TYPE_F32);
    vf_store_part(y, i, k, c, m.t);
}

INLINE float norm_body(void *y, void *xhat, struct norm_row m, const float *g, const float *b,
                       int n)
{
    vf sum = {0}, squares = {0};
    int i, whole = n - n % W;
    for (i = 0; i < whole; i += W) sum += norm_first(m, i, W);
    if (i < n) sum += norm_first(m, i, n - i);
    float mean = vf_sum(sum) / (float)n;

    for (i = 0; i < whole; i += W) squares += norm_square(m, mean, i, W);
    if (i < n) squares += norm_square(m, mean, i, n - i);
    float rstd = 1.0f / sqrtf(vf_sum(squares) / (float)n + (float)NORM_EPSILON);

    for (i = 0; i < whole; i += W) norm_at(y, xhat, m, mean, rstd, g, b, i, W);
    if (i < n) norm_at(y, xhat, m, mean, rstd, g, b, i, n - i);
    return rstd;
}

enum { NORM_KEPT = 3072 }; /* rows up to this width store x + r*mask on the stack */

INLINE float norm_typed(void *y, void *xhat, const void *x, const void *r, const float *g,
                        const float *b, int n, enum type t, struct drop_row d)
{
    float sum[NORM_KEPT];
    struct norm_row m = {.x = x, .r = r, .t = t, .d = d};
    if (n > NORM_KEPT) return norm_body(y, xhat, m, g, b, n);
    m.sum = sum;
    if (d.threshold) return norm_body(y, xhat, m, g, b, n);
    m.d = no_drop;
    return norm_body(y, xhat, m, g, b, n);
}

static float norm(void *y, void *xhat, const void *x, const void *r, const float *g, const float *b,
                  int n, enum type t, struct drop_row d)
{
    if (t == TYPE_BF16) return norm_typed(y, xhat, x, r, g, b, n, TYPE_BF16, d);
    return norm_typed(y, xhat, x, r, g, b, n, TYPE_F32, d);
}

static float norm_alone(void *y, void *xhat, const void *x, const float *g, const float *b, int n,
                        enum type t)
{
    struct norm_row m = {.x = x, .d = no_drop, .alone = true};
    m.t = TYPE_BF16;
    if (t == TYPE_BF16) return norm_body(y, xhat, m, g, b, n);
    m.t = TYPE_F32;
    return norm_body(y, xhat, m, g, b, n);
}

INLINE void add_typed(void *y, const void *x, const void *r, int n, enum type t, struct drop_row d)
{
    for (int i = 0; i < n; i += W) {
        int k = n - i < W ? n - i : W;
        vf s = vf_load_part(x, i, k, 0, t) + masked(vf_load_part(r, i, k, 0, t), d, i);
        vf_store_part(y, i, k, s, t);
    }
}

static void add(void *y, const void *x, const void *r, int n, enum type t, struct drop_row d)
{
    if (t == TYPE_BF16)
        add_typed(y, x, r, n, TYPE_BF16, d);
    else
        add_typed(y, x, r, n, TYPE_F32, d);
}

/* Inputs of backward for one row. With u = dy*g,
 * dx = rstd * (u - mean(u) - xhat * mean(u*xhat)), and dr = dx * mask. Alone there is no dr, and
 * beta times the old dx is added to dx. */
struct norm_bwd_row {
    const void *dy, *xhat;
    const float *g;
    enum type t;
    bool alone;
    float beta;
};

INLINE void norm_bwd_sum(vf *sum, vf *dot, struct norm_bwd_row m, int i, int k)
{
    vf u = vf_load_part(m.dy, i, k, 0, m.t) * vf_load_part(m.g, i, k, 0, TYPE_F32);
    *sum += u;
    *dot += u * vf_load_part(m.xhat, i, k, 0, m.t);
}

INLINE void norm_bwd_at(void *dx, void *dr, struct norm_bwd_row m, float mean, float slope,
                        float rstd, struct drop_row d, int i, int k)
{
    vf u = vf_load_part(m.dy, i, k, 0, m.t) * vf_load_part(m.g, i, k, 0, TYPE_F32);
    u = (u - mean - vf_load_part(m.xhat, i, k, 0, m.t) * slope) * rstd;
    if (m.alone && m.beta != 0) u += m.beta * vf_load_part(dx, i, k, 0, m.t);
    vf_store_part(dx, i, k, u, m.t);
    if (!m.alone) vf_store_part(dr, i, k, masked(u, d, i), m.t);
}

INLINE void norm_bwd_body(void *dx, void *dr, struct norm_bwd_row m, float rstd, int n,
                          struct drop_row d)
{
    vf sum = {0}, dot = {0};
    int i, whole = n - n % W;
    for (i = 0; i < whole; i += W) norm_bwd_sum(&sum, &dot, m, i, W);
    if (i < n) norm_bwd_sum(&sum, &dot, m, i, n - i);
    float mean = vf_sum(sum) / (float)n, slope = vf_sum(dot) / (float)n;

    for (i = 0; i < whole; i += W) norm_bwd_at(dx, dr, m, mean, slope, rstd, d, i, W);
    if (i < n) norm_bwd_at(dx, dr, m, mean, slope, rstd, d, i, n - i);
}

static void norm_bwd(void *dx, void *dr, const void *dy, const void *xhat, float rstd,
                     const float *g, int n, enum type t, struct drop_row d)
{
    if (t == TYPE_BF16)
        norm_bwd_body(dx, dr, (struct norm_bwd_row){dy, xhat, g, .t = TYPE_BF16}, rstd, n, d);
    else
        norm_bwd_body(dx, dr, (struct norm_bwd_row){dy, xhat, g, .t = TYPE_F32}, rstd, n, d);
}

static void norm_alone_bwd(void *dx, float beta, const void *dy, const void *xhat, float rstd,
                           const float *g, int n, enum type t)
{
    struct norm_bwd_row m = {dy, xhat, g, .alone = true, .beta = beta};
    m.t = TYPE_BF16;
    if (t == TYPE_BF16) {
        norm_bwd_body(dx, NULL, m, rstd, n, no_drop);
        return;
    }
    m.t = TYPE_F32;
    norm_bwd_body(dx, NULL, m, rstd, n, no_drop);
}

/* ---- sums over rows ---- */

enum {
    GROUP = 4,      /* vectors of columns that are summed together, in registers */
    ROW_BLOCK = 128 /* rows of a partial sum: summing in two levels loses fewer digits */
};

/* Sums n <= GROUP*W columns from column col on. dg and xhat may be NULL, both or neither. The sums
 * are added to db and dg once, at the end, so two backward passes give exactly twice the gradient.
 */
INLINE void column_group(float *dg, float *db, const void *dy, int ldy, const void *xhat, int ldx,
                         int rows, int col, int n, enum type t)
{
    vf total[GROUP] = {{0}}, total_dot[GROUP] = {{0}};
    for (int begin = 0; begin < rows; begin += ROW_BLOCK) {
        int end = int_min(begin + ROW_BLOCK, rows);
        vf sum[GROUP] = {{0}}, dot[GROUP] = {{0}};
        for (int r = begin; r < end; r++) {
            for (int j = 0; j < GROUP && j * W < n; j++) {
                int k = int_min(n - j * W, W);
                vf u = vf_load_part(dy, (size_t)r * ldy + col + j * W, k, 0, t);
                sum[j] += u;
                if (dg) dot[j] += u * vf_load_part(xhat, (size_t)r * ldx + col + j * W, k, 0, t);
            }
        }
        for (int j = 0; j < GROUP; j++) {
            total[j] += sum[j];
            total_dot[j] += dot[j];
        }
    }
    for (int j = 0; j < GROUP && j * W < n; j++) {
        int k = int_min(n - j * W, W), i = col + j * W;
        vf_store_part(db, i, k, vf_load_part(db, i, k, 0, TYPE_F32) + total[j], TYPE_F32);
        if (!dg) continue;
        vf_store_part(dg, i, k, vf_load_part(dg, i, k, 0, TYPE_F32) + total_dot[j], TYPE_F32);
    }
}

INLINE void columns_body(float *dg, float *db, const void *dy, int ldy, const void *xhat, int ldx,
                         int rows, int n, enum type t)
{
    int i = 0;
    for (; i + GROUP * W <= n; i += GROUP * W)
        column_group(dg, db, dy, ldy, xhat, ldx, rows, i, GROUP * W, t);
    if (i < n) column_group(dg, db, dy, ldy, xhat, ldx, rows, i, n - i, t);
}

static void norm_bwd_columns(float *dg, float *db, const void *dy, int ldy, const void *xhat,
                             int ldx, int rows, int n, enum type t)
{
    if (t == TYPE_BF16)
        columns_body(dg, db, dy, ldy, xhat, ldx, rows, n, TYPE_BF16);
    else
        columns_body(dg, db, dy, ldy, xhat, ldx, rows, n, TYPE_F32);
}

static void add_columns(float *db, const void *dy, int ld, int rows, int n, enum type t)
{
    if (t == TYPE_BF16)
        columns_body(NULL, db, dy, ld, NULL, 0, rows, n, TYPE_BF16);
    else
        columns_body(NULL, db, dy, ld, NULL, 0, rows, n, TYPE_F32);
}

/* ---- activation and dropout: paper 3.3, 5.4 ---- */

INLINE void activate_at(void *y, void *slope, const void *z, int i, int k, enum type t,
                        enum activation_kind f, struct drop_row d)
{
    vf derivative, x = activation(f, vf_load_part(z, i, k, 0, t), &derivative);
    vf_store_part(y, i, k, masked(x, d, i), t);
    if (slope) vf_store_part(slope, i, k, masked(derivative, d, i), t);
}

INLINE void activate_body(void *y, void *slope, const void *z, int n, enum type t,
                          enum activation_kind f, struct drop_row d)
{
    int i = 0;
    for (; i + W <= n; i += W) activate_at(y, slope, z, i, W, t, f, d);
    if (i < n) activate_at(y, slope, z, i, n - i, t, f, d);
}

/* Dropout alone is compiled apart from the activations: it is what most calls ask for. */
INLINE void activate_typed(void *y, void *slope, const void *z, int n, enum type t,
                           enum activation_kind f, struct drop_row d)
{
    if (slope)
        activate_body(y, slope, z, n, t, f, d);
    else if (f == ACT_NONE)
        activate_body(y, NULL, z, n, t, ACT_NONE, d);
    else
        activate_body(y, NULL, z, n, t, f, d);
}

static void activate(void *y, void *slope, const void *z, int n, enum type t,
                     enum activation_kind f, struct drop_row d)
{
    if (t == TYPE_BF16)
        activate_typed(y, slope, z, n, TYPE_BF16, f, d);
    else
        activate_typed(y, slope, z, n, TYPE_F32, f, d);
}

INLINE void slope_bwd_at(void *dy, const void *slope, int i, int k, enum type t)
{
    vf u = vf_load_part(dy, i, k, 0, t) * vf_load_part(slope, i, k, 0, t);
    vf_store_part(dy, i, k, u, t);
}

INLINE void slope_bwd_body(void *dy, const void *slope, int n, enum type t)
{
    int i = 0;
    for (; i + W <= n; i += W) slope_bwd_at(dy, slope, i, W, t);
    if (i < n) slope_bwd_at(dy, slope, i, n - i, t);
}

/* ReLU: y = f(z) * mask is 0 where the element was dropped or z was not above 0. */
INLINE void relu_bwd_at(void *dy, const void *y, int i, int k, enum type t, float scale)
{
    vf u = vf_load_part(dy, i, k, 0, t) * scale;
    u = vf_pick(vf_load_part(y, i, k, 0, t) <= 0.0f, vf_all(0), u);
    vf_store_part(dy, i, k, u, t);
}

INLINE void relu_bwd_body(void *dy, const void *y, int n, enum type t, float scale)
{
    int i = 0;
    for (; i + W <= n; i += W) relu_bwd_at(dy, y, i, W, t, scale);
    if (i < n) relu_bwd_at(dy, y, i, n - i, t, scale);
}

INLINE void activate_bwd_typed(void *dy, const void *y, const void *slope, int n, enum type t,
                               enum activation_kind f, struct drop_row d)
{
    if (activation_keeps_slope(f))
        slope_bwd_body(dy, slope, n, t);
    else if (f == ACT_RELU)
        relu_bwd_body(dy, y, n, t, d.scale);
    else
        activate_body(dy, NULL, dy, n, t, ACT_NONE, d);
}

static void activate_bwd(void *dy, const void *y, const void *slope, int n, enum type t,
                         enum activation_kind f, struct drop_row d)
{
    if (t == TYPE_BF16)
        activate_bwd_typed(dy, y, slope, n, TYPE_BF16, f, d);
    else
        activate_bwd_typed(dy, y, slope, n, TYPE_F32, f, d);
}

/* ---- gate ---- */

INLINE void gate_at(void *h, const void *left, const void *right, int i, int k, enum type t,
                    struct drop_row d)
{
    vf slope, x = activation(ACT_SILU, vf_load_part(left, i, k, 0, t), &slope);
    vf_store_part(h, i, k, masked(x * vf_load_part(right, i, k, 0, t), d, i), t);
}

INLINE void gate_body(void *h, const void *left, const void *right, int n, enum type t,
                      struct drop_row d)
{
    int i = 0;
    for (; i + W <= n; i += W) gate_at(h, left, right, i, W, t, d);
    if (i < n) gate_at(h, left, right, i, n - i, t, d);
}

static void gate(void *h, const void *left, const void *right, int n, enum type t,
                 struct drop_row d)
{
    if (t == TYPE_BF16)
        gate_body(h, left, right, n, TYPE_BF16, d);
    else
        gate_body(h, left, right, n, TYPE_F32, d);
}

INLINE void gate_bwd_at(void *dleft, void *dright, const void *dh, const void *left,
                        const void *right, int i, int k, enum type t, struct drop_row d)
{
    vf g = masked(vf_load_part(dh, i, k, 0, t), d, i);
    vf slope, x = activation(ACT_SILU, vf_load_part(left, i, k, 0, t), &slope);
    vf_store_part(dleft, i, k, g * (slope * vf_load_part(right, i, k, 0, t)), t);
    vf_store_part(dright, i, k, g * x, t);
}

INLINE void gate_bwd_body(void *dleft, void *dright, const void *dh, const void *left,
                          const void *right, int n, enum type t, struct drop_row d)
{
    int i = 0;
    for (; i + W <= n; i += W) gate_bwd_at(dleft, dright, dh, left, right, i, W, t, d);
    if (i < n) gate_bwd_at(dleft, dright, dh, left, right, i, n - i, t, d);
}

static void gate_bwd(void *dleft, void *dright, const void *dh, const void *left, const void *right,
                     int n, enum type t, struct drop_row d)
{
    if (t == TYPE_BF16)
        gate_bwd_body(dleft, dright, dh, left, right, n, TYPE_BF16, d);
    else
        gate_bwd_body(dleft, dright, dh, left, right, n, TYPE_F32, d);
}

/* ---- rows of logits ---- */

/* Returns the largest logit, not counting NaNs; *sum: the sum of all. */
INLINE float row_survey(const void *x, int n, enum type t, double *sum)
{
    vf top = vf_all(-INFINITY);
    *sum = 0;
    for (int begin = 0; begin < n; begin += SUM_BLOCK) {
        int i = begin, end = int_min(begin + SUM_BLOCK, n);
        vf part = {0};
        for (; i + W <= end; i += W) {
            vf v = vf_load(x, i, t);
            top = vf_max(v, top);
            part += v;
        }
        if (i < end) {
            top = vf_max(vf_load_part(x, i, end - i, -INFINITY, t), top);
            part += vf_load_part(x, i, end - i, 0, t);
        }
        *sum += (double)vf_sum(part);
    }
    return vf_top(top);
}

/* exp(x - top) of k elements; also stored in keep where that is not NULL. */
INLINE vf row_exp_at(const void *x, void *keep, int i, int k, enum type t, float top)
{
    vf e = vf_exp(vf_load_part(x, i, k, -INFINITY, t) - top);
    if (keep) vf_store_part(keep, i, k, e, t);
    return e;
}

/* Sum of exp(x - top); a NaN where the row has a NaN or top is infinite. */
INLINE double row_exp_sum(const void *x, void *keep, int n, enum type t, float top)
{
    double sum = 0;
    for (int begin = 0; begin < n; begin += SUM_BLOCK) {
        int i = begin, end = int_min(begin + SUM_BLOCK, n);
        vf part = {0};
        for (; i + W <= end; i += W) part += row_exp_at(x, keep, i, W, t, top);
        if (i < end) part += row_exp_at(x, keep, i, end - i, t, top);
        sum += (double)vf_sum(part);
    }
    return sum;
}

INLINE void xent_grad_at(void *x, int i, int k, enum type t, float top, float share, float smooth)
{
    vf e = vf_load_part(x, i, k, -INFINITY, t);
    if (t == TYPE_BF16) e = vf_exp(e - top);
    vf_store_part(x, i, k, e * share - smooth, t);
}

INLINE void xent_body(void *x, int n, enum type t, int target, float eps, bool grad, float *loss)
{
    double total, at = element(x, target, t);
    float top = row_survey(x, n, t, &total);
    double sum = row_exp_sum(x, grad && t == TYPE_F32 ? x : NULL, n, t, top);
    double lse = top + log(sum);
    loss[0] = (float)(lse - (1.0 - eps) * at - eps * (total / n));
    loss[1] = (float)(lse - at);
    if (!grad) return;
    float share = (float)(1.0 / sum), smooth = eps / (float)n;
    int i = 0;
    for (; i + W <= n; i += W) xent_grad_at(x, i, W, t, top, share, smooth);
    if (i < n) xent_grad_at(x, i, n - i, t, top, share, smooth);
    element_set(x, target, (float)(exp(at - lse) - smooth - (1.0 - eps)), t);
}

static void xent(void *logits, int n, enum type t, int target, float eps, bool grad, float *loss)
{
    assert(target >= 0 && target < n);
    if (t == TYPE_BF16)
        xent_body(logits, n, TYPE_BF16, target, eps, grad, loss);
    else
        xent_body(logits, n, TYPE_F32, target, eps, grad, loss);
}

/* Inserts (x, i) into the sorted list of the m best so far, of which at most k are kept. A NaN
 * counts as -inf, and equals stay in the order of their ids. */
INLINE void best_insert(float *score, int32_t *id, int m, int k, float x, int i)
{
    int at = int_min(m, k - 1);
    if (x != x) x = -INFINITY;
    for (; at > 0 && x > score[at - 1]; at--) {
        score[at] = score[at - 1];
        id[at] = id[at - 1];
    }
    score[at] = x;
    id[at] = i;
}

/* Inserts those of m elements that are larger than the last of the k best. Most vectors have none:
 * in a row in random order about k*log(n/k) elements are inserted. */
INLINE void best_at(const void *x, int i, int m, enum type t, int first, int k, float *score,
                    int32_t *id)
{
    vf v = vf_load_part(x, i, m, -INFINITY, t);
    for (uint32_t more = vi_mask(v > score[k - 1]); more; more &= more - 1) {
        int c = i + __builtin_ctz(more);
        float y = element(x, c, t);
        if (y > score[k - 1]) best_insert(score, id, k, k, y, first + c);
    }
}

/* Inserts what belongs to the k best of n elements, the largest of which is top. */
INLINE void best_of(const void *x, int n, enum type t, int first, int seen, float top, int k,
                    float *score, int32_t *id)
{
    int i = 0;
    for (; i < n && seen + i < k; i++)
        best_insert(score, id, seen + i, k, element(x, i, t), first + i);
    if (i == n || !(top > score[k - 1])) return;
    for (; i + W <= n; i += W) best_at(x, i, W, t, first, k, score, id);
    if (i < n) best_at(x, i, n - i, t, first, k, score, id);
}

/* The largest of n elements, not counting NaNs */
INLINE float top_of(const void *x, int n, enum type t)
{
    enum { CHAINS = 4 }; /* independent of each other: one would wait for each maximum */
    vf most[CHAINS];
    for (int j = 0; j < CHAINS; j++) most[j] = vf_all(-INFINITY);
    int i = 0;
    for (; i + CHAINS * W <= n; i += CHAINS * W)
        for (int j = 0; j < CHAINS; j++) most[j] = vf_max(vf_load(x, i + j * W, t), most[j]);
    for (; i + W <= n; i += W) most[0] = vf_max(vf_load(x, i, t), most[0]);
    if (i < n) most[0] = vf_max(vf_load_part(x, i, n - i, -INFINITY, t), most[0]);
    return vf_top(vf_max(vf_max(most[0], most[1]), vf_max(most[2], most[3])));
}

INLINE void topk_body(const void *x, int n, enum type t, int first, int seen, int k, float *score,
                      int32_t *id, float *top, float *sum)
{
    *top = top_of(x, n, t);
    best_of(x, n, t, first, seen, *top, k, score, id);
    float from = *top > -INFINITY ? *top : 0; /* so that -inf adds no NaN */
    vf part = {0};
    int i = 0;
    for (; i + W <= n; i += W) part += vf_exp_negative(vf_load(x, i, t) - from);
    if (i < n) part += vf_exp_negative(vf_load_part(x, i, n - i, -INFINITY, t) - from);
    *sum = vf_sum(part);
}

static void topk(const void *x, int n, enum type t, int first, int seen, int k, float *score,
                 int32_t *id, float *top, float *sum)
{
    assert(k >= 1 && n >= 1);
    if (t == TYPE_BF16)
        topk_body(x, n, TYPE_BF16, first, seen, k, score, id, top, sum);
    else
        topk_body(x, n, TYPE_F32, first, seen, k, score, id, top, sum);
}

/* ---- optimizer: paper 5.3 ---- */

typedef float vf_half __attribute__((vector_size(2 * W)));
typedef double vd __attribute__((vector_size(4 * W)));

INLINE vd squares(const float *g)
{
    vf_half h;
    memcpy(&h, g, sizeof h);
    vd d = __builtin_convertvector(h, vd);
    return d * d;
}

/* In double throughout: memory is the limit, and no gradient overflows. */
static double sum_squares(const float *g, size_t n)
{
    vd even = {0}, odd = {0};
    size_t i = 0;
    for (; i + W <= n; i += W) {
        even += squares(g + i);
        odd += squares(g + i + W / 2);
    }
    even += odd;
    double sum = 0;
    for (int l = 0; l < W / 2; l++) sum += even[l];
    for (; i < n; i++) sum += (double)g[i] * g[i];
    return sum;
}

INLINE vf adam_at(float *p, float *m, float *v, const float *g, size_t i, int k, float factor,
                  struct adam_rates c)
{
    vf grad = vf_load_part(g, i, k, 0, TYPE_F32) * factor;
    vf first = vf_load_part(m, i, k, 0, TYPE_F32);
    vf second = vf_load_part(v, i, k, 0, TYPE_F32);
    first = first + (grad - first) * c.new1;
    second = second * c.old2 + grad * grad * c.new2;
    vf step = c.rate * first / (vf_sqrt(second) * c.root + c.epsilon);
    vf param = vf_load_part(p, i, k, 0, TYPE_F32) - step;
    vf_store_part(m, i, k, first, TYPE_F32);
    vf_store_part(v, i, k, second, TYPE_F32);
    vf_store_part(p, i, k, param, TYPE_F32);
    return param;
}

static void adam(float *p, float *m, float *v, uint16_t *copy, const float *g, size_t n,
                 float factor, const struct adam *h)
{
    struct adam_rates c = adam_rates(h);
    size_t i = 0;
    for (; i + W <= n; i += W) {
        vf param = adam_at(p, m, v, g, i, W, factor, c);
        if (copy) vf_store(copy, i, param, TYPE_BF16);
    }
    if (i == n) return;
    vf param = adam_at(p, m, v, g, i, (int)(n - i), factor, c);
    if (copy) vf_store_part(copy, i, (int)(n - i), param, TYPE_BF16);
}

INLINE void cast_body(void *dst, enum type td, const void *src, enum type ts, size_t n)
{
    size_t i = 0;
    for (; i + W <= n; i += W) vf_store(dst, i, vf_load(src, i, ts), td);
    if (i < n) vf_store_part(dst, i, (int)(n - i), vf_load_part(src, i, (int)(n - i), 0, ts), td);
}

static void cast(void *dst, enum type td, const void *src, enum type ts, size_t n)
{
    if (td == ts)
        memcpy(dst, src, n * type_size(ts));
    else if (td == TYPE_BF16)
        cast_body(dst, TYPE_BF16, src, TYPE_F32, n);
    else
        cast_body(dst, TYPE_F32, src, TYPE_BF16, n);
}

const struct kernels OF_ISA(kernels) = {
    .isa = ISA_TEXT,
    .embed = embed,
    .rotate = rotate,
    .embed_bwd = embed_bwd,
    .norm = norm,
    .norm_bwd = norm_bwd,
    .norm_alone = norm_alone,
    .norm_alone_bwd = norm_alone_bwd,
    .add = add,
    .norm_bwd_columns = norm_bwd_columns,
    .activate = activate,
    .activate_bwd = activate_bwd,
    .gate = gate,
    .gate_bwd = gate_bwd,
    .add_columns = add_columns,
    .xent = xent,
    .sum_squares = sum_squares,
    .adam = adam,
    .cast = cast,
    .topk = topk,
};
