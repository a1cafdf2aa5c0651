/*
 * test_packed.c - products with packed weights against plain double arithmetic, for every kind of
 * weight, every ISA this machine has and odd shapes; and the promise of packed.h: a row's bits
 * depend neither on the rows beside it nor on the number of threads.
 *
 * x and y are columns of wider blocks. What lies beside y is MARK and must stay; x ends with its
 * last number, so that a sanitizer sees a step beyond.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "emulated.h"
#include "ops/bf16.h"
#include "ops/cpu/isa.h"
#include "ops/cpu/packed.h"
#include "ops/quant.h"

/* The levels; the best of this machine; AVX2 with VNNI; and the kernels for AMX, emulated, with the
 * rest of each level */
enum { ROWS = 33, BESIDE = 3, BEST = ISA_LEVELS, AVX_VNNI, AMX, ISAS = AMX + ISA_LEVELS };
#define MARK 1234.5f
static const char *const kind_name[PACKED_KINDS] = {"f32", "bf16", "int8"};

static const char *setting(int i)
{
    static char emulated[32];
    if (i == BEST) return "best";
    if (i == AVX_VNNI) return "avxvnni";
    if (i < BEST) return isa_name((enum isa_level)i);
    snprintf(emulated, sizeof emulated, "AMX over %s", isa_name((enum isa_level)(i - AMX)));
    return emulated;
}

/* false: an instruction set that this machine lacks */
static bool open_setting(struct packed_work *work, int i)
{
    struct cpuid c = isa_read();
    struct isa isa = isa_best(&c);
    if (i != BEST && isa_limit(&isa, setting(i < AMX ? i : i - AMX))) return false;
    if (i >= AMX) isa.amx = amx_emulated(isa.level);
    packed_open(work, &isa);
    return true;
}

static void *new (size_t bytes)
{
    void *p = malloc(bytes + !bytes);
    assert_non_null(p);
    return p;
}

static float *new_random(size_t n, uint64_t seed)
{
    float *p = new (n * sizeof *p);
    for (size_t i = 0; i < n; i++) p[i] = (float)(random_unit(&seed) * 2 - 1);
    return p;
}

static void *panels_new(enum packed_kind kind, int n, int k)
{
    void *p = aligned_alloc(64, packed_bytes(kind, n, k));
    assert_non_null(p);
    return p;
}

/* ---- weights ---- */

static void check_row(const float *got, const float *w, enum packed_kind kind, int k)
{
    float most = 0;
    for (int i = 0; i < k; i++) most = fmaxf(most, fabsf(w[i]));
    for (int i = 0; i < k; i++) {
        float want = w[i];
        if (kind == PACKED_BF16) want = bf16_to_float(bf16_from_float(w[i]));
        if (kind == PACKED_I8) want = rintf(w[i] * (127 / most)) * (most / 127);
        if (got[i] != want)
            fail_msg("%s of %d: number %d is %.9g, expected %.9g", kind_name[kind], k, i,
                     (double)got[i], (double)want);
    }
}

static void test_weights(void **state)
{
    (void)state;
    static const int length[] = {1, 2, 3, 6, 30, 512};
    for (int i = 0; i < 6 * PACKED_KINDS; i++) {
        int n = 37, k = length[i / PACKED_KINDS];
        enum packed_kind kind = i % PACKED_KINDS;
        float *w = new_random((size_t)n * k, 1), *row = new (sizeof *row * (size_t)k);
        struct packed_weights p = {kind, n, k, panels_new(kind, n, k)};
        packed_fill(kind, (void *)p.panels, (struct stored){w, TYPE_F32, NULL}, n, k, 2);
        for (int r = 0; r < n; r++) {
            packed_row(row, &p, r);
            check_row(row, w + r * k, kind, k);
        }
        free((void *)p.panels);
        free(row);
        free(w);
    }
}

