/*
 * test_attention.c - attend and attend_bwd of the CPU backend, every ISA this machine has, against
 * a plain version in double whose gradient is itself checked by finite differences.
 *
 * q, k and v are column views of one matrix, as in self-attention, with a gap after the last
 * column; everything that an op does not own is filled with MARK and must still hold it afterwards.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "ops/bf16.h"
#include "ops/cpu/attention.h"
#include "ops/cpu/cpu.h"
#include "ops/drop.h"

#define MARK 776.0 /* exact in bf16 */
enum { GAP = 5, MAX_SENTENCES = 16 };

/* The i-th ISA of this machine; NULL after the last. */
static const struct attend_kernels *isa_at(int i)
{
    struct cpuid c = isa_read();
    enum isa_level best = isa_best(&c).level, level = ISA_BASELINE;
    for (; level < ISA_LEVELS; level++)
        if (isa_includes(best, level) && i-- == 0) return isa_kernels(level)->attend;
    return NULL;
}

/* The parts of a backend that attention needs */
enum { MOST_THREADS = 5 };
static struct cpu cpu_with(const struct attend_kernels *k, int threads)
{
    static _Alignas(4096) char work[MOST_THREADS][ATTEND_WORK];
    assert_true(threads <= MOST_THREADS);
    return (struct cpu){.threads = threads, .attend = k, .attend_work = work[0]};
}

/* ---- matrices of a type, filled and read as doubles ---- */

static void put(struct mat m, int r, int c, double x)
{
    float f = (float)x;
    double d = f; /* of a wide matrix too the numbers are those of f32 */
    if (m.type == TYPE_F64) {
        memcpy(mat_at(m, r, c), &d, sizeof d);
        return;
    }
    if (m.type == TYPE_F32) {
        memcpy(mat_at(m, r, c), &f, sizeof f);
        return;
    }
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    uint16_t h = (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    memcpy(mat_at(m, r, c), &h, sizeof h);
}

static double get(struct mat m, int r, int c)
{
    float f;
    uint32_t u = 0;
    if (m.type == TYPE_F64) {
        double d;
        memcpy(&d, mat_at(m, r, c), sizeof d);
        return d;
    }
    if (m.type == TYPE_F32) {
        memcpy(&f, mat_at(m, r, c), sizeof f);
        return f;
    }
    memcpy((char *)&u + 2, mat_at(m, r, c), 2);
    memcpy(&f, &u, sizeof f);
    return f;
}

static size_t mat_bytes(struct mat m)
{
    return (size_t)m.rows * m.ld * type_size(m.type);
}

static struct mat mat_new(int rows, int cols, enum type t)
{
    struct mat m = mat_make(NULL, rows, cols, t);
    m.p = malloc(mat_bytes(m) + 1);
    assert_non_null(m.p);
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++) put(m, r, c, MARK);
    return m;
}

/* ---- a case and its memory ---- */

struct shape {
    const char *name;
    int heads, dk, dv;
    int n, nq[MAX_SENTENCES], nk[MAX_SENTENCES];
    bool causal;
    float drop;
    bool integers; /* q and k are small whole numbers: large scores, exact in f32 */
};

struct data {
    struct attention a;
    struct attention_grad g;
    struct mat in, grad; /* what q, k, v and dq, dk, dv are views of */
    int32_t q[MAX_SENTENCES + 1], k[MAX_SENTENCES];
};

static void data_free(struct data *d)
{
    free(d->in.p), free(d->grad.p), free(d->a.o.p), free(d->a.lse.p), free(d->g.dout.p);
    free(d->a.relative_k.p), free(d->a.relative_v.p), free(d->a.additive.p);
    free(d->g.drelative_k.p), free(d->g.drelative_v.p), free(d->g.dadditive.p);
}

static void fill(struct mat m, uint64_t *seed, bool integers)
{
    for (int r = 0; r < m.rows; r++)
        for (int c = 0; c < m.cols; c++)
            put(m, r, c,
                integers ? (double)random_below(seed, 17) - 8 : 3 * (random_unit(seed) - 0.5));
}

