/*
 * packed_split.h - private to packed_kernels.c: products with packed weights in int8 on AVX2 alone.
 *
 * AVX2 multiplies bytes, unsigned by signed, but adds the products of two in 16 bits, with
 * saturation (vpmaddubsw). So a row of x is split into blocks whose sums are sure to fit 16 bits,
 * and a few numbers that would not fit are multiplied in extra blocks. 32 products then take three
 * instructions; with bytes widened to 16 bits first they take four. The sums are exact.
 *
 * q are the bytes that a row of x is rounded to, w those of a row of weights. A group is 4 bytes
 * along k (packed.h), a pair is its bytes 0 and 1, or 2 and 3, and a block is two groups. A lane of
 * 32 bits has two sums of 16 bits: of the first pairs of both groups, and of the second pairs. As
 * one factor must be unsigned, u = w + 128 is multiplied. Each sum begins with `start`, -128 times
 * the sum of its four q, and so ends as the sum of the products w q. It never leaves 16 bits if
 *     |q0 + q1| <= 128 for the two numbers of a pair. As no |q| exceeds 127, the numbers of either
 *     sign then add up to at most 128, and |u0 q0 + u1 q1| to 255 * 128, which does not saturate;
 *     |q0| + |q1| + |q2| + |q3| <= 255 for the two pairs of a sum. With |u - 128| <= 128, what has
 *     been added up at any time is at most 128 * 255 = 32640.
 * A pair that breaks one of these has a zero in place of its first number, which is in an extra
 * block instead. The two groups of an extra block are any two of the row; it has at most one number
 * of each pair, so both conditions hold. Of numbers with a normal distribution, one group in 17 is
 * in one where k is 512, and one in 40 where it is 2,048.
 */
#ifndef HEED_OPS_CPU_PACKED_SPLIT_H
#define HEED_OPS_CPU_PACKED_SPLIT_H
#include "ops/cpu/packed_rows.h"

/* Rows of a tile, and bytes that a number of a prepared row takes */
enum { SPLIT_ROWS = 4, SPLIT_WIDTH = 4 };

/* A prepared row: the 8 numbers of each block, then the `start` of each block, then the extra
 * blocks. A group is in at most one of these, so a block takes 8 + 4 + 16 bytes at most, and 8 *
 * SPLIT_WIDTH are there. */
enum { BLOCK = 2 * 4, START = 4 };
struct extra {
    uint16_t group[2];
    int32_t numbers[2], start;
};
_Static_assert(PACKED_K_MAX / 4 <= UINT16_MAX + 1, "a group fits struct extra");

INLINE int split_blocks(int groups)
{
    return (groups + 1) / 2;
}

/* The products of unsigned bytes u and signed bytes q, added in pairs, with saturation */
INLINE vs madd_bytes(vi u, vi q)
{
    return (vs)_mm256_maddubs_epi16((__m256i)u, (__m256i)q);
}

/* ---- products ---- */

/* A line of a panel with 128 added to each byte, which makes them unsigned */
INLINE vi unsigned_line(const char *line, int v)
{
    return vi_load(line, v) ^ vi_all((int32_t)0x80808080);
}

/* sum + the products of a block: of the lines u of its two groups and its numbers q */
INLINE vi add_block(vi sum, vi u0, vi u1, int32_t q0, int32_t q1, int32_t start)
{
    vs products = madd_bytes(u0, vi_all(q0)) + (vs)vi_all(start) + madd_bytes(u1, vi_all(q1));
    return sum + madd((vi)products, vi_all(0x00010001));
}

/* The tiles of a panel's rows. The first stores the panel's lines as unsigned_line returns them in
 * t->spare, and the others load them from there; where there is only one, it does neither. */
enum pass { ONLY, FIRST, OTHER };

