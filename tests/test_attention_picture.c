/*
 * test_attention_picture.c - pictures of attention, of 1 to 70 tokens with short, long, German and
 * Chinese words: no text overlaps another or leaves the picture, every token is there, and JSON has
 * the numbers.
 */
#include "svg_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { TOKENS_MAX = 70, LAYERS = 2, HEADS = 3 };

static const char *const words[] = {
    "\xe2\x96\x81",
    ">>de<<",
    "Donaudampfschifffahrtsgesellschaft",
    "动物",
    "W",
    "<s>",
    "\xe2\x96\x81überqueren",
    "&",
    "\"",
    "因为",
    "i",
    "WWWWMMMM",
};

struct sample {
    const char *source[TOKENS_MAX], *target[TOKENS_MAX];
    float *weight;
    struct heed_attention a;
};

/* Rows that sum up to 1, from one token to all. */
static void fill(float *w, int queries, int keys, int layer, int head)
{
    for (int q = 0; q < queries; q++)
        for (int k = 0; k < keys; k++) {
            float even = 0.4f / (float)keys;
            w[q * keys + k] = even + (k == (q + layer + head) % keys ? 0.6f : 0);
        }
}

static void sample_open(struct sample *x, int sources, int targets)
{
    enum { WORDS = sizeof words / sizeof words[0] };
    for (int i = 0; i < TOKENS_MAX; i++)
        x->source[i] = words[i % WORDS], x->target[i] = words[(i * 5 + 3) % WORDS];
    size_t most = (size_t)TOKENS_MAX * TOKENS_MAX * LAYERS * HEADS;
    x->weight = calloc(HEED_USES * most, sizeof *x->weight);
    assert_non_null(x->weight);
    x->a.map[HEED_USE_ENCODER] = (struct heed_attention_map){
        LAYERS, HEADS, sources, sources, x->source, x->source, x->weight};
    x->a.map[HEED_USE_DECODER] = (struct heed_attention_map){
        LAYERS, HEADS, targets, targets, x->target, x->target, x->weight + most};
    x->a.map[HEED_USE_CROSS] = (struct heed_attention_map){
        LAYERS, HEADS, targets, sources, x->target, x->source, x->weight + 2 * most};
    for (int use = 0; use < HEED_USES; use++) {
        struct heed_attention_map *m = &x->a.map[use];
        for (int l = 0; l < LAYERS; l++)
            for (int h = 0; h < HEADS; h++)
                fill((float *)m->weight + (size_t)(l * HEADS + h) * m->queries * m->keys,
                     m->queries, m->keys, l, h);
    }
}

static char *draw(const struct sample *x, enum heed_picture kind, struct heed_attention_view view)
{
    struct heed_error err = {0};
    char *out = NULL;
    if (heed_attention_picture(&x->a, kind, &view, &out, &err)) fail_msg("%s", err.text);
    return out;
}

static void test_geometry(void **state)
{
    (void)state;
    static const int lengths[][2] = {{1, 1}, {2, 1}, {5, 6}, {12, 9}, {27, 31}, {60, 58}, {70, 70}};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct sample x;
        sample_open(&x, lengths[i][0], lengths[i][1]);
        for (int use = 0; use <= HEED_USES; use++)
            for (int drawing = 0; drawing <= HEED_DRAW_GRID; drawing++) {
                if (use == HEED_USES && drawing != HEED_DRAW_GRID) continue;
                const struct heed_attention_view view = {.use = (enum heed_attention_use)use,
                                                         .drawing = (enum heed_drawing)drawing,
                                                         .layer = 1,
                                                         .head =
                                                             drawing == HEED_DRAW_LINES ? -1 : 0};
                char *svg = draw(&x, HEED_PICTURE_SVG, view);
                if (svg_faults(svg))
                    fail_msg("faults: %d by %d tokens, use %d, drawing %d", lengths[i][0],
                             lengths[i][1], use, drawing);
                free(svg);
            }
        free(x.weight);
    }
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) n++;
    return n;
}

/* A map labels every token, and every cell above 0 has a tooltip with its weight. */
static void test_map(void **state)
{
    (void)state;
    struct sample x;
    sample_open(&x, 4, 3);
    char *svg = draw(&x, HEED_PICTURE_SVG,
                     (struct heed_attention_view){.use = HEED_USE_CROSS, .layer = 1, .head = 2});
    assert_int_equal(count(svg, "<text"), 4 + 3 + 2 + 4); /* tokens, headings, key */
    assert_int_equal(count(svg, ": 0.700</title>"), 3);
    assert_int_equal(count(svg, ": 0.100</title>"), 9);
    assert_non_null(strstr(svg, "cross-attention, layer 2 of 2, head 3 of 3"));
    free(svg);
    free(x.weight);
}

/* Each line is a weight, in the colour of its head. */
static void test_lines(void **state)
{
    (void)state;
    struct sample x;
    sample_open(&x, 20, 3);
    struct heed_attention_view view = {
        .use = HEED_USE_CROSS, .drawing = HEED_DRAW_LINES, .head = -1};
    char *svg = draw(&x, HEED_PICTURE_SVG, view);
    assert_int_equal(count(svg, "<line "), 3 * HEADS); /* those of 0.02 are left out */
    assert_int_equal(count(svg, "class=\"s1-line\""), 3);
    free(svg);
    view.head = 1;
    svg = draw(&x, HEED_PICTURE_SVG, view);
    assert_int_equal(count(svg, "<line "), 3);
    assert_int_equal(count(svg, "class=\"s1-line\""), 3); /* the same colour as among all heads */
    free(svg);
    free(x.weight);
}

/* A terminal's line is no longer than it is, where that is possible. */
static void test_terminal(void **state)
{
    (void)state;
    struct sample x;
    sample_open(&x, 12, 6);
    struct heed_attention_view view = {.use = HEED_USE_CROSS, .drawing = HEED_DRAW_GRID};
    char *text = draw(&x, HEED_PICTURE_TERMINAL, view);
    assert_int_equal(count(text, "\n"), 1 + LAYERS * (1 + 6));
    free(text);
    view.columns = 20; /* one map beside each other */
    text = draw(&x, HEED_PICTURE_TERMINAL, view);
    assert_int_equal(count(text, "\n"), 1 + LAYERS * HEADS * (1 + 6));
    free(text);
    view.colours = 256; /* two rows in one line */
    text = draw(&x, HEED_PICTURE_TERMINAL, view);
    assert_int_equal(count(text, "\n"), 1 + LAYERS * HEADS * (1 + 3));
    assert_int_equal(count(text, "\xe2\x96\x80"), LAYERS * HEADS * 3 * 12);
    free(text);
    free(x.weight);
}

static void test_json(void **state)
{
    (void)state;
    struct sample x;
    sample_open(&x, 2, 1);
    ((float *)x.a.map[HEED_USE_CROSS].weight)[1] = 0.123456789f;
    char *json = draw(&x, HEED_PICTURE_JSON, (struct heed_attention_view){0});
    assert_non_null(strstr(json, "\"cross\":{\"layers\":2,\"heads\":3,\"queries\":[\"动物\"],"));
    assert_non_null(strstr(json, "\"weights\":[[[[0.800000012,0.123456791]]\n,[[0.2"));
    assert_int_equal(count(json, "\"weights\""), HEED_USES);
    free(json);
    free(x.weight);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_geometry), cmocka_unit_test(test_map),  cmocka_unit_test(test_lines),
        cmocka_unit_test(test_terminal), cmocka_unit_test(test_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
