/*
 * packed_kernels.c - the kernels of products with packed weights: prepare rows of x, and multiply
 * them with panels. Compiled once per ISA; see packed.h.
 *
 * Every kind of number is multiplied in the same way. A lane of a panel holds a group, 4 bytes of
 * one row of w; the matching numbers of a row of x are broadcast to all lanes, and `dot` adds the
 * products to the sum of each lane. The sums of a tile, some rows by one or two panels, stay in
 * registers over the whole of k. The order of a row's additions does not depend on its tile, so
 * neither do its bits. int8 on AVX2 alone goes another way; see packed_split.h.
 */
#include "ops/cpu/packed_rows.h"
#if W == 8
#include "ops/cpu/packed_split.h"
#endif

/* Rows and panels of a tile. Its sums are independent chains of additions, of which the processor
 * needs enough to hide their latency: two of 4 to 6 cycles begin in each cycle. 24 vectors of sums
 * fit AVX-512 and ARM64, where a panel has one and four vectors; 12 and 8 fit the others. */
enum { ROWS = W == 16 ? 12 : W == 8 || NEON ? 6 : 2, PANELS = W == 16 ? 2 : 1 };
#if defined(__ARM_FEATURE_MATMUL_INT8) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define MATRIX 1
#else
#define MATRIX 0
#endif

/* Bytes of a number of a row that is prepared for I8 */
enum { I8_WIDTH = NEON ? 1 : 2 };

/* Lines of a panel that `dot` multiplies at once, and the bytes of a prepared row that belong to
 * them
 */
INLINE int lines(enum how how)
{
    return how == F32_PAIRS ? PACKED_THREE : 1;
}
INLINE int step(enum how how)
{
    return how == F32_PAIRS ? 4 * PACKED_THREE : how == BF16 ? 8 : how == I8 ? 4 * I8_WIDTH : 4;
}

/* ---- products ---- */

/* sum + the products of the signed bytes of each lane of w with the four numbers at x */
#if NEON
INLINE vi dot_i8(vi sum, vi w, const char *x)
{
    int8x16_t a = (int8x16_t)w, b = (int8x16_t)vi_all(int_at(x, 0));
    int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b)), high = vmull_high_s8(a, b);
    /* A sum of two products fits 16 bits, because no byte of x is -128. */
    return (vi)vpadalq_s16((int32x4_t)sum, vpaddq_s16(low, high));
}
#else
/* The signed bytes 0 and 2, 1 and 3 of each lane as 16 bits */
INLINE vi even_bytes(vi w)
{
    return (vi)((vs)w << 8 >> 8);
}
INLINE vi odd_bytes(vi w)
{
    return (vi)((vs)w >> 8);
}
INLINE vi dot_i8(vi sum, vi w, const char *x)
{
    return sum + madd(even_bytes(w), vi_all(int_at(x, 0))) +
           madd(odd_bytes(w), vi_all(int_at(x, 1)));
}
#endif

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
        return dot_i8(sum, w, x);
#if defined(__ARM_FEATURE_DOTPROD)
    case I8_DOT:
        return (vi)vdotq_s32((int32x4_t)sum, (int8x16_t)w, (int8x16_t)vi_all(int_at(x, 0)));
#elif W == 16
    case BF16_DOT:
        __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(w), "v"(vi_all(int_at(x, 0))));
        return sum;
    case I8_DOT: /* bytes of x are unsigned, bytes of w signed */
        __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(vi_all(int_at(x, 0))), "v"(w));
        return sum;
#elif W == 8
    case I8_DOT: /* in the encoding of AVX, not that of AVX-512 */
        __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(vi_all(int_at(x, 0))), "x"(w));
        return sum;
#endif
    default:
        __builtin_unreachable();
    }
}

