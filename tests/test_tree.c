/*
 * test_tree.c - trees as sequences and back, and their pictures: whatever a model writes becomes a
 * tree over the words; no text of a picture overlaps another.
 */
#include "deep_tree.h"
#include "heed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LENGTH(a) (sizeof(a) / sizeof *(a))

/* Trees of a text. The caller frees them. */
static struct heed_trees *trees_of(const char *text)
{
    struct heed_trees *t = NULL;
    struct heed_error err = {0};
    if (heed_trees_read(text, "text", &t, &err) != HEED_OK) fail_msg("%s", err.text);
    return t;
}

static void assert_text(const char *tree, enum heed_tree_form form, const char *expected)
{
    struct heed_trees *t = trees_of(tree);
    char *text = NULL;
    assert_int_equal(heed_trees_count(t), 1);
    assert_int_equal(heed_tree_text(t, 0, form, &text, NULL), HEED_OK);
    assert_string_equal(text, expected);
    free(text);
    heed_trees_free(t);
}

static void test_forms(void **state)
{
    (void)state;
    const char *tree = "( (S (NP-SBJ (DT The) (NN dog)) (VP (VBZ runs) (NP (-NONE- *))) (. .)))";
    assert_text(tree, HEED_TREE_BRACKETS, tree);
    assert_text(tree, HEED_TREE_WORDS, "The dog runs .");
    assert_text(tree, HEED_TREE_LINEAR, "(S (NP DT NN ) (VP VBZ ) . )");
    assert_text("(NP (NR 上海) (NP 浦东 近年))", HEED_TREE_LINEAR, "(NP NR (NP XX XX ) )");
    assert_text("(NN a)", HEED_TREE_LINEAR, "NN");
    assert_text("(S (NP (-NONE- *)))", HEED_TREE_LINEAR, "(S )");
}

static void assert_restored(const char *linear, const char *words, const char *expected)
{
    char *tree = NULL;
    assert_int_equal(heed_tree_restore(linear, words, &tree, NULL), HEED_OK);
    assert_string_equal(tree, expected);
    free(tree);
}

static void test_restore(void **state)
{
    (void)state;
    const char *words = "The dog runs .",
               *whole = "(TOP (S (NP (DT The) (NN dog)) (VP (VBZ runs)) (. .)))";
    assert_restored("(S (NP DT NN ) (VP VBZ ) . )", words, whole);
    assert_restored("(S(NP DT NN)(VP VBZ).))))", words, whole);
    assert_restored("(S (NP DT NN ) (VP VBZ", words, whole); /* cut off */
    assert_restored("(S (NP DT NN NN ) (VP VBZ ) . )", words,
                    "(TOP (S (NP (NN The) (NN dog)) (VP (VBZ runs)) (. .)))"); /* a tag too many */
    assert_restored("(S (NP DT NN ) (VP VBZ (S (S (S (S ) ) ) ) ) . )", words, whole);
    assert_restored("(S (S (S (S (NP DT NN ) (VP VBZ ) . ) ) ) )", words,
                    "(TOP (S (S (NP (DT The) (NN dog)) (VP (VBZ runs)) (. .))))");
    assert_restored("", words, "(TOP (S (NN The) (NN dog) (NN runs) (. .)))");
    assert_restored("NN", "dog", "(TOP (S (NN dog)))");
    assert_restored("( NN )", "dog", "(TOP (X (NN dog)))");
    assert_restored("(NP NN ) (VP VB ) . )", "dogs run .",
                    "(TOP (S (NP (NN dogs)) (VP (VB run)) (. .)))");
    /* tags of punctuation belong to punctuation, and the comma is a fixed point */
    assert_restored("(S (NP . ) , (VP VB ) : )", "a b , ( c",
                    "(TOP (S (NN a) (NN b) (, ,) (VP (VB -LRB-) (NN c))))");
    assert_restored("(S (NP DT NN ) )", "", "");
    assert_restored("(S", " \t ", "");
}

