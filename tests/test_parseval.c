/*
 * test_parseval.c - trees in brackets, and their scores against the figures of EVALB
 * (golden/parseval.py).
 */
#include "deep_tree.h"
#include "heed.h"
#include "tree/tree.h"

#include "golden/score/parseval.h"

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

enum { LINES = LENGTH(parseval_lines) };

static void file_read(char line[LINES][512], const char *text[LINES], const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f) fail_msg("cannot open %s", path);
    for (int i = 0; i < LINES; i++) {
        assert_non_null(fgets(line[i], sizeof *line, f));
        text[i] = line[i];
    }
    fclose(f);
}

static void assert_two_decimals(double found, double expected, int line, const char *what)
{
    if (fabs(found - expected) <= 0.00501) return;
    fail_msg("line %d: %s is %.4f, EVALB says %.2f", line, what, found, expected);
}

static void test_golden(void **state)
{
    (void)state;
    static char hyp_line[LINES][512], ref_line[LINES][512];
    const char *hyp[LINES], *ref[LINES];
    file_read(hyp_line, hyp, "tests/golden/score/parseval.found");
    file_read(ref_line, ref, "tests/golden/score/parseval.gold");
    const struct heed_scoring how = {.metric = HEED_METRIC_PARSEVAL};
    const char *const *refs = ref;
    static struct heed_score s[LINES];
    struct heed_score all;
    assert_int_equal(heed_score_sentences(&how, hyp, &refs, 1, LINES, s, NULL), HEED_OK);
    for (int i = 0; i < LINES; i++) {
        const struct heed_parseval *p = &s[i].parseval;
        assert_int_equal(p->errors, parseval_lines[i].error);
        assert_int_equal(p->matched, parseval_lines[i].matched);
        assert_int_equal(p->gold, parseval_lines[i].gold);
        assert_int_equal(p->found, parseval_lines[i].found);
        assert_two_decimals(p->recall, parseval_lines[i].recall, i + 1, "recall");
        assert_two_decimals(p->precision, parseval_lines[i].precision, i + 1, "precision");
        assert_two_decimals(p->tags, parseval_lines[i].tags, i + 1, "tags");
    }
    assert_int_equal(heed_score_corpus(&how, hyp, &refs, 1, LINES, &all, NULL), HEED_OK);
    assert_two_decimals(all.value, parseval_total.f1, 0, "F1");
    assert_two_decimals(all.parseval.precision, parseval_total.precision, 0, "precision");
    assert_two_decimals(all.parseval.recall, parseval_total.recall, 0, "recall");
    assert_two_decimals(all.parseval.exact, parseval_total.exact, 0, "exact");
    assert_two_decimals(all.parseval.tags, parseval_total.tags, 0, "tags");
    assert_int_equal(all.parseval.lines, parseval_total.lines);
    assert_int_equal(all.parseval.lines - all.parseval.errors, parseval_total.valid);
}

/* The text of a tree that is read and printed again, cleaned where `clean` is true. */
static const char *again(const char *text, bool clean)
{
    static char out[512];
    struct tree t = {0};
    struct tree_source s = {.at = text, .line = 1, .column = 1};
    FILE *f = fmemopen(out, sizeof out, "w");
    assert_non_null(f);
    assert_int_equal(tree_read(&t, &s, NULL), HEED_OK);
    if (clean) assert_int_equal(tree_clean(&t, NULL), HEED_OK);
    tree_print(f, &t);
    fclose(f);
    tree_release(&t);
    return out;
}

