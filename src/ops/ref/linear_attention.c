/*
 * linear_attention.c - linear attention of the reference backend (see ops.h): whole sentences by
 * its definition, one query and one key at a time, in a time that grows with the square of the
 * length; with states as the other backends do.
 */
#include <math.h>

#include "ops/ref/ref.h"

static double phi(double x)
{
    return x > 0 ? x + 1 : exp(x);
}
static double phi_slope(double x)
{
    return x > 0 ? 1 : exp(x);
}

/* One query in one head, and the keys that it sees: rows [key, key + keys). */
struct query {
    int row, head, kv_head;
    int key, keys;
    int dk, dv;
};

static struct query query_at(const struct attention *a, int sentence, int i, int head)
{
    const struct seqs *s = &a->seqs;
    return (struct query){.row = s->q[sentence] + i,
                          .head = head,
                          .kv_head = head / attention_shared(a),
                          .key = s->k[sentence],
                          .keys = s->causal ? i + 1 : s->klen[sentence],
                          .dk = attention_dk(a),
                          .dv = attention_dv(a)};
}

/* phi(q) phi(k)T of key j */
static double affinity(const struct attention *a, const struct query *q, int j)
{
    double sum = 0;
    for (int c = 0; c < q->dk; c++)
        sum += phi(get(a->q, q->row, q->head * q->dk + c)) *
               phi(get(a->k, q->key + j, q->kv_head * q->dk + c));
    return sum;
}

static double inverse(double sum)
{
    return sum >= LINEAR_SUM_MIN ? 1 / sum : 0;
}

static void set_weights(const struct attention *a, const struct query *q)
{
    double sum = 0;
    for (int j = 0; j < q->keys; j++) sum += affinity(a, q, j);
    for (int j = 0; j < a->weights.cols; j++)
        set(a->weights, q->row * a->heads + q->head, j,
            j < q->keys ? affinity(a, q, j) * inverse(sum) : 0);
}

static void attend_query(const struct attention *a, const struct query *q)
{
    double sum = 0, o[HEAD_WIDTH_MAX] = {0};
    for (int j = 0; j < q->keys; j++) {
        double x = affinity(a, q, j);
        sum += x;
        for (int c = 0; c < q->dv; c++) o[c] += x * get(a->v, q->key + j, q->kv_head * q->dv + c);
    }
    set(a->lse, q->row, q->head, sum);
    for (int c = 0; c < q->dv; c++) set(a->o, q->row, q->head * q->dv + c, o[c] * inverse(sum));
    if (a->weights.p) set_weights(a, q);
}

void ref_attend_linear(struct backend *be, const struct attention *a)
{
    (void)be;
    for (int b = 0; b < a->seqs.n; b++)
        for (int h = 0; h < a->heads; h++)
            for (int i = 0; i < a->seqs.q[b + 1] - a->seqs.q[b]; i++) {
                struct query q = query_at(a, b, i, h);
                attend_query(a, &q);
            }
}

/* ---- backward ---- */

/* The gradient of the affinity of key j. With o = sum of affinity * v / sum of affinity it is
 * dout . (v - o) / sum of affinity. */
static double affinity_grad(const struct attention *a, const struct attention_grad *g,
                            const struct query *q, int j)
{
    double sum = 0;
    for (int c = 0; c < q->dv; c++) {
        int col = q->head * q->dv + c;
        sum += get(g->dout, q->row, col) *
               (get(a->v, q->key + j, q->kv_head * q->dv + c) - get(a->o, q->row, col));
    }
    return sum * inverse(get(a->lse, q->row, q->head));
}

