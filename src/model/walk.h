/*
 * walk.h - a walk over the parameters of the model. Each sub-layer names its tensors, in the order
 * in which they lie in memory and in files; counting, binding, naming, initialising and storing are
 * visitors of this walk.
 */
#ifndef HEED_MODEL_WALK_H
#define HEED_MODEL_WALK_H
#include "ops/ops.h"

/* What a tensor is, which says how it starts. */
enum role {
    ROLE_EMBEDDING,
    ROLE_PROJECTION,
    ROLE_MATRIX,
    ROLE_TABLE,
    ROLE_ROUTER, /* stays f32, so that rounding does not choose the experts */
    ROLE_BIAS,
    ROLE_GAIN
};

/* Matrices are what products read; they alone become smaller in bf16 and int8. Other tables of
 * learned vectors (ROLE_TABLE) are small. */
static inline bool role_is_matrix(enum role role)
{
    return role <= ROLE_MATRIX;
}

/* Biases and gains are vectors. */
static inline bool role_is_vector(enum role role)
{
    return role >= ROLE_BIAS;
}

enum { NAME_MAX_BYTES = 64 };

struct walk {
    /* Called for each tensor; slot is its place in the weights that are walked. */
    void (*visit)(struct walk *k, const char *name, enum role role, struct mat *slot, int rows,
                  int cols);
    char prefix[NAME_MAX_BYTES]; /* of the names of the sub-layer that is walked */
    size_t at;                   /* elements before this tensor */
    int index;                   /* tensors before this one */
};

/* Begins a sub-layer: `format` with `layer` in it is the prefix of its tensors' names. */
void walk_enter(struct walk *k, const char *format, int layer);
/* The same within the sub-layer: the names of its next tensors begin with `format` with `index` in
 * it. Returns what walk_leave takes to end this. */
size_t walk_into(struct walk *k, const char *format, int index);
void walk_leave(struct walk *k, size_t prefix);
void walk_tensor(struct walk *k, const char *name, enum role role, struct mat *slot, int rows,
                 int cols);

#endif
