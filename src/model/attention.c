/*
 * attention.c - MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O, head_i = softmax(q_i k_iT /
 * sqrt(d_k)) v_i (paper 3.2). Both kinds of attention differ in where q, k and v come from; what
 * follows is attend, and its gradient attend_backward.
 */
#include "model/attention.h"

#include "base/minmax.h"
#include "model/config.h"
#include "model/position.h"

/* ---- columns: queries, keys and values side by side, or keys and values ---- */

static int queries_width(const struct heed_config *c)
{
    return c->heads * config_d_k(c);
}

static int keys_width(const struct heed_config *c)
{
    return config_kv_heads(c) * config_d_k(c);
}

static int values_width(const struct heed_config *c)
{
    return config_kv_heads(c) * config_d_v(c);
}

static struct mat queries_of(const struct heed_config *c, struct mat qkv)
{
    return mat_cols(qkv, 0, queries_width(c));
}

static struct mat queries_keys_of(const struct heed_config *c, struct mat qkv)
{
    return mat_cols(qkv, 0, queries_width(c) + keys_width(c));
}

static struct mat keys_values_of(const struct heed_config *c, struct mat qkv)
{
    return mat_cols(qkv, queries_width(c), config_kv_width(c));
}

static struct mat keys_of(const struct heed_config *c, struct mat kv)
{
    return mat_cols(kv, 0, keys_width(c));
}

static struct mat values_of(const struct heed_config *c, struct mat kv)
{
    return mat_cols(kv, keys_width(c), values_width(c));
}

/* ---- weights and activations ---- */

enum { RELATIVE_CLIP = 16 }; /* distances beyond share a vector, as in Shaw et al. */

void attention_walk(struct walk *k, struct attention_weights *w, const struct heed_config *c,
                    bool self)
{
    int d = c->d_model, queries = queries_width(c), keys = keys_width(c), values = values_width(c);
    walk_tensor(k, "q_proj.weight", ROLE_PROJECTION, &w->q, queries, d);
    walk_tensor(k, "k_proj.weight", ROLE_PROJECTION, &w->k, keys, d);
    walk_tensor(k, "v_proj.weight", ROLE_PROJECTION, &w->v, values, d);
    if (c->bias) {
        walk_tensor(k, "q_proj.bias", ROLE_BIAS, &w->q_bias, 1, queries);
        walk_tensor(k, "k_proj.bias", ROLE_BIAS, &w->k_bias, 1, keys);
        walk_tensor(k, "v_proj.bias", ROLE_BIAS, &w->v_bias, 1, values);
    }
    walk_tensor(k, "out_proj.weight", ROLE_MATRIX, &w->out, d, c->heads * config_d_v(c));
    if (c->bias) walk_tensor(k, "out_proj.bias", ROLE_BIAS, &w->out_bias, 1, d);
    if (self && c->position == HEED_POSITION_RELATIVE) {
        int rows = 2 * RELATIVE_CLIP + 1;
        walk_tensor(k, "relative_k.weight", ROLE_TABLE, &w->relative_k, rows, config_d_k(c));
        walk_tensor(k, "relative_v.weight", ROLE_TABLE, &w->relative_v, rows, config_d_v(c));
    }
    if (c->attention == HEED_ATTENTION_ADDITIVE)
        walk_tensor(k, "additive.weight", ROLE_TABLE, &w->additive, c->heads, config_d_k(c));
    norm_walk(k, &w->norm, c);
}

static void output_layout(struct attention_acts *a, struct layout *l, int rows)
{
    const struct heed_config *c = l->config;
    a->o = layout_take(l, rows, c->heads * config_d_v(c), l->precision.act);
    a->lse = layout_take(l, rows, c->heads, l->precision.master);
    a->y = norm_output_layout(l, rows);
    norm_layout(&a->norm, l, rows);
}