/* Keys of the sentences are stored in reverse order, with an unused row between them. */
static void data_init(struct data *d, const struct shape *s, enum type t)
{
    int nk = 0;
    uint64_t seed = 11;
    memset(d, 0, sizeof *d);
    struct seqs *q = &d->a.seqs;
    *q = (struct seqs){.n = s->n, .q = d->q, .k = d->k, .klen = s->nk, .causal = s->causal};
    for (int b = 0; b < s->n; b++) {
        d->q[b + 1] = d->q[b] + s->nq[b];
        q->max_q = s->nq[b] > q->max_q ? s->nq[b] : q->max_q;
        q->max_k = s->nk[b] > q->max_k ? s->nk[b] : q->max_k;
    }
    for (int b = s->n - 1; b >= 0; b--) d->k[b] = nk, nk += s->nk[b] + 1;
    int nq = d->q[s->n], rows = nq > nk ? nq : nk;
    int dk = s->heads * s->dk, dv = s->heads * s->dv;
    d->in = mat_new(rows, 2 * dk + dv + GAP, t);
    d->grad = mat_new(rows, 2 * dk + dv + GAP, t);
    d->a.heads = s->heads;
    d->a.drop = (struct drop){s->drop, 5, 9};
    d->a.q = mat_rows(mat_cols(d->in, 0, dk), 0, nq);
    d->a.k = mat_rows(mat_cols(d->in, dk, dk), 0, nk);
    d->a.v = mat_rows(mat_cols(d->in, 2 * dk, dv), 0, nk);
    d->a.o = mat_new(nq, dv, t);
    d->a.lse = mat_new(nq, s->heads, t == TYPE_F64 ? TYPE_F64 : TYPE_F32);
    d->g.dq = mat_rows(mat_cols(d->grad, 0, dk), 0, nq);
    d->g.dk = mat_rows(mat_cols(d->grad, dk, dk), 0, nk);
    d->g.dv = mat_rows(mat_cols(d->grad, 2 * dk, dv), 0, nk);
    d->g.dout = mat_new(nq, dv, t);
    fill(d->a.q, &seed, s->integers);
    fill(d->a.k, &seed, s->integers);
    fill(d->a.v, &seed, false);
    fill(d->g.dout, &seed, false);
}

static void run(struct data *d, const struct attend_kernels *k, int threads)
{
    struct cpu cpu = cpu_with(k, threads);
    cpu_attend(&cpu.base, &d->a);
    cpu_attend_bwd(&cpu.base, &d->a, &d->g);
    free(cpu.tables);
}

/* ---- the plain version, in double ---- */

struct plain {
    int nq, nk, dk, dv; /* rows; columns of all heads */
    double *q, *k, *v, *o, *lse, *dout, *dq, *dkey, *dval;
};

static double *grid(int rows, int cols)
{
    double *p = calloc((size_t)rows * cols + 1, sizeof *p);
    assert_non_null(p);
    return p;
}

static double *read_mat(struct mat m)
{
    double *p = grid(m.rows, m.cols);
    for (int r = 0; r < m.rows; r++)
        for (int c = 0; c < m.cols; c++) p[(size_t)r * m.cols + c] = get(m, r, c);
    return p;
}

static struct plain plain_new(const struct data *d)
{
    const struct attention *a = &d->a;
    struct plain p = {.nq = a->q.rows, .nk = a->k.rows, .dk = a->q.cols, .dv = a->v.cols};
    p.q = read_mat(a->q), p.k = read_mat(a->k), p.v = read_mat(a->v);
    p.dout = read_mat(d->g.dout);
    p.o = grid(p.nq, p.dv), p.lse = grid(p.nq, a->heads), p.dq = grid(p.nq, p.dk);
    p.dkey = grid(p.nk, p.dk), p.dval = grid(p.nk, p.dv);
    return p;
}

static void plain_free(struct plain *p)
{
    free(p->q), free(p->k), free(p->v), free(p->o), free(p->lse), free(p->dout), free(p->dq);
    free(p->dkey), free(p->dval);
}

static double dot(const double *x, const double *y, int n)
{
    double s = 0;
    for (int c = 0; c < n; c++) s += x[c] * y[c];
    return s;
}

/* One query of one head: w[j] its weights before dropout, keep[j] their dropout factors; returns
 * how many keys it sees. */
