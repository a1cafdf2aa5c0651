/*
 * test_ops.c - every op of the CPU backend, on every ISA of this machine, for 1, 2 and 5 threads,
 * in f32 and bf16, against the reference; then the model on top: cpu = ref, cached = recomputed.
 * Or all of this on a device: see device.h.
 *
 * How a trial works is told in trial.h. Here each op has a plan that names its matrices and a call
 * that passes them on in that order; the table at the end says which shapes and flags are tried.
 */

#include "base/minmax.h"
#include "ops/drop.h"
#include "trial_experts.h"
#include "variants.h"

/* ---- embed ---- */

enum { VOCAB = 37, POSITIONS = 50 };

static void draw_ids(struct trial *t)
{
    assert_true(2 * t->rows <= INTS);
    for (int i = 0; i < t->rows; i++) {
        t->ints[i] = (int32_t)random_below(&t->random, VOCAB);
        t->ints[t->rows + i] = (int32_t)random_below(&t->random, POSITIONS);
    }
}

static void plan_embed(struct trial *t)
{
    draw_ids(t);
    act(t, OUT, "y", t->rows, t->cols, t->act);
    par(t, IN, "e", VOCAB, t->cols, t->act);
    if (t->flags & PLACED)
        par(t, IN, "position", POSITIONS, t->cols, TYPE_F32);
    else
        absent(t);
}
static void call_embed(struct backend *be, const struct trial *t, const struct mat *m,
                       const int32_t *ints)
{
    const int32_t *pos = m[2].p ? ints + t->rows : NULL;
    be->op->embed(be, m[0], ints, pos, m[1], m[2], t->drop);
}

static void plan_embed_bwd(struct trial *t)
{
    draw_ids(t);
    par(t, ADD, "de", VOCAB, t->cols, TYPE_F32);
    act(t, IN, "dy", t->rows, t->cols, t->act);
}
static void call_embed_bwd(struct backend *be, const struct trial *t, const struct mat *m,
                           const int32_t *ints)
{
    be->op->embed_bwd(be, m[0], ints, m[1], t->flags & PLACED ? 1 : sqrt(m[1].cols), t->drop);
}

/* A head is as wide as the trial says, made even; there are three of them. */
static void plan_rotate(struct trial *t)
{
    int width = (t->cols + 1) / 2 * 2;
    draw_ids(t);
    act(t, ADD, "x", t->rows, 3 * width, t->act);
    par(t, IN, "table", POSITIONS, width, TYPE_F32);
}
static void call_rotate(struct backend *be, const struct trial *t, const struct mat *m,
                        const int32_t *ints)
{
    be->op->rotate(be, m[0], ints + t->rows, m[1], t->flags & OPPOSITE);
}

/* ---- linear ---- */

static struct activation activation_of(const struct trial *t, struct mat slope)
{
    return (struct activation){.kind = t->activation, .slope = slope, .drop = t->drop};
}

static void plan_linear(struct trial *t)
{
    act(t, OUT, "y", t->rows, t->out, t->act);
    act(t, IN, "x", t->rows, t->cols, t->act);
    par(t, IN, "w", t->out, t->cols, t->act);
    t->flags &BIAS ? par(t, IN, "b", 1, t->out, TYPE_F32) : absent(t);
    bool slope = t->flags & KEEP && activation_keeps_slope(t->activation);
    slope ? act(t, OUT, "slope", t->rows, t->out, t->act), stands_beside(t, 0) : absent(t);
}
static void call_linear(struct backend *be, const struct trial *t, const struct mat *m,
                        const int32_t *ints)
{
    (void)ints;
    be->op->linear(be, m[0], m[1], m[2], m[3], activation_of(t, m[4]));
}

static void plan_linear_bwd(struct trial *t)
{
    enum access dx = t->flags & BETA ? ADD : OUT;
    t->flags &NODX ? absent(t) : act(t, dx, "dx", t->rows, t->cols, t->act);
    t->flags &BIAS ? par(t, ADD, "db", 1, t->cols, TYPE_F32), sums_rows(t, 0) : absent(t);
    par(t, ADD, "dw", t->out, t->cols, TYPE_F32);
    act(t, IN, "dy", t->rows, t->out, t->act);
    act(t, IN, "x", t->rows, t->cols, t->act);
    par(t, IN, "w", t->out, t->cols, t->act);
    bool slope = activation_keeps_slope(t->activation);
    slope ? slot_add(t, IN, "slope", t->rows, t->cols, t->act, true, -1.2f, 1.2f) : absent(t);
}
/* Without a slope x is as linear leaves it: what is zero in it agrees with the mask. With a slope
 * the x of a trial has nothing to do with it: the gradient of x may not depend on x, nor on the
 * mask, which the slope includes. */
static void prepare_linear_bwd(struct backend *ref, const struct trial *t, const struct mat *m)
{
    (void)ref;
    if (m[6].p) return;
    for (int i = 0; i < m[4].rows; i++)
        for (int c = 0; c < m[4].cols; c++) {
            double z = number(m[4], i, c), y = t->activation == ACT_RELU && z < 0 ? 0 : z;
            number_set(m[4], i, c, y * (double)drop_factor(drop_row(t->drop, i), c));
        }
}
static void call_linear_bwd(struct backend *be, const struct trial *t, const struct mat *m,
                            const int32_t *ints)
{
    (void)ints;
    be->op->linear_bwd(be, m[0], t->flags & BETA ? 1 : 0, m[1], m[2], m[3], m[4], m[5],
                       activation_of(t, m[6]));
}

static void plan_bias_bwd(struct trial *t)
{
    par(t, ADD, "db", 1, t->cols, TYPE_F32);
    act(t, IN, "dy", t->rows, t->cols, t->act);
}
static void call_bias_bwd(struct backend *be, const struct trial *t, const struct mat *m,
                          const int32_t *ints)
{
    (void)t, (void)ints;
    be->op->bias_bwd(be, m[0], m[1]);
}

static void plan_gate(struct trial *t)
{
    act(t, OUT, "h", t->rows, t->cols, t->act);
    slot_add(t, IN, "z", t->rows, 2 * t->cols, t->act, true, -4, 4);
}
static void call_gate(struct backend *be, const struct trial *t, const struct mat *m,
                      const int32_t *ints)
{
    (void)ints;
    be->op->gate(be, m[0], m[1], t->drop);
}

static void plan_gate_bwd(struct trial *t)
{
    act(t, OUT, "dz", t->rows, 2 * t->cols, t->act);
    t->flags &BIAS ? par(t, ADD, "db", 1, 2 * t->cols, TYPE_F32), sums_rows(t, 0) : absent(t);
    act(t, IN, "dh", t->rows, t->cols, t->act);
    slot_add(t, IN, "z", t->rows, 2 * t->cols, t->act, true, -4, 4);
}
static void call_gate_bwd(struct backend *be, const struct trial *t, const struct mat *m,
                          const int32_t *ints)
{
    (void)ints;
    be->op->gate_bwd(be, m[0], m[1], m[2], m[3], t->drop);
}