void self_attention_layout(struct attention_acts *a, struct layout *l, int rows)
{
    const struct heed_config *c = l->config;
    a->qkv = layout_take(l, rows, config_qkv_width(c), l->precision.act);
    a->q = queries_of(c, a->qkv);
    a->k = keys_of(c, keys_values_of(c, a->qkv));
    a->v = values_of(c, keys_values_of(c, a->qkv));
    output_layout(a, l, rows);
}

void cross_attention_layout(struct attention_acts *a, struct layout *l, int rows)
{
    a->q = layout_take(l, rows, queries_width(l->config), l->precision.act);
    output_layout(a, l, rows);
}

void memory_keys_layout(struct attention_acts *a, struct layout *l, int memory_rows, int sentences)
{
    a->kv = layout_take(l, memory_rows, config_kv_width(l->config), l->precision.keys);
    a->k = keys_of(l->config, a->kv);
    a->v = values_of(l->config, a->kv);
    if (config_linear(l->config) && !l->keep)
        a->states = layout_take(l, sentences, config_state_width(l->config), l->precision.master);
}

struct mat kv_cache_rows(const struct heed_config *c, const struct precision *precision, void *p,
                         int n)
{
    return config_linear(c) ? mat_make(p, n, config_state_width(c), precision->master)
                            : mat_make(p, n, config_kv_width(c), precision->keys);
}

int kv_cache_positions(const struct heed_config *c)
{
    return config_linear(c) ? int_min(2, c->max_length) : c->max_length;
}

void attention_scratch(struct scratch *s, struct layout *l, int rows, int memory_rows)
{
    const struct heed_config *c = l->config;
    if (!l->keep) return;
    s->dout = layout_take(l, rows, c->heads * config_d_v(c), l->precision.act);
    s->dqkv = layout_take(l, rows, config_qkv_width(c), l->precision.act);
    s->dkv = layout_take(l, memory_rows, config_kv_width(c), l->precision.act);
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
    a->q = mat_top(a->q, rows);
    a->k = mat_top(a->k, rows);
    a->v = mat_top(a->v, rows);
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
    a->k = mat_top(a->k, memory_rows);
    a->v = mat_top(a->v, memory_rows);
}

/* ---- what both kinds share ---- */

static struct attention heads_of(const struct pass *p, const struct attention_weights *w,
                                 const struct attention_acts *a, const struct seqs *seqs,
                                 uint32_t site)
{
    return (struct attention){.q = a->q,
                              .k = a->k,
                              .v = a->v,
                              .o = a->o,
                              .lse = a->lse,
                              .weights = p->watched ? p->watched[site] : (struct mat){0},
                              .heads = p->config->heads,
                              .kv_heads = config_kv_heads(p->config),
                              .seqs = *seqs,
                              .drop = drop_at(p, p->config->attention_dropout, site),
                              .additive = w->additive};
}

/* The heads of self-attention, where query and key have a distance. */
static struct attention self_heads_of(const struct pass *p, const struct attention_weights *w,
                                      const struct attention_acts *a, const struct seqs *seqs,
                                      uint32_t site)
{
    const struct heed_config *c = p->config;
    struct attention heads = heads_of(p, w, a, seqs, site);
    if (c->attention == HEED_ATTENTION_WINDOW) heads.window = c->window, heads.global = c->global;
    heads.alibi = c->position == HEED_POSITION_ALIBI;
    heads.relative_k = w->relative_k;
    heads.relative_v = w->relative_v;
    return heads;
}

/* y = x wT + b, where y is as wide as w and the matrices that follow it in memory have rows
 * together; likewise b, which may be absent. */
static void project(const struct pass *p, struct mat y, struct mat x, struct mat w, struct mat b)
{
    w.rows = b.cols = y.cols;
    p->be->op->linear(p->be, y, x, w, b, (struct activation){0});
}

/* Whether a matrix and the one that follows it in memory can be used as one: see TYPE_PACKED. */
static bool joins_next(struct mat w)
{
    return !type_packed(w.type) || w.rows % PACK_ROWS == 0;
}

