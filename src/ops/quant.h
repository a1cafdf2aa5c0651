/*
 * quant.h - numbers in 8 bits: a row has one scale, its largest magnitude over 127, and each number
 * is the nearest multiple of it, of two the even one. Rows of weights and rows of activations
 * alike.
 */
#ifndef HEED_OPS_QUANT_H
#define HEED_OPS_QUANT_H
#include <math.h>
#include <stdint.h>

/* A row without a larger magnitude counts as zero: its scale would not be a normal number. */
#define QUANT_TINY 1e-30f

/* q[n]: x[n] in units of the scale that is returned */
static inline float quant_row(int8_t *q, const float *x, int n)
{
    float most = 0;
    for (int i = 0; i < n; i++) most = fmaxf(most, fabsf(x[i]));
    float unit = most < QUANT_TINY ? 0 : 127 / most;
    for (int i = 0; i < n; i++) q[i] = (int8_t)lrintf(x[i] * unit);
    return unit == 0 ? 0 : most / 127;
}

#endif
