/*
 * attention.c - attention of the reference backend: one query in one head at a time (paper 3.2).
 */
#include <math.h>
#include <stdlib.h>

#include "ops/drop.h"
#include "ops/ref/ref.h"

/* One query in one head. */
struct query {
    int row, head, kv_head;
    int position;         /* in its sentence */
    int key;              /* key j of the sentence is row key + j, or with a table `at` */
    const int32_t *at;    /* row at[key + j] */
    struct key_span sees; /* the keys that it sees */
    double scale, slope;
    int dk, dv;
    struct drop_row mask;
};

static struct query query_at(const struct attention *a, int sentence, int i, int head)
{
    const struct seqs *s = &a->seqs;
    int nq = s->q[sentence + 1] - s->q[sentence], klen = s->klen[sentence];
    int row = s->q[sentence] + i, dk = attention_dk(a), position = klen - nq + i;
    return (struct query){.row = row,
                          .head = head,
                          .kv_head = head / attention_shared(a),
                          .position = position,
                          .key = s->k[sentence],
                          .at = s->at,
                          .sees = attention_sees(a, position, klen),
                          .scale = a->additive.p ? 1 : 1 / sqrt(dk),
                          .slope = attention_slope(a, head),
                          .dk = dk,
                          .dv = attention_dv(a),
                          .mask = drop_row(a->drop, (uint64_t)row * a->heads + head)};
}

static int key_row(const struct query *q, int j)
{
    return q->at ? q->at[q->key + j] : q->key + j;
}

/* The first key that the query sees, and the next one after j; q->sees.to: there is no more. */
static int key_first(const struct query *q)
{
    return q->sees.first ? 0 : q->sees.from;
}
static int key_next(const struct query *q, int j)
{
    return j + 1 == q->sees.first ? q->sees.from : j + 1;
}

static bool seen(const struct query *q, int j)
{
    return j < q->sees.first || (j >= q->sees.from && j < q->sees.to);
}

/* Column c of the vector for the distance of key j in relative_k or relative_v; 0 where there is
 * none. */
static double relative(const struct attention *a, struct mat table, const struct query *q, int j,
                       int c)
{
    return table.p ? get(table, attention_relative_row(a, j - q->position), c) : 0;
}

static double score(const struct attention *a, const struct query *q, int j)
{
    double s = 0;
    int row = key_row(q, j);
    for (int c = 0; c < q->dk; c++) {
        double x = get(a->q, q->row, q->head * q->dk + c);
        double y = get(a->k, row, q->kv_head * q->dk + c);
        s += a->additive.p ? get(a->additive, q->head, c) * tanh(x + y)
                           : x * (y + relative(a, a->relative_k, q, j, c));
    }
    return s * q->scale - q->slope * abs(j - q->position);
}

static void attend_query(const struct attention *a, const struct query *q)
{
    double max = -INFINITY, sum = 0;
    for (int j = key_first(q); j < q->sees.to; j = key_next(q, j)) max = fmax(max, score(a, q, j));
    for (int j = key_first(q); j < q->sees.to; j = key_next(q, j)) sum += exp(score(a, q, j) - max);
    double lse = sum > 0 ? max + log(sum) : -INFINITY;
    set(a->lse, q->row, q->head, lse);
    for (int j = 0; a->weights.p && j < a->weights.cols; j++)
        set(a->weights, q->row * a->heads + q->head, j, seen(q, j) ? exp(score(a, q, j) - lse) : 0);
    double o[HEAD_WIDTH_MAX] = {0};
    for (int j = key_first(q); j < q->sees.to; j = key_next(q, j)) {
        double weight = exp(score(a, q, j) - lse) * drop_factor(q->mask, j);
        for (int c = 0; c < q->dv; c++)
            o[c] += weight * (get(a->v, key_row(q, j), q->kv_head * q->dv + c) +
                              relative(a, a->relative_v, q, j, c));
    }
    for (int c = 0; c < q->dv; c++) set(a->o, q->row, q->head * q->dv + c, o[c]);
}

