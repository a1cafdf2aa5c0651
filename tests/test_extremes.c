/*
 * test_extremes.c - numbers that hold: attention with scores of 1e4 of either sign, with queries
 * that see no key, and every form of the model on sentences of one token and of max_length tokens,
 * in f32 and bf16, against the reference. On every instruction set of this CPU, or on a device: see
 * device.h.
 */
#include <math.h>
#include <stdio.h>

#include "device.h"
#include "ops/bf16.h"
#include "toy.h"
#include "variants.h"

/* The first is on every machine. */
static const char *const cpus[] = {"cpu:baseline", "cpu:avx2", "cpu:avx512", "cpu:amx",
                                   "cpu:dotprod",  "cpu:i8mm", NULL};

/* Runs a check on the device, or on each instruction set of this CPU. */
static void on_each(void (*check)(const char *device, const void *what), const void *what)
{
    const char *const named[] = {device_named(), NULL};
    for (const char *const *device = *named ? named : cpus; *device; device++) {
        struct heed_error err = {0};
        struct backend *be;
        enum heed_status status = backend_open(&be, *device, 2, &err);
        if (status == HEED_EUNSUPPORTED && !*named && device != cpus) continue;
        if (status) fail_msg("%s", err.text);
        be->op->close(be);
        check(*device, what);
    }
}

/* ---- attention alone ---- */

enum {
    HEADS = 2,
    WIDEST = 64,
    SENTENCES = 4,
    ROWS = 320,
    CELLS = ROWS * HEADS * WIDEST,
    DISTANCES = 5, /* of `relative`: -2 to 2 */
    TABLE = DISTANCES * WIDEST
};

/* Forms of attention; see ops.h. */
struct form {
    const char *name;
    int window, global;
    bool alibi, relative, additive;
};
static const struct form forms[] = {
    {.name = "full"},
    {.name = "window", .window = 2, .global = 1},
    {.name = "alibi", .alibi = true},
    {.name = "relative", .relative = true},
    {.name = "additive", .additive = true},
    {.name = "window, alibi and relative", .window = 40, .alibi = true, .relative = true},
};
enum { FORMS = sizeof forms / sizeof *forms };

/* Sentences of some queries and keys each. */
struct scene {
    const char *name;
    int queries[SENTENCES], keys[SENTENCES];
    bool causal;
    bool steep;  /* scores of 1e4 of either sign; otherwise of about 1 */
    bool listed; /* forward finds the keys through a table, as in a decoding step */
    int width;   /* of a head, at most WIDEST; set by test_scene, as is the form */
    const struct form *form;
};

/* Long sentences are several tiles of keys for every backend. */
static const struct scene scenes[] = {
    {"scores of 1e4", {5, 1, 20, 1}, {7, 3, 150, 1}, .steep = true},
    {"scores of 1e4, causal", {7, 1, 40, 2}, {7, 3, 150, 150}, .causal = true, .steep = true},
    {"no keys", {5, 1, 20, 3}, {0, 3, 0, 150}, .causal = false},
    {"fewer keys than queries", {7, 2, 40, 10}, {2, 1, 5, 0}, .causal = true},
    {"scores of 1e4, single queries", {1, 1, 1, 1}, {7, 3, 150, 1}, .causal = true, .steep = true},
    {"no keys, single queries", {1, 1, 1, 1}, {7, 0, 150, 0}, .causal = false},
    {"scores of 1e4, table of keys", {1, 1, 2, 1}, {7, 3, 150, 1}, .steep = true, .listed = true},
    {"no keys, table of keys", {1, 1, 1, 1}, {7, 0, 150, 0}, .listed = true},
};
enum { SCENES = sizeof scenes / sizeof *scenes };

/* All arrays of an attention and of its gradients, in double. */
struct numbers {
    double q[CELLS], k[CELLS], v[CELLS], dout[CELLS];
    double o[CELLS], lse[ROWS * HEADS], weights[ROWS * HEADS * ROWS];
    double dq[CELLS], dk[CELLS], dv[CELLS];
    double relative_k[TABLE], relative_v[TABLE], additive[HEADS * WIDEST];
    double drelative_k[TABLE], drelative_v[TABLE], dadditive[HEADS * WIDEST];
};

