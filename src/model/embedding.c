/*
 * embedding.c - see embedding.h.
 */
#include "model/embedding.h"

#include "model/position.h"

void embedding_walk(struct walk *k, struct embedding_weights *w, const struct heed_config *c)
{
    walk_tensor(k, "embed.weight", ROLE_EMBEDDING, &w->table, c->vocab_size, c->d_model);
}

void embedding_forward(const struct pass *p, const struct embedding_weights *w, struct mat y,
                       const int32_t *id, const int32_t *pos, uint32_t site)
{
    p->be->op->embed(p->be, y, id, pos, w->table, position_added(p),
                     drop_at(p, p->config->dropout, site));
}

void embedding_backward(const struct pass *p, const struct embedding_weights *g, const int32_t *id,
                        struct mat dy, uint32_t site)
{
    p->be->op->embed_bwd(p->be, g->table, id, dy, drop_at(p, p->config->dropout, site));
}