/* All 256 bytes, with the scales given; the rows of what packed_fill makes of them are the same. */
static void test_weights_i8(void **state)
{
    (void)state;
    enum { N = 19, K = 256 };
    int8_t w[N][K];
    float scale[N], row[K];
    struct packed_weights p = {PACKED_I8, N, K, panels_new(PACKED_I8, N, K)};
    for (int r = 0; r < N; r++) {
        scale[r] = ldexpf(1, -r);
        for (int i = 0; i < K; i++) w[r][i] = (int8_t)(i * 7 + r);
    }
    packed_fill(PACKED_I8, (void *)p.panels, (struct stored){w[0], TYPE_I8, scale}, N, K, 2);
    for (int r = 0; r < N; r++) {
        packed_row(row, &p, r);
        for (int i = 0; i < K; i++) assert_true(row[i] == w[r][i] * scale[r]);
    }
    free((void *)p.panels);
}

/* Matrices of whole panels, one after another, are one. */
static void test_stacked(void **state)
{
    (void)state;
    enum { N = 80, FIRST = 48, K = 30 };
    for (enum packed_kind kind = 0; kind < PACKED_KINDS; kind++) {
        float *w = new_random(N * K, 2);
        size_t bytes = packed_bytes(kind, N, K), first = packed_bytes(kind, FIRST, K);
        char *whole = panels_new(kind, N, K), *parts = panels_new(kind, N, K);
        packed_fill(kind, whole, (struct stored){w, TYPE_F32, NULL}, N, K, 2);
        packed_fill(kind, parts, (struct stored){w, TYPE_F32, NULL}, FIRST, K, 2);
        packed_fill(kind, parts + first, (struct stored){w + FIRST * K, TYPE_F32, NULL}, N - FIRST,
                    K, 2);
        assert_memory_equal(whole, parts, bytes);
        free(whole);
        free(parts);
        free(w);
    }
}

/* ---- one product against double arithmetic ---- */

struct product {
    struct packed_weights w;
    float *plain, *bias; /* w as it was before packing; bias may be NULL */
    bool relu;
    float *x; /* [ROWS,k], rows ldx apart */
    int ldx;
    double *want, *tol; /* [ROWS,n] */
};

/* A row of x or w as the product sees it, over what comes back */
static double round_row(double *to, const float *x, enum packed_kind kind, int k)
{
    float most = 0;
    for (int i = 0; i < k; i++) most = fmaxf(most, fabsf(x[i]));
    bool zero = most < QUANT_TINY;
    for (int i = 0; i < k; i++) {
        to[i] = (double)x[i];
        if (kind == PACKED_BF16) to[i] = (double)bf16_to_float(bf16_from_float(x[i]));
        if (kind == PACKED_I8) to[i] = zero ? 0 : (double)rintf(x[i] * (127 / most));
    }
    return kind == PACKED_I8 ? (double)most / 127 : 1;
}

/* Sums of floats may be off by some units of their terms, and a term below the normal numbers may
 * be lost; a sum of integers is exact, and then rounded a few times. */
static void expect(struct product *p)
{
    int n = p->w.n, k = p->w.k;
    double *x = new (sizeof *x * 2 * (size_t)k), *w = x + k;
    for (int i = 0; i < ROWS * n; i++) {
        double scale = round_row(x, p->x + (size_t)(i / n) * p->ldx, p->w.kind, k);
        scale *= round_row(w, p->plain + (size_t)(i % n) * k, p->w.kind, k);
        double sum = 0, terms = 0, bias = p->bias ? (double)p->bias[i % n] : 0;
        for (int j = 0; j < k; j++) {
            sum += x[j] * w[j] * scale;
            terms += fabs(x[j] * w[j] * scale);
        }
        if (p->w.kind == PACKED_I8) terms = fabs(sum);
        p->want[i] = p->relu && sum + bias < 0 ? 0 : sum + bias;
        p->tol[i] = 1e-6 * (terms + fabs(bias)) + k * 2e-38;
    }
    free(x);
}

static struct product product_new(enum packed_kind kind, int n, int k, bool bias, bool relu)
{
    struct product p = {.w = {kind, n, k, panels_new(kind, n, k)}, .relu = relu, .ldx = k + BESIDE};
    p.plain = new_random((size_t)n * k, 3);
    packed_fill(kind, (void *)p.w.panels, (struct stored){p.plain, TYPE_F32, NULL}, n, k, 2);
    if (bias) p.bias = new_random((size_t)n, 4);
    p.x = new_random((size_t)(ROWS - 1) * p.ldx + k, 5);
    p.want = new (sizeof *p.want * 2 * ROWS * (size_t)n);
    p.tol = p.want + ROWS * n;
    expect(&p);
    return p;
}