static double rounded(double x, enum type type)
{
    return type == TYPE_BF16 ? (double)bf16_to_float(bf16_from_float((float)x)) : (double)(float)x;
}

/* Eighths from -1 to 1, which every type has. */
static double eighths(uint64_t *seed)
{
    return (double)random_below(seed, 17) / 8 - 1;
}

/* What the forms of attention need. Where a score is steep, these too make it no less exact: only
 * the first column of relative_k counts, and tanh of the other columns is 0 or 1. */
static void forms_draw(struct numbers *x, const struct scene *s, uint64_t *seed)
{
    for (int i = 0; i < DISTANCES * s->width; i++) {
        bool fine = i % s->width == 0;
        x->relative_k[i] = fine || !s->steep ? eighths(seed) : 0;
        x->relative_v[i] = fine ? 0 : eighths(seed);
        x->drelative_k[i] = x->drelative_v[i] = 0;
    }
    for (int i = 0; i < HEADS * s->width; i++) {
        x->additive[i] = i % s->width == 0 || !s->steep ? eighths(seed) : 700;
        x->dadditive[i] = 0;
    }
}

/* Inputs that the type has without rounding, and outputs that are NaN until they are written. A
 * steep score is exact in every type: q and k are small whole numbers, and sqrt(width) is a power
 * of two. One column is worth up to 1 of a score, so that several keys share the weight; the others
 * make it more than 1e4 or less than -1e4. Of the first 128 keys all scores have one sign, later
 * the sign changes. */
static void numbers_draw(struct numbers *x, const struct scene *s, enum type type)
{
    uint64_t seed = 3;
    double *all = (double *)x, side = s->width == 16 ? 52 : 36;
    for (size_t i = 0; i < sizeof *x / sizeof *all; i++) all[i] = (double)NAN;
    forms_draw(x, s, &seed);
    for (int i = 0; i < ROWS * HEADS * s->width; i++) {
        int row = i / (HEADS * s->width);
        bool fine = i % s->width == 0, low = row < 128 || row % 128 == 3;
        x->q[i] = rounded(random_unit(&seed) * 2 - 1, type);
        x->k[i] = rounded(random_unit(&seed) * 2 - 1, type);
        /* where v is 1, o is the sum of the weights */
        x->v[i] = fine ? 1 : rounded(random_unit(&seed) * 2 - 1, type);
        x->dout[i] = rounded(random_unit(&seed) * 2 - 1, type);
        if (!s->steep) continue;
        x->q[i] = fine ? 1 : row % 2 ? -side : side;
        x->k[i] = fine ? row % 5 : low ? -side : side;
    }
}

/* The numbers of a matrix on a backend, in its type, and back. */
static struct mat matrix_put(struct backend *be, const double *from, int rows, int cols,
                             enum type type)
{
    struct heed_error err = {0};
    size_t n = (size_t)rows * cols;
    void *host = malloc(n * 8), *p = NULL;
    assert_non_null(host);
    for (size_t i = 0; i < n; i++) {
        if (type == TYPE_F64) ((double *)host)[i] = from[i];
        if (type == TYPE_F32) ((float *)host)[i] = (float)from[i];
        if (type == TYPE_BF16) ((uint16_t *)host)[i] = bf16_from_float((float)from[i]);
    }
    assert_int_equal(be->op->alloc(be, &p, n * type_size(type), USED_WHOLE, &err), HEED_OK);
    be->op->upload(be, p, host, n * type_size(type));
    assert_int_equal(be->op->sync(be, &err), HEED_OK);
    free(host);
    return mat_make(p, rows, cols, type);
}

