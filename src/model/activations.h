/*
 * activations.h - every activation of one run of the model, in one block of memory.
 */
#ifndef HEED_MODEL_ACTIVATIONS_H
#define HEED_MODEL_ACTIVATIONS_H
#include "model/decoder.h"
#include "model/encoder.h"
#include "model/head.h"

struct activations {
    struct mat embed_src, embed_tgt; /* [S,D], [T,D] */
    struct encoder_acts encoder[LAYERS_MAX];
    struct decoder_acts decoder[LAYERS_MAX];
    struct norm_acts encoder_norm, decoder_norm; /* see final_norm */
    struct head_acts head;
    struct mat tallies; /* [layers, 2E+1] the tally of each layer's routing, encoder layers first;
                         * see ops.h. Absent without experts and where nothing is kept */
    struct mat memory;  /* [S,D] output of the encoder: a view of its last activation */
    struct mat dmemory; /* [S,D] its gradient */
    struct scratch scratch;
};

/* For at most so many rows on each side, and keys and values of so many rows of the memory. */
void activations_layout(struct activations *a, struct layout *l, const struct ops *op, int rows_src,
                        int rows_tgt, int rows_memory, int sentences);
/* Set the rows of every activation of a side to those of a batch or step. */
void activations_bind_source(struct activations *a, const struct heed_config *c, int rows,
                             int rows_memory);
void activations_bind_target(struct activations *a, const struct heed_config *c, int rows);

#endif
