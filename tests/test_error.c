/*
 * test_error.c - the sentence of an error stays one line, whatever is put into it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "base/error.h"

static void test_sentence(void **state)
{
    (void)state;
    struct heed_error err = {0};
    assert_int_equal(error_set(&err, HEED_EARG, "%s is %d", "x", 3), HEED_EARG);
    assert_int_equal(err.status, HEED_EARG);
    assert_string_equal(err.text, "x is 3");
    errno = ENOENT;
    assert_int_equal(error_errno(&err, "cannot open %s", "x"), HEED_EIO);
    assert_string_equal(err.text, "cannot open x: No such file or directory");
    errno = ENOMEM;
    assert_int_equal(error_errno(&err, "cannot map %s", "x"), HEED_ENOMEM);
    assert_int_equal(err.status, HEED_ENOMEM);
    assert_string_equal(err.text, "cannot map x: Cannot allocate memory");
    assert_int_equal(error_memory(&err, 5, "x"), HEED_ENOMEM);
    assert_string_equal(err.text, "out of memory: 5 bytes for x");
    assert_int_equal(error_set(NULL, HEED_EIO, "x"), HEED_EIO);
}

static void test_control_characters(void **state)
{
    (void)state;
    struct heed_error err = {0};
    error_set(&err, HEED_EFORMAT, "found %s", "\xc3\xa4\n\x1b[31m\x7f");
    assert_string_equal(err.text, "found \xc3\xa4??[31m?");
    errno = ENOENT;
    error_errno(&err, "cannot open %s", "a\rb");
    assert_string_equal(err.text, "cannot open a?b: No such file or directory");
}

static void test_too_long(void **state)
{
    (void)state;
    struct heed_error err = {0};
    char name[1000];
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';
    errno = EIO;
    error_errno(&err, "%s", name);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sentence),
        cmocka_unit_test(test_control_characters),
        cmocka_unit_test(test_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