/* ---- attention: cols is the width of a head, out the number of heads ---- */

/* Where q, k, klen and the table of keys are in the ints. */
enum { SENTENCES = 8, AT_K = SENTENCES + 1, AT_KLEN = AT_K + SENTENCES, AT_LIST = 1200 };

/* Cuts the rows into sentences, which in trials of widths are around the sizes of tiles. Keys of
 * their own have gaps between them, one sentence asks nothing, and (forward) two share their keys,
 * as beams do. Returns the rows of the keys. */
static int plan_seqs(struct trial *t, bool share)
{
    static const int lengths[2][6] = {{5, 1, 9, 2, 40, 300}, {31, 1, 33, 64, 130, 300}};
    const int *length = lengths[t->values > 0];
    struct seqs *s = &t->seqs;
    int32_t *q = t->ints, *k = q + AT_K, *klen = q + AT_KLEN, keys = 0;
    *s = (struct seqs){.causal = t->flags & CAUSAL};
    for (int i = 0; q[s->n] < t->rows; i++, s->n++) {
        bool cross = t->flags & CROSS, asks_nothing = cross && i == 1;
        int nq = asks_nothing ? 0 : int_min(length[i], t->rows - q[i]);
        q[i + 1] = q[i] + nq;
        k[i] = keys;
        bool enough = s->causal || t->flags & FORM; /* as many keys as queries */
        klen[i] = cross ? (enough ? nq : 1) + i * 5 % 7 : nq;
        keys += klen[i] + cross;
        if (cross && share && i == 3) k[3] = k[2], klen[3] = klen[2];
        s->max_q = nq > s->max_q ? nq : s->max_q;
        s->max_k = klen[i] > s->max_k ? klen[i] : s->max_k;
    }
    return keys;
}

/* 0: as many as heads */
static int kv_heads_of(const struct trial *t)
{
    return !(t->flags & GROUPED) ? 0 : t->out % 2 ? 1 : t->out / 2;
}

/* Forms of attention besides the paper's. Distances beyond DISTANCES share a vector of `relative`.
 */
static const struct form {
    int window, global;
    bool alibi, relative, additive;
} forms[] = {
    {.window = 1},
    {.window = 3, .global = 2},
    {.alibi = true},
    {.relative = true},
    {.window = 4, .global = 1, .alibi = true, .relative = true},
    {.window = 70, .global = 9, .relative = true}, /* more than a tile of keys */
    {.additive = true},
    {.window = 2, .global = 1, .alibi = true, .additive = true},
};
enum { FORMS = sizeof forms / sizeof *forms, DISTANCES = 3 };

/* The matrices of a form, or their gradients. */
static void plan_form(struct trial *t, enum access role, int dk, int dv)
{
    struct form f = t->flags & FORM ? forms[t->form] : (struct form){0};
    f.relative ? par(t, role, "relative_k", 2 * DISTANCES + 1, dk, TYPE_F32) : absent(t);
    sums_weights(t);
    f.relative ? par(t, role, "relative_v", 2 * DISTANCES + 1, dv, TYPE_F32) : absent(t);
    sums_weights(t);
    /* Additive scores are not divided by sqrt(dk), so that dq would have larger errors than the
     * tolerance counts with, if these numbers were not small. */
    f.additive ? slot_add(t, role, "additive", t->out, dk, TYPE_F32, false, -0.2, 0.2) : absent(t);
}

static void set_form(struct attention *a, const struct trial *t, const struct mat *m)
{
    struct form f = t->flags & FORM ? forms[t->form] : (struct form){0};
    a->window = f.window, a->global = f.global, a->alibi = f.alibi;
    a->relative_k = m[0], a->relative_v = m[1], a->additive = m[2];
}

static struct attention attention_of(const struct trial *t, const struct mat *m,
                                     const int32_t *ints)
{
    struct attention a = {.q = m[0],
                          .k = m[1],
                          .v = m[2],
                          .o = m[3],
                          .lse = m[4],
                          .heads = t->out,
                          .kv_heads = kv_heads_of(t),
                          .seqs = t->seqs,
                          .drop = t->drop};
    a.seqs.q = ints, a.seqs.k = ints + AT_K, a.seqs.klen = ints + AT_KLEN;
    if (t->flags & LISTED) a.seqs.at = ints + AT_LIST;
    set_form(&a, t, m + 5);
    return a;
}

static void plan_attention(struct trial *t, enum access role, bool share)
{
    int keys = plan_seqs(t, share), kv_heads = kv_heads_of(t) ? kv_heads_of(t) : t->out;
    int dk = t->cols, dv = t->rows == 16 || t->rows == 200 ? dk + 3 : dk;
    if (t->values) dv = t->values;
    assert_true(AT_LIST + keys <= INTS);
    for (int i = 0; i < keys; i++) t->ints[AT_LIST + i] = keys - 1 - i;
    act(t, IN, "q", t->rows, t->out * dk, t->act);
    act(t, IN, "k", keys, kv_heads * dk, t->act);
    act(t, IN, "v", keys, kv_heads * dv, t->act);
    act(t, role, "o", t->rows, t->out * dv, t->act);
    act(t, role, "lse", t->rows, t->out, TYPE_F32);
    plan_form(t, IN, dk, dv);
}
static void plan_attend(struct trial *t)
{
    plan_attention(t, OUT, true);
    par(t, OUT, "weights", t->rows * t->out, t->seqs.max_k, TYPE_F32);
}
static void call_attend(struct backend *be, const struct trial *t, const struct mat *m,
                        const int32_t *ints)
{
    struct attention a = attention_of(t, m, ints);
    a.weights = m[8];
    be->op->attend(be, &a);
}

/* The shape is rows and the widths of a head's keys and values. */
static void widths_of_shape(struct trial *t)
{
    t->values = t->out, t->out = 2;
}
static void plan_attend_widths(struct trial *t)
{
    widths_of_shape(t);
    plan_attend(t);
}

