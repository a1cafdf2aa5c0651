/*
 * bench.h - shared by the benchmarks: a clock, memory, fields of a configuration, the reader of
 * batches and the arithmetic peak of this machine.
 */
#ifndef HEED_BENCH_H
#define HEED_BENCH_H
#include <errno.h>
#include <inttypes.h>
#include <omp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/random.h"
#include "ops/ops.h"

/* Prints one sentence and exits. */
__attribute__((format(printf, 1, 2))) static inline _Noreturn void bench_die(const char *text, ...)
{
    va_list args;
    va_start(args, text);
    vfprintf(stderr, text, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

static inline double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* MiB: of the device in use, or the peak of this process */
static inline double bench_memory(struct backend *be)
{
    struct rusage usage;
    if (be->op->memory_used) return (double)be->op->memory_used(be) / (1 << 20);
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}

/* Sets fields of a configuration, each as FIELD=VALUE; the last is NULL. */
static inline void bench_set(struct heed_config *c, char *const *set)
{
    struct heed_error err = {0};
    for (; *set; set++) {
        char field[64], *value = strchr(*set, '=');
        if (!value) bench_die("--set is '%s', expected FIELD=VALUE", *set);
        snprintf(field, sizeof field, "%.*s", (int)(value - *set), *set);
        if (heed_config_set(c, field, value + 1, &err)) bench_die("%s", err.text);
    }
}

/* ---- batches: a line each, a sentence as source:target lengths, "14:16 14:17 ..." ---- */

enum { BENCH_BATCHES = 64, BENCH_SENTENCES = 4096 };

struct bench_batch {
    int n;
    int32_t src[BENCH_SENTENCES], tgt[BENCH_SENTENCES];                 /* lengths */
    int32_t src_off[BENCH_SENTENCES + 1], tgt_off[BENCH_SENTENCES + 1]; /* where they start */
};

static inline void bench_add(struct bench_batch *b, int32_t src, int32_t tgt)
{
    b->src[b->n] = src;
    b->tgt[b->n] = tgt;
    b->src_off[b->n + 1] = b->src_off[b->n] + src;
    b->tgt_off[b->n + 1] = b->tgt_off[b->n] + tgt;
    b->n++;
}

/* Makes batches of at most 2,048 tokens a side, with sentences of 10 to 50 tokens; used where no
 * file of batches is given. */
static inline int bench_make(struct bench_batch list[BENCH_BATCHES])
{
    enum { BATCHES = 4, TOKENS = 2048, SHORTEST = 10, SPREAD = 41 };
    uint64_t seed = 1;
    for (int i = 0; i < BATCHES; i++) {
        struct bench_batch *b = &list[i];
        for (int s = 0, t = 0; s <= TOKENS && t <= TOKENS;) {
            if (s) bench_add(b, s - b->src_off[b->n], t - b->tgt_off[b->n]);
            s += SHORTEST + (int)random_below(&seed, SPREAD);
            t += SHORTEST + (int)random_below(&seed, SPREAD);
        }
    }
    return BATCHES;
}

static inline void bench_parse(struct bench_batch *b, char *line, const char *path, int number)
{
    b->n = b->src_off[0] = b->tgt_off[0] = 0;
    for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n")) {
        int32_t s, t;
        if (b->n == BENCH_SENTENCES)
            bench_die("%s:%d has more than %d sentences", path, number, BENCH_SENTENCES);
        if (sscanf(word, "%" SCNd32 ":%" SCNd32, &s, &t) != 2 || s < 1 || t < 1)
            bench_die("%s:%d has '%s', expected lengths as source:target", path, number, word);
        bench_add(b, s, t);
    }
    if (b->n == 0) bench_die("%s:%d has no sentences", path, number);
}

/* Reads the batches of a file, or makes some where path is NULL. Returns how many there are, at
 * least one; a file that is not valid ends the program. */
static inline int bench_read(struct bench_batch list[BENCH_BATCHES], const char *path)
{
    char *line = NULL;
    size_t cap = 0;
    int n = 0;
    if (!path) return bench_make(list);
    FILE *f = fopen(path, "r");
    if (!f) bench_die("cannot open %s: %s", path, strerror(errno));
    for (; getline(&line, &cap, f) > 0; n++) {
        if (n == BENCH_BATCHES) bench_die("%s has more than %d batches", path, BENCH_BATCHES);
        bench_parse(&list[n], line, path, n + 1);
    }
    if (n == 0) bench_die("%s has no batches, expected one a line", path);
    free(line);
    fclose(f);
    return n;
}

/* ---- the peak ---- */

enum { BENCH_CHAINS = 20, BENCH_ROUNDS = 4 << 20 };

#if defined(__x86_64__)
/* Runs independent chains of multiply-adds in registers. Returns the number of operations. */
__attribute__((target("avx512f"))) static double bench_burn_avx512(void)
{
    __m512 a[BENCH_CHAINS], x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
    for (int c = 0; c < BENCH_CHAINS; c++) a[c] = _mm512_set1_ps((float)c);
    for (int i = 0; i < BENCH_ROUNDS; i++)
#pragma GCC unroll 20
        for (int c = 0; c < BENCH_CHAINS; c++) a[c] = _mm512_fmadd_ps(a[c], x, y);
    for (int c = 1; c < BENCH_CHAINS; c++) a[0] = _mm512_add_ps(a[0], a[c]);
    volatile float sink = _mm512_cvtss_f32(a[0]);
    (void)sink;
    return 2.0 * 16 * BENCH_CHAINS * BENCH_ROUNDS;
}

__attribute__((target("avx2,fma"))) static double bench_burn_avx2(void)
{
    enum { CHAINS = 12 };
    __m256 a[CHAINS], x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
    for (int c = 0; c < CHAINS; c++) a[c] = _mm256_set1_ps((float)c);
    for (int i = 0; i < BENCH_ROUNDS; i++)
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++) a[c] = _mm256_fmadd_ps(a[c], x, y);
    for (int c = 1; c < CHAINS; c++) a[0] = _mm256_add_ps(a[0], a[c]);
    volatile float sink = _mm256_cvtss_f32(a[0]);
    (void)sink;
    return 2.0 * 8 * CHAINS * BENCH_ROUNDS;
}
#endif

