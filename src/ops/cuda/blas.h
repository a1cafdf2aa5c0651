/*
 * blas.h - matrix products: by cuBLASLt, which is loaded when a device is opened, or by a plain
 * kernel for shapes that cuBLASLt does not support.
 */
#ifndef HEED_OPS_CUDA_BLAS_H
#define HEED_OPS_CUDA_BLAS_H
#include "ops/cuda/cuda.h"

struct blas;

/* c [m,n] = op(a) op(b) + bias + beta*c, row-major; op transposes where ta and tb say so, and with
 * relu the sum goes through ReLU. a and b have one type, F32 or BF16; c has that type or F32; bias
 * [n] has the type of c. bias and beta are not used together. */
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
