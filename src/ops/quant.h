/*
 * quant.h - quantization to int8, of rows of weights and of activations: a row has one scale, its
 * largest magnitude over 127, and each number is rounded to the nearest multiple of it, ties to
 * even.
 */
#ifndef HEED_OPS_QUANT_H
#define HEED_OPS_QUANT_H
#include <math.h>
#include <stdint.h>

/* A row whose magnitudes are all below this counts as zero: its scale might not be a normal number.
 */
#define QUANT_TINY 1e-30f

/* The largest magnitude of x[n] */
static inline float quant_most(const float *x, int n)
{
    float most = 0;
    for (int i = 0; i < n; i++) most = fmaxf(most, fabsf(x[i]));
    return most;
}

/* The scale of a row whose largest magnitude is `most`; 0: the row counts as zero */
static inline float quant_scale(float most)
{
    return most < QUANT_TINY ? 0 : most / 127;
}

/* q[n]: x[n], of a row whose largest magnitude is `most`, as multiples of its scale */
static inline void quant_numbers(int8_t *q, const float *x, int n, float most)
{
    float unit = most < QUANT_TINY ? 0 : 127 / most;
    for (int i = 0; i < n; i++) q[i] = (int8_t)lrintf(x[i] * unit);
}

/* q[n]: a whole row x[n] as multiples of the scale that is returned */
static inline float quant_row(int8_t *q, const float *x, int n)
{
    float most = quant_most(x, n);
    quant_numbers(q, x, n, most);
    return quant_scale(most);
}

#endif
