/*
 * test_score.c - BLEU and chrF against the numbers of sacreBLEU (golden/score.py), and what
 * surrounds the numbers: signatures, errors, long lines.
 */
#include "heed.h"

#include "golden/score/cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LENGTH(a) (sizeof(a) / sizeof *(a))

static void assert_close(double found, double expected, const char *name, const char *score,
                         const char *what)
{
    if (fabs(found - expected) <= 1e-9) return;
    fail_msg("case '%s', %s: %s is %.17g, sacreBLEU says %.17g", name, score, what, found,
             expected);
}

static void test_golden(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        for (int k = 0; k < SCORES; k++) {
            const char *name = cases[i].name, *kind = cases[i].score[k].name;
            struct heed_score s;
            struct heed_error err = {0};
            enum heed_status status =
                strcmp(kind, "chrF") == 0
                    ? heed_chrf(cases[i].hyp, cases[i].ref, cases[i].n, &s, &err)
                    : heed_bleu(cases[i].hyp, cases[i].ref, cases[i].n, kind, &s, &err);
            if (status) fail_msg("case '%s', %s: %s", name, kind, err.text);
            assert_close(s.value, cases[i].score[k].value, name, kind, "the score");
            for (int n = 0; n < 4; n++) {
                assert_close(s.precision[n], cases[i].score[k].precision[n], name, kind,
                             "a precision");
            }
            assert_close(s.brevity_penalty, cases[i].score[k].brevity_penalty, name, kind,
                         "the brevity penalty");
            assert_close((double)s.hyp_len, (double)cases[i].score[k].hyp_len, name, kind,
                         "the length of the hypotheses");
            assert_close((double)s.ref_len, (double)cases[i].score[k].ref_len, name, kind,
                         "the length of the references");
        }
    }
}

static void test_signature(void **state)
{
    (void)state;
    const char *line = "A dog runs.";
    struct heed_score s;
    char expected[sizeof s.signature];
    assert_int_equal(heed_bleu(&line, &line, 1, "zh", &s, NULL), HEED_OK);
    snprintf(expected, sizeof expected,
             "nrefs:1|case:mixed|eff:no|tok:zh|smooth:exp|version:heed-%s", heed_version());
    assert_string_equal(s.signature, expected);
    assert_int_equal(heed_chrf(&line, &line, 1, &s, NULL), HEED_OK);
    snprintf(expected, sizeof expected,
             "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:heed-%s", heed_version());
    assert_string_equal(s.signature, expected);
}

static void test_unknown_tokenizer(void **state)
{
    (void)state;
    const char *line = "A dog runs.";
    struct heed_score s = {.value = -1};
    struct heed_error err = {0};
    assert_int_equal(heed_bleu(&line, &line, 1, "13b", &s, &err), HEED_EARG);
    assert_int_equal(err.status, HEED_EARG);
    assert_non_null(strstr(err.text, "'13b'"));
    assert_non_null(strstr(err.text, "13a, zh, intl, char or none"));
    assert_int_equal(heed_bleu(&line, &line, 1, NULL, &s, &err), HEED_EARG);
    assert_true(s.value == -1);
}

static void test_no_sentences(void **state)
{
    (void)state;
    struct heed_score s = {.value = -1};
    struct heed_error err = {0};
    assert_int_equal(heed_bleu(NULL, NULL, 0, "13a", &s, &err), HEED_EARG);
    assert_string_equal(err.text, "BLEU of 0 sentences: expected at least one");
    assert_int_equal(heed_chrf(NULL, NULL, 0, &s, &err), HEED_EARG);
    assert_string_equal(err.text, "chrF of 0 sentences: expected at least one");
    assert_true(s.value == -1);
}

/* A long line between short ones grows every buffer; its scores are known without sacreBLEU: the
 * hypothesis is the reference less its last word. */
static void test_long_line(void **state)
{
    (void)state;
    enum { WORDS = 50000, WIDTH = 8 };
    char *ref = malloc(WORDS * WIDTH + 1), *hyp = malloc(WORDS * WIDTH + 1);
    assert_true(ref && hyp);
    for (unsigned i = 0; i < WORDS; i++) {
        snprintf(ref + i * WIDTH, WIDTH + 1, "w%06u ", i % 1000000);
    }
    memcpy(hyp, ref, (WORDS - 1) * WIDTH);
    hyp[(WORDS - 1) * WIDTH] = '\0';
    const char *hyps[] = {"a", hyp, "b"}, *refs[] = {"a", ref, "b"};
    static const char *const names[] = {"13a", "zh", "intl", "none"};
    struct heed_score s;
    for (size_t i = 0; i < LENGTH(names); i++) {
        assert_int_equal(heed_bleu(hyps, refs, 3, names[i], &s, NULL), HEED_OK);
        assert_int_equal(s.hyp_len, WORDS + 1);
        assert_int_equal(s.ref_len, WORDS + 2);
        for (int n = 0; n < 4; n++) assert_true(s.precision[n] == 100);
        assert_close(s.value, 100 * exp(1 - (WORDS + 2.0) / (WORDS + 1)), "long", names[i], "BLEU");
    }
    assert_int_equal(heed_chrf(hyps, refs, 3, &s, NULL), HEED_OK);
    assert_true(s.value > 99.99 && s.value < 100);
    free(ref);
    free(hyp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_signature),
        cmocka_unit_test(test_unknown_tokenizer),
        cmocka_unit_test(test_no_sentences),
        cmocka_unit_test(test_long_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
