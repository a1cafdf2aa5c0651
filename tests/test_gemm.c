/*
 * test_gemm.c - matrix products against plain double arithmetic, over odd shapes, views
 * and every epilogue, by both implementations; and the two promises of gemm.h: results depend
 * neither on the number of threads nor, for a row, on the number of rows.
 */
#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "emulated.h"
#include "ops/bf16.h"
#include "ops/cpu/isa.h"

/* ---- matrices: columns of a wider block, so that a step beside the view is seen ---- */

enum { LEFT = 3, RIGHT = 2 };
static const float beside = 1234.5f;

static double get(struct mat m, int r, int c)
{
    const void *p = mat_at(m, r, c);
    return (double)(m.type == TYPE_BF16 ? bf16_to_float(*(const uint16_t *)p) : *(const float *)p);
}

static void set(struct mat m, int r, int c, float x)
{
    if (m.type == TYPE_BF16)
        *(uint16_t *)mat_at(m, r, c) = bf16_from_float(x);
    else
        *(float *)mat_at(m, r, c) = x;
}

static struct mat block_of(struct mat m)
{
    return (struct mat){(char *)m.p - LEFT * type_size(m.type), m.rows, m.ld, m.ld, m.type};
}

/* Random in [-1, 1); with view, the columns beside it hold a number that must not change. */
static struct mat mat_new(int rows, int cols, enum type type, bool view, uint64_t seed)
{
    int ld = view ? LEFT + cols + RIGHT : cols;
    char *p = malloc((size_t)rows * ld * type_size(type) + 1);
    assert_non_null(p);
    struct mat m = {p + (view ? LEFT * type_size(type) : 0), rows, cols, ld, type};
    for (int r = 0; r < rows; r++) {
        for (int c = 0; view && c < ld; c++) set(block_of(m), r, c, beside);
        for (int c = 0; c < cols; c++) set(m, r, c, (float)(random_unit(&seed) * 2 - 1));
    }
    return m;
}

static void mat_free(struct mat m, bool view)
{
    free(view ? block_of(m).p : m.p);
}

static struct mat mat_copy(struct mat m, bool view)
{
    struct mat copy = mat_new(m.rows, m.cols, m.type, view, 0);
    for (int r = 0; r < m.rows; r++)
        for (int c = 0; c < m.cols; c++) set(copy, r, c, (float)get(m, r, c));
    return copy;
}

static void check_beside(struct mat m, const char *what)
{
    struct mat all = block_of(m), sample = mat_new(1, 1, m.type, false, 0);
    set(sample, 0, 0, beside);
    for (int r = 0; r < m.rows; r++)
        for (int c = 0; c < m.ld; c++)
            if ((c < LEFT || c >= LEFT + m.cols) && get(all, r, c) != get(sample, 0, 0))
                fail_msg("%s wrote beside its view, row %d", what, r);
    mat_free(sample, false);
}

/* ---- one product against double arithmetic ---- */

/* The instruction set that the tests use: the best of this machine, or a lower one. */
static struct isa isa;

static void run_plain(const struct gemm_job *j)
{
    enum { THREADS = 3 };
    void *work = malloc(THREADS * gemm_plain_work);
    assert_non_null(work);
    gemm_plain_run(j, isa_kernels(isa.level)->step, work, THREADS);
    free(work);
}

/* want [c.rows,c.cols]: what c should become; size: how large the terms of each sum are together */
static void expect(double *want, double *size, const struct gemm_job *j)
{
    for (int r = 0; r < j->c.rows; r++)
        for (int c = 0; c < j->c.cols; c++) {
            double sum = 0, terms = 2;
            for (int p = 0; p < gemm_inner(j); p++) {
                double x = j->ta ? get(j->a, p, r) : get(j->a, r, p);
                double y = j->tb ? get(j->b, c, p) : get(j->b, p, c);
                sum += x * y;
                terms += fabs(x * y);
            }
            if (j->beta != 0) sum += get(j->c, r, c);
            if (j->bias.p) sum += get(j->bias, 0, c);
            *want++ = j->relu && sum < 0 ? 0 : sum;
            *size++ = terms;
        }
}