static void attend_query_bwd(const struct attention *a, const struct attention_grad *g,
                             const struct query *q)
{
    int q0 = q->head * q->dk, o0 = q->head * q->dv;       /* first columns in q and o */
    int k0 = q->kv_head * q->dk, v0 = q->kv_head * q->dv; /* ... in k and v */
    double scale = inverse(get(a->lse, q->row, q->head));
    for (int j = 0; j < q->keys; j++) {
        double p = affinity(a, q, j) * scale, dp = affinity_grad(a, g, q, j);
        int row = q->key + j;
        for (int c = 0; c < q->dv; c++) add(g->dv, row, v0 + c, p * get(g->dout, q->row, o0 + c));
        for (int c = 0; c < q->dk; c++) {
            double x = get(a->q, q->row, q0 + c), y = get(a->k, row, k0 + c);
            add(g->dq, q->row, q0 + c, dp * phi(y) * phi_slope(x));
            add(g->dk, row, k0 + c, dp * phi(x) * phi_slope(y));
        }
    }
}

void ref_attend_linear_bwd(struct backend *be, const struct attention *a,
                           const struct attention_grad *g)
{
    (void)be;
    const struct seqs *s = &a->seqs;
    ref_attend_zero(s, g);
    for (int b = 0; b < s->n; b++)
        for (int h = 0; h < a->heads; h++)
            for (int i = 0; i < s->q[b + 1] - s->q[b]; i++) {
                struct query q = query_at(a, b, i, h);
                attend_query_bwd(a, g, &q);
            }
}

/* ---- states ---- */

/* Columns of S and of z of a key/value head in a state. */
static int state_s(const struct attention *a, int kv_head, int c, int d)
{
    int dk = attention_dk(a), dv = attention_dv(a);
    return kv_head * dk * (dv + 1) + c * dv + d;
}
static int state_z(const struct attention *a, int kv_head, int c)
{
    return state_s(a, kv_head, attention_dk(a), c);
}

/* states row `to` = row `from` (-1: zeros) + n keys from row `key` on */
static void state_add(struct mat states, int to, int from, const struct attention *a, int key,
                      int n)
{
    int dk = attention_dk(a), dv = attention_dv(a);
    for (int c = 0; c < states.cols; c++) set(states, to, c, from < 0 ? 0 : get(states, from, c));
    for (int kv = 0; kv < attention_kv_heads(a); kv++)
        for (int j = key; j < key + n; j++)
            for (int c = 0; c < dk; c++) {
                double x = phi(get(a->k, j, kv * dk + c));
                add(states, to, state_z(a, kv, c), x);
                for (int d = 0; d < dv; d++)
                    add(states, to, state_s(a, kv, c, d), x * get(a->v, j, kv * dv + d));
            }
}

void ref_linear_state(struct backend *be, struct mat states, const struct attention *a)
{
    (void)be;
    for (int b = 0; b < a->seqs.n; b++) state_add(states, b, -1, a, a->seqs.k[b], a->seqs.klen[b]);
}

static void attend_row(struct mat states, int state, const struct attention *a,
                       const struct query *q)
{
    double sum = 0;
    for (int c = 0; c < q->dk && state >= 0; c++)
        sum += phi(get(a->q, q->row, q->head * q->dk + c)) *
               get(states, state, state_z(a, q->kv_head, c));
    set(a->lse, q->row, q->head, sum);
    for (int d = 0; d < q->dv; d++) {
        double o = 0;
        for (int c = 0; c < q->dk && state >= 0; c++)
            o += phi(get(a->q, q->row, q->head * q->dk + c)) *
                 get(states, state, state_s(a, q->kv_head, c, d));
        set(a->o, q->row, q->head * q->dv + d, o * inverse(sum));
    }
    if (a->weights.p) set_weights(a, q);
}

void ref_attend_state(struct backend *be, struct mat states, const struct attention *a)
{
    (void)be;
    const struct seqs *s = &a->seqs;
    for (int b = 0; b < s->n; b++) {
        if (s->to) state_add(states, s->to[b], s->from[b], a, s->q[b], 1);
        for (int h = 0; h < a->heads; h++)
            for (int i = 0; i < s->q[b + 1] - s->q[b]; i++) {
                struct query q = query_at(a, b, i, h);
                attend_row(states, s->to ? s->to[b] : s->from[b], a, &q);
            }
    }
}
