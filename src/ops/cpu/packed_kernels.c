/*
 * packed_kernels.c - the kernels of products with packed weights: prepare rows of x, and multiply
 * them with panels. Compiled once per ISA; see packed.h.
 *
 * Every kind of number is multiplied in the same way. A lane of a panel holds a group, 4 bytes of
 * one row of w; the matching numbers of a row of x are broadcast to all lanes, and `dot` adds the
 * products to the sum of each lane. The sums of a tile, some rows by one panel, stay in registers
 * over the whole of k. The order of a row's additions does not depend on its tile, so neither do
 * its bits.
 */
#include "base/minmax.h"
#include "ops/cpu/packed.h"
#include "ops/cpu/vec.h"
#include "ops/quant.h"

enum { LANES = PACKED_LANES, VECS = LANES / W, LINE = 4 * LANES };
/* Rows of a tile. Eight independent chains of additions hide their latency; with fewer registers
 * there is room for 12 and 8 vectors of sums. */
enum { ROWS = W == 16 ? 8 : W == 8 ? 6 : 2 };
/* Bytes of prepared rows that are multiplied with all panels before the next rows: they stay in the
 * second-level cache. */
enum { BLOCK_BYTES = 512 << 10 };

/* How w and x are multiplied. The last two need instructions that not every AVX-512 machine has;
 * F32_PAIRS (see dot) works on all and is faster on some. */
enum how { F32, BF16, I8, F32_PAIRS, BF16_DOT, I8_DOT };

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

/* Lines of a panel that `dot` multiplies at once, and the bytes of a prepared row that belong to
 * them
 */
INLINE int lines(enum how how)
{
    return how == F32_PAIRS ? PACKED_THREE : 1;
}
INLINE int step(enum how how)
{
    return how == F32_PAIRS ? 4 * PACKED_THREE : how == BF16 || how == I8 ? 8 : 4;
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

/* sum + w * x: vector v of the lines at `line` times the numbers at x. Sums of floats are passed as
 * their bits.
 *
 * F32_PAIRS is Winograd's inner product: x0 w0 + x1 w1 = (x0 + w1) (x1 + w0) - x0 x1 - w0 w1. The
 * last two terms depend on x alone and on w alone and are subtracted at the end. This replaces one
 * of two multiplications by additions. It is faster where the processor has separate units for
 * additions: with two of three numbers in pairs both kinds of unit are busy, and three numbers take
 * the time of two. */
INLINE vi dot(vi sum, const char *line, int v, const char *x, const enum how how)
{
    vf s = (vf)sum;
    vi w = vi_load(line, v);
    switch (how) {
    case F32_PAIRS:
        s += ((vf)w + float_at(x, 1)) * ((vf)vi_load(line + LINE, v) + float_at(x, 0));
        s += (vf)vi_load(line + 2 * LINE, v) * float_at(x, 2);
        return (vi)s;
    case F32:
        return (vi)(s + (vf)w * float_at(x, 0));
    case BF16:
        s += (vf)(w << 16) * float_at(x, 0);
        s += (vf)(w & -65536) * float_at(x, 1);
        return (vi)s;
    case I8:
        return sum + madd(even_bytes(w), vi_all(int_at(x, 0))) +
               madd(odd_bytes(w), vi_all(int_at(x, 1)));
#if W == 16
    case BF16_DOT:
        __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(w), "v"(vi_all(int_at(x, 0))));
        return sum;
    case I8_DOT: /* bytes of x are unsigned, bytes of w signed */
        __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(vi_all(int_at(x, 0))), "v"(w));
        return sum;
#endif
    default:
        __builtin_unreachable();
    }
}

/* Rows [row, row + rows) of x and one panel of w. */
struct tile {
    int row, rows, panel;
};

/* Prefetches one line of the next panel while this one is read. With a single row the processor's
 * own prefetching is faster. */
INLINE void expect(const char *line, const struct packed_task *t, const int R)
{
    if (R > 1) __builtin_prefetch(line + t->stride, 0, 2);
}

/* The line of scales of a panel; the line of sums follows it */
INLINE const char *panel_tail(const struct packed_task *t, int panel)
{
    return t->panels + (panel + 1) * t->stride - 2 * LINE;
}

