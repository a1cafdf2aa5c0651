/*
 * norm.c - y = norm(x + dropout(f(x))), the paper's post-norm: see norm.h.
 */
#include "model/norm.h"

void norm_walk(struct walk *k, struct norm_weights *w, const struct heed_config *c)
{
    walk_tensor(k, "norm.weight", ROLE_GAIN, &w->gain, 1, c->d_model);
    walk_tensor(k, "norm.bias", ROLE_BIAS, &w->bias, 1, c->d_model);
}

void norm_layout(struct norm_acts *a, struct layout *l, int rows)
{
    if (!l->keep) return;
    a->xhat = layout_take(l, rows, l->config->d_model, l->precision.act);
    a->rstd = layout_take(l, rows, 1, l->precision.master);
}

void norm_scratch(struct scratch *s, struct layout *l, int rows)
{
    int d = l->config->d_model;
    s->r = layout_take(l, rows, d, l->precision.act);
    if (!l->keep) return;
    s->dr = layout_take(l, rows, d, l->precision.act);
    s->d[0] = layout_take(l, rows, d, l->precision.act);
    s->d[1] = layout_take(l, rows, d, l->precision.act);
}

void norm_bind(struct norm_acts *a, int rows)
{
    a->xhat = mat_top(a->xhat, rows);
    a->rstd = mat_top(a->rstd, rows);
}

void norm_forward(const struct pass *p, const struct norm_weights *w, const struct norm_acts *a,
                  struct mat y, struct mat x, struct mat r, uint32_t site)
{
    p->be->op->add_norm(p->be, y, a->xhat, a->rstd, x, r, w->gain, w->bias,
                        drop_at(p, p->config->dropout, site));
}

struct mat norm_backward(const struct pass *p, const struct norm_weights *w,
                         const struct norm_weights *g, const struct norm_acts *a, struct mat dx,
                         struct mat db, struct mat dy, uint32_t site)
{
    struct mat dr = mat_top(p->scratch->dr, dy.rows);
    p->be->op->add_norm_bwd(p->be, dx, dr, db, g->gain, g->bias, dy, a->xhat, a->rstd, w->gain,
                            drop_at(p, p->config->dropout, site));
    return dr;
}