/* sum [P][R][VECS] */
INLINE void multiply(vi *sum, const struct packed_task *t, struct tile at, const enum how how,
                     const int R, const int P)
{
    const char *x = t->rows + at.row * t->pitch + PACKED_HEAD;
    const char *w = t->panels + at.panel * t->stride, *end = w + (size_t)t->groups * LINE;
    const bool tails = how != BF16 && how != BF16_DOT;
    vi acc[PANELS][ROWS][VECS];
#pragma GCC unroll 2
    for (int p = 0; p < P; p++) {
        const char *tail = panel_tail(t, at.panel + p);
#pragma GCC unroll 12
        for (int r = 0; r < R; r++)
#pragma GCC unroll 4
            for (int v = 0; v < VECS; v++)
                acc[p][r][v] = how == I8_DOT && !NEON ? vi_load(tail + LINE, v) * -128 : (vi){0};
        for (int i = 0; i < 2 && tails; i++) expect(tail + i * LINE, t, R, P);
    }
    for (; w < end; w += lines(how) * LINE, x += step(how)) {
#pragma GCC unroll 2
        for (int p = 0; p < P; p++)
            for (int i = 0; i < lines(how); i++) expect(w + p * t->stride + i * LINE, t, R, P);
#pragma GCC unroll 12
        for (int r = 0; r < R; r++)
#pragma GCC unroll 2
            for (int p = 0; p < P; p++)
#pragma GCC unroll 4
                for (int v = 0; v < VECS; v++)
                    acc[p][r][v] = dot(acc[p][r][v], w + p * t->stride, v, x + r * t->pitch, how);
    }
#pragma GCC unroll 2
    for (int p = 0; p < P; p++)
#pragma GCC unroll 12
        for (int r = 0; r < R; r++)
#pragma GCC unroll 4
            for (int v = 0; v < VECS; v++) sum[(p * R + r) * VECS + v] = acc[p][r][v];
}

/* Calls multiply with the number of rows as a constant */
INLINE void multiply_rows(vi *sum, const struct packed_task *t, struct tile at, const enum how how,
                          const int P)
{
    switch (at.rows) {
    case 1:
        if (ROWS >= 1) multiply(sum, t, at, how, 1, P);
        break;
    case 2:
        if (ROWS >= 2) multiply(sum, t, at, how, 2, P);
        break;
    case 3:
        if (ROWS >= 3) multiply(sum, t, at, how, 3, P);
        break;
    case 4:
        if (ROWS >= 4) multiply(sum, t, at, how, 4, P);
        break;
    case 5:
        if (ROWS >= 5) multiply(sum, t, at, how, 5, P);
        break;
    case 6:
        if (ROWS >= 6) multiply(sum, t, at, how, 6, P);
        break;
    case 7:
        if (ROWS >= 7) multiply(sum, t, at, how, 7, P);
        break;
    case 8:
        if (ROWS >= 8) multiply(sum, t, at, how, 8, P);
        break;
    case 9:
        if (ROWS >= 9) multiply(sum, t, at, how, 9, P);
        break;
    case 10:
        if (ROWS >= 10) multiply(sum, t, at, how, 10, P);
        break;
    case 11:
        if (ROWS >= 11) multiply(sum, t, at, how, 11, P);
        break;
    case 12:
        if (ROWS >= 12) multiply(sum, t, at, how, 12, P);
        break;
    default:
        __builtin_unreachable();
    }
}

#if MATRIX
enum { PAIRS = ROWS / 2 };

/* sum + x wT: 8 bytes of two rows of x by 8 bytes of two rows of w. The two sums of the first row
 * of x come first. */
INLINE vi dot_matrix(vi sum, vi x, vi w, const enum how how)
{
    if (how == I8_MATRIX) return (vi)vmmlaq_s32((int32x4_t)sum, (int8x16_t)x, (int8x16_t)w);
    return (vi)vbfmmlaq_f32((float32x4_t)sum, (bfloat16x8_t)x, (bfloat16x8_t)w);
}

/* Adds the products of the line at w and of the line after it, which is taken to be zeros where
 * `next` is false. A line has 4 bytes of each row of w; two lines interleaved are vectors with 8
 * bytes of two rows. */
