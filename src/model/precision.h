/*
 * precision.h - which type each kind of number has in training and in translation.
 */
#ifndef HEED_MODEL_PRECISION_H
#define HEED_MODEL_PRECISION_H
#include "ops/ops.h"

struct precision {
    enum type act;    /* activations and their gradients */
    enum type matrix; /* weights as the products read them */
    enum type master; /* parameters, gradients, moments, statistics */
    enum type keys;   /* keys and values that translation keeps: besides the weights, they are most
                       * of what a decoding step reads */
};

extern const struct precision precision_f32, precision_bf16, precision_f64;

/* array[at] = x, for an array of the master's type in host memory */
static inline void master_put(void *array, enum type type, size_t at, double x)
{
    if (type == TYPE_F64)
        ((double *)array)[at] = x;
    else
        ((float *)array)[at] = (float)x;
}

#endif
