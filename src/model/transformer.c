/*
 * transformer.c - lays out the activations of a run and walks a batch through the model.
 *
 * One allocation holds every activation: run_layout runs once to measure and once to bind. Two
 * more, on the host, hold what goes to the device at every step and what comes back of every batch.
 */
#include "model/transformer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"
#include "model/layers.h"

static int max(int a, int b)
{
    return a > b ? a : b;
}

/* ---- layout ---- */

static int padded(int rows)
{
    return (rows + ROW_PAD - 1) / ROW_PAD * ROW_PAD;
}

static struct mat take(struct arena *a, int rows, int cols, enum type type)
{
    return mat_make(arena_take(a, (size_t)padded(rows) * cols * type_size(type)), rows, cols, type);
}

static void norm_layout(const struct run *r, struct arena *a, struct mat *xhat, struct mat *rstd,
                        struct mat *y, int rows)
{
    struct precision t = r->p->precision;
    int d = r->p->config.d_model;
    *y = take(a, rows, d, t.act);
    if (!r->o.train) return;
    *xhat = take(a, rows, d, t.act);
    *rstd = take(a, rows, 1, t.master);
}

/* The parts that self- and cross-attention have in common. */
static void attention_layout(const struct run *r, struct arena *a, struct attention_acts *t,
                             int rows)
{
    t->o = take(a, rows, r->p->config.d_model, r->p->precision.act);
    t->lse = take(a, rows, r->p->config.heads, r->p->precision.master);
    norm_layout(r, a, &t->xhat, &t->rstd, &t->y, rows);
}

static void self_layout(const struct run *r, struct arena *a, struct attention_acts *t, int rows)
{
    int d = r->p->config.d_model;
    t->qkv = take(a, rows, 3 * d, r->p->precision.act);
    t->q = mat_cols(t->qkv, 0, d);
    attention_layout(r, a, t, rows);
}

static void ff_layout(const struct run *r, struct arena *a, struct ff_acts *t, int rows)
{
    t->h = take(a, rows, r->p->config.d_ff, r->p->precision.act);
    norm_layout(r, a, &t->xhat, &t->rstd, &t->y, rows);
}

static void encoder_layout(struct run *r, struct arena *a, int layer)
{
    if (layer && !r->o.train) {
        r->encoder[layer] = r->encoder[0];
        return;
    }
    self_layout(r, a, &r->encoder[layer].self, r->o.rows_src);
    ff_layout(r, a, &r->encoder[layer].ff, r->o.rows_src);
}

static void decoder_layout(struct run *r, struct arena *a, int layer)
{
    struct decoder_acts *t = &r->decoder[layer];
    int d = r->p->config.d_model;
    if (layer && !r->o.train) {
        *t = r->decoder[0];
    } else {
        self_layout(r, a, &t->self, r->o.rows_tgt);
        t->cross.q = take(a, r->o.rows_tgt, d, r->p->precision.act);
        attention_layout(r, a, &t->cross, r->o.rows_tgt);
        ff_layout(r, a, &t->ff, r->o.rows_tgt);
    }
    t->cross.kv = take(a, r->o.rows_src, 2 * d, r->p->precision.keys);
}

static void scratch_layout(struct run *r, struct arena *a)
{
    const struct heed_config *c = &r->p->config;
    enum type act = r->p->precision.act;
    int d = c->d_model, n = max(r->o.rows_src, r->o.rows_tgt), chunk = head_chunk(c);
    r->s.r = take(a, n, d, act);
    r->s.logits =
        take(a, chunk < r->o.rows_tgt ? chunk : padded(r->o.rows_tgt), c->vocab_size, act);
    r->s.loss = take(a, r->o.rows_tgt, 2, r->p->precision.master);
    if (!r->o.train) return;
    r->s.d[0] = take(a, n, d, act);
    r->s.d[1] = take(a, n, d, act);
    r->s.dr = take(a, n, d, act);
    r->s.dout = take(a, n, d, act);
    r->s.dqkv = take(a, n, 3 * d, act);
    r->s.dkv = take(a, r->o.rows_src, 2 * d, act);
    r->s.dh = take(a, n, c->d_ff, act);
    r->s.dmem = take(a, r->o.rows_src, d, act);
    r->grad = mat_make(arena_take(a, r->p->n * type_size(r->p->precision.master)), 1, (int)r->p->n,
                       r->p->precision.master);
}

