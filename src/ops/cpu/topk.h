/*
 * topk.h - the best of a row of logits, and the logarithm of their sum of exp.
 *
 * Place: cpu_topk reads a matrix of logits, cpu_linear_topk (cpu.h) the blocks of a product with
 * packed weights. Both take in a row in blocks of PACKED_BLOCK columns by the kernel topk
 * (kernels.h), so that they give the same bits.
 */
#ifndef HEED_OPS_CPU_TOPK_H
#define HEED_OPS_CPU_TOPK_H
#include "ops/cpu/kernels.h"

/* topk of ops.h for one row of n logits. The wanted ids are in id already, behind the k best:
 * score, id [k + wants] */
void topk_row(const struct kernels *kernels, const void *x, int n, enum type t, int k, float *score,
              int32_t *id, int wants);

#endif
