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

/* f(z), where f is not ReLU, which is part of the products. *slope: f'(z) */
INLINE vf activation(enum activation_kind kind, vf z, vf *slope)
{
    vf factor, d;
    switch (kind) {
    case ACT_GELU:
        factor = normal_distribution(z, &d);
        break;
    case ACT_SILU:
        factor = logistic(z, &d);
        break;
    default:
        *slope = vf_all(1);
        return z;
    }
    *slope = factor + z * d;
    return z * factor;
}

#endif
