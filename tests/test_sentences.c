/*
 * test_sentences.c - sentences of several languages, of odd text and of very long text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tokens/sentences.h"

/* text is split into the n sentences given. */
static void check(const char *text, size_t len, int n, const char *const *want)
{
    struct heed_error err = {0};
    struct spans s = {0};
    assert_int_equal(sentences_split(&s, text, len, &err), HEED_OK);
    for (size_t i = 0; i < s.n && i < (size_t)n; i++) {
        size_t bytes = s.v[i].len;
        if (bytes != strlen(want[i]) || memcmp(text + s.v[i].at, want[i], bytes) != 0)
            fail_msg("sentence %zu is '%.*s', expected '%s'", i, (int)bytes, text + s.v[i].at,
                     want[i]);
    }
    assert_int_equal(s.n, n);
    free(s.v);
}

#define CHECK(text, ...)                                                                           \
    check(text, strlen(text), sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *),              \
          (const char *[]){__VA_ARGS__})

static void test_languages(void **state)
{
    (void)state;
    CHECK("A dog runs. Does it? Yes!", "A dog runs.", "Does it?", "Yes!");
    CHECK("\"Stop!\" he said. (Nobody did.)  The end", "\"Stop!\" he said.", "(Nobody did.)",
          "The end");
    CHECK("It costs 3.50 at heed.org, e.g. today. Fine.", "It costs 3.50 at heed.org, e.g. today.",
          "Fine.");
    CHECK("Then Mr. Smith left. He was late.", "Then Mr. Smith left.", "He was late.");
    CHECK("Der Hund läuft über die Straße. Äpfel sind grün.", "Der Hund läuft über die Straße.",
          "Äpfel sind grün.");
    CHECK("一只狗在跑。它累了吗？不！它说：“走吧。”好", "一只狗在跑。", "它累了吗？", "不！",
          "它说：“走吧。”", "好");
    CHECK("What?! No... Well.", "What?!", "No...", "Well.");
    CHECK("no end", "no end");
}

static void test_odd(void **state)
{
    (void)state;
    check("", 0, 0, NULL);
    check(" \t\xe3\x80\x80\n ", 7, 0, NULL);
    CHECK(" \xe3\x80\x80 A dog.\xc2\xa0\n\n B \t", "A dog.", "B");
    CHECK("...", "...");
    CHECK("\xff\xfe. \xe4\xbd", "\xff\xfe.", "\xe4\xbd");
}

/* What is between sentences is white space, and nothing is lost. */
static void test_random(void **state)
{
    (void)state;
    static const char *const part[] = {"a",  "B",  ".", "!",    "?", " ",    "\n",  "。",
                                       "？", "\"", ")", "\xff", "1", "\xe4", "Mr.", "你"};
    uint32_t x = 1;
    char text[1200];
    for (int round = 0; round < 300; round++) {
        size_t len = 0, at = 0;
        for (int i = 0; i < 300; i++) {
            x = x * 1664525u + 1013904223u;
            const char *p = part[x >> 28];
            memcpy(text + len, p, strlen(p));
            len += strlen(p);
        }
        struct heed_error err = {0};
        struct spans s = {0};
        assert_int_equal(sentences_split(&s, text, len, &err), HEED_OK);
        for (size_t i = 0; i <= s.n; i++) {
            size_t start = i < s.n ? s.v[i].at : len;
            for (; at < start; at++) assert_non_null(memchr(" \n", text[at], 2));
            if (i == s.n) break;
            assert_true(s.v[i].len > 0 && s.v[i].at + s.v[i].len <= len);
            at = s.v[i].at + s.v[i].len;
        }
        free(s.v);
    }
}

/* The time of a long text grows with its length, not with its square. */
static void test_long(void **state)
{
    (void)state;
    enum { LEN = 2000000 };
    static const char *const unit[] = {"a", ". ", "Mr. ", "Ab. ", "。", "a ", "\xff"};
    char *text = malloc(LEN);
    assert_non_null(text);
    for (size_t u = 0; u < sizeof unit / sizeof unit[0]; u++) {
        size_t n = strlen(unit[u]), len = LEN / n * n;
        for (size_t i = 0; i < len; i += n) memcpy(text + i, unit[u], n);
        struct heed_error err = {0};
        struct spans s = {0};
        clock_t start = clock();
        assert_int_equal(sentences_split(&s, text, len, &err), HEED_OK);
        double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
        if (seconds > 10) fail_msg("%zu bytes of '%s' took %.1f seconds", len, unit[u], seconds);
        print_message("'%s' %.3f s, %zu sentences\n", unit[u], seconds, s.n);
        free(s.v);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_languages),
        cmocka_unit_test(test_odd),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
