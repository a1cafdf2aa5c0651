/*
 * packed_kernels.c - what one thread does in a product with packed weights: prepares rows of x, and
 * multiplies them with panels. Compiled once per ISA; see packed.h.
 *
 * Every kind of number is multiplied in the same way: a lane of a panel holds 4 bytes of one row of
 * w, a group; the matching numbers of a row of x are given to all lanes, and `dot` adds the
 * products to the lane's sum. A tile of several rows and panels stays in registers over the whole
 * of k. Which tile a row falls into changes nothing in its own chain of sums, so its bits are its
 * own.
 */
#include <assert.h>

#include "ops/cpu/packed.h"
#include "ops/cpu/vec.h"
#include "ops/quant.h"

enum { LANES = PACKED_LANES, VECS = LANES / W, LINE = 4 * LANES };
/* Tiles: sums take 24 of 32 registers, 12 of 16, 8 of 16. */
enum { ROWS = W == 16 ? 12 : W == 8 ? 6 : 2, PANELS = W == 16 ? 2 : 1 };
/* Prepared rows that go past all panels together: they stay in the second-level cache. */
enum { BLOCK_BYTES = 256 << 10 };

/* How w and x meet. The last two need an instruction that not every AVX-512 machine has. */
enum how { F32, BF16, I8, BF16_DOT, I8_DOT };

INLINE int int_min(int a, int b)
{
    return a < b ? a : b;
}

INLINE vi vi_load(const void *p)
{
    vi r;
    memcpy(&r, p, sizeof r);
    return r;
}
INLINE vi vi_all(int32_t x)
{
    return x - (vi){0};
}

/* Bytes of a prepared row that meet a group */
INLINE int step(enum how how)
{
    return how == BF16 || how == I8 ? 8 : 4;
}

/* ---- products ---- */

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

/* The signed bytes 0 and 2, 1 and 3 of each lane as 16 bits */
typedef int16_t vs __attribute__((vector_size(4 * W)));
INLINE vi even_bytes(vi w)
{
    return (vi)((vs)w << 8 >> 8);
}
INLINE vi odd_bytes(vi w)
{
    return (vi)((vs)w >> 8);
}

/* sum + w * x: a group of each lane with the numbers at x. Sums of floats go as bits. */
INLINE vi dot(vi sum, vi w, const char *x, const enum how how)
{
    int32_t i[2];
    float f[2];
    memcpy(i, x, (size_t)step(how));
    memcpy(f, x, (size_t)step(how));
    vf s = (vf)sum;
    switch (how) {
    case F32:
        return (vi)(s + (vf)w * f[0]);
    case BF16:
        s += (vf)(w << 16) * f[0];
        s += (vf)(w & -65536) * f[1];
        return (vi)s;
    case I8:
        return sum + madd(even_bytes(w), vi_all(i[0])) + madd(odd_bytes(w), vi_all(i[1]));
#if W == 16
    case BF16_DOT:
        __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(w), "v"(vi_all(i[0])));
        return sum;
    case I8_DOT: /* bytes of x are unsigned, bytes of w signed */
        __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(vi_all(i[0])), "v"(w));
        return sum;
#endif
    default:
        __builtin_unreachable();
    }
}

/* The place of a tile: R rows from row on, N panels from panel on. */
struct place {
    int row, rows, panel, panels;
};

/* sum [R][N*VECS]. While it reads its panels it fetches those of the next tile. Where there are
 * fewer than N, the first stands in for the others. */
