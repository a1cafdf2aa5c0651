/*
 * flops.h - how many floating-point operations training on a batch takes.
 */
#ifndef HEED_MODEL_FLOPS_H
#define HEED_MODEL_FLOPS_H
#include "base/packed.h"
#include "heed.h"

/* Operations of the matrix products of forward and backward; a multiplication and an addition are
 * two. Backward takes twice as many as forward. Of the weights of attention those that the causal
 * mask or the window leaves out are not counted. */
double model_flops(const struct heed_config *c, const struct packed *b);

#endif