static void plan_attend_bwd(struct trial *t)
{
    plan_attention(t, IN, false);
    for (int i = 0; i < 3; i++) {
        static const char *const name[] = {"dq", "dk", "dv"};
        act(t, OUT, name[i], t->slot[i].dev.rows, t->slot[i].dev.cols, t->act);
    }
    act(t, IN, "dout", t->rows, t->slot[3].dev.cols, t->act);
    plan_form(t, ADD, t->cols, t->slot[3].dev.cols / t->out);
}
static void plan_attend_bwd_widths(struct trial *t)
{
    widths_of_shape(t);
    plan_attend_bwd(t);
}
static void prepare_attend_bwd(struct backend *ref, const struct trial *t, const struct mat *m)
{
    struct attention a = attention_of(t, m, t->ints);
    ref->op->attend(ref, &a);
}
static void call_attend_bwd(struct backend *be, const struct trial *t, const struct mat *m,
                            const int32_t *ints)
{
    struct attention a = attention_of(t, m, ints);
    struct attention_grad g = {.dq = m[8],
                               .dk = m[9],
                               .dv = m[10],
                               .dout = m[11],
                               .drelative_k = m[12],
                               .drelative_v = m[13],
                               .dadditive = m[14]};
    be->op->attend_bwd(be, &a, &g);
}

/* ---- linear attention ---- */

/* Tensor cores take phi(q) and phi(k) rounded to the type of activations. */
static void plan_attend_linear(struct trial *t)
{
    plan_attend(t);
    t->slot[4].coarse = true;
}
static void call_attend_linear(struct backend *be, const struct trial *t, const struct mat *m,
                               const int32_t *ints)
{
    struct attention a = attention_of(t, m, ints);
    a.weights = m[8];
    be->op->attend_linear(be, &a);
}
static void prepare_attend_linear_bwd(struct backend *ref, const struct trial *t,
                                      const struct mat *m)
{
    struct attention a = attention_of(t, m, t->ints);
    ref->op->attend_linear(ref, &a);
}
static void call_attend_linear_bwd(struct backend *be, const struct trial *t, const struct mat *m,
                                   const int32_t *ints)
{
    struct attention a = attention_of(t, m, ints);
    struct attention_grad g = {.dq = m[8], .dk = m[9], .dv = m[10], .dout = m[11]};
    be->op->attend_linear_bwd(be, &a, &g);
}

static void plan_linear_state(struct trial *t)
{
    plan_attention(t, IN, false);
    par(t, OUT, "states", t->seqs.n, t->slot[1].dev.cols * (t->slot[3].dev.cols / t->out + 1),
        TYPE_F32);
}
static void call_linear_state(struct backend *be, const struct trial *t, const struct mat *m,
                              const int32_t *ints)
{
    struct attention a = attention_of(t, m, ints);
    be->op->linear_state(be, m[8], &a);
}

/* Where the rows of states are in the ints. */
enum { AT_FROM = 600, AT_TO = 900 };

/* With KEEP as in self-attention: each query is a sentence, one has no state yet, two have the same
 * and all write others. Else as in cross-attention: the sentences have states out of order. States
 * hold what keys can make: no sum of phi(k) is negative. */
static void plan_attend_state(struct trial *t)
{
    plan_attention(t, OUT, false);
    int n = t->flags & KEEP ? t->rows : t->seqs.n, dv = t->slot[3].dev.cols / t->out;
    slot_add(t, t->flags & KEEP ? ADD : IN, "states", 2 * n + 1, t->slot[1].dev.cols * (dv + 1),
             TYPE_F32, false, 0.1, 2);
    if (!(t->flags & KEEP)) par(t, OUT, "weights", t->rows * t->out, t->seqs.max_k, TYPE_F32);
    for (int i = 0; i < n; i++) {
        t->ints[AT_FROM + i] = i == 3 ? -1 : i == 2 ? n - 1 : n - 1 - i;
        t->ints[AT_TO + i] = n + (i + 1) % n;
        if (t->flags & KEEP) t->ints[i + 1] = i + 1;
    }
    if (t->flags & KEEP) t->seqs.n = n, t->seqs.max_q = 1;
}
static void call_attend_state(struct backend *be, const struct trial *t, const struct mat *m,
                              const int32_t *ints)
{
    struct attention a = attention_of(t, m, ints);
    a.seqs.from = ints + AT_FROM;
    if (t->flags & KEEP)
        a.seqs.to = ints + AT_TO;
    else
        a.weights = m[9];
    be->op->attend_state(be, m[8], &a);
}

/* ---- add_norm ---- */

static void plan_add_norm(struct trial *t)
{
    bool alias = t->flags & ALIAS, keep = t->flags & KEEP;
    act(t, alias ? ADD : IN, "x", t->rows, t->cols, t->act);
    alias ? absent(t) : act(t, OUT, "y", t->rows, t->cols, t->act);
    keep ? act(t, OUT, "xhat", t->rows, t->cols, t->act) : absent(t);
    keep ? act(t, OUT, "rstd", t->rows, 1, TYPE_F32) : absent(t);
    act(t, IN, "r", t->rows, t->cols, t->act);
    par(t, IN, "g", 1, t->cols, TYPE_F32);
    par(t, IN, "b", 1, t->cols, TYPE_F32);
}
static void call_add_norm(struct backend *be, const struct trial *t, const struct mat *m,
                          const int32_t *ints)
{
    (void)ints;
    be->op->add_norm(be, t->flags & ALIAS ? m[0] : m[1], m[2], m[3], m[0], m[4], m[5], m[6],
                     t->drop);
}

/* What backward of a norm adds to and reads. */
static void plan_norm_gradients(struct trial *t)
{
    par(t, ADD, "dg", 1, t->cols, TYPE_F32);
    par(t, ADD, "db", 1, t->cols, TYPE_F32);
    act(t, IN, "dy", t->rows, t->cols, t->act);
    act(t, IN, "xhat", t->rows, t->cols, t->act);
    slot_add(t, IN, "rstd", t->rows, 1, TYPE_F32, true, 0.5, 2);
    par(t, IN, "g", 1, t->cols, TYPE_F32);
}

static void plan_add_norm_bwd(struct trial *t)
{
    act(t, OUT, "dx", t->rows, t->cols, t->act);
    act(t, OUT, "dr", t->rows, t->cols, t->act);
    t->flags &BIAS ? par(t, ADD, "drb", 1, t->cols, TYPE_F32), sums_rows(t, 1) : absent(t);
    plan_norm_gradients(t);
}
static void call_add_norm_bwd(struct backend *be, const struct trial *t, const struct mat *m,
                              const int32_t *ints)
{
    (void)ints;
    be->op->add_norm_bwd(be, m[0], m[1], m[2], m[3], m[4], m[5], m[6], m[7], m[8], t->drop);
}

/* ---- the halves of add_norm ---- */

static void plan_add(struct trial *t)
{
    bool alias = t->flags & ALIAS;
    act(t, alias ? ADD : IN, "x", t->rows, t->cols, t->act);
    alias ? absent(t) : act(t, OUT, "y", t->rows, t->cols, t->act);
    act(t, IN, "r", t->rows, t->cols, t->act);
}
static void call_add(struct backend *be, const struct trial *t, const struct mat *m,
                     const int32_t *ints)
{
    (void)ints;
    be->op->add(be, t->flags & ALIAS ? m[0] : m[1], m[0], m[2], t->drop);
}

