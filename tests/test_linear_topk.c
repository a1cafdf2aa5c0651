/*
 * test_linear_topk.c - linear_topk of the CPU backend, for every packed type, every ISA of this
 * machine and AMX emulated: the same bits as linear followed by topk, for any number of threads,
 * and for a row alone; and the best of those logits by a plain search in double.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "emulated.h"
#include "ops/cpu/cpu.h"

/* What the logits are like */
enum look { RANDOM, TIES, NANS, LARGE, LOOKS };

struct shape {
    int rows, n, inner, k, wants;
};

/* Blocks have PACKED_BLOCK = 256 columns; the parts of a product 128 rows. */
static const struct shape shapes[] = {
    {1, 1, 3, 1, 0},     {1, 17, 8, 17, 1},   {2, 15, 30, 3, 0},    {3, 255, 6, 5, 2},
    {4, 256, 8, 1, 1},   {9, 257, 30, 32, 3}, {1, 5000, 16, 32, 2}, {40, 1300, 8, 4, 0},
    {127, 530, 8, 2, 1}, {128, 300, 6, 5, 0}, {130, 777, 24, 5, 2}, {20, 513, 3, 300, 1},
    {260, 513, 3, 5, 1},
};
enum { SHAPES = sizeof shapes / sizeof *shapes, THREADS = 3 };
static const int thread_count[THREADS] = {1, 2, 3};

struct problem {
    struct shape s;
    enum type type;
    enum look look;
    float *x, *w;  /* [rows,inner], [n,inner] */
    int32_t *want; /* [rows][wants] */
};

/* The best of each row */
struct best {
    int n; /* rows * (k + wants) */
    float *score;
    int32_t *id;
};

static void *new (size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 64) / 64 * 64);
    assert_non_null(p);
    return p;
}

/* false: an instruction set that this machine lacks */
static bool open_setting(struct backend **be, int setting, int threads)
{
    struct cpuid c = isa_read();
    struct isa isa = isa_best(&c);
    struct heed_error err = {0};
    int level = setting % (ISA_LEVELS + 1);
    if (level < ISA_LEVELS && isa_limit(&isa, isa_name((enum isa_level)level))) return false;
    isa.amx = setting > ISA_LEVELS ? amx_emulated(isa.level) : NULL;
    if (cpu_open_isa(be, threads, &isa, &err)) fail_msg("%s", err.text);
    return true;
}
enum { SETTINGS = 2 * (ISA_LEVELS + 1) };

static struct problem problem_new(struct shape s, enum type type, enum look look)
{
    struct problem p = {s, type, look, NULL, NULL, NULL};
    uint64_t seed = 7;
    p.x = new (sizeof *p.x * (size_t)s.rows * s.inner);
    p.w = new (sizeof *p.w * (size_t)s.n * s.inner);
    p.want = new (sizeof *p.want * (size_t)s.rows * s.wants);
    for (int i = 0; i < s.rows * s.inner; i++) p.x[i] = (float)(random_unit(&seed) * 2 - 1);
    for (int i = 0; i < s.n * s.inner; i++) p.w[i] = (float)(random_unit(&seed) * 6 - 3);
    for (int i = 0; i < s.rows * s.wants; i++) p.want[i] = i % 3 ? (i * 131) % s.n : -1;
    /* Every seventh row of w is the same, in any block and of any thread. */
    for (int r = 7; r < s.n && look == TIES; r++)
        memcpy(p.w + (size_t)r * s.inner, p.w + (size_t)(r % 7) * s.inner, sizeof *p.w * s.inner);
    for (int r = 0; r < s.rows && look == NANS; r += 2) p.x[r * s.inner + r % s.inner] = NAN;
    for (int i = 0; i < s.rows * s.inner && look == LARGE; i++)
        p.x[i] *= i / s.inner % 3 ? 1e4f : 3e38f; /* exp underflows; the sums are infinite */
    return p;
}

static void problem_free(struct problem *p)
{
    free(p->x);
    free(p->w);
    free(p->want);
}

static struct best best_new(const struct shape *s)
{
    int n = s->rows * (s->k + s->wants);
    struct best b = {n, new (sizeof *b.score * (size_t)n), new (sizeof *b.id * (size_t)n)};
    memset(b.score, 0x55, sizeof *b.score * (size_t)n);
    memset(b.id, 0x55, sizeof *b.id * (size_t)n);
    return b;
}

static void best_free(struct best *b)
{
    free(b->score);
    free(b->id);
}

static struct mat pack(struct backend *be, const struct problem *p)
{
    struct mat w = mat_make(NULL, p->s.n, p->s.inner, p->type);
    w.p = new (be->op->pack_bytes(p->type, p->s.n, p->s.inner));
    be->op->pack(be, w, (struct stored){p->w, TYPE_F32, NULL});
    return w;
}

/* Rows [row, row + rows) by linear_topk; out: those rows of the best */
static void run_fused(struct backend *be, const struct problem *p, struct mat w, int row, int rows,
                      struct best *out)
{
    const struct shape *s = &p->s;
    size_t at = (size_t)row * (s->k + s->wants);
    struct mat x = mat_make(p->x, s->rows, s->inner, TYPE_F32);
    be->op->linear_topk(be, mat_rows(x, row, rows), w, s->k, p->want + (size_t)row * s->wants,
                        s->wants, out->score + at, out->id + at);
}

