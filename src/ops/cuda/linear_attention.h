/*
 * linear_attention.h - linear attention of the CUDA backend (see ops.h). Every pointer of struct
 * attention, those of seqs included, points to device memory.
 *
 * The functions only launch kernels. What a kernel does depends on types and widths, never on the
 * number or the lengths of the sentences, and sums have a fixed order.
 */
#ifndef HEED_OPS_CUDA_LINEAR_ATTENTION_H
#define HEED_OPS_CUDA_LINEAR_ATTENTION_H
#include "ops/cuda/launch.h"
#include "ops/ops.h"

/* linear_attention.cu; shared: bytes of shared memory that a block can have */
void linear_attention_forward(const struct attention *a, int shared, struct chain chain);
void linear_attention_backward(const struct attention *a, const struct attention_grad *g,
                               int shared, struct chain chain);
void linear_attention_sum(struct mat states, const struct attention *a, int shared,
                          struct chain chain);
/* linear_attention_tiles.cu: returns whether it computed forward or, where g is not NULL, backward
 */
bool linear_attention_tiles(const struct attention *a, const struct attention_grad *g, int shared,
                            struct chain chain);
/* linear_state.cu */
void linear_attention_step(struct mat states, const struct attention *a, struct chain chain);
void linear_attention_weights(const struct attention *a, struct chain chain);

#endif