static void plan_add_bwd(struct trial *t)
{
    act(t, OUT, "dr", t->rows, t->cols, t->act);
    t->flags &BIAS ? par(t, ADD, "drb", 1, t->cols, TYPE_F32), sums_rows(t, 0) : absent(t);
    act(t, IN, "dy", t->rows, t->cols, t->act);
}
static void call_add_bwd(struct backend *be, const struct trial *t, const struct mat *m,
                         const int32_t *ints)
{
    (void)ints;
    be->op->add_bwd(be, m[0], m[1], m[2], t->drop);
}

static void plan_norm(struct trial *t)
{
    bool keep = t->flags & KEEP;
    act(t, OUT, "y", t->rows, t->cols, t->act);
    keep ? act(t, OUT, "xhat", t->rows, t->cols, t->act) : absent(t);
    keep ? act(t, OUT, "rstd", t->rows, 1, TYPE_F32) : absent(t);
    act(t, IN, "x", t->rows, t->cols, t->act);
    par(t, IN, "g", 1, t->cols, TYPE_F32);
    par(t, IN, "b", 1, t->cols, TYPE_F32);
}
static void call_norm(struct backend *be, const struct trial *t, const struct mat *m,
                      const int32_t *ints)
{
    (void)t, (void)ints;
    be->op->norm(be, m[0], m[1], m[2], m[3], m[4], m[5]);
}

static void plan_norm_bwd(struct trial *t)
{
    act(t, t->flags & BETA ? ADD : OUT, "dx", t->rows, t->cols, t->act);
    plan_norm_gradients(t);
}
static void call_norm_bwd(struct backend *be, const struct trial *t, const struct mat *m,
                          const int32_t *ints)
{
    (void)ints;
    be->op->norm_bwd(be, m[0], t->flags & BETA ? 1 : 0, m[1], m[2], m[3], m[4], m[5], m[6]);
}

/* ---- xent, optimizer, decoding ---- */

static void plan_xent(struct trial *t)
{
    slot_add(t, t->flags & GRAD ? ADD : IN, "logits", t->rows, t->cols, t->act, true, -6, 6);
    act(t, OUT, "loss", t->rows, 2, TYPE_F32);
    for (int i = 0; i < t->rows; i++) t->ints[i] = (int32_t)random_below(&t->random, t->cols);
}
static void call_xent(struct backend *be, const struct trial *t, const struct mat *m,
                      const int32_t *ints)
{
    be->op->xent(be, m[0], ints, 0.1f, t->flags & GRAD, m[1]);
}

static void plan_sqnorm(struct trial *t)
{
    par(t, OUT, "out", 1, 1, TYPE_F64);
    par(t, IN, "g", 1, t->cols, TYPE_F32);
}
static void call_sqnorm(struct backend *be, const struct trial *t, const struct mat *m,
                        const int32_t *ints)
{
    (void)t, (void)ints;
    be->op->sqnorm(be, m[0].p, m[1]);
}

static void plan_adam(struct trial *t)
{
    double sq = t->flags & SKIP ? (t->flags & CLIP ? (double)NAN : 1e9) : 55;
    par(t, ADD, "p", 1, t->cols, TYPE_F32);
    par(t, ADD, "m", 1, t->cols, TYPE_F32);
    slot_add(t, ADD, "v", 1, t->cols, TYPE_F32, false, 0.01, 1);
    t->flags &COPY ? par(t, OUT, "copy", 1, t->cols, TYPE_BF16) : absent(t);
    par(t, IN, "g", 1, t->cols, TYPE_F32);
    slot_add(t, IN, "sq", 1, 1, TYPE_F64, false, sq, sq);
}
static void call_adam(struct backend *be, const struct trial *t, const struct mat *m,
                      const int32_t *ints)
{
    (void)ints;
    struct adam h = {.lr = 0.03,
                     .beta1 = 0.9,
                     .beta2 = 0.98,
                     .epsilon = 1e-9,
                     .step = 3,
                     .scale = 0.25,
                     .clip = t->flags & CLIP ? 1.25 : 0,
                     .limit = 1000};
    be->op->adam(be, m[0], m[1], m[2], m[3], m[4], m[5].p, &h);
}

static void plan_accumulate(struct trial *t)
{
    par(t, ADD, "x", 1, t->cols, TYPE_F32);
    par(t, IN, "y", 1, t->cols, TYPE_F32);
}
static void call_accumulate(struct backend *be, const struct trial *t, const struct mat *m,
                            const int32_t *ints)
{
    (void)t, (void)ints;
    be->op->accumulate(be, m[0], m[1]);
}

/* Both directions of a change of type, and none. */
static void plan_cast(struct trial *t)
{
    par(t, OUT, "dst", t->rows, t->cols, t->act);
    par(t, IN, "src", t->rows, t->cols, t->flags & COPY ? TYPE_BF16 : TYPE_F32);
}
static void call_cast(struct backend *be, const struct trial *t, const struct mat *m,
                      const int32_t *ints)
{
    (void)t, (void)ints;
    be->op->cast(be, m[0], m[1]);
}

static void plan_cache_put(struct trial *t)
{
    par(t, ADD, "cache", 2 * t->rows, t->cols, t->act);
    act(t, IN, "rows", t->rows, t->cols, t->act);
    for (int i = 0; i < t->rows; i++) t->ints[i] = (i * 10007 + 3) % t->rows * 2 + i % 2;
}
static void call_cache_put(struct backend *be, const struct trial *t, const struct mat *m,
                           const int32_t *ints)
{
    (void)t;
    be->op->cache_put(be, m[0], m[1], ints);
}

enum { WANTS = 2 };

static void plan_topk(struct trial *t)
{
    int k = int_min(t->cols, t->out);
    slot_add(t, IN, "logits", t->rows, t->cols, t->act, true, -6, 6);
    for (int i = 0; i < t->rows && t->flags & TIES; i++)
        for (int c = 0; c < t->cols; c++)
            number_set(t->slot[0].ref, i, c, (double)random_below(&t->random, 3));
    int wants = t->flags & WANTED ? WANTS : 0;
    par(t, OUT, "score", t->rows, k + wants, TYPE_F32);
    like_device(t);
    par(t, OUT, "id", t->rows, k + wants, TYPE_F32);
    like_device(t);
    t->slot[2].ints = true;
    for (int i = 0; i < WANTS * t->rows; i++) t->ints[i] = i % 3 ? i % t->cols : -1;
}
static void call_topk(struct backend *be, const struct trial *t, const struct mat *m,
                      const int32_t *ints)
{
    int wants = t->flags & WANTED ? WANTS : 0;
    be->op->topk(be, m[0], m[1].cols - wants, wants ? ints : NULL, wants, m[1].p, m[2].p);
}

