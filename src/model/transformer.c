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

/* Rows of a step in truth: a device that records steps has few kinds of them, filled up with rows
 * that nobody looks at. */
static int step_rows(const struct run *r, int n)
{
    int unit = n <= 16 ? 4 : n <= 64 ? 16 : n <= 256 ? 64 : 128;
    return r->be->op->record ? (n + unit - 1) / unit * unit : n;
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
    int d = c->d_model, n = max(r->o.rows_src, r->o.rows_tgt), chunk = head_chunk(r->be->op, c);
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
    size_t step = 3 * (tgt + 1) + (6 + o->wants) * tgt + 2 + o->cached;
    return batch > step ? batch : step;
}

static size_t run_layout(struct run *r, void *base)
{
    struct arena a = {.base = base, .host = r->be->op->host};
    enum type act = r->p->precision.act;
    int d = r->p->config.d_model;
    r->embed_src = take(&a, r->o.rows_src, d, act);
    r->embed_tgt = take(&a, r->o.rows_tgt, d, act);
    for (int l = 0; l < r->p->config.encoder_layers; l++) encoder_layout(r, &a, l);
    for (int l = 0; l < r->p->config.decoder_layers; l++) decoder_layout(r, &a, l);
    scratch_layout(r, &a);
    r->ints = arena_take(&a, run_ints(&r->o) * sizeof *r->ints);
    if (r->o.train) r->ahead = arena_take(&a, run_ints(&r->o) * sizeof *r->ahead);
    size_t candidates = (size_t)r->o.rows_tgt * (r->o.candidates + r->o.wants);
    r->top = arena_take(&a, 2 * candidates * sizeof *r->top);
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
    size_t found = 2 * (size_t)r->o.rows_tgt * (r->o.candidates + r->o.wants) * sizeof *r->found;
    r->iota = malloc(iota);
    r->loss = malloc(loss + 1);
    r->staged = malloc(ints);
    r->found = malloc(found + 1);
    if (!r->iota || !r->loss || !r->staged || !r->found)
        return error_memory(err, iota + loss + ints + found, "a run of the model");
    for (int i = 0; i <= r->o.rows_tgt; i++) r->iota[i] = i;
    return HEED_OK;
}

/* Arrays have fewer than 2^31 elements (config.c); so must those that have a row for each token. */
static enum heed_status check_rows(const struct run_options *o, const struct backend *be,
                                   const struct heed_config *c, struct heed_error *err)
{
    size_t rows = (size_t)max(o->rows_src, o->rows_tgt) + ROW_PAD;
    size_t wide = (size_t)max(3 * c->d_model, c->d_ff);
    size_t chunk = (size_t)head_chunk(be->op, c), head = chunk < rows ? chunk : rows;
    if (rows <= INT32_MAX / wide && head <= INT32_MAX / (size_t)c->vocab_size) return HEED_OK;
    bool vocab = rows <= INT32_MAX / wide;
    return error_set(err, HEED_EARG,
                     "%zu tokens at once with %zu numbers each make %zu, expected at most %d",
                     vocab ? head : rows, vocab ? (size_t)c->vocab_size : wide,
                     vocab ? head * (size_t)c->vocab_size : rows * wide, INT32_MAX);
}

enum heed_status run_open(struct run **out, struct backend *be, const struct parameters *p,
                          const struct run_options *o, struct heed_error *err)
{
    enum heed_status s = check_rows(o, be, &p->config, err);
    if (s) return s;
    struct run *r = calloc(1, sizeof *r);
    if (!r) return error_memory(err, sizeof *r, "a run of the model");
    r->be = be;
    r->p = p;
    r->o = *o;
    if (be->op->record && !o->train) r->o.rows_tgt = step_rows(r, o->rows_tgt);
    s = host_open(r, err);
    enum use use = o->train ? USED_WHOLE : USED_IN_PART;
    if (!s) s = r->be->op->alloc(r->be, &r->block, run_layout(r, NULL), use, err);
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
    for (int i = 0; i < r->records; i++)
        if (r->record[i].graph) r->be->op->forget(r->be, r->record[i].graph);
    r->be->op->free(r->be, r->block);
    free(r->iota);
    free(r->loss);
    free(r->staged);
    free(r->found);
    free(r);
}

/* ---- a batch on the device ---- */

/* Where an array will be on the device, at `to` behind the `*used` numbers that are staged. */
static const int32_t *put(struct run *r, const int32_t *to, size_t *used, const int32_t *src, int n)
{
    if (!src) return NULL;
    memcpy(r->staged + *used, src, n * sizeof *src);
    *used += n;
    return to + *used - n;
}