static void matrix_take(struct backend *be, struct mat m, double *to)
{
    struct heed_error err = {0};
    size_t n = (size_t)m.rows * m.cols;
    void *host = malloc(n * 8);
    assert_non_null(host);
    be->op->download(be, host, m.p, n * type_size(m.type));
    if (be->op->sync(be, &err)) fail_msg("%s", err.text);
    for (size_t i = 0; i < n; i++) {
        if (m.type == TYPE_F64) to[i] = ((double *)host)[i];
        if (m.type == TYPE_F32) to[i] = (double)((float *)host)[i];
        if (m.type == TYPE_BF16) to[i] = (double)bf16_to_float(((uint16_t *)host)[i]);
    }
    be->op->free(be, m.p);
    free(host);
}

/* Where the sentences of a scene begin, and their lengths. */
struct places {
    int32_t q[SENTENCES + 1], k[SENTENCES], klen[SENTENCES];
    int32_t at[ROWS]; /* the table of keys: each is where it would be without one */
};

static struct seqs scene_seqs(const struct scene *s, struct places *p, struct backend *be)
{
    struct seqs seqs = {.n = SENTENCES, .causal = s->causal};
    struct heed_error err = {0};
    void *device = NULL;
    *p = (struct places){0};
    for (int b = 0; b < SENTENCES; b++) {
        p->q[b + 1] = p->q[b] + s->queries[b];
        p->klen[b] = s->keys[b];
        if (b) p->k[b] = p->k[b - 1] + s->keys[b - 1];
        if (s->queries[b] > seqs.max_q) seqs.max_q = s->queries[b];
        if (s->keys[b] > seqs.max_k) seqs.max_k = s->keys[b];
    }
    for (int i = 0; i < ROWS; i++) p->at[i] = i;
    assert_int_equal(be->op->alloc(be, &device, sizeof *p, USED_WHOLE, &err), HEED_OK);
    be->op->upload(be, device, p, sizeof *p);
    const struct places *there = device;
    seqs.q = there->q, seqs.k = there->k, seqs.klen = there->klen;
    return seqs;
}

/* Forward of a scene on a backend: writes o, lse and weights. Backward: from o and lse, the
 * gradients. plain: the type of what is not an activation. */
static void attend_on(struct backend *be, const struct scene *s, struct numbers *x, bool backward,
                      enum type type, enum type plain)
{
    const struct form *f = s->form;
    struct places places;
    int cols = HEADS * s->width;
    struct seqs seqs = scene_seqs(s, &places, be);
    enum { Q, K, V, O, LSE, WEIGHTS, DQ, DK, DV, DOUT, RK, RV, DRK, DRV, ADDITIVE, DADDITIVE, ALL };
    struct mat m[ALL];
    const struct {
        double *x;
        int rows, cols;
        enum type type;
    } array[ALL] = {
        [Q] = {x->q, ROWS, cols, type},
        [K] = {x->k, ROWS, cols, type},
        [V] = {x->v, ROWS, cols, type},
        [O] = {x->o, ROWS, cols, type},
        [LSE] = {x->lse, ROWS, HEADS, plain},
        [WEIGHTS] = {x->weights, ROWS * HEADS, ROWS, plain},
        [DQ] = {x->dq, ROWS, cols, type},
        [DK] = {x->dk, ROWS, cols, type},
        [DV] = {x->dv, ROWS, cols, type},
        [DOUT] = {x->dout, ROWS, cols, type},
        [RK] = {x->relative_k, DISTANCES, s->width, plain},
        [RV] = {x->relative_v, DISTANCES, s->width, plain},
        [DRK] = {x->drelative_k, DISTANCES, s->width, plain},
        [DRV] = {x->drelative_v, DISTANCES, s->width, plain},
        [ADDITIVE] = {x->additive, HEADS, s->width, plain},
        [DADDITIVE] = {x->dadditive, HEADS, s->width, plain},
    };
    for (int i = 0; i < ALL; i++)
        m[i] = matrix_put(be, array[i].x, array[i].rows, array[i].cols, array[i].type);
    struct attention a = {.q = m[Q],
                          .k = m[K],
                          .v = m[V],
                          .o = m[O],
                          .lse = m[LSE],
                          .heads = HEADS,
                          .seqs = seqs,
                          .window = f->window,
                          .global = f->global,
                          .alibi = f->alibi};
    struct attention_grad g = {.dout = m[DOUT], .dq = m[DQ], .dk = m[DK], .dv = m[DV]};
    if (f->relative) a.relative_k = m[RK], a.relative_v = m[RV];
    if (f->relative) g.drelative_k = m[DRK], g.drelative_v = m[DRV];
    if (f->additive) a.additive = m[ADDITIVE], g.dadditive = m[DADDITIVE];
    if (!backward) a.weights = mat_cols(m[WEIGHTS], 0, seqs.max_k);
    if (!backward && s->listed) a.seqs.at = ((const struct places *)seqs.q)->at;
    backward ? be->op->attend_bwd(be, &a, &g) : be->op->attend(be, &a);
    for (int i = 0; i < ALL; i++) matrix_take(be, m[i], array[i].x);
    be->op->free(be, (void *)seqs.q); /* the first of the places */
}

