/*
 * test_layers.c - the layers of the paper's table 1: gradients against finite differences, the same
 * numbers on the device as on the reference, and what of the input an output depends on.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device.h"
#include "ops/bf16.h"
#include "paper/layers.h"

enum { N = 6, D = 16, WINDOW = 2 };

static struct backend *open_backend(const char *device)
{
    struct heed_error err = {0};
    struct backend *be = NULL;
    if (backend_open(&be, device, 1, &err)) fail_msg("%s", err.text);
    return be;
}

static void open_layer(struct layer *l, struct backend *be, enum layer_kind kind, enum type type)
{
    struct heed_error err = {0};
    if (layer_open(l, be, kind, N, D, WINDOW, type, 7, &err)) fail_msg("%s", err.text);
}

/* The sum of y times dy. */
static double loss_of(struct layer *l)
{
    double sum = 0;
    layer_forward(l);
    for (int i = 0; i < l->y.rows; i++)
        for (int j = 0; j < D; j++)
            sum += *(double *)mat_at(l->y, i, j) * *(double *)mat_at(l->dy, i, j);
    return sum;
}

static void check_gradient(struct layer *l, struct mat x, struct mat dx, int row, int col)
{
    const double h = 1e-5;
    double *at = mat_at(x, row, col), before = *at, expected = *(double *)mat_at(dx, row, col);
    *at = before + h;
    double more = loss_of(l);
    *at = before - h;
    double less = loss_of(l);
    *at = before;
    double found = (more - less) / (2 * h);
    if (fabs(found - expected) > 1e-6 * (1 + fabs(expected)))
        fail_msg("kind %d, row %d, column %d: %g, expected %g", l->kind, row, col, expected, found);
}

static void test_gradients(void **state)
{
    (void)state;
    struct backend *be = open_backend("ref");
    for (int kind = 0; kind < LAYER_KINDS; kind++) {
        struct layer l;
        open_layer(&l, be, kind, TYPE_F64);
        layer_forward(&l);
        layer_backward(&l);
        for (int i = 0; i < 40; i++) check_gradient(&l, l.x, l.dx, i * 37 % l.x.rows, i * 5 % D);
        for (int k = 0; k < KERNEL; k++)
            for (int i = 0; i < 20 && l.dw[k].p; i++)
                check_gradient(&l, l.w[k], l.dw[k], i * 31 % l.w[k].rows, i * 7 % l.w[k].cols);
        layer_close(&l);
    }
    be->op->close(be);
}

/* A row of a matrix of the device as doubles. */
static void row_of(const struct layer *l, struct mat m, int row, double out[D])
{
    struct heed_error err = {0};
    union {
        float f32[D];
        uint16_t bf16[D];
        double f64[D];
    } host;
    l->be->op->download(l->be, &host, mat_at(m, row, 0), D * type_size(m.type));
    if (l->be->op->sync(l->be, &err)) fail_msg("%s", err.text);
    for (int j = 0; j < D; j++)
        out[j] = m.type == TYPE_F64    ? host.f64[j]
                 : m.type == TYPE_BF16 ? (double)bf16_to_float(host.bf16[j])
                                       : (double)host.f32[j];
}

/* The largest difference between the results of two layers. */
static double difference(const struct layer *a, const struct layer *b)
{
    double most = 0, x[D], y[D];
    for (int i = 0; i < 2 * a->y.rows; i++) {
        int row = i / 2;
        row_of(a, i % 2 ? a->dx : a->y, row, x);
        row_of(b, i % 2 ? b->dx : b->y, row, y);
        for (int j = 0; j < D; j++) most = fmax(most, fabs(x[j] - y[j]));
    }
    return most;
}

static void test_device_is_like_ref(void **state)
{
    (void)state;
    static const enum type type[] = {TYPE_F32, TYPE_BF16};
    static const double most[] = {1e-3, 0.25};
    struct backend *ref = open_backend("ref"), *be = open_backend(device_or_cpu());
    for (int i = 0; i < 2 * LAYER_KINDS; i++) {
        struct layer a, b;
        open_layer(&a, ref, i / 2, TYPE_F64);
        open_layer(&b, be, i / 2, type[i % 2]);
        layer_forward(&a), layer_backward(&a);
        layer_forward(&b), layer_backward(&b);
        double found = difference(&a, &b);
        if (!(found < most[i % 2]))
            fail_msg("kind %d, type %d: off by %g, expected less than %g", i / 2, (int)type[i % 2],
                     found, most[i % 2]);
        layer_close(&a);
        layer_close(&b);
    }
    ref->op->close(ref);
    be->op->close(be);
}

/* The gradient of the last output of sentence 1 with respect to the inputs. */
static void test_reach(void **state)
{
    (void)state;
    static const int reach[LAYER_KINDS] = {N, N, 2, WINDOW + 1}; /* positions */
    struct backend *be = open_backend(device_or_cpu());
    double row[D];
    for (int kind = 0; kind < LAYER_KINDS; kind++) {
        struct layer l;
        float dy[N * LAYER_SENTENCES * D] = {0};
        open_layer(&l, be, kind, TYPE_F32);
        for (int j = 0; j < D; j++) dy[layer_row(&l, 1, N - 1) * D + j] = 1;
        be->op->upload(be, l.dy.p, dy, sizeof dy);
        layer_forward(&l);
        layer_backward(&l);
        for (int b = 0; b < LAYER_SENTENCES; b++)
            for (int t = 0; t < N; t++) {
                row_of(&l, l.dx, layer_row(&l, b, t), row);
                assert_int_equal(row[3] != 0, b == 1 && t >= N - reach[kind]);
            }
        if (kind == LAYER_RECURRENT) {
            layer_backward_steps(&l, 2);
            row_of(&l, l.dx, layer_row(&l, 1, N - 2), row);
            assert_true(row[3] != 0);
            row_of(&l, l.dx, layer_row(&l, 1, N - 3), row);
            assert_true(row[3] == 0);
        }
        layer_close(&l);
    }
    be->op->close(be);
}

int main(void)
{
    device_or_skip();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_device_is_like_ref),
        cmocka_unit_test(test_reach),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
