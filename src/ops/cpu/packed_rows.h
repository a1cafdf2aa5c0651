/*
 * packed_rows.h - what the kernels of products with packed weights share: how rows of x are
 * rounded, how far ahead weights are prefetched, and what is done to the sums of a tile before they
 * are stored in y.
 *
 * Place: included by packed_kernels.c and amx_kernels.c. Kernels that compute the same sums of
 * integers give the same bits of y, because they share this code.
 */
#ifndef HEED_OPS_CPU_PACKED_ROWS_H
#define HEED_OPS_CPU_PACKED_ROWS_H
#include "base/minmax.h"
#include "ops/cpu/packed.h"
#include "ops/cpu/vec.h"
#include "ops/quant.h"

enum { LANES = PACKED_LANES, VECS = LANES / W, LINE = 4 * LANES };
/* Bytes of prepared rows that are multiplied with all panels before the next rows: they stay in the
 * second-level cache. */
enum { BLOCK_BYTES = 512 << 10 };

/* How w and x are multiplied. BF16_DOT and I8_DOT need instructions that not every machine with
 * AVX-512, or with AVX2, has; F32_PAIRS (see dot) is faster on some. AVX2 without them has a kernel
 * of its own for I8 (packed_split.h). On ARM64 the level dotprod has I8_DOT, and i8mm has
 * BF16_MATRIX and I8_MATRIX (see multiply_pairs). */
enum how { F32, BF16, I8, F32_PAIRS, BF16_DOT, I8_DOT, BF16_MATRIX, I8_MATRIX };

/* The i-th vector at p */
INLINE vi vi_load(const char *p, int i)
{
    vi r;
    memcpy(&r, p + i * sizeof r, sizeof r);
    return r;
}
INLINE vi vi_all(int32_t x)
{
    return x - (vi){0};
}

/* The i-th number at p */
INLINE float float_at(const char *p, int i)
{
    float r;
    memcpy(&r, p + i * sizeof r, sizeof r);
    return r;
}
INLINE int32_t int_at(const char *p, int i)
{
    int32_t r;
    memcpy(&r, p + i * sizeof r, sizeof r);
    return r;
}

#if !NEON
/* Pairs of numbers of 16 bits */
typedef int16_t vs __attribute__((vector_size(4 * W)));

