/*
 * test_positions.c - heed_positions_of: the numbers of every kind of position against their
 * formulas or the model's own weights, and their pictures.
 */
#include "small_model.h"

#include <jansson.h>
#include <math.h>

#include "decode/session.h"
#include "svg_check.h"

static const double pi = 3.14159265358979323846;

static struct heed_positions *positions(const struct heed_model *m, int d, int length)
{
    struct heed_error err = {0};
    struct heed_positions *p = NULL;
    must(heed_positions_of(m, d, length, &p, &err), &err);
    return p;
}

/* The numbers of the JSON picture are those of the struct, and the SVG has no faults. */
static void check_pictures(const struct heed_positions *p)
{
    struct heed_error err = {0};
    json_error_t wrong;
    char *text = NULL;
    must(heed_positions_picture(p, HEED_PICTURE_JSON, &text, &err), &err);
    json_t *root = json_loads(text, 0, &wrong);
    if (!root) fail_msg("line %d: %s", wrong.line, wrong.text);
    json_t *maps = json_object_get(root, "maps"), *charts = json_object_get(root, "charts");
    assert_int_equal(json_array_size(maps), p->maps);
    assert_int_equal(json_array_size(charts), p->charts);
    for (int i = 0; i < p->maps; i++) {
        const struct heed_heat_map *m = &p->map[i];
        json_t *rows = json_object_get(json_array_get(maps, i), "value");
        assert_int_equal(json_array_size(rows), m->rows);
        json_t *last = json_array_get(rows, m->rows - 1);
        assert_int_equal(json_array_size(last), m->cols);
        double value = json_number_value(json_array_get(last, m->cols - 1));
        double want = (double)m->value[(size_t)m->rows * m->cols - 1];
        assert_true(fabs(value - want) < 1e-6);
    }
    json_decref(root);
    free(text);
    must(heed_positions_picture(p, HEED_PICTURE_SVG, &text, &err), &err);
    assert_int_equal(svg_faults(text), 0);
    free(text);
    must(heed_positions_picture(p, HEED_PICTURE_TERMINAL, &text, &err), &err);
    assert_non_null(strstr(text, p->said[0]));
    free(text);
    assert_int_equal(heed_positions_picture(p, HEED_PICTURE_HTML, &text, &err), HEED_EARG);
}

static void test_sinusoid(void **state)
{
    (void)state;
    enum { D = 64, N = 50 };
    struct heed_positions *p = positions(NULL, D, N);
    const struct heed_heat_map *m = &p->map[0];
    assert_int_equal(p->maps, 1);
    assert_int_equal(m->rows, N);
    assert_int_equal(m->cols, D);
    for (int pos = 0; pos < N; pos++)
        for (int i = 0; i < D / 2; i++) {
            double angle = pos / pow(10000, 2.0 * i / D);
            assert_true(fabs((double)m->value[pos * D + 2 * i] - sin(angle)) < 1e-6);
            assert_true(fabs((double)m->value[pos * D + 2 * i + 1] - cos(angle)) < 1e-6);
        }
    const struct heed_chart *dots = &p->chart[0], *wave = &p->chart[1];
    for (int k = 0; k < N; k++) {
        double want = 0;
        for (int i = 0; i < D / 2; i++) want += cos(k / pow(10000, 2.0 * i / D)) / (D / 2.0);
        assert_true(fabs(dots->y[k] - want) < 1e-6);
    }
    assert_int_equal(wave->n, D / 2);
    for (int i = 0; i < D / 2; i++) {
        double want = 2 * pi * pow(10000, 2.0 * i / D);
        assert_true(fabs(wave->y[i] / want - 1) < 1e-3);
    }
    assert_int_equal(p->said_n, 3);
    assert_non_null(strstr(p->said[1], "linear function"));
    double error = strtod(strstr(p->said[1], "error is ") + 9, NULL);
    assert_true(error < 1e-6);
    check_pictures(p);
    heed_positions_free(p);
}

static void test_bad_arguments(void **state)
{
    (void)state;
    struct heed_error err = {0};
    struct heed_positions *p = NULL;
    assert_int_equal(heed_positions_of(NULL, 7, 0, &p, &err), HEED_EARG);
    assert_string_equal(err.text, "d_model is 7, expected an even number from 2 to 4096");
    assert_int_equal(heed_positions_of(NULL, 8, 7, &p, &err), HEED_EARG);
    assert_string_equal(err.text, "length is 7, expected 8 to 1024, or 0");
    assert_int_equal(heed_positions_of(NULL, 8, 0, NULL, &err), HEED_EARG);
    assert_null(p);
    heed_positions_free(NULL);
}

/* ---- models ---- */

static struct heed_engine *engine;

static struct heed_model *model(enum heed_position kind)
{
    struct heed_error err = {0};
    const char *file = at("pairs"), *out = at("model");
    struct heed_train_options o = small_options(&file, at("vocab"), out);
    char clear[160];
    snprintf(clear, sizeof clear, "rm -rf %s", out);
    assert_int_equal(system(clear), 0);
    o.config.position = kind;
    o.config.encoder_layers = 2;
    o.steps = 2;
    struct heed_trainer *t = heed_trainer_open(engine, &o, &err);
    must(t ? heed_trainer_run(t, &err) : err.status, &err);
    heed_trainer_free(t);
    struct heed_model *m = heed_model_load(engine, out, HEED_WEIGHTS_AS_STORED, &err);
    must(err.status, &err);
    return m;
}

