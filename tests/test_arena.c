/*
 * test_arena.c - blocks of an arena: the second run of a layout uses as many bytes as the first
 * measured, and under AddressSanitizer the bytes behind a block cannot be used.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"

enum { BLOCKS = 4, BYTES = 1 << 12 };

static void layout(struct arena *a, const size_t bytes[BLOCKS], char *block[BLOCKS])
{
    for (int i = 0; i < BLOCKS; i++) block[i] = arena_take(a, bytes[i]);
}

static void test_measure_and_bind(void **state)
{
    (void)state;
    const size_t bytes[BLOCKS] = {1, 64, 0, 100};
    char *block[BLOCKS];
    struct arena measure = {0};
    layout(&measure, bytes, block);
    for (int i = 0; i < BLOCKS; i++) assert_null(block[i]);

    struct arena a = {.base = aligned_alloc(64, measure.used), .host = true};
    layout(&a, bytes, block);
    assert_int_equal(a.used, measure.used);
    for (int i = 0; i < BLOCKS; i++) {
        assert_int_equal((uintptr_t)block[i] % 64, 0);
        if (i) assert_true(block[i] >= block[i - 1] + bytes[i - 1]);
        memset(block[i], i, bytes[i]);
    }
    assert_true(block[BLOCKS - 1] + bytes[BLOCKS - 1] <= a.base + a.used);
    free(a.base);
}

#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)

static void test_red_zones(void **state)
{
    (void)state;
    char *base = aligned_alloc(64, BYTES), *block[BLOCKS];
    /* laid out twice: the red zones of the first layout are gone */
    const size_t bytes[2][BLOCKS] = {{1, 64, 0, 100}, {500, 3, 64, 64}};
    for (int k = 0; k < 2; k++) {
        struct arena a = {.base = base, .host = true};
        layout(&a, bytes[k], block);
        for (int i = 0; i < BLOCKS; i++) {
            assert_null(__asan_region_is_poisoned(block[i], bytes[k][i]));
            for (int j = 0; j < ARENA_RED_ZONE; j++)
                assert_true(__asan_address_is_poisoned(block[i] + bytes[k][i] + j));
        }
    }
    free(base);
    /* malloc may hand out the same memory again, which must have no red zones left */
    for (int i = 0; i < 1000; i++) {
        base = aligned_alloc(64, BYTES);
        assert_null(__asan_region_is_poisoned(base, BYTES));
        free(base);
    }
}

static void test_memory_of_a_device(void **state)
{
    (void)state;
    char *base = aligned_alloc(64, BYTES), *block[BLOCKS];
    struct arena a = {.base = base, .host = false};
    layout(&a, (const size_t[BLOCKS]){1, 64, 0, 100}, block);
    assert_null(__asan_region_is_poisoned(base, BYTES));
    free(base);
}

static void test_overrun(void **state)
{
    (void)state;
    struct arena a = {.base = aligned_alloc(64, BYTES), .host = true};
    volatile char *first = arena_take(&a, 8), *second = arena_take(&a, 8);
    for (int over = 0; over < 2; over++) {
        pid_t child = fork();
        if (child == 0) {
            close(STDERR_FILENO);
            first[over ? 64 : 7] = 1; /* where the next block would be without a red zone */
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status != 0, over);
    }
    (void)second;
    free(a.base);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_measure_and_bind),
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
        cmocka_unit_test(test_red_zones),
        cmocka_unit_test(test_memory_of_a_device),
        cmocka_unit_test(test_overrun),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