/* The products of 16-bit halves, added in each lane */
INLINE vi madd(vi a, vi b)
{
#if W == 16
    return (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif W == 8
    return (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (vi)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    return (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
#endif
}
#endif

/* ---- sums ---- */

/* Rows [row, row + rows) of x and one panel of w. */
struct tile {
    int row, rows, panel;
};

/* The line of scales of a panel; the line of sums follows it */
INLINE const char *panel_tail(const struct packed_task *t, int panel)
{
    return t->panels + (panel + 1) * t->stride - 2 * LINE;
}

/* Up to this many rows, reading the weights takes longer than multiplying them, and panels are
 * multiplied one after the other. */
enum { FEW_ROWS = 4, FEW_AHEAD = 32 << 10 };

/* Prefetches a line while a tile of R rows and P panels is multiplied: the one that the next panels
 * have in this place or, in a tile of up to FEW_ROWS rows, the one FEW_AHEAD bytes ahead, in
 * whichever panel that is. */
INLINE void expect(const char *line, const struct packed_task *t, const int R, const int P)
{
    __builtin_prefetch(line + (R > FEW_ROWS ? P * t->stride : FEW_AHEAD), 0, 2);
}

/* Finishes the v-th vector of each row of a tile's sums and stores its first n numbers in y; n is W
 * but at the edge. */
INLINE void finish_vector(const struct packed_task *t, struct tile at, const vi *sum, int v,
                          const int n, const enum how how)
{
    const bool i8 = how == I8 || how == I8_DOT || how == I8_MATRIX;
    const bool scaled = i8 || how == F32 || how == F32_PAIRS;
    const char *tail = panel_tail(t, at.panel), *row = t->rows + at.row * t->pitch;
    const int c = at.panel * LANES + v * W;
    const vf bias = t->bias ? vf_load_part(t->bias, c, n, 0, TYPE_F32) : (vf){0};
    const vf scale = scaled ? vf_load(tail, v * W, TYPE_F32) : (vf){0};
    const vf pairs = how == F32_PAIRS ? vf_load(tail + LINE, v * W, TYPE_F32) : (vf){0};
    const vf least = vf_all(t->relu ? 0 : -INFINITY);
    float *y = t->y + at.row * t->ldy + c;
    for (int r = 0; r < at.rows; r++, row += t->pitch, y += t->ldy) {
        vf s = (vf)sum[r * VECS + v];
        const struct packed_head *x = (const struct packed_head *)row;
        if (i8)
            s = __builtin_convertvector((vi)s, vf) * (scale * x->scale);
        else if (how == F32_PAIRS)
            s = (s - (pairs + x->pairs)) * (scale * x->scale);
        else if (how == F32)
            s *= scale;
        vf_store_part(y, 0, n, vf_max(least, s + bias), TYPE_F32);
    }
}

/* Stores the sums of a tile in y, with scales, bias and ReLU. */
INLINE void finish(const struct packed_task *t, struct tile at, const vi *sum, const enum how how)
{
    for (int v = 0; v < VECS; v++) {
        int n = t->n - at.panel * LANES - v * W;
        if (n >= W)
            finish_vector(t, at, sum, v, W, how);
        else if (n > 0)
            finish_vector(t, at, sum, v, n, how);
    }
}

/* Size of the parts if n is divided into as few nearly equal parts of at most `most` as possible; a
 * multiple of unit */
INLINE int part(int n, int most, int unit)
{
    int parts = (n + most - 1) / most, size = (n + parts - 1) / parts;
    return (size + unit - 1) / unit * unit;
}

/* ---- rows of x ---- */

/* Numbers [i, i+W) of x; zeros after the last, also where i is behind it */
INLINE vf load(const float *x, int i, int k)
{
    return vf_load_part(x, i, int_min(W, k - i), 0, TYPE_F32);
}

/* Rounds to nearest, ties to even. */
INLINE vi vi_round(vf x)
{
#if W == 16
    return (vi)_mm512_cvtps_epi32((__m512)x);
#elif W == 8
    return (vi)_mm256_cvtps_epi32((__m256)x);
#elif defined(__SSE2__)
    return (vi)_mm_cvtps_epi32((__m128)x);
#elif NEON
    return (vi)vcvtnq_s32_f32((float32x4_t)x);
#else
    const vf shift = vf_all(12582912.0f); /* 1.5 * 2^23 */
    return (vi)vu_bits(x + shift) - (vi)vu_bits(shift);
#endif
}

INLINE vi vi_max(vi a, vi b)
{
#if W == 16
    return (vi)_mm512_max_epi32((__m512i)a, (__m512i)b);
#elif W == 8
    return (vi)_mm256_max_epi32((__m256i)a, (__m256i)b);
#elif NEON
    return (vi)vmaxq_s32((int32x4_t)a, (int32x4_t)b);
#else
    vi more = a > b;
    return (a & more) | (b & ~more);
#endif
}

/* The largest magnitude. The magnitudes are compared as integers, where a NaN is larger than every
 * number; so a row with a NaN has the magnitude NaN, and its row of y becomes NaNs. */
INLINE float magnitude(const float *x, int k)
{
    vi top[2] = {0};
    int i = 0;
    for (; i + 2 * W <= k; i += 2 * W)
        for (int j = 0; j < 2; j++)
            top[j] = vi_max(top[j], (vi)(vu_bits(vf_load(x, i + j * W, TYPE_F32)) & 0x7fffffff));
    for (; i < k; i += W) top[0] = vi_max(top[0], (vi)(vu_bits(load(x, i, k)) & 0x7fffffff));
    vi both = vi_max(top[0], top[1]);
    int32_t lane[W], most = 0;
    memcpy(lane, &both, sizeof lane);
    for (int l = 0; l < W; l++) most = lane[l] > most ? lane[l] : most;
    float r;
    memcpy(&r, &most, sizeof r);
    return r;
}

/* Stores the scale of the row; returns the factor by which x is multiplied, its reciprocal. */
INLINE float set_scale(char *row, const float *x, int k)
{
    float most = magnitude(x, k);
    bool zero = most < QUANT_TINY;
    float scale = zero ? 0 : most / 127;
    memcpy(row, &scale, sizeof scale);
    return zero ? 0 : 127 / most;
}

/* Rounds a row to bf16; zeros follow up to a multiple of W. */
INLINE void prepare_halves(char *row, const float *x, int k)
{
    for (int i = 0; i < k; i += W) vf_store(row + PACKED_HEAD, i, load(x, i, k), TYPE_BF16);
}

/* Rounds a row to unsigned bytes that are 128 too large, as the instructions for dot products of
 * bytes need them: the sums of the rows of w, in the last line of a panel, correct for that. */
INLINE void prepare_bytes(char *row, const float *x, int k)
{
    float factor = set_scale(row, x, k);
    uint8_t *to = (uint8_t *)row + PACKED_HEAD;
    for (int i = 0; i < k; i += W) {
        vi q = vi_round(load(x, i, k) * factor) + 128;
#if W == 16
        __m128i byte = _mm512_cvtepi32_epi8((__m512i)q);
        memcpy(to + i, &byte, sizeof byte);
#else
        typedef uint8_t vb __attribute__((vector_size(W)));
        vb byte = __builtin_convertvector(q, vb);
        memcpy(to + i, &byte, sizeof byte);
#endif
    }
}

#endif