void ref_attend(struct backend *be, const struct attention *a)
{
    (void)be;
    for (int b = 0; b < a->seqs.n; b++)
        for (int h = 0; h < a->heads; h++)
            for (int i = 0; i < a->seqs.q[b + 1] - a->seqs.q[b]; i++) {
                struct query q = query_at(a, b, i, h);
                attend_query(a, &q);
            }
}

/* ds: the gradient of the score of key j before scaling. Adds what it contributes to the gradients
 * of q and k and of the parameters of the score. */
static void score_bwd(const struct attention *a, const struct query *q, int j, double ds,
                      const struct attention_grad *g)
{
    int q0 = q->head * q->dk, k0 = q->kv_head * q->dk, row = q->key + j; /* no `at` in backward */
    for (int c = 0; c < q->dk; c++) {
        double x = get(a->q, q->row, q0 + c), y = get(a->k, row, k0 + c);
        if (a->additive.p) {
            double t = tanh(x + y), dt = ds * get(a->additive, q->head, c) * (1 - t * t);
            add(g->dq, q->row, q0 + c, dt);
            add(g->dk, row, k0 + c, dt);
            add(g->dadditive, q->head, c, ds * t);
            continue;
        }
        add(g->dq, q->row, q0 + c, ds * (y + relative(a, a->relative_k, q, j, c)));
        add(g->dk, row, k0 + c, ds * x);
        if (a->relative_k.p)
            add(g->drelative_k, attention_relative_row(a, j - q->position), c, ds * x);
    }
}

/* The weights are computed again from the log-sum-exp. delta = dout . o is the sum over the keys of
 * weight times its gradient, which the derivative of the softmax subtracts. */
static void attend_query_bwd(const struct attention *a, const struct query *q,
                             const struct attention_grad *g)
{
    int o0 = q->head * q->dv, v0 = q->kv_head * q->dv; /* first columns in o and v */
    double delta = 0, lse = get(a->lse, q->row, q->head);
    for (int c = 0; c < q->dv; c++)
        delta += get(g->dout, q->row, o0 + c) * get(a->o, q->row, o0 + c);
    for (int j = key_first(q); j < q->sees.to; j = key_next(q, j)) {
        double p = exp(score(a, q, j) - lse), mask = drop_factor(q->mask, j), dp = 0;
        for (int c = 0; c < q->dv; c++) {
            double d = get(g->dout, q->row, o0 + c);
            dp += d * (get(a->v, q->key + j, v0 + c) + relative(a, a->relative_v, q, j, c));
            add(g->dv, q->key + j, v0 + c, p * mask * d);
            if (a->relative_v.p)
                add(g->drelative_v, attention_relative_row(a, j - q->position), c, p * mask * d);
        }
        score_bwd(a, q, j, p * (mask * dp - delta) * q->scale, g);
    }
}

static void zero_rows(struct mat m, int row, int n)
{
    for (int i = 0; i < n; i++)
        for (int c = 0; c < m.cols; c++) set(m, row + i, c, 0);
}

void ref_attend_zero(const struct seqs *s, const struct attention_grad *g)
{
    for (int b = 0; b < s->n; b++) {
        zero_rows(g->dq, s->q[b], s->q[b + 1] - s->q[b]);
        zero_rows(g->dk, s->k[b], s->klen[b]);
        zero_rows(g->dv, s->k[b], s->klen[b]);
    }
}

void ref_attend_bwd(struct backend *be, const struct attention *a, const struct attention_grad *g)
{
    (void)be;
    const struct seqs *s = &a->seqs;
    ref_attend_zero(s, g);
    for (int b = 0; b < s->n; b++)
        for (int h = 0; h < a->heads; h++)
            for (int i = 0; i < s->q[b + 1] - s->q[b]; i++) {
                struct query q = query_at(a, b, i, h);
                attend_query_bwd(a, &q, g);
            }
}