/* Sums of the terms of a gradient without their signs, for arrays of struct numbers. */
struct sizes {
    double dq[CELLS], dk[CELLS], drelative_k[TABLE];
};

static double dot(const double *x, const double *y, int n)
{
    double sum = 0;
    for (int c = 0; c < n; c++) sum += x[c] * y[c];
    return sum;
}

/* The pair of query row i and key row j, whose weight is w, has ds as the gradient of its score. */
static void pair_add(struct sizes *to, const struct scene *s, const struct numbers *x, int head,
                     int i, int j, int distance, double w)
{
    int width = s->width, clip = DISTANCES / 2, q = (i * HEADS + head) * width;
    int k = (j * HEADS + head) * width;
    int r = (clip + (distance < -clip ? -clip : distance > clip ? clip : distance)) * width;
    double dw = dot(x->dout + q, x->v + k, width) - dot(x->dout + q, x->o + q, width);
    if (s->form->relative) dw += dot(x->dout + q, x->relative_v + r, width);
    double ds = fabs(w * dw) / sqrt(width);
    for (int c = 0; c < width; c++) {
        double key = fabs(x->k[k + c]) + (s->form->relative ? fabs(x->relative_k[r + c]) : 0);
        to->dq[q + c] += ds * key;
        to->dk[k + c] += ds * fabs(x->q[q + c]);
        to->drelative_k[r + c] += ds * fabs(x->q[q + c]);
    }
}

/* dq is the sum of ds * k over the keys, and the ds of a query have the sum 0. So where all keys
 * have the same number in a column, dq is 0 but for the rounding of each ds and of o: the tolerance
 * of a gradient must be a part of its terms, not of the gradient. dk and drelative_k are such sums
 * of ds * q. (Kernels keep the ds of additive attention in f32.) */
static void sizes_of(struct sizes *to, const struct scene *s, const struct numbers *x)
{
    memset(to, 0, sizeof *to);
    for (int b = 0, row = 0, key = 0; b < SENTENCES && !s->form->additive; key += s->keys[b++])
        for (int i = 0; i < s->queries[b]; i++, row++)
            for (int h = 0; h < HEADS; h++)
                for (int j = 0; j < s->keys[b]; j++) {
                    double w = x->weights[(row * HEADS + h) * ROWS + j];
                    int distance = j - (s->keys[b] - s->queries[b] + i);
                    if (w > 0) pair_add(to, s, x, h, row, key + j, distance, w);
                }
}

/* How far a number may be off: by a part of the largest number expected or of 1, and by a part of
 * its own size where `size` is not NULL. */
struct near {
    double part, of_size;
    const double *size;
};

