/*
 * bench_kernels.c - the vector kernels of the CPU backend on one thread, at the shapes of the
 * model: time per element, bytes per second, and the same bytes through memcpy beside it.
 *
 *     bench_kernels [baseline|avx2|avx512] [name]      default: the best ISA, all kernels
 *
 * Each figure is the best of several sweeps over arrays much larger than the caches, or of as many
 * as a fifth of a second holds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "ops/bf16.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/topk.h"

enum { ROWS = 2048, WIDEST = 37000, PARAMETERS = 63000000, STRIP = 64 };
#define BUFFER ((size_t)ROWS * WIDEST * 4) /* bytes of one matrix */

/* What a kernel works on; a matrix is ROWS by n of type t. */
struct work {
    const struct kernels *k;
    void *a, *b, *c, *d;       /* [ROWS*WIDEST] f32 */
    float *g, *bias, *dg, *db; /* [WIDEST] */
    uint16_t *copy;            /* [PARAMETERS] */
    int n;
    enum type t;
    float p; /* dropout */
};

static void *row_of(const struct work *w, void *m, int row)
{
    return (char *)m + (size_t)row * w->n * type_size(w->t);
}

static struct drop_row mask_of(const struct work *w, int row)
{
    return drop_row((struct drop){w->p, 1, 2}, row);
}

static void run_embed(const struct work *w)
{
    for (int r = 0; r < ROWS; r++)
        w->k->embed(row_of(w, w->a, r), w->t, row_of(w, w->b, r * 7 % ROWS), w->t, w->bias, w->n,
                    16, mask_of(w, r));
}

static void run_embed_bwd(const struct work *w)
{
    for (int c = 0; c < w->n; c += STRIP)
        for (int r = 0; r < ROWS; r++)
            w->k->embed_bwd((float *)w->c + (size_t)(r * 7 % ROWS) * w->n + c,
                            (char *)row_of(w, w->b, r) + c * type_size(w->t), w->t, c, STRIP, 16,
                            mask_of(w, r));
}

static void run_norm(const struct work *w)
{
    for (int r = 0; r < ROWS; r++)
        w->k->norm(row_of(w, w->a, r), row_of(w, w->b, r), row_of(w, w->c, r), row_of(w, w->d, r),
                   w->g, w->bias, w->n, w->t, mask_of(w, r));
}

static void run_norm_bwd(const struct work *w)
{
    for (int r = 0; r < ROWS; r++)
        w->k->norm_bwd(row_of(w, w->a, r), row_of(w, w->b, r), row_of(w, w->c, r),
                       row_of(w, w->d, r), 1, w->g, w->n, w->t, mask_of(w, r));
}

static void run_norm_bwd_columns(const struct work *w)
{
    for (int c = 0; c < w->n; c += STRIP)
        w->k->norm_bwd_columns(w->dg + c, w->db + c, (char *)w->c + c * type_size(w->t), w->n,
                               (char *)w->d + c * type_size(w->t), w->n, ROWS, STRIP, w->t);
}

static void run_add_columns(const struct work *w)
{
    for (int c = 0; c < w->n; c += STRIP)
        w->k->add_columns(w->db + c, (char *)w->c + c * type_size(w->t), w->n, ROWS, STRIP, w->t);
}

static void run_drop(const struct work *w)
{
    for (int r = 0; r < ROWS; r++)
        w->k->activate(row_of(w, w->a, r), NULL, row_of(w, w->a, r), w->n, w->t, ACT_NONE,
                       mask_of(w, r));
}

static void run_relu_bwd(const struct work *w)
{
    for (int r = 0; r < ROWS; r++)
        w->k->activate_bwd(row_of(w, w->a, r), row_of(w, w->b, r), NULL, w->n, w->t, ACT_RELU,
                           mask_of(w, r));
}

static void run_xent(const struct work *w)
{
    float loss[2];
    for (int r = 0; r < ROWS; r++)
        w->k->xent(row_of(w, w->a, r), w->n, w->t, r % w->n, 0.1f, true, loss);
}

static void run_top(const struct work *w, int k)
{
    float score[8];
    int32_t id[8];
    for (int r = 0; r < ROWS; r++) topk_row(w->k, row_of(w, w->a, r), w->n, w->t, k, score, id, 0);
}

static void run_top1(const struct work *w)
{
    run_top(w, 1);
}

static void run_top8(const struct work *w)
{
    run_top(w, 8);
}

static volatile double sink; /* keeps the sum from being thrown away */

static void run_sum_squares(const struct work *w)
{
    sink = w->k->sum_squares(w->a, PARAMETERS);
}

static void run_adam(const struct work *w)
{
    const struct adam h = {1e-4, 0.9, 0.98, 1e-9, 100, 1, 0, 0};
    const size_t span = 65536;
    float *p = w->a, *m = w->b, *v = w->c, *g = w->d;
    for (size_t i = 0; i < PARAMETERS; i += span)
        w->k->adam(p + i, m + i, v + i, w->t == TYPE_BF16 ? w->copy + i : NULL, g + i,
                   PARAMETERS - i < span ? PARAMETERS - i : span, 1, &h);
}

