/*
 * attention.h - attend and attend_bwd of the CUDA backend: struct attention of ops.h with every
 * pointer, those of seqs too, in device memory.
 *
 * Both only launch kernels: nothing is allocated, nothing waits, and a stream may be capturing.
 * attention.cu chooses a kernel by types, widths, alignment and whether there is a table of keys,
 * never by the number or the lengths of the sentences, so that forward gives a sentence the same
 * bits in every batch. Sums are taken in a fixed order: two runs give the same bits.
 */
#ifndef HEED_OPS_CUDA_ATTENTION_H
#define HEED_OPS_CUDA_ATTENTION_H
#include "ops/cuda/launch.h"
#include "ops/ops.h"

void attention_forward(const struct attention *a, struct chain chain);
void attention_backward(const struct attention *a, struct mat dq, struct mat dk, struct mat dv,
                        struct mat dout, cudaStream_t stream);

#endif
