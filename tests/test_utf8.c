/*
 * test_utf8.c - every code point is decoded; what is not UTF-8 is refused or replaced.
 */
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Encodes c as RFC 3629 says, also where c is a surrogate or too large. */
static size_t encode(char out[4], unsigned c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(0xf00u >> n | c);
    return n;
}

static void every_code_point(void **state)
{
    (void)state;
    for (unsigned c = 0; c < 0x120000; c++) {
        char s[4];
        size_t n = encode(s, c);
        bool valid = c > 0 && c < 0x110000 && (c < 0xd800 || c > 0xdfff);
        int32_t got = -1;
        assert_int_equal(utf8_next(s, n, &got), valid ? n : 0);
        if (valid) assert_int_equal(got, c);
        assert_int_equal(utf8_valid(s, n), valid);
        assert_int_equal(utf8_char(s, n - 1), 0); /* cut off before its last byte */
    }
}

static void what_is_not_utf8(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "\x80",                     /* a continuation byte alone */
        "\xc3(",                    /* none where there should be one */
        "\xc0\xaf",     "\xc1\xbf", /* overlong */
        "\xe0\x80\xaf", "\xf0\x80\x80\xaf", "\xf5\x80\x80\x80", "\xff", "\xfe",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(utf8_char(wrong[i], strlen(wrong[i])), 0);
        assert_false(utf8_valid(wrong[i], strlen(wrong[i])));
    }
}

static void mended(void **state)
{
    (void)state;
    static const char text[] =
        "a\xe4\xb8\xad\0b\xe4\xb8", /* NUL, and the beginning of a character */
        expected[] = "a\xe4\xb8\xad" UTF8_REPLACEMENT "b" UTF8_REPLACEMENT UTF8_REPLACEMENT;
    char out[3 * sizeof text];
    size_t n = utf8_mend(out, text, sizeof text - 1);
    assert_int_equal(n, sizeof expected - 1);
    assert_memory_equal(out, expected, n);
}

static void controls(void **state)
{
    (void)state;
    assert_int_equal(utf8_control("\x1b[0m", 4), 1);
    assert_int_equal(utf8_control("\x7f", 1), 1);
    assert_int_equal(utf8_control("\xc2\x9b", 2), 2); /* U+009B, CSI in one character */
    assert_int_equal(utf8_control("\xc2\xa0", 2), 0);
    assert_int_equal(utf8_control("a", 1), 0);
    assert_int_equal(utf8_control("", 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point),
        cmocka_unit_test(what_is_not_utf8),
        cmocka_unit_test(mended),
        cmocka_unit_test(controls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
