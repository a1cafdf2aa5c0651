/*
 * experts.h - a mixture of experts, which takes the place of the feed-forward network of a layer
 * (Shazeer et al. 2017; Fedus et al. 2021): several networks like the one in feed_forward.c, and a
 * router that sends each token to some of them. Norm and residual stay in feed_forward.c.
 */
#ifndef HEED_MODEL_EXPERTS_H
#define HEED_MODEL_EXPERTS_H
#include "model/norm.h"

/* The coefficient and the capacity of Fedus et al. 2021. Below 64 choices the counts of a batch are
 * too uneven for a limit to mean anything. */
extern const struct expert_options expert_training;

/* The matrices of one kind lie one after another, so that the first one stands for all of them
 * (experts_linear in ops.h); the same holds for the biases. */
struct expert_weights {
    struct mat router;                           /* [E,D] */
    struct mat w1[EXPERTS_MAX], b1[EXPERTS_MAX]; /* of each expert: as in feed_forward_weights */
    struct mat w2[EXPERTS_MAX], b2[EXPERTS_MAX];
};

struct expert_acts {
    struct routing routing; /* its results; what goes into it is filled in by each pass */
    struct mat z, slope, h; /* as in feed_forward_acts, [taken,...] */
    struct mat out;         /* [taken,D] the experts' outputs */
};

void experts_walk(struct walk *k, struct expert_weights *w, const struct heed_config *c);
void experts_layout(struct expert_acts *a, struct layout *l, int rows);
/* Returns the rows of matrices that hold what the experts take. */
int experts_scratch(struct scratch *s, struct layout *l, int rows);
void experts_bind(struct expert_acts *a, int rows);

/* r = the sum of what the chosen experts make of x, weighted with their gates */
void experts_forward(const struct pass *p, const struct expert_weights *w,
                     const struct expert_acts *a, struct mat r, struct mat x, uint32_t site);
/* Adds the gradients of the weights to g and writes that of x. dr: the gradient of r */
void experts_backward(const struct pass *p, const struct expert_weights *w,
                      const struct expert_weights *g, const struct expert_acts *a,
                      struct input_gradient din, struct mat dr, struct mat x, uint32_t site);

#endif
