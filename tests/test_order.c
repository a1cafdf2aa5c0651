/*
 * test_order.c - an epoch's order is a permutation of its draws, looks uniform, and weights say how
 * often a pair is drawn.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "corpus/order.h"

static void test_permutation(void **state)
{
    (void)state;
    static char seen[5000];
    for (uint64_t n = 1; n < 5000; n += 1 + n / 7) {
        struct permutation p = permutation_of(n, n * 31);
        memset(seen, 0, sizeof seen);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t x = permutation_at(&p, i);
            assert_true(x < n && !seen[x]);
            seen[x] = 1;
        }
    }
}

/* All 24 orders of four numbers come about equally often. */
static void test_small_permutations_are_uniform(void **state)
{
    (void)state;
    int seen[256] = {0};
    enum { KEYS = 24000 };
    for (uint64_t key = 0; key < KEYS; key++) {
        struct permutation p = permutation_of(4, key * 0x9e3779b97f4a7c15u);
        int order = 0;
        for (uint64_t i = 0; i < 4; i++) order = order * 4 + (int)permutation_at(&p, i);
        seen[order]++;
    }
    int orders = 0;
    for (int i = 0; i < 256; i++) {
        orders += seen[i] > 0;
        if (seen[i]) assert_in_range(seen[i], 700, 1300);
    }
    assert_int_equal(orders, 24);
}

enum { PAIRS = 300007, CELLS = 32 };

/* Pairs that follow each other in the order are a third of the file apart on average, as are random
 * numbers; and every part of the epoch has pairs from every part of the file. The mean distance has
 * a standard deviation of about 0.24 n / sqrt(n), and chi-square one of sqrt(2 / degrees). */
static void test_order_is_uniform(void **state)
{
    (void)state;
    static double seen[CELLS][CELLS];
    const struct order_part part = {PAIRS, PAIRS};
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        struct order o = order_of(&part, 1, 7, epoch);
        double distance = 0, chi = 0, want = (double)PAIRS / CELLS / CELLS;
        int64_t before = 0;
        memset(seen, 0, sizeof seen);
        for (int64_t i = 0; i < PAIRS; i++) {
            int64_t at = order_at(&o, i).pair;
            if (i) distance += (double)llabs(at - before);
            before = at;
            seen[i * CELLS / PAIRS][at * CELLS / PAIRS]++;
        }
        double mean = distance / (PAIRS - 1) / PAIRS;
        assert_true(mean > 1.0 / 3 - 0.002 && mean < 1.0 / 3 + 0.002);
        for (int a = 0; a < CELLS; a++)
            for (int b = 0; b < CELLS; b++) chi += (seen[a][b] - want) * (seen[a][b] - want) / want;
        chi /= (CELLS - 1) * (CELLS - 1);
        assert_true(chi > 0.8 && chi < 1.2);
    }
}

static void test_epochs_and_seeds_differ(void **state)
{
    (void)state;
    const struct order_part part = {1000, 1000};
    struct order a = order_of(&part, 1, 7, 0), b = order_of(&part, 1, 7, 1),
                 c = order_of(&part, 1, 8, 0);
    int by_epoch = 0, by_seed = 0;
    for (int64_t i = 0; i < 1000; i++) {
        by_epoch += order_at(&a, i).pair == order_at(&b, i).pair;
        by_seed += order_at(&a, i).pair == order_at(&c, i).pair;
    }
    assert_in_range(by_epoch, 0, 10);
    assert_in_range(by_seed, 0, 10);
}

/* Counts how often each pair of each part is drawn in some epochs. */
static void draws_count(const struct order_part *part, int parts, int64_t from, int64_t to,
                        int count[][100])
{
    memset(count, 0, (size_t)parts * sizeof count[0]);
    for (int64_t epoch = from; epoch < to; epoch++) {
        struct order o = order_of(part, parts, 3, epoch);
        for (int64_t i = 0; i < o.places; i++) {
            struct draw d = order_at(&o, i);
            assert_true(d.part < parts && d.pair < part[d.part].pairs);
            count[d.part][d.pair]++;
        }
    }
}

static void test_weights(void **state)
{
    (void)state;
    static int count[3][100], first[3][100];
    const struct order_part part[] = {
        {100, order_draws(100, 2)}, {99, order_draws(99, 1)}, {100, order_draws(100, 0.25)}};
    assert_int_equal(part[0].draws, 200);
    assert_int_equal(part[2].draws, 25);
    for (int64_t epoch = 0; epoch < 8; epoch += 4) {
        draws_count(part, 3, epoch, epoch + 1, first);
        for (int i = 0; i < 100; i++) assert_int_equal(first[0][i], 2);
        for (int i = 0; i < 99; i++) assert_int_equal(first[1][i], 1);
        int drawn = 0, low = 0;
        for (int i = 0; i < 100; i++) drawn += first[2][i];
        for (int i = 0; i < 50; i++) low += first[2][i];
        assert_int_equal(drawn, 25);
        assert_in_range(low, 4, 21); /* from all over the file */
        draws_count(part, 3, epoch, epoch + 4, count);
        for (int i = 0; i < 100; i++) assert_int_equal(count[2][i], 1);
    }
    assert_int_equal(order_draws(3, 0.001), 1);
}

/* A pair that an epoch draws more than once has another `repeat` each time. */
static void test_repeats(void **state)
{
    (void)state;
    const struct order_part part = {10, 25};
    for (int64_t epoch = 0; epoch < 4; epoch++) {
        char seen[10][4] = {{0}};
        struct order o = order_of(&part, 1, 1, epoch);
        for (int64_t i = 0; i < 25; i++) {
            struct draw d = order_at(&o, i);
            assert_true(d.repeat >= 0 && d.repeat < 4 && !seen[d.pair][d.repeat]);
            seen[d.pair][d.repeat] = 1;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_permutation),
        cmocka_unit_test(test_small_permutations_are_uniform),
        cmocka_unit_test(test_order_is_uniform),
        cmocka_unit_test(test_epochs_and_seeds_differ),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_repeats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
