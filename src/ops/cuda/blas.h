/*
 * blas.h - matrix products: cuBLASLt, which is loaded when a device is opened, and for the shapes
 * that it does not take a plain kernel.
 */
#ifndef HEED_OPS_CUDA_BLAS_H
#define HEED_OPS_CUDA_BLAS_H
#include "ops/cuda/cuda.h"

struct blas;

/* c [m,n] = relu(a b + bias) + beta*c, in rows as everything here, with b perhaps read from its
 * transpose and a too. Inputs are of one type, F32 or BF16, c of the same or F32; bias [n] is of
 * c's type, and there is none with a beta. */
struct product {
    struct mat c, a, b;
    bool ta, tb;
    float beta;
    const void *bias; /* NULL: none */
    bool relu;
    const char *name; /* for the trace */
};

enum heed_status blas_open(struct blas **out, struct gpu *c, struct heed_error *err);
void blas_close(struct blas *b);
void blas_run(struct gpu *c, const struct product *p);

#endif
