/*
 * gemm_kernels.c - the innermost function of matrix products in plain C (gemm_plain.c). Compiled
 * once per ISA.
 */
#include <string.h>

#include "ops/cpu/gemm.h"

/* 12 vectors of 8 floats stay in registers. */
typedef float v8 __attribute__((vector_size(32)));

#define NAME(isa)  NAME_(isa)
#define NAME_(isa) gemm_step_##isa

void NAME(ISA)(float *restrict sum, const float *restrict a, const float *restrict b, int k)
{
    v8 s[GEMM_STEP_M][2];
    memcpy(s, sum, sizeof s);
    for (int p = 0; p < k; p++) {
        v8 b0, b1;
        memcpy(&b0, b + p * GEMM_STEP_N, sizeof b0);
        memcpy(&b1, b + p * GEMM_STEP_N + 8, sizeof b1);
#pragma GCC unroll 6
        for (int i = 0; i < GEMM_STEP_M; i++) {
            s[i][0] += a[p * GEMM_STEP_M + i] * b0;
            s[i][1] += a[p * GEMM_STEP_M + i] * b1;
        }
    }
    memcpy(sum, s, sizeof s);
}