/* The batch as it will be at `to` on the device; *used: numbers staged for that. */
static struct packed stage_batch(struct run *r, const struct packed *b, const int32_t *to,
                                 size_t *used)
{
    assert(b->rows_src <= r->o.rows_src && b->n <= r->o.sentences);
    assert(!b->tgt_in || b->rows_tgt <= r->o.rows_tgt);
    struct packed d = *b;
    *used = 0;
    d.src = put(r, to, used, b->src, b->rows_src);
    d.src_pos = put(r, to, used, b->src_pos, b->rows_src);
    d.src_off = put(r, to, used, b->src_off, b->n + 1);
    d.src_len = put(r, to, used, b->src_len, b->n);
    d.tgt_in = put(r, to, used, b->tgt_in, b->rows_tgt);
    d.tgt_out = put(r, to, used, b->tgt_out, b->rows_tgt);
    d.tgt_pos = put(r, to, used, b->tgt_pos, b->rows_tgt);
    d.tgt_off = put(r, to, used, b->tgt_off, b->n + 1);
    d.tgt_len = put(r, to, used, b->tgt_len, b->n);
    return d;
}

static void upload_batch(struct run *r, const struct packed *b)
{
    size_t used;
    r->batch = stage_batch(r, b, r->ints, &used);
    r->be->op->upload(r->be, r->ints, r->staged, used * sizeof *r->ints);
}

