/*
 * feed_forward.h - the position-wise feed-forward network (paper 3.3).
 */
#ifndef HEED_MODEL_FEED_FORWARD_H
#define HEED_MODEL_FEED_FORWARD_H
#include "model/experts.h"

struct feed_forward_weights {
    struct mat w1, b1; /* [F,D], [1,F]; gated: [2F,D], [1,2F], the gate before the up projection */
    struct mat w2, b2; /* [D,F], [1,D] */
    struct expert_weights experts; /* in place of these, with ff moe */
    struct norm_weights norm;
};

struct feed_forward_acts {
    struct mat z;     /* gated: [N,2F] input of the gate */
    struct mat slope; /* [N,F] of the activation (ops.h); absent where backward does not need it */
    struct mat h;     /* [N,F] output of gate or activation, after dropout */
    struct expert_acts experts; /* in place of these, with ff moe */
    struct norm_acts norm;
    struct mat y; /* [N,D] output of the sub-layer; see norm_output_layout */
};

/* Whether a gate follows the first linear, instead of an activation. */
bool feed_forward_gated(const struct heed_config *c);
/* The inner width F: d_ff, or with a gate two thirds of it in whole panels of packed weights, so
 * that its three matrices have about as many parameters as two of width d_ff. */
int feed_forward_width(const struct heed_config *c);
/* Outputs of the first linear: F, with a gate 2F. */
int feed_forward_outputs(const struct heed_config *c);
/* Whether the slope of the activation is stored, ... */
bool feed_forward_keeps_slope(const struct layout *l);
/* ... and the activation of the first linear, with the dropout behind it. */
struct activation feed_forward_activation(const struct pass *p, struct mat slope, uint32_t site);

void feed_forward_walk(struct walk *k, struct feed_forward_weights *w, const struct heed_config *c);
void feed_forward_layout(struct feed_forward_acts *a, struct layout *l, int rows);
void feed_forward_scratch(struct scratch *s, struct layout *l, int rows);
/* Sets the rows of every activation to those of a batch. */
void feed_forward_bind(struct feed_forward_acts *a, int rows);

/* Returns the output of the sub-layer (norm.h). */
struct mat feed_forward(const struct pass *p, const struct feed_forward_weights *w,
                        const struct feed_forward_acts *a, struct mat x, uint32_t site);
/* Returns dx; the gradients of the weights are added to g. */
struct mat feed_forward_backward(const struct pass *p, const struct feed_forward_weights *w,
                                 const struct feed_forward_weights *g,
                                 const struct feed_forward_acts *a, struct mat dy, struct mat x,
                                 uint32_t site);

#endif
