/*
 * attention.c - MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O, head_i = softmax(q_i k_iT /
 * sqrt(d_k)) v_i (paper 3.2). Both kinds of attention differ in where q, k and v come from; what
 * follows is attend, and its gradient attend_backward.
 */
#include "model/attention.h"

static struct mat left_half(struct mat m)
{
    return mat_cols(m, 0, m.cols / 2);
}

static struct mat right_half(struct mat m)
{
    return mat_cols(m, m.cols / 2, m.cols / 2);
}

/* Like mat_stack, for n biases. */
static struct mat bias_stack(struct mat first, int n)
{
    first.cols *= n;
    return first;
}

/* Keys and values of [.., 3D] queries, keys and values. */
static struct mat keys_values(struct mat qkv)
{
    int d = qkv.cols / 3;
    return mat_cols(qkv, d, 2 * d);
}

/* ---- weights and activations ---- */

void attention_walk(struct walk *k, struct attention_weights *w, const struct heed_config *c)
{
    int d = c->d_model;
    walk_tensor(k, "q_proj.weight", ROLE_PROJECTION, &w->q, d, d);
    walk_tensor(k, "k_proj.weight", ROLE_PROJECTION, &w->k, d, d);
    walk_tensor(k, "v_proj.weight", ROLE_PROJECTION, &w->v, d, d);
    if (c->bias) {
        walk_tensor(k, "q_proj.bias", ROLE_BIAS, &w->q_bias, 1, d);
        walk_tensor(k, "k_proj.bias", ROLE_BIAS, &w->k_bias, 1, d);
        walk_tensor(k, "v_proj.bias", ROLE_BIAS, &w->v_bias, 1, d);
    }
    walk_tensor(k, "out_proj.weight", ROLE_MATRIX, &w->out, d, d);
    if (c->bias) walk_tensor(k, "out_proj.bias", ROLE_BIAS, &w->out_bias, 1, d);
    norm_walk(k, &w->norm, c);
}

static void output_layout(struct attention_acts *a, struct layout *l, int rows)
{
    const struct heed_config *c = l->config;
    a->o = layout_take(l, rows, c->d_model, l->precision.act);
    a->lse = layout_take(l, rows, c->heads, l->precision.master);
    a->y = norm_output_layout(l, rows);
    norm_layout(&a->norm, l, rows);
}

void self_attention_layout(struct attention_acts *a, struct layout *l, int rows)
{
    a->qkv = layout_take(l, rows, 3 * l->config->d_model, l->precision.act);
    output_layout(a, l, rows);
}

void cross_attention_layout(struct attention_acts *a, struct layout *l, int rows)
{
    a->q = layout_take(l, rows, l->config->d_model, l->precision.act);
    output_layout(a, l, rows);
}

void memory_keys_layout(struct attention_acts *a, struct layout *l, int memory_rows)
{
    a->kv = layout_take(l, memory_rows, 2 * l->config->d_model, l->precision.keys);
}

void attention_scratch(struct scratch *s, struct layout *l, int rows, int memory_rows)
{
    int d = l->config->d_model;
    if (!l->keep) return;
    s->dout = layout_take(l, rows, d, l->precision.act);
    s->dqkv = layout_take(l, rows, 3 * d, l->precision.act);
    s->dkv = layout_take(l, memory_rows, 2 * d, l->precision.act);
}

static void output_bind(struct attention_acts *a, int rows)
{
    a->o = mat_top(a->o, rows);
    a->lse = mat_top(a->lse, rows);
    a->y = mat_top(a->y, rows);
    norm_bind(&a->norm, rows);
}

void self_attention_bind(struct attention_acts *a, int rows)
{
    a->qkv = mat_top(a->qkv, rows);
    a->q = mat_cols(a->qkv, 0, a->qkv.cols / 3);
    a->k = left_half(keys_values(a->qkv));
    a->v = right_half(keys_values(a->qkv));
    output_bind(a, rows);
}

void cross_attention_bind(struct attention_acts *a, int rows)
{
    a->q = mat_top(a->q, rows);
    output_bind(a, rows);
}

void memory_keys_bind(struct attention_acts *a, int memory_rows)
{
    a->kv = mat_top(a->kv, memory_rows);
    a->k = left_half(a->kv);
    a->v = right_half(a->kv);
}

/* ---- what both kinds share ---- */

static struct attention heads_of(const struct pass *p, const struct attention_acts *a, struct mat k,
                                 struct mat v, const struct seqs *seqs, uint32_t site)
{
    return (struct attention){.q = a->q,
                              .k = k,
                              .v = v,
                              .o = a->o,
                              .lse = a->lse,
                              .weights = p->watch.site == site ? p->watch.weights : (struct mat){0},
                              .heads = p->config->heads,
                              .seqs = *seqs,
                              .drop = drop_at(p, p->config->attention_dropout, site)};
}

/* y = x wT + b; b may be absent */
static void project(const struct pass *p, struct mat y, struct mat x, struct mat w, struct mat b)
{
    p->be->op->linear(p->be, y, x, w, b, (struct activation){0});
}