static int plain_weights(const struct plain *p, const struct attention *a, int b, int h, int i,
                         double *w, double *keep)
{
    int dk = p->dk / a->heads, nq = a->seqs.q[b + 1] - a->seqs.q[b], nk = a->seqs.klen[b];
    int row = a->seqs.q[b] + i, seen = a->seqs.causal ? nk - nq + i + 1 : nk;
    double top = -INFINITY, sum = 0;
    for (int j = 0; j < seen; j++) {
        const double *key = p->k + (size_t)(a->seqs.k[b] + j) * p->dk + h * dk;
        w[j] = dot(p->q + (size_t)row * p->dk + h * dk, key, dk) / sqrt(dk);
        top = fmax(top, w[j]);
    }
    for (int j = 0; j < seen; j++) sum += w[j] = exp(w[j] - top);
    struct drop_row d = drop_row(a->drop, (uint64_t)row * a->heads + h);
    for (int j = 0; j < seen; j++) {
        w[j] /= sum;
        keep[j] = a->drop.p > 0 ? drop_factor(d, j) : 1;
    }
    p->lse[(size_t)row * a->heads + h] = top + log(sum);
    return seen > 0 ? seen : 0;
}

static void plain_head(struct plain *p, const struct attention *a, int b, int h, bool backward)
{
    int dk = p->dk / a->heads, dv = p->dv / a->heads, nk = a->seqs.klen[b];
    double w[nk + 1], keep[nk + 1];
    for (int i = 0; i < a->seqs.q[b + 1] - a->seqs.q[b]; i++) {
        size_t row = a->seqs.q[b] + i;
        int seen = plain_weights(p, a, b, h, i, w, keep);
        double *o = p->o + row * p->dv + h * dv, *dq = p->dq + row * p->dk + h * dk;
        const double *dout = p->dout + row * p->dv + h * dv, *q = p->q + row * p->dk + h * dk;
        memset(o, 0, dv * sizeof *o);
        for (int j = 0; j < seen; j++) {
            const double *v = p->v + (size_t)(a->seqs.k[b] + j) * p->dv + h * dv;
            for (int c = 0; c < dv; c++) o[c] += w[j] * keep[j] * v[c];
        }
        for (int j = 0; backward && j < seen; j++) {
            size_t key = a->seqs.k[b] + j;
            double dp = dot(dout, p->v + key * p->dv + h * dv, dv) * keep[j];
            double ds = w[j] * (dp - dot(dout, o, dv)) / sqrt(dk);
            for (int c = 0; c < dv; c++)
                p->dval[key * p->dv + h * dv + c] += w[j] * keep[j] * dout[c];
            for (int c = 0; c < dk; c++) {
                dq[c] += ds * p->k[key * p->dk + h * dk + c];
                p->dkey[key * p->dk + h * dk + c] += ds * q[c];
            }
        }
    }
}

static void plain_run(struct plain *p, const struct attention *a, bool backward)
{
    for (int b = 0; b < a->seqs.n; b++)
        for (int h = 0; h < a->heads; h++) plain_head(p, a, b, h, backward);
}

/* ---- comparing ---- */

/* Largest difference from want, in units of the largest of want (at least 0.01). Unused rows must
 * still hold MARK. */
static double worst(struct mat m, const double *want, const bool *owned)
{
    double top = 0.01, off = 0;
    for (size_t i = 0; i < (size_t)m.rows * m.cols; i++)
        if (isfinite(want[i])) top = fmax(top, fabs(want[i]));
    for (int r = 0; r < m.rows; r++)
        for (int c = 0; c < m.cols; c++) {
            double x = get(m, r, c), y = want[(size_t)r * m.cols + c];
            if (owned && !owned[r])
                assert_true(x == MARK);
            else if (isfinite(y))
                off = fmax(off, isfinite(x) ? fabs(x - y) / top : INFINITY);
            else
                assert_true(x == y);
        }
    return off;
}

static void assert_near(const struct shape *s, const char *isa, const char *what, double off,
                        double limit)
{
    if (!(off <= limit))
        fail_msg("%s, %s: %s is off by %.2e, at most %.2e expected", s->name, isa, what, off,
                 limit);
}

static void check_gap(struct mat m)
{
    for (int r = 0; r < m.rows; r++)
        for (int c = m.cols - GAP; c < m.cols; c++) {
            assert_true(get(m, r, c) == MARK);
        }
}

