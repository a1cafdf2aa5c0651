/*
 * embedding.h - token ids to rows: the learned embeddings, scaled by sqrt(D), plus positions (paper
 * 3.4, 3.5). The matrix of the output layer is here, too, because it may be that of the embeddings.
 */
#ifndef HEED_MODEL_EMBEDDING_H
#define HEED_MODEL_EMBEDDING_H
#include "model/pass.h"
#include "model/walk.h"

/* The weights of one stack. */
struct embedding_weights {
    struct mat table;    /* [V,D] */
    struct mat position; /* [max_length,D] where positions are learned */
};

/* Matrices that are tied are one and the same. */
struct embeddings {
    struct embedding_weights source, target;
    struct mat output; /* [V,D] of the output layer */
};

void embeddings_walk(struct walk *k, struct embeddings *w, const struct heed_config *c);

/* y = dropout(table[id] * sqrt(D) + position[pos]), for y.rows ids; position is what
 * position_added returns, or 0 */
void embedding_forward(const struct pass *p, const struct embedding_weights *w, struct mat y,
                       const int32_t *id, const int32_t *pos, uint32_t site);
/* Adds the gradients of the table and of learned positions to g. */
void embedding_backward(const struct pass *p, const struct embedding_weights *g, const int32_t *id,
                        const int32_t *pos, struct mat dy, uint32_t site);

#endif