static void test_print(void **state)
{
    (void)state;
    static const char *const same[] = {
        "(S (NP (DT The) (NN dog)) (VP (VBZ runs)) (. .))",
        "( (S (X a b) c))",
        "(NN 上海)",
        "(X)",
        "(A (B (C d)) e (F (G)))",
    };
    for (size_t i = 0; i < LENGTH(same); i++) assert_string_equal(again(same[i], false), same[i]);
    assert_string_equal(again("\n ( (S\n(NP  (DT The)\t(NN dog) )(VP runs)))\n", false),
                        "( (S (NP (DT The) (NN dog)) (VP runs)))");
    assert_string_equal(again("( (S-TPC=2 (NP-SBJ-1 (-NONE- *-2)) (VP (VB go) (NP (-NONE- *))"
                              "(-LRB- -LRB-) (ADVP|PRT (RB up)))))",
                              true),
                        "( (S (VP (VB go) (-LRB- -LRB-) (ADVP|PRT (RB up)))))");
    assert_string_equal(again("(S (NP (-NONE- *)))", true), "(S)");
}

static void test_bad_trees(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"(S (NP a)", "f: line 1, column 1: the tree that begins here lacks 1 closing bracket"},
        {"\n\n  ((S", "f: line 3, column 3: the tree that begins here lacks 2 closing brackets"},
        {"(S a))", "f: line 1, column 6: ')' without a '(' before it"},
        {"(上 海)\n上海 (S a)", "f: line 2, column 1: '上海' is outside of brackets, expected '('"},
        {"(上 海) x", "f: line 1, column 7: 'x' is outside of brackets, expected '('"},
    };
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct tree t = {0};
        struct tree_source s = {.name = "f", .at = cases[i].text, .line = 1, .column = 1};
        struct heed_error err = {0};
        enum heed_status status;
        do status = tree_read(&t, &s, &err);
        while (!status && t.n);
        assert_int_equal(status, HEED_EFORMAT);
        assert_string_equal(err.text, cases[i].error);
        tree_release(&t);
    }
}

static void test_bad_reference(void **state)
{
    (void)state;
    static const struct {
        const char *ref, *error;
    } cases[] = {
        {"(S (NP (NN a))", "line 2, column 1: the tree that begins here lacks 1 closing bracket"},
        {" ", "line 2 is blank, expected a tree"},
        {"(S (NP a b))", "line 2 has a word without a tag"},
        {"(S (NN a)) (S (NN b))", "line 2 has more than one tree"},
    };
    const char *good = "(S (NN a))";
    const char *const hyp[] = {good, good};
    const struct heed_scoring how = {.metric = HEED_METRIC_PARSEVAL};
    struct heed_error err = {0};
    struct heed_score s;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        const char *ref[] = {good, cases[i].ref};
        const char *const *refs[] = {ref, ref};
        assert_int_equal(heed_score_corpus(&how, hyp, refs, 1, 2, &s, &err), HEED_EFORMAT);
        assert_string_equal(err.text, cases[i].error);
        assert_int_equal(heed_score_corpus(&how, ref, (const char *const *[]){hyp}, 1, 2, &s, &err),
                         HEED_OK);
        assert_int_equal(s.parseval.errors, 1);
        assert_int_equal(heed_score_corpus(&how, hyp, refs, 2, 2, &s, &err), HEED_EARG);
    }
}

/* A hundred thousand brackets in each other. */
static void test_deep(void **state)
{
    (void)state;
    char *text = deep_tree();
    assert_non_null(text);
    const struct heed_scoring how = {.metric = HEED_METRIC_PARSEVAL};
    const char *const line = text, *const *ref = &line;
    struct heed_score s;
    assert_int_equal(heed_score_corpus(&how, &line, &ref, 1, 1, &s, NULL), HEED_OK);
    assert_int_equal(s.parseval.matched, DEEP_TREE);
    struct tree t = {0};
    struct tree_source source = {.at = text, .line = 1, .column = 1};
    assert_int_equal(tree_read(&t, &source, NULL), HEED_OK);
    assert_int_equal(tree_clean(&t, NULL), HEED_OK);
    assert_int_equal(t.n, DEEP_TREE + 2);
    tree_release(&t);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),    cmocka_unit_test(test_print),
        cmocka_unit_test(test_bad_trees), cmocka_unit_test(test_bad_reference),
        cmocka_unit_test(test_deep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
