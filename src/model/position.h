/*
 * position.h - what tells the model where in its sentence a token stands (paper 3.5).
 */
#ifndef HEED_MODEL_POSITION_H
#define HEED_MODEL_POSITION_H
#include "ops/ops.h"

/* Allocates and fills the table [max_length,D] that the embeddings are added to. The caller frees
 * table->p with the backend, also after a failure. */
enum heed_status position_open(struct mat *table, struct backend *be, const struct heed_config *c,
                               enum type type, struct heed_error *err);

#endif