/* ---- the table ---- */

/* rows, width; the last is large enough to be shared among threads */
static const int grid[][3] = {{0, 8},   {0, 130},  {1, 1},    {1, 3},     {1, 64},
                              {1, 130}, {15, 1},   {15, 8},   {15, 17},   {16, 3},
                              {16, 64}, {16, 17},  {17, 1},   {17, 8},    {17, 130},
                              {100, 3}, {100, 17}, {100, 64}, {150, 130}, {-1}};
/* rows, in, out; the last two are more than one tile of a product */
static const int products[][3] = {{0, 8, 17},     {1, 1, 1},     {1, 3, 130},  {15, 17, 3},
                                  {16, 64, 64},   {16, 8, 1},    {17, 130, 8}, {17, 1, 17},
                                  {100, 64, 130}, {33, 8, 1000}, {300, 8, 17}, {-1}};
/* rows, width of a head, heads; with 16 and 200 rows values have another width than keys; the last
 * is more than one tile of queries and keys */
static const int attentions[][3] = {{0, 8, 2},   {1, 1, 1},   {15, 3, 2},  {16, 8, 3},
                                    {16, 6, 4},  {17, 17, 1}, {17, 64, 2}, {7, 130, 1},
                                    {100, 5, 2}, {200, 4, 2}, {-1}};
/* rows, widths of a head's keys and values */
static const int widths[][3] = {{7, 8, 24}, {33, 5, 2}, {-1}};
static const int large_widths[][3] = {{40, 32, 64},  {64, 64, 128}, {129, 48, 80}, {66, 64, 32},
                                      {260, 24, 24}, {66, 16, 8},   {66, 128, 40}, {66, 100, 7},
                                      {129, 64, 64}, {-1}};
/* The last two are more than one chunk, and states of more than one tile. */
static const int linear_attentions[][3] = {{0, 8, 2},    {1, 1, 1},    {15, 3, 2},  {16, 8, 3},
                                           {17, 17, 1},  {17, 64, 2},  {7, 130, 1}, {100, 5, 2},
                                           {200, 64, 2}, {20, 600, 1}, {-1}};
static const int states[][3] = {{1, 1, 1},   {5, 3, 2},  {16, 8, 3},  {16, 6, 4},
                                {17, 17, 1}, {9, 64, 2}, {2, 600, 1}, {-1}};
static const int large_states[][3] = {{60, 64, 4}, {100, 32, 2}, {20, 128, 2}, {-1}};
/* rows, ids, k */
static const int vocabularies[][3] = {{0, 11, 4},  {1, 1, 1},    {1, 3, 2},    {15, 17, 1},
                                      {16, 64, 4}, {17, 130, 5}, {3, 1000, 8}, {20, 1000, 3},
                                      {100, 8, 8}, {-1}};
static const int vectors[][3] = {{1, 1}, {1, 3}, {1, 17}, {1, 130}, {1, 1000}, {1, 70001}, {-1}};

/* For devices: shapes of more than one block, in each of the ways that kernels divide a row */
static const int large_grid[][3] = {{1000, 64}, {300, 256}, {70, 512}, {40, 776},
                                    {33, 1024}, {9, 1536},  {-1}};
static const int large_products[][3] = {{130, 256, 512},
                                        {257, 64, 1024},
                                        {64, 1024, 96},
                                        {600, 328, 520},
                                        {17000, 328, 8},
                                        {17000, 8, 328},
                                        {-1}};
static const int large_attentions[][3] = {{300, 64, 4}, {300, 32, 2}, {150, 128, 2}, {-1}};
static const int large_vocabularies[][3] = {{6, 37000, 8},  {3, 32000, 64},  {2, 50001, 4},
                                            {2, 130000, 5}, {5, 8192, 1000}, {-1}};
static const int large_vectors[][3] = {{1, 1000003}, {1, 4000000}, {-1}};

