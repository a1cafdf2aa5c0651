/*
 * encoder.c - the encoder stack: self-attention and feed-forward, N times (paper 3.1).
 */
#include "model/layers.h"

static const struct mat none;
static const struct activation identity;

static struct mat layer_input(const struct run *r, int layer, int rows)
{
    return mat_rows(layer ? r->encoder[layer - 1].ff.y : r->embed_src, 0, rows);
}

void encoder_forward(struct run *r, const struct pass *p)
{
    int d = r->p->config.d_model, layers = r->p->config.encoder_layers;
    for (int l = 0; l < layers; l++) {
        const struct encoder_weights *w = &r->p->w.encoder[l];
        struct encoder_acts *a = &r->encoder[l];
        struct mat x = layer_input(r, l, p->rows), qkv = mat_rows(a->self.qkv, 0, p->rows);
        r->be->op->linear(r->be, qkv, x, mat_stack(w->self.q, 3), none, identity);
        attention_forward(r, &w->self, &a->self, x, mat_cols(qkv, d, d), mat_cols(qkv, 2 * d, d),
                          &p->self, site_at(l, SITE_SELF_WEIGHTS));
        ff_forward(r, &w->ff, &a->ff, mat_rows(a->self.y, 0, p->rows), l);
    }
    r->memory = layer_input(r, layers, p->rows);
}

void encoder_backward(struct run *r, const struct pass *p, struct mat dy)
{
    int d = r->p->config.d_model, rows = p->rows;
    struct mat dqkv = mat_rows(r->s.dqkv, 0, rows);
    struct mat above = dy, below = mat_rows(r->s.d[0], 0, rows);
    for (int l = r->p->config.encoder_layers - 1; l >= 0; l--) {
        const struct encoder_weights *w = &r->p->w.encoder[l], *g = &r->g.encoder[l];
        const struct encoder_acts *a = &r->encoder[l];
        struct mat qkv = mat_rows(a->self.qkv, 0, rows);
        ff_backward(r, &w->ff, &g->ff, &a->ff, below, above, mat_rows(a->self.y, 0, rows), l);
        attention_backward(r, &w->self, &g->self, &a->self, above, mat_cols(dqkv, 0, d),
                           mat_cols(dqkv, d, d), mat_cols(dqkv, 2 * d, d), below,
                           mat_cols(qkv, d, d), mat_cols(qkv, 2 * d, d), &p->self,
                           site_at(l, SITE_SELF_WEIGHTS));
        r->be->op->linear_bwd(r->be, above, 1, none, mat_stack(g->self.q, 3), dqkv,
                              layer_input(r, l, rows), mat_stack(w->self.q, 3), identity);
    }
    r->be->op->embed_bwd(r->be, r->g.embed, r->batch.src, above,
                         drop_at(r, r->p->config.dropout, SITE_EMBED_SRC));
}
