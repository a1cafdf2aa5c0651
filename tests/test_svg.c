/*
 * test_svg.c - the drawing layer: documents are well-formed, texts are measured and do not overlap,
 * colours have contrast in both themes, axes have round values, curves, PNG.
 */
#include "svg_check.h"

#include "view/curves.h"
#include "view/theme.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static char *picture_of(void (*draw)(struct svg *s))
{
    struct heed_error err = {0};
    struct svg s;
    char *out = NULL;
    svg_begin(&s, 300, 200, "a <picture> & \"more\"");
    draw(&s);
    assert_int_equal(svg_end(&s, &out, &err), HEED_OK);
    return out;
}

static void draw_all(struct svg *s)
{
    const struct svg_pen pen = {SVG_INK, 2, 0.5, 1};
    svg_heading(s, 10, 20, "heading");
    svg_text(s, &(struct svg_text){.x = 10, .y = 60}, "<b> & \"c\" \x01 \xff 你好");
    svg_text(s, &(struct svg_text){.x = 290, .y = 60, .anchor = SVG_END}, "end");
    svg_rect(s, 1, 2, 3, 4, svg_ramp(0.5));
    svg_circle(s, 1, 2, 3, svg_series(9));
    svg_line(s, 0, 0, 10, 10, &pen);
    svg_polyline(s, (double[]){0, 1.005, 2}, (double[]){-0.001, 1, 4}, 3, &pen);
    svg_path_begin(s, NULL, svg_signed_ramp(-1));
    svg_data(s, "M0 0h10");
    svg_path_end(s);
    svg_tip_begin(s, "a < b");
    svg_tip_end(s);
}

static void test_document(void **state)
{
    (void)state;
    char *out = picture_of(draw_all);
    assert_int_equal(svg_faults(out), 0);
    assert_non_null(strstr(out, "<title>a &lt;picture&gt; &amp; &quot;more&quot;</title>"));
    assert_non_null(strstr(out, "&lt;b&gt; &amp; &quot;c&quot; \xef\xbf\xbd \xef\xbf\xbd 你好"));
    assert_non_null(strstr(out, "points=\"0,0 1,1 2,4\"")); /* no -0, two decimals */
    assert_non_null(strstr(out, ".s1{fill:"));
    assert_null(strstr(out, ".s2{fill:")); /* only what is used */
    free(out);
}

static void draw_overlap(struct svg *s)
{
    svg_text(s, &(struct svg_text){.x = 10, .y = 60}, "one text");
    svg_text(s, &(struct svg_text){.x = 50, .y = 62}, "another");
}

static void draw_apart(struct svg *s)
{
    svg_text(s, &(struct svg_text){.x = 10, .y = 120}, "one text");
    svg_text(s, &(struct svg_text){.x = 50, .y = 102, .angle = -45}, "another");
}

static void draw_outside(struct svg *s)
{
    svg_text(s, &(struct svg_text){.x = 270, .y = 60}, "one text");
}

static void draw_pale(struct svg *s)
{
    svg_text(s, &(struct svg_text){.x = 10, .y = 60, .colour = SVG_GRID}, "pale");
}

/* The checker finds what it is there for. */
static void test_checker(void **state)
{
    (void)state;
    static void (*const draw[])(struct svg *) = {draw_apart, draw_overlap, draw_outside, draw_pale};
    for (int i = 0; i < 4; i++) {
        char *out = picture_of(draw[i]);
        assert_int_equal(svg_faults(out) != 0, i > 0);
        free(out);
    }
    assert_int_not_equal(svg_faults("<svg width=\"9\"><g></svg>"), 0);
    assert_int_not_equal(svg_faults("<svg a=\"1\" a=\"2\"/>"), 0);
    assert_int_not_equal(svg_faults("<svg>&nbsp;</svg>"), 0);
}

static void test_width(void **state)
{
    (void)state;
    /* Of DejaVu Sans at a size of 100. */
    assert_true(svg_text_width("Straße", 100) >= 323 && svg_text_width("Straße", 100) < 400);
    assert_true(svg_text_width("你好", 100) == 200);
    assert_true(svg_text_width("a\xcc\x88", 100) == svg_text_width("a", 100));
    assert_true(svg_text_width("", 100) == 0);
    assert_true(svg_bold_width("MW", 100) >= 220);
}

static unsigned rgb_of(enum svg_colour c, bool dark)
{
    struct rgb v = theme_rgb(c, dark);
    return (unsigned)v.r << 16 | (unsigned)v.g << 8 | v.b;
}