static void check_product(const struct gemm_job *j, const double *want, const double *size,
                          const char *what)
{
    double own = j->c.type == TYPE_BF16 ? 0x1p-8 : 0;
    for (int r = 0; r < j->c.rows; r++)
        for (int c = 0; c < j->c.cols; c++, want++, size++)
            if (!(fabs(get(j->c, r, c) - *want) <= own * fabs(*want) + 1e-6 * *size))
                fail_msg("%s [%d,%d]x[%d,%d] a %d c %d ta %d tb %d beta %g bias %d relu %d: "
                         "(%d,%d) is %.9g, expected %.9g",
                         what, j->c.rows, gemm_inner(j), gemm_inner(j), j->c.cols, j->a.type,
                         j->c.type, j->ta, j->tb, (double)j->beta, j->bias.p != NULL, j->relu, r, c,
                         get(j->c, r, c), *want);
}

struct shape {
    int m, n, k;
};

enum { TA = 1, TB = 2, BETA = 4, BIAS = 8, RELU = 16, VIEW = 32 };

/* Runs gemm_run and gemm_plain_run; c holds NaNs before where it is only written. */
static void try_product(struct gemm *g, struct shape s, enum type in, enum type out, unsigned how)
{
    bool ta = how & TA, tb = how & TB, view = how & VIEW;
    struct gemm_job j = {.ta = ta, .tb = tb, .beta = how & BETA ? 1 : 0, .relu = how & RELU};
    struct heed_error err = {0};
    j.a = mat_new(ta ? s.k : s.m, ta ? s.m : s.k, in, view, 1);
    j.b = mat_new(tb ? s.n : s.k, tb ? s.k : s.n, in, view, 2);
    j.c = mat_new(s.m, s.n, out, view, 3);
    if (how & BIAS) j.bias = mat_new(1, s.n, TYPE_F32, false, 4);
    double *want = malloc(sizeof *want * 2 * (size_t)(s.m * s.n + 1)), *size = want + s.m * s.n;
    assert_non_null(want);
    expect(want, size, &j);
    struct mat c[2] = {j.c, mat_copy(j.c, view)};
    for (int way = 0; way < 2; way++) {
        j.c = c[way];
        for (int i = 0; i < s.m * s.n && j.beta == 0; i++) set(j.c, i / s.n, i % s.n, NAN);
        if (way)
            run_plain(&j);
        else
            gemm_run(g, &j);
        if (gemm_status(g, &err)) fail_msg("%s", err.text);
        check_product(&j, want, size, way ? "gemm_plain_run" : "gemm_run");
        if (view) check_beside(j.c, way ? "gemm_plain_run" : "gemm_run");
        mat_free(j.c, view);
    }
    mat_free(j.a, view);
    mat_free(j.b, view);
    if (j.bias.p) mat_free(j.bias, false);
    free(want);
}

static struct gemm *gemm_new(int threads)
{
    struct gemm *g;
    struct heed_error err = {0};
    if (gemm_open(&g, threads, &isa, &err)) fail_msg("%s", err.text);
    return g;
}

/* Every shape, type and transposition, each with other epilogues. */
static void test_products(void **state)
{
    (void)state;
    static const int rows[] = {0, 1, 15, 16, 17, 32, 100}, cols[] = {1, 3, 64, 130};
    struct gemm *g = gemm_new(2);
    for (unsigned i = 0; i < 7 * 4 * 4 * 3 * 4; i++) {
        struct shape s = {rows[i % 7], cols[i / 7 % 4], cols[i / 28 % 4]};
        enum type in = i / 112 % 3 ? TYPE_BF16 : TYPE_F32, out = i / 112 % 3 == 2 ? in : TYPE_F32;
        unsigned how = i / 336 | (unsigned)(random_mix(i) & (BETA | BIAS | RELU | VIEW));
        try_product(g, s, in, out, how);
    }
    gemm_free(g);
}

/* Makes more products than the cache of gemm_dnnl.c has slots. The cache is emptied twice meanwhile
 * (a lookup in a full one would not end), and the first products, made again, give the same
 * results. */
static void test_many(void **state)
{
    (void)state;
    enum { ROWS = 17, COLS = 16, INNER = 16, PRODUCTS = ROWS * COLS * INNER, AGAIN = 32 };
    struct gemm *g = gemm_new(1);
    for (int i = 0; i < PRODUCTS + AGAIN; i++) {
        struct shape s = {1 + i % ROWS, 1 + i / ROWS % COLS, 1 + i / (ROWS * COLS) % INNER};
        try_product(g, s, TYPE_F32, TYPE_F32, TB);
    }
    gemm_free(g);
}