INLINE void add_pairs(vi acc[PAIRS][2 * VECS], const char *w, const bool next, const char *x,
                      size_t pitch, const enum how how, const int R)
{
    vi pair[PAIRS];
#pragma GCC unroll 4
    for (int p = 0; p < (R + 1) / 2; p++) {
        const char *first = x + 2 * p * pitch, *second = first + (2 * p + 1 < R ? pitch : 0);
        pair[p] = (vi)vcombine_s8(vld1_s8((const int8_t *)first), vld1_s8((const int8_t *)second));
    }
#pragma GCC unroll 4
    for (int v = 0; v < VECS; v++) {
        vi a = vi_load(w, v), b = next ? vi_load(w + LINE, v) : (vi){0};
        vi low = (vi)vzip1q_s32((int32x4_t)a, (int32x4_t)b);
        vi high = (vi)vzip2q_s32((int32x4_t)a, (int32x4_t)b);
#pragma GCC unroll 4
        for (int p = 0; p < (R + 1) / 2; p++) {
            acc[p][2 * v] = dot_matrix(acc[p][2 * v], pair[p], low, how);
            acc[p][2 * v + 1] = dot_matrix(acc[p][2 * v + 1], pair[p], high, how);
        }
    }
}

/* Like multiply, by instructions that multiply two rows of x with two rows of w. The last row of an
 * odd number of rows is a pair with itself. */
INLINE void multiply_pairs(vi *sum, const struct packed_task *t, struct tile at, const enum how how,
                           const int R)
{
    const char *x = t->rows + at.row * t->pitch + PACKED_HEAD;
    const char *w = t->panels + at.panel * t->stride, *end = w + (size_t)t->groups * LINE;
    vi acc[PAIRS][2 * VECS];
#pragma GCC unroll 4
    for (int p = 0; p < (R + 1) / 2; p++)
#pragma GCC unroll 8
        for (int v = 0; v < 2 * VECS; v++) acc[p][v] = (vi){0};
    for (; w + LINE < end; w += 2 * LINE, x += 8) {
        expect(w, t, R, 1);
        expect(w + LINE, t, R, 1);
        add_pairs(acc, w, true, x, t->pitch, how, R);
    }
    if (w < end) add_pairs(acc, w, false, x, t->pitch, how, R);
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int v = 0; v < VECS; v++) {
            int64x2_t low = (int64x2_t)acc[r / 2][2 * v], high = (int64x2_t)acc[r / 2][2 * v + 1];
            sum[r * VECS + v] = (vi)(r % 2 ? vzip2q_s64(low, high) : vzip1q_s64(low, high));
        }
}

INLINE void multiply_rows_matrix(vi *sum, const struct packed_task *t, struct tile at,
                                 const enum how how)
{
    if (at.rows == 1 && how == I8_MATRIX) /* exact either way, and a pair would be half wasted */
        multiply(sum, t, at, I8_DOT, 1, 1);
    else if (at.rows == 1)
        multiply_pairs(sum, t, at, how, 1);
    else if (at.rows == 2)
        multiply_pairs(sum, t, at, how, 2);
    else if (at.rows == 3)
        multiply_pairs(sum, t, at, how, 3);
    else if (at.rows == 4)
        multiply_pairs(sum, t, at, how, 4);
    else if (at.rows == 5)
        multiply_pairs(sum, t, at, how, 5);
    else
        multiply_pairs(sum, t, at, how, ROWS);
}
#else
INLINE void multiply_rows_matrix(vi *sum, const struct packed_task *t, struct tile at,
                                 const enum how how)
{
    (void)sum, (void)t, (void)at, (void)how;
    __builtin_unreachable();
}
#endif

/* The tile at `at` of P panels */
INLINE void run_tile(const struct packed_task *t, struct tile at, const enum how how, const int P)
{
    vi sum[PANELS * ROWS * VECS];
    if (how == BF16_MATRIX || how == I8_MATRIX)
        multiply_rows_matrix(sum, t, at, how);
    else
        multiply_rows(sum, t, at, how, P);
    for (int p = 0; p < P; p++, at.panel++) finish(t, at, sum + p * at.rows * VECS, how);
}

/* Divides the rows into blocks of nearly the same size, and a block into tiles of nearly the same
 * height. */
INLINE void run(const struct packed_task *t, int first, int last, const enum how how)
{
    int most = (int)(BLOCK_BYTES / t->pitch) / ROWS * ROWS;
    int block = part(t->m, most ? most : ROWS, ROWS);
    for (int row = 0; row < t->m; row += block) {
        int rows = int_min(block, t->m - row), height = part(rows, ROWS, 1);
        int panels = t->m > FEW_ROWS ? PANELS : 1;
        for (int panel = first; panel < last; panel += panels) {
            if (last - panel < panels) panels = 1;
            for (int r = 0; r < rows; r += height) {
                struct tile at = {row + r, int_min(height, rows - r), panel};
                if (panels == PANELS)
                    run_tile(t, at, how, PANELS);
                else
                    run_tile(t, at, how, 1);
            }
        }
    }
}