/* Found is what was expected; NaN only where nothing is to be written. */
static void check_near(const char *what, const char *array, const double *found, const double *want,
                       size_t n, struct near near)
{
    double largest = 1;
    for (size_t i = 0; i < n; i++)
        if (isfinite(want[i])) largest = fmax(largest, fabs(want[i]));
    for (size_t i = 0; i < n; i++) {
        bool same = found[i] == want[i] || (isnan(found[i]) && isnan(want[i]));
        double most = near.part * largest + (near.size ? near.of_size * near.size[i] : 0);
        if (!same && !(fabs(found[i] - want[i]) <= most))
            fail_msg("%s: %s[%zu] is %.9g, expected %.9g", what, array, i, found[i], want[i]);
    }
}

/* How many keys query i of sentence b sees. */
static int keys_seen(const struct scene *s, int b, int i)
{
    struct attention a = {
        .seqs = {.causal = s->causal}, .window = s->form->window, .global = s->form->global};
    struct key_span span = attention_sees(&a, s->keys[b] - s->queries[b] + i, s->keys[b]);
    return span.first + (span.to > span.from ? span.to - span.from : 0);
}

/* What must be so whatever the type: a query without keys has the output 0, another has weights of
 * the sum 1. */
static void check_rows(const char *what, const struct scene *s, const struct numbers *x,
                       double part)
{
    int cols = HEADS * s->width;
    for (int b = 0, row = 0; b < SENTENCES; b++)
        for (int i = 0; i < s->queries[b]; i++, row++) {
            int seen = keys_seen(s, b, i);
            for (int h = 0; h < HEADS; h++) {
                double sum = 0, lse = x->lse[row * HEADS + h];
                for (int j = 0; j < s->keys[b]; j++)
                    sum += x->weights[(row * HEADS + h) * ROWS + j];
                if (!(fabs(sum - (seen > 0)) <= part) ||
                    !(fabs(x->o[row * cols + h * s->width] - (seen > 0)) <= 1e-5))
                    fail_msg("%s: query %d has weights of the sum %.9g and the output %.9g", what,
                             row, sum, x->o[row * cols + h * s->width]);
                if (seen > 0 ? !isfinite(lse) : lse != -INFINITY)
                    fail_msg("%s: query %d sees %d keys and has lse %g", what, row, seen, lse);
                if (s->steep && !s->form->additive && !(fabs(lse) > 1e4))
                    fail_msg("%s: query %d has lse %g, expected 1e4", what, row, lse);
            }
            for (int c = 0; c < cols && seen == 0; c++)
                if (x->o[row * cols + c] != 0)
                    fail_msg("%s: query %d sees no key and has output %g", what, row,
                             x->o[row * cols + c]);
        }
}

static void check_no_gradient(const char *what, const struct scene *s, const struct numbers *x)
{
    int cols = HEADS * s->width;
    for (int b = 0, row = 0; b < SENTENCES; b++)
        for (int i = 0; i < s->queries[b]; i++, row++)
            for (int c = 0; c < cols && keys_seen(s, b, i) == 0; c++)
                if (x->dq[row * cols + c] != 0)
                    fail_msg("%s: query %d sees no key and has gradient %g", what, row,
                             x->dq[row * cols + c]);
}

