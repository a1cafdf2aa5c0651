/*
 * bf16.h - conversion between float and bf16, the upper half of a float, one number at a time.
 * Kernels have their own vector forms.
 */
#ifndef HEED_OPS_BF16_H
#define HEED_OPS_BF16_H
#include <stdint.h>
#include <string.h>

static inline float bf16_to_float(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Round to nearest even; a NaN stays a NaN. */
static inline uint16_t bf16_from_float(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if (f != f) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

#endif
