/*
 * activation.h - the activations of the CPU backend, W numbers at a time: value and derivative of
 * every kind in ops.h. Included by kernels.c, which is compiled once per ISA.
 */
#ifndef HEED_OPS_CPU_ACTIVATION_H
#define HEED_OPS_CPU_ACTIVATION_H
#include "ops/cpu/vec.h"

/* f(z) */
INLINE vf activation_value(enum activation_kind kind, vf z)
{
    switch (kind) {
    case ACT_RELU:
        return vf_max(vf_all(0), z); /* a NaN stays a NaN */
    default:
        return z;
    }
}

/* f'(z) */
INLINE vf activation_derivative(enum activation_kind kind, vf z)
{
    switch (kind) {
    case ACT_RELU:
        return vf_pick(z > 0.0f, vf_all(1), vf_all(0));
    default:
        return vf_all(1);
    }
}

#endif
