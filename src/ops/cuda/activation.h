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

/* f(z) */
static __device__ inline float activation_value(enum activation_kind kind, float z)
{
    float slope;
    switch (kind) {
    case ACT_RELU:
        return z < 0 ? 0 : z; /* a NaN stays a NaN */
    case ACT_GELU:
        return z * normcdff(z);
    case ACT_SILU:
        return z * logistic(z, &slope);
    default:
        return z;
    }
}

/* f'(z) */
static __device__ inline float activation_derivative(enum activation_kind kind, float z)
{
    float value, slope;
    switch (kind) {
    case ACT_RELU:
        return z > 0 ? 1 : 0;
    case ACT_GELU:
        return normcdff(z) + z * expf(-0.5f * z * z) * 0.398942280f; /* 1 / sqrt(2 pi) */
    case ACT_SILU:
        value = logistic(z, &slope);
        return value + z * slope;
    default:
        return 1;
    }
}

#endif
