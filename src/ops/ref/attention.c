/*
 * attention.c - attention of the reference backend: one query in one head at a time (paper 3.2).
 */
#include <math.h>

#include "ops/drop.h"
#include "ops/ref/ref.h"

/* One query in one head. */
struct query {
    int row, head, kv_head;
    int key, keys;     /* the keys that it sees: rows [key, key + keys), or with a table `at` */
    const int32_t *at; /* the rows at[key] to at[key + keys - 1] */
    double scale;
    int dk, dv;
    struct drop_row mask;
};

static struct query query_at(const struct attention *a, int sentence, int i, int head)
{
    const struct seqs *s = &a->seqs;
    int nq = s->q[sentence + 1] - s->q[sentence], klen = s->klen[sentence];
    int keys = s->causal ? klen - (nq - 1 - i) : klen;
    int row = s->q[sentence] + i, dk = attention_dk(a);
    return (struct query){.row = row,
                          .head = head,
                          .kv_head = head / attention_shared(a),
                          .key = s->k[sentence],
                          .keys = keys > 0 ? keys : 0,
                          .at = s->at,
                          .scale = 1 / sqrt(dk),
                          .dk = dk,
                          .dv = attention_dv(a),
                          .mask = drop_row(a->drop, (uint64_t)row * a->heads + head)};
}

static int key_row(const struct query *q, int j)
{
    return q->at ? q->at[q->key + j] : q->key + j;
}

static double score(const struct attention *a, const struct query *q, int j)
{
    double s = 0;
    int row = key_row(q, j);
    for (int c = 0; c < q->dk; c++)
        s += get(a->q, q->row, q->head * q->dk + c) * get(a->k, row, q->kv_head * q->dk + c);
    return s * q->scale;
}

static void attend_query(const struct attention *a, const struct query *q)
{
    double max = -INFINITY, sum = 0;
    for (int j = 0; j < q->keys; j++) max = fmax(max, score(a, q, j));
    for (int j = 0; j < q->keys; j++) sum += exp(score(a, q, j) - max);
    double lse = q->keys ? max + log(sum) : -INFINITY;
    set(a->lse, q->row, q->head, lse);
    for (int j = 0; a->weights.p && j < a->weights.cols; j++)
        set(a->weights, q->row * a->heads + q->head, j,
            j < q->keys ? exp(score(a, q, j) - lse) : 0);
    for (int c = 0; c < q->dv; c++) {
        double o = 0;
        for (int j = 0; j < q->keys; j++)
            o += exp(score(a, q, j) - lse) * drop_factor(q->mask, j) *
                 get(a->v, key_row(q, j), q->kv_head * q->dv + c);
        set(a->o, q->row, q->head * q->dv + c, o);
    }
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

/* The weights are computed again from the log-sum-exp. delta = dout . o is the sum over the keys of
 * weight times its gradient, which the derivative of the softmax subtracts. */
static void attend_query_bwd(const struct attention *a, const struct query *q, struct mat dq,
                             struct mat dk, struct mat dv, struct mat dout)
{
    int q0 = q->head * q->dk, o0 = q->head * q->dv;       /* first columns in q and o */
    int k0 = q->kv_head * q->dk, v0 = q->kv_head * q->dv; /* ... in k and v */
    double delta = 0, lse = get(a->lse, q->row, q->head);
    for (int c = 0; c < q->dv; c++) delta += get(dout, q->row, o0 + c) * get(a->o, q->row, o0 + c);
    for (int j = 0; j < q->keys; j++) {
        double p = exp(score(a, q, j) - lse), mask = drop_factor(q->mask, j), dp = 0;
        for (int c = 0; c < q->dv; c++) {
            double g = get(dout, q->row, o0 + c);
            dp += g * get(a->v, q->key + j, v0 + c);
            add(dv, q->key + j, v0 + c, p * mask * g);
        }
        double ds = p * (mask * dp - delta) * q->scale;
        for (int c = 0; c < q->dk; c++) {
            add(dq, q->row, q0 + c, ds * get(a->k, q->key + j, k0 + c));
            add(dk, q->key + j, k0 + c, ds * get(a->q, q->row, q0 + c));
        }
    }
}

static void zero_rows(struct mat m, int row, int n)
{
    for (int i = 0; i < n; i++)
        for (int c = 0; c < m.cols; c++) set(m, row + i, c, 0);
}

void ref_attend_bwd(struct backend *be, const struct attention *a, struct mat dq, struct mat dk,
                    struct mat dv, struct mat dout)
{
    (void)be;
    const struct seqs *s = &a->seqs;
    for (int b = 0; b < s->n; b++) {
        zero_rows(dq, s->q[b], s->q[b + 1] - s->q[b]);
        zero_rows(dk, s->k[b], s->klen[b]);
        zero_rows(dv, s->k[b], s->klen[b]);
        for (int h = 0; h < a->heads; h++)
            for (int i = 0; i < s->q[b + 1] - s->q[b]; i++) {
                struct query q = query_at(a, b, i, h);
                attend_query_bwd(a, &q, dq, dk, dv, dout);
            }
    }
}
