/*
 * gemm_kernels.c - the innermost function of matrix products in plain C (gemm_plain.c). Compiled
 * once per ISA.
 */
#include <string.h>

#include "ops/cpu/gemm.h"

/* The tile is computed in parts of two vectors a row, so that the 12 sums of a part stay in
 * registers of this ISA's width. */
#ifdef __AVX__
typedef float vector __attribute__((vector_size(32)));
#else
typedef float vector __attribute__((vector_size(16)));
#endif
enum { LANES = sizeof(vector) / sizeof(float), PART = 2 * LANES };

#define NAME(isa)  NAME_(isa)
#define NAME_(isa) gemm_step_##isa

void NAME(ISA)(float *restrict sum, const float *restrict a, const float *restrict b, int k)
{
    for (int c = 0; c < GEMM_STEP_N; c += PART) {
        vector s[GEMM_STEP_M][2];
#pragma GCC unroll 6
        for (int i = 0; i < GEMM_STEP_M; i++) memcpy(s[i], sum + i * GEMM_STEP_N + c, sizeof s[i]);
        for (int p = 0; p < k; p++) {
            vector b0, b1;
            memcpy(&b0, b + p * GEMM_STEP_N + c, sizeof b0);
            memcpy(&b1, b + p * GEMM_STEP_N + c + LANES, sizeof b1);
#pragma GCC unroll 6
            for (int i = 0; i < GEMM_STEP_M; i++) {
                s[i][0] += a[p * GEMM_STEP_M + i] * b0;
                s[i][1] += a[p * GEMM_STEP_M + i] * b1;
            }
        }
#pragma GCC unroll 6
        for (int i = 0; i < GEMM_STEP_M; i++) memcpy(sum + i * GEMM_STEP_N + c, s[i], sizeof s[i]);
    }
}
