/*
 * norm.h - around every sub-layer: dropout, the residual connection and layer normalisation (paper
 * 3.1, 5.4). With f the sub-layer,
 *
 *     post (the paper)   y = norm(x + dropout(f(x)))
 *     pre                y = x + dropout(f(norm(x))), and one more norm after the last layer
 *
 * A sub-layer asks for its input, computes r from it, and gives r back:
 *
 *     in = norm_input(p, w, a, x)           x or norm(x)
 *     r = f(in)
 *     y = norm_output(p, w, a, y, x, r)
 *
 * and the same in reverse for the gradients. In a pre-norm model y may overwrite x: what backward
 * needs of x is in the norm's own activations.
 */
#ifndef HEED_MODEL_NORM_H
#define HEED_MODEL_NORM_H
#include "model/pass.h"
#include "model/walk.h"

struct norm_weights {
    struct mat gain, bias; /* [1,D] */
};

struct norm_acts {
    struct mat y;    /* [N,D] output of the norm, with pre; absent with post */
    struct mat xhat; /* [N,D] normalised rows, before gain and bias; kept for backward */
    struct mat rstd; /* [N,1] 1 / standard deviation of each row; kept for backward */
};

void norm_walk(struct walk *k, struct norm_weights *w, const struct heed_config *c);
void norm_layout(struct norm_acts *a, struct layout *l, int rows);
/* Output of a sub-layer: a matrix [N,D] of its own; absent where it overwrites x, as it does with
 * pre unless backward computes the layer again from x. */
struct mat norm_output_layout(struct layout *l, int rows);
void norm_scratch(struct scratch *s, struct layout *l, int rows);
void norm_bind(struct norm_acts *a, int rows);

/* The input of the sub-layer: x, or norm(x). */
struct mat norm_input(const struct pass *p, const struct norm_weights *w, const struct norm_acts *a,
                      struct mat x);
/* The same again in backward, which computes nothing. */
struct mat norm_input_kept(const struct norm_acts *a, struct mat x);
/* Returns the output of the sub-layer: y, or x where y is absent. */
struct mat norm_output(const struct pass *p, const struct norm_weights *w,
                       const struct norm_acts *a, struct mat y, struct mat x, struct mat r,
                       uint32_t site);

/* The gradient of the input of the sub-layer, to which the sub-layer adds its own:
 * d = beta * d + ... */
struct input_gradient {
    struct mat d;
    float beta;
};

/* Returns dr; db, if present, is the gradient of a bias that r was made with. */
struct mat norm_output_backward(const struct pass *p, const struct norm_weights *w,
                                const struct norm_weights *g, const struct norm_acts *a,
                                struct input_gradient *in, struct mat db, struct mat dy,
                                uint32_t site);
/* Returns dx. */
struct mat norm_input_backward(const struct pass *p, const struct norm_weights *w,
                               const struct norm_weights *g, const struct norm_acts *a,
                               struct mat d, struct mat dy);

/* The norm after the last layer of a stack, which only pre has; with post each of these returns
 * what it is given. The forward function returns norm(x), backward the gradient of x. */
void final_norm_walk(struct walk *k, struct norm_weights *w, const struct heed_config *c,
                     const char *prefix);
void final_norm_layout(struct norm_acts *a, struct layout *l, int rows);
struct mat final_norm(const struct pass *p, const struct norm_weights *w, const struct norm_acts *a,
                      struct mat x);
struct mat final_norm_backward(const struct pass *p, const struct norm_weights *w,
                               const struct norm_weights *g, const struct norm_acts *a,
                               struct mat dy);

#endif
