/*
 * attention_parts.h - the attention kernels that attention.cu chooses from; each function launches
 * its kernels. kv_heads of struct attention is set.
 */
#ifndef HEED_OPS_CUDA_ATTENTION_PARTS_H
#define HEED_OPS_CUDA_ATTENTION_PARTS_H
#include "ops/cuda/attention.h"

/* attention_plain.cu: any width, type, alignment and form */
void attention_plain_forward(const struct attention *a, cudaStream_t stream);
void attention_plain_backward(struct gpu *c, const struct attention *a,
                              const struct attention_grad *g);
void attention_weights(const struct attention *a, cudaStream_t stream); /* from lse */

/* attention_rows.cu: heads of up to 128, multiples of 8, 16-byte aligned; any form */
void attention_rows_forward(const struct attention *a, struct chain chain);

/* attention_additive.cu: additive attention without a table of keys, heads of up to 128 */
/* Whether they compute it. */
bool attention_additive_take(const struct attention *a);
void attention_additive_forward(const struct attention *a, cudaStream_t stream);
void attention_additive_backward(struct gpu *c, const struct attention *a,
                                 const struct attention_grad *g);

/* attention_tiles.cu, attention_tiles_bwd.cu: the widths of attention_rows.cu in bf16, without a
 * table of keys */
/* Whether they compute this form. */
bool attention_tiles_take(const struct attention *a);
void attention_tiles_forward(const struct attention *a, struct chain chain);
/* Returns whether it computed the gradients. */
bool attention_tiles_backward(struct gpu *c, const struct attention *a,
                              const struct attention_grad *g);

#endif