static const struct op_case cases[] = {
    {"embed", plan_embed, call_embed, grid, large_grid, .flags = DROP | VIEW | PLACED},
    {"linear", plan_linear, call_linear, products, large_products,
     .flags = DROP | VIEW | ACTIVE | BIAS | KEEP},
    {"gate", plan_gate, call_gate, grid, large_grid, .flags = DROP | VIEW},
    {"attend", plan_attend, call_attend, attentions, large_attentions,
     .flags = DROP | VIEW | CAUSAL | CROSS | GROUPED},
    {"attend", plan_attend, call_attend, attentions, large_attentions,
     .flags = DROP | CAUSAL | CROSS | GROUPED | FORM},
    {"attend_widths", plan_attend_widths, call_attend, widths, large_widths,
     .flags = DROP | VIEW | CAUSAL | CROSS | GROUPED},
    {"attend_widths", plan_attend_widths, call_attend, widths, large_widths,
     .flags = DROP | GROUPED | FORM},
    {"attend_widths", plan_attend_widths, call_attend, widths, large_widths,
     .flags = CAUSAL | CROSS | LISTED | FORM},
    {"attend_linear", plan_attend_linear, call_attend_linear, linear_attentions, large_attentions,
     .flags = VIEW | CAUSAL | GROUPED},
    {"attend_linear", plan_attend_linear, call_attend_linear, linear_attentions, large_attentions,
     .flags = VIEW | CROSS | GROUPED},
    {"add_norm", plan_add_norm, call_add_norm, grid, large_grid,
     .flags = DROP | VIEW | KEEP | ALIAS},
    {"rotate", plan_rotate, call_rotate, grid, large_grid, .flags = VIEW | OPPOSITE},
    {"embed_bwd", plan_embed_bwd, call_embed_bwd, grid, large_grid, .flags = DROP | VIEW | PLACED},
    {"linear_bwd", plan_linear_bwd, call_linear_bwd, products, large_products,
     .flags = DROP | VIEW | ACTIVE | BIAS, .prepare = prepare_linear_bwd},
    {"linear_bwd", plan_linear_bwd, call_linear_bwd, products, large_products,
     .flags = VIEW | BETA | NODX}, /* where nothing else is done to dx */
    {"bias_bwd", plan_bias_bwd, call_bias_bwd, grid, large_grid, .flags = VIEW},
    {"gate_bwd", plan_gate_bwd, call_gate_bwd, grid, large_grid, .flags = DROP | VIEW | BIAS},
    {"attend_bwd", plan_attend_bwd, call_attend_bwd, attentions, large_attentions,
     .flags = DROP | VIEW | CAUSAL | CROSS | GROUPED, .prepare = prepare_attend_bwd},
    {"attend_bwd", plan_attend_bwd, call_attend_bwd, attentions, large_attentions,
     .flags = DROP | CAUSAL | CROSS | GROUPED | FORM, .prepare = prepare_attend_bwd},
    {"attend_bwd_widths", plan_attend_bwd_widths, call_attend_bwd, widths, large_widths,
     .flags = DROP | VIEW | CAUSAL | CROSS | GROUPED, .prepare = prepare_attend_bwd},
    {"attend_bwd_widths", plan_attend_bwd_widths, call_attend_bwd, widths, large_widths,
     .flags = DROP | GROUPED | FORM, .prepare = prepare_attend_bwd},
    {"attend_linear_bwd", plan_attend_bwd, call_attend_linear_bwd, linear_attentions,
     large_attentions, .flags = VIEW | CAUSAL | GROUPED, .prepare = prepare_attend_linear_bwd},
    {"attend_linear_bwd", plan_attend_bwd, call_attend_linear_bwd, linear_attentions,
     large_attentions, .flags = VIEW | CROSS | GROUPED, .prepare = prepare_attend_linear_bwd},
    {"add_norm_bwd", plan_add_norm_bwd, call_add_norm_bwd, grid, large_grid,
     .flags = DROP | VIEW | BIAS},
    {"add", plan_add, call_add, grid, large_grid, .flags = DROP | VIEW | ALIAS},
    {"add_bwd", plan_add_bwd, call_add_bwd, grid, large_grid, .flags = DROP | VIEW | BIAS},
    {"norm", plan_norm, call_norm, grid, large_grid, .flags = VIEW | KEEP},
    {"norm_bwd", plan_norm_bwd, call_norm_bwd, grid, large_grid, .flags = VIEW | BETA},
    {"route", plan_route, call_route, grid, large_routed, .flags = DROP | VIEW | KEEP | LIMITED},
    {"dispatch", plan_dispatch, call_dispatch, grid, large_routed, .flags = VIEW | GATED | LIMITED},
    {"experts_linear", plan_experts_linear, call_experts_linear, routed_products,
     large_routed_products, .flags = DROP | VIEW | ACTIVE | KEEP | LIMITED},
    {"combine", plan_combine, call_combine, grid, large_routed, .flags = VIEW | LIMITED},
    {"experts_linear_bwd", plan_experts_linear_bwd, call_experts_linear_bwd, routed_products,
     large_routed_products, .flags = DROP | VIEW | ACTIVE | LIMITED, .prepare = prepare_linear_bwd},
    {"route_bwd", plan_route_bwd, call_route_bwd, grid, large_routed,
     .flags = VIEW | BETA | GRAD | LIMITED},
    {"xent", plan_xent, call_xent, vocabularies, large_vocabularies, .flags = VIEW | GRAD},
    {"sqnorm", plan_sqnorm, call_sqnorm, vectors, large_vectors, .flags = 0},
    {"adam", plan_adam, call_adam, vectors, large_vectors, .flags = COPY | CLIP | SKIP},
    {"accumulate", plan_accumulate, call_accumulate, vectors, large_vectors, .flags = 0},
    {"cast", plan_cast, call_cast, vectors, large_vectors, .flags = COPY},
    {"cache_put", plan_cache_put, call_cache_put, grid, large_grid, .flags = VIEW},
    {"linear_state", plan_linear_state, call_linear_state, states, large_states,
     .flags = VIEW | CROSS | GROUPED},
    {"attend_state", plan_attend_state, call_attend_state, states, large_states,
     .flags = VIEW | KEEP | GROUPED},
    {"topk", plan_topk, call_topk, vocabularies, large_vocabularies, .flags = VIEW | TIES | WANTED},
};
enum { CASES = sizeof cases / sizeof *cases };

struct op_test {
    const struct op_case *op;
    struct backends *backends;
};

static void try(const struct op_test *test, const int *shape, enum type type, unsigned flags,
                struct tally *tally)
{
    struct trial t = {.op = test->op,
                      .tally = tally,
                      .rows = shape[0],
                      .cols = shape[1],
                      .out = shape[2],
                      .flags = flags,
                      .act = type};
    if (!(flags & (ACTIVE | FORM))) {
        trial_run(test->backends, &t);
        return;
    }
    for (int form = 0; flags & FORM && form < FORMS; form++) {
        struct trial formed = t;
        formed.form = form;
        trial_run(test->backends, &formed);
    }
    for (int kind = ACT_NONE + 1; flags & ACTIVE && kind < ACT_KINDS; kind++) {
        struct trial active = t;
        active.activation = (enum activation_kind)kind;
        trial_run(test->backends, &active);
    }
}

/* Runs all trials of a shape. Returns how many failed; on the CPU the first failure ends the test.
 */
static int try_all(const struct op_test *test, const int *shape, enum type type, bool large)
{
    struct tally tally = {0};
    struct tally *kept = test->backends->device ? &tally : NULL;
    unsigned all = test->op->flags;
    if (few(large, true)) {
        try(test, shape, type, 0, kept);
        if (all & ~VIEW) try(test, shape, type, all & ~VIEW, kept);
        if (all & VIEW) try(test, shape, type, all, kept);
    } else {
        for (unsigned flags = all;; flags = (flags - 1) & all) {
            try(test, shape, type, flags, kept);
            if (!flags) break;
        }
    }
    if (!kept) return 0;
    printf("%s %s [%d, %d, %d] %s: %d trials, off by at most %.3f of the tolerance",
           tally.failed ? "FAILED" : "good  ", test->op->name, shape[0], shape[1], shape[2],
           type == TYPE_BF16 ? "bf16" : "f32", tally.trials, tally.worst);
    if (tally.failed) printf("; %d failed, %s", tally.failed, tally.first);
    printf("\n");
    fflush(stdout);
    return tally.failed;
}

static void test_op(void **state)
{
    const struct op_test *test = *state;
    static const enum type types[] = {TYPE_F32, TYPE_BF16};
    int failed = 0;
    for (int k = 0; k < 2; k++) {
        for (const int(*s)[3] = test->op->shape; (*s)[0] >= 0; s++)
            failed += try_all(test, *s, types[k], false);
        for (const int(*s)[3] = test->op->large; test->backends->device && (*s)[0] >= 0; s++)
            failed += try_all(test, *s, types[k], true);
    }
    if (failed) fail_msg("%d trials of %s failed", failed, test->op->name);
}

/* ---- the model on top ---- */

static const int src_len[] = {4, 1, 7, 3}, tgt_len[] = {3, 5, 1, 6};
enum { N = 4 };