/* Random symbols over random words: always a tree over exactly the words. */
static void test_restore_anything(void **state)
{
    (void)state;
    static const char *const symbol[] = {"(",  ")",   " ",  "(NP ", ")) ", "NN ",     ", ",
                                         ". ", "CD ", "((", "\t",   "上 ", "-NONE- ", "'' "};
    static const char *const word[] = {"a", ",", ".", "7", "'", "上海", "(", "x)y", "``"};
    uint32_t seed = 1;
    for (int trial = 0; trial < 3000; trial++) {
        char linear[600] = "", words[300] = "", expected[600] = "";
        for (int n = 0; n < trial % 60; n++) {
            seed = seed * 1664525u + 1013904223u;
            strcat(linear, symbol[(seed >> 16) % LENGTH(symbol)]);
        }
        for (int n = 0; n < 1 + trial % 7; n++) {
            seed = seed * 1664525u + 1013904223u;
            const char *w = word[(seed >> 16) % LENGTH(word)];
            strcat(strcat(words, w), " ");
            strcat(expected, n ? " " : "");
            strcat(expected, w[0] == '(' ? "-LRB-" : w[0] == 'x' ? "x-RRB-y" : w);
        }
        char *tree = NULL;
        assert_int_equal(heed_tree_restore(linear, words, &tree, NULL), HEED_OK);
        assert_text(tree, HEED_TREE_WORDS, expected);
        free(tree);
    }
}

/* What is restored from a linear tree is the tree. */
static void test_round_trip(void **state)
{
    (void)state;
    static char text[1 << 16];
    FILE *f = fopen("tests/golden/score/parseval.gold", "r");
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    struct heed_trees *t = trees_of(text);
    const struct heed_scoring how = {.metric = HEED_METRIC_PARSEVAL};
    assert_true(heed_trees_count(t) == 48);
    for (int i = 0; i < heed_trees_count(t); i++) {
        char *tree = NULL, *words = NULL, *linear = NULL, *restored = NULL;
        assert_int_equal(heed_tree_text(t, i, HEED_TREE_BRACKETS, &tree, NULL), HEED_OK);
        assert_int_equal(heed_tree_text(t, i, HEED_TREE_WORDS, &words, NULL), HEED_OK);
        assert_int_equal(heed_tree_text(t, i, HEED_TREE_LINEAR, &linear, NULL), HEED_OK);
        assert_int_equal(heed_tree_restore(linear, words, &restored, NULL), HEED_OK);
        const char *const hyp = restored, *const ref = tree, *const *refs = &ref;
        struct heed_score s;
        assert_int_equal(heed_score_corpus(&how, &hyp, &refs, 1, 1, &s, NULL), HEED_OK);
        if (s.value < 100) fail_msg("%s became %s", tree, restored);
        free(tree);
        free(words);
        free(linear);
        free(restored);
    }
    heed_trees_free(t);
}

/* ---- pictures ---- */

static char *picture_of(const char *tree, enum heed_picture kind)
{
    struct heed_trees *t = trees_of(tree);
    struct heed_error err = {0};
    char *text = NULL;
    if (heed_tree_picture(t, 0, kind, &text, &err) != HEED_OK) fail_msg("%s", err.text);
    heed_trees_free(t);
    return text;
}

static void test_terminal(void **state)
{
    (void)state;
    char *text = picture_of("(IP (NP (NR 上海)) (VP (VV 同步)) (PU 。))", HEED_PICTURE_TERMINAL);
    assert_string_equal(text, "IP\n├─ NP\n│  └─ NR  上海\n├─ VP\n│  └─ VV  同步\n└─ PU  。\n");
    free(text);
    text = picture_of("( (X a) (Y b))", HEED_PICTURE_TERMINAL);
    assert_string_equal(text, "·\n├─ X  a\n└─ Y  b\n");
    free(text);
    text = picture_of("( (X a b))", HEED_PICTURE_TERMINAL);
    assert_string_equal(text, "X\n├─ a\n└─ b\n");
    free(text);
}

struct label {
    double x, y, width;
};

