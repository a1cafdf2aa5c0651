/*
 * test_layers.c - the layers of the paper's table 1: gradients against finite differences, the same
 * numbers on the CPU as on the reference, and what of the input an output depends on.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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

static void test_cpu_is_like_ref(void **state)
{
    (void)state;
    struct backend *ref = open_backend("ref"), *cpu = open_backend("cpu");
    for (int kind = 0; kind < LAYER_KINDS; kind++) {
        struct layer a, b;
        open_layer(&a, ref, kind, TYPE_F64);
        open_layer(&b, cpu, kind, TYPE_F32);
        layer_forward(&a), layer_backward(&a);
        layer_forward(&b), layer_backward(&b);
        for (int i = 0; i < a.y.rows; i++)
            for (int j = 0; j < D; j++) {
                double y = *(double *)mat_at(a.y, i, j), dx = *(double *)mat_at(a.dx, i, j);
                assert_true(fabs((double)*(float *)mat_at(b.y, i, j) - y) < 1e-4);
                assert_true(fabs((double)*(float *)mat_at(b.dx, i, j) - dx) < 1e-4);
            }
        layer_close(&a);
        layer_close(&b);
    }
    ref->op->close(ref);
    cpu->op->close(cpu);
}

/* The gradient of the last output of sentence 1 with respect to the inputs. */
static void test_reach(void **state)
{
    (void)state;
    static const int reach[LAYER_KINDS] = {N, N, 2, WINDOW + 1}; /* positions */
    struct backend *be = open_backend("cpu");
    for (int kind = 0; kind < LAYER_KINDS; kind++) {
        struct layer l;
        open_layer(&l, be, kind, TYPE_F32);
        for (int i = 0; i < l.dy.rows; i++)
            for (int j = 0; j < D; j++)
                *(float *)mat_at(l.dy, i, j) = i == layer_row(&l, 1, N - 1) ? 1 : 0;
        layer_forward(&l);
        layer_backward(&l);
        for (int b = 0; b < LAYER_SENTENCES; b++)
            for (int t = 0; t < N; t++) {
                bool reached = *(float *)mat_at(l.dx, layer_row(&l, b, t), 3) != 0;
                assert_int_equal(reached, b == 1 && t >= N - reach[kind]);
            }
        if (kind == LAYER_RECURRENT) {
            layer_backward_steps(&l, 2);
            assert_true(*(float *)mat_at(l.dx, layer_row(&l, 1, N - 2), 3) != 0);
            assert_true(*(float *)mat_at(l.dx, layer_row(&l, 1, N - 3), 3) == 0);
        }
        layer_close(&l);
    }
    be->op->close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_cpu_is_like_ref),
        cmocka_unit_test(test_reach),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
