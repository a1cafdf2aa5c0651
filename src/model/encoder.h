/*
 * encoder.h - the encoder stack: self-attention and feed-forward, N times (paper 3.1).
 */
#ifndef HEED_MODEL_ENCODER_H
#define HEED_MODEL_ENCODER_H
#include "model/attention.h"
#include "model/feed_forward.h"

/* Weights and activations of one layer. */
struct encoder_weights {
    struct attention_weights self;
    struct feed_forward_weights ff;
};

struct encoder_acts {
    struct attention_acts self;
    struct feed_forward_acts ff;
};

/* Each of these takes all layers: w, g and a are arrays of config->encoder_layers. The walk also
 * takes NULL, when only names and shapes are wanted. */
void encoder_walk(struct walk *k, struct encoder_weights *w, const struct heed_config *c);
/* Where layers share their activations (layout.h), each has its own output all the same if backward
 * will compute the next layer again from it. */
void encoder_layout(struct encoder_acts *a, struct layout *l, int rows);
void encoder_bind(struct encoder_acts *a, const struct heed_config *c, int rows);

/* x: the embedded source. Returns the memory. */
struct mat encoder_forward(const struct pass *p, const struct encoder_weights *w,
                           const struct encoder_acts *a, struct mat x, const struct seqs *seqs);
/* dy: the gradient of the memory. Returns that of x. */
struct mat encoder_backward(const struct pass *p, const struct encoder_weights *w,
                            const struct encoder_weights *g, const struct encoder_acts *a,
                            struct mat dy, struct mat x, const struct seqs *seqs);

#endif
