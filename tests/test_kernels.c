/*
 * test_kernels.c - the vector kernels of every ISA of this machine against plain double arithmetic,
 * at widths around every vector length, and the drivers of the CPU
 * backend, whose results have the same bytes for any number of threads.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/bf16.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/topk.h"
#include "ops/cpu/vec.h"

static const int widths[] = {1, 3, 4, 15, 16, 17, 64, 100, 512};
enum { WIDTHS = sizeof widths / sizeof *widths };

/* ---- rows of either type; exactly as long as asked, so that a sanitizer sees a step beyond ----
 */

static void *row_new(int n, enum type t)
{
    void *p = calloc((size_t)n, type_size(t));
    assert_non_null(p);
    return p;
}

static double get(const void *p, size_t i, enum type t)
{
    return t == TYPE_BF16 ? bf16_to_float(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

static void set(void *p, size_t i, float x, enum type t)
{
    if (t == TYPE_BF16)
        ((uint16_t *)p)[i] = bf16_from_float(x);
    else
        ((float *)p)[i] = x;
}

/* Uniform in [-2, 2). */
static float draw(uint64_t *state)
{
    return (float)(random_unit(state) * 4 - 2);
}

static void *row_random(int n, enum type t, uint64_t seed)
{
    void *p = row_new(n, t);
    for (int i = 0; i < n; i++) set(p, (size_t)i, draw(&seed), t);
    return p;
}

static void *row_copy(const void *p, int n, enum type t)
{
    return memcpy(row_new(n, t), p, (size_t)n * type_size(t));
}

/* `size` is how large the terms were that made up `want`. */
static void check(double got, double want, double size, enum type t)
{
    double bound = 4e-6 * size + (t == TYPE_BF16 ? fabs(want) / 256 : 0);
    if (!(fabs(got - want) <= bound)) fail_msg("found %.9g, expected %.9g", got, want);
}

static struct drop_row mask_row(bool on, uint64_t row)
{
    return drop_row((struct drop){on ? 0.3f : 0, 11, 7}, row);
}

/* ---- every table this machine can run, with every type, width and dropout ---- */

struct setting {
    const struct kernels *k;
    enum type t;
    int n;
    struct drop_row d;
};

static struct cpu *open_isa(int threads, const char *isa)
{
    struct backend *be = NULL;
    struct heed_error err = {0};
    enum heed_status status = cpu_open(&be, isa, threads, &err);
    if (status == HEED_EUNSUPPORTED) return NULL;
    if (status != HEED_OK) fail_msg("%s", err.text);
    return (struct cpu *)be;
}

static void for_each_table(void (*test)(const struct setting *s), struct setting s)
{
    for (int i = 0; i < ISA_LEVELS; i++) {
        struct cpu *cpu = open_isa(1, isa_name(i));
        if (!cpu) continue;
        assert_string_equal(cpu->k->isa, isa_name(i));
        s.k = cpu->k;
        for (s.t = TYPE_F32; s.t <= TYPE_BF16; s.t++) test(&s);
        cpu->base.op->close(&cpu->base);
    }
}

static void for_each_setting(void (*test)(const struct setting *s))
{
    for (int w = 0; w < WIDTHS; w++)
        for (int on = 0; on < 2; on++)
            for_each_table(test, (struct setting){.n = widths[w], .d = mask_row(on, 5)});
}

/* ---- vec.h, as the baseline compiles it ---- */

static void test_exp(void **state)
{
    (void)state;
    for (float x = -86.9f; x < 88.0f; x += 0.00137f) {
        double want = exp((double)x);
        assert_true(fabs((double)vf_exp(vf_all(x))[0] - want) <= 2.5e-7 * want);
    }
    assert_true(vf_exp(vf_all(-INFINITY))[0] == 0.0f);
    assert_true(vf_exp(vf_all(-1e30f))[0] == 0.0f);
    assert_true(vf_exp(vf_all(0.0f))[0] == 1.0f);
    assert_true(isnan(vf_exp(vf_all(NAN))[0]));
}

static void test_parts(void **state)
{
    (void)state;
    const float x[W] = {1, 2, 3, 4};
    const uint16_t h[W] = {0x3f80, 0x4000, 0x4040, 0x4080};
    for (int n = 0; n <= W; n++) {
        vf f = vf_load_part(x, 0, n, -7, TYPE_F32), b = vf_load_part(h, 0, n, -7, TYPE_BF16);
        float y[W] = {0};
        vf_store_part(y, 0, n, f, TYPE_F32);
        for (int l = 0; l < W; l++) {
            assert_true(f[l] == (l < n ? x[l] : -7) && b[l] == f[l]);
            assert_true(y[l] == (l < n ? x[l] : 0));
            assert_true(vf_first(vf_all(3), n, 9)[l] == (l < n ? 3 : 9));
        }
    }
}

/* ---- kernels ---- */

static void embed_case(const struct setting *s)
{
    for (enum type te = TYPE_F32; te <= TYPE_BF16; te++) {
        void *y = row_new(s->n, s->t), *e = row_random(s->n, te, 1);
        float *position = row_random(s->n, TYPE_F32, 2);
        s->k->embed(y, s->t, e, te, position, s->n, 3.5f, s->d);
        for (int c = 0; c < s->n; c++)
            check(get(y, c, s->t),
                  (get(e, c, te) * 3.5 + position[c]) * drop_factor(s->d, (uint32_t)c), 10, s->t);
        free(y);
        free(e);
        free(position);
    }
}

static void embed_bwd_case(const struct setting *s)
{
    int col = 64;
    float *de = row_random(s->n, TYPE_F32, 1), *old = row_copy(de, s->n, TYPE_F32);
    void *dy = row_random(s->n, s->t, 2);
    s->k->embed_bwd(de, dy, s->t, col, s->n, 3.5f, s->d);
    for (int c = 0; c < s->n; c++)
        check(de[c], old[c] + get(dy, c, s->t) * 3.5 * drop_factor(s->d, (uint32_t)(col + c)), 12,
              TYPE_F32);
    free(de);
    free(old);
    free(dy);
}

static void norm_case(const struct setting *s)
{
    int n = s->n;
    void *x = row_random(n, s->t, 1), *r = row_random(n, s->t, 2);
    float *g = row_random(n, TYPE_F32, 3), *b = row_random(n, TYPE_F32, 4);
    void *y = row_new(n, s->t), *xhat = row_new(n, s->t), *in_place = row_copy(x, n, s->t);
    float rstd = s->k->norm(y, xhat, x, r, g, b, n, s->t, s->d);
    double mean = 0, var = 0;
    for (int c = 0; c < n; c++)
        mean += (get(x, c, s->t) + get(r, c, s->t) * drop_factor(s->d, (uint32_t)c)) / n;
    for (int c = 0; c < n; c++)
        var +=
            pow(get(x, c, s->t) + get(r, c, s->t) * drop_factor(s->d, (uint32_t)c) - mean, 2) / n;
    double want_rstd = 1 / sqrt(var + NORM_EPSILON), size = 4 * want_rstd;
    check(rstd, want_rstd, want_rstd * size, TYPE_F32);
    for (int c = 0; c < n; c++) {
        double want =
            (get(x, c, s->t) + get(r, c, s->t) * drop_factor(s->d, (uint32_t)c) - mean) * want_rstd;
        check(get(xhat, c, s->t), want, size, s->t);
        check(get(y, c, s->t), want * g[c] + b[c], 2 * size, s->t);
    }
    assert_true(s->k->norm(in_place, NULL, in_place, r, g, b, n, s->t, s->d) == rstd);
    assert_memory_equal(in_place, y, (size_t)n * type_size(s->t));

    set(r, (size_t)(n / 2), NAN, s->t);
    assert_true(isnan(s->k->norm(y, xhat, x, r, g, b, n, s->t, s->d)));
    for (int c = 0; c < n; c++) assert_true(isnan(get(y, c, s->t)) && isnan(get(xhat, c, s->t)));
    void *rows[] = {x, r, g, b, y, xhat, in_place};
    for (int i = 0; i < 7; i++) free(rows[i]);
}

static void norm_bwd_case(const struct setting *s)
{
    int n = s->n;
    void *dy = row_random(n, s->t, 1), *xhat = row_random(n, s->t, 2);
    void *dx = row_new(n, s->t), *dr = row_new(n, s->t);
    float *g = row_random(n, TYPE_F32, 3), rstd = 0.7f;
    double mean = 0, slope = 0;
    for (int c = 0; c < n; c++) {
        mean += get(dy, c, s->t) * g[c] / n;
        slope += get(dy, c, s->t) * g[c] * get(xhat, c, s->t) / n;
    }
    s->k->norm_bwd(dx, dr, dy, xhat, rstd, g, n, s->t, s->d);
    for (int c = 0; c < n; c++) {
        double want = (get(dy, c, s->t) * g[c] - mean - get(xhat, c, s->t) * slope) * rstd;
        check(get(dx, c, s->t), want, 10, s->t);
        check(get(dr, c, s->t), want * drop_factor(s->d, (uint32_t)c), 15, s->t);
    }
    set(dy, 0, NAN, s->t);
    s->k->norm_bwd(dx, dr, dy, xhat, rstd, g, n, s->t, s->d);
    for (int c = 0; c < n; c++) assert_true(isnan(get(dx, c, s->t)) && isnan(get(dr, c, s->t)));
    void *rows[] = {dy, xhat, dx, dr, g};
    for (int i = 0; i < 5; i++) free(rows[i]);
}

static void columns_case(const struct setting *s)
{
    int n = s->n, rows = 300, ldy = n + 5, ldx = n + 2;
    void *dy = row_random(rows * ldy, s->t, 1), *xhat = row_random(rows * ldx, s->t, 2);
    float *dg = row_new(n, TYPE_F32), *db = row_new(n, TYPE_F32), *only = row_new(n, TYPE_F32);
    s->k->norm_bwd_columns(dg, db, dy, ldy, xhat, ldx, rows, n, s->t);
    s->k->add_columns(only, dy, ldy, rows, n, s->t);
    assert_memory_equal(only, db, (size_t)n * sizeof *db);
    float *dg1 = row_copy(dg, n, TYPE_F32), *db1 = row_copy(db, n, TYPE_F32);
    s->k->norm_bwd_columns(dg, db, dy, ldy, xhat, ldx, rows, n, s->t);
    for (int c = 0; c < n; c++) {
        double sum = 0, dot = 0;
        for (int r = 0; r < rows; r++) {
            double u = get(dy, (size_t)r * ldy + c, s->t);
            sum += u;
            dot += u * get(xhat, (size_t)r * ldx + c, s->t);
        }
        check(db1[c], sum, 50, TYPE_F32);
        check(dg1[c], dot, 50, TYPE_F32);
        assert_true(db[c] == 2 * db1[c] && dg[c] == 2 * dg1[c]);
    }
    void *all[] = {dy, xhat, dg, db, only, dg1, db1};
    for (int i = 0; i < 7; i++) free(all[i]);
}

/* ---- activations: value and derivative of every kind ---- */

static double value(enum activation_kind f, double z)
{
    if (f == ACT_GELU) return z / 2 * (1 + erf(z * sqrt(0.5)));
    if (f == ACT_SILU) return z / (1 + exp(-z));
    return f == ACT_RELU ? fmax(z, 0) : z;
}

static double derivative(enum activation_kind f, double z)
{
    if (activation_keeps_slope(f)) return (value(f, z + 1e-5) - value(f, z - 1e-5)) / 2e-5;
    return f == ACT_RELU ? z > 0 : 1;
}

/* ReLU is part of the products; it has a kernel for backward alone. */
static void activation_case(const struct setting *s, enum activation_kind f)
{
    int n = s->n;
    void *z = row_random(n, s->t, 1), *y = row_new(n, s->t), *dy = row_random(n, s->t, 2);
    void *slope = activation_keeps_slope(f) ? row_new(n, s->t) : NULL, *dz = row_copy(dy, n, s->t);
    for (int c = 0; c < n; c++) {
        set(z, (size_t)c, 3 * (float)get(z, c, s->t), s->t);
        double mask = drop_factor(s->d, (uint32_t)c);
        set(y, (size_t)c, (float)(value(f, get(z, c, s->t)) * mask), s->t);
    }
    void *in_place = row_copy(z, n, s->t);
    if (f != ACT_RELU) {
        s->k->activate(y, slope, z, n, s->t, f, s->d);
        s->k->activate(in_place, NULL, in_place, n, s->t, f, s->d);
        assert_memory_equal(in_place, y, (size_t)n * type_size(s->t));
    }
    s->k->activate_bwd(dz, y, slope, n, s->t, f, s->d);
    for (int c = 0; c < n; c++) {
        double x = get(z, c, s->t), mask = drop_factor(s->d, (uint32_t)c);
        double want = derivative(f, x) * mask, u = get(dy, c, s->t);
        check(get(y, c, s->t), value(f, x) * mask, 8, s->t);
        if (slope) check(get(slope, c, s->t), want, 2, s->t);
        check(get(dz, c, s->t), u * (slope ? get(slope, c, s->t) : want), 4, s->t);
    }
    set(z, 0, NAN, s->t);
    if (f != ACT_RELU) s->k->activate(y, slope, z, n, s->t, f, s->d);
    assert_true(f == ACT_RELU || isnan(get(y, 0, s->t)));
    void *rows[] = {z, y, slope, in_place, dy, dz};
    for (int i = 0; i < 6; i++) free(rows[i]);
}

/* Far from 0 every kind whose slope is kept is 0 or z, and its derivative 0 or 1. */
static void far_case(const struct setting *s)
{
    static const float far[] = {-3e38f, -1e10f, -1e4f, -200, 200, 1e4f, 1e10f, 3e38f};
    enum { N = sizeof far / sizeof *far };
    for (int f = 0; f < ACT_KINDS; f++) {
        if (!activation_keeps_slope((enum activation_kind)f)) continue;
        void *z = row_new(N, s->t), *y = row_new(N, s->t), *slope = row_new(N, s->t);
        for (int c = 0; c < N; c++) set(z, (size_t)c, far[c], s->t);
        s->k->activate(y, slope, z, N, s->t, (enum activation_kind)f, mask_row(false, 1));
        for (int c = 0; c < N; c++) {
            assert_true(get(y, c, s->t) == (far[c] < 0 ? 0 : get(z, c, s->t)));
            assert_true(get(slope, c, s->t) == (far[c] < 0 ? 0 : 1));
        }
        free(z);
        free(y);
        free(slope);
    }
}

/* silu keeps its digits also where it is small: value within 3e-7 of itself, derivative within
 * 2e-7. */
static void silu_case(const struct setting *s)
{
    float y, slope;
    if (s->t != TYPE_F32) return;
    for (double at = -80; at < 80; at += 0.0137) {
        float z = (float)at;
        double p = 1 / (1 + exp(-(double)z)), want = z * p, want_slope = p + z * p * (1 - p);
        s->k->activate(&y, &slope, &z, 1, TYPE_F32, ACT_SILU, mask_row(false, 1));
        if (!(fabs((double)y - want) <= 3e-7 * fabs(want)))
            fail_msg("silu(%g) is %.9g, expected %.9g", (double)z, (double)y, want);
        if (!(fabs((double)slope - want_slope) <= 2e-7))
            fail_msg("the derivative at %g is %.9g, expected %.9g", (double)z, (double)slope,
                     want_slope);
    }
}

static void gate_case(const struct setting *s)
{
    int n = s->n;
    void *left = row_random(n, s->t, 1), *right = row_random(n, s->t, 2), *h = row_new(n, s->t);
    void *dh = row_random(n, s->t, 3), *dleft = row_new(n, s->t), *dright = row_new(n, s->t);
    s->k->gate(h, left, right, n, s->t, s->d);
    s->k->gate_bwd(dleft, dright, dh, left, right, n, s->t, s->d);
    for (int c = 0; c < n; c++) {
        double a = get(left, c, s->t), b = get(right, c, s->t);
        double mask = drop_factor(s->d, (uint32_t)c), g = get(dh, c, s->t) * mask;
        check(get(h, c, s->t), value(ACT_SILU, a) * b * mask, 4, s->t);
        check(get(dleft, c, s->t), g * b * derivative(ACT_SILU, a), 4, s->t);
        check(get(dright, c, s->t), g * value(ACT_SILU, a), 4, s->t);
    }
    set(n > 1 ? left : right, 0, NAN, s->t);
    s->k->gate(h, left, right, n, s->t, s->d);
    assert_true(isnan(get(h, 0, s->t)));
    void *rows[] = {left, right, h, dh, dleft, dright};
    for (int i = 0; i < 6; i++) free(rows[i]);
}

static void activations_case(const struct setting *s)
{
    for (int f = 0; f < ACT_KINDS; f++) activation_case(s, (enum activation_kind)f);
}

static void xent_case(const struct setting *s)
{
    int n = s->n, target = n * 2 / 3;
    const float eps = 0.1f;
    void *x = row_random(n, s->t, 1), *old;
    for (int c = 0; c < n; c++) set(x, (size_t)c, 6 * (float)get(x, c, s->t) + 40, s->t);
    if (n > 3) set(x, 1, 0, s->t); /* far below the others */
    old = row_copy(x, n, s->t);
    double sum = 0, want = 0, lse;
    for (int c = 0; c < n; c++) sum += exp(get(x, c, s->t));
    lse = log(sum);
    for (int c = 0; c < n; c++)
        want += (lse - get(x, c, s->t)) * ((double)eps / n + (c == target ? 1 - (double)eps : 0));
    float loss[2], again[2];
    s->k->xent(x, n, s->t, target, eps, false, loss);
    assert_memory_equal(x, old, (size_t)n * type_size(s->t));
    s->k->xent(x, n, s->t, target, eps, true, again);
    assert_true(loss[0] == again[0] && loss[1] == again[1]);
    check(loss[0], want, 0.25 * (1 + want), TYPE_F32);
    check(loss[1], lse - get(old, target, s->t), 0.25 * (1 + lse - get(old, target, s->t)),
          TYPE_F32);
    for (int c = 0; c < n; c++) {
        double p = exp(get(old, c, s->t) - lse), q = (double)eps / n + (c == target ? 0.9 : 0);
        check(get(x, c, s->t), p - q, p + q, s->t);
    }
    /* a hidden word has probability 0; a NaN anywhere is seen everywhere */
    if (n > 3) {
        set(old, 1, -INFINITY, s->t);
        memcpy(x, old, (size_t)n * type_size(s->t));
        s->k->xent(x, n, s->t, target, 0, true, loss);
        assert_true(isfinite(loss[1]) && get(x, 1, s->t) == 0);
    }
    set(old, (size_t)(n - 1), NAN, s->t);
    s->k->xent(old, n, s->t, target, eps, true, loss);
    assert_true(isnan(loss[0]) && isnan(loss[1]));
    for (int c = 0; c < n; c++) assert_true(isnan(get(old, c, s->t)));
    free(x);
    free(old);
}

static void topk_case(const struct setting *s)
{
    int n = s->n;
    void *x = row_random(n, s->t, 1);
    for (int c = 0; c < n; c++)
        set(x, (size_t)c, rintf(4 * (float)get(x, c, s->t)), s->t); /* ties */
    if (n > 4) set(x, 3, -INFINITY, s->t);
    double sum = 0;
    for (int c = 0; c < n; c++) sum += exp(get(x, c, s->t));
    const int ks[] = {1, n < 5 ? n : 5, n};
    for (int j = 0; j < 3; j++) {
        int k = ks[j];
        float *score = row_new(k, TYPE_F32);
        int32_t *id = calloc((size_t)k, sizeof *id);
        bool *taken = calloc((size_t)n, 1);
        topk_row(s->k, x, n, s->t, k, score, id, 0);
        for (int i = 0; i < k; i++) {
            int best = -1;
            for (int c = 0; c < n; c++)
                if (!taken[c] && (best < 0 || get(x, c, s->t) > get(x, best, s->t))) best = c;
            assert_int_equal(id[i], best);
            taken[best] = true;
            double want = get(x, best, s->t) - log(sum);
            if (isinf(want))
                assert_true(score[i] == -INFINITY);
            else
                check(score[i], want, 1 + fabs(want), TYPE_F32);
        }
        set(x, 0, NAN, s->t);
        topk_row(s->k, x, n, s->t, k, score, id, 0);
        for (int i = 0; i < k; i++) assert_true(isnan(score[i]) && id[i] >= 0 && id[i] < n);
        if (n > 4) assert_true(id[0] != 0 && id[0] != 3);
        set(x, 0, 8, s->t);
        sum = 0;
        for (int c = 0; c < n; c++) sum += exp(get(x, c, s->t));
        free(score);
        free(id);
        free(taken);
    }
    free(x);
}

static void adam_case(const struct setting *s)
{
    int n = s->n;
    float *p = row_random(n, TYPE_F32, 1), *m = row_new(n, TYPE_F32), *v = row_new(n, TYPE_F32);
    uint16_t *copy = row_new(n, TYPE_BF16);
    double *want = calloc((size_t)n * 3, sizeof *want), *wm = want + n, *wv = wm + n;
    for (int c = 0; c < n; c++) want[c] = p[c];
    float *g = NULL;
    for (int step = 1; step <= 10; step++) {
        struct adam h = {1e-2, 0.9, 0.98, 1e-9, step, 1, 0, 0};
        free(g);
        g = row_random(n, TYPE_F32, (uint64_t)step);
        s->k->adam(p, m, v, s->t == TYPE_BF16 ? copy : NULL, g, (size_t)n, 0.5f, &h);
        for (int c = 0; c < n; c++) {
            double grad = 0.5 * g[c];
            wm[c] = 0.9 * wm[c] + 0.1 * grad;
            wv[c] = 0.98 * wv[c] + 0.02 * grad * grad;
            want[c] -=
                1e-2 / (1 - pow(0.9, step)) * wm[c] / (sqrt(wv[c] / (1 - pow(0.98, step))) + 1e-9);
        }
    }
    for (int c = 0; c < n; c++) {
        check(p[c], want[c], 1, TYPE_F32);
        check(m[c], wm[c], 0.5, TYPE_F32);
        check(v[c], wv[c], 0.5, TYPE_F32);
        if (s->t == TYPE_BF16) assert_int_equal(copy[c], bf16_from_float(p[c]));
    }
    g[n - 1] = NAN;
    struct adam h = {1e-2, 0.9, 0.98, 1e-9, 11, 1, 0, 0};
    s->k->adam(p, m, v, copy, g, (size_t)n, 0.5f, &h);
    assert_true(isnan(p[n - 1]) && isnan(m[n - 1]) && isnan(v[n - 1]));
    void *rows[] = {p, m, v, copy, want, g};
    for (int i = 0; i < 6; i++) free(rows[i]);
}

static void flat_case(const struct setting *s)
{
    int n = s->n;
    float *g = row_random(n, TYPE_F32, 1), *back = row_new(n, TYPE_F32);
    uint16_t *half = row_new(n, TYPE_BF16);
    double want = 0;
    for (int c = 0; c < n; c++) want += (double)g[c] * g[c];
    assert_true(fabs(s->k->sum_squares(g, (size_t)n) - want) <= 1e-14 * want);
    g[0] = 1e30f;
    assert_true(isfinite(s->k->sum_squares(g, (size_t)n)));
    g[n - 1] = NAN;
    assert_true(isnan(s->k->sum_squares(g, (size_t)n)));

    g[0] = 1.00390625f; /* halfway between two bf16 values */
    s->k->cast(half, TYPE_BF16, g, TYPE_F32, (size_t)n);
    s->k->cast(back, TYPE_F32, half, TYPE_BF16, (size_t)n);
    for (int c = 0; c < n; c++) {
        assert_int_equal(half[c], bf16_from_float(g[c]));
        float f = bf16_to_float(half[c]);
        assert_memory_equal(back + c, &f, sizeof f);
    }
    s->k->cast(back, TYPE_F32, g, TYPE_F32, (size_t)n);
    assert_memory_equal(back, g, (size_t)n * sizeof *g);
    free(g);
    free(back);
    free(half);
}

static void test_embed(void **state)
{
    (void)state;
    for_each_setting(embed_case);
    for_each_setting(embed_bwd_case);
}

static void test_norm(void **state)
{
    (void)state;
    for_each_setting(norm_case);
    for_each_setting(norm_bwd_case);
    for (int on = 0; on < 2; on++) /* wider than what is kept on the stack */
        for_each_table(norm_case, (struct setting){.n = 5003, .d = mask_row(on, 1)});
}

static void test_columns(void **state)
{
    (void)state;
    for_each_setting(columns_case);
}

static void test_activations(void **state)
{
    (void)state;
    for_each_setting(activations_case);
    for_each_setting(gate_case);
    for_each_table(far_case, (struct setting){0});
    for_each_table(silu_case, (struct setting){0});
}

static void test_logits(void **state)
{
    (void)state;
    for_each_setting(xent_case);
    for_each_setting(topk_case);
    for_each_table(xent_case, (struct setting){.n = 37000, .d = mask_row(false, 1)});
}

static void test_optimizer(void **state)
{
    (void)state;
    for_each_setting(adam_case);
    for_each_setting(flat_case);
}

/* ---- drivers ---- */

enum { ROWS = 300, COLS = 130, VOCAB = 50, TOP = 4, FLAT = 200003, OUTPUTS = 12 };

/* One run of every op that is shared out in cpu.c; what it wrote is in out. */
struct results {
    void *out[OUTPUTS];
    size_t bytes[OUTPUTS];
    int n;
};

static void *results_add(struct results *r, size_t bytes, const void *from)
{
    assert_true(r->n < OUTPUTS);
    r->bytes[r->n] = bytes;
    r->out[r->n] = calloc(1, bytes);
    assert_non_null(r->out[r->n]);
    if (from) memcpy(r->out[r->n], from, bytes);
    return r->out[r->n++];
}

static struct mat results_mat(struct results *r, int rows, int cols, enum type t, uint64_t seed)
{
    void *random = row_random(rows * cols, t, seed);
    void *p = results_add(r, (size_t)rows * cols * type_size(t), random);
    free(random);
    return mat_make(p, rows, cols, t);
}

static void run_rows(struct backend *be, struct results *r, enum type t)
{
    const struct ops *op = be->op;
    struct drop d = {0.2f, 3, 4};
    int32_t id[ROWS], pos[ROWS];
    for (int i = 0; i < ROWS; i++) id[i] = i * 7 % VOCAB, pos[i] = i % 20;
    struct mat e = results_mat(r, VOCAB, COLS, TYPE_F32, 1), y = results_mat(r, ROWS, COLS, t, 2);
    struct mat xhat = results_mat(r, ROWS, COLS, t, 3), z = results_mat(r, ROWS, COLS, t, 4);
    struct mat rstd = results_mat(r, ROWS, 1, TYPE_F32, 5),
               dg = results_mat(r, 1, COLS, TYPE_F32, 6);
    struct mat db = results_mat(r, 1, COLS, TYPE_F32, 7),
               loss = results_mat(r, ROWS, 2, TYPE_F32, 8);
    float *score = results_mat(r, ROWS, TOP, TYPE_F32, 9).p;
    int32_t *best = results_add(r, ROWS * TOP * sizeof *best, NULL);
    struct mat cache = results_mat(r, ROWS, COLS, t, 10),
               drb = results_mat(r, 1, COLS, TYPE_F32, 11);
    op->embed(be, y, id, pos, e, e, d);
    op->add_norm(be, z, xhat, rstd, y, z, mat_rows(e, 1, 1), mat_rows(e, 2, 1), d);
    op->embed_bwd(be, e, id, z, 2, d);
    op->add_norm_bwd(be, y, y, drb, dg, db, z, xhat, rstd, mat_rows(e, 1, 1), d);
    op->topk(be, y, TOP, NULL, 0, score, best);
    for (int i = 0; i < ROWS; i++) pos[i] = ROWS - 1 - i;
    op->cache_put(be, cache, y, pos);
    op->xent(be, y, id, 0.1f, true, loss);
}

static void run_flat(struct backend *be, struct results *r)
{
    const struct ops *op = be->op;
    struct mat p = results_mat(r, 1, FLAT, TYPE_F32, 1), m = results_mat(r, 1, FLAT, TYPE_F32, 2);
    struct mat v = results_mat(r, 1, FLAT, TYPE_F32, 3), g = results_mat(r, 1, FLAT, TYPE_F32, 4);
    struct mat copy = results_mat(r, 1, FLAT, TYPE_BF16, 5);
    struct mat cast = results_mat(r, 1, FLAT, TYPE_BF16, 6);
    double *sq = results_add(r, sizeof *sq, NULL);
    struct adam h = {1e-3, 0.9, 0.98, 1e-9, 3, 0.5, 1, 1e6};
    op->sqnorm(be, sq, g);
    op->adam(be, p, m, v, copy, g, sq, &h);
    op->cast(be, cast, p);
    op->zero(be, results_mat(r, 1, FLAT, TYPE_F32, 7).p, FLAT * sizeof(float));
}

static void test_threads(void **state)
{
    (void)state;
    const int threads[] = {1, 2, 5};
    for (int isa = 0; isa < ISA_LEVELS; isa++) {
        for (int kind = 0; kind < 3; kind++) {
            struct results r[3] = {{.n = 0}};
            for (int i = 0; i < 3; i++) {
                struct cpu *cpu = open_isa(threads[i], isa_name(isa));
                if (!cpu) break;
                if (kind == 2)
                    run_flat(&cpu->base, &r[i]);
                else
                    run_rows(&cpu->base, &r[i], kind ? TYPE_BF16 : TYPE_F32);
                cpu->base.op->close(&cpu->base);
                for (int j = 0; j < r[0].n; j++)
                    assert_memory_equal(r[i].out[j], r[0].out[j], r[0].bytes[j]);
            }
            for (int i = 0; i < 3; i++)
                for (int j = 0; j < r[i].n; j++) free(r[i].out[j]);
        }
    }
}

/* Clipping scales the gradient; a norm beyond the limit or without a value changes nothing. */
static void test_adam_decides(void **state)
{
    (void)state;
    struct cpu *cpu = open_isa(1, "baseline");
    struct backend *be = &cpu->base;
    float p[3] = {1, 2, 3}, m[3] = {0}, v[3] = {0}, g[3] = {3, 0, 4};
    struct mat mp = mat_make(p, 1, 3, TYPE_F32), mm = mat_make(m, 1, 3, TYPE_F32);
    struct mat mv = mat_make(v, 1, 3, TYPE_F32), mg = mat_make(g, 1, 3, TYPE_F32), none = {0};
    struct adam h = {1e-3, 0.9, 0.98, 1e-9, 1, 2, 0, 9};
    double sq = 0;
    be->op->sqnorm(be, &sq, mg);
    assert_true(sq == 25);
    be->op->adam(be, mp, mm, mv, none, mg, &sq, &h); /* 10 > 9 */
    h.limit = 0;
    sq = NAN;
    be->op->adam(be, mp, mm, mv, none, mg, &sq, &h);
    sq = INFINITY;
    be->op->adam(be, mp, mm, mv, none, mg, &sq, &h);
    assert_true(p[0] == 1 && m[0] == 0 && v[2] == 0);
    sq = 25;
    h.clip = 5; /* 10 > 5: half of the scaled gradient, the gradient itself */
    be->op->adam(be, mp, mm, mv, none, mg, &sq, &h);
    check(m[0], 0.3, 1, TYPE_F32);
    check(m[2], 0.4, 1, TYPE_F32);
    check(p[0], 1 - 1e-3, 1, TYPE_F32);
    be->op->close(be);
}

static void test_open(void **state)
{
    (void)state;
    struct backend *be = NULL;
    struct heed_error err = {0};
    assert_int_equal(backend_open(&be, "cpu:vax", 1, &err), HEED_EARG);
    assert_non_null(strstr(err.text, "'cpu:vax'"));
    assert_int_equal(backend_open(&be, "cpu:", 1, &err), HEED_EARG);
    assert_int_equal(backend_open(&be, "cpus", 1, &err), HEED_EARG);
    assert_int_equal(cpu_open(&be, NULL, -1, &err), HEED_EARG);
    assert_int_equal(cpu_open(&be, NULL, 1000000, &err), HEED_EARG);
    assert_int_equal(backend_open(&be, "gpu", 0, &err), HEED_EARG);
    assert_non_null(strstr(err.text, "'gpu'"));
    assert_null(be);
    enum heed_status gpu = backend_open(&be, "cuda:0", 0, &err); /* this machine may have one */
    assert_true(gpu == HEED_OK ? be != NULL : gpu == HEED_EUNSUPPORTED && !be);
    if (be) be->op->close(be);
    assert_int_equal(backend_open(&be, "cpu", 0, &err), HEED_OK);
    assert_string_equal(be->op->name, "cpu");
    const size_t sizes[] = {0, 1, 100, 5 << 20};
    for (int i = 0; i < 4; i++) {
        void *p = NULL;
        assert_int_equal(be->op->alloc(be, &p, sizes[i], USED_WHOLE, &err), HEED_OK);
        assert_int_equal((uintptr_t)p % 64, 0);
        be->op->zero(be, p, sizes[i]);
        be->op->free(be, p);
    }
    void *none = NULL;
    assert_int_equal(be->op->alloc(be, &none, SIZE_MAX - 5, USED_WHOLE, &err), HEED_ENOMEM);
    assert_int_equal(be->op->sync(be, &err), HEED_OK);
    be->op->close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),     cmocka_unit_test(test_parts),
        cmocka_unit_test(test_embed),   cmocka_unit_test(test_norm),
        cmocka_unit_test(test_columns), cmocka_unit_test(test_activations),
        cmocka_unit_test(test_logits),  cmocka_unit_test(test_optimizer),
        cmocka_unit_test(test_threads), cmocka_unit_test(test_adam_decides),
        cmocka_unit_test(test_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
