/*
 * decoder.c - the decoder stack: masked self-attention, attention over the memory, feed-forward, N
 * times (paper 3.1).
 *
 * Training sees a whole target at once; translation one position, with the keys and values of
 * earlier positions in a cache. The only difference is where self-attention finds its keys.
 */
#include "model/layers.h"

static const struct mat none;
static const struct activation identity;

static struct mat layer_input(const struct run *r, int layer, int rows)
{
    return mat_rows(layer ? r->decoder[layer - 1].ff.y : r->embed_tgt, 0, rows);
}

void decoder_memory(struct run *r)
{
    int rows = r->memory.rows;
    bool narrow = r->p->precision.keys != r->p->precision.act;
    /* the encoder is done with what it projected last */
    struct mat wide =
        mat_cols(mat_rows(r->encoder[0].self.qkv, 0, rows), 0, 2 * r->p->config.d_model);
    for (int l = 0; l < r->p->config.decoder_layers; l++) {
        struct mat kv = mat_rows(r->decoder[l].cross.kv, 0, rows);
        r->be->op->linear(r->be, narrow ? wide : kv, r->memory,
                          mat_stack(r->p->w.decoder[l].cross.k, 2), none, identity);
        if (narrow) r->be->op->cast(r->be, kv, wide);
    }
}

/* Projects the rows and returns k and v side by side: of the rows, or the cache with them put in.
 */
static struct mat self_keys(struct run *r, const struct pass *p, int layer, struct mat x)
{
    int d = r->p->config.d_model;
    struct mat qkv = mat_rows(r->decoder[layer].self.qkv, 0, p->rows), kv = mat_cols(qkv, d, 2 * d);
    r->be->op->linear(r->be, qkv, x, mat_stack(r->p->w.decoder[layer].self.q, 3), none, identity);
    if (!p->cache) return kv;
    r->be->op->cache_put(r->be, p->cache->layer[layer], kv, p->cache_at);
    return p->cache->layer[layer];
}

struct mat decoder_forward(struct run *r, const struct pass *p)
{
    int d = r->p->config.d_model, rows = p->rows;
    for (int l = 0; l < r->p->config.decoder_layers; l++) {
        const struct decoder_weights *w = &r->p->w.decoder[l];
        struct decoder_acts *a = &r->decoder[l];
        int at = decoder_layer(r, l);
        struct mat x = layer_input(r, l, rows), kv = self_keys(r, p, l, x);
        attention_forward(r, &w->self, &a->self, x, mat_cols(kv, 0, d), mat_cols(kv, d, d),
                          &p->self, site_at(at, SITE_SELF_WEIGHTS));
        x = mat_rows(a->self.y, 0, rows);
        kv = mat_rows(a->cross.kv, 0, r->memory.rows);
        r->be->op->linear(r->be, mat_rows(a->cross.q, 0, rows), x, w->cross.q, none, identity);
        attention_forward(r, &w->cross, &a->cross, x, mat_cols(kv, 0, d), mat_cols(kv, d, d),
                          &p->cross, site_at(at, SITE_CROSS_WEIGHTS));
        ff_forward(r, &w->ff, &a->ff, mat_rows(a->cross.y, 0, rows), at);
    }
    return layer_input(r, r->p->config.decoder_layers, rows);
}

/* dx of the cross-attention of one layer; its part of the memory's gradient is added to dmem. */
static void cross_backward(struct run *r, const struct pass *p, int layer, struct mat dx,
                           struct mat dy)
{
    const struct ops *op = r->be->op;
    const struct attention_weights *w = &r->p->w.decoder[layer].cross,
                                   *g = &r->g.decoder[layer].cross;
    const struct decoder_acts *a = &r->decoder[layer];
    int d = r->p->config.d_model, rows = p->rows, rows_src = r->memory.rows;
    bool last = layer == r->p->config.decoder_layers - 1;
    struct mat kv = mat_rows(a->cross.kv, 0, rows_src), dkv = mat_rows(r->s.dkv, 0, rows_src);
    struct mat dq = mat_make(r->s.dqkv.p, rows, d, r->s.dqkv.type);
    attention_backward(r, w, g, &a->cross, dx, dq, mat_cols(dkv, 0, d), mat_cols(dkv, d, d), dy,
                       mat_cols(kv, 0, d), mat_cols(kv, d, d), &p->cross,
                       site_at(decoder_layer(r, layer), SITE_CROSS_WEIGHTS));
    op->linear_bwd(r->be, dx, 1, none, g->q, dq, mat_rows(a->self.y, 0, rows), w->q, identity);
    op->linear_bwd(r->be, mat_rows(r->s.dmem, 0, rows_src), last ? 0 : 1, none, mat_stack(g->k, 2),
                   dkv, r->memory, mat_stack(w->k, 2), identity);
}

static void self_backward(struct run *r, const struct pass *p, int layer, struct mat dx,
                          struct mat dy)
{
    const struct attention_weights *w = &r->p->w.decoder[layer].self,
                                   *g = &r->g.decoder[layer].self;
    const struct attention_acts *a = &r->decoder[layer].self;
    int d = r->p->config.d_model, rows = p->rows;
    struct mat qkv = mat_rows(a->qkv, 0, rows), dqkv = mat_rows(r->s.dqkv, 0, rows);
    attention_backward(r, w, g, a, dx, mat_cols(dqkv, 0, d), mat_cols(dqkv, d, d),
                       mat_cols(dqkv, 2 * d, d), dy, mat_cols(qkv, d, d), mat_cols(qkv, 2 * d, d),
                       &p->self, site_at(decoder_layer(r, layer), SITE_SELF_WEIGHTS));
    r->be->op->linear_bwd(r->be, dx, 1, none, mat_stack(g->q, 3), dqkv, layer_input(r, layer, rows),
                          mat_stack(w->q, 3), identity);
}

void decoder_backward(struct run *r, const struct pass *p, struct mat dy)
{
    int rows = p->rows;
    struct mat above = dy, below = mat_rows(r->s.d[1], 0, rows);
    for (int l = r->p->config.decoder_layers - 1; l >= 0; l--) {
        const struct decoder_acts *a = &r->decoder[l];
        ff_backward(r, &r->p->w.decoder[l].ff, &r->g.decoder[l].ff, &a->ff, below, above,
                    mat_rows(a->cross.y, 0, rows), decoder_layer(r, l));
        cross_backward(r, p, l, above, below);
        self_backward(r, p, l, below, above);
        struct mat swap = above;
        above = below;
        below = swap;
    }
    r->be->op->embed_bwd(r->be, r->g.embed, r->batch.tgt_in, above,
                         drop_at(r, r->p->config.dropout, SITE_EMBED_TGT));
}