void run_ahead(struct run *r, const struct packed *b)
{
    size_t used;
    r->next = stage_batch(r, b, r->ahead, &used);
    r->be->op->upload_ahead(r->be, r->ahead, r->staged, used * sizeof *r->ahead);
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

enum heed_status run_loss_take(struct run *r, struct loss *out, struct heed_error *err)
{
    int n = r->batch.rows_tgt;
    bool f64 = r->s.loss.type == TYPE_F64;
    const double *d = r->loss;
    const float *f = r->loss;
    enum heed_status s = r->be->op->sync(r->be, err);
    if (s) return s;
    for (int i = 0; i < n; i++) {
        out->smoothed += f64 ? d[2 * i] : (double)f[2 * i];
        out->nll += f64 ? d[2 * i + 1] : (double)f[2 * i + 1];
    }
    out->tokens += n;
    return HEED_OK;
}

/* The batch is on the device. */
static void walk(struct run *r, const struct loss_options *o)
{
    static const struct mat none;
    assert(r->o.train || !o->backward);
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
    r->be->op->download(r->be, r->loss, r->s.loss.p, 2 * y.rows * type_size(r->s.loss.type));
}

void run_loss_begin(struct run *r, const struct loss_options *o)
{
    int32_t *swap = r->ints;
    r->ints = r->ahead;
    r->ahead = swap;
    r->batch = r->next;
    walk(r, o);
}

enum heed_status run_loss(struct run *r, const struct packed *b, const struct loss_options *o,
                          struct loss *out, struct heed_error *err)
{
    upload_batch(r, b);
    walk(r, o);
    return run_loss_take(r, out, err);
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
                          (struct activation){0});
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

/* The same for n numbers and as many times `fill` as make `all` of them. */
static const int32_t *put_filled(struct run *r, size_t *used, const int32_t *src, int n, int all,
                                 int32_t fill)
{
    const int32_t *to = put(r, r->ints, used, src, n);
    for (int i = n; i < all; i++) r->staged[(*used)++] = fill;
    return to;
}

/* The arrays of a step on the device, as the decoder wants them. Rows that fill it up ask with any
 * token, have themselves for a key, in a cache row of their own, and no sentence. */
static struct pass step_pass(struct run *r, const struct step *s, const struct step_shape *shape,
                             const int32_t **id, const int32_t **pos, const int32_t **want)
{
    int n = s->first[s->sentences], m = s->sentences, all = shape->rows;
    int most = r->be->op->record ? all : m;
    int32_t spare = r->o.cached;
    size_t at = 0;
    assert(all <= r->o.rows_tgt && m <= r->o.sentences && s->self_rows <= r->o.cached);
    *id = put_filled(r, &at, s->id, n, all, 0);
    *pos = put_filled(r, &at, s->pos, n, all, 0);
    *want = put_filled(r, &at, s->want, n * s->wants, all * s->wants, -1);
    struct pass p = {
        .rows = all, .cache = s->cache, .cache_at = put_filled(r, &at, s->cache_at, n, all, spare)};
    p.self = (struct seqs){.n = all,
                           .q = put(r, r->ints, &at, r->iota, all + 1),
                           .k = put_filled(r, &at, s->self, n, all, s->self_rows),
                           .klen = put_filled(r, &at, s->self_len, n, all, 1),
                           .max_q = 1,
                           .max_k = r->p->config.max_length,
                           .causal = true};
    p.cross = (struct seqs){.n = most,
                            .q = put_filled(r, &at, s->first, m + 1, most + 1, n),
                            .k = put_filled(r, &at, s->memory, m, most, 0),
                            .klen = put_filled(r, &at, s->memory_len, m, most, 0),
                            .max_q = s->width,
                            .max_k = shape->max_memory};
    /* last, since its length changes while the place of everything else stays */
    p.self.at = put_filled(r, &at, s->self_at, s->self_rows, s->self_rows + 1, spare);
    r->be->op->upload(r->be, r->ints, r->staged, at * sizeof *r->ints);
    return p;
}

static struct step_shape step_shape(const struct run *r, const struct step *s, int k)
{
    int longest = r->p->config.max_length, memory = (r->batch.max_src + 63) / 64 * 64;
    return (struct step_shape){.rows = step_rows(r, s->first[s->sentences]),
                               .width = s->width,
                               .candidates = k,
                               .wants = s->wants,
                               .watch = s->watch,
                               .max_memory = memory < longest && !s->watch ? memory : longest};
}

static void step_ops(struct run *r, const struct pass *dec, const struct step_shape *shape,
                     const int32_t *in, const int32_t *pos, const int32_t *want)
{
    const struct parameters *p = r->p;
    struct backend *be = r->be;
    int n = dec->rows, k = shape->candidates, wants = shape->wants;
    size_t found = (size_t)k + wants;
    int32_t *id = (int32_t *)(r->top + n * found);
    r->watch_site =
        shape->watch ? site_at(decoder_layer(r, shape->watch - 1), SITE_CROSS_WEIGHTS) : 0;
    be->op->embed(be, mat_rows(r->embed_tgt, 0, n), in, pos, p->w.embed, p->position,
                  (struct drop){0});
    struct mat y = decoder_forward(r, dec);
    for (int row = 0; row < n; row += r->s.logits.rows) {
        int rows = n - row < r->s.logits.rows ? n - row : r->s.logits.rows;
        struct mat logits = mat_rows(r->s.logits, 0, rows);
        be->op->linear(be, logits, mat_rows(y, row, rows), p->w.embed, (struct mat){0},
                       (struct activation){0});
        be->op->topk(be, logits, k, wants ? want + (size_t)row * wants : NULL, wants,
                     r->top + row * found, id + row * found);
    }
    r->watch_site = 0;
}

/* The record of such steps; NULL where there is no room for more. *before: there was one. */
static struct step_record *record_find(struct run *r, const struct step_shape *shape, bool *before)
{
    struct step_record *x = NULL;
    *before = true;
    for (int i = 0; i < r->records; i++)
        if (!memcmp(&r->record[i].shape, shape, sizeof *shape)) return &r->record[i];
    *before = false;
    for (int i = 0; i < r->records && r->records == STEP_RECORDS && !x; i++)
        if (!r->record[i].graph) x = &r->record[i];
    if (!x && r->records < STEP_RECORDS) x = &r->record[r->records++];
    if (x) *x = (struct step_record){.shape = *shape};
    return x;
}

/* Recorded at the second step of its shape, which shows that it was worth it. */
static void step_run(struct run *r, const struct pass *dec, const struct step_shape *shape,
                     const int32_t *in, const int32_t *pos, const int32_t *want)
{
    const struct ops *op = r->be->op;
    bool before = false;
    struct step_record *x = op->record ? record_find(r, shape, &before) : NULL;
    if (before && !x->tried && op->record(r->be)) {
        x->tried = true;
        step_ops(r, dec, shape, in, pos, want);
        x->graph = op->recorded(r->be);
    }
    if (x && x->graph)
        op->replay(r->be, x->graph);
    else
        step_ops(r, dec, shape, in, pos, want);
}

enum heed_status run_step(struct run *r, const struct step *s, int k, int32_t *id, float *score,
                          struct heed_error *err)
{
    struct backend *be = r->be;
    const int32_t *in, *pos, *want;
    assert(k <= r->o.candidates && s->wants <= r->o.wants && (!s->watch || r->o.watched));
    struct step_shape shape = step_shape(r, s, k);
    struct pass dec = step_pass(r, s, &shape, &in, &pos, &want);
    size_t found = (size_t)s->first[s->sentences] * (k + s->wants);
    size_t ids = (size_t)shape.rows * (k + s->wants); /* where they begin */
    step_run(r, &dec, &shape, in, pos, want);
    be->op->download(be, r->found, r->top, (ids + found) * sizeof *r->found);
    enum heed_status status = be->op->sync(be, err);
    if (status) return status;
    memcpy(score, r->found, found * sizeof *score);
    memcpy(id, r->found + ids, found * sizeof *id);
    return HEED_OK;
}

enum heed_status run_watched(struct run *r, int n, float *weights, struct heed_error *err)
{
    struct mat w = mat_rows(r->watched, 0, n * r->p->config.heads);
    r->be->op->download(r->be, weights, w.p, (size_t)w.rows * w.cols * sizeof *weights);
    return r->be->op->sync(r->be, err);
}