static void check_shape(const struct shape *s, enum type t)
{
    /* bf16: a result is rounded by 2^-9 of itself, and dq, dk also see o rounded */
    double limit = t == TYPE_F32 ? 1e-5 : 1e-2;
    struct data d;
    data_init(&d, s, t);
    struct plain p = plain_new(&d);
    plain_run(&p, &d.a, true);
    bool *owned = calloc(p.nk + 1, 1);
    assert_non_null(owned);
    for (int b = 0; b < s->n; b++) memset(owned + d.k[b], true, s->nk[b]);
    data_free(&d);
    for (int i = 0; isa_at(i); i++) {
        const char *isa = isa_at(i)->isa;
        data_init(&d, s, t);
        run(&d, isa_at(i), 2);
        assert_near(s, isa, "o", worst(d.a.o, p.o, NULL), limit);
        assert_near(s, isa, "lse", worst(d.a.lse, p.lse, NULL), 1e-5);
        assert_near(s, isa, "dq", worst(d.g.dq, p.dq, NULL), limit);
        assert_near(s, isa, "dk", worst(d.g.dk, p.dkey, owned), limit);
        assert_near(s, isa, "dv", worst(d.g.dv, p.dval, owned), limit);
        check_gap(d.grad);
        data_free(&d);
    }
    free(owned);
    plain_free(&p);
}

#define LENGTHS                                                                                    \
    {                                                                                              \
        0, 1, 2, 15, 16, 17, 31, 33, 100, 0, 300                                                   \
    }
#define OTHERS                                                                                     \
    {                                                                                              \
        3, 0, 17, 33, 1, 100, 15, 31, 2, 0, 129                                                    \
    }

static const struct shape shapes[] = {
    {"self, 1x4", 1, 4, 4, 11, LENGTHS, LENGTHS, false, 0, false},
    {"self, 2x8", 2, 8, 8, 11, LENGTHS, LENGTHS, false, 0.3f, false},
    {"self, 2x20", 2, 20, 20, 9, LENGTHS, LENGTHS, false, 0, false},
    {"self, 8x32", 8, 32, 32, 9, LENGTHS, LENGTHS, false, 0.1f, false},
    {"self, 2x64", 2, 64, 64, 11, LENGTHS, LENGTHS, false, 0, false},
    {"self, 1x128", 1, 128, 128, 11, LENGTHS, LENGTHS, false, 0.1f, false},
    {"causal, 2x4", 2, 4, 4, 11, LENGTHS, LENGTHS, true, 0, false},
    {"causal, 1x20", 1, 20, 20, 11, LENGTHS, LENGTHS, true, 0.1f, false},
    {"causal, 2x64", 2, 64, 64, 11, LENGTHS, LENGTHS, true, 0.1f, false},
    {"causal, 1x128", 1, 128, 128, 11, LENGTHS, LENGTHS, true, 0, false},
    {"cross, 8x8", 8, 8, 8, 11, LENGTHS, OTHERS, false, 0, false},
    {"cross, 2x32", 2, 32, 32, 11, LENGTHS, OTHERS, false, 0.5f, false},
    {"cross, 2x64", 2, 64, 64, 11, OTHERS, LENGTHS, false, 0.1f, false},
    {"more queries than keys, causal", 2, 32, 32, 11, LENGTHS, OTHERS, true, 0, false},
    {"narrow values", 2, 24, 9, 11, LENGTHS, OTHERS, false, 0, false},
    {"wide values", 2, 9, 40, 11, OTHERS, LENGTHS, true, 0, false},
    {"cached", 4, 64, 64, 7, {1, 1, 3, 1, 3, 3, 1}, {1, 30, 30, 16, 3, 200, 300}, true, 0, false},
    {"large scores", 2, 64, 64, 11, LENGTHS, LENGTHS, false, 0, true},
    {"large scores, causal", 2, 4, 4, 11, LENGTHS, LENGTHS, true, 0.1f, true},
    {"widest head", 1, HEAD_WIDTH_MAX, 520, 2, {9, 33}, {40, 33}, true, 0, false},
};

static void test_f32(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check_shape(&shapes[i], TYPE_F32);
}

static void test_bf16(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check_shape(&shapes[i], TYPE_BF16);
}

