/*
 * feed_forward.c - FFN(x) = f(x W1 + b1) W2 + b2, where the paper's f is max(0, .) (paper 3.3).
 *
 * Or gated (SwiGLU, Shazeer 2020): FFN(x) = (silu(x Wg + bg) * (x Wu + bu)) W2 + b2. Wg and Wu are
 * the halves of one matrix W1, so that one product computes both. With ff moe such networks are
 * the experts of experts.c.
 */
#include "model/feed_forward.h"

#include "base/minmax.h"
#include "model/config.h"

bool feed_forward_gated(const struct heed_config *c)
{
    return c->activation == HEED_ACTIVATION_SWIGLU;
}

int feed_forward_width(const struct heed_config *c)
{
    if (!feed_forward_gated(c)) return c->d_ff;
    int panels = (2 * c->d_ff + 3 * PACK_ROWS / 2) / (3 * PACK_ROWS); /* rounded to the nearest */
    return int_max(panels, 1) * PACK_ROWS;
}

int feed_forward_outputs(const struct heed_config *c)
{
    return (feed_forward_gated(c) ? 2 : 1) * feed_forward_width(c);
}

void feed_forward_walk(struct walk *k, struct feed_forward_weights *w, const struct heed_config *c)
{
    int outputs = feed_forward_outputs(c);
    if (config_experts(c)) {
        experts_walk(k, &w->experts, c);
    } else {
        walk_tensor(k, "fc1.weight", ROLE_MATRIX, &w->w1, outputs, c->d_model);
        walk_tensor(k, "fc1.bias", ROLE_BIAS, &w->b1, 1, outputs);
        walk_tensor(k, "fc2.weight", ROLE_MATRIX, &w->w2, c->d_model, feed_forward_width(c));
        walk_tensor(k, "fc2.bias", ROLE_BIAS, &w->b2, 1, c->d_model);
    }
    norm_walk(k, &w->norm, c);
}

bool feed_forward_keeps_slope(const struct layout *l)
{
    return l->keep && activation_keeps_slope(config_activation(l->config));
}

void feed_forward_layout(struct feed_forward_acts *a, struct layout *l, int rows)
{
    const struct heed_config *c = l->config;
    if (config_experts(c)) {
        experts_layout(&a->experts, l, rows);
    } else {
        int width = feed_forward_width(c);
        if (feed_forward_gated(c)) a->z = layout_take(l, rows, 2 * width, l->precision.act);
        if (feed_forward_keeps_slope(l)) a->slope = layout_take(l, rows, width, l->precision.act);
        a->h = layout_take(l, rows, width, l->precision.act);
    }
    a->y = norm_output_layout(l, rows);
    norm_layout(&a->norm, l, rows);
}

void feed_forward_scratch(struct scratch *s, struct layout *l, int rows)
{
    const struct heed_config *c = l->config;
    if (config_experts(c)) rows = experts_scratch(s, l, rows);
    if (!l->keep) return;
    s->dh = layout_take(l, rows, feed_forward_width(c), l->precision.act);
    if (feed_forward_gated(c))
        s->dz = layout_take(l, rows, feed_forward_outputs(c), l->precision.act);
}

void feed_forward_bind(struct feed_forward_acts *a, int rows)
{
    a->z = mat_top(a->z, rows);
    a->slope = mat_top(a->slope, rows);
    a->h = mat_top(a->h, rows);
    experts_bind(&a->experts, rows);
    a->y = mat_top(a->y, rows);
    norm_bind(&a->norm, rows);
}

struct activation feed_forward_activation(const struct pass *p, struct mat slope, uint32_t site)
{
    return (struct activation){config_activation(p->config), slope,
                               drop_at(p, p->config->ff_dropout, site)};
}

/* h = drop(f(x W1 + b1)), or gated, h = drop(silu(x Wg + bg) * (x Wu + bu)) */
static void inner_forward(const struct pass *p, const struct feed_forward_weights *w,
                          const struct feed_forward_acts *a, struct mat x, uint32_t site)
{
    const struct ops *op = p->be->op;
    struct activation f = feed_forward_activation(p, a->slope, site);
    if (feed_forward_gated(p->config)) {
        op->linear(p->be, a->z, x, w->w1, w->b1, (struct activation){0});
        op->gate(p->be, a->h, a->z, f.drop);
    } else {
        op->linear(p->be, a->h, x, w->w1, w->b1, f);
    }
}

/* From dr, the gradient of h W2 + b2, the gradient of x W1 + b1. */
static struct mat inner_backward(const struct pass *p, const struct feed_forward_weights *w,
                                 const struct feed_forward_weights *g,
                                 const struct feed_forward_acts *a, struct mat dr, uint32_t site)
{
    const struct ops *op = p->be->op;
    struct activation f = feed_forward_activation(p, a->slope, site);
    struct mat dh = mat_top(p->scratch->dh, dr.rows), dz = mat_top(p->scratch->dz, dr.rows);
    if (!feed_forward_gated(p->config)) {
        op->linear_bwd(p->be, dh, 0, g->b1, g->w2, dr, a->h, w->w2, f);
        return dh;
    }
    linear_backward(p, dh, 0, g->w2, dr, a->h, w->w2);
    op->gate_bwd(p->be, dz, g->b1, dh, a->z, f.drop);
    return dz;
}

struct mat feed_forward(const struct pass *p, const struct feed_forward_weights *w,
                        const struct feed_forward_acts *a, struct mat x, uint32_t site)
{
    struct mat in = norm_input(p, &w->norm, &a->norm, x), r = mat_top(p->scratch->r, x.rows);
    if (config_experts(p->config)) {
        experts_forward(p, &w->experts, &a->experts, r, in, site);
    } else {
        inner_forward(p, w, a, in, site);
        p->be->op->linear(p->be, r, a->h, w->w2, w->b2, (struct activation){0});
    }
    return norm_output(p, &w->norm, &a->norm, a->y, x, r, site + 1);
}

struct mat feed_forward_backward(const struct pass *p, const struct feed_forward_weights *w,
                                 const struct feed_forward_weights *g,
                                 const struct feed_forward_acts *a, struct mat dy, struct mat x,
                                 uint32_t site)
{
    struct mat in = norm_input_kept(&a->norm, x);
    struct input_gradient din;
    struct mat dr =
        norm_output_backward(p, &w->norm, &g->norm, &a->norm, &din, g->b2, dy, site + 1);
    if (config_experts(p->config)) {
        experts_backward(p, &w->experts, &g->experts, &a->experts, din, dr, in, site);
    } else {
        struct mat dz = inner_backward(p, w, g, a, dr, site);
        linear_backward(p, din.d, din.beta, g->w1, dz, in, w->w1);
    }
    return norm_input_backward(p, &w->norm, &g->norm, &a->norm, din.d, dy);
}
