/*
 * bench_packed.c - the matrix products of one step of a base decoder, 6 layers and an output layer
 * of 32,000, with packed weights: time, bytes of weights per second, and the share of the
 * arithmetic peak.
 *
 *     bench_packed [threads [set]]      default: one, then all cores; threads 0 is the default
 *
 * The set is one that heed --version lists, or vectors, the best without AMX; the default is amx
 * beside vectors where the machine has AMX. Each figure is the best of many steps.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "ops/cpu/packed.h"
#include "sets.h"

enum { LAYERS = 6, PRODUCTS = 6, MATRICES = LAYERS * PRODUCTS + 1, MOST = 128 };
/* in the order of a layer: self-attention, its output, cross-attention's queries, its output,
 * feed-forward; then the logits */
static const int shape[PRODUCTS + 1][2] = {{1536, 512}, {512, 512},  {512, 512},  {512, 512},
                                           {2048, 512}, {512, 2048}, {32000, 512}};
static const char *const kind_name[PACKED_KINDS] = {"f32", "bf16", "int8"};

struct step {
    struct packed_weights w[MATRICES];
    char *panels;
    size_t bytes;
    double numbers;
};

static void *take(size_t bytes)
{
    enum { HUGE = 2 << 20 };
    void *p = aligned_alloc(HUGE, (bytes + HUGE - 1) / HUGE * HUGE);
    if (!p) bench_die("out of memory: %zu bytes", bytes);
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

static float *take_random(size_t n)
{
    float *p = take(n * sizeof *p);
    uint64_t seed = n;
    for (size_t i = 0; i < n; i++) p[i] = (float)(random_unit(&seed) - 0.5);
    return p;
}

/* Activations behind a layer norm are nearly normal: sums of 12 uniform numbers */
static float *take_normal(size_t n)
{
    float *p = take(n * sizeof *p);
    uint64_t seed = n;
    for (size_t i = 0; i < n; i++) {
        double sum = -6;
        for (int j = 0; j < 12; j++) sum += random_unit(&seed);
        p[i] = (float)sum;
    }
    return p;
}

static struct step step_new(enum packed_kind kind, const float *w)
{
    struct step s = {0};
    for (int i = 0; i < MATRICES; i++) {
        const int *of = shape[i < MATRICES - 1 ? i % PRODUCTS : PRODUCTS];
        s.w[i] = (struct packed_weights){kind, of[0], of[1], NULL};
        s.bytes += packed_bytes(kind, of[0], of[1]);
        s.numbers += (double)of[0] * of[1];
    }
    char *at = s.panels = take(s.bytes);
    for (int i = 0; i < MATRICES; i++) {
        packed_fill(kind, at, (struct stored){w, TYPE_F32, NULL}, s.w[i].n, s.w[i].k, 2);
        s.w[i].panels = at;
        at += packed_bytes(kind, s.w[i].n, s.w[i].k);
    }
    return s;
}

/* Seconds of the fastest step: at least 5, and as many as half a second holds */
static double step_time(const struct step *s, struct packed_work *work, float *y, const float *x,
                        const float *bias, int m, int threads)
{
    double best = 1e9, end = bench_now() + 0.5;
    for (int run = 0; run < 6 || bench_now() < end; run++) {
        double began = bench_now();
        for (int i = 0; i < MATRICES; i++) {
            const struct packed_weights *w = &s->w[i];
            if (packed_run(work, y, w->n, x, w->k, m, w, bias, false, threads, NULL))
                bench_die("out of memory");
        }
        double took = bench_now() - began;
        if (run && took < best) best = took;
    }
    return best;
}

/* What is compared: kernels of one or two sets */
struct contest {
    int sets;
    struct bench_set set[2];
    struct packed_work work[2];
};

/* A lane of an instruction takes 1, 2 or 4 numbers; so the peaks of bf16 and int8 are 2 and 4 times
 * that of f32, where there are instructions for them. f32 passes its peak where it goes in pairs:
 * they save products. The peak of AMX is measured. */
static double peak_of(const struct bench_set *set, enum packed_kind kind, int threads)
{
    if (set->isa.amx && kind != PACKED_F32) return bench_peak_amx(threads, kind == PACKED_I8);
    return bench_peak(threads) * (1 << kind);
}

static void bench_kind(const struct step *s, struct contest *c, float *y, const float *x,
                       const float *bias, int threads)
{
    static const int rows[] = {1, 2, 4, 8, 16, 32, 64, MOST};
    enum packed_kind kind = s->w[0].kind;
    double peak[2];
    for (int k = 0; k < c->sets; k++) peak[k] = peak_of(&c->set[k], kind, threads);
    for (int i = 0; i < 8 * c->sets; i++) {
        int m = rows[i / c->sets], k = i % c->sets;
        if (kind == PACKED_F32 && k > 0) continue; /* the same kernel as of the first set */
        double time = step_time(s, &c->work[k], y, x, bias, m, threads);
        double rate = 2 * s->numbers * m / time * 1e-9;
        printf("%-5s %-8s %d threads %4d rows %8.3f ms %6.1f GB/s %6.0f GOP/s", kind_name[kind],
               c->set[k].name, threads, m, time * 1e3, (double)s->bytes / time * 1e-9, rate);
        if (peak[k] > 0) printf(" %3.0f%% of %.0f", 100 * rate / peak[k], peak[k]);
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    int given = argc > 1 ? atoi(argv[1]) : 0, all = omp_get_num_procs();
    if (given < 0) bench_die("usage: bench_packed [threads [set]]");
    struct contest c;
    c.sets = bench_sets(c.set, argc > 2 ? argv[2] : NULL);
    for (int k = 0; k < c.sets; k++) packed_open(&c.work[k], &c.set[k].isa);
    float *w = take_random((size_t)32000 * 512), *x = take_normal((size_t)MOST * 2048);
    float *bias = take_random(32000), *y = take(sizeof *y * MOST * 32000);
    for (int kind = 0; kind < PACKED_KINDS; kind++) {
        struct step s = step_new(kind, w);
        if (!given) bench_kind(&s, &c, y, x, bias, 1);
        if (given || all > 1) bench_kind(&s, &c, y, x, bias, given ? given : all);
        free(s.panels);
    }
    for (int k = 0; k < c.sets; k++) packed_close(&c.work[k]);
    free(w);
    free(x);
    free(bias);
    free(y);
    return 0;
}