/* Several blocks in each dimension, the last of them not full. */
static void test_large(void **state)
{
    (void)state;
    static const struct shape shape[] = {{272, 300, 600}, {40, 17, 2100}, {1, 1000, 64}};
    struct gemm *g = gemm_new(3);
    for (unsigned i = 0; i < 3 * 2 * 4; i++) {
        enum type type = i / 3 % 2 ? TYPE_BF16 : TYPE_F32;
        try_product(g, shape[i % 3], type, TYPE_F32, i / 6 | BETA | BIAS | RELU);
        try_product(g, shape[i % 3], type, type, i / 6 | RELU);
    }
    gemm_free(g);
}

/* Several parts of gemm_amx.c in each dimension, the last of them not full. */
static void test_parts(void **state)
{
    (void)state;
    static const struct shape shape[] = {{1040, 17, 40}, {17, 1040, 40},  {1030, 1030, 8},
                                         {40, 40, 1100}, {1040, 20, 530}, {20, 1040, 530},
                                         {48, 528, 1100}};
    struct gemm *g = gemm_new(2);
    for (unsigned i = 0; i < 7 * 4; i++) {
        try_product(g, shape[i % 7], TYPE_BF16, TYPE_F32, i / 7 | BETA);
        try_product(g, shape[i % 7], TYPE_BF16, i % 2 ? TYPE_BF16 : TYPE_F32, i / 7 | BETA | BIAS);
    }
    gemm_free(g);
}

/* ---- the promises ---- */

/* A linear layer's three products: y = x wT, dx = dy w, dw += dyT x. */
enum product { FORWARD, BACKWARD, WEIGHTS };

struct layer {
    int rows, in, out;
};

/* The result as bytes, malloced. */
static struct mat run_layer(struct gemm *g, struct layer l, enum product what, enum type type)
{
    struct mat x = mat_new(l.rows, l.in, type, false, 5),
               y = mat_new(l.rows, l.out, type, false, 6);
    struct mat w = mat_new(l.out, l.in, type, false, 7);
    struct mat dw = mat_new(l.out, l.in, TYPE_F32, false, 8), none = {0};
    struct gemm_job job[] = {{y, x, w, none, false, true, 0, true},
                             {x, y, w, none, false, false, 1, false},
                             {dw, y, x, none, true, false, 1, false}};
    gemm_run(g, &job[what]);
    struct heed_error err = {0};
    if (gemm_status(g, &err)) fail_msg("%s", err.text);
    mat_free(w, false);
    if (what != FORWARD) mat_free(y, false);
    if (what != BACKWARD) mat_free(x, false);
    if (what != WEIGHTS) mat_free(dw, false);
    return job[what].c;
}

static bool same_rows(struct mat a, struct mat b, int rows)
{
    return !memcmp(a.p, b.p, (size_t)rows * a.ld * type_size(a.type));
}

static const struct layer layers[] = {{4096, 128, 128}, {1024, 256, 256}, {512, 256, 768},
                                      {400, 512, 512},  {48, 1024, 256},  {16, 512, 2048},
                                      {128, 64, 2000}};
enum { LAYERS = sizeof layers / sizeof *layers };

static void test_threads(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 3, 4, 8};
    struct gemm *g[5];
    for (int i = 0; i < 5; i++) g[i] = gemm_new(threads[i]);
    for (int i = 0; i < LAYERS * 6; i++) {
        struct layer l = layers[i / 6];
        enum type type = i % 2 ? TYPE_BF16 : TYPE_F32;
        struct mat one = run_layer(g[0], l, i / 2 % 3, type);
        for (int t = 1; t < 5; t++) {
            struct mat many = run_layer(g[t], l, i / 2 % 3, type);
            if (!same_rows(one, many, one.rows))
                fail_msg("[%d,%d,%d] product %d type %d: %d threads, other bits", l.rows, l.in,
                         l.out, i / 2 % 3, type, threads[t]);
            mat_free(many, false);
        }
        mat_free(one, false);
    }
    for (int i = 0; i < 5; i++) gemm_free(g[i]);
}

static void test_rows(void **state)
{
    (void)state;
    static const int rows[] = {16, 32, 96, 272, 528};
    struct gemm *g = gemm_new(2);
    for (int i = 0; i < LAYERS * 4; i++) {
        struct layer l = layers[i / 4];
        enum type type = i % 2 ? TYPE_BF16 : TYPE_F32;
        l.rows = 784;
        struct mat all = run_layer(g, l, i / 2 % 2, type);
        for (int r = 0; r < 5; r++) {
            l.rows = rows[r];
            struct mat some = run_layer(g, l, i / 2 % 2, type);
            if (!same_rows(all, some, l.rows))
                fail_msg("[%d,%d,%d] product %d type %d: other bits than with 784 rows", l.rows,
                         l.in, l.out, i / 2 % 2, type);
            mat_free(some, false);
        }
        mat_free(all, false);
    }
    gemm_free(g);
}

