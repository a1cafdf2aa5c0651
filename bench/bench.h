/*
 * bench.h - what the benchmarks share: a clock and the arithmetic peak of this machine.
 */
#ifndef HEED_BENCH_H
#define HEED_BENCH_H
#include <immintrin.h>
#include <omp.h>
#include <stdbool.h>
#include <time.h>

static inline double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

enum { BENCH_CHAINS = 20, BENCH_ROUNDS = 4 << 20 };

/* Independent chains of multiply-adds that never leave the registers; operations done. */
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
    if (__builtin_cpu_supports("avx512f")) return bench_rate(threads, bench_burn_avx512);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return bench_rate(threads, bench_burn_avx2);
    return 0;
}

#endif
