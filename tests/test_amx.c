/*
 * test_amx.c - products of single tiles of AMX: the emulation, with which the kernels for AMX are
 * tested on every machine, follows the description of the instructions; and on a machine with AMX,
 * its instructions give the same bits as the emulation.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "emulated.h"
#include "ops/bf16.h"

enum { SIDE = 16, BYTES = 64, PAIRS = 2, DEEP = 32 };

/* The levels of this machine */
static int levels(void)
{
    struct cpuid c = isa_read();
    return (int)isa_best(&c).level + 1;
}

/* ---- int8 ---- */

/* All bytes, and sums that wrap around */
static void test_i8(void **state)
{
    (void)state;
    for (int level = 0; level < levels(); level++) {
        uint8_t a[SIDE][BYTES];
        int8_t b[SIDE][SIDE][4];
        int32_t sum[SIDE][SIDE];
        uint64_t seed = 1;
        for (int i = 0; i < SIDE * BYTES; i++)
            a[i / BYTES][i % BYTES] = (uint8_t)random_next(&seed);
        for (int i = 0; i < SIDE * BYTES; i++)
            b[i / 64][i / 4 % 16][i % 4] = (int8_t)random_next(&seed);
        memset(a[3], 255, sizeof a[3]);
        for (int k = 0; k < SIDE; k++) memset(b[k][5], 128, 4);
        for (int i = 0; i < SIDE * SIDE; i++)
            sum[i / SIDE][i % SIDE] = i == 7 ? INT32_MAX : i - 100;
        uint32_t want[SIDE][SIDE];
        for (int r = 0; r < SIDE; r++)
            for (int n = 0; n < SIDE; n++) {
                want[r][n] = (uint32_t)sum[r][n];
                for (int k = 0; k < BYTES; k++)
                    want[r][n] += (uint32_t)(a[r][k] * b[k / 4][n][k % 4]);
            }
        amx_emulated((enum isa_level)level)->product_i8(sum[0], a[0], b[0][0]);
        assert_memory_equal(sum, want, sizeof sum);
    }
}

/* ---- bf16 ---- */

/* The sum of x[k] w[k] and `start`, where k counts the 32 numbers of a row; by the element at row
 * 3, column 5, of a tile of zeros */
static float dot_with(const struct amx_kernels *amx, float start, const float *x, const float *w)
{
    uint16_t a[SIDE][DEEP] = {0}, b[SIDE][SIDE][PAIRS] = {0};
    float sum[SIDE][SIDE] = {{0}};
    for (int k = 0; k < DEEP; k++) {
        a[3][k] = bf16_from_float(x[k]);
        b[k / PAIRS][5][k % PAIRS] = bf16_from_float(w[k]);
    }
    sum[3][5] = start;
    amx->product_bf16(sum[0], a[0], b[0][0]);
    for (int i = 0; i < SIDE * SIDE; i++)
        if (i / SIDE != 3 && i % SIDE != 5) assert_true(sum[i / SIDE][i % SIDE] == 0);
    return sum[3][5];
}

struct sum {
    const char *what;
    float start, x[DEEP], w[DEEP], want;
};

/* Each case has another result where the arithmetic differs from the one that it names. */
static const struct sum sums[] = {
    {"a pair", 1, {2, 3}, {5, 7}, 32},
    {"the last pair", 1, {[30] = 2, 3}, {[30] = 5, 7}, 32},
    /* in one sum of all, 1 would be lost */
    {"first and second numbers apart", 0, {0x1p24f, 1, -0x1p24f}, {1, 1, 1}, 1},
    {"in the order of k", 0, {0x1p24f, 0, 1, 0, -0x1p24f}, {1, 0, 1, 0, 1}, 0},
    {"products before the start", 0x1p24f, {1, 1}, {1, 1}, 0x1p24f + 2},
    {"ties to even", 0x1p24f, {3}, {1}, 0x1p24f + 4},
    {"fused", 0, {-0x1p127f, 0, 0x1p64f}, {1, 0, 0x1p64f}, 0x1p127f},
    {"inputs below normal numbers", 1, {0x1p-130f}, {0x1p127f}, 1},
    {"products below normal numbers", 0, {0x1p-70f, 0, 0x1p-126f}, {0x1p-60f, 0, 1}, 0x1p-126f},
    {"sums below normal numbers", 0, {0x1.8p-126f, -0x1p-126f}, {1, 1}, 0},
    {"a start below normal numbers", 0x1p-127f, {0x1p-126f}, {1}, 0x1p-126f},
    {"infinity", 0, {INFINITY}, {2}, INFINITY},
    {"overflow", 0, {0x1p127f}, {2}, INFINITY},
};

static void check_sums(const struct amx_kernels *amx)
{
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        const struct sum *s = &sums[i];
        float got = dot_with(amx, s->start, s->x, s->w);
        if (got != s->want) fail_msg("%s: %a, expected %a", s->what, (double)got, (double)s->want);
    }
    const float one[DEEP] = {1}, nan[DEEP] = {NAN};
    assert_true(isnan(dot_with(amx, 0, one, nan)) && isnan(dot_with(amx, NAN, one, one)));
}

static void test_bf16(void **state)
{
    (void)state;
    for (int level = 0; level < levels(); level++) check_sums(amx_emulated((enum isa_level)level));
}

/* ---- the instructions themselves ---- */

/* Any bits; most are numbers of a middling size, so that sums are not all infinite */
static uint16_t some_bf16(uint64_t *seed)
{
    static const float special[] = {0, -0.0f, 1e-40f, -0x1p-126f, 0x1p-127f, 3e38f, INFINITY, NAN};
    uint64_t x = random_next(seed);
    if (x % 512 == 0) return bf16_from_float(special[x / 512 % 8]);
    if (x % 512 < 16)
        return bf16_from_float(ldexpf((float)random_unit(seed), -(int)(x / 512 % 140)));
    return bf16_from_float((float)random_unit(seed) - 0.5f);
}

static bool same_float(float a, float b)
{
    return isnan(a) ? isnan(b) : !memcmp(&a, &b, sizeof a);
}

static void test_real(void **state)
{
    (void)state;
    struct cpuid c = isa_read();
    const struct amx_kernels *real = isa_best(&c).amx, *emulated = amx_emulated(ISA_BASELINE);
    if (!real) skip();
    check_sums(real);
    uint64_t seed = 2;
    for (int round = 0; round < 2000; round++) {
        uint16_t a[SIDE * DEEP], b[SIDE * DEEP];
        float sum[2][SIDE * SIDE];
        int32_t ints[2][SIDE * SIDE];
        for (int i = 0; i < SIDE * DEEP; i++) a[i] = some_bf16(&seed), b[i] = some_bf16(&seed);
        for (int i = 0; i < SIDE * SIDE; i++) {
            sum[0][i] = sum[1][i] = bf16_to_float(some_bf16(&seed));
            ints[0][i] = ints[1][i] = (int32_t)random_next(&seed);
        }
        real->product_bf16(sum[0], a, b);
        emulated->product_bf16(sum[1], a, b);
        for (int i = 0; i < SIDE * SIDE; i++)
            if (!same_float(sum[0][i], sum[1][i]))
                fail_msg("round %d, sum %d: %a, emulated %a", round, i, (double)sum[0][i],
                         (double)sum[1][i]);
        real->product_i8(ints[0], (const uint8_t *)a, (const int8_t *)b);
        emulated->product_i8(ints[1], (const uint8_t *)a, (const int8_t *)b);
        assert_memory_equal(ints[0], ints[1], sizeof ints[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_i8),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_real),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
