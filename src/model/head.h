/*
 * head.h - the output layer and the loss (paper 3.4, 5.4).
 *
 * Logits [T,V] would be the largest matrix of all, so they exist for one chunk of rows at a time.
 */
#ifndef HEED_MODEL_HEAD_H
#define HEED_MODEL_HEAD_H
#include "model/pass.h"

struct head_acts {
    struct mat logits; /* [chunk,V] */
    struct mat loss;   /* [T,2] see xent in ops.h */
};

void head_layout(struct head_acts *a, struct layout *l, const struct ops *op, int rows);
/* Rows of the logits that a device is given at once, at most. */
int head_chunk(const struct ops *op, const struct heed_config *c, enum type logits);

/* Some of the rows that the output layer takes, and their logits. */
struct chunk {
    int row;           /* the first of them */
    struct mat x;      /* [n,D] */
    struct mat logits; /* [n,V] */
};
/* Computes the logits of the rows of x that follow chunk *c and makes them the new *c, which is {0}
 * at first; false when there are no more rows. */
bool head_next(const struct pass *p, struct mat w, const struct head_acts *a, struct mat x,
               struct chunk *c);

/* The loss of each row and, when dx is present, the gradients, chunk by chunk: dx is written, that
 * of the weights added to g. */
void head_loss(const struct pass *p, struct mat w, struct mat g, const struct head_acts *a,
               struct mat dx, struct mat x, const int32_t *target, float label_smoothing);

#endif
