/*
 * resident.h - products on Hopper whose weights stay in shared memory; see resident.cu.
 */
#ifndef HEED_OPS_CUDA_RESIDENT_H
#define HEED_OPS_CUDA_RESIDENT_H
#include "ops/cuda/cuda.h"

/* y = x wT or, turned, x w, all bf16; name: for the trace. Returns whether it computed it, which it
 * does where that is faster than cuBLASLt. */
bool resident_product(struct gpu *c, const char *name, struct mat y, struct mat x, struct mat w,
                      bool turned);

/* hopper.cu: the TMA descriptor of m for boxes of so many rows and 64 columns. Where a box extends
 * beyond m, TMA reads zeros and stores nothing. Returns false for a matrix that TMA cannot copy. */
bool box_map_of(struct gpu *c, CUtensorMap *map, struct mat m, int rows);

#endif
