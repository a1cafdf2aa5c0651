/*
 * test_bars.c - bars of several series: every value has its bar on its side of 0, texts do not
 * overlap, also where names are long and values are missing.
 */
#include "svg_check.h"

#include "view/bars.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++) n++;
    return n;
}

static void test_bars(void **state)
{
    (void)state;
    static const char *const row[] = {"A1: one", "a row with a name that is long, 你好", "C"};
    static const char *const series[] = {"this run", "paper"};
    const double value[] = {1.5, -2, NAN, 0.25, 0, INFINITY};
    const struct bars b = {.heading = "Rows <beside> others",
                           .note = "a note",
                           .x_label = "more than the base",
                           .row = row,
                           .rows = 3,
                           .series = series,
                           .n = 2,
                           .value = value};
    struct heed_error err = {0};
    char *out = NULL;
    assert_int_equal(bars_picture(&b, &out, &err), HEED_OK);
    assert_int_equal(svg_faults(out), 0);
    assert_int_equal(count(out, "<title>A1: one, this run: 1.5</title>"), 1);
    assert_int_equal(count(out, "paper: -2</title>"), 1);
    assert_int_equal(count(out, "</title><rect"), 4); /* a bar for each value that is finite */
    free(out);
}

static void test_all_alike(void **state)
{
    (void)state;
    static const char *const name[] = {"one"};
    const double value = 0;
    const struct bars b = {.heading = "Nothing",
                           .x_label = "x",
                           .row = name,
                           .rows = 1,
                           .series = name,
                           .n = 1,
                           .value = &value};
    char *out = NULL;
    assert_int_equal(bars_picture(&b, &out, NULL), HEED_OK);
    assert_int_equal(svg_faults(out), 0);
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bars),
        cmocka_unit_test(test_all_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
