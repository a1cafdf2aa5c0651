/*
 * sublayers.c - attention and feed-forward, each with its residual and norm, forward and backward.
 *
 * Post-norm as in the paper: y = norm(x + dropout(f(x))) (3.1, 5.4).
 */
#include "model/layers.h"

static const struct mat none;
static const struct activation identity;

static struct attention attention_op(const struct run *r, const struct attention_acts *a, int rows,
                                     struct mat k, struct mat v, const struct seqs *seqs,
                                     uint32_t site)
{
    return (struct attention){.q = mat_rows(a->q, 0, rows),
                              .k = k,
                              .v = v,
                              .o = mat_rows(a->o, 0, rows),
                              .lse = mat_rows(a->lse, 0, rows),
                              .weights = r->watch_site == site ? r->watched : none,
                              .heads = r->p->config.heads,
                              .seqs = *seqs,
                              .drop = drop_at(r, r->p->config.attention_dropout, site)};
}

void attention_forward(struct run *r, const struct attention_weights *w, struct attention_acts *a,
                       struct mat x, struct mat k, struct mat v, const struct seqs *seqs,
                       uint32_t site)
{
    const struct ops *op = r->be->op;
    struct attention t = attention_op(r, a, x.rows, k, v, seqs, site);
    struct mat out = mat_rows(r->s.r, 0, x.rows);
    op->attend(r->be, &t);
    op->linear(r->be, out, t.o, w->out, none, identity);
    op->add_norm(r->be, mat_rows(a->y, 0, x.rows), mat_rows(a->xhat, 0, x.rows),
                 mat_rows(a->rstd, 0, x.rows), x, out, w->norm_g, w->norm_b,
                 drop_at(r, r->p->config.dropout, site + 1));
}

void attention_backward(struct run *r, const struct attention_weights *w,
                        const struct attention_weights *g, const struct attention_acts *a,
                        struct mat dx, struct mat dq, struct mat dk, struct mat dv, struct mat dy,
                        struct mat k, struct mat v, const struct seqs *seqs, uint32_t site)
{
    const struct ops *op = r->be->op;
    int rows = dy.rows;
    struct attention t = attention_op(r, a, rows, k, v, seqs, site);
    struct mat dr = mat_rows(r->s.dr, 0, rows), dout = mat_rows(r->s.dout, 0, rows);
    op->add_norm_bwd(r->be, dx, dr, none, g->norm_g, g->norm_b, dy, mat_rows(a->xhat, 0, rows),
                     mat_rows(a->rstd, 0, rows), w->norm_g,
                     drop_at(r, r->p->config.dropout, site + 1));
    op->linear_bwd(r->be, dout, 0, none, g->out, dr, t.o, w->out, identity);
    op->attend_bwd(r->be, &t, dq, dk, dv, dout);
}

/* What follows the inner product of the feed-forward, forward and backward: paper 3.3, 5.4. */
static struct activation inner_activation(const struct run *r, int layer)
{
    return (struct activation){
        .kind = ACT_RELU,
        .drop = drop_at(r, r->p->config.ff_dropout, site_at(layer, SITE_FF_INNER))};
}

void ff_forward(struct run *r, const struct ff_weights *w, struct ff_acts *a, struct mat x,
                int layer)
{
    const struct ops *op = r->be->op;
    const struct heed_config *c = &r->p->config;
    struct mat h = mat_rows(a->h, 0, x.rows), out = mat_rows(r->s.r, 0, x.rows);
    op->linear(r->be, h, x, w->w1, w->b1, inner_activation(r, layer));
    op->linear(r->be, out, h, w->w2, w->b2, identity);
    op->add_norm(r->be, mat_rows(a->y, 0, x.rows), mat_rows(a->xhat, 0, x.rows),
                 mat_rows(a->rstd, 0, x.rows), x, out, w->norm_g, w->norm_b,
                 drop_at(r, c->dropout, site_at(layer, SITE_FF_OUT)));
}

void ff_backward(struct run *r, const struct ff_weights *w, const struct ff_weights *g,
                 const struct ff_acts *a, struct mat dx, struct mat dy, struct mat x, int layer)
{
    const struct ops *op = r->be->op;
    const struct heed_config *c = &r->p->config;
    int rows = dy.rows;
    struct mat dr = mat_rows(r->s.dr, 0, rows), dh = mat_rows(r->s.dh, 0, rows);
    struct mat h = mat_rows(a->h, 0, rows);
    op->add_norm_bwd(r->be, dx, dr, g->b2, g->norm_g, g->norm_b, dy, mat_rows(a->xhat, 0, rows),
                     mat_rows(a->rstd, 0, rows), w->norm_g,
                     drop_at(r, c->dropout, site_at(layer, SITE_FF_OUT)));
    op->linear_bwd(r->be, dh, 0, g->b1, g->w2, dr, h, w->w2, inner_activation(r, layer));
    op->linear_bwd(r->be, dx, 1, none, g->w1, dh, x, w->w1, identity);
}
