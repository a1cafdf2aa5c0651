/*
 * activation.h - the activations of the CUDA backend: value and derivative of every kind in ops.h.
 */
#ifndef HEED_OPS_CUDA_ACTIVATION_H
#define HEED_OPS_CUDA_ACTIVATION_H
#include "ops/ops.h"

/* The logistic function 1 / (1 + exp(-z)). *slope: its derivative. Both come from exp(-|z|), which
 * is at most 1, so that nothing overflows and nothing cancels. */
static __device__ inline float logistic(float z, float *slope)
{
    float e = expf(-fabsf(z)), r = 1 / (1 + e);
    *slope = e * r * r;
    return z < 0 ? e * r : r;
}

/* f(z). *slope: f'(z) */
static __device__ inline float activation(enum activation_kind kind, float z, float *slope)
{
    float factor, d;
    switch (kind) {
    case ACT_RELU:
        *slope = z > 0 ? 1 : 0;
        return z < 0 ? 0 : z; /* a NaN stays a NaN */
    case ACT_GELU:
        factor = normcdff(z);
        d = expf(-0.5f * z * z) * 0.398942280f; /* 1 / sqrt(2 pi) */
        break;
    case ACT_SILU:
        factor = logistic(z, &d);
        break;
    default:
        *slope = 1;
        return z;
    }
    *slope = factor + z * d;
    return z * factor;
}

#endif