static void check_scene(const char *device, const void *what)
{
    static struct numbers want, found;
    static struct sizes sizes;
    const struct scene *s = what;
    struct heed_error err = {0};
    struct backend *ref, *be;
    int cols = HEADS * s->width, table = DISTANCES * s->width;
    assert_int_equal(ref_open(&ref, &err), HEED_OK);
    assert_int_equal(backend_open(&be, device, 2, &err), HEED_OK);
    for (enum type type = TYPE_F32; type <= TYPE_BF16; type++) {
        char name[128];
        /* Additive scores in heads of 64 are as large as 63 * 700 = 44,100. An lse of that size,
         * which is stored in f32, is rounded by up to 2^-9, so that a weight, exp(score - lse), is
         * off by up to exp(2^-9) - 1 = 0.00196 of itself, and so is the sum of the weights. That
         * leaves no room for a rounded score: kernels keep what the rounding of its sum left.
         * Scores of the other forms are about 1e4, where a number is rounded by up to 2^-11: an lse
         * is, and a score, which kernels add up in different orders, up to twice. */
        double weight = s->steep ? 2e-3 : 1e-5, part = type == TYPE_BF16 ? 0x1p-7 : weight;
        struct near near = {part, 0, NULL};
        /* ds has the error of its weight, and in bf16 is rounded by at most 2^-9 of itself. */
        near.of_size = (s->steep ? 0x1p-10 : 0) + (type == TYPE_BF16 ? 0x1p-9 : 0);
        snprintf(name, sizeof name, "%s, %s, %s, heads of %d, %s", device, s->form->name, s->name,
                 s->width, type ? "bf16" : "f32");
        numbers_draw(&found, s, type);
        numbers_draw(&want, s, type);
        attend_on(ref, s, &want, false, TYPE_F64, TYPE_F64);
        attend_on(be, s, &found, false, type, TYPE_F32);
        check_rows(name, s, &want, 1e-9);
        check_rows(name, s, &found, weight);
        check_near(name, "o", found.o, want.o, ROWS * cols, near);
        check_near(name, "lse", found.lse, want.lse, ROWS * HEADS, (struct near){1e-6, 0, NULL});
        check_near(name, "weights", found.weights, want.weights, ROWS * HEADS * ROWS,
                   (struct near){weight, 0, NULL});
        /* backward of both begins with the same rounded numbers */
        memcpy(want.o, found.o, sizeof want.o);
        memcpy(want.lse, found.lse, sizeof want.lse);
        sizes_of(&sizes, s, &want);
        attend_on(ref, s, &want, true, TYPE_F64, TYPE_F64);
        attend_on(be, s, &found, true, type, TYPE_F32);
        check_no_gradient(name, s, &found);
        check_near(name, "dv", found.dv, want.dv, ROWS * cols, near);
        check_near(name, "drelative_v", found.drelative_v, want.drelative_v, table, near);
        check_near(name, "dadditive", found.dadditive, want.dadditive, HEADS * s->width, near);
        near.size = sizes.dq;
        check_near(name, "dq", found.dq, want.dq, ROWS * cols, near);
        near.size = sizes.dk;
        check_near(name, "dk", found.dk, want.dk, ROWS * cols, near);
        near.size = sizes.drelative_k;
        check_near(name, "drelative_k", found.drelative_k, want.drelative_k, table, near);
    }
    be->op->close(be);
    ref->op->close(ref);
}

/* Heads of 64 have kernels of their own on a GPU. The reference takes long for them. */
static void test_scene(void **state)
{
    struct scene s = *(const struct scene *)*state;
    for (int f = 0; f < FORMS; f++) {
        int widest = device_named() || f == 0 ? WIDEST : 16;
        s.form = &forms[f];
        for (s.width = 16; s.width <= widest; s.width *= 4) on_each(check_scene, &s);
    }
}

/* ---- the whole model ---- */

/* Lengths of sentences; toy_config has max_length 16. */
struct lengths {
    const char *name;
    int n, src[4], tgt[4];
};

static const struct lengths lengths[] = {
    {"one token", 1, {1}, {1}},
    {"max_length tokens", 1, {16}, {16}},
    {"one token and max_length tokens", 4, {1, 16, 1, 16}, {16, 1, 1, 16}},
};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

/* Loss and gradients of a batch without dropout; the caller frees the gradients. `steep`: the
 * factor of the matrices that give scores. */