static void run_cast(const struct work *w)
{
    w->k->cast(w->b, w->t == TYPE_F32 ? TYPE_BF16 : TYPE_F32, w->a, w->t, PARAMETERS);
}

static const struct bench {
    const char *name;
    void (*run)(const struct work *w);
    int width[2]; /* 0: the parameters */
    float p;
    int typed, plain; /* operands that each element reads or writes: of type t, of f32 */
} benches[] = {
    {"embed", run_embed, {256, 512}, 0.1f, 2, 0},
    {"embed_bwd", run_embed_bwd, {256, 512}, 0.1f, 1, 2},
    {"norm", run_norm, {256, 512}, 0.1f, 4, 0},
    {"norm, no dropout", run_norm, {256, 512}, 0, 4, 0},
    {"norm_bwd", run_norm_bwd, {256, 512}, 0.1f, 4, 0},
    {"norm_bwd_columns", run_norm_bwd_columns, {256, 512}, 0, 2, 0},
    {"add_columns", run_add_columns, {512, 2048}, 0, 1, 0},
    {"drop", run_drop, {512, 2048}, 0.1f, 2, 0},
    {"relu_bwd", run_relu_bwd, {512, 2048}, 0.1f, 3, 0},
    {"xent", run_xent, {8000, 37000}, 0, 2, 0},
    {"top 1", run_top1, {8000, 37000}, 0, 1, 0},
    {"top 8", run_top8, {8000, 37000}, 0, 1, 0},
    {"sum_squares", run_sum_squares, {0}, 0, 0, 1},
    {"adam", run_adam, {0}, 0, 0, 7},
    {"cast", run_cast, {0}, 0, 0, 0},
};

static void work_fill(const struct work *w, size_t n)
{
    uint64_t state = 1;
    void *to[] = {w->a, w->b, w->c, w->d};
    for (int j = 0; j < 4; j++) {
        for (size_t i = 0; i < n; i++) {
            float x = (float)(random_next(&state) >> 40) * 0x1p-22f - 2.0f;
            if (w->t == TYPE_BF16)
                ((uint16_t *)to[j])[i] = bf16_from_float(x);
            else
                ((float *)to[j])[i] = x;
        }
    }
}

/* Best time of a sweep; of the memcpy when b is NULL. */
static double best(const struct work *w, const struct bench *b, size_t bytes)
{
    double least = 1e9, begin = bench_now();
    for (int i = 0; i < 3 || bench_now() - begin < 0.2; i++) {
        double t = bench_now();
        if (b)
            b->run(w);
        else
            for (size_t j = 0; j < bytes / 2; j += BUFFER)
                memcpy(w->b, w->a, bytes / 2 - j < BUFFER ? bytes / 2 - j : BUFFER);
        t = bench_now() - t;
        if (t < least) least = t;
    }
    return least;
}

static void measure(struct work *w, const struct bench *b, int width, enum type t)
{
    w->n = width;
    w->t = t;
    w->p = b->p;
    size_t n = width ? (size_t)ROWS * width : PARAMETERS;
    size_t each = b->typed * type_size(t) + b->plain * 4;
    if (b->run == run_cast) each = 6;
    if (b->run == run_adam && t == TYPE_BF16) each += 2;
    if (!width) w->t = TYPE_F32;
    work_fill(w, n);
    w->t = t;
    double s = best(w, b, 0), copy = best(w, NULL, n * each);
    printf("%-17s %6d  %s  %7.3f  %7.1f  %7.1f  %5.2f\n", b->name, width,
           t == TYPE_BF16 ? "bf16" : "f32 ", s / n * 1e9, n * each / s * 1e-9,
           n * each / copy * 1e-9, copy / s);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct backend *be;
    struct heed_error err;
    if (cpu_open(&be, argc > 1 ? argv[1] : NULL, 1, &err)) bench_die("%s", err.text);
    struct work w = {.k = cpu_of(be)->k};
    void **big[] = {&w.a, &w.b, &w.c, &w.d};
    float **small[] = {&w.g, &w.bias, &w.dg, &w.db};
    for (int i = 0; i < 4; i++) {
        *big[i] = aligned_alloc(64, BUFFER);
        *small[i] = calloc(WIDEST, sizeof(float));
        if (!*big[i] || !*small[i]) return 1;
    }
    w.copy = aligned_alloc(64, (size_t)PARAMETERS * 2);
    if (!w.copy) return 1;
    memset(w.copy, 0, (size_t)PARAMETERS * 2);
    printf("kernels %s, %d rows, one thread; memcpy moves the same bytes\n", w.k->isa, ROWS);
    printf("kernel             width  type  ns/elem     GB/s   memcpy  share\n");
    for (size_t i = 0; i < sizeof benches / sizeof *benches; i++) {
        const struct bench *b = benches + i;
        if (argc > 2 && strcmp(argv[2], b->name)) continue;
        for (int j = 0; j < (b->width[1] ? 2 : 1); j++) {
            measure(&w, b, b->width[j], TYPE_F32);
            if (b->run != run_sum_squares) measure(&w, b, b->width[j], TYPE_BF16);
        }
    }
    for (int i = 0; i < 4; i++) {
        free(*big[i]);
        free(*small[i]);
    }
    free(w.copy);
    be->op->close(be);
    return 0;
}