/* The gradient of sum(o * dout) by moving one input at a time. */
static void check_slope(struct plain *p, const struct attention *a, double *x, const double *dx,
                        int n)
{
    const double step = 1e-5;
    for (int i = 0; i < n; i++) {
        double keep = x[i], up, down;
        x[i] = keep + step;
        plain_run(p, a, false);
        up = dot(p->o, p->dout, p->nq * p->dv);
        x[i] = keep - step;
        plain_run(p, a, false);
        down = dot(p->o, p->dout, p->nq * p->dv);
        x[i] = keep;
        assert_true(fabs((up - down) / (2 * step) - dx[i]) < 1e-7);
    }
}

static void test_plain_gradient(void **state)
{
    (void)state;
    const struct shape s = {"slopes", 2, 3, 4, 3, {3, 1, 4}, {5, 2, 3}, true, 0.2f, false};
    struct data d;
    data_init(&d, &s, TYPE_F32);
    struct plain p = plain_new(&d);
    plain_run(&p, &d.a, true);
    check_slope(&p, &d.a, p.q, p.dq, p.nq * p.dk);
    check_slope(&p, &d.a, p.k, p.dkey, p.nk * p.dk);
    check_slope(&p, &d.a, p.v, p.dval, p.nk * p.dv);
    plain_free(&p);
    data_free(&d);
}

static void test_threads(void **state)
{
    (void)state;
    const int threads[] = {2, 5};
    for (int i = 0; isa_at(i); i++)
        for (int j = 0; j < 2; j++) {
            struct data one, many;
            data_init(&one, &shapes[8], TYPE_F32);
            data_init(&many, &shapes[8], TYPE_F32);
            run(&one, isa_at(i), 1);
            run(&many, isa_at(i), threads[j]);
            assert_memory_equal(one.a.o.p, many.a.o.p, mat_bytes(one.a.o));
            assert_memory_equal(one.a.lse.p, many.a.lse.p, mat_bytes(one.a.lse));
            assert_memory_equal(one.grad.p, many.grad.p, mat_bytes(one.grad));
            data_free(&one);
            data_free(&many);
        }
}

/* ---- forms of attention besides the paper's, over several tiles ---- */

/* Windows are narrower and wider than a tile of keys, and end within tiles. */
static const struct form {
    int window, global;
    bool alibi, relative, additive;
} forms[] = {
    {0},
    {.window = 5},
    {.window = 40, .global = 3},
    {.window = 150, .global = 130},
    {.alibi = true},
    {.relative = true},
    {.window = 33, .alibi = true, .relative = true},
    {.additive = true},
    {.window = 20, .global = 1, .alibi = true, .additive = true},
};
enum { FORMS = sizeof forms / sizeof *forms, DISTANCES = 33 };

static struct mat parameter_new(int rows, int cols, enum type t, uint64_t *seed)
{
    struct mat m = mat_new(rows, cols, t);
    fill(m, seed, false);
    return m;
}

static void data_init_form(struct data *d, const struct shape *s, enum type t, struct form f)
{
    uint64_t seed = 3;
    data_init(d, s, t);
    d->a.window = f.window, d->a.global = f.global, d->a.alibi = f.alibi;
    if (f.relative) {
        d->a.relative_k = parameter_new(DISTANCES, s->dk, TYPE_F32, &seed);
        d->a.relative_v = parameter_new(DISTANCES, s->dv, TYPE_F32, &seed);
        d->g.drelative_k = parameter_new(DISTANCES, s->dk, t, &seed);
        d->g.drelative_v = parameter_new(DISTANCES, s->dv, t, &seed);
    }
    if (f.additive) {
        d->a.additive = parameter_new(s->heads, s->dk, TYPE_F32, &seed);
        d->g.dadditive = parameter_new(s->heads, s->dk, t, &seed);
    }
}

/* Largest difference from a wide matrix, as in worst(); 0 where there is none. */
static double worst_wide(struct mat m, struct mat want)
{
    if (!m.p) return 0;
    double *wide = read_mat(want), off = worst(m, wide, NULL);
    free(wide);
    return off;
}