/* Room for a batch, or for the arrays of a step. */
static size_t run_ints(const struct run_options *o)
{
    size_t src = o->rows_src, tgt = o->rows_tgt, n = o->sentences + 1;
    size_t batch = 2 * src + 3 * tgt + 4 * n;
    size_t step = 3 * n + (6 + o->wants) * tgt + 1 + o->cached;
    return batch > step ? batch : step;
}

static size_t run_layout(struct run *r, void *base)
{
    struct arena a = {base, 0};
    enum type act = r->p->precision.act;
    int d = r->p->config.d_model;
    r->embed_src = take(&a, r->o.rows_src, d, act);
    r->embed_tgt = take(&a, r->o.rows_tgt, d, act);
    for (int l = 0; l < r->p->config.encoder_layers; l++) encoder_layout(r, &a, l);
    for (int l = 0; l < r->p->config.decoder_layers; l++) decoder_layout(r, &a, l);
    scratch_layout(r, &a);
    r->ints = arena_take(&a, run_ints(&r->o) * sizeof *r->ints);
    size_t candidates = (size_t)r->o.rows_tgt * (r->o.candidates + r->o.wants);
    r->top_score = arena_take(&a, candidates * sizeof *r->top_score);
    r->top_id = arena_take(&a, candidates * sizeof *r->top_id);
    if (r->o.watched)
        r->watched =
            take(&a, r->o.rows_tgt * r->p->config.heads, r->p->config.max_length, TYPE_F32);
    return a.used;
}

static enum heed_status host_open(struct run *r, struct heed_error *err)
{
    size_t iota = ((size_t)r->o.rows_tgt + 1) * sizeof *r->iota;
    size_t loss = 2 * (size_t)r->o.rows_tgt * type_size(r->p->precision.master);
    size_t ints = run_ints(&r->o) * sizeof *r->staged;
    r->iota = malloc(iota);
    r->loss = malloc(loss + 1);
    r->staged = malloc(ints);
    if (!r->iota || !r->loss || !r->staged)
        return error_memory(err, iota + loss + ints, "a run of the model");
    for (int i = 0; i <= r->o.rows_tgt; i++) r->iota[i] = i;
    return HEED_OK;
}

enum heed_status run_open(struct run **out, struct backend *be, const struct parameters *p,
                          const struct run_options *o, struct heed_error *err)
{
    struct run *r = calloc(1, sizeof *r);
    if (!r) return error_memory(err, sizeof *r, "a run of the model");
    r->be = be;
    r->p = p;
    r->o = *o;
    enum heed_status s = host_open(r, err);
    if (!s) s = r->be->op->alloc(r->be, &r->block, run_layout(r, NULL), err);
    if (s) {
        run_free(r);
        return s;
    }
    run_layout(r, r->block);
    if (o->train) {
        parameters_bind(&r->g, &p->config, r->grad.p, r->grad.type);
        r->be->op->zero(r->be, r->grad.p, p->n * type_size(r->grad.type));
    }
    *out = r;
    return HEED_OK;
}

void run_free(struct run *r)
{
    if (!r) return;
    r->be->op->free(r->be, r->block);
    free(r->iota);
    free(r->loss);
    free(r->staged);
    free(r);
}

/* ---- a batch on the device ---- */

/* Where an array will be on the device, behind the `*used` numbers that are staged. */
static const int32_t *put(struct run *r, size_t *used, const int32_t *src, int n)
{
    if (!src) return NULL;
    memcpy(r->staged + *used, src, n * sizeof *src);
    *used += n;
    return r->ints + *used - n;
}

static void upload_batch(struct run *r, const struct packed *b)
{
    assert(b->rows_src <= r->o.rows_src && b->n <= r->o.sentences);
    assert(!b->tgt_in || b->rows_tgt <= r->o.rows_tgt);
    size_t at = 0;
    r->batch = *b;
    r->batch.src = put(r, &at, b->src, b->rows_src);
    r->batch.src_pos = put(r, &at, b->src_pos, b->rows_src);
    r->batch.src_off = put(r, &at, b->src_off, b->n + 1);
    r->batch.src_len = put(r, &at, b->src_len, b->n);
    r->batch.tgt_in = put(r, &at, b->tgt_in, b->rows_tgt);
    r->batch.tgt_out = put(r, &at, b->tgt_out, b->rows_tgt);
    r->batch.tgt_pos = put(r, &at, b->tgt_pos, b->rows_tgt);
    r->batch.tgt_off = put(r, &at, b->tgt_off, b->n + 1);
    r->batch.tgt_len = put(r, &at, b->tgt_len, b->n);
    r->be->op->upload(r->be, r->ints, r->staged, at * sizeof *r->ints);
}

