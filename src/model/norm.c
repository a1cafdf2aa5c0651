/*
 * norm.c - see norm.h.
 */
#include "model/norm.h"

void norm_walk(struct walk *k, struct norm_weights *w, const struct heed_config *c)
{
    walk_tensor(k, "norm.weight", ROLE_GAIN, &w->gain, 1, c->d_model);
    walk_tensor(k, "norm.bias", ROLE_BIAS, &w->bias, 1, c->d_model);
}

static bool comes_first(const struct heed_config *c)
{
    return c->norm == HEED_NORM_PRE;
}

void norm_layout(struct norm_acts *a, struct layout *l, int rows)
{
    int d = l->config->d_model;
    if (comes_first(l->config)) a->y = layout_take(l, rows, d, l->precision.act);
    if (!l->keep) return;
    a->xhat = layout_take(l, rows, d, l->precision.act);
    a->rstd = layout_take(l, rows, 1, l->precision.master);
}

struct mat norm_output_layout(struct layout *l, int rows)
{
    if (comes_first(l->config) && !(l->keep && layout_shared(l))) return (struct mat){0};
    return layout_take(l, rows, l->config->d_model, l->precision.act);
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
    a->y = mat_top(a->y, rows);
    a->xhat = mat_top(a->xhat, rows);
    a->rstd = mat_top(a->rstd, rows);
}

/* ---- forward ---- */

struct mat norm_input(const struct pass *p, const struct norm_weights *w, const struct norm_acts *a,
                      struct mat x)
{
    if (comes_first(p->config)) p->be->op->norm(p->be, a->y, a->xhat, a->rstd, x, w->gain, w->bias);
    return norm_input_kept(a, x);
}

struct mat norm_input_kept(const struct norm_acts *a, struct mat x)
{
    return a->y.p ? a->y : x;
}

struct mat norm_output(const struct pass *p, const struct norm_weights *w,
                       const struct norm_acts *a, struct mat y, struct mat x, struct mat r,
                       uint32_t site)
{
    const struct ops *op = p->be->op;
    struct drop drop = drop_at(p, p->config->dropout, site);
    if (comes_first(p->config)) {
        if (!y.p) y = x;
        op->add(p->be, y, x, r, drop);
        return y;
    }
    op->add_norm(p->be, y, a->xhat, a->rstd, x, r, w->gain, w->bias, drop);
    return y;
}

/* ---- backward: of the two gradient buffers one has dy ---- */

/* With post the other one gets the gradient that goes past the sub-layer, and the sub-layer adds
 * its own. With pre that gradient is dy, and the other one gets the gradient of norm(x). */
struct mat norm_output_backward(const struct pass *p, const struct norm_weights *w,
                                const struct norm_weights *g, const struct norm_acts *a,
                                struct input_gradient *in, struct mat db, struct mat dy,
                                uint32_t site)
{
    const struct ops *op = p->be->op;
    struct drop drop = drop_at(p, p->config->dropout, site);
    struct mat dr = mat_top(p->scratch->dr, dy.rows);
    *in = (struct input_gradient){gradient_below(p, dy), comes_first(p->config) ? 0 : 1};
    if (comes_first(p->config))
        op->add_bwd(p->be, dr, db, dy, drop);
    else
        op->add_norm_bwd(p->be, in->d, dr, db, g->gain, g->bias, dy, a->xhat, a->rstd, w->gain,
                         drop);
    return dr;
}

struct mat norm_input_backward(const struct pass *p, const struct norm_weights *w,
                               const struct norm_weights *g, const struct norm_acts *a,
                               struct mat d, struct mat dy)
{
    if (!comes_first(p->config)) return d;
    p->be->op->norm_bwd(p->be, dy, 1, g->gain, g->bias, d, a->xhat, a->rstd, w->gain);
    return dy;
}

/* ---- the norm after a stack ---- */

void final_norm_walk(struct walk *k, struct norm_weights *w, const struct heed_config *c,
                     const char *prefix)
{
    if (!comes_first(c)) return;
    walk_enter(k, prefix, 0);
    norm_walk(k, w, c);
}

void final_norm_layout(struct norm_acts *a, struct layout *l, int rows)
{
    if (comes_first(l->config)) norm_layout(a, l, rows);
}

struct mat final_norm(const struct pass *p, const struct norm_weights *w, const struct norm_acts *a,
                      struct mat x)
{
    return norm_input(p, w, a, x);
}

struct mat final_norm_backward(const struct pass *p, const struct norm_weights *w,
                               const struct norm_weights *g, const struct norm_acts *a,
                               struct mat dy)
{
    if (!comes_first(p->config)) return dy;
    struct mat dx = gradient_below(p, dy);
    p->be->op->norm_bwd(p->be, dx, 0, g->gain, g->bias, dy, a->xhat, a->rstd, w->gain);
    return dx;
}