static void test_learned(void **state)
{
    (void)state;
    struct heed_model *m = model(HEED_POSITION_LEARNED);
    struct heed_positions *p = positions(m, 0, 0);
    struct mat table[] = {m->p->w.embed.source.position, m->p->w.embed.target.position};
    assert_int_equal(p->maps, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(p->map[i].rows, 40); /* max_length, below the default of 128 */
        assert_memory_equal(p->map[i].value, table[i].p, 40 * 32 * sizeof(float));
    }
    assert_int_equal(p->chart[0].lines, 2);
    for (int i = 0; i < 2; i++) {
        const float *a = p->map[i].value, *far = a + 39 * 32;
        double ab = 0, aa = 0, bb = 0;
        assert_true(fabs(p->chart[0].y[i * 40] - 1) < 1e-6);
        for (int k = 0; k < 32; k++) {
            ab += (double)a[k] * far[k];
            aa += (double)a[k] * a[k];
            bb += (double)far[k] * far[k];
        }
        assert_true(fabs(p->chart[0].y[i * 40 + 39] - ab / sqrt(aa * bb)) < 1e-6);
    }
    check_pictures(p);
    heed_positions_free(p);
    heed_model_free(m);
}

static void test_rope(void **state)
{
    (void)state;
    enum { D = 16 }; /* of a head */
    struct heed_model *m = model(HEED_POSITION_ROPE);
    struct heed_positions *p = positions(m, 0, 20);
    assert_int_equal(p->map[0].cols, D);
    assert_true(fabs((double)p->map[0].value[D] - cos(1)) < 1e-6); /* cosines come first */
    double want = 0;
    for (int i = 0; i < D / 2; i++) want += cos(5 / pow(10000, 2.0 * i / D)) / (D / 2.0);
    assert_true(fabs(p->chart[0].y[5] - want) < 1e-6);
    check_pictures(p);
    heed_positions_free(p);
    heed_model_free(m);
}

static void test_relative(void **state)
{
    (void)state;
    struct heed_model *m = model(HEED_POSITION_RELATIVE);
    struct heed_positions *p = positions(m, 0, 0);
    assert_int_equal(p->maps, 2);
    assert_int_equal(p->map[0].rows, 3); /* two layers of the encoder, one of the decoder */
    assert_int_equal(p->map[0].cols, 33);
    assert_int_equal(p->map[0].first_col, -16);
    const float *v = (const float *)m->p->w.encoder[1].self.relative_v.p + 4 * 16;
    double sum = 0;
    for (int i = 0; i < 16; i++) sum += (double)v[i] * v[i];
    assert_true(fabs((double)p->map[1].value[33 + 4] - sqrt(sum)) < 1e-6);
    double mean = ((double)p->map[1].value[4] + (double)p->map[1].value[33 + 4]) / 2;
    assert_true(fabs(p->chart[0].y[33 + 4] - mean) < 1e-6);
    assert_true(p->chart[0].x[0] == -16);
    check_pictures(p);
    heed_positions_free(p);
    heed_model_free(m);
}

static void test_alibi(void **state)
{
    (void)state;
    struct heed_model *m = model(HEED_POSITION_ALIBI);
    struct heed_positions *p = positions(m, 0, 10);
    assert_int_equal(p->map[0].rows, 2);
    for (int k = 0; k < 10; k++) {
        assert_true(fabs(p->chart[0].y[k] + k / 16.0) < 1e-9);
        assert_true(fabs(p->chart[0].y[10 + k] + k / 256.0) < 1e-9);
    }
    check_pictures(p);
    heed_positions_free(p);
    heed_model_free(m);
}

static void test_none(void **state)
{
    (void)state;
    struct heed_model *m = model(HEED_POSITION_NONE);
    struct heed_positions *p = positions(m, 0, 0);
    assert_int_equal(p->maps + p->charts, 0);
    assert_non_null(strstr(p->said[0], "no positions"));
    check_pictures(p);
    heed_positions_free(p);
    heed_model_free(m);
}

static int set_up(void **state)
{
    struct heed_error err = {0};
    if (folder_make(state)) return -1;
    FILE *f = fopen(at("pairs"), "w");
    for (int i = 0; i < 50; i++) fprintf(f, "a dog runs %d\tein Hund rennt %d\n", i % 7, i % 7);
    fclose(f);
    const char *pairs = at("pairs");
    struct heed_tokenizer_options v = {.vocab_size = 290};
    must(heed_tokenizer_train(&pairs, 1, &v, at("vocab"), &err), &err);
    engine = heed_engine_open(device_cpu(), 1, &err);
    return engine ? 0 : -1;
}

static int tear_down(void **state)
{
    heed_engine_free(engine);
    return folder_remove(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sinusoid), cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_learned),  cmocka_unit_test(test_rope),
        cmocka_unit_test(test_relative), cmocka_unit_test(test_alibi),
        cmocka_unit_test(test_none),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