/* Every form against the reference in double, and with several threads to the last bit. */
static void check_form(const struct shape *s, struct form f)
{
    struct backend *ref;
    struct heed_error err;
    struct data want, one, many;
    assert_int_equal(ref_open(&ref, &err), HEED_OK);
    data_init_form(&want, s, TYPE_F64, f);
    ref->op->attend(ref, &want.a);
    ref->op->attend_bwd(ref, &want.a, &want.g);
    ref->op->close(ref);
    for (int i = 0; isa_at(i); i++) {
        const char *isa = isa_at(i)->isa;
        data_init_form(&one, s, TYPE_F32, f);
        data_init_form(&many, s, TYPE_F32, f);
        run(&one, isa_at(i), 1);
        run(&many, isa_at(i), 3);
        struct {
            const char *name;
            struct mat found, want, many;
        } list[] = {{"o", one.a.o, want.a.o, many.a.o},
                    {"lse", one.a.lse, want.a.lse, many.a.lse},
                    {"dq, dk or dv", one.grad, want.grad, many.grad},
                    {"drelative_k", one.g.drelative_k, want.g.drelative_k, many.g.drelative_k},
                    {"drelative_v", one.g.drelative_v, want.g.drelative_v, many.g.drelative_v},
                    {"dadditive", one.g.dadditive, want.g.dadditive, many.g.dadditive}};
        for (size_t k = 0; k < sizeof list / sizeof *list; k++) {
            assert_near(s, isa, list[k].name, worst_wide(list[k].found, list[k].want), 1e-5);
            if (list[k].found.p)
                assert_memory_equal(list[k].found.p, list[k].many.p, mat_bytes(list[k].found));
        }
        data_free(&one), data_free(&many);
    }
    data_free(&want);
}

static void test_forms(void **state)
{
    (void)state;
    const struct shape whole = {"forms",      2,     24,   40,   3, {300, 1, 40},
                                {300, 1, 40}, false, 0.1f, false};
    const struct shape causal = {"forms, causal", 2,    40, 24,   3, {270, 33, 2},
                                 {290, 33, 150},  true, 0,  false};
    for (int f = 0; f < FORMS; f++) check_form(&whole, forms[f]), check_form(&causal, forms[f]);
}

/* Attention of a causal sentence query by query over a growing KV cache gives the same bytes as all
 * at once. */
static void check_cached_is_whole(struct form f)
{
    const int length = 150;
    const struct shape s = {"cache", 2, 64, 64, 1, {length}, {length}, true, 0, false};
    for (int i = 0; isa_at(i); i++) {
        struct data whole;
        data_init_form(&whole, &s, TYPE_F32, f);
        run(&whole, isa_at(i), 1);
        struct attention step = whole.a;
        step.o = mat_new(length, whole.a.o.cols, TYPE_F32);
        step.lse = (struct mat){0};
        for (int32_t at = 0; at < length; at++) {
            const int32_t q[] = {at, at + 1}, k = 0, klen = at + 1;
            struct cpu cpu = cpu_with(isa_at(i), 1);
            step.seqs = (struct seqs){
                .n = 1, .q = q, .k = &k, .klen = &klen, .max_q = 1, .max_k = klen, .causal = true};
            cpu_attend(&cpu.base, &step);
            free(cpu.tables);
        }
        assert_memory_equal(step.o.p, whole.a.o.p, mat_bytes(step.o));
        free(step.o.p);
        data_free(&whole);
    }
}

static void test_cached_is_whole(void **state)
{
    (void)state;
    for (int f = 0; f < FORMS; f++) check_cached_is_whole(forms[f]);
}

/* Keys in any place, found by a table, give the same bytes as keys one after another. */
static void test_table(void **state)
{
    (void)state;
    for (int i = 0; isa_at(i); i++)
        for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++)
            for (enum type t = TYPE_F32; t <= TYPE_BF16; t++) {
                struct data d;
                data_init(&d, &shapes[n], t);
                run(&d, isa_at(i), 1);
                int rows = d.a.k.rows;
                struct attention b = d.a;
                struct mat k = mat_new(rows, b.k.cols, t), v = mat_new(rows, b.v.cols, t);
                int32_t *at = malloc((rows + 1) * sizeof *at);
                for (int r = 0; r < rows; r++) {
                    at[r] = rows - 1 - r;
                    memcpy(mat_at(k, at[r], 0), mat_at(b.k, r, 0), k.cols * type_size(t));
                    memcpy(mat_at(v, at[r], 0), mat_at(b.v, r, 0), v.cols * type_size(t));
                }
                b.k = k, b.v = v, b.seqs.at = at;
                b.o = mat_new(b.o.rows, b.o.cols, t);
                struct cpu cpu = cpu_with(isa_at(i), 1);
                cpu_attend(&cpu.base, &b);
                for (int r = 0; r < b.o.rows; r++)
                    assert_memory_equal(mat_at(b.o, r, 0), mat_at(d.a.o, r, 0),
                                        b.o.cols * type_size(t));
                free(k.p), free(v.p), free(b.o.p), free(at);
                data_free(&d);
            }
}