static void run_f32(const struct packed_task *t, int first, int last)
{
    run(t, first, last, F32);
}
static void run_bf16(const struct packed_task *t, int first, int last)
{
    run(t, first, last, MATRIX ? BF16_MATRIX : BF16);
}
#if W != 8
static void run_i8(const struct packed_task *t, int first, int last)
{
#if defined(__ARM_FEATURE_DOTPROD)
    run(t, first, last, MATRIX ? I8_MATRIX : I8_DOT);
#else
    run(t, first, last, I8);
#endif
}
#endif

/* ---- rows of x ---- */

static void prepare_f32(char *row, const float *x, int k)
{
    for (int i = 0; i < k; i += W) vf_store(row + PACKED_HEAD, i, load(x, i, k), TYPE_F32);
}

#if MATRIX
/* multiply_pairs reads the zeros up to a multiple of 8 bytes. */
static void prepare_bf16(char *row, const float *x, int k)
{
    prepare_halves(row, x, k);
}
#else
/* Rounds the row to bf16 and stores it as f32, because the kernel multiplies in f32. */
static void prepare_bf16(char *row, const float *x, int k)
{
    for (int i = 0; i < k; i += W)
        vf_store(row + PACKED_HEAD, i, bf16_widen(bf16_narrow(load(x, i, k))), TYPE_F32);
}
#endif

#if NEON
/* Rounds a row to bytes. Zeros follow up to a multiple of 8 bytes, which multiply_pairs reads. */
static void prepare_i8(char *row, const float *x, int k)
{
    float factor = set_scale(row, x, k);
    for (int i = 0; i < k; i += 2 * W) {
        int16x4_t low = vmovn_s32((int32x4_t)vi_round(load(x, i, k) * factor));
        int16x4_t high = vmovn_s32((int32x4_t)vi_round(load(x, i + W, k) * factor));
        vst1_s8((int8_t *)row + PACKED_HEAD + i, vmovn_s16(vcombine_s16(low, high)));
    }
}
#elif W != 8
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
#endif

const struct packed_kernel OF_ISA(packed)[PACKED_KINDS] = {
    {4, prepare_f32, run_f32},
    {MATRIX ? 2 : 4, prepare_bf16, run_bf16},
#if W == 8
    {SPLIT_WIDTH, prepare_split, run_split},
#else
    {I8_WIDTH, prepare_i8, run_i8},
#endif
};

/* ---- f32 in pairs, and the instructions for dot products of bf16 and int8 ---- */

#if W >= 8
static void run_i8_dot(const struct packed_task *t, int first, int last)
{
    run(t, first, last, I8_DOT);
}
#endif

#if W == 8
const struct packed_kernel OF_ISA(packed_dot)[PACKED_KINDS] = {
    [PACKED_I8] = {1, prepare_bytes, run_i8_dot},
};
#elif W == 16
static void run_f32_pairs(const struct packed_task *t, int first, int last)
{
    run(t, first, last, F32_PAIRS);
}
static void run_bf16_dot(const struct packed_task *t, int first, int last)
{
    run(t, first, last, BF16_DOT);
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
    struct packed_head head = {zero ? 0 : power(e + half), vf_sum(pairs) * rest * rest, 0};
    memcpy(row, &head, sizeof head);
    for (int i = 0; i < k; i += W) vf_store(row + PACKED_HEAD, i, load(x, i, k) * factor, TYPE_F32);
    memset(row + PACKED_HEAD + 4 * (size_t)k, 0, 4 * (PACKED_THREE - 1));
}

const struct packed_kernel OF_ISA(packed_dot)[PACKED_KINDS] = {
    [PACKED_F32] = {4, prepare_f32_pairs, run_f32_pairs},
    [PACKED_BF16] = {2, prepare_halves, run_bf16_dot},
    [PACKED_I8] = {1, prepare_bytes, run_i8_dot},
};
#endif