/* Loss and gradients of one batch, with dropout; the caller frees the gradients. */
static float *gradients_of(const char *device, const struct heed_config *config,
                           struct precision precision, struct loss *loss)
{
    const struct loss_options o = {.label_smoothing = 0.1f,
                                   .backward = true,
                                   .dropout = true,
                                   .seed = 42,
                                   .experts = {.balance = 0.02f, .capacity = 0.8f, .least = 1}};
    struct heed_error err = {0};
    struct toy t;
    struct toy_batch b;
    toy_open(&t, device, config, precision, true);
    toy_batch(&b, N, src_len, tgt_len, toy_config.vocab_size, 3);
    assert_int_equal(run_loss(t.run, &b.packed, &o, loss, &err), HEED_OK);
    float *g = malloc(t.p->n * sizeof *g);
    assert_non_null(g);
    t.be->op->download(t.be, g, t.run->grad.p, t.p->n * sizeof *g);
    assert_int_equal(t.be->op->sync(t.be, &err), HEED_OK);
    toy_close(&t);
    return g;
}

/* With dropout: the masks too must be the same. Backward of linear attention subtracts sums that
 * nearly cancel, which the reference does not, as it takes one key at a time. */
static void check_model_as_reference(const char *name, const struct heed_config *config)
{
    struct loss want_loss = {0}, loss = {0};
    float tolerance = config_linear(config) ? 5e-5f : 1e-5f;
    float *want = gradients_of("ref", config, precision_f32, &want_loss);
    float *found = gradients_of(device_or_cpu(), config, precision_f32, &loss);
    if (!(fabs(loss.smoothed - want_loss.smoothed) <= 1e-6 * want_loss.smoothed))
        fail_msg("%s: the loss is %.9g, expected %.9g", name, loss.smoothed, want_loss.smoothed);
    assert_true(fabs(loss.nll - want_loss.nll) <= 1e-6 * want_loss.nll);
    for (size_t i = 0; i < parameters_count(config); i++)
        if (!(fabsf(found[i] - want[i]) <= tolerance * fmaxf(1, fabsf(want[i]))))
            fail_msg("%s: gradient %zu is %.9g, expected %.9g", name, i, (double)found[i],
                     (double)want[i]);
    free(want);
    free(found);
}

static void test_model_as_reference(void **state)
{
    (void)state;
    for (int v = 0; v < VARIANTS; v++) {
        struct heed_config c = variant_config(&variants[v], &toy_config);
        check_model_as_reference(variants[v].name, &c);
    }
}

/* Layers that backward computes again give the same gradients, bit for bit. */
static void test_recompute(void **state)
{
    (void)state;
    for (int v = 0; v < 2 * VARIANTS; v++) {
        struct heed_config c = variant_config(&variants[v / 2], &toy_config);
        struct precision precision = v % 2 ? precision_bf16 : precision_f32;
        c.decoder_layers = 3;
        struct loss loss = {0};
        float *want = gradients_of(device_or_cpu(), &c, precision, &loss);
        c.recompute = HEED_RECOMPUTE_LAYER;
        float *found = gradients_of(device_or_cpu(), &c, precision, &loss);
        if (memcmp(found, want, parameters_count(&c) * sizeof *want) != 0)
            fail_msg("%s: recomputed gradients differ", variants[v / 2].name);
        free(want);
        free(found);
    }
}

enum { TOP = 3, LENGTH = 16 }; /* LENGTH: toy_config's max_length */

/* Memory for a KV cache of so many rows. */
static void cache_open(struct cache *cache, const struct toy *t, int rows)
{
    struct heed_error err = {0};
    for (int l = 0; l < t->p->config.decoder_layers; l++) {
        struct mat *m = &cache->layer[l];
        *m = kv_cache_rows(&t->p->config, &t->p->precision, NULL, rows);
        size_t bytes = (size_t)rows * m->cols * type_size(m->type);
        assert_int_equal(t->be->op->alloc(t->be, &m->p, bytes, USED_WHOLE, &err), HEED_OK);
    }
}

static void cache_close(struct cache *cache, const struct toy *t)
{
    for (int l = 0; l < t->p->config.decoder_layers; l++) t->be->op->free(t->be, cache->layer[l].p);
}

/* Greedy translation of a batch to its full length, LENGTH positions for each sentence, by the
 * cache, whose rows are out of order. What was fed in and found is left in the arrays. */
static void greedy(struct toy *t, const struct toy_batch *b, int32_t fed[N][LENGTH],
                   int32_t id[LENGTH][N][TOP], float score[LENGTH][N][TOP])
{
    struct heed_error err = {0};
    struct cache cache = {0};
    int32_t at[N], before[N], pos[N], self[N], len[N], in[N], list[N * LENGTH], first[N + 1] = {0};
    int32_t rows = N * toy_config.max_length, encoded[N] = {0, 1, 2, 3};
    cache_open(&cache, t, rows);
    assert_int_equal(run_encode(t->run, &b->packed, (struct memory_place){0}, &err), HEED_OK);
    for (int p = 0; p < LENGTH; p++) {
        for (int i = 0; i < N; i++) {
            fed[i][p] = in[i] = p ? id[p - 1][i][0] : TOY_BOS;
            pos[i] = p, len[i] = p + 1, first[i + 1] = i + 1;
            self[i] = i * LENGTH;
            before[i] = p ? at[i] : -1;
            at[i] = list[self[i] + p] = p * N + N - 1 - i;
        }
        struct step s = {.sentences = N,
                         .first = first,
                         .memory = b->src_off,
                         .memory_len = b->src_len,
                         .state = encoded,
                         .width = 1,
                         .id = in,
                         .pos = pos,
                         .cache = &cache,
                         .cache_at = at,
                         .cache_before = before,
                         .self = self,
                         .self_len = len,
                         .self_at = list,
                         .self_rows = N * LENGTH};
        assert_int_equal(run_step(t->run, &s, TOP, id[p][0], score[p][0], &err), HEED_OK);
    }
    cache_close(&cache, t);
}

/* What a step found must be, bit for bit, what the whole target at once gives. On a device it is
 * near: there products of few rows and of many are not summed in the same order. So it is with
 * linear attention, where a step has summed the keys before it asks, one after another. */
