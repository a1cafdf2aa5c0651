/*
 * packed_kernels.c - the kernels of products with packed weights: prepare rows of x, and multiply
 * them with panels. Compiled once per ISA; see packed.h.
 *
 * Every kind of number is multiplied in the same way. A lane of a panel holds a group, 4 bytes of
 * one row of w; the matching numbers of a row of x are broadcast to all lanes, and `dot` adds the
 * products to the sum of each lane. The sums of a tile, some rows by one or two panels, stay in
 * registers over the whole of k. The order of a row's additions does not depend on its tile, so
 * neither do its bits.
 */
#include "ops/cpu/packed_rows.h"

/* AVX2 has an instruction that multiplies bytes, but it adds in 16 bits; see multiply_split. */
#define SPLIT (W == 8)
/* Rows and panels of a tile. Its sums are independent chains of additions, of which the processor
 * needs enough to hide their latency: two of 4 to 6 cycles begin in each cycle. 24 vectors of sums
 * fit AVX-512 and ARM64, where a panel has one and four vectors; 12 and 8 fit the others. */
enum { ROWS = W == 16 ? 12 : W == 8 || NEON ? 6 : 2, PANELS = W == 16 ? 2 : 1 };
#if defined(__ARM_FEATURE_MATMUL_INT8) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define MATRIX 1
#else
#define MATRIX 0
#endif

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

/* Bytes of a number of a row that is prepared for I8 */
enum { I8_WIDTH = NEON ? 1 : 2 };

/* Of I8_SPLIT: rows of a tile, and bytes that a number of a prepared row takes */
enum { SPLIT_ROWS = 4, SPLIT_WIDTH = 4 };

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

/* Prefetches one line of the panel that is P further on while this one is read. With a single row
 * the processor's own prefetching is faster. */
