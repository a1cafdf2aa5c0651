/*
 * run.c - memory of a run, and a batch's way through the model.
 *
 * One allocation on the device holds every activation: run_layout runs once to measure and once to
 * bind. The host holds what goes to the device at every step and what comes back.
 */
#include "model/run.h"

#include <assert.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/minmax.h"
#include "model/needs.h"

/* ---- memory ---- */

/* Integers of a batch, or of the arrays of a step. */
static size_t run_ints(const struct run_options *o)
{
    size_t src = o->rows_src, tgt = o->rows_tgt, n = o->sentences + 1;
    size_t batch = 2 * src + 3 * tgt + 4 * n;
    size_t step = 3 * (tgt + 1) + (8 + o->wants) * tgt + 2 + o->cached;
    return batch > step ? batch : step;
}

/* Scores and ids that a step finds. */
static size_t run_found(const struct run_options *o)
{
    return 2 * (size_t)o->rows_tgt * (o->candidates + o->wants);
}

/* The largest matrices of weights that run_attention may need. */
static void watched_layout(struct run *r, struct layout *l)
{
    const struct heed_config *c = l->config;
    int src = r->o.rows_src, tgt = r->o.rows_tgt, h = c->heads;
    int keys_src = int_min(src, c->max_length), keys_tgt = int_min(tgt, c->max_length);
    for (int i = 0; i < c->encoder_layers; i++)
        r->watched[encoder_site(i, SITE_SELF)] = layout_take(l, src * h, keys_src, TYPE_F32);
    for (int i = 0; i < c->decoder_layers; i++) {
        r->watched[decoder_site(c, i, SITE_SELF)] = layout_take(l, tgt * h, keys_tgt, TYPE_F32);
        r->watched[decoder_site(c, i, SITE_CROSS)] = layout_take(l, tgt * h, keys_src, TYPE_F32);
    }
}

static size_t run_layout(struct run *r, void *base)
{
    const struct heed_config *c = &r->p->config;
    const struct run_options *o = &r->o;
    enum type master = r->p->precision.master;
    struct layout l = {.arena = {.base = base, .host = r->be->op->host},
                       .config = c,
                       .precision = r->p->precision,
                       .keep = o->train};
    activations_layout(&r->a, &l, r->be->op, o->rows_src, o->rows_tgt, o->rows_memory,
                       o->sentences);
    if (o->train)
        r->grad =
            mat_make(arena_take(&l.arena, r->p->n * type_size(master)), 1, (int)r->p->n, master);
    r->ints = arena_take(&l.arena, run_ints(o) * sizeof *r->ints);
    if (o->train) r->ahead = arena_take(&l.arena, run_ints(o) * sizeof *r->ahead);
    r->found.device = arena_take(&l.arena, run_found(o) * sizeof *r->found.device);
    if (!o->train) r->stepped = layout_take(&l, o->rows_tgt * c->heads, c->max_length, TYPE_F32);
    if (o->watch) watched_layout(r, &l);
    return l.arena.used;
}

/* Numbers in the tallies of the experts. */
static size_t run_tallies(const struct run *r)
{
    const struct heed_config *c = &r->p->config;
    int layers = c->encoder_layers + c->decoder_layers, experts = config_experts(c);
    return r->o.train && experts ? (size_t)layers * (2 * experts + 1) : 0;
}

static enum heed_status host_open(struct run *r, struct heed_error *err)
{
    size_t loss = 2 * (size_t)r->o.rows_tgt * type_size(r->p->precision.master);
    size_t ints = run_ints(&r->o) * sizeof *r->staging.host;
    size_t found = run_found(&r->o) * sizeof *r->found.host;
    size_t tallies = run_tallies(r) * type_size(r->p->precision.master);
    size_t sites = sites_count(&r->p->config);
    r->loss = malloc(loss + 1);
    r->staging.host = malloc(ints);
    r->found.host = malloc(found + 1);
    r->tallies = malloc(tallies + 1);
    r->watched = calloc(sites, sizeof *r->watched);
    if (r->loss && r->staging.host && r->found.host && r->tallies && r->watched) return HEED_OK;
    return error_memory(err, loss + ints + found + tallies + sites * sizeof *r->watched,
                        "a run of the model");
}