/* Keys and values, in one product where possible. */
static void project_keys(const struct pass *p, struct mat kv, struct mat x,
                         const struct attention_weights *w)
{
    if (joins_next(w->k)) {
        project(p, kv, x, w->k, w->k_bias);
    } else {
        project(p, keys_of(p->config, kv), x, w->k, w->k_bias);
        project(p, values_of(p->config, kv), x, w->v, w->v_bias);
    }
}

/* Queries, keys and values, in one product where possible. */
static void project_all(const struct pass *p, struct mat qkv, struct mat x,
                        const struct attention_weights *w)
{
    if (joins_next(w->q) && joins_next(w->k)) {
        project(p, qkv, x, w->q, w->q_bias);
    } else {
        project(p, queries_of(p->config, qkv), x, w->q, w->q_bias);
        project_keys(p, keys_values_of(p->config, qkv), x, w);
    }
}

/* dw += dyT x; db += column sums of dy, where there is a bias; dx = beta * dx + dy w. As in
 * project, w, dw and db stand for as many matrices and biases as dy is wide. */
static void project_backward(const struct pass *p, struct mat dx, float beta, struct mat dw,
                             struct mat db, struct mat dy, struct mat x, struct mat w)
{
    w.rows = dw.rows = db.cols = dy.cols;
    linear_backward(p, dx, beta, dw, dy, x, w);
    if (db.p) p->be->op->bias_bwd(p->be, db, dy);
}

/* Computes the output of the heads in the form that the configuration names. states: what a
 * decoding step of linear attention looks at in place of keys */
static void attend_heads(const struct pass *p, const struct attention *heads, struct mat states)
{
    const struct ops *op = p->be->op;
    if (!config_linear(p->config))
        op->attend(p->be, heads);
    else if (heads->seqs.from)
        op->attend_state(p->be, states, heads);
    else
        op->attend_linear(p->be, heads);
}

static void attend_heads_backward(const struct pass *p, const struct attention *heads,
                                  const struct attention_grad *g)
{
    const struct ops *op = p->be->op;
    if (config_linear(p->config))
        op->attend_linear_bwd(p->be, heads, g);
    else
        op->attend_bwd(p->be, heads, g);
}

/* The heads, W_O and what comes after the sub-layer, whose output this returns. */
static struct mat attend(const struct pass *p, const struct attention_weights *w,
                         const struct attention_acts *a, const struct attention *heads,
                         struct mat states, struct mat x, uint32_t site)
{
    struct mat r = mat_top(p->scratch->r, x.rows);
    attend_heads(p, heads, states);
    project(p, r, a->o, w->out, w->out_bias);
    return norm_output(p, &w->norm, &a->norm, a->y, x, r, site + 1);
}

/* Writes dq, dk and dv, and returns what the gradient of the input is added to. */
static struct input_gradient attend_backward(const struct pass *p,
                                             const struct attention_weights *w,
                                             const struct attention_weights *g,
                                             const struct attention_acts *a,
                                             const struct attention *heads, struct mat dq,
                                             struct mat dkv, struct mat dy, uint32_t site)
{
    struct attention_grad grad = {.dout = mat_top(p->scratch->dout, dy.rows),
                                  .dq = dq,
                                  .dk = keys_of(p->config, dkv),
                                  .dv = values_of(p->config, dkv),
                                  .drelative_k = g->relative_k,
                                  .drelative_v = g->relative_v,
                                  .dadditive = g->additive};
    struct input_gradient din;
    struct mat dr =
        norm_output_backward(p, &w->norm, &g->norm, &a->norm, &din, g->out_bias, dy, site + 1);
    linear_backward(p, grad.dout, 0, g->out, dr, a->o, w->out);
    attend_heads_backward(p, heads, &grad);
    return din;
}

/* ---- self-attention ---- */