/* GFLOP/s of burn on `threads` threads (0: all cores), the best of several. */
static inline double bench_rate(int threads, double (*burn)(void))
{
    double best = 0;
    int n = threads > 0 ? threads : omp_get_num_procs();
    for (int run = 0; run < 7; run++) {
        double operations = 0, began = bench_now();
#pragma omp parallel num_threads(n) reduction(+ : operations)
        operations += burn();
        double rate = operations / (bench_now() - began) * 1e-9;
        if (rate > best) best = rate;
    }
    return best;
}

/* The f32 peak; 0 where not known. */
static inline double bench_peak(int threads)
{
    (void)threads;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return bench_rate(threads, bench_burn_avx512);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return bench_rate(threads, bench_burn_avx2);
#endif
    return 0;
}

/* ---- where the time of a device goes ---- */

/* The highest rates of a device, measured with its own ops: bytes and operations per second. */
struct bench_ceilings {
    double bytes, flops;
};

enum { BENCH_OPS = 64, BENCH_SIDE = 8192, BENCH_REPEATS = 10 };

static inline double bench_ms(const struct op_time *t, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(t[i].name, name)) return t[i].ms;
    return 0;
}

/* Measures a large copy and a large product in bf16, on random numbers. */
static inline struct bench_ceilings bench_measure(struct backend *be)
{
    enum { BYTES = 1 << 30 };
    struct op_time t[BENCH_OPS];
    struct heed_error err = {0};
    void *block;
    size_t side = BENCH_SIDE, product = side * side * 2;
    uint64_t seed = 1;
    if (be->op->alloc(be, &block, 2 * (size_t)BYTES, USED_WHOLE, &err)) bench_die("%s", err.text);
    uint16_t *random = malloc(2 * product);
    if (!random) bench_die("out of memory");
    for (size_t i = 0; i < product; i++)
        random[i] = (uint16_t)(0x3f00 | (random_next(&seed) & 0x80ff)); /* about 1, of both signs */
    be->op->upload(be, block, random, 2 * product);
    free(random);
    struct mat a = mat_make(block, BENCH_SIDE, BENCH_SIDE, TYPE_BF16), b = a, c = a, none = {0};
    b.p = (char *)block + product, c.p = (char *)block + 2 * product;
    struct mat from = mat_make(block, 1, BYTES / 4, TYPE_F32), to = from;
    to.p = (char *)block + BYTES;
    for (int i = 0; i < 3 + BENCH_REPEATS; i++) {
        if (i == 3) be->op->trace(be, t, BENCH_OPS);
        be->op->linear(be, c, a, b, none, (struct activation){0});
        be->op->cast(be, to, from);
    }
    int n = be->op->trace(be, t, BENCH_OPS);
    be->op->free(be, block);
    return (struct bench_ceilings){2.0 * BYTES * BENCH_REPEATS / bench_ms(t, n, "cast") * 1e3,
                                   2.0 * side * side * side * BENCH_REPEATS /
                                       bench_ms(t, n, "linear") * 1e3};
}

static inline int bench_later(const void *a, const void *b)
{
    double x = ((const struct op_time *)a)->ms, y = ((const struct op_time *)b)->ms;
    return (x < y) - (x > y);
}

/* Prints the time of each op per step, since op->trace was first called, and its lower bound: its
 * bytes or its operations at the highest rates, whichever takes longer. */
static inline void bench_table(struct backend *be, struct bench_ceilings top, int steps)
{
    struct op_time t[BENCH_OPS];
    int n = be->op->trace(be, t, BENCH_OPS);
    double sum = 0, floors = 0;
    for (int i = 0; i < n; i++) sum += t[i].ms / steps;
    qsort(t, n, sizeof *t, bench_later);
    printf("%-20s %7s %9s %7s %9s %9s %9s %8s\n", "op", "calls", "ms", "share", "floor ms",
           "x floor", "TB/s", "TFLOP/s");
    for (int i = 0; i < n; i++) {
        double by_bytes = t[i].bytes / top.bytes * 1e3, by_flops = t[i].flops / top.flops * 1e3;
        double floor_ms = (by_bytes > by_flops ? by_bytes : by_flops) / steps, ms = t[i].ms / steps;
        floors += floor_ms;
        printf("%-20s %7.1f %9.3f %6.1f%% %9.3f %9.2f %9.2f %8.1f\n", t[i].name,
               (double)t[i].calls / steps, ms, 100 * ms / sum, floor_ms,
               floor_ms > 0 ? ms / floor_ms : 0, t[i].bytes / t[i].ms * 1e-9,
               t[i].flops / t[i].ms * 1e-9);
    }
    printf("%-20s %7s %9.3f %7s %9.3f; a copy reaches %.2f TB/s, a product %.0f TFLOP/s\n", "sum",
           "", sum, "", floors, top.bytes * 1e-12, top.flops * 1e-12);
}

#endif
