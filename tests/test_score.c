/*
 * test_score.c - scores against the numbers of sacreBLEU (golden/score.py, golden/systems.py), and
 * what surrounds the numbers: signatures, errors, long lines.
 */
#include "heed.h"

#include "golden/score/cases.h"
#include "golden/score/systems.h"

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

/* ---- golden/systems.py: two references and three systems, in files ---- */

enum { REFS = 2 };

struct corpus {
    int n;
    char line[SYSTEMS + REFS][LINES_MAX][512];
    const char *text[SYSTEMS + REFS][LINES_MAX];
    const char *const *hyp[SYSTEMS], *const *ref[REFS];
};

static void corpus_read(struct corpus *c, const char *name)
{
    static const char *const suffix[] = {"beam", "sampled", "spoiled", "ref1", "ref2"};
    for (int k = 0; k < SYSTEMS + REFS; k++) {
        char path[128];
        snprintf(path, sizeof path, "tests/golden/score/%s.%s", name, suffix[k]);
        FILE *f = fopen(path, "r");
        if (!f) fail_msg("cannot open %s", path);
        for (c->n = 0; c->n < LINES_MAX && fgets(c->line[k][c->n], sizeof *c->line[k], f); c->n++) {
            c->line[k][c->n][strcspn(c->line[k][c->n], "\n")] = '\0';
            c->text[k][c->n] = c->line[k][c->n];
        }
        fclose(f);
        *(k < SYSTEMS ? &c->hyp[k] : &c->ref[k - SYSTEMS]) = c->text[k];
    }
}

static void test_corpus_scores(void **state)
{
    (void)state;
    static struct corpus c;
    for (size_t i = 0; i < LENGTH(corpus_scores); i++) {
        const struct heed_scoring how = {corpus_scores[i].metric, corpus_scores[i].tokenize,
                                         corpus_scores[i].lowercase};
        corpus_read(&c, corpus_scores[i].corpus);
        for (int k = 0; k < SYSTEMS; k++) {
            struct heed_score s;
            assert_int_equal(
                heed_score_corpus(&how, c.hyp[k], c.ref, corpus_scores[i].refs, c.n, &s, NULL),
                HEED_OK);
            assert_close(s.value, corpus_scores[i].value[k], corpus_scores[i].corpus,
                         heed_metric_title(how.metric), s.signature);
        }
    }
}

static void test_sentence_scores(void **state)
{
    (void)state;
    static struct corpus c;
    static struct heed_score s[LINES_MAX];
    for (size_t i = 0; i < LENGTH(sentence_scores); i++) {
        const struct heed_scoring how = {sentence_scores[i].metric, sentence_scores[i].tokenize,
                                         sentence_scores[i].lowercase};
        corpus_read(&c, sentence_scores[i].corpus);
        assert_int_equal(
            heed_score_sentences(&how, c.hyp[2], c.ref, sentence_scores[i].refs, c.n, s, NULL),
            HEED_OK);
        for (int k = 0; k < c.n; k++) {
            char line[32];
            snprintf(line, sizeof line, "line %d", k + 1);
            assert_close(s[k].value, sentence_scores[i].value[k], sentence_scores[i].corpus,
                         heed_metric_title(how.metric), line);
        }
    }
}

/* sacreBLEU resamples in single precision. */
static void assert_near(double found, double expected, size_t row, int system, const char *what)
{
    if (fabs(found - expected) <= 1e-4) return;
    fail_msg("%s, %s, system %d: %s is %.9g, sacreBLEU says %.9g", comparisons[row].corpus,
             heed_metric_title(comparisons[row].metric), system, what, found, expected);
}

static void test_comparisons(void **state)
{
    (void)state;
    static struct corpus c;
    struct heed_comparison found[SYSTEMS];
    for (size_t i = 0; i < LENGTH(comparisons); i++) {
        const struct heed_scoring how = {comparisons[i].metric, comparisons[i].tokenize,
                                         comparisons[i].lowercase};
        corpus_read(&c, comparisons[i].corpus);
        assert_int_equal(heed_score_systems(&how, c.hyp, SYSTEMS, c.ref, comparisons[i].refs, c.n,
                                            1000, 12345, found, NULL),
                         HEED_OK);
        for (int k = 0; k < SYSTEMS; k++) {
            assert_near(found[k].score.value, comparisons[i].of[k].score, i, k, "the score");
            assert_near(found[k].mean, comparisons[i].of[k].mean, i, k, "the mean");
            assert_near(found[k].interval, comparisons[i].of[k].interval, i, k, "the interval");
            assert_near(found[k].p, comparisons[i].of[k].p, i, k, "p");
        }
    }
}

/* Lower case that depends on the place in the word, and one character that becomes two: as Python's
 * str.lower. */
