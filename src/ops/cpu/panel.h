/*
 * panel.h - private to the attention kernels: panels and their product.
 *
 * A panel is a copy, in the work space of a thread, of some rows of one head, or of their
 * transpose: widened to f32, contiguous and padded with zeros to whole vectors. So the product
 * below handles no partial vectors and only one element type. Included once per ISA; see vec.h.
 */
#ifndef HEED_OPS_CPU_PANEL_H
#define HEED_OPS_CPU_PANEL_H
#include "ops/cpu/transpose.h"

#define PANEL(name, floats) float name[floats] __attribute__((aligned(64)))

static int round_up(int n)
{
    return (n + W - 1) / W * W;
}
INLINE vf load(const float *p)
{
    return vf_load(p, 0, TYPE_F32);
}
INLINE void store(float *p, vf x)
{
    vf_store(p, 0, x, TYPE_F32);
}

/* ---- packing ---- */

/* The heads of a row are adjacent and a thread computes them one after another, so while it copies
 * one head it prefetches the next. After the last head the prefetch is useless but harmless. */
INLINE void expect_read(const char *row, int c, int width, enum type t)
{
    __builtin_prefetch(row + (c + width) * type_size(t), 0, 2);
}
INLINE void expect_write(const char *row, int c, int width, enum type t)
{
    __builtin_prefetch(row + (c + width) * type_size(t), 1, 3);
}

/* W elements of a row from column c on; columns from width on are 0 */
INLINE vf load_edge(const char *row, int c, int width, enum type t)
{
    expect_read(row, c, width, t);
    return c + W <= width ? vf_load(row, c, t) : vf_load_part(row, c, width - c, 0.0f, t);
}

/* Rows of a matrix from column col on: row + r, or with a table at[row + r]. */
struct source {
    struct mat m;
    const int32_t *at; /* NULL: no table */
    int row, col;
};

INLINE const char *source_row(const struct source *s, int r)
{
    return mat_at(s->m, s->at ? s->at[s->row + r] : s->row + r, s->col);
}

INLINE void load_rows_as(float *dst, int ld, const struct source *s, int n, int width, float scale,
                         enum type t)
{
    for (int r = 0; r < n; r++, dst += ld) {
        const char *src = source_row(s, r);
        for (int c = 0; c < width; c += W) store(dst + c, load_edge(src, c, width, t) * scale);
    }
}

/* dst [n][ld], ld = round_up(width): n rows, times scale */
static void load_rows(float *dst, int ld, struct source s, int n, int width, float scale)
{
    if (s.m.type == TYPE_BF16)
        load_rows_as(dst, ld, &s, n, width, scale, TYPE_BF16);
    else
        load_rows_as(dst, ld, &s, n, width, scale, TYPE_F32);
}

INLINE void store_rows_as(struct mat m, int row, int col, const float *src, int ld, int n,
                          int width, float scale, enum type t)
{
    char *dst = mat_at(m, row, col);
    size_t step = m.ld * type_size(t);
    for (int r = 0; r < n; r++, src += ld, dst += step) {
        int c = 0;
        for (; c + W <= width; c += W) {
            expect_write(dst, c, width, t);
            vf_store(dst, c, load(src + c) * scale, t);
        }
        if (c < width) vf_store_part(dst, c, width - c, load(src + c) * scale, t);
    }
}

/* n rows of m = src [n][ld], times scale */
static void store_rows(struct mat m, int row, int col, const float *src, int ld, int n, int width,
                       float scale)
{
    if (m.type == TYPE_BF16)
        store_rows_as(m, row, col, src, ld, n, width, scale, TYPE_BF16);
    else
        store_rows_as(m, row, col, src, ld, n, width, scale, TYPE_F32);
}

/* dst + c * step = column c of W rows, for c below round_up(width). The numbers of a row are
 * `offset` bytes behind row[l]. Columns of bf16 are transposed in pairs, which are as wide as an
 * f32. */