/* Arrays have fewer than 2^31 elements (config.c); so must those that have a row for each token. */
static enum heed_status check_rows(const struct run_options *o, const struct backend *be,
                                   const struct parameters *p, struct heed_error *err)
{
    const struct heed_config *c = &p->config;
    size_t rows = (size_t)int_max(o->rows_src, o->rows_tgt) + ROW_PAD;
    if (config_experts(c))
        rows = rows * config_experts_per_token(c) + (size_t)config_experts(c) * ROW_PAD;
    int widest = int_max(config_qkv_width(c), feed_forward_outputs(c));
    size_t wide = (size_t)int_max(c->d_model, widest);
    size_t chunk = (size_t)head_chunk(be->op, c, p->precision.act);
    size_t head = chunk < rows ? chunk : rows;
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
    enum heed_status s = needs_check(be->op, &p->config, o->train, err);
    if (!s) s = check_rows(o, be, p, err);
    if (s) return s;
    struct run *r = calloc(1, sizeof *r);
    if (!r) return error_memory(err, sizeof *r, "a run of the model");
    r->be = be;
    r->p = p;
    r->o = *o;
    if (!o->train) r->o.rows_tgt = step_rows(be->op, o->rows_tgt);
    if (!r->o.rows_memory) r->o.rows_memory = o->rows_src;
    s = host_open(r, err);
    enum use use = o->train ? USED_WHOLE : USED_IN_PART;
    if (!s) s = be->op->alloc(be, &r->block, run_layout(r, NULL), use, err);
    if (s) {
        run_free(r);
        return s;
    }
    run_layout(r, r->block);
    if (o->train) {
        parameters_bind(&r->g, &p->config, r->grad.p, r->grad.type);
        be->op->zero(be, r->grad.p, p->n * type_size(r->grad.type));
    }
    *out = r;
    return HEED_OK;
}

void *run_swap_gradient(struct run *r, void *p)
{
    void *before = r->grad.p;
    r->grad.p = p;
    parameters_bind(&r->g, &r->p->config, p, r->grad.type);
    return before;
}

void run_free(struct run *r)
{
    if (!r) return;
    step_graphs_release(&r->graphs, r->be);
    r->be->op->free(r->be, r->block);
    free(r->loss);
    free(r->tallies);
    free(r->staging.host);
    free(r->found.host);
    free(r->watched);
    free(r);
}

/* ---- a batch on the device ---- */

static struct packed run_stage(struct run *r, const struct packed *b, const int32_t *device)
{
    assert(b->rows_src <= r->o.rows_src && b->n <= r->o.sentences);
    assert(!b->tgt_in || b->rows_tgt <= r->o.rows_tgt);
    return stage_batch(&r->staging, b, device);
}

static void run_upload(struct run *r, const struct packed *b)
{
    r->batch = run_stage(r, b, r->ints);
    r->be->op->upload(r->be, r->ints, r->staging.host, r->staging.used * sizeof *r->ints);
}

void run_ahead(struct run *r, const struct packed *b)
{
    r->next = run_stage(r, b, r->ahead);
    r->be->op->upload_ahead(r->be, r->ahead, r->staging.host, r->staging.used * sizeof *r->ahead);
}

/* ---- forward and backward ---- */

static struct seqs source_view(const struct packed *b)
{
    return (struct seqs){.n = b->n,
                         .q = b->src_off,
                         .k = b->src_off,
                         .klen = b->src_len,
                         .max_q = b->max_src,
                         .max_k = b->max_src,
                         .pos = b->src_pos};
}

static struct decoder_view target_view(const struct packed *b)
{
    struct seqs self = {.n = b->n,
                        .q = b->tgt_off,
                        .k = b->tgt_off,
                        .klen = b->tgt_len,
                        .max_q = b->max_tgt,
                        .max_k = b->max_tgt,
                        .causal = true,
                        .pos = b->tgt_pos};
    struct seqs cross = self;
    cross.k = b->src_off, cross.klen = b->src_len, cross.max_k = b->max_src, cross.causal = false;
    return (struct decoder_view){.self = self, .cross = cross};
}

static struct pass run_pass(const struct run *r, bool dropout, uint64_t seed)
{
    return (struct pass){.be = r->be,
                         .config = &r->p->config,
                         .scratch = &r->a.scratch,
                         .positions = r->p->positions,
                         .dropout = dropout,
                         .seed = seed};
}

/* The memory, and its keys and values for every decoder layer. In training the keys and values are
 * those of the batch; in translation there may be those of other sentences beside them. */
