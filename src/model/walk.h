/*
 * walk.h - one walk over the structure of the model: every tensor, in file order.
 *
 * Measuring, binding, naming, initialising and storing parameters are visitors of this walk.
 */
#ifndef HEED_MODEL_WALK_H
#define HEED_MODEL_WALK_H
#include "model/parameters.h"

enum role { ROLE_EMBEDDING, ROLE_PROJECTION, ROLE_MATRIX, ROLE_BIAS, ROLE_GAIN };

static inline bool role_is_matrix(enum role role)
{
    return role <= ROLE_MATRIX;
}

/* visit is called for every tensor; slot is the tensor's place in the weights being walked. */
struct walk {
    void (*visit)(struct walk *k, const char *name, enum role role, struct mat *slot, int rows,
                  int cols);
    char prefix[40];
    size_t at; /* elements before this tensor; walk_tensor advances it */
    int index; /* tensors before this one */
};

void walk_weights(struct walk *k, struct weights *w, const struct heed_config *c);

#endif