INLINE void load_columns_of(float *dst, int step, const char *const row[W], size_t offset,
                            int width, enum type t)
{
    int c = 0;
    for (; t == TYPE_BF16 && c + 2 * W <= width; c += 2 * W) {
        vf x[W];
#pragma GCC unroll 16
        for (int l = 0; l < W; l++) {
            const char *src = row[l] + offset;
            expect_read(src, c, width, t);
            memcpy(&x[l], src + c * type_size(t), sizeof x[l]);
        }
        transpose(x);
#pragma GCC unroll 16
        for (int l = 0; l < W; l++) {
            store(dst + (c + 2 * l) * step, vf_bits(vu_bits(x[l]) << 16));
            store(dst + (c + 2 * l + 1) * step, vf_bits(vu_bits(x[l]) & 0xffff0000u));
        }
    }
    for (; c < width; c += W) {
        vf x[W];
#pragma GCC unroll 16
        for (int l = 0; l < W; l++) x[l] = load_edge(row[l] + offset, c, width, t);
        transpose(x);
#pragma GCC unroll 16
        for (int l = 0; l < W; l++) store(dst + (c + l) * step, x[l]);
    }
}

INLINE void load_columns_as(float *dst, int ld, const struct source *s, int n, int width,
                            enum type t)
{
    static const float zeros[HEAD_WIDTH_MAX];
    for (int j = 0; j < n; j += W) {
        const char *row[W];
        for (int l = 0; l < W; l++) row[l] = j + l < n ? source_row(s, j + l) : (const char *)zeros;
        load_columns_of(dst + j, ld, row, 0, width, t);
    }
}

/* dst [round_up(width)][ld], ld = round_up(n): the transpose of n rows */
static void load_columns(float *dst, int ld, struct source s, int n, int width)
{
    if (s.m.type == TYPE_BF16)
        load_columns_as(dst, ld, &s, n, width, TYPE_BF16);
    else
        load_columns_as(dst, ld, &s, n, width, TYPE_F32);
}

/* ---- product ---- */

/* Rows and vectors of a block: its sums take 24 of 32 registers, or 12 of 16. */
enum { ROWS = 6, VECS = REGISTERS == 32 ? 4 : 2 };

/* The left factor of a product, perhaps transposed: element (r, d) is a[r*row + d*step]. */
struct left {
    const float *a;
    int row, step;
};

/* c [R][N*W] (+)= a [R][depth] b [depth][N*W] */
INLINE void block(float *c, int ldc, bool add, struct left a, const float *b, int ldb, int depth,
                  const int R, const int N)
{
    vf acc[ROWS][VECS];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
        for (int n = 0; n < N; n++) acc[r][n] = add ? load(c + r * ldc + n * W) : (vf){0};
    for (int d = 0; d < depth; d++) {
        vf x[VECS];
#pragma GCC unroll 8
        for (int n = 0; n < N; n++) x[n] = load(b + (size_t)d * ldb + n * W);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            float s = a.a[r * a.row + (size_t)d * a.step];
#pragma GCC unroll 8
            for (int n = 0; n < N; n++) acc[r][n] += s * x[n];
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
        for (int n = 0; n < N; n++) store(c + r * ldc + n * W, acc[r][n]);
}

INLINE void block_rows(float *c, int ldc, bool add, struct left a, const float *b, int ldb,
                       int depth, int rows, const int N)
{
    if (rows == ROWS)
        block(c, ldc, add, a, b, ldb, depth, ROWS, N);
    else if (rows == 5)
        block(c, ldc, add, a, b, ldb, depth, 5, N);
    else if (rows == 4)
        block(c, ldc, add, a, b, ldb, depth, 4, N);
    else if (rows == 3)
        block(c, ldc, add, a, b, ldb, depth, 3, N);
    else if (rows == 2)
        block(c, ldc, add, a, b, ldb, depth, 2, N);
    else
        block(c, ldc, add, a, b, ldb, depth, 1, N);
}

/* c [rows][width] = or += a [rows][depth] b [depth][width]; rows <= ROWS, width whole vectors */
static void product(float *c, int ldc, bool add, struct left a, const float *b, int ldb, int rows,
                    int depth, int width)
{
    int n = 0;
    for (; n + VECS * W <= width; n += VECS * W)
        block_rows(c + n, ldc, add, a, b + n, ldb, depth, rows, VECS);
    if (VECS > 2 && n + 2 * W <= width) {
        block_rows(c + n, ldc, add, a, b + n, ldb, depth, rows, 2);
        n += 2 * W;
    }
    if (n < width) block_rows(c + n, ldc, add, a, b + n, ldb, depth, rows, 1);
}

#endif