/* ---- training and evaluation ---- */

static struct pass encoder_pass(const struct run *r)
{
    const struct packed *b = &r->batch;
    struct seqs self = {.n = b->n,
                        .q = b->src_off,
                        .k = b->src_off,
                        .klen = b->src_len,
                        .max_q = b->max_src,
                        .max_k = b->max_src};
    return (struct pass){.rows = b->rows_src, .self = self};
}

static struct pass decoder_pass(const struct run *r)
{
    const struct packed *b = &r->batch;
    struct seqs self = {.n = b->n,
                        .q = b->tgt_off,
                        .k = b->tgt_off,
                        .klen = b->tgt_len,
                        .max_q = b->max_tgt,
                        .max_k = b->max_tgt,
                        .causal = true};
    struct seqs cross = self;
    cross.k = b->src_off, cross.klen = b->src_len, cross.max_k = b->max_src, cross.causal = false;
    return (struct pass){.rows = b->rows_tgt, .self = self, .cross = cross};
}

static void encode(struct run *r)
{
    const struct parameters *p = r->p;
    struct pass enc = encoder_pass(r);
    r->be->op->embed(r->be, mat_rows(r->embed_src, 0, enc.rows), r->batch.src, r->batch.src_pos,
                     p->w.embed, p->position, drop_at(r, p->config.dropout, SITE_EMBED_SRC));
    encoder_forward(r, &enc);
    decoder_memory(r);
}

/* Output rows of the decoder for the whole target of the batch. */
static struct mat forward(struct run *r)
{
    const struct parameters *p = r->p;
    struct pass dec = decoder_pass(r);
    encode(r);
    r->be->op->embed(r->be, mat_rows(r->embed_tgt, 0, dec.rows), r->batch.tgt_in, r->batch.tgt_pos,
                     p->w.embed, p->position, drop_at(r, p->config.dropout, SITE_EMBED_TGT));
    return decoder_forward(r, &dec);
}

static enum heed_status sum_loss(struct run *r, struct loss *out, struct heed_error *err)
{
    int n = r->batch.rows_tgt;
    bool f64 = r->s.loss.type == TYPE_F64;
    const double *d = r->loss;
    const float *f = r->loss;
    r->be->op->download(r->be, r->loss, r->s.loss.p, 2 * n * type_size(r->s.loss.type));
    enum heed_status s = r->be->op->sync(r->be, err);
    if (s) return s;
    for (int i = 0; i < n; i++) {
        out->smoothed += f64 ? d[2 * i] : (double)f[2 * i];
        out->nll += f64 ? d[2 * i + 1] : (double)f[2 * i + 1];
    }
    out->tokens += n;
    return HEED_OK;
}

enum heed_status run_loss(struct run *r, const struct packed *b, const struct loss_options *o,
                          struct loss *out, struct heed_error *err)
{
    static const struct mat none;
    assert(r->o.train || !o->backward);
    upload_batch(r, b);
    r->dropout = o->dropout;
    r->seed = o->seed;
    struct mat y = forward(r);
    struct mat dy = o->backward ? mat_rows(r->s.d[0], 0, y.rows) : none;
    head_loss(r, y, r->batch.tgt_out, o->label_smoothing, dy);
    if (o->backward) {
        struct pass enc = encoder_pass(r), dec = decoder_pass(r);
        decoder_backward(r, &dec, dy);
        encoder_backward(r, &enc, mat_rows(r->s.dmem, 0, enc.rows));
    }
    return sum_loss(r, out, err);
}

