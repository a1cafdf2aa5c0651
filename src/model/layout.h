/*
 * layout.h - memory of activations: one block for a whole run of the model.
 *
 * Each module lays out its own matrices with layout_take. The same functions run twice, first to
 * measure and then to bind (base/arena.h).
 */
#ifndef HEED_MODEL_LAYOUT_H
#define HEED_MODEL_LAYOUT_H
#include "base/arena.h"
#include "model/precision.h"

struct layout {
    struct arena arena;
    const struct heed_config *config;
    struct precision precision;
    bool keep; /* what backward reads is kept: this run trains */
};

/* Whether all layers of a stack use the activations of the first: nothing is kept for backward, or
 * backward computes them again. */
static inline bool layout_shared(const struct layout *l)
{
    return !l->keep || l->config->recompute == HEED_RECOMPUTE_LAYER;
}

/* An activation matrix has its rows rounded up to ROW_PAD (ops.h). */
static inline int layout_padded(int rows)
{
    return (rows + ROW_PAD - 1) / ROW_PAD * ROW_PAD;
}

static inline struct mat layout_take(struct layout *l, int rows, int cols, enum type type)
{
    size_t bytes = (size_t)layout_padded(rows) * cols * type_size(type);
    return mat_make(arena_take(&l->arena, bytes), rows, cols, type);
}

#endif
