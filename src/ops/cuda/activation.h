/*
 * activation.h - the activations of the CUDA backend: value and derivative of every kind in ops.h.
 */
#ifndef HEED_OPS_CUDA_ACTIVATION_H
#define HEED_OPS_CUDA_ACTIVATION_H
#include "ops/cuda/fragment.h"
#include "ops/ops.h"

/* ---- for any type of numbers ---- */

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

/* ---- for results that are rounded to bf16: in few instructions ----
 *
 * The error, for finite z, is at most 2e-6: a small part of that of rounding to bf16. */

static __device__ __forceinline__ float fast_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ float fast_logistic(float z)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1 + fast_exp2(z * -1.442695041f)));
    return y;
}

/* The normal distribution function of z. Up to -|z| it is exp2(x), where x is close to a parabola:
 * the polynomial is the best of its degree on 0 <= |z| <= 5 for the error of the function; beyond,
 * it keeps falling. */
static __device__ __forceinline__ float fast_normal_distribution(float z)
{
    float t = fabsf(z), x = -5.002620746e-04f;
    x = x * t + 7.282395847e-03f;
    x = x * t - 5.234328657e-02f;
    x = x * t - 4.594140351e-01f;
    x = x * t - 1.151052117e+00f;
    x = x * t - 1.000001907e+00f;
    return copysignf(0.5f - fast_exp2(x), z) + 0.5f;
}

/* f(z) of GELU or SiLU. *slope: f'(z) */
template <enum activation_kind KIND>
static __device__ __forceinline__ float fast_activation(float z, float *slope)
{
    static_assert(KIND == ACT_GELU || KIND == ACT_SILU, "an activation with a fast form");
    if (KIND == ACT_SILU) {
        float s = fast_logistic(z), value = z * s;
        *slope = value * (1 - s) + s;
        return value;
    }
    float p = fast_normal_distribution(z);
    *slope = z * fast_exp2(z * (z * -0.7213475204f) - 1.325748065f) + p; /* z times the density */
    return z * p;
}

/* SiLU for results that are stored as the type of the pointer. *slope: its derivative */
static __device__ __forceinline__ float silu_for(float z, float *slope, const float *)
{
    return activation(ACT_SILU, z, slope);
}
static __device__ __forceinline__ float silu_for(float z, float *slope, const bf16 *)
{
    return fast_activation<ACT_SILU>(z, slope);
}

#endif