struct mat self_attention(const struct pass *p, const struct attention_weights *w,
                          const struct attention_acts *a, struct mat x, const struct seqs *seqs,
                          const struct kv_cache *cache, uint32_t site)
{
    const struct heed_config *c = p->config;
    struct attention heads = self_heads_of(p, w, a, seqs, site);
    project_all(p, a->qkv, norm_input(p, &w->norm, &a->norm, x), w);
    position_rotate(p, queries_keys_of(c, a->qkv), seqs->pos, false);
    if (cache && !config_linear(c)) {
        p->be->op->cache_put(p->be, cache->rows, keys_values_of(c, a->qkv), cache->at);
        heads.k = keys_of(c, cache->rows);
        heads.v = values_of(c, cache->rows);
    }
    return attend(p, w, a, &heads, cache ? cache->rows : (struct mat){0}, x, site);
}

struct mat self_attention_backward(const struct pass *p, const struct attention_weights *w,
                                   const struct attention_weights *g,
                                   const struct attention_acts *a, struct mat dy, struct mat x,
                                   const struct seqs *seqs, uint32_t site)
{
    struct mat in = norm_input_kept(&a->norm, x), dqkv = mat_top(p->scratch->dqkv, dy.rows);
    struct mat dq = queries_of(p->config, dqkv), dkv = keys_values_of(p->config, dqkv);
    struct attention heads = self_heads_of(p, w, a, seqs, site);
    struct input_gradient din = attend_backward(p, w, g, a, &heads, dq, dkv, dy, site);
    position_rotate(p, queries_keys_of(p->config, dqkv), seqs->pos, true);
    project_backward(p, din.d, din.beta, g->q, g->q_bias, dqkv, in, w->q);
    return norm_input_backward(p, &w->norm, &g->norm, &a->norm, din.d, dy);
}

/* ---- cross-attention ---- */

void memory_keys(const struct pass *p, const struct attention_weights *w,
                 const struct attention_acts *a, struct mat memory, struct mat wide,
                 const struct seqs *seqs, struct memory_place at)
{
    struct mat kept = mat_rows(a->kv, at.row, memory.rows);
    bool narrow = kept.type != wide.type;
    struct mat kv = narrow ? wide : kept;
    project_keys(p, kv, memory, w);
    if (a->states.p) {
        struct attention heads = heads_of(p, w, a, seqs, 0);
        heads.k = keys_of(p->config, kv);
        heads.v = values_of(p->config, kv);
        p->be->op->linear_state(p->be, mat_rows(a->states, at.state, seqs->n), &heads);
    }
    if (narrow) p->be->op->cast(p->be, kept, wide);
}

struct mat cross_attention(const struct pass *p, const struct attention_weights *w,
                           const struct attention_acts *a, struct mat x, const struct seqs *seqs,
                           uint32_t site)
{
    struct attention heads = heads_of(p, w, a, seqs, site);
    project(p, a->q, norm_input(p, &w->norm, &a->norm, x), w->q, w->q_bias);
    return attend(p, w, a, &heads, a->states, x, site);
}

struct mat cross_attention_backward(const struct pass *p, const struct attention_weights *w,
                                    const struct attention_weights *g,
                                    const struct attention_acts *a, struct mat dmemory, float beta,
                                    struct mat dy, struct mat x, struct mat memory,
                                    const struct seqs *seqs, uint32_t site)
{
    const struct scratch *s = p->scratch;
    struct mat in = norm_input_kept(&a->norm, x), dkv = mat_top(s->dkv, memory.rows);
    /* dq is [T,H*dk] in the memory of dqkv, which only self-attention uses as a whole. */
    struct mat dq = mat_make(s->dqkv.p, dy.rows, a->q.cols, s->dqkv.type);
    struct attention heads = heads_of(p, w, a, seqs, site);
    struct input_gradient din = attend_backward(p, w, g, a, &heads, dq, dkv, dy, site);
    project_backward(p, din.d, din.beta, g->q, g->q_bias, dq, in, w->q);
    project_backward(p, dmemory, beta, g->k, g->k_bias, dkv, memory, w->k);
    return norm_input_backward(p, &w->norm, &g->norm, &a->norm, din.d, dy);
}
