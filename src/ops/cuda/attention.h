/*
 * attention.h - attend and attend_bwd of the CUDA backend. Every pointer of struct attention
 * (ops.h), those of seqs included, points to device memory.
 *
 * Both functions only launch kernels; they allocate nothing and do not wait, so the stream may be
 * capturing a graph. attention.cu chooses a kernel by types, widths, alignment, form and whether
 * seqs has a table of keys, never by the number or the lengths of the sentences, so forward gives a
 * sentence the same bits in every batch. Sums have a fixed order, so two runs give the same bits.
 */
#ifndef HEED_OPS_CUDA_ATTENTION_H
#define HEED_OPS_CUDA_ATTENTION_H
#include "ops/cuda/cuda.h"

void attention_forward(const struct attention *a, struct chain chain);
/* Uses the stream and the scratch block of c. */
void attention_backward(struct gpu *c, const struct attention *a, const struct attention_grad *g);

#endif