/* A NaN in the input must show in the output. */
static void test_nan_is_seen(void **state)
{
    (void)state;
    const struct shape s = {"nan", 1, 16, 16, 1, {20}, {20}, false, 0, false};
    for (int i = 0; isa_at(i); i++) {
        struct data d;
        data_init(&d, &s, TYPE_F32);
        put(d.a.k, 3, 5, NAN);
        run(&d, isa_at(i), 1);
        assert_true(isnan(get(d.a.o, 0, 0)) && isnan(get(d.a.lse, 19, 0)));
        data_free(&d);
    }
}

/* Queries of a short tile, which is computed for several heads at once, have the bits that they
 * have in a long tile and in a call for one head. */
static void test_heads_together(void **state)
{
    enum { HEADS = 12, KV = 3, WIDTH = 40, KEYS = 150, QUERIES = 7 };
    static float q[QUERIES][HEADS * WIDTH], all[QUERIES][HEADS * WIDTH],
        few[QUERIES][HEADS * WIDTH];
    static uint16_t kv[KEYS][2 * KV * WIDTH];
    static _Alignas(4096) char work[ATTEND_WORK];
    int32_t at[KEYS], rows[] = {0, QUERIES}, first[] = {0}, klen[] = {0};
    uint64_t seed = 1;
    (void)state;
    for (int i = 0; i < QUERIES * HEADS * WIDTH; i++)
        q[i / (HEADS * WIDTH)][i % (HEADS * WIDTH)] = (float)random_unit(&seed) - 0.5f;
    for (int i = 0; i < KEYS * 2 * KV * WIDTH; i++)
        kv[i / (2 * KV * WIDTH)][i % (2 * KV * WIDTH)] =
            bf16_from_float((float)random_unit(&seed) - 0.5f);
    for (int i = 0; i < KEYS; i++) at[i] = KEYS - 1 - i;
    struct mat k = {kv, KEYS, KV * WIDTH, 2 * KV * WIDTH, TYPE_BF16}, v = k;
    v.p = kv[0] + KV * WIDTH;
    struct attention a = {.q = {q, QUERIES, HEADS * WIDTH, HEADS * WIDTH, TYPE_F32},
                          .k = k,
                          .v = v,
                          .heads = HEADS,
                          .kv_heads = KV,
                          .seqs = {1, rows, first, klen, QUERIES, KEYS, .at = at}};
    const struct attend_kernels *kernels;
    for (int isa = 0; (kernels = isa_at(isa)); isa++)
        for (int form = 0; form < 3; form++)
            for (int n = 1; n <= KEYS; n += n < 20 ? 1 : 43) {
                klen[0] = n;
                a.alibi = form == 1, a.window = form == 2 ? 5 : 0;
                a.seqs.causal = form != 0 && n >= QUERIES;
                a.o = (struct mat){all, QUERIES, HEADS * WIDTH, HEADS * WIDTH, TYPE_F32};
                for (int h = 0; h < HEADS; h++)
                    kernels->forward(&a, &(struct attend_tables){0}, 0, h, 1, 0, QUERIES, work);
                a.o.p = few;
                for (int i = 0, m = 1; i < QUERIES; i += m, m++)
                    kernels->forward(&a, &(struct attend_tables){0}, 0, 0, HEADS, i,
                                     i + m < QUERIES ? i + m : QUERIES, work);
                assert_memory_equal(all, few, sizeof all);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads_together),
        cmocka_unit_test(test_f32),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_plain_gradient),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_cached_is_whole),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_nan_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
