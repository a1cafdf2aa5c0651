/*
 * norm.h - around every sub-layer: dropout, the residual connection and layer normalisation (paper
 * 3.1, 5.4).
 */
#ifndef HEED_MODEL_NORM_H
#define HEED_MODEL_NORM_H
#include "model/pass.h"
#include "model/walk.h"

struct norm_weights {
    struct mat gain, bias; /* [1,D] */
};

/* Kept for backward; absent when nothing is kept. */
struct norm_acts {
    struct mat xhat; /* [N,D] normalised rows, before gain and bias */
    struct mat rstd; /* [N,1] 1 / standard deviation of each row */
};

void norm_walk(struct walk *k, struct norm_weights *w, const struct heed_config *c);
void norm_layout(struct norm_acts *a, struct layout *l, int rows);
void norm_scratch(struct scratch *s, struct layout *l, int rows);
void norm_bind(struct norm_acts *a, int rows);

/* y = norm(x + dropout(r)) */
void norm_forward(const struct pass *p, const struct norm_weights *w, const struct norm_acts *a,
                  struct mat y, struct mat x, struct mat r, uint32_t site);
/* Returns dr and writes dx, the gradient that goes past the sub-layer. db, if present, is the
 * gradient of a bias that r was made with. */
struct mat norm_backward(const struct pass *p, const struct norm_weights *w,
                         const struct norm_weights *g, const struct norm_acts *a, struct mat dx,
                         struct mat db, struct mat dy, uint32_t site);

#endif