enum heed_status run_logits(struct run *r, const struct packed *b, void *logits,
                            struct heed_error *err)
{
    assert(r->s.logits.type == r->p->precision.master);
    upload_batch(r, b);
    r->dropout = false;
    struct mat y = forward(r);
    size_t row_bytes = r->s.logits.cols * type_size(r->s.logits.type);
    for (int row = 0; row < y.rows; row += r->s.logits.rows) {
        int n = y.rows - row < r->s.logits.rows ? y.rows - row : r->s.logits.rows;
        struct mat part = mat_rows(r->s.logits, 0, n);
        r->be->op->linear(r->be, part, mat_rows(y, row, n), r->p->w.embed, (struct mat){0},
                          ACT_NONE, (struct drop){0});
        r->be->op->download(r->be, (char *)logits + row * row_bytes, part.p, n * row_bytes);
    }
    return r->be->op->sync(r->be, err);
}

/* ---- translation ---- */

enum heed_status run_encode(struct run *r, const struct packed *b, struct heed_error *err)
{
    upload_batch(r, b);
    r->dropout = false;
    encode(r);
    return r->be->op->sync(r->be, err);
}

/* The arrays of a step on the device, as the decoder wants them. */
static struct pass step_pass(struct run *r, const struct step *s, const int32_t **id,
                             const int32_t **pos, const int32_t **want)
{
    int n = s->first[s->sentences], m = s->sentences;
    size_t at = 0;
    assert(n <= r->o.rows_tgt && m <= r->o.sentences && s->self_rows <= r->o.cached);
    *id = put(r, &at, s->id, n);
    *pos = put(r, &at, s->pos, n);
    *want = put(r, &at, s->want, n * s->wants);
    struct pass p = {.rows = n, .cache = s->cache, .cache_at = put(r, &at, s->cache_at, n)};
    p.self = (struct seqs){.n = n,
                           .q = put(r, &at, r->iota, n + 1),
                           .k = put(r, &at, s->self, n),
                           .klen = put(r, &at, s->self_len, n),
                           .max_q = 1,
                           .max_k = r->p->config.max_length,
                           .causal = true,
                           .at = put(r, &at, s->self_at, s->self_rows)};
    p.cross = (struct seqs){.n = m,
                            .q = put(r, &at, s->first, m + 1),
                            .k = put(r, &at, s->memory, m),
                            .klen = put(r, &at, s->memory_len, m),
                            .max_q = s->width,
                            .max_k = r->p->config.max_length};
    r->be->op->upload(r->be, r->ints, r->staged, at * sizeof *r->ints);
    return p;
}

enum heed_status run_step(struct run *r, const struct step *s, int k, int32_t *id, float *score,
                          struct heed_error *err)
{
    const struct parameters *p = r->p;
    struct backend *be = r->be;
    const int32_t *in, *pos, *want;
    struct pass dec = step_pass(r, s, &in, &pos, &want);
    int n = dec.rows;
    size_t found = (size_t)k + s->wants;
    assert(k <= r->o.candidates && s->wants <= r->o.wants && (!s->watch || r->o.watched));
    r->watch_site = s->watch ? site_at(decoder_layer(r, s->watch - 1), SITE_CROSS_WEIGHTS) : 0;
    be->op->embed(be, mat_rows(r->embed_tgt, 0, n), in, pos, p->w.embed, p->position,
                  (struct drop){0});
    struct mat y = decoder_forward(r, &dec);
    for (int row = 0; row < n; row += r->s.logits.rows) {
        int rows = n - row < r->s.logits.rows ? n - row : r->s.logits.rows;
        struct mat logits = mat_rows(r->s.logits, 0, rows);
        be->op->linear(be, logits, mat_rows(y, row, rows), p->w.embed, (struct mat){0}, ACT_NONE,
                       (struct drop){0});
        be->op->topk(be, logits, k, s->wants ? want + (size_t)row * s->wants : NULL, s->wants,
                     r->top_score + row * found, r->top_id + row * found);
    }
    r->watch_site = 0;
    be->op->download(be, score, r->top_score, n * found * sizeof *score);
    be->op->download(be, id, r->top_id, n * found * sizeof *id);
    return be->op->sync(be, err);
}

enum heed_status run_watched(struct run *r, int n, float *weights, struct heed_error *err)
{
    struct mat w = mat_rows(r->watched, 0, n * r->p->config.heads);
    r->be->op->download(r->be, weights, w.p, (size_t)w.rows * w.cols * sizeof *weights);
    return r->be->op->sync(r->be, err);
}
