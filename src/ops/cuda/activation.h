/*
 * activation.h - the activations of the CUDA backend: value and derivative of every kind in ops.h.
 */
#ifndef HEED_OPS_CUDA_ACTIVATION_H
#define HEED_OPS_CUDA_ACTIVATION_H
#include "ops/ops.h"

/* f(z) */
static __device__ inline float activation_value(enum activation_kind kind, float z)
{
    switch (kind) {
    case ACT_RELU:
        return z < 0 ? 0 : z; /* a NaN stays a NaN */
    case ACT_GELU:
        return z * normcdff(z);
    default:
        return z;
    }
}

/* f'(z) */
static __device__ inline float activation_derivative(enum activation_kind kind, float z)
{
    switch (kind) {
    case ACT_RELU:
        return z > 0 ? 1 : 0;
    case ACT_GELU:
        return normcdff(z) + z * expf(-0.5f * z * z) * 0.398942280f; /* 1 / sqrt(2 pi) */
    default:
        return 1;
    }
}

#endif
