/*
 * test_embeddings.c - heed_neighbours and heed_word_map_of: with embeddings that are set by hand,
 * neighbours, sums of words and principal components are known.
 */
#include "small_model.h"

#include <math.h>

#include "store/safetensors.h"
#include "study/embeddings.h"
#include "svg_check.h"

static struct heed_engine *engine;
static struct heed_model *model;

static int32_t id_of(const struct heed_embeddings *e, const char *word)
{
    struct heed_error err = {0};
    struct heed_ids ids = {0};
    must(heed_embeddings_pieces(e, word, &ids, &err), &err);
    assert_int_equal(ids.n, 1);
    int32_t id = ids.v[0];
    free(ids.v);
    return id;
}

/* Sets the vector of a word to zeros but for its first three numbers, of length 1. */
static void set(struct heed_embeddings *e, const char *word, double x, double y, double z)
{
    float *row = e->row + (size_t)id_of(e, word) * e->d;
    double length = sqrt(x * x + y * y + z * z);
    memset(row, 0, (size_t)e->d * sizeof *row);
    row[0] = (float)(x / length);
    row[1] = (float)(y / length);
    row[2] = (float)(z / length);
}

static struct heed_embeddings *embeddings(void)
{
    struct heed_error err = {0};
    struct heed_embeddings *e = heed_embeddings_open(model, HEED_SIDE_SOURCE, &err);
    must(err.status, &err);
    return e;
}

/* The vectors are the rows of the model's file, less their mean and of length 1. */
static void test_vectors(void **state)
{
    (void)state;
    struct heed_error err = {0};
    struct safetensors *file = NULL;
    struct heed_embeddings *e = embeddings();
    must(safetensors_open(&file, at("model/model.safetensors"), &err), &err);
    const float *table = safetensors_find(file, "embed.weight")->data;
    double want[64], length = 0;
    for (int c = 0; c < e->d; c++) {
        double mean = 0;
        for (int i = 0; i < e->v; i++) mean += (double)table[i * e->d + c] / e->v;
        want[c] = (double)table[9 * e->d + c] - mean;
        length += want[c] * want[c];
    }
    for (int c = 0; c < e->d; c++)
        assert_true(fabs((double)e->row[9 * e->d + c] - want[c] / sqrt(length)) < 1e-5);
    safetensors_free(file);
    heed_embeddings_free(e);
}

static void test_neighbours(void **state)
{
    (void)state;
    struct heed_error err = {0};
    struct heed_embeddings *e = embeddings();
    struct heed_neighbour out[3];
    int n;
    memset(e->row, 0, (size_t)e->v * e->d * sizeof *e->row);
    set(e, "dog", 1, 0, 0);
    set(e, "cat", 0.8, 0.6, 0);
    set(e, "runs", 0.6, 0.8, 0);
    set(e, "sits", -1, 0, 0);
    must(heed_neighbours(e, (const char *[]){"dog"}, 1, NULL, 0, 2, out, &n, &err), &err);
    assert_int_equal(n, 2);
    assert_int_equal(out[0].id, id_of(e, "cat"));
    assert_true(fabsf(out[0].cosine - 0.8f) < 1e-6f);
    assert_int_equal(out[1].id, id_of(e, "runs"));

    /* dog - cat + sits: the nearest but for the three words themselves */
    set(e, "dog", 1, 1, 0);
    set(e, "cat", 1, 0, 0);
    set(e, "sits", 1, 0, 1);
    set(e, "runs", 1, 1, 1);
    set(e, "house", 0, 1, 1);
    must(heed_neighbours(e, (const char *[]){"dog", "sits"}, 2, (const char *[]){"cat"}, 1, 1, out,
                         &n, &err),
         &err);
    assert_int_equal(out[0].id, id_of(e, "runs"));
    double s = sqrt(0.5), x = 2 * s - 1;
    double want = (x + 2 * s) / (sqrt(3) * sqrt(x * x + 1));
    assert_true(fabs((double)out[0].cosine - want) < 1e-6);
    heed_embeddings_free(e);
}

/* A word of several pieces is the mean of their vectors, and its pieces are no neighbours of it. */
static void test_pieces(void **state)
{
    (void)state;
    struct heed_error err = {0};
    struct heed_embeddings *e = embeddings();
    struct heed_ids ids = {0};
    struct heed_neighbour out[1];
    int n;
    must(heed_embeddings_pieces(e, "dog cat", &ids, &err), &err);
    assert_int_equal(ids.n, 2);
    memset(e->row, 0, (size_t)e->v * e->d * sizeof *e->row);
    set(e, "dog", 1, 0, 0);
    set(e, "cat", 0, 1, 0);
    set(e, "runs", 1, 1, 0);
    must(heed_neighbours(e, (const char *[]){"dog cat"}, 1, NULL, 0, 1, out, &n, &err), &err);
    assert_int_equal(out[0].id, id_of(e, "runs"));
    assert_true(fabsf(out[0].cosine - 1) < 1e-6f);
    free(ids.v);
    heed_embeddings_free(e);
}

