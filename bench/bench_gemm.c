/*
 * bench_gemm.c - the matrix products of training: GFLOP/s and share of the arithmetic peak, the
 * best number of rows for the output layer, and what a new shape costs.
 *
 *     bench_gemm [threads [set]]      default: all cores; threads 0 is the default
 *
 * The set is one that heed --version lists, or vectors, the best without AMX; the default is amx
 * beside vectors where the machine has AMX. Each figure is the best of several runs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/random.h"
#include "ops/bf16.h"
#include "sets.h"

enum { ROWS = 2048 };
enum product { FORWARD, BACKWARD, WEIGHTS, PRODUCTS };
static const char *const type_name[] = {"f32", "bf16"};

struct bench {
    int threads;
    struct gemm *g;
    double peak[2]; /* GFLOP/s by type; 0: not known */
};

/* A layer of `in` to `out` on all ROWS rows. */
struct layer {
    int in, out;
    enum type type;
    struct mat x, y, w, dw, b;
};

/* ---- the peak of bf16: pairs of products added to a float ---- */

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512bf16"))) static double burn_bf16(void)
{
    __m512 a[BENCH_CHAINS];
    __m512bh x = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.5f));
    for (int c = 0; c < BENCH_CHAINS; c++) a[c] = _mm512_set1_ps((float)c);
    for (int i = 0; i < BENCH_ROUNDS; i++)
#pragma GCC unroll 20
        for (int c = 0; c < BENCH_CHAINS; c++) a[c] = _mm512_dpbf16_ps(a[c], x, x);
    for (int c = 1; c < BENCH_CHAINS; c++) a[0] = _mm512_add_ps(a[0], a[c]);
    volatile float sink = _mm512_cvtss_f32(a[0]);
    (void)sink;
    return 2.0 * 32 * BENCH_CHAINS * BENCH_ROUNDS;
}
#endif

static double peak_bf16(int threads)
{
    (void)threads;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bf16")) return bench_rate(threads, burn_bf16);
#endif
    return 0;
}

/* ---- layers ---- */

static struct mat mat_random(int rows, int cols, enum type type)
{
    size_t n = (size_t)rows * cols;
    void *p = aligned_alloc(64, (n * type_size(type) + 63) / 64 * 64);
    if (!p) exit(1);
    uint64_t seed = n;
    for (size_t i = 0; i < n; i++) {
        float x = (float)(random_unit(&seed) - 0.5);
        if (type == TYPE_BF16)
            ((uint16_t *)p)[i] = bf16_from_float(x);
        else
            ((float *)p)[i] = x;
    }
    return mat_make(p, rows, cols, type);
}

static struct layer layer_new(int in, int out, int rows, enum type type)
{
    return (struct layer){.in = in,
                          .out = out,
                          .type = type,
                          .x = mat_random(rows, in, type),
                          .y = mat_random(rows, out, type),
                          .w = mat_random(out, in, type),
                          .dw = mat_random(out, in, TYPE_F32),
                          .b = mat_random(1, out, TYPE_F32)};
}

static void layer_free(struct layer *l)
{
    struct mat all[] = {l->x, l->y, l->w, l->dw, l->b};
    for (int i = 0; i < 5; i++) free(all[i].p);
}