/* sum [R][VECS] */
INLINE void multiply(vi *sum, const struct packed_task *t, struct tile at, const enum how how,
                     const int R)
{
    const char *x = t->rows + at.row * t->pitch + PACKED_HEAD;
    const char *w = t->panels + at.panel * t->stride, *end = w + (size_t)t->groups * LINE;
    const char *tail = panel_tail(t, at.panel);
    vi acc[ROWS][VECS];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int v = 0; v < VECS; v++)
            acc[r][v] = how == I8_DOT ? vi_load(tail + LINE, v) * -128 : (vi){0};
    for (int i = 0; i < 2 && how != BF16 && how != BF16_DOT; i++) expect(tail + i * LINE, t, R);
    for (; w < end; w += lines(how) * LINE, x += step(how)) {
        for (int i = 0; i < lines(how); i++) expect(w + i * LINE, t, R);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++)
#pragma GCC unroll 4
            for (int v = 0; v < VECS; v++) acc[r][v] = dot(acc[r][v], w, v, x + r * t->pitch, how);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int v = 0; v < VECS; v++) sum[r * VECS + v] = acc[r][v];
}

/* Calls multiply with the number of rows as a constant */
INLINE void multiply_rows(vi *sum, const struct packed_task *t, struct tile at, const enum how how)
{
    if (at.rows == 1)
        multiply(sum, t, at, how, 1);
    else if (at.rows == 2)
        multiply(sum, t, at, how, 2);
    else if (ROWS >= 3 && at.rows == 3)
        multiply(sum, t, at, how, 3);
    else if (ROWS >= 4 && at.rows == 4)
        multiply(sum, t, at, how, 4);
    else if (ROWS >= 5 && at.rows == 5)
        multiply(sum, t, at, how, 5);
    else if (ROWS >= 6 && at.rows == 6)
        multiply(sum, t, at, how, 6);
    else if (ROWS >= 7 && at.rows == 7)
        multiply(sum, t, at, how, 7);
    else
        multiply(sum, t, at, how, ROWS);
}

/* Stores the sums of a tile in y, with scales, bias and ReLU. */
INLINE void finish(const struct packed_task *t, struct tile at, const vi *sum, const enum how how)
{
    const bool i8 = how == I8 || how == I8_DOT, scaled = i8 || how == F32 || how == F32_PAIRS;
    const char *tail = panel_tail(t, at.panel);
    for (int v = 0; v < VECS; v++) {
        int c = at.panel * LANES + v * W, n = int_min(W, t->n - c);
        if (n <= 0) break;
        vf bias = t->bias ? vf_load_part(t->bias, c, n, 0, TYPE_F32) : (vf){0};
        vf scale = scaled ? vf_load(tail, v * W, TYPE_F32) : (vf){0};
        vf pairs = how == F32_PAIRS ? vf_load(tail + LINE, v * W, TYPE_F32) : (vf){0};
        for (int r = 0; r < at.rows; r++) {
            vf s = (vf)sum[r * VECS + v];
            struct packed_head x;
            memcpy(&x, t->rows + (at.row + r) * t->pitch, sizeof x);
            if (i8)
                s = __builtin_convertvector((vi)s, vf) * (scale * x.scale);
            else if (how == F32_PAIRS)
                s = (s - (pairs + x.pairs)) * (scale * x.scale);
            else if (how == F32)
                s *= scale;
            s += bias;
            if (t->relu) s = vf_max((vf){0}, s);
            vf_store_part(t->y + (at.row + r) * t->ldy, c, n, s, TYPE_F32);
        }
    }
}

/* Size of the parts if n is divided into as few nearly equal parts of at most `most` as possible; a
 * multiple of unit */
INLINE int part(int n, int most, int unit)
{
    int parts = (n + most - 1) / most, size = (n + parts - 1) / parts;
    return (size + unit - 1) / unit * unit;
}

/* Divides the rows into blocks of nearly the same size, and a block into tiles of nearly the same
 * height. */