/* Texts in one row are at least a few pixels apart, and within the picture. */
static void test_svg(void **state)
{
    (void)state;
    static const char *const trees[] = {
        "(NN a)",
        "( (SBARQ (WHADVP (WRB Why)) (SQ (VBZ is) (NP (NN it)) (ADJP-PRD (JJ tall))) (. ?)))",
        "(WHADVP-TMP-1 (WHADVP-TMP-1 (WHADVP-TMP-1 (X a)) (X b)) (X c))",
        "(IP (NP (NR 上海浦东新区) (NN 法制)) (VP (VV <&>) (NP (NN a) (NN 建设同步))) (PU 。))",
    };
    for (size_t i = 0; i < LENGTH(trees); i++) {
        char *svg = picture_of(trees[i], HEED_PICTURE_SVG);
        struct label label[64];
        size_t n = 0;
        double width = 0;
        const char *size = strstr(svg, " width=\"");
        assert_non_null(size);
        assert_int_equal(sscanf(size, " width=\"%lf\"", &width), 1);
        for (const char *p = svg; (p = strstr(p, "<text")) && n < LENGTH(label); p++, n++) {
            const char *x = strstr(p, "x=\""), *y = strstr(p, " y=\""), *from = strchr(p, '>') + 1;
            assert_true(x && y);
            size_t letters = 0;
            for (const char *c = from; *c != '<'; c++) {
                letters += ((unsigned char)*c & 0xc0) != 0x80;
                if (*c == '&') c = strchr(c, ';'); /* an entity is one character */
            }
            bool wide = (unsigned char)*from >= 0xe0;
            label[n] = (struct label){atof(x + 3), atof(y + 4), (double)letters * (wide ? 13 : 7)};
            assert_true(label[n].x - label[n].width / 2 >= 0);
            assert_true(label[n].x + label[n].width / 2 <= width);
        }
        assert_true(n >= 2);
        for (size_t a = 0; a < n; a++) {
            for (size_t b = a + 1; b < n; b++) {
                if (label[a].y != label[b].y) continue;
                double apart = label[a].x - label[b].x;
                double need = (label[a].width + label[b].width) / 2 + 4;
                if (apart < need && -apart < need) {
                    fail_msg("texts %zu and %zu are %g apart in %s", a, b, apart, trees[i]);
                }
            }
        }
        free(svg);
    }
}

/* A hundred thousand brackets: read and printed, but not drawn. */
static void test_deep(void **state)
{
    (void)state;
    char *text = deep_tree();
    assert_non_null(text);
    struct heed_trees *t = trees_of(text);
    struct heed_error err = {0};
    char *out = NULL;
    assert_int_equal(heed_tree_picture(t, 0, HEED_PICTURE_TERMINAL, &out, &err), HEED_EARG);
    assert_string_equal(err.text, "tree 1 is 100002 brackets deep; at most 1000 can be drawn");
    assert_int_equal(heed_tree_text(t, 0, HEED_TREE_LINEAR, &out, NULL), HEED_OK);
    char *tree = NULL;
    assert_int_equal(heed_tree_restore(out, "a", &tree, NULL), HEED_OK);
    assert_string_equal(tree, "(TOP (X (X (NN a))))");
    free(tree);
    free(out);
    heed_trees_free(t);
    free(text);
}

static void test_arguments(void **state)
{
    (void)state;
    struct heed_trees *t = trees_of("(NN a) (NN b)");
    struct heed_error err = {0};
    char *out = NULL;
    assert_int_equal(heed_trees_count(NULL), 0);
    assert_int_equal(heed_tree_text(t, 2, HEED_TREE_WORDS, &out, &err), HEED_EARG);
    assert_string_equal(err.text, "there is no tree 2: expected 0 to 1");
    assert_int_equal(heed_tree_text(NULL, 0, HEED_TREE_WORDS, &out, &err), HEED_EARG);
    assert_int_equal(heed_tree_picture(t, 0, HEED_PICTURE_JSON, &out, &err), HEED_EARG);
    assert_int_equal(heed_tree_picture(t, 0, HEED_PICTURE_SVG, NULL, &err), HEED_EARG);
    assert_int_equal(heed_trees_read(NULL, "x", &t, &err), HEED_EARG);
    assert_int_equal(heed_trees_clean(NULL, &err), HEED_EARG);
    assert_int_equal(heed_tree_restore(NULL, "a", &out, &err), HEED_EARG);
    assert_int_equal(heed_tree_restore("a", NULL, &out, &err), HEED_EARG);
    heed_trees_free(t);
    heed_trees_free(NULL);
    assert_int_equal(heed_trees_read("", "x", &t, &err), HEED_OK);
    assert_int_equal(heed_trees_count(t), 0);
    heed_trees_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),      cmocka_unit_test(test_restore),
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_restore_anything),
        cmocka_unit_test(test_terminal),   cmocka_unit_test(test_svg),
        cmocka_unit_test(test_deep),       cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