static void product_free(struct product *p)
{
    free((void *)p->w.panels);
    free(p->plain);
    free(p->bias);
    free(p->x);
    free(p->want);
}

/* y [m,n], malloced: rows [first, first+m) */
static float *product_run(const struct product *p, struct packed_work *work, int first, int m,
                          int threads)
{
    int n = p->w.n, ldy = n + BESIDE;
    float *wide = new (sizeof *wide * (size_t)(m * ldy)), *y = new (sizeof *y * (size_t)(m * n));
    for (int i = 0; i < m * ldy; i++) wide[i] = MARK;
    struct heed_error err = {0};
    if (packed_run(work, wide, ldy, p->x + (size_t)first * p->ldx, p->ldx, m, &p->w, p->bias,
                   p->relu, threads, &err))
        fail_msg("%s", err.text);
    for (int r = 0; r < m; r++) {
        memcpy(y + r * n, wide + r * ldy, sizeof *y * (size_t)n);
        for (int c = n; c < ldy; c++)
            if (wide[r * ldy + c] != MARK) fail_msg("wrote beside y, row %d", r);
    }
    free(wide);
    return y;
}

static void check(const struct product *p, const float *y, const char *isa)
{
    int n = p->w.n;
    for (int i = 0; i < ROWS * n; i++)
        if (!(fabs((double)y[i] - p->want[i]) <= p->tol[i]))
            fail_msg("%s %s n %d k %d bias %d relu %d: (%d,%d) is %.9g, expected %.9g", isa,
                     kind_name[p->w.kind], n, p->w.k, p->bias != NULL, p->relu, i / n, i % n,
                     (double)y[i], p->want[i]);
}

/* A part of the rows, computed by 1 to 3 threads, has the same bits as in the whole product. */
static void check_promise(const struct product *p, struct packed_work *work, const float *all,
                          const char *isa)
{
    static const int rows[] = {0, 1, 2, 3, 5, 7, ROWS};
    for (int i = 0; i < 7 * 3; i++) {
        int m = rows[i / 3], threads = i % 3 + 1;
        for (int first = 0; first <= ROWS - m; first += 13) {
            float *some = product_run(p, work, first, m, threads);
            if (memcmp(some, all + first * p->w.n, sizeof *some * (size_t)(m * p->w.n)))
                fail_msg("%s %s n %d k %d: rows [%d, %d) by %d threads have other bits", isa,
                         kind_name[p->w.kind], p->w.n, p->w.k, first, first + m, threads);
            free(some);
        }
    }
}

static void try_product(struct product *p)
{
    for (int i = 0; i < ISAS; i++) {
        struct packed_work work;
        if (!open_setting(&work, i)) continue;
        float *y = product_run(p, &work, 0, ROWS, 1);
        check(p, y, setting(i));
        check_promise(p, &work, y, setting(i));
        free(y);
        packed_close(&work);
    }
}

static void test_products(void **state)
{
    (void)state;
    static const int n[] = {1, 15, 16, 17, 50}, k[] = {2, 6, 30, 512, 2048};
    for (int i = 0; i < PACKED_KINDS * 25; i++) {
        struct product p =
            product_new(i / 25, n[i % 5], k[i / 5 % 5], random_mix(i) & 1, random_mix(i) & 2);
        try_product(&p);
        product_free(&p);
    }
}

/* More rows than stay in a cache together. */
static void test_long(void **state)
{
    (void)state;
    enum { M = 150, N = 16 };
    for (enum packed_kind kind = 0; kind < PACKED_KINDS; kind++) {
        struct product p = product_new(kind, N, 2048, true, false);
        int ldx = p.ldx;
        p.ldx = 0; /* the same row, M times */
        for (int i = 0; i < ISAS; i++) {
            struct packed_work work;
            if (!open_setting(&work, i)) continue;
            float *y = product_run(&p, &work, 0, M, 3);
            for (int r = 1; r < M; r++) assert_memory_equal(y, y + r * N, sizeof *y * N);
            free(y);
            packed_close(&work);
        }
        p.ldx = ldx;
        product_free(&p);
    }
}

