/*
 * flops.c - floating-point operations of a training step; see flops.h.
 */
#include "model/flops.h"

#include "model/config.h"
#include "model/feed_forward.h"

/* Multiply-adds of a sub-layer of attention of q queries to k keys, without its projections. A
 * query sees all keys, or those of `seen`. */
static double scores(const struct heed_config *c, double q, double k, double seen)
{
    double width = c->heads * (config_d_k(c) + config_d_v(c));
    /* linear attention: each key goes into a state, each query is multiplied by one */
    if (config_linear(c)) return (q + k) * c->heads * config_d_k(c) * config_d_v(c);
    return q * seen * width;
}

/* Keys that a query of self-attention sees on average in a sentence of n tokens. */
static double seen(const struct heed_config *c, double n, bool causal)
{
    double all = causal ? n / 2 : n;
    if (c->attention != HEED_ATTENTION_WINDOW) return all;
    double near = (causal ? 1 : 2) * (double)c->window + 1 + c->global;
    return near < all ? near : all;
}

double model_flops(const struct heed_config *c, const struct packed *b)
{
    double d = c->d_model, src = b->rows_src, tgt = b->rows_tgt, enc = 0, dec = 0;
    double queries = d * c->heads * config_d_k(c), out = d * c->heads * config_d_v(c);
    double keys = d * config_kv_width(c); /* and values */
    double ff = d * (feed_forward_outputs(c) + feed_forward_width(c));
    if (config_experts(c)) ff = ff * config_experts_per_token(c) + d * config_experts(c);
    for (int i = 0; i < b->n; i++) {
        double s = b->src_len[i], t = b->tgt_len[i];
        enc += scores(c, s, s, seen(c, s, false));
        dec += scores(c, t, t, seen(c, t, true)) + scores(c, t, s, s);
    }
    enc = c->encoder_layers * ((queries + keys + out + ff) * src + enc);
    dec = c->decoder_layers * ((2 * queries + keys + 2 * out + ff) * tgt + keys * src + dec);
    return 6 * (enc + dec + d * c->vocab_size * tgt);
}