static void test_lower_case(void **state)
{
    (void)state;
    static const char *const capital[] = {
        "\u039f\u0394\u039f\u03a3 \u03a3\u039f\u03a3!",     /* sigma at the end and not */
        "\u03a3 A.\u03a3 A\u03a3'\u0301 A\u03a3'B \u03a3A", /* passes over marks */
        "\u0130STANBUL \u023a \u1e9e \U00010400",
    };
    static const char *const small[] = {
        "\u03bf\u03b4\u03bf\u03c2 \u03c3\u03bf\u03c2!",
        "\u03c3 a.\u03c2 a\u03c2'\u0301 a\u03c3'b \u03c3a",
        "i\u0307stanbul \u2c65 \u00df \U00010428",
    };
    const char *const *ref = small;
    const struct heed_scoring how = {
        .metric = HEED_METRIC_BLEU, .tokenize = "none", .lowercase = true};
    struct heed_score s[LENGTH(small)];
    assert_int_equal(heed_score_sentences(&how, capital, &ref, 1, LENGTH(small), s, NULL), HEED_OK);
    for (size_t i = 0; i < LENGTH(small); i++) assert_true(s[i].value > 99.9);
}

static void test_edits(void **state)
{
    (void)state;
    const struct heed_scoring how = {.metric = HEED_METRIC_TER};
    for (size_t i = 0; i < LENGTH(edits); i++) {
        const char *const *ref = &edits[i].ref;
        struct heed_score s;
        assert_int_equal(heed_score_corpus(&how, &edits[i].hyp, &ref, 1, 1, &s, NULL), HEED_OK);
        if (s.edits == edits[i].edits) continue;
        fail_msg("'%s' and '%s': %ld edits, sacreBLEU says %ld", edits[i].hyp, edits[i].ref,
                 s.edits, edits[i].edits);
    }
}

/* More shifts are possible than are tried: the figures are those of sacreBLEU 2.6.0. The hypothesis
 * has the words of the reference in order, the reference swaps every four words with the next. */
static void test_many_shifts(void **state)
{
    (void)state;
    enum { WORDS = 2000, WIDTH = 6 };
    static char hyp[WORDS * WIDTH + 1], ref[WORDS * WIDTH + 1];
    for (unsigned i = 0; i < WORDS; i++) {
        snprintf(hyp + i * WIDTH, WIDTH + 1, "w%04u ", i % 10000);
        snprintf(ref + i * WIDTH, WIDTH + 1, "w%04u ", (i ^ 4) % 10000);
    }
    const char *hyps[] = {hyp, "", ref, "a"}, *lines[] = {ref, hyp, "", ""};
    const char *const *refs = lines;
    const struct heed_scoring how = {.metric = HEED_METRIC_TER};
    struct heed_score s[4];
    assert_int_equal(heed_score_sentences(&how, hyps, &refs, 1, 4, s, NULL), HEED_OK);
    assert_int_equal(s[0].edits, 1004);
    assert_int_equal(s[1].edits, WORDS);
    assert_int_equal(s[2].edits, WORDS);
    assert_true(s[2].value == 100 && s[3].value == 100);
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

    const char *const *ref[] = {&line, &line};
    struct heed_scoring how = {.metric = HEED_METRIC_TER};
    assert_int_equal(heed_score_corpus(&how, &line, ref, 2, 1, &s, NULL), HEED_OK);
    snprintf(expected, sizeof expected,
             "nrefs:2|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:heed-%s",
             heed_version());
    assert_string_equal(s.signature, expected);
    how = (struct heed_scoring){.metric = HEED_METRIC_BLEU, .tokenize = "13a", .lowercase = true};
    assert_int_equal(heed_score_sentences(&how, &line, ref, 2, 1, &s, NULL), HEED_OK);
    snprintf(expected, sizeof expected,
             "nrefs:2|case:lc|eff:yes|tok:13a|smooth:exp|version:heed-%s", heed_version());
    assert_string_equal(s.signature, expected);
    how = (struct heed_scoring){.metric = HEED_METRIC_CHRFPP};
    struct heed_comparison c[2];
    assert_int_equal(heed_score_systems(&how, ref, 2, ref, 1, 1, 10, 7, c, NULL), HEED_OK);
    snprintf(expected, sizeof expected,
             "nrefs:1|bs:10|seed:7|case:mixed|eff:yes|nc:6|nw:2|space:no|version:heed-%s",
             heed_version());
    assert_string_equal(c[1].score.signature, expected);
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
        cmocka_unit_test(test_corpus_scores),
        cmocka_unit_test(test_sentence_scores),
        cmocka_unit_test(test_comparisons),
        cmocka_unit_test(test_lower_case),
        cmocka_unit_test(test_edits),
        cmocka_unit_test(test_many_shifts),
        cmocka_unit_test(test_signature),
        cmocka_unit_test(test_unknown_tokenizer),
        cmocka_unit_test(test_no_sentences),
        cmocka_unit_test(test_long_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