/* sum + the products of a row's extra blocks */
INLINE void add_extras(vi sum[VECS], const struct packed_task *t, const char *row,
                       const char *panel, const enum pass pass)
{
    const struct packed_head *head = (const struct packed_head *)row;
    const char *extras = row + PACKED_HEAD + (size_t)split_blocks(t->groups) * (BLOCK + START);
    for (int i = 0; i < head->extras; i++) {
        struct extra e;
        memcpy(&e, extras + i * sizeof e, sizeof e);
#pragma GCC unroll 4
        for (int v = 0; v < VECS; v++) {
            vi u[2];
#pragma GCC unroll 2
            for (int g = 0; g < 2; g++)
                u[g] = pass == ONLY ? unsigned_line(panel + e.group[g] * LINE, v)
                                    : vi_load(t->spare + e.group[g] * LINE, v);
            sum[v] = add_block(sum[v], u[0], u[1], e.numbers[0], e.numbers[1], e.start);
        }
    }
}

/* The sums of a tile of R rows */
INLINE void split_tile(vi *to, const struct packed_task *t, struct tile at, const enum pass pass,
                       const int R)
{
    const int blocks = split_blocks(t->groups);
    const char *row = t->rows + at.row * t->pitch, *x = row + PACKED_HEAD;
    const char *start = x + (size_t)blocks * BLOCK, *panel = t->panels + at.panel * t->stride;
    vi sum[SPLIT_ROWS][VECS] = {0}, *lines = (vi *)t->spare;
    /* The second group of the last block may be the line of scales: its q are zeros. */
    const char *w = panel, *end = w + (size_t)blocks * 2 * LINE;
    for (; w < end; w += 2 * LINE, lines += 2 * VECS, x += BLOCK, start += START) {
        vi u[2 * VECS];
        expect(w, t, R, 1);
        expect(w + LINE, t, R, 1);
#pragma GCC unroll 8
        for (int i = 0; i < 2 * VECS; i++) {
            u[i] = pass == OTHER ? lines[i] : unsigned_line(w, i);
            if (pass == FIRST) lines[i] = u[i];
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            const char *q = x + r * t->pitch;
#pragma GCC unroll 4
            for (int v = 0; v < VECS; v++)
                sum[r][v] = add_block(sum[r][v], u[v], u[VECS + v], int_at(q, 0), int_at(q, 1),
                                      int_at(start + r * t->pitch, 0));
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
        add_extras(sum[r], t, row + r * t->pitch, panel, pass);
#pragma GCC unroll 4
        for (int v = 0; v < VECS; v++) to[r * VECS + v] = sum[r][v];
    }
}

INLINE void split_rows(vi *to, const struct packed_task *t, struct tile at, const enum pass pass)
{
    if (at.rows == 1)
        split_tile(to, t, at, pass, 1);
    else if (at.rows == 2)
        split_tile(to, t, at, pass, 2);
    else if (at.rows == 3)
        split_tile(to, t, at, pass, 3);
    else
        split_tile(to, t, at, pass, SPLIT_ROWS);
}

static void run_split(const struct packed_task *t, int first, int last)
{
    int most = (int)(BLOCK_BYTES / t->pitch) / SPLIT_ROWS * SPLIT_ROWS;
    int block = part(t->m, most ? most : SPLIT_ROWS, SPLIT_ROWS);
    for (int row = 0; row < t->m; row += block) {
        int rows = int_min(block, t->m - row), height = part(rows, SPLIT_ROWS, 1);
        for (int panel = first; panel < last; panel++)
            for (int r = 0; r < rows; r += height) {
                struct tile at = {row + r, int_min(height, rows - r), panel};
                vi sum[SPLIT_ROWS * VECS];
                if (rows == height)
                    split_rows(sum, t, at, ONLY);
                else if (r == 0)
                    split_rows(sum, t, at, FIRST);
                else
                    split_rows(sum, t, at, OTHER);
                finish(t, at, sum, I8);
            }
    }
}

/* ---- rows of x ---- */

/* In the lanes of the two groups of each block: x of the other group */
INLINE vs other_group(vs x)
{
    return (vs)_mm256_shuffle_epi32((__m256i)x, 0xb1);
}

/* The numbers that go to extra blocks, and zeros */
INLINE vi numbers_moved(vi q)
{
    const vi ones = vi_all(0x01010101), first = vi_all(0x00ff00ff);
    vs pair = madd_bytes(ones, q);
    vi moved = q & first & (vi)((pair > 128) | (pair < -128));
    vs size = madd_bytes((vi)_mm256_abs_epi8((__m256i)(q ^ moved)), ones);
    return moved | (q & first & (vi)(size + other_group(size) > 255));
}

/* -128 times the sums of the numbers of a and b, which are the low bytes of their 16-bit halves */
INLINE int32_t extra_start(int32_t a, int32_t b)
{
    uint32_t low = (uint32_t)((int8_t)a + (int8_t)b) * -128u;
    uint32_t high = (uint32_t)((int8_t)(a >> 16) + (int8_t)(b >> 16)) * -128u;
    return (int32_t)((low & 0xffff) | high << 16);
}

/* Appends a group to the extra blocks, which have n groups by now. The second group of the last
 * block is group 0 with zeros until there is one. */
INLINE void extras_add(char *extras, int n, int group, int32_t numbers)
{
    struct extra e = {{(uint16_t)group}, {numbers}, extra_start(numbers, 0)};
    char *to = extras + n / 2 * sizeof e;
    if (n % 2) {
        memcpy(&e, to, sizeof e);
        e.group[1] = (uint16_t)group;
        e.numbers[1] = numbers;
        e.start = extra_start(e.numbers[0], numbers);
    }
    memcpy(to, &e, sizeof e);
}

/* Rounds numbers [i, i+32) of a row to bytes: a block is two lanes. A NaN, which the conversion
 * would make -128, becomes -127, so that no |q| exceeds 127; its row has the scale NaN. */
INLINE vi round_bytes(const float *x, int i, int k, float factor)
{
    const bool whole = i + 4 * W <= k;
    __m256i q[4];
    for (int j = i; j < i + 4 * W; j += W) {
        vf v = whole ? vf_load(x, j, TYPE_F32) : load(x, j, k);
        q[(j - i) / W] = (__m256i)vi_round(v * factor);
    }
    __m256i low = _mm256_packs_epi32(q[0], q[1]), high = _mm256_packs_epi32(q[2], q[3]);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i bytes = _mm256_max_epi8(_mm256_packs_epi16(low, high), _mm256_set1_epi8(-127));
    return (vi)_mm256_permutevar8x32_epi32(bytes, order);
}

/* Stores n bytes of the numbers of blocks, and the start of each block. */
INLINE void store_blocks(char *numbers, char *starts, vi q, int n)
{
    const __m256i firsts = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
    vs pair = madd_bytes(vi_all(0x01010101), q);
    vs start = (pair + other_group(pair)) * -128;
    start = (vs)_mm256_permutevar8x32_epi32((__m256i)start, firsts);
    memcpy(numbers, &q, n);
    memcpy(starts, &start, n / BLOCK * START);
}

/* Rounds a row to bytes and splits it into blocks and extra blocks. */
static void prepare_split(char *row, const float *x, int k)
{
    enum { VECTORS = 8 }; /* whose groups are the bits of one number */
    float factor = set_scale(row, x, k);
    const int groups = (k + 3) / 4, blocks = split_blocks(groups), all = blocks * BLOCK;
    char *numbers = row + PACKED_HEAD, *starts = numbers + all, *extras = starts + blocks * START;
    int moved = 0; /* groups in extra blocks */
    for (int from = 0; from < all; from += VECTORS * 4 * W) {
        int32_t out[VECTORS * W]; /* the numbers of each group that are moved */
        uint64_t which = 0;
        for (int i = from; i < int_min(all, from + VECTORS * 4 * W); i += 4 * W) {
            vi q = round_bytes(x, i, k, factor), away = numbers_moved(q);
            uint64_t bits = (unsigned)_mm256_movemask_ps((__m256)(away != 0));
            which |= bits << (i - from) / 4;
            memcpy(out + (i - from) / 4, &away, sizeof away);
            if (all - i >= 4 * W)
                store_blocks(numbers + i, starts + i / BLOCK * START, q ^ away, 4 * W);
            else
                store_blocks(numbers + i, starts + i / BLOCK * START, q ^ away, all - i);
        }
        for (; which; which &= which - 1) {
            int i = __builtin_ctzll(which), group = from / 4 + i;
            if (group >= groups) break; /* padding, which a row with a NaN does not round to 0 */
            extras_add(extras, moved++, group, out[i]);
        }
    }
    ((struct packed_head *)row)->extras = (moved + 1) / 2;
}

#endif
