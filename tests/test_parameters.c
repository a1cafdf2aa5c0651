/*
 * test_parameters.c - what a new model starts from.
 *
 * The spread of the first weights decides whether a post-norm model learns at all: with a Xavier
 * bound of their own for q, k and v, the rows of the encoder's output grow alike, attention over
 * them stays uniform, and no learning rate helps. A wrong spread breaks no other test.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/parameters.h"

enum { D = 64, F = 96, TENSORS = 400 };

static const struct heed_config config = {.d_model = D,
                                          .d_ff = F,
                                          .heads = 4,
                                          .encoder_layers = 2,
                                          .decoder_layers = 2,
                                          .vocab_size = 500,
                                          .max_length = 200,
                                          .position = HEED_POSITION_LEARNED,
                                          .tie = HEED_TIE_NONE,
                                          .ff = HEED_FF_MOE,
                                          .experts = 16};

static struct parameters *make(uint64_t seed)
{
    struct heed_error err;
    struct backend *be;
    struct parameters *p;
    assert_int_equal(backend_open(&be, "ref", 1, &err), HEED_OK);
    assert_int_equal(parameters_open(&p, be, &config, precision_f32, &err), HEED_OK);
    assert_int_equal(parameters_init(p, seed, &err), HEED_OK);
    return p;
}

static void discard(struct parameters *p)
{
    struct backend *be = p->be;
    parameters_free(p);
    be->op->close(be);
}

static float *initial(uint64_t seed, struct parameter *list, int *n)
{
    struct heed_error err;
    struct parameters *p = make(seed);
    struct backend *be = p->be;
    *n = parameters_list(&p->config, list, TENSORS);
    assert_in_range(*n, 1, TENSORS);
    float *values = malloc(p->n * sizeof *values);
    be->op->download(be, values, p->master.p, p->n * sizeof *values);
    be->op->sync(be, &err);
    discard(p);
    return values;
}

static bool named(const struct parameter *p, const char *end)
{
    size_t n = strlen(p->name), m = strlen(end);
    return n >= m && strcmp(p->name + n - m, end) == 0;
}

static bool embedding(const struct parameter *p)
{
    return named(p, "embed.weight") || named(p, "output.weight") || named(p, "position.weight");
}

/* The variance a tensor must have, and its mean. */
static void expected(const struct parameter *p, double *mean, double *variance)
{
    bool qkv = named(p, "q_proj.weight") || named(p, "k_proj.weight") || named(p, "v_proj.weight");
    *mean = named(p, "norm.weight");
    *variance = p->dims == 1   ? 0
                : embedding(p) ? 1.0 / D
                : qkv          ? 2.0 / (3 * D + D) /* one matrix [3D,D] */
                               : 2.0 / (p->rows + p->cols);
    if (named(p, "router.weight")) *variance *= 0.1 * 0.1;
}

static void test_spread(void **state)
{
    (void)state;
    struct parameter list[TENSORS];
    int tensors;
    float *values = initial(1, list, &tensors);
    for (int i = 0; i < tensors; i++) {
        const struct parameter *p = &list[i];
        int n = p->rows * p->cols;
        double want_mean, want, mean = 0, variance = 0, top = 0;
        expected(p, &want_mean, &want);
        for (int j = 0; j < n; j++) {
            double x = values[p->at + j] - want_mean;
            mean += x / n;
            variance += x * x / n;
            top = fmax(top, fabs(x));
        }
        bool uniform = p->dims == 2 && !embedding(p);
        double bound = sqrt(3 * want);
        if (fabs(mean) > 5 * sqrt(want / n) || fabs(variance - want) > 0.1 * want ||
            (uniform && (top > bound * 1.0001 || top < bound * 0.99)))
            fail_msg("%s: mean %g, variance %g, largest %g; expected %g, %g, %g", p->name,
                     mean + want_mean, variance, top, want_mean, want, bound);
    }
    free(values);
}

static void test_seed(void **state)
{
    (void)state;
    struct parameter list[TENSORS];
    int tensors;
    float *one = initial(1, list, &tensors), *again = initial(1, list, &tensors),
          *other = initial(2, list, &tensors);
    const struct parameter *last = &list[tensors - 1];
    size_t bytes = (last->at + (size_t)last->rows * last->cols) * sizeof *one;
    assert_memory_equal(one, again, bytes);
    for (int i = 0; i < tensors; i++)
        if (list[i].dims == 2) assert_true(one[list[i].at] != other[list[i].at]);
    free(one), free(again), free(other);
}

/* A gated feed-forward has as many parameters as one of width d_ff, nearly: its width is a multiple
 * of 16. */
static void test_gated(void **state)
{
    (void)state;
    static const int width[][2] = {{1, 16},    {23, 16},    {36, 32},     {96, 64},
                                   {256, 176}, {1024, 688}, {2048, 1360}, {4096, 2736}};
    for (size_t i = 0; i < sizeof width / sizeof *width; i++) {
        struct heed_config c = config;
        struct parameter list[TENSORS];
        c.ff = HEED_FF_DENSE;
        c.d_ff = width[i][0];
        double dense = (double)parameters_count(&c);
        c.activation = HEED_ACTIVATION_SWIGLU;
        int tensors = parameters_list(&c, list, TENSORS), f = width[i][1], found = 0;
        for (int k = 0; k < tensors; k++) {
            const struct parameter *p = &list[k];
            int rows = named(p, "fc1.weight") ? 2 * f : named(p, "fc2.weight") ? D : 0;
            int cols = named(p, "fc1.weight")   ? D
                       : named(p, "fc2.weight") ? f
                       : named(p, "fc1.bias")   ? 2 * f
                                                : 0;
            if (rows) assert_int_equal(p->rows, rows);
            if (cols) assert_int_equal(p->cols, cols), found++;
        }
        assert_int_equal(found, 3 * (config.encoder_layers + config.decoder_layers));
        if (c.d_ff >= 96) assert_true(fabs(parameters_count(&c) / dense - 1) < 0.03);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_spread), cmocka_unit_test(test_seed),
                                       cmocka_unit_test(test_gated)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