static void check_cached_is_recomputed(const char *device, const char *name,
                                       const struct heed_config *config)
{
    struct heed_error err = {0};
    static const int sources[N] = {4, 1, LENGTH, 3}, full[N] = {LENGTH, LENGTH, LENGTH, LENGTH};
    enum { V = 11 };
    struct toy t;
    struct toy_batch b;
    int32_t fed[N][LENGTH], id[LENGTH][N][TOP], want_id[N * LENGTH][TOP];
    float score[LENGTH][N][TOP], want_score[N * LENGTH][TOP], logits[N * LENGTH * V];
    assert_int_equal(LENGTH, config->max_length);
    toy_open(&t, device, config, precision_f32, false);
    toy_batch(&b, N, sources, full, V, 3);
    greedy(&t, &b, fed, id, score);
    memcpy(b.tgt_in, fed, sizeof fed);
    assert_int_equal(run_logits(t.run, &b.packed, logits, &err), HEED_OK);
    struct backend *ref, *on_host = t.be;
    assert_int_equal(ref_open(&ref, &err), HEED_OK);
    if (device_named()) on_host = ref;
    on_host->op->topk(on_host, mat_make(logits, N * LENGTH, V, TYPE_F32), TOP, NULL, 0,
                      want_score[0], want_id[0]);
    ref->op->close(ref);
    for (int i = 0; i < N; i++)
        for (int p = 0; p < LENGTH; p++) {
            assert_memory_equal(id[p][i], want_id[i * LENGTH + p], sizeof id[p][i]);
            for (int k = 0; k < TOP; k++) {
                double off = fabs((double)score[p][i][k] - (double)want_score[i * LENGTH + p][k]);
                if (!(off <= (device_named() || config_linear(config) ? 1e-5 : 0)))
                    fail_msg("%s: a score at position %d is off by %g", name, p, off);
            }
        }
    toy_close(&t);
}

static void test_cached_is_recomputed(void **state)
{
    for (int v = 0; v < VARIANTS; v++) {
        struct heed_config c = variant_config(&variants[v], &toy_config);
        check_cached_is_recomputed(*state, variants[v].name, &c);
    }
}

/* Decodes LENGTH positions of N hypotheses of one sentence. At each position they change places and
 * some branch, as in a beam search: hypothesis i goes on from hypothesis i * i + position, modulo
 * N, with a token of its own. The cache has rows for as many positions as are needed and no more.
 * Left are what each has been fed, and the best scores of the last position. */
static void branch(struct toy *t, const struct toy_batch *b, int32_t fed[N][LENGTH],
                   float score[N][TOP])
{
    struct heed_error err = {0};
    struct cache cache = {0};
    int32_t at[N], before[N], pos[N], self[N], len[N], in[N], first[] = {0, N}, encoded[] = {0};
    int32_t list[N][LENGTH] = {0}, self_at[N * LENGTH], id[N][TOP];
    int positions = kv_cache_positions(&t->p->config);
    cache_open(&cache, t, N * int_min(positions, LENGTH) + 1);
    assert_int_equal(run_encode(t->run, &b->packed, (struct memory_place){0}, &err), HEED_OK);
    for (int p = 0; p < LENGTH; p++) {
        int32_t old[N][LENGTH], old_fed[N][LENGTH], used = 0;
        memcpy(old, list, sizeof old);
        memcpy(old_fed, fed, sizeof old_fed);
        for (int i = 0; i < N; i++) {
            int parent = (i * i + p) % N;
            memcpy(list[i], old[parent], sizeof list[i]);
            memcpy(fed[i], old_fed[parent], sizeof fed[i]);
            fed[i][p] = in[i] = p ? 3 + (i + 2 * p) % 8 : TOY_BOS;
            before[i] = p ? list[i][p - 1] : -1;
            at[i] = list[i][p] = p % positions * N + i;
            pos[i] = p, self[i] = used, len[i] = int_min(p + 1, positions);
            memcpy(self_at + used, &list[i][p + 1 - len[i]], len[i] * sizeof *self_at);
            used += len[i];
        }
        struct step s = {.sentences = 1,
                         .first = first,
                         .memory = b->src_off,
                         .memory_len = b->src_len,
                         .state = encoded,
                         .width = N,
                         .id = in,
                         .pos = pos,
                         .cache = &cache,
                         .cache_at = at,
                         .cache_before = before,
                         .self = self,
                         .self_len = len,
                         .self_at = self_at,
                         .self_rows = used};
        assert_int_equal(run_step(t->run, &s, TOP, id[0], score[0], &err), HEED_OK);
    }
    cache_close(&cache, t);
}

/* After hypotheses have branched and changed places, each finds what its own tokens give. */
static void check_branches(const char *name, const struct heed_config *config)
{
    struct heed_error err = {0};
    static const int src[N] = {5, 5, 5, 5}, tgt[N] = {LENGTH, LENGTH, LENGTH, LENGTH};
    enum { V = 11 };
    struct toy t;
    struct toy_batch b, one;
    int32_t fed[N][LENGTH] = {0}, id[N * LENGTH][TOP];
    float score[N][TOP], want[N * LENGTH][TOP], logits[N * LENGTH * V];
    toy_open(&t, device_or_cpu(), config, precision_f32, false);
    toy_batch(&b, N, src, tgt, V, 3);
    toy_single(&one, &b, 0);
    for (int i = 0; i < N; i++) memcpy(b.src + b.src_off[i], one.src, src[i] * sizeof *b.src);
    branch(&t, &one, fed, score);
    memcpy(b.tgt_in, fed, sizeof fed);
    assert_int_equal(run_logits(t.run, &b.packed, logits, &err), HEED_OK);
    struct backend *ref;
    assert_int_equal(ref_open(&ref, &err), HEED_OK);
    ref->op->topk(ref, mat_make(logits, N * LENGTH, V, TYPE_F32), TOP, NULL, 0, want[0], id[0]);
    ref->op->close(ref);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < TOP; k++) {
            float x = want[i * LENGTH + LENGTH - 1][k];
            if (!(fabsf(score[i][k] - x) <= 1e-5f))
                fail_msg("%s: a score of hypothesis %d is %.9g, expected %.9g", name, i,
                         (double)score[i][k], (double)x);
        }
    toy_close(&t);
}

static void test_branches(void **state)
{
    (void)state;
    for (int v = 0; v < VARIANTS; v++) {
        struct heed_config c = variant_config(&variants[v], &toy_config);
        check_branches(variants[v].name, &c);
    }
}

/* With an argument, only the tests that match it run, so that a fault of one op on a device does
 * not spoil the others. */
int main(int argc, char **argv)
{
    struct backends backends;
    struct op_test op[CASES];
    struct CMUnitTest tests[CASES + 5];
    int n = 0;
    device_or_skip();
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    backends_open(&backends);
    for (; n < CASES; n++) {
        op[n] = (struct op_test){&cases[n], &backends};
        tests[n] = (struct CMUnitTest){cases[n].name, test_op, NULL, NULL, &op[n]};
    }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_model_as_reference);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_recompute);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_branches);
    tests[n++] = (struct CMUnitTest){"cached = recomputed", test_cached_is_recomputed, NULL, NULL,
                                     (void *)device_or_cpu()};
    if (!device_named())
        tests[n++] = (struct CMUnitTest){"cached = recomputed on ref", test_cached_is_recomputed,
                                         NULL, NULL, "ref"};
    int failed = _cmocka_run_group_tests("ops", tests, n, NULL, NULL);
    backends_close(&backends);
    return failed;
}