static void test_openmp_setting(void **state)
{
    (void)state;
    int before = omp_get_max_threads();
    omp_set_num_threads(5);
    struct gemm *g = gemm_new(2);
    mat_free(run_layer(g, layers[3], FORWARD, TYPE_F32), false);
    assert_int_equal(omp_get_max_threads(), 5);
    omp_set_num_threads(before);
    gemm_free(g);
}

/* The names that oneDNN 2 and 3 have given their kernels */
static void test_kernels_taken(void **state)
{
    (void)state;
    static const char *const taken[] = {"brg:avx512_core", "brg:avx512_core_bf16",
                                        "brg_matmul:avx512_core_fp16", "brg_matmul:avx10_1_512"};
    static const char *const refused[] = {"brg:avx512_core_amx_bf16",
                                          "brg:avx512_core_amx",
                                          "brg_matmul:avx10_1_512_amx",
                                          "gemm:jit",
                                          "jit:gemm:any",
                                          "ref:any",
                                          ""};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        assert_true(gemm_kernel_taken(taken[i]));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_false(gemm_kernel_taken(refused[i]));
}

static void choose_best(void)
{
    struct cpuid c = isa_read();
    isa = isa_best(&c);
}

/* On a machine with AMX its kernels give the same bits as with emulated instructions. */
static void test_real_amx(void **state)
{
    (void)state;
    choose_best();
    if (!isa.amx) skip();
    struct gemm *real = gemm_new(2);
    isa.amx = amx_emulated(ISA_AVX512);
    struct gemm *emulated = gemm_new(2);
    choose_best();
    for (int i = 0; i < LAYERS * 3; i++) {
        struct mat got = run_layer(real, layers[i / 3], i % 3, TYPE_BF16);
        struct mat want = run_layer(emulated, layers[i / 3], i % 3, TYPE_BF16);
        assert_true(same_rows(got, want, got.rows));
        mat_free(got, false);
        mat_free(want, false);
    }
    gemm_free(real);
    gemm_free(emulated);
}

/* With the best of this machine everything; with less what depends on it. */
static int group_best(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),      cmocka_unit_test(test_many),
        cmocka_unit_test(test_large),         cmocka_unit_test(test_threads),
        cmocka_unit_test(test_rows),          cmocka_unit_test(test_openmp_setting),
        cmocka_unit_test(test_kernels_taken), cmocka_unit_test(test_real_amx),
    };
    choose_best();
    return cmocka_run_group_tests_name("best", tests, NULL, NULL);
}

static int group_in_f32(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products),
                                       cmocka_unit_test(test_large), cmocka_unit_test(test_threads),
                                       cmocka_unit_test(test_rows)};
    choose_best();
    isa.bf16_products = false;
    isa.amx = NULL;
    return cmocka_run_group_tests_name("bf16 in f32", tests, NULL, NULL);
}

static int group_held(enum isa_level level)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products),
                                       cmocka_unit_test(test_large)};
    choose_best();
    if (!isa_hold(&isa, level)) return 0;
    return cmocka_run_group_tests_name(isa_name(level), tests, NULL, NULL);
}

/* The kernels for AMX, emulated, with the rest of a level; with the best level, the promises too.
 */
static int group_amx(enum isa_level level)
{
    const struct CMUnitTest products[] = {cmocka_unit_test(test_products),
                                          cmocka_unit_test(test_large),
                                          cmocka_unit_test(test_parts)};
    const struct CMUnitTest promises[] = {cmocka_unit_test(test_threads),
                                          cmocka_unit_test(test_rows)};
    choose_best();
    bool best = isa.level == level;
    if (!isa_hold(&isa, level)) return 0;
    isa.amx = amx_emulated(level);
    int failed = cmocka_run_group_tests_name("products by AMX", products, NULL, NULL);
    return failed + (best ? cmocka_run_group_tests_name("AMX", promises, NULL, NULL) : 0);
}

/* With any argument: the first group alone */
int main(int argc, char **argv)
{
    (void)argv;
    int failed = group_best();
    if (argc > 1) return failed;
    failed += group_in_f32();
    for (enum isa_level level = ISA_BASELINE; level < ISA_LEVELS; level++)
        failed += group_held(level) + group_amx(level);
    return failed;
}