static void layer_run(const struct bench *b, const struct layer *l, enum product what, int rows)
{
    struct mat x = mat_rows(l->x, 0, rows), y = mat_rows(l->y, 0, rows);
    struct gemm_job job[PRODUCTS] = {{.c = y, .a = x, .b = l->w, .bias = l->b, .tb = true},
                                     {.c = x, .a = y, .b = l->w},
                                     {.c = l->dw, .a = y, .b = x, .ta = true, .beta = 1}};
    struct heed_error err;
    gemm_run(b->g, &job[what]);
    if (gemm_status(b->g, &err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
}

/* Seconds: the best of at least 5 runs and of as many as 0.3 s hold. */
static double layer_time(const struct bench *b, const struct layer *l, enum product what, int rows)
{
    double best = 1e9, end = bench_now() + 0.3;
    layer_run(b, l, what, rows);
    for (int run = 0; run < 5 || bench_now() < end; run++) {
        double began = bench_now();
        layer_run(b, l, what, rows);
        double took = bench_now() - began;
        if (took < best) best = took;
    }
    return best;
}

static void print_rate(const struct bench *b, const struct layer *l, double operations, double time)
{
    double rate = operations / time * 1e-9, peak = b->peak[l->type];
    printf(" %6.0f", rate);
    if (peak > 0)
        printf(" %3.0f%%", 100 * rate / peak);
    else
        printf("     ");
}

/* ---- the three tables ---- */

static void bench_layers(const struct bench *b, const char *preset, int d, int f)
{
    const int shape[][2] = {{d, 3 * d}, {d, d}, {d, f}, {f, d}};
    for (int i = 0; i < 8; i++) {
        struct layer l = layer_new(shape[i % 4][0], shape[i % 4][1], ROWS, (enum type)(i / 4));
        double operations = 2.0 * ROWS * l.in * l.out, total = 0;
        printf("%-6s %-5s %5d -> %-5d", preset, type_name[l.type], l.in, l.out);
        for (int what = 0; what < PRODUCTS; what++) {
            double time = layer_time(b, &l, what, ROWS);
            total += time;
            print_rate(b, &l, operations, time);
        }
        print_rate(b, &l, PRODUCTS * operations, total);
        printf("\n");
        layer_free(&l);
    }
}

/* The logits of `rows` rows at a time: each product, all three, and for a whole batch of ROWS. */
static void bench_output(const struct bench *b, int d, int v)
{
    for (int i = 0; i < 8; i++) {
        int rows = 128 << i % 4;
        struct layer l = layer_new(d, v, rows, (enum type)(i / 4));
        double operations = 2.0 * rows * d * v, total = 0;
        printf("%5d rows %-4s %3d -> %-6d", rows, type_name[l.type], d, v);
        for (int what = 0; what < PRODUCTS; what++) {
            double time = layer_time(b, &l, what, rows);
            total += time;
            print_rate(b, &l, operations, time);
        }
        print_rate(b, &l, PRODUCTS * operations, total);
        printf(" %7.1f ms %5.0f MB\n", total * ROWS / rows * 1e3,
               (double)rows * v * (double)type_size(l.type) * 1e-6);
        layer_free(&l);
    }
}

static double resident(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    if (fscanf(f, "%*d %ld", &pages) != 1) pages = 0;
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The time of the first run of a shape minus the second, as the median of 63; and the memory that
 * the process gains. */
static void bench_new_shapes(const struct bench *b)
{
    enum { SHAPES = 63 };
    for (int i = 0; i < 2 * PRODUCTS; i++) {
        struct layer l = layer_new(512, 512, SHAPES * ROW_PAD, (enum type)(i / PRODUCTS));
        layer_run(b, &l, i % PRODUCTS, SHAPES * ROW_PAD - 1); /* brings the scratch memory along */
        double before = resident(), extra[SHAPES];
        for (int n = 0; n < SHAPES; n++) {
            double t0 = bench_now();
            layer_run(b, &l, i % PRODUCTS, (n + 1) * ROW_PAD);
            double t1 = bench_now();
            layer_run(b, &l, i % PRODUCTS, (n + 1) * ROW_PAD);
            extra[n] = t1 - t0 - (bench_now() - t1);
        }
        qsort(extra, SHAPES, sizeof *extra, by_value);
        printf("new shape, %-4s %-5s: %.2f ms, %.0f KiB\n", type_name[l.type],
               (const char *[]){"x wT", "dy w", "dyT x"}[i % PRODUCTS], extra[SHAPES / 2] * 1e3,
               (resident() - before) / SHAPES / 1024);
        layer_free(&l);
    }
}

static void bench_products(const struct bench_set *set, int threads)
{
    struct heed_error err;
    struct bench b = {.threads = threads};
    if (gemm_open(&b.g, threads, &set->isa, &err)) bench_die("%s", err.text);
    b.peak[TYPE_F32] = bench_peak(threads);
    b.peak[TYPE_BF16] = set->isa.amx ? bench_peak_amx(threads, false) : peak_bf16(threads);
    printf("%s: %d threads, peak %.0f GFLOP/s f32, %.0f bf16\n\n", set->name, threads, b.peak[0],
           b.peak[1]);
    printf("%d rows, GFLOP/s and share:      x wT        dy w       dyT x       all\n", ROWS);
    bench_layers(&b, "small", 256, 1024);
    bench_layers(&b, "base", 512, 2048);
    printf("\noutput layer:                     x wT        dy w       dyT x       all   %d rows  "
           "logits\n",
           ROWS);
    bench_output(&b, 256, 8000);
    bench_output(&b, 512, 37000);
    printf("\n");
    bench_new_shapes(&b);
    gemm_free(b.g);
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 0;
    if (threads < 0) bench_die("usage: bench_gemm [threads [set]]");
    struct bench_set set[2];
    int sets = bench_sets(set, argc > 2 ? argv[2] : NULL);
    for (int i = 0; i < sets; i++) bench_products(&set[i], threads ? threads : omp_get_num_procs());
    return 0;
}