/* Sums of integers are exact, so every kernel of a level gives the same bits of int8. */
static void test_same_bits(void **state)
{
    (void)state;
    static const int k[] = {1, 64, 130, 2048};
    for (int i = 0; i < 4 * ISA_LEVELS; i++) {
        int level = i % ISA_LEVELS;
        bool dots = level == ISA_AVX512; /* compares with the instructions for dot products, too */
        struct packed_work plain, best, tiles;
        if (!open_setting(&plain, level)) continue;
        struct product p = product_new(PACKED_I8, 50, k[i / ISA_LEVELS], i % 2, false);
        open_setting(&best, dots ? BEST : level);
        open_setting(&tiles, AMX + level);
        float *want = product_run(&p, &plain, 0, ROWS, 1),
              *dot = product_run(&p, &best, 0, ROWS, 1);
        float *got = product_run(&p, &tiles, 0, ROWS, 1);
        assert_memory_equal(want, got, sizeof *want * ROWS * (size_t)p.w.n);
        assert_memory_equal(want, dot, sizeof *want * ROWS * (size_t)p.w.n);
        free(want);
        free(dot);
        free(got);
        packed_close(&plain);
        packed_close(&best);
        packed_close(&tiles);
        product_free(&p);
    }
}

/* On a machine with AMX its kernels give the same bits as with emulated instructions. */
static void test_real_amx(void **state)
{
    (void)state;
    struct cpuid c = isa_read();
    if (!isa_best(&c).amx) skip();
    for (int i = 0; i < 4; i++) {
        struct product p =
            product_new(i / 2 ? PACKED_I8 : PACKED_BF16, 50, i % 2 ? 130 : 2048, true, false);
        struct packed_work real, emulated;
        open_setting(&real, BEST);
        open_setting(&emulated, AMX + ISA_AVX512);
        float *got = product_run(&p, &real, 0, ROWS, 2);
        float *want = product_run(&p, &emulated, 0, ROWS, 1);
        assert_memory_equal(got, want, sizeof *got * ROWS * (size_t)p.w.n);
        free(got);
        free(want);
        packed_close(&real);
        packed_close(&emulated);
        product_free(&p);
    }
}

/* ---- extremes ---- */

/* Rows of zeros, and rows of numbers at the ends of what a float can hold, in x or in w */
static void test_extremes(void **state)
{
    (void)state;
    static const float size[] = {0, 1e-44f, 1e-38f, 1e-31f, 1e-29f, 1e-10f, 1e10f, 1e30f, 2e36f};
    for (int i = 0; i < PACKED_KINDS * 4; i++) {
        struct product p = product_new(i / 4, 17, 30, i % 2, false);
        bool in_w = i & 2;
        float *row = in_w ? p.plain : p.x;
        int n = p.w.n, k = p.w.k, rows = in_w ? n : ROWS, ld = in_w ? k : p.ldx;
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < k; c++) row[r * ld + c] *= size[r % 9];
        if (in_w)
            packed_fill(p.w.kind, (void *)p.w.panels, (struct stored){p.plain, TYPE_F32, NULL}, n,
                        k, 2);
        expect(&p);
        for (int c = 0; c < (in_w ? 1 : n); c++)
            assert_true(p.want[c] == (p.bias ? (double)p.bias[c] : 0));
        /* int8 takes what is below QUANT_TINY for zero, in the rows as here in the result */
        try_product(&p);
        product_free(&p);
    }
}

/* Products of int8 at the limits of kernels that add in 16 bits (packed_split.h) and beyond them.
 * Rows of x repeat eight numbers, and every second row is negative; the first number of a row makes
 * its scale 1. Rows of w are -128, which a file may have, 127, both in turns, and random. Sums are
 * exact, and y is what they are as a float. */