static void test_colours(void **state)
{
    (void)state;
    for (int dark = 0; dark <= 1; dark++) {
        unsigned paper = rgb_of(SVG_PAPER, dark);
        assert_true(svg_contrast(rgb_of(SVG_INK, dark), paper) >= 7);
        assert_true(svg_contrast(rgb_of(SVG_FAINT, dark), paper) >= 4.5);
        for (int i = 0; i < SVG_SERIES_N; i++)
            assert_true(svg_contrast(rgb_of(svg_series(i), dark), paper) >= 3);
        /* Ramps leave the background step by step. */
        for (int i = 1; i <= SVG_RAMP_MAX; i++) {
            double before =
                svg_contrast(rgb_of((enum svg_colour)(SVG_WEIGHT + i - 1), dark), paper);
            double now = svg_contrast(rgb_of((enum svg_colour)(SVG_WEIGHT + i), dark), paper);
            assert_true(now > before);
        }
        for (int i = 1; i <= SVG_RAMP_MAX / 2; i++)
            for (int side = -1; side <= 1; side += 2) {
                enum svg_colour near = svg_signed_ramp(side * (i - 1) * 2.0 / SVG_RAMP_MAX);
                enum svg_colour far = svg_signed_ramp(side * i * 2.0 / SVG_RAMP_MAX);
                assert_true(svg_contrast(rgb_of(far, dark), paper) >
                            svg_contrast(rgb_of(near, dark), paper));
            }
        assert_int_equal(rgb_of(svg_ramp(0), dark), paper);
        assert_int_equal(rgb_of(svg_signed_ramp(0), dark), paper);
    }
    assert_int_equal(svg_ramp(2), svg_ramp(1));
    assert_int_equal(svg_ramp(NAN), svg_ramp(0));
}

static void test_axis(void **state)
{
    (void)state;
    double tick[64];
    struct svg_axis a = svg_axis_over(0.13, 0.97, false, 0, 100);
    assert_true(a.lo == 0 && a.hi == 1);
    assert_true(fabs(svg_axis_at(&a, 0.5) - 50) < 1e-9);
    assert_int_equal(svg_axis_ticks(&a, tick, 6), 6);
    assert_true(fabs(tick[1] - 0.2) < 1e-12);
    a = svg_axis_over(3, 4000, true, 0, 400);
    assert_true(fabs(a.lo - 1) < 1e-9 && fabs(a.hi - 10000) < 1e-9);
    assert_true(fabs(svg_axis_at(&a, 100) - 200) < 1e-9);
    assert_int_equal(svg_axis_ticks(&a, tick, 8), 5);
    a = svg_axis_over(5, 5, false, 0, 1); /* one value, none, none that is a number */
    assert_true(a.lo <= 5 && a.hi > 5);
    a = svg_axis_over(INFINITY, -INFINITY, true, 0, 1);
    assert_true(a.lo > 0 && a.hi > a.lo);
    a = svg_axis_over(-3, NAN, false, 0, 1);
    assert_true(a.hi > a.lo);
    char text[SVG_NUMBER];
    svg_number(text, 10000);
    assert_string_equal(text, "10,000");
    svg_number(text, -1234567);
    assert_string_equal(text, "-1,234,567");
    svg_number(text, 0.05);
    assert_string_equal(text, "0.05");
}

static void test_curves(void **state)
{
    (void)state;
    const double x[] = {64, 128, 256, 512, 1024, 20000}, y[] = {0.5, 1.25, NAN, 20, 1e5, 3e6};
    struct curve curve[10];
    for (int i = 0; i < 10; i++) curve[i] = (struct curve){"a series with a name", x, y, 6};
    struct curves panel[4];
    for (int i = 0; i < 4; i++)
        panel[i] =
            (struct curves){"time of a step", "n, tokens", "milliseconds", i & 1, i & 2, true,
                            i == 0,           curve,       i ? 10 : 1};
    struct heed_error err = {0};
    for (int n = 0; n <= 4; n++) {
        char *out = NULL;
        assert_int_equal(
            curves_picture(panel, n, "a heading", n ? "how it was measured" : NULL, &out, &err),
            HEED_OK);
        assert_int_equal(svg_faults(out), 0);
        assert_null(strstr(out, "nan"));
        free(out);
    }
}

static void test_png(void **state)
{
    (void)state;
    struct heed_error err = {0};
    unsigned char *png[2] = {NULL, NULL};
    size_t n[2] = {0, 0};
    char *svg = picture_of(draw_all);
    if (heed_png_of_svg(svg, HEED_THEME_LIGHT, 2, &png[0], &n[0], &err) == HEED_EUNSUPPORTED) {
        print_message("no PNG: %s\n", err.text);
        free(svg);
        skip();
    }
    assert_int_equal(err.status, HEED_OK);
    assert_int_equal(heed_png_of_svg(svg, HEED_THEME_DARK, 2, &png[1], &n[1], &err), HEED_OK);
    assert_memory_equal(png[0], "\x89PNG\r\n\x1a\n", 8);
    assert_int_equal(png[0][19] | png[0][18] << 8, 600); /* twice the width of the SVG */
    assert_true(n[0] != n[1] || memcmp(png[0], png[1], n[0]) != 0);
    unsigned char *none = NULL;
    size_t nothing = 0;
    assert_int_equal(heed_png_of_svg("<svg", HEED_THEME_LIGHT, 1, &none, &nothing, &err),
                     HEED_EARG);
    assert_int_equal(heed_png_of_svg(svg, HEED_THEME_LIGHT, 0, &none, &nothing, &err), HEED_EARG);
    assert_int_equal(heed_png_of_svg(NULL, HEED_THEME_LIGHT, 1, &none, &nothing, &err), HEED_EARG);
    assert_null(none);
    free(svg);
    free(png[0]);
    free(png[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_document), cmocka_unit_test(test_checker),
        cmocka_unit_test(test_width),    cmocka_unit_test(test_colours),
        cmocka_unit_test(test_axis),     cmocka_unit_test(test_curves),
        cmocka_unit_test(test_png),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