INLINE void tile_sums(vi *sum, const struct packed_task *t, struct place at, const enum how how,
                      const int R, const int N)
{
    vi acc[ROWS][PANELS * VECS];
    const char *w = t->panels + at.panel * t->stride, *x = t->rows + at.row * t->pitch;
    size_t other = at.panels == N ? t->stride : 0, ahead = (size_t)N * t->stride;
    x += PACKED_HEAD;
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
        for (int v = 0; v < N * VECS; v++) acc[r][v] = (vi){0};
    for (int g = 0; g < t->groups; g++, w += LINE, x += step(how)) {
        vi b[PANELS * VECS];
#pragma GCC unroll 8
        for (int v = 0; v < N * VECS; v++)
            b[v] = vi_load(w + v / VECS * other + v % VECS * sizeof(vi));
#pragma GCC unroll 8
        for (int p = 0; p < N; p++) __builtin_prefetch(w + ahead + p * other, 0, 2);
#pragma GCC unroll 12
        for (int r = 0; r < R; r++)
#pragma GCC unroll 8
            for (int v = 0; v < N * VECS; v++)
                acc[r][v] = dot(acc[r][v], b[v], x + r * t->pitch, how);
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
        for (int v = 0; v < N * VECS; v++) sum[r * N * VECS + v] = acc[r][v];
}

/* W sums from column c on become numbers of y. */
INLINE void finish(const struct packed_task *t, int row, int c, vi sum, const enum how how)
{
    int n = int_min(W, t->n - c), lane = c % LANES;
    vf s = (vf)sum;
    if (n <= 0) return;
    if (how == I8 || how == I8_DOT) {
        const char *end = t->panels + c / LANES * t->stride + (size_t)t->groups * LINE;
        if (how == I8_DOT) sum -= vi_load(end + LINE + 4 * lane) * 128;
        float scale;
        memcpy(&scale, t->rows + row * t->pitch, sizeof scale);
        s = __builtin_convertvector(sum, vf) * (vf_load(end, lane, TYPE_F32) * scale);
    }
    if (t->bias) s += vf_load_part(t->bias, c, n, 0, TYPE_F32);
    if (t->relu) s = vf_max((vf){0}, s);
    vf_store_part(t->y + row * t->ldy, c, n, s, TYPE_F32);
}

INLINE void tile(const struct packed_task *t, struct place at, const enum how how)
{
    vi sum[ROWS * PANELS * VECS];
    for (int r = 0; r < at.rows; r++)
        for (int p = 0; p < at.panels; p++)
            __builtin_prefetch(t->y + (at.row + r) * t->ldy + (at.panel + p) * LANES, 1, 3);
    switch (at.rows) {
    case 1:
        tile_sums(sum, t, at, how, 1, PANELS);
        break;
    case 2:
        tile_sums(sum, t, at, how, 2, PANELS);
        break;
#if W > 4
    case 3:
        tile_sums(sum, t, at, how, 3, PANELS);
        break;
    case 4:
        tile_sums(sum, t, at, how, 4, PANELS);
        break;
    case 5:
        tile_sums(sum, t, at, how, 5, PANELS);
        break;
    case 6:
        tile_sums(sum, t, at, how, 6, PANELS);
        break;
#endif
#if W > 8
    case 7:
        tile_sums(sum, t, at, how, 7, PANELS);
        break;
    case 8:
        tile_sums(sum, t, at, how, 8, PANELS);
        break;
    case 9:
        tile_sums(sum, t, at, how, 9, PANELS);
        break;
    case 10:
        tile_sums(sum, t, at, how, 10, PANELS);
        break;
    case 11:
        tile_sums(sum, t, at, how, 11, PANELS);
        break;
    case 12:
        tile_sums(sum, t, at, how, 12, PANELS);
        break;
#endif
    default:
        assert(!"rows of a tile");
    }
    for (int r = 0; r < at.rows; r++)
        for (int v = 0; v < at.panels * VECS; v++)
            finish(t, at.row + r, at.panel * LANES + v * W, sum[r * PANELS * VECS + v], how);
}

/* Rows in blocks; past each panel in tiles of nearly the same height. */
INLINE void run(const struct packed_task *t, int first, int last, const enum how how)
{
    int most = (int)(BLOCK_BYTES / t->pitch) / ROWS * ROWS;
    most = most > ROWS ? most : ROWS;
    for (int row = 0; row < t->m; row += most) {
        int rows = int_min(most, t->m - row), tiles = (rows + ROWS - 1) / ROWS;
        int height = (rows + tiles - 1) / tiles;
        for (int p = first; p < last; p += PANELS)
            for (int r = 0; r < rows; r += height)
                tile(t,
                     (struct place){row + r, int_min(height, rows - r), p,
                                    int_min(PANELS, last - p)},
                     how);
    }
}

static void run_f32(const struct packed_task *t, int first, int last)
{
    run(t, first, last, F32);
}
static void run_bf16(const struct packed_task *t, int first, int last)
{
    run(t, first, last, BF16);
}
static void run_i8(const struct packed_task *t, int first, int last)
{
    run(t, first, last, I8);
}

/* ---- rows of x ---- */

/* W numbers from i on, zeros after the last */
INLINE vf load(const float *x, int i, int k)
{
    return vf_load_part(x, i, int_min(W, k - i), 0, TYPE_F32);
}

static void prepare_f32(char *row, const float *x, int k)
{
    for (int i = 0; i < k; i += W) vf_store(row + PACKED_HEAD, i, load(x, i, k), TYPE_F32);
}

/* As floats; they are what is left of them in bf16. */
static void prepare_bf16(char *row, const float *x, int k)
{
    for (int i = 0; i < k; i += W)
        vf_store(row + PACKED_HEAD, i, bf16_widen(bf16_narrow(load(x, i, k))), TYPE_F32);
}

/* To nearest, ties to even. */
INLINE vi vi_round(vf x)
{
#if W == 16
    return (vi)_mm512_cvtps_epi32((__m512)x);
#elif W == 8
    return (vi)_mm256_cvtps_epi32((__m256)x);
#elif defined(__SSE2__)
    return (vi)_mm_cvtps_epi32((__m128)x);
#else
    const vf shift = vf_all(12582912.0f); /* 1.5 * 2^23 */
    return (vi)vu_bits(x + shift) - (vi)vu_bits(shift);
#endif
}

/* The largest magnitude. Compared as integers, where a NaN is larger than every number; so it comes
 * out and makes all of y a NaN. */
INLINE float magnitude(const float *x, int k)
{
    vi top = {0};
    for (int i = 0; i < k; i += W) {
        vi a = (vi)(vu_bits(load(x, i, k)) & 0x7fffffff), more = a > top;
        top = (a & more) | (top & ~more);
    }
    int32_t lane[W], most = 0;
    memcpy(lane, &top, sizeof lane);
    for (int l = 0; l < W; l++) most = lane[l] > most ? lane[l] : most;
    float r;
    memcpy(&r, &most, sizeof r);
    return r;
}

/* Sets the row's scale; what x is multiplied with comes back. */
INLINE float set_scale(char *row, const float *x, int k)
{
    float most = magnitude(x, k);
    bool zero = most < QUANT_TINY;
    float scale = zero ? 0 : most / 127;
    memcpy(row, &scale, sizeof scale);
    return zero ? 0 : 127 / most;
}

/* As 16 bits, in the order in which even_bytes and odd_bytes take w apart: 0, 2, 1, 3. */
static void prepare_i8(char *row, const float *x, int k)
{
    float factor = set_scale(row, x, k);
    int16_t *to = (int16_t *)(row + PACKED_HEAD);
    for (int i = 0; i < k; i += W, to += W) {
        int32_t q[W];
        vi v = vi_round(load(x, i, k) * factor);
        memcpy(q, &v, sizeof q);
        for (int l = 0; l < W; l++) to[(l & ~3) | (l & 1) << 1 | (l & 2) >> 1] = (int16_t)q[l];
    }
}

#define NAME(isa)  NAME_(isa)
#define NAME_(isa) packed_##isa

const struct packed_kernel NAME(ISA)[PACKED_KINDS] = {
    {4, prepare_f32, run_f32},
    {4, prepare_bf16, run_bf16},
    {2, prepare_i8, run_i8},
};

/* ---- with the instructions for dot products of bf16 and int8 ---- */

#if W == 16
static void run_bf16_dot(const struct packed_task *t, int first, int last)
{
    run(t, first, last, BF16_DOT);
}
static void run_i8_dot(const struct packed_task *t, int first, int last)
{
    run(t, first, last, I8_DOT);
}

static void prepare_bf16_dot(char *row, const float *x, int k)
{
    for (int i = 0; i < k; i += W) vf_store(row + PACKED_HEAD, i, load(x, i, k), TYPE_BF16);
}

/* As unsigned bytes, 128 too large: finish takes that out again. */
static void prepare_i8_dot(char *row, const float *x, int k)
{
    float factor = set_scale(row, x, k);
    for (int i = 0; i < k; i += W) {
        vi q = vi_round(load(x, i, k) * factor) + 128;
        __m128i byte = _mm512_cvtepi32_epi8((__m512i)q);
        memcpy(row + PACKED_HEAD + i, &byte, sizeof byte);
    }
}

const struct packed_kernel packed_dot[PACKED_KINDS] = {
    [PACKED_BF16] = {2, prepare_bf16_dot, run_bf16_dot},
    [PACKED_I8] = {1, prepare_i8_dot, run_i8_dot},
};
#endif