static float *gradients_of(const char *device, const struct heed_config *c,
                           struct precision precision, const struct lengths *l, double steep,
                           struct loss *loss)
{
    const struct loss_options o = {.label_smoothing = 0.1f, .backward = true};
    struct heed_error err = {0};
    struct parameter list[256];
    struct toy_batch b;
    struct toy t;
    toy_open(&t, device, c, precision, true);
    toy_batch(&b, l->n, l->src, l->tgt, c->vocab_size, 3);
    float *g = malloc(t.p->n * sizeof *g);
    assert_non_null(g);
    t.be->op->download(t.be, g, t.p->master.p, t.p->n * sizeof *g);
    assert_int_equal(t.be->op->sync(t.be, &err), HEED_OK);
    int n = parameters_list(c, list, 256);
    assert_true(n <= 256);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < list[i].rows * list[i].cols; k++)
            if (strstr(list[i].name, ".q_proj.weight") || strstr(list[i].name, ".k_proj.weight"))
                g[list[i].at + k] *= (float)steep;
    t.be->op->upload(t.be, t.p->master.p, g, t.p->n * sizeof *g);
    parameters_refresh_copy(t.p);
    assert_int_equal(run_loss(t.run, &b.packed, &o, loss, &err), HEED_OK);
    t.be->op->download(t.be, g, t.run->grad.p, t.p->n * sizeof *g);
    assert_int_equal(t.be->op->sync(t.be, &err), HEED_OK);
    toy_close(&t);
    return g;
}

/* The length of a - b; b may be NULL. */
static double length_of(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - (b ? (double)b[i] : 0);
        sum += d * d;
    }
    return sqrt(sum);
}

/* A sentence of an extreme length gives the loss and the gradients of the reference. */
static void check_lengths(const char *device, const void *what)
{
    const struct variant *v = what;
    struct heed_config c = variant_config(v, &toy_config);
    size_t n = parameters_count(&c);
    for (int i = 0; i < 2 * LENGTHS; i++) {
        const struct lengths *l = &lengths[i / 2];
        bool half = i % 2;
        struct precision precision = half ? precision_bf16 : precision_f32;
        struct loss want_loss = {0}, loss = {0};
        float *want = gradients_of("ref", &c, precision, l, 1, &want_loss);
        float *found = gradients_of(device, &c, precision, l, 1, &loss);
        double off = length_of(found, want, n), all = length_of(want, NULL, n);
        double off_loss = fabs(loss.smoothed - want_loss.smoothed) / want_loss.smoothed;
        if (!(off_loss <= (half ? 1e-2 : 1e-5)) || !(off <= (half ? 0.1 : 1e-4) * all))
            fail_msg("%s, %s, %s, %s: the loss is off by %g and the gradient by %g", device,
                     v->name, l->name, half ? "bf16" : "f32", off_loss, off / all);
        free(want);
        free(found);
    }
}

/* Matrices of queries and keys 150 times as large make scores of more than 1e4 in every attention:
 * the loss and every gradient are numbers. */
static void check_steep(const char *device, const void *what)
{
    const struct variant *v = what;
    struct heed_config c = variant_config(v, &toy_config);
    for (int half = 0; half < 2; half++) {
        struct loss loss = {0};
        float *g = gradients_of(device, &c, half ? precision_bf16 : precision_f32,
                                &lengths[LENGTHS - 1], 150, &loss);
        if (!isfinite(loss.smoothed) || !isfinite(length_of(g, NULL, parameters_count(&c))))
            fail_msg("%s, %s: the loss is %g and the gradient is %g long", device, v->name,
                     loss.smoothed, length_of(g, NULL, parameters_count(&c)));
        free(g);
    }
}

static void test_form(void **state)
{
    check_steep("ref", *state);
    on_each(check_lengths, *state);
    on_each(check_steep, *state);
}

int main(int argc, char **argv)
{
    static const struct variant odd = {"odd width", "position=learned d_model=9 d_ff=13 heads=3"};
    struct CMUnitTest tests[SCENES + VARIANTS + 1];
    int n = 0;
    device_or_skip();
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    for (int s = 0; s < SCENES; s++)
        tests[n++] =
            (struct CMUnitTest){scenes[s].name, test_scene, NULL, NULL, (void *)&scenes[s]};
    for (int v = 0; v < VARIANTS; v++)
        tests[n++] =
            (struct CMUnitTest){variants[v].name, test_form, NULL, NULL, (void *)&variants[v]};
    tests[n++] = (struct CMUnitTest){odd.name, test_form, NULL, NULL, (void *)&odd};
    return _cmocka_run_group_tests("extremes", tests, (size_t)n, NULL, NULL);
}