static void encode(struct run *r, const struct pass *p, struct memory_place at)
{
    const struct weights *w = &r->p->w;
    const struct packed *b = &r->batch;
    struct activations *a = &r->a;
    struct seqs view = source_view(b);
    activations_bind_source(a, p->config, b->rows_src, r->o.train ? b->rows_src : r->o.rows_memory);
    embedding_forward(p, &w->embed.source, a->embed_src, b->src, b->src_pos, SITE_EMBED_SRC);
    struct mat x = encoder_forward(p, w->encoder, a->encoder, a->embed_src, &view);
    a->memory = final_norm(p, &w->encoder_norm, &a->encoder_norm, x);
    /* Nobody reads any more what the first layer of the encoder has projected, unless it is kept,
     * and then keys and values have the type of activations. */
    struct mat wide = mat_cols(a->encoder[0].self.qkv, 0, config_kv_width(p->config));
    decoder_memory(p, w->decoder, a->decoder, a->memory, wide, &view, at);
}

/* Output rows of the decoder for the whole target of the batch. */
static struct mat forward(struct run *r, const struct pass *p)
{
    const struct weights *w = &r->p->w;
    const struct packed *b = &r->batch;
    struct activations *a = &r->a;
    struct decoder_view view = target_view(b);
    encode(r, p, (struct memory_place){0});
    activations_bind_target(a, p->config, b->rows_tgt);
    embedding_forward(p, &w->embed.target, a->embed_tgt, b->tgt_in, b->tgt_pos, SITE_EMBED_TGT);
    struct mat x = decoder_forward(p, w->decoder, a->decoder, a->embed_tgt, &view);
    return final_norm(p, &w->decoder_norm, &a->decoder_norm, x);
}

/* dy: gradient of the decoder's output rows */
static void backward(struct run *r, const struct pass *p, struct mat dy)
{
    const struct weights *w = &r->p->w, *g = &r->g;
    const struct packed *b = &r->batch;
    const struct activations *a = &r->a;
    struct decoder_view target = target_view(b);
    struct seqs source = source_view(b);
    struct mat dx =
        final_norm_backward(p, &w->decoder_norm, &g->decoder_norm, &a->decoder_norm, dy);
    dx = decoder_backward(p, w->decoder, g->decoder, a->decoder, a->dmemory, dx, a->embed_tgt,
                          a->memory, &target);
    embedding_backward(p, &g->embed.target, b->tgt_in, b->tgt_pos, dx, SITE_EMBED_TGT);
    dx = final_norm_backward(p, &w->encoder_norm, &g->encoder_norm, &a->encoder_norm, a->dmemory);
    dx = encoder_backward(p, w->encoder, g->encoder, a->encoder, dx, a->embed_src, &source);
    pass_final(p, 1 + p->config->encoder_layers + p->config->decoder_layers);
    embedding_backward(p, &g->embed.source, b->src, b->src_pos, dx, SITE_EMBED_SRC);
    pass_final(p, 0);
}

/* ---- loss ---- */

/* The batch is on the device. */
static void loss_begin(struct run *r, const struct loss_options *o)
{
    assert(r->o.train || !o->backward);
    struct pass p = run_pass(r, o->dropout, o->seed);
    p.experts = o->experts;
    p.watch = o->watch;
    r->balance = o->experts.balance;
    struct mat y = forward(r, &p), loss = r->a.head.loss, tallies = r->a.tallies;
    struct mat dy = o->backward ? mat_top(r->a.scratch.d[0], y.rows) : (struct mat){0};
    head_loss(&p, r->p->w.embed.output, r->g.embed.output, &r->a.head, dy, y, r->batch.tgt_out,
              o->label_smoothing);
    if (o->backward) backward(r, &p, dy);
    r->be->op->download(r->be, r->loss, loss.p, 2 * y.rows * type_size(loss.type));
    if (tallies.p)
        r->be->op->download(r->be, r->tallies, tallies.p, run_tallies(r) * type_size(tallies.type));
}

void run_loss_begin(struct run *r, const struct loss_options *o)
{
    int32_t *swap = r->ints;
    r->ints = r->ahead;
    r->ahead = swap;
    r->batch = r->next;
    loss_begin(r, o);
}

static double master_get(const void *array, enum type type, size_t at)
{
    return type == TYPE_F64 ? ((const double *)array)[at] : (double)((const float *)array)[at];
}

