/*
 * feed_forward.c - FFN(x) = f(x W1 + b1) W2 + b2, where the paper's f is max(0, .) (paper 3.3).
 */
#include "model/feed_forward.h"

#include "model/config.h"

void feed_forward_walk(struct walk *k, struct feed_forward_weights *w, const struct heed_config *c)
{
    walk_tensor(k, "fc1.weight", ROLE_MATRIX, &w->w1, c->d_ff, c->d_model);
    walk_tensor(k, "fc1.bias", ROLE_BIAS, &w->b1, 1, c->d_ff);
    walk_tensor(k, "fc2.weight", ROLE_MATRIX, &w->w2, c->d_model, c->d_ff);
    walk_tensor(k, "fc2.bias", ROLE_BIAS, &w->b2, 1, c->d_model);
    norm_walk(k, &w->norm, c);
}

void feed_forward_layout(struct feed_forward_acts *a, struct layout *l, int rows)
{
    const struct heed_config *c = l->config;
    if (l->keep && activation_needs_z(config_activation(c)))
        a->z = layout_take(l, rows, c->d_ff, l->precision.act);
    a->h = layout_take(l, rows, c->d_ff, l->precision.act);
    a->y = norm_output_layout(l, rows);
    norm_layout(&a->norm, l, rows);
}

void feed_forward_scratch(struct scratch *s, struct layout *l, int rows)
{
    if (l->keep) s->dh = layout_take(l, rows, l->config->d_ff, l->precision.act);
}

void feed_forward_bind(struct feed_forward_acts *a, int rows)
{
    a->z = mat_top(a->z, rows);
    a->h = mat_top(a->h, rows);
    a->y = mat_top(a->y, rows);
    norm_bind(&a->norm, rows);
}

static struct activation activation_of(const struct pass *p, const struct feed_forward_acts *a,
                                       uint32_t site)
{
    return (struct activation){config_activation(p->config), a->z,
                               drop_at(p, p->config->ff_dropout, site)};
}

struct mat feed_forward(const struct pass *p, const struct feed_forward_weights *w,
                        const struct feed_forward_acts *a, struct mat x, uint32_t site)
{
    const struct ops *op = p->be->op;
    struct mat in = norm_input(p, &w->norm, &a->norm, x), r = mat_top(p->scratch->r, x.rows);
    op->linear(p->be, a->h, in, w->w1, w->b1, activation_of(p, a, site));
    op->linear(p->be, r, a->h, w->w2, w->b2, (struct activation){0});
    return norm_output(p, &w->norm, &a->norm, a->y, x, r, site + 1);
}

struct mat feed_forward_backward(const struct pass *p, const struct feed_forward_weights *w,
                                 const struct feed_forward_weights *g,
                                 const struct feed_forward_acts *a, struct mat dy, struct mat x,
                                 uint32_t site)
{
    struct mat in = norm_input_kept(&a->norm, x), dh = mat_top(p->scratch->dh, dy.rows);
    struct input_gradient din;
    struct mat dr =
        norm_output_backward(p, &w->norm, &g->norm, &a->norm, &din, g->b2, dy, site + 1);
    p->be->op->linear_bwd(p->be, dh, 0, g->b1, g->w2, dr, a->h, w->w2, activation_of(p, a, site));
    linear_backward(p, din.d, din.beta, g->w1, dh, in, w->w1);
    return norm_input_backward(p, &w->norm, &g->norm, &a->norm, din.d, dy);
}