/* Returns the logits, [rows,n]. */
static float *run_separate(struct backend *be, const struct problem *p, struct mat w,
                           struct best *out)
{
    const struct shape *s = &p->s;
    float *y = new (sizeof *y * (size_t)s->rows * s->n);
    struct mat logits = mat_make(y, s->rows, s->n, TYPE_F32);
    be->op->linear(be, logits, mat_make(p->x, s->rows, s->inner, TYPE_F32), w, (struct mat){0},
                   (struct activation){0});
    be->op->topk(be, logits, s->k, p->want, s->wants, out->score, out->id);
    return y;
}

static void check_same(const struct problem *p, const struct best *got, const struct best *want,
                       const char *what, int setting, int threads)
{
    for (int i = 0; i < want->n; i++) {
        bool nans = isnan(got->score[i]) && isnan(want->score[i]);
        if (got->id[i] == want->id[i] &&
            (nans || !memcmp(got->score + i, want->score + i, sizeof *got->score)))
            continue;
        fail_msg("%s, type %d look %d setting %d threads %d [%d,%d,%d] k %d wants %d: number %d is "
                 "%.9g of %d, expected %.9g of %d",
                 what, p->type, p->look, setting, threads, p->s.rows, p->s.n, p->s.inner, p->s.k,
                 p->s.wants, i, (double)got->score[i], got->id[i], (double)want->score[i],
                 want->id[i]);
    }
}

/* A NaN counts as -inf. */
static double rank_of(float x)
{
    return isnan(x) ? -INFINITY : (double)x;
}

static void check_row(const float *y, const struct shape *s, const float *score, const int32_t *id,
                      const int32_t *want)
{
    double top = -INFINITY, sum = 0;
    char *taken = calloc((size_t)s->n, 1);
    assert_non_null(taken);
    for (int c = 0; c < s->n; c++) top = fmax(top, (double)y[c]);
    for (int c = 0; c < s->n; c++) sum += exp((double)y[c] - top);
    for (int i = 0; i < s->k + s->wants; i++) {
        int best = -1;
        for (int c = 0; c < s->n && i < s->k; c++)
            if (!taken[c] && (best < 0 || rank_of(y[c]) > rank_of(y[best]))) best = c;
        if (i >= s->k) best = want[i - s->k];
        if (i < s->k) taken[best] = 1;
        assert_int_equal(id[i], best);
        float expected = best < 0 ? -INFINITY : (float)((double)y[best] - top - log(sum));
        if (isnan(expected) ? isnan(score[i]) : score[i] == expected) continue;
        if (!(fabsf(score[i] - expected) <= 1e-6f * (1 + fabsf(expected))))
            fail_msg("of %d logits number %d has the score %.9g, expected %.9g", s->n, i,
                     (double)score[i], (double)expected);
    }
    free(taken);
}

static void try(const struct problem *p, int setting, struct backend *const *backend)
{
    struct best separate = best_new(&p->s);
    int stride = p->s.k + p->s.wants;
    for (int t = 0; t < THREADS; t++) {
        struct backend *be = backend[t];
        struct heed_error err = {0};
        struct mat w = pack(be, p);
        if (t == 0) {
            float *y = run_separate(be, p, w, &separate);
            for (int r = 0; r < p->s.rows; r += 1 + p->s.rows / 8)
                check_row(y + (size_t)r * p->s.n, &p->s, separate.score + r * stride,
                          separate.id + r * stride, p->want + r * p->s.wants);
            free(y);
        }
        struct best all = best_new(&p->s), parts = best_new(&p->s);
        run_fused(be, p, w, 0, p->s.rows, &all);
        check_same(p, &all, &separate, "all rows", setting, thread_count[t]);
        for (int row = 0, rows; row < p->s.rows; row += rows) {
            rows = row < 2 || row + 2 >= p->s.rows ? 1 : p->s.rows - 2 - row;
            run_fused(be, p, w, row, rows, &parts);
        }
        check_same(p, &parts, &separate, "rows in parts", setting, thread_count[t]);
        run_fused(be, p, w, 0, 0, &parts);
        best_free(&all);
        best_free(&parts);
        free(w.p);
        if (be->op->sync(be, &err)) fail_msg("%s", err.text);
    }
    best_free(&separate);
}

static void test_type(void **state)
{
    const enum type *type = *state;
    for (int setting = 0; setting < SETTINGS; setting++) {
        struct backend *be[THREADS];
        int opened = 0;
        while (opened < THREADS && open_setting(be + opened, setting, thread_count[opened]))
            opened++;
        for (int i = 0; i < SHAPES * LOOKS && opened; i++) {
            struct problem p = problem_new(shapes[i / LOOKS], *type, (enum look)(i % LOOKS));
            try(&p, setting, be);
            problem_free(&p);
        }
        for (int t = 0; t < opened; t++) be[t]->op->close(be[t]);
    }
}

int main(void)
{
    static enum type type[] = {TYPE_PACKED_F32, TYPE_PACKED_BF16, TYPE_PACKED_I8};
    const struct CMUnitTest tests[] = {
        {"f32", test_type, NULL, NULL, type},
        {"bf16", test_type, NULL, NULL, type + 1},
        {"int8", test_type, NULL, NULL, type + 2},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
