/*
 * embedding.c - see embedding.h.
 */
#include "model/embedding.h"

#include <math.h>

#include "model/position.h"

void embeddings_walk(struct walk *k, struct embeddings *w, const struct heed_config *c)
{
    int v = c->vocab_size, d = c->d_model;
    walk_tensor(k, "embed.weight", ROLE_EMBEDDING, &w->target.table, v, d);
    if (c->tie == HEED_TIE_ALL)
        w->source.table = w->target.table;
    else
        walk_tensor(k, "encoder.embed.weight", ROLE_EMBEDDING, &w->source.table, v, d);
    if (c->tie == HEED_TIE_NONE)
        walk_tensor(k, "output.weight", ROLE_EMBEDDING, &w->output, v, d);
    else
        w->output = w->target.table;
    position_walk(k, &w->source.position, c, "encoder.");
    position_walk(k, &w->target.position, c, "decoder.");
}

void embedding_forward(const struct pass *p, const struct embedding_weights *w, struct mat y,
                       const int32_t *id, const int32_t *pos, uint32_t site)
{
    p->be->op->embed(p->be, y, id, pos, w->table, position_added(p, w->position),
                     drop_at(p, p->config->dropout, site));
}

void embedding_backward(const struct pass *p, const struct embedding_weights *g, const int32_t *id,
                        const int32_t *pos, struct mat dy, uint32_t site)
{
    struct drop drop = drop_at(p, p->config->dropout, site);
    p->be->op->embed_bwd(p->be, g->table, id, dy, sqrt(dy.cols), drop);
    if (p->config->position == HEED_POSITION_LEARNED)
        p->be->op->embed_bwd(p->be, g->position, pos, dy, 1, drop);
}