static void test_bad_words(void **state)
{
    (void)state;
    struct heed_error err = {0};
    struct heed_embeddings *e = embeddings();
    struct heed_neighbour out[1];
    int n = 7;
    const char *none[] = {" "}, *two[] = {"dog", "cat"};
    struct heed_word_map *m = NULL;
    assert_int_equal(heed_neighbours(e, none, 1, NULL, 0, 1, out, &n, &err), HEED_EARG);
    assert_int_equal(heed_neighbours(e, two, 0, NULL, 0, 1, out, &n, &err), HEED_EARG);
    assert_int_equal(n, 7);
    assert_int_equal(heed_word_map_of(e, two, 2, &m, &err), HEED_EARG);
    assert_string_equal(err.text, "a map has 2 words, expected 3 to 1000");
    assert_null(m);
    heed_embeddings_free(e);
}

/* Points of an ellipse in a plane of five dimensions: its axes are the components. */
static void test_components(void **state)
{
    (void)state;
    enum { N = 40, D = 5 };
    static const double u[D] = {0.6, 0, 0.8, 0, 0}, v[D] = {0, 1, 0, 0, 0};
    struct heed_error err = {0};
    double vector[N * D], x[N], y[N], share[2];
    for (int i = 0; i < N; i++) {
        double angle = 0.3 + 2 * 3.14159265358979 * i / N;
        for (int c = 0; c < D; c++)
            vector[i * D + c] = 7 + c + 3 * cos(angle) * u[c] + sin(angle) * v[c];
    }
    must(principal_components(x, y, share, vector, N, D, &err), &err);
    assert_true(fabs(share[0] - 0.9) < 1e-6);
    assert_true(fabs(share[1] - 0.1) < 1e-6);
    for (int i = 0; i < N; i++) {
        double angle = 0.3 + 2 * 3.14159265358979 * i / N;
        assert_true(fabs(fabs(x[i]) - fabs(3 * cos(angle))) < 1e-4);
        assert_true(fabs(fabs(y[i]) - fabs(sin(angle))) < 1e-4);
    }
}

/* Forty words in nearly one place: no name may lie on another. */
static void test_crowded_map(void **state)
{
    (void)state;
    enum { N = 40 };
    struct heed_error err = {0};
    char name[N][32];
    const char *word[N];
    double x[N], y[N];
    for (int i = 0; i < N; i++) {
        snprintf(name[i], sizeof name[i], i % 3 ? "Straßenbahn%d" : "\xe7\x8b\x97\xe7\x8c\xab%d",
                 i);
        word[i] = name[i];
        x[i] = i % 7 * 0.01 + (i == 0 ? 1 : 0);
        y[i] = i % 5 * 0.01;
    }
    const struct heed_word_map m = {N, word, x, y, {0.5, 0.2}};
    char *text = NULL;
    must(heed_word_map_picture(&m, HEED_PICTURE_SVG, &text, &err), &err);
    assert_int_equal(svg_faults(text), 0);
    free(text);
    must(heed_word_map_picture(&m, HEED_PICTURE_JSON, &text, &err), &err);
    assert_non_null(strstr(text, "\"variance\": [0.5, 0.2]"));
    free(text);
}

static int set_up(void **state)
{
    struct heed_error err = {0};
    if (folder_make(state)) return -1;
    FILE *f = fopen(at("pairs"), "w");
    for (int i = 0; i < 60; i++)
        fprintf(f, "%s %s house\t%s house %s\n", i % 2 ? "dog" : "cat", i % 3 ? "runs" : "sits",
                i % 2 ? "dog" : "cat", i % 3 ? "runs" : "sits");
    fclose(f);
    struct heed_tokenizer_options v = {.vocab_size = 300};
    small_model_train(at("pairs"), &v);
    engine = heed_engine_open(device_cpu(), 1, &err);
    model = engine ? heed_model_load(engine, at("model"), HEED_WEIGHTS_AS_STORED, &err) : NULL;
    must(err.status, &err);
    return 0;
}

static int tear_down(void **state)
{
    heed_model_free(model);
    heed_engine_free(engine);
    return folder_remove(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),    cmocka_unit_test(test_neighbours),
        cmocka_unit_test(test_pieces),     cmocka_unit_test(test_bad_words),
        cmocka_unit_test(test_components), cmocka_unit_test(test_crowded_map),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
