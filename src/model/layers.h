/*
 * layers.h - inside the model: sub-layers, stacks and head, forward and backward, over the ops.
 */
#ifndef HEED_MODEL_LAYERS_H
#define HEED_MODEL_LAYERS_H
#include "model/transformer.h"

/* Where a dropout is: part of the key of its mask. */
enum site {
    SITE_EMBED_SRC,
    SITE_EMBED_TGT,
    SITE_FIRST_LAYER = 8,
    SITES_PER_LAYER = 8,
    SITE_SELF_WEIGHTS = 0,
    SITE_SELF_OUT,
    SITE_CROSS_WEIGHTS,
    SITE_CROSS_OUT,
    SITE_FF_INNER,
    SITE_FF_OUT
};

/* Encoder layers come first, then decoder layers. */
static inline int decoder_layer(const struct run *r, int layer)
{
    return r->p->config.encoder_layers + layer;
}

static inline uint32_t site_at(int layer, enum site site)
{
    return SITE_FIRST_LAYER + (uint32_t)layer * SITES_PER_LAYER + site;
}

static inline struct drop drop_at(const struct run *r, float p, uint32_t site)
{
    return (struct drop){r->dropout ? p : 0, r->seed, site};
}

/* sublayers.c */

/* y = norm(x + dropout(attention(q, k, v) Wo)); q, k, v are projected already */
void attention_forward(struct run *r, const struct attention_weights *w, struct attention_acts *a,
                       struct mat x, struct mat k, struct mat v, const struct seqs *seqs,
                       uint32_t site);
/* dx is written with what comes past the attention; dq, dk, dv with what goes to the projections */
void attention_backward(struct run *r, const struct attention_weights *w,
                        const struct attention_weights *g, const struct attention_acts *a,
                        struct mat dx, struct mat dq, struct mat dk, struct mat dv, struct mat dy,
                        struct mat k, struct mat v, const struct seqs *seqs, uint32_t site);
/* y = norm(x + dropout(max(0, x W1 + b1) W2 + b2)) */
void ff_forward(struct run *r, const struct ff_weights *w, struct ff_acts *a, struct mat x,
                int layer);
void ff_backward(struct run *r, const struct ff_weights *w, const struct ff_weights *g,
                 const struct ff_acts *a, struct mat dx, struct mat dy, struct mat x, int layer);

/* encoder.c, decoder.c */
void encoder_forward(struct run *r, const struct pass *p);
/* dy: gradient of the memory; it is overwritten */
void encoder_backward(struct run *r, const struct pass *p, struct mat dy);
/* k and v of the memory for every layer; once per batch */
void decoder_memory(struct run *r);
/* the embedded rows are in r->embed_tgt; returns the output rows */
struct mat decoder_forward(struct run *r, const struct pass *p);
/* dy: gradient of the output; fills r->s.dmem */
void decoder_backward(struct run *r, const struct pass *p, struct mat dy);

/* head.c */

/* Logits, loss and, when dx is present, their gradients, chunk by chunk of rows. */
void head_loss(struct run *r, struct mat x, const int32_t *target, float label_smoothing,
               struct mat dx);
/* rows of the output layer held at once */
int head_chunk(const struct ops *op, const struct heed_config *c);

#endif
