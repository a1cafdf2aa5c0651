/*
 * experts.c - see experts.h.
 *
 * What the router decides stays on the device: the host knows only how many rows the experts can
 * take at most, and every matrix of taken rows has room for them.
 */
#include "model/experts.h"

#include <math.h>

#include "base/minmax.h"
#include "model/config.h"
#include "model/feed_forward.h"

const struct expert_options expert_training = {.balance = 0.01f, .capacity = 1.25f, .least = 64};

/* ---- weights ---- */

static void walk_each(struct walk *k, const char *name, enum role role, struct mat *slot, int rows,
                      int cols, const struct heed_config *c)
{
    for (int e = 0; e < config_experts(c); e++) {
        size_t outer = walk_into(k, "experts.%d.", e);
        walk_tensor(k, name, role, &slot[e], rows, cols);
        walk_leave(k, outer);
    }
}

void experts_walk(struct walk *k, struct expert_weights *w, const struct heed_config *c)
{
    int outputs = feed_forward_outputs(c);
    walk_tensor(k, "router.weight", ROLE_ROUTER, &w->router, config_experts(c), c->d_model);
    walk_each(k, "fc1.weight", ROLE_MATRIX, w->w1, outputs, c->d_model, c);
    walk_each(k, "fc1.bias", ROLE_BIAS, w->b1, 1, outputs, c);
    walk_each(k, "fc2.weight", ROLE_MATRIX, w->w2, c->d_model, feed_forward_width(c), c);
    walk_each(k, "fc2.bias", ROLE_BIAS, w->b2, 1, c->d_model, c);
}

/* The tensors of all experts, which begin with that of the first, as one. */
static struct mat all(const struct pass *p, const struct mat *first)
{
    struct mat m = *first;
    m.rows *= config_experts(p->config);
    return m;
}

/* ---- activations ---- */

static int taken_rows(const struct heed_config *c, int rows)
{
    return routing_taken(rows, config_experts_per_token(c), config_experts(c));
}

void experts_layout(struct expert_acts *a, struct layout *l, int rows)
{
    const struct heed_config *c = l->config;
    struct routing *r = &a->routing;
    int taken = taken_rows(c, rows);
    r->experts = config_experts(c);
    r->per_row = config_experts_per_token(c);
    r->p = layout_take(l, rows, r->experts, l->precision.master);
    r->gate = layout_take(l, rows, r->per_row, l->precision.master);
    size_t choices = (size_t)rows * r->per_row;
    r->chosen = arena_take(&l->arena, choices * sizeof *r->chosen);
    r->place = arena_take(&l->arena, choices * sizeof *r->place);
    r->asked = arena_take(&l->arena, r->experts * sizeof *r->asked);
    r->rows = arena_take(&l->arena, r->experts * sizeof *r->rows);
    r->start = arena_take(&l->arena, (r->experts + 1) * sizeof *r->start);
    int width = feed_forward_width(c);
    if (feed_forward_gated(c)) a->z = layout_take(l, taken, 2 * width, l->precision.act);
    if (feed_forward_keeps_slope(l)) a->slope = layout_take(l, taken, width, l->precision.act);
    a->h = layout_take(l, taken, width, l->precision.act);
    a->out = layout_take(l, taken, c->d_model, l->precision.act);
}

int experts_scratch(struct scratch *s, struct layout *l, int rows)
{
    const struct heed_config *c = l->config;
    int taken = taken_rows(c, rows);
    s->taken = layout_take(l, taken, c->d_model, l->precision.act);
    if (l->keep) s->dtaken = layout_take(l, taken, c->d_model, l->precision.act);
    return taken;
}

void experts_bind(struct expert_acts *a, int rows)
{
    int taken = routing_taken(rows, a->routing.per_row, a->routing.experts);
    a->routing.p = mat_top(a->routing.p, rows);
    a->routing.gate = mat_top(a->routing.gate, rows);
    a->z = mat_top(a->z, taken);
    a->slope = mat_top(a->slope, taken);
    a->h = mat_top(a->h, taken);
    a->out = mat_top(a->out, taken);
}

/* ---- forward and backward ---- */

/* Noise of standard deviation 1/E on the logits, as in V-MoE (Riquelme et al. 2021), but uniform:
 * then it is the same on every device. */
static struct routing routing_of(const struct pass *p, const struct expert_acts *a, uint32_t site)
{
    struct routing r = a->routing;
    const struct expert_options *o = &p->experts;
    double each = (double)r.p.rows * r.per_row / r.experts;
    r.capacity = o->capacity > 0 ? int_max((int)ceil((double)o->capacity * each), o->least) : 0;
    r.noise = p->dropout ? sqrtf(3) / (float)r.experts : 0;
    r.draw = drop_at(p, 0, site + 2);
    return r;
}

void experts_forward(const struct pass *p, const struct expert_weights *w,
                     const struct expert_acts *a, struct mat r, struct mat x, uint32_t site)
{
    const struct ops *op = p->be->op;
    struct routing routing = routing_of(p, a, site);
    struct mat taken = mat_top(p->scratch->taken, a->h.rows);
    struct activation f = feed_forward_activation(p, a->slope, site), none = {0};
    op->route(p->be, &routing, x, w->router);
    op->dispatch(p->be, taken, x, &routing, false);
    if (feed_forward_gated(p->config)) {
        op->experts_linear(p->be, a->z, taken, all(p, w->w1), all(p, w->b1), none, &routing);
        op->gate(p->be, a->h, a->z, f.drop);
    } else {
        op->experts_linear(p->be, a->h, taken, all(p, w->w1), all(p, w->b1), f, &routing);
    }
    op->experts_linear(p->be, a->out, a->h, all(p, w->w2), all(p, w->b2), none, &routing);
    op->combine(p->be, r, a->out, &routing);
}

void experts_backward(const struct pass *p, const struct expert_weights *w,
                      const struct expert_weights *g, const struct expert_acts *a,
                      struct input_gradient din, struct mat dr, struct mat x, uint32_t site)
{
    const struct ops *op = p->be->op;
    struct routing routing = routing_of(p, a, site);
    int rows = a->h.rows;
    bool gated = feed_forward_gated(p->config);
    struct mat taken = mat_top(p->scratch->taken, rows), d = mat_top(p->scratch->dtaken, rows);
    struct mat dh = mat_top(p->scratch->dh, rows), dz = gated ? mat_top(p->scratch->dz, rows) : dh;
    struct activation f = feed_forward_activation(p, a->slope, site), none = {0};
    op->dispatch(p->be, d, dr, &routing, true);
    op->experts_linear_bwd(p->be, dh, all(p, g->b2), all(p, g->w2), d, a->h, all(p, w->w2),
                           gated ? none : f, &routing);
    if (gated) op->gate_bwd(p->be, dz, (struct mat){0}, dh, a->z, f.drop);
    op->dispatch(p->be, taken, x, &routing, false);
    op->experts_linear_bwd(p->be, d, all(p, g->b1), all(p, g->w1), dz, taken, all(p, w->w1), none,
                           &routing);
    op->route_bwd(p->be, din.d, din.beta, g->router, dr, a->out, d, x, w->router, &routing,
                  p->experts.balance);
}