/* dw += dyT x; db += column sums of dy, where there is a bias; dx = beta * dx + dy w */
static void project_backward(const struct pass *p, struct mat dx, float beta, struct mat dw,
                             struct mat db, struct mat dy, struct mat x, struct mat w)
{
    linear_backward(p, dx, beta, dw, dy, x, w);
    if (db.p) p->be->op->bias_bwd(p->be, db, dy);
}

/* The heads, W_O and what comes after the sub-layer, whose output this returns. */
static struct mat attend(const struct pass *p, const struct attention_weights *w,
                         const struct attention_acts *a, struct mat x, struct mat k, struct mat v,
                         const struct seqs *seqs, uint32_t site)
{
    struct attention heads = heads_of(p, a, k, v, seqs, site);
    struct mat r = mat_top(p->scratch->r, x.rows);
    p->be->op->attend(p->be, &heads);
    project(p, r, a->o, w->out, w->out_bias);
    return norm_output(p, &w->norm, &a->norm, a->y, x, r, site + 1);
}

/* Writes dq, dk and dv, and returns what the gradient of the input is added to. */
static struct input_gradient attend_backward(const struct pass *p,
                                             const struct attention_weights *w,
                                             const struct attention_weights *g,
                                             const struct attention_acts *a, struct mat dq,
                                             struct mat dkv, struct mat dy, const struct seqs *seqs,
                                             uint32_t site)
{
    struct attention heads = heads_of(p, a, a->k, a->v, seqs, site);
    struct mat dout = mat_top(p->scratch->dout, dy.rows);
    struct input_gradient din;
    struct mat dr =
        norm_output_backward(p, &w->norm, &g->norm, &a->norm, &din, g->out_bias, dy, site + 1);
    linear_backward(p, dout, 0, g->out, dr, a->o, w->out);
    p->be->op->attend_bwd(p->be, &heads, dq, left_half(dkv), right_half(dkv), dout);
    return din;
}

/* ---- self-attention ---- */

struct mat self_attention(const struct pass *p, const struct attention_weights *w,
                          const struct attention_acts *a, struct mat x, const struct seqs *seqs,
                          const struct kv_cache *cache, uint32_t site)
{
    struct mat in = norm_input(p, &w->norm, &a->norm, x);
    project(p, a->qkv, in, mat_stack(w->q, 3), bias_stack(w->q_bias, 3));
    if (!cache) return attend(p, w, a, x, a->k, a->v, seqs, site);
    p->be->op->cache_put(p->be, cache->rows, keys_values(a->qkv), cache->at);
    return attend(p, w, a, x, left_half(cache->rows), right_half(cache->rows), seqs, site);
}

struct mat self_attention_backward(const struct pass *p, const struct attention_weights *w,
                                   const struct attention_weights *g,
                                   const struct attention_acts *a, struct mat dy, struct mat x,
                                   const struct seqs *seqs, uint32_t site)
{
    struct mat in = norm_input_kept(&a->norm, x), dqkv = mat_top(p->scratch->dqkv, dy.rows);
    struct mat dq = mat_cols(dqkv, 0, dqkv.cols / 3);
    struct input_gradient din = attend_backward(p, w, g, a, dq, keys_values(dqkv), dy, seqs, site);
    project_backward(p, din.d, din.beta, mat_stack(g->q, 3), bias_stack(g->q_bias, 3), dqkv, in,
                     mat_stack(w->q, 3));
    return norm_input_backward(p, &w->norm, &g->norm, &a->norm, din.d, dy);
}

/* ---- cross-attention ---- */

void memory_keys(const struct pass *p, const struct attention_weights *w,
                 const struct attention_acts *a, struct mat memory, struct mat wide)
{
    bool narrow = a->kv.type != wide.type;
    project(p, narrow ? wide : a->kv, memory, mat_stack(w->k, 2), bias_stack(w->k_bias, 2));
    if (narrow) p->be->op->cast(p->be, a->kv, wide);
}

struct mat cross_attention(const struct pass *p, const struct attention_weights *w,
                           const struct attention_acts *a, struct mat x, const struct seqs *seqs,
                           uint32_t site)
{
    project(p, a->q, norm_input(p, &w->norm, &a->norm, x), w->q, w->q_bias);
    return attend(p, w, a, x, a->k, a->v, seqs, site);
}

struct mat cross_attention_backward(const struct pass *p, const struct attention_weights *w,
                                    const struct attention_weights *g,
                                    const struct attention_acts *a, struct mat dmemory, float beta,
                                    struct mat dy, struct mat x, struct mat memory,
                                    const struct seqs *seqs, uint32_t site)
{
    const struct scratch *s = p->scratch;
    struct mat in = norm_input_kept(&a->norm, x), dkv = mat_top(s->dkv, memory.rows);
    /* dq is [T,D] in the memory of dqkv, which only self-attention uses as a whole. */
    struct mat dq = mat_make(s->dqkv.p, dy.rows, s->dqkv.cols / 3, s->dqkv.type);
    struct input_gradient din = attend_backward(p, w, g, a, dq, dkv, dy, seqs, site);
    project_backward(p, din.d, din.beta, g->q, g->q_bias, dq, in, w->q);
    project_backward(p, dmemory, beta, mat_stack(g->k, 2), bias_stack(g->k_bias, 2), dkv, memory,
                     mat_stack(w->k, 2));
    return norm_input_backward(p, &w->norm, &g->norm, &a->norm, din.d, dy);
}