INLINE void expect(const char *line, const struct packed_task *t, const int R, const int P)
{
    if (R > 1) __builtin_prefetch(line + P * t->stride, 0, 2);
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

#if SPLIT
/* A row that is prepared for I8_SPLIT: 8 bytes of numbers for each block, then one `start` for each
 * block, then the groups that are listed apart. SPLIT_WIDTH bytes for each number hold them all. */
enum { BLOCK = 2 * 4, START = 4 };
struct apart {
    int32_t group;
    int32_t numbers; /* 4 bytes */
};
INLINE int split_blocks(int groups)
{
    return (groups + 1) / 2;
}

/* The products of unsigned bytes u and signed bytes q, added in pairs to 16 bits, with saturation
 */
INLINE vs madd_bytes(vi u, vi q)
{
    return (vs)_mm256_maddubs_epi16((__m256i)u, (__m256i)q);
}
/* The sum of the two numbers of 16 bits in each lane */
INLINE vi add_halves(vs x)
{
    return madd((vi)x, vi_all(0x00010001));
}

/* sum [R][VECS] += the products of the groups that the rows list apart: |w| times q with the sign
 * of w. No pair of such products exceeds 2 * 128 * 127, so any q is exact. */
INLINE void add_apart(vi *sum, const struct packed_task *t, struct tile at, const int R)
{
    const char *panel = t->panels + at.panel * t->stride;
    const size_t skip = PACKED_HEAD + (size_t)split_blocks(t->groups) * (BLOCK + START);
    for (int r = 0; r < R; r++) {
        const char *row = t->rows + (at.row + r) * t->pitch;
        struct packed_head head;
        memcpy(&head, row, sizeof head);
        for (int i = 0; i < head.apart; i++) {
            struct apart a;
            memcpy(&a, row + skip + i * sizeof a, sizeof a);
            vi q = vi_all(a.numbers);
#pragma GCC unroll 4
            for (int v = 0; v < VECS; v++) {
                __m256i w = (__m256i)vi_load(panel + (size_t)a.group * LINE, v);
                vi signed_q = (vi)_mm256_sign_epi8((__m256i)q, w);
                sum[r * VECS + v] += add_halves(madd_bytes((vi)_mm256_abs_epi8(w), signed_q));
            }
        }
    }
}

/* Like multiply for int8: sums of a block, of two groups, fit 16 bits, so that 32 products take
 * three instructions instead of four.
 *
 * u = w + 128 is an unsigned byte. The sum of the products u q of a block, in the 16 bits of two
 * bytes of each group, begins with `start` = -128 times the sum of its q; so it ends as the sum of
 * the products w q, modulo 2^16. prepare_split lists the groups apart, and has zeros in their
 * place, that would break one of two conditions:
 *     |q0 + q1| <= 128 for the two numbers of a pair. As no |q| exceeds 127, the numbers of either
 *     sign then add up to at most 128, and |u0 q0 + u1 q1| to 255 * 128, which does not saturate;
 *     |q0| + |q1| + |q2| + |q3| <= 255 for the two pairs of a block. As |w| <= 128, the sum of the
 *     products w q is at most 32640, and so it is exact although it is computed modulo 2^16. */
INLINE void multiply_split(vi *sum, const struct packed_task *t, struct tile at, const int R)
{
    const int blocks = split_blocks(t->groups);
    const char *x = t->rows + at.row * t->pitch + PACKED_HEAD;
    const char *start = x + (size_t)blocks * BLOCK;
    /* The second group of the last block may be the line of scales: its q are zeros. */
    const char *w = t->panels + at.panel * t->stride, *end = w + (size_t)blocks * 2 * LINE;
    vi acc[SPLIT_ROWS][VECS] = {0};
    for (; w < end; w += 2 * LINE, x += BLOCK, start += START) {
        vi u[2][VECS];
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++) {
            expect(w + g * LINE, t, R, 1);
#pragma GCC unroll 4
            for (int v = 0; v < VECS; v++)
                u[g][v] = vi_load(w + g * LINE, v) ^ vi_all((int32_t)0x80808080);
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            const char *numbers = x + r * t->pitch;
            vi first = vi_all(int_at(numbers, 0)), second = vi_all(int_at(numbers, 1));
            vs from = (vs)vi_all(int_at(start + r * t->pitch, 0));
#pragma GCC unroll 4
            for (int v = 0; v < VECS; v++)
                acc[r][v] +=
                    add_halves(madd_bytes(u[0][v], first) + from + madd_bytes(u[1][v], second));
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int v = 0; v < VECS; v++) sum[r * VECS + v] = acc[r][v];
    add_apart(sum, t, at, R);
}

INLINE void multiply_rows_split(vi *sum, const struct packed_task *t, struct tile at)
{
    if (at.rows == 1)
        multiply_split(sum, t, at, 1);
    else if (at.rows == 2)
        multiply_split(sum, t, at, 2);
    else if (at.rows == 3)
        multiply_split(sum, t, at, 3);
    else
        multiply_split(sum, t, at, SPLIT_ROWS);
}
#else
INLINE void multiply_rows_split(vi *sum, const struct packed_task *t, struct tile at)
{
    (void)sum, (void)t, (void)at;
    __builtin_unreachable();
}
#endif

/* Up to this many rows, reading the weights takes longer than multiplying them, and that is faster
 * one panel after the other. */
enum { FEW = 4 };

/* The tile at `at` of P panels */
INLINE void run_tile(const struct packed_task *t, struct tile at, const enum how how, const int P)
{
    vi sum[PANELS * ROWS * VECS];
    if (how == BF16_MATRIX || how == I8_MATRIX)
        multiply_rows_matrix(sum, t, at, how);
    else if (how == I8_SPLIT)
        multiply_rows_split(sum, t, at);
    else
        multiply_rows(sum, t, at, how, P);
    for (int p = 0; p < P; p++, at.panel++) finish(t, at, sum + p * at.rows * VECS, how);
}

/* Divides the rows into blocks of nearly the same size, and a block into tiles of nearly the same
 * height. */
INLINE void run(const struct packed_task *t, int first, int last, const enum how how)
{
    const int tall = how == I8_SPLIT ? SPLIT_ROWS : ROWS;
    int most = (int)(BLOCK_BYTES / t->pitch) / tall * tall;
    int block = part(t->m, most ? most : tall, tall);
    for (int row = 0; row < t->m; row += block) {
        int rows = int_min(block, t->m - row), height = part(rows, tall, 1);
        int panels = t->m > FEW ? PANELS : 1;
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
static void run_i8(const struct packed_task *t, int first, int last)
{
#if defined(__ARM_FEATURE_DOTPROD)
    run(t, first, last, MATRIX ? I8_MATRIX : I8_DOT);
#else
    run(t, first, last, SPLIT ? I8_SPLIT : I8);
#endif
}

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
#elif SPLIT
typedef int64_t vblock __attribute__((vector_size(4 * W)));

/* In the lanes of two groups of each block: x of the other group */
INLINE vs other_group(vs x)
{
    return (vs)_mm256_shuffle_epi32((__m256i)x, 0xb1);
}

/* The lanes of q, one group each, that multiply_split cannot sum. The first group of a block alone
 * always meets the second condition. */
INLINE vi groups_apart(vi q, vs pair)
{
    const vi ones = vi_all(0x01010101);
    vi apart = (vi)((pair > 128) | (pair < -128)) != 0;
    vs size = madd_bytes((vi)_mm256_abs_epi8((__m256i)q), ones) & ~(vs)apart;
    vblock large = (vblock)((vi)(size + other_group(size) > 255) != 0);
    return apart | (vi)(large << 32);
}

/* Rounds numbers [i, i+32) of a row to bytes: a block is two lanes. */
INLINE vi round_bytes(const float *x, int i, int k, float factor)
{
    __m256i q[4];
    for (int j = 0; j < 4; j++) q[j] = (__m256i)vi_round(load(x, i + j * W, k) * factor);
    __m256i low = _mm256_packs_epi32(q[0], q[1]), high = _mm256_packs_epi32(q[2], q[3]);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    return (vi)_mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
}

/* Rounds a row to bytes and splits it into blocks and groups listed apart; see multiply_split. */
static void prepare_i8(char *row, const float *x, int k)
{
    struct packed_head head = {0};
    float factor = set_scale(row, x, k);
    memcpy(&head.scale, row, sizeof head.scale);
    const int groups = (k + 3) / 4, blocks = split_blocks(groups), all = blocks * BLOCK;
    char *numbers = row + PACKED_HEAD, *starts = numbers + all, *list = starts + blocks * START;
    for (int i = 0; i < all; i += 4 * W) {
        vi q = round_bytes(x, i, k, factor);
        vs pair = madd_bytes(vi_all(0x01010101), q);
        vi apart = groups_apart(q, pair), kept = q & ~apart;
        pair &= ~(vs)apart;
        const __m256i firsts = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
        vs start = (pair + other_group(pair)) * -128;
        start = (vs)_mm256_permutevar8x32_epi32((__m256i)start, firsts);
        int n = int_min(4 * W, all - i);
        memcpy(numbers + i, &kept, n);
        memcpy(starts + i / BLOCK * START, &start, n / BLOCK * START);
        int32_t lane[W];
        memcpy(lane, &q, sizeof lane);
        for (unsigned m = _mm256_movemask_ps((__m256)apart); m; m &= m - 1) {
            struct apart a = {i / 4 + __builtin_ctz(m), lane[__builtin_ctz(m)]};
            if (a.group >= groups) break; /* padding, which a row with a NaN does not round to 0 */
            memcpy(list + head.apart++ * sizeof a, &a, sizeof a);
        }
    }
    memcpy(row, &head, sizeof head);
}
#else
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
    {SPLIT ? SPLIT_WIDTH : I8_WIDTH, prepare_i8, run_i8},
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