INLINE void run(const struct packed_task *t, int first, int last, const enum how how)
{
    int most = (int)(BLOCK_BYTES / t->pitch) / ROWS * ROWS;
    int block = part(t->m, most ? most : ROWS, ROWS);
    for (int row = 0; row < t->m; row += block) {
        int rows = int_min(block, t->m - row), height = part(rows, ROWS, 1);
        for (int panel = first; panel < last; panel++)
            for (int r = 0; r < rows; r += height) {
                struct tile at = {row + r, int_min(height, rows - r), panel};
                vi sum[ROWS * VECS];
                multiply_rows(sum, t, at, how);
                finish(t, at, sum, how);
            }
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

/* Numbers [i, i+W) of x; zeros after the last */
INLINE vf load(const float *x, int i, int k)
{
    return vf_load_part(x, i, int_min(W, k - i), 0, TYPE_F32);
}

static void prepare_f32(char *row, const float *x, int k)
{
    for (int i = 0; i < k; i += W) vf_store(row + PACKED_HEAD, i, load(x, i, k), TYPE_F32);
}

/* Rounds the row to bf16 and stores it as f32, because the kernel multiplies in f32. */
static void prepare_bf16(char *row, const float *x, int k)
{
    for (int i = 0; i < k; i += W)
        vf_store(row + PACKED_HEAD, i, bf16_widen(bf16_narrow(load(x, i, k))), TYPE_F32);
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
#else
    vi more = a > b;
    return (a & more) | (b & ~more);
#endif
}

/* The largest magnitude. The magnitudes are compared as integers, where a NaN is larger than every
 * number; so a row with a NaN has the magnitude NaN, and its row of y becomes NaNs. */
INLINE float magnitude(const float *x, int k)
{
    vi top = {0};
    for (int i = 0; i < k; i += W) {
        vi a = (vi)(vu_bits(load(x, i, k)) & 0x7fffffff);
        top = vi_max(top, a);
    }
    int32_t lane[W], most = 0;
    memcpy(lane, &top, sizeof lane);
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

/* Rounds a row to 16-bit integers, in the order in which even_bytes and odd_bytes return the bytes
 * of w: 0, 2, 1, 3. */
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

const struct packed_kernel OF_ISA(packed)[PACKED_KINDS] = {
    {4, prepare_f32, run_f32},
    {4, prepare_bf16, run_bf16},
    {2, prepare_i8, run_i8},
};

/* ---- f32 in pairs, and the instructions for dot products of bf16 and int8 ---- */

#if W == 16
static void run_f32_pairs(const struct packed_task *t, int first, int last)
{
    run(t, first, last, F32_PAIRS);
}
static void run_bf16_dot(const struct packed_task *t, int first, int last)
{
    run(t, first, last, BF16_DOT);
}
static void run_i8_dot(const struct packed_task *t, int first, int last)
{
    run(t, first, last, I8_DOT);
}

INLINE int exponent(float x)
{
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits >> 23 & 255) - 127;
}
/* 2^e, or the nearest normal number */
INLINE float power(int e)
{
    int32_t bits = (e < -126 ? 1 : e > 127 ? 254 : e + 127) << 23;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Scales a row by a power of two so that its Euclidean norm is between 1 and 2, as that of the rows
 * of w is: then neither x nor w loses many digits in x + w. The row is first scaled by its largest
 * magnitude, so that no square overflows. A row of zeros or subnormal numbers gets the scale 0. */
static void prepare_f32_pairs(char *row, const float *x, int k)
{
    const vi start = {-1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0, 0};
    int e = exponent(magnitude(x, k));
    bool zero = e == -127;
    float unit = power(-e);
    vf squares = {0}, pairs = {0};
    for (int i = 0; i < k; i += W - 1) { /* 5 threes; some squares count twice, which is harmless */
        vf a = load(x, i, k) * unit, b = load(x, i + 1, k) * unit;
        squares += a * a;
        pairs += vf_pick(start, a * b, (vf){0});
    }
    int half = int_min(exponent(vf_sum(squares)) / 2, 126 - e); /* the scale must be finite */
    float factor = power(-e - half), rest = power(-half);
    struct packed_head head = {zero ? 0 : power(e + half), vf_sum(pairs) * rest * rest};
    memcpy(row, &head, sizeof head);
    for (int i = 0; i < k; i += W) vf_store(row + PACKED_HEAD, i, load(x, i, k) * factor, TYPE_F32);
    memset(row + PACKED_HEAD + 4 * (size_t)k, 0, 4 * (PACKED_THREE - 1));
}

static void prepare_bf16_dot(char *row, const float *x, int k)
{
    for (int i = 0; i < k; i += W) vf_store(row + PACKED_HEAD, i, load(x, i, k), TYPE_BF16);
}

/* Rounds a row to unsigned bytes that are 128 too large, as vpdpbusd needs them; finish corrects
 * for that. */
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
    [PACKED_F32] = {4, prepare_f32_pairs, run_f32_pairs},
    [PACKED_BF16] = {2, prepare_bf16_dot, run_bf16_dot},
    [PACKED_I8] = {1, prepare_i8_dot, run_i8_dot},
};
#endif