static void take_tallies(const struct run *r, struct loss *out)
{
    struct mat m = r->a.tallies;
    int experts = m.cols / 2;
    for (int l = 0; l < m.rows; l++) {
        size_t at = (size_t)l * m.cols;
        out->balance += (double)r->balance * master_get(r->tallies, m.type, at + 2 * experts);
        for (int e = 0; e < experts && out->load; e++) {
            struct expert_load *load = &out->load[l * experts + e];
            load->asked += master_get(r->tallies, m.type, at + e);
            load->taken += master_get(r->tallies, m.type, at + experts + e);
        }
    }
}

enum heed_status run_loss_take(struct run *r, struct loss *out, struct heed_error *err)
{
    int n = r->batch.rows_tgt;
    enum type type = r->a.head.loss.type;
    enum heed_status s = r->be->op->sync(r->be, err);
    if (s) return s;
    for (int i = 0; i < n; i++) {
        out->smoothed += master_get(r->loss, type, 2 * (size_t)i);
        out->nll += master_get(r->loss, type, 2 * (size_t)i + 1);
    }
    out->tokens += n;
    if (r->a.tallies.p) take_tallies(r, out);
    return HEED_OK;
}

void run_nll(const struct run *r, double *out)
{
    for (int i = 0; i < r->batch.rows_tgt; i++)
        out[i] = master_get(r->loss, r->a.head.loss.type, 2 * (size_t)i + 1);
}

enum heed_status run_loss(struct run *r, const struct packed *b, const struct loss_options *o,
                          struct loss *out, struct heed_error *err)
{
    run_upload(r, b);
    loss_begin(r, o);
    return run_loss_take(r, out, err);
}

enum heed_status run_logits(struct run *r, const struct packed *b, void *logits,
                            struct heed_error *err)
{
    const struct head_acts *head = &r->a.head;
    size_t row_bytes = head->logits.cols * type_size(head->logits.type);
    assert(head->logits.type == r->p->precision.master);
    struct pass p = run_pass(r, false, 0);
    run_upload(r, b);
    struct mat y = forward(r, &p);
    for (struct chunk c = {0}; head_next(&p, r->p->w.embed.output, head, y, &c);)
        r->be->op->download(r->be, (char *)logits + c.row * row_bytes, c.logits.p,
                            c.logits.rows * row_bytes);
    return r->be->op->sync(r->be, err);
}

/* The weights of a site, [rows*H, keys] on the device, go to `to`; returns what follows there. */
static float *take_watched(const struct run *r, uint32_t site, float *to)
{
    struct mat w = r->watched[site];
    size_t n = (size_t)w.rows * w.cols;
    r->be->op->download(r->be, to, w.p, n * sizeof *to);
    return to + n;
}

enum heed_status run_attention(struct run *r, const struct packed *b, const struct run_weights *out,
                               struct heed_error *err)
{
    const struct heed_config *c = &r->p->config;
    struct pass p = run_pass(r, false, 0);
    struct run_weights to = *out;
    assert(r->o.watch);
    p.watched = r->watched;
    for (uint32_t site = 0; site < sites_count(c); site++) {
        bool encoder = site < decoder_site(c, 0, SITE_SELF);
        bool source = encoder || site % SITES_PER_LAYER == SITE_CROSS; /* has the keys */
        int rows = encoder ? b->rows_src : b->rows_tgt;
        if (r->watched[site].p)
            r->watched[site] = mat_make(r->watched[site].p, rows * c->heads,
                                        source ? b->max_src : b->max_tgt, TYPE_F32);
    }
    run_upload(r, b);
    forward(r, &p);
    for (int l = 0; l < c->encoder_layers; l++)
        to.encoder = take_watched(r, encoder_site(l, SITE_SELF), to.encoder);
    for (int l = 0; l < c->decoder_layers; l++) {
        to.decoder = take_watched(r, decoder_site(c, l, SITE_SELF), to.decoder);
        to.cross = take_watched(r, decoder_site(c, l, SITE_CROSS), to.cross);
    }
    return r->be->op->sync(r->be, err);
}

enum heed_status run_encode(struct run *r, const struct packed *b, struct memory_place at,
                            struct heed_error *err)
{
    struct pass p = run_pass(r, false, 0);
    assert(at.row + b->rows_src <= r->o.rows_memory && at.state + b->n <= r->o.sentences);
    run_upload(r, b);
    encode(r, &p, at);
    return r->be->op->sync(r->be, err);
}
