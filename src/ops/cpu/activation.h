/*
 * activation.h - the activations of the CPU backend, W numbers at a time: value and derivative of
 * every kind in ops.h. Included by kernels.c, which is compiled once per ISA.
 */
#ifndef HEED_OPS_CPU_ACTIVATION_H
#define HEED_OPS_CPU_ACTIVATION_H
#include "ops/cpu/vec.h"

/* The normal distribution function of z within 2e-7. *density: its derivative. For a = |z| it is
 * 1 - t p(t) exp(-a^2/2) with t = 1 / (1 + 0.35 a); the polynomial p interpolates
 * erfc(a / sqrt(2)) exp(a^2/2) / (2 t) at the Chebyshev nodes of 0 <= a <= 15. */
INLINE vf normal_distribution(vf z, vf *density)
{
    vf t = 1.0f / (1.0f + 0.35f * vf_max(z, -z)), e = vf_exp(z * z * -0.5f);
    vf p = vf_all(-0.0297704390f);
    p = p * t + 0.146950922f;
    p = p * t - 0.261712669f;
    p = p * t + 0.165801802f;
    p = p * t - 0.0274828896f;
    p = p * t + 0.107262773f;
    p = p * t + 0.119417036f;
    p = p * t + 0.139914804f;
    p = p * t + 0.139618643f;
    vf beyond = p * t * e;
    *density = e * 0.398942280f; /* 1 / sqrt(2 pi) */
    return vf_pick(z < 0.0f, beyond, 1.0f - beyond);
}

/* The logistic function 1 / (1 + exp(-z)). *slope: its derivative. Both come from exp(-|z|), which
 * is at most 1, so that nothing overflows and nothing cancels. */
INLINE vf logistic(vf z, vf *slope)
{
    vf e = vf_exp(vf_min(z, -z)), r = 1.0f / (1.0f + e);
    *slope = e * r * r;
    return vf_pick(z < 0.0f, e, vf_all(1)) * r;
}

/* f(z) */
INLINE vf activation_value(enum activation_kind kind, vf z)
{
    vf slope;
    switch (kind) {
    case ACT_RELU:
        return vf_max(vf_all(0), z); /* a NaN stays a NaN */
    case ACT_GELU:
        return z * normal_distribution(z, &slope);
    case ACT_SILU:
        return z * logistic(z, &slope);
    default:
        return z;
    }
}

/* f'(z) */
INLINE vf activation_derivative(enum activation_kind kind, vf z)
{
    vf slope, value;
    switch (kind) {
    case ACT_RELU:
        return vf_pick(z > 0.0f, vf_all(1), vf_all(0));
    case ACT_GELU:
        value = normal_distribution(z, &slope);
        return value + z * slope;
    case ACT_SILU:
        value = logistic(z, &slope);
        return value + z * slope;
    default:
        return vf_all(1);
    }
}

#endif