static void try_limits(int n, int k)
{
    enum { M = 16 };
    static const int rows[] = {1, 2, 3, 4, 5, 6, 7, M}; /* a tile of each height has a kernel */
    static const int8_t eight[M / 2][8] = {
        {127, 127, 127, 127, 127, 127, 127, 127},
        {127, -127, 127, -127, -127, 127, -127, 127},
        {127, 1, 127, 1, 127, 1, 127, 1},
        {127, 1, 1, 127, 127, 0, 0, 127},
        {127, 2, 2, 127, 0, 0, 0, 0},
        {64, 64, 64, 64, 64, 64, 64, 63},
        {65, 64, 0, 0, 64, 64, 64, 64},
        {127, -127, 1, 0, 1, 0, 127, -127},
    };
    int8_t *w = new ((size_t)n * k);
    float *x = new (sizeof *x * M * (size_t)k), *y = new (sizeof *y * M * (size_t)n);
    float *want = new (sizeof *want * M * (size_t)n), *scale = new (sizeof *scale * (size_t)n);
    for (int i = 0; i < M * k; i++)
        x[i] = (float)(eight[i / k / 2][i % k % 8] * (i / k % 2 ? -1 : 1));
    for (int i = 0; i < M; i++) x[i * k] = i % 2 ? -127 : 127;
    for (int i = 0; i < n * k; i++) {
        const int number[] = {-128, 127, i % 2 ? 127 : -128, (int)(random_mix(i) & 255) - 128};
        w[i] = (int8_t)number[i / k % 4];
    }
    for (int i = 0; i < n; i++) scale[i] = 1;
    for (int i = 0; i < M * n; i++) {
        int sum = 0;
        for (int j = 0; j < k; j++) sum += (int)x[i / n * k + j] * w[i % n * k + j];
        want[i] = (float)sum;
    }
    struct packed_weights p = {PACKED_I8, n, k, panels_new(PACKED_I8, n, k)};
    packed_fill(PACKED_I8, (void *)p.panels, (struct stored){w, TYPE_I8, scale}, n, k, 1);
    for (int i = 0; i < ISAS; i++) {
        struct packed_work work;
        struct heed_error err = {0};
        if (!open_setting(&work, i)) continue;
        for (int j = 0; j < 8; j++) {
            int m = rows[j];
            if (packed_run(&work, y, n, x, k, m, &p, NULL, false, 1, &err))
                fail_msg("%s", err.text);
            for (int c = 0; c < m * n; c++)
                if (y[c] != want[c])
                    fail_msg("%s k %d of %d rows: (%d,%d) is %.9g, expected %.9g", setting(i), k, m,
                             c / n, c % n, (double)y[c], (double)want[c]);
        }
        packed_close(&work);
    }
    free((void *)p.panels);
    free(w);
    free(x);
    free(y);
    free(want);
    free(scale);
}
static void test_limits_i8(void **state)
{
    (void)state;
    static const int k[] = {1, 3, 4, 5, 8, 9, 27, 31, 32, 33, 100, 512};
    for (int i = 0; i < 12; i++) try_limits(i % 2 ? 17 : 16, k[i]);
    try_limits(4, PACKED_K_MAX);
}

/* A NaN makes its own row of y a NaN, and no other. */
static void test_nan(void **state)
{
    (void)state;
    for (int i = 0; i < PACKED_KINDS * ISAS; i++) {
        struct packed_work work;
        if (!open_setting(&work, i % ISAS)) continue;
        struct product p = product_new(i / ISAS, 17, 30, true, i % 2);
        float *before = product_run(&p, &work, 0, ROWS, 2);
        p.x[4 * p.ldx + 7] = NAN;
        float *y = product_run(&p, &work, 0, ROWS, 2);
        for (int c = 0; c < p.w.n; c++) {
            assert_true(isnan(y[4 * p.w.n + c]));
            y[4 * p.w.n + c] = before[4 * p.w.n + c];
        }
        assert_memory_equal(y, before, sizeof *y * ROWS * (size_t)p.w.n);
        free(y);
        free(before);
        packed_close(&work);
        product_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights),   cmocka_unit_test(test_weights_i8),
        cmocka_unit_test(test_stacked),   cmocka_unit_test(test_products),
        cmocka_unit_test(test_long),      cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_real_amx),  cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_limits_i8), cmocka_unit_test(test_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
