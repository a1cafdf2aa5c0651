/*
 * step.c - a decoding step: one output position of every hypothesis that is given.
 *
 * On a device that captures CUDA graphs, the ops of a step are captured when a shape comes for the
 * second time, and replayed from then on.
 */
#include <assert.h>
#include <string.h>

#include "base/minmax.h"
#include "model/run.h"

int step_rows(const struct ops *op, int n)
{
    int unit = n <= 16 ? 4 : n <= 64 ? 16 : n <= 256 ? 64 : 128;
    return op->capture_begin ? (n + unit - 1) / unit * unit : n;
}

/* The arrays of a step on the device. */
struct step_input {
    const int32_t *id, *pos, *want;
    struct decoder_view view;
};

/* A padding row feeds in token 0 at position 0. It has a cache row of its own, `spare`, which is
 * the only key it looks at, and belongs to no sentence. */
static struct step_input step_upload(struct run *r, const struct step *s,
                                     const struct step_shape *shape)
{
    struct staging *to = &r->staging;
    int n = s->first[s->sentences], m = s->sentences, rows = shape->rows;
    int sentences = r->be->op->capture_begin ? rows : m; /* padded as well, with empty ones */
    int32_t spare = r->o.cached;
    assert(rows <= r->o.rows_tgt && m <= r->o.sentences && s->self_rows <= r->o.cached);
    to->device = r->ints;
    to->used = 0;
    struct step_input in = {.id = stage_padded(to, s->id, n, rows, 0),
                            .pos = stage_padded(to, s->pos, n, rows, 0),
                            .want = stage_padded(to, s->want, n * s->wants, rows * s->wants, -1)};
    struct decoder_view *v = &in.view;
    v->cache = s->cache;
    v->cache_at = stage_padded(to, s->cache_at, n, rows, spare);
    v->self = (struct seqs){.n = rows,
                            .q = stage_count(to, rows + 1),
                            .k = stage_padded(to, s->self, n, rows, s->self_rows),
                            .klen = stage_padded(to, s->self_len, n, rows, 1),
                            .max_q = 1,
                            .max_k = r->p->config.max_length,
                            .causal = true,
                            .pos = in.pos,
                            .from = stage_padded(to, s->cache_before, n, rows, -1),
                            .to = v->cache_at};
    v->cross = (struct seqs){.n = sentences,
                             .q = stage_padded(to, s->first, m + 1, sentences + 1, n),
                             .k = stage_padded(to, s->memory, m, sentences, 0),
                             .klen = stage_padded(to, s->memory_len, m, sentences, 0),
                             .max_q = s->width,
                             .max_k = shape->max_memory,
                             .from = stage_padded(to, s->state, m, sentences, -1)};
    /* This array comes last because its length changes from step to step, while a captured graph
     * needs every other array at the same address. */
    v->self.at = stage_padded(to, s->self_at, s->self_rows, s->self_rows + 1, spare);
    r->be->op->upload(r->be, r->ints, to->host, to->used * sizeof *r->ints);
    return in;
}

static struct step_shape step_shape(const struct run *r, const struct step *s, int k)
{
    int longest = r->p->config.max_length, memory = 0;
    for (int i = 0; i < s->sentences; i++) memory = int_max(memory, s->memory_len[i]);
    memory = (memory + 63) / 64 * 64;
    return (struct step_shape){.rows = step_rows(r->be->op, s->first[s->sentences]),
                               .width = s->width,
                               .candidates = k,
                               .wants = s->wants,
                               .watch = s->watch,
                               .max_memory = memory < longest && !s->watch ? memory : longest};
}

/* The best tokens that may follow each row, see topk in ops.h, and the scores of those in want. */
static void step_best(const struct pass *p, struct mat w, const struct head_acts *a, struct mat x,
                      const struct step_shape *shape, const int32_t *want, float *score,
                      int32_t *id)
{
    const struct ops *op = p->be->op;
    int k = shape->candidates, wants = shape->wants;
    if (op->linear_topk && type_packed(w.type) && k <= op->linear_topk_most) {
        op->linear_topk(p->be, x, w, k, want, wants, score, id);
        return;
    }
    size_t found = (size_t)k + wants; /* of each row */
    for (struct chunk c = {0}; head_next(p, w, a, x, &c);)
        op->topk(p->be, c.logits, k, wants ? want + (size_t)c.row * wants : NULL, wants,
                 score + c.row * found, id + c.row * found);
}

static void step_ops(struct run *r, const struct step_input *in, const struct step_shape *shape)
{
    const struct weights *w = &r->p->w;
    struct activations *a = &r->a;
    size_t found = (size_t)shape->candidates + shape->wants; /* of each row */
    float *score = r->found.device;
    int32_t *id = (int32_t *)(score + shape->rows * found);
    struct pass p = {
        .be = r->be, .config = &r->p->config, .scratch = &a->scratch, .positions = r->p->positions};
    if (shape->watch) {
        r->watched[decoder_site(p.config, shape->watch - 1, SITE_CROSS)] = r->stepped;
        p.watched = r->watched;
    }
    activations_bind_target(a, p.config, shape->rows);
    embedding_forward(&p, &w->embed.target, a->embed_tgt, in->id, in->pos, SITE_EMBED_TGT);
    struct mat x = decoder_forward(&p, w->decoder, a->decoder, a->embed_tgt, &in->view);
    struct mat y = final_norm(&p, &w->decoder_norm, &a->decoder_norm, x);
    step_best(&p, w->embed.output, &a->head, y, shape, in->want, score, id);
    if (shape->watch)
        r->watched[decoder_site(p.config, shape->watch - 1, SITE_CROSS)] = (struct mat){0};
}

/* ---- graphs ---- */

void step_graphs_release(struct step_graphs *g, struct backend *be)
{
    for (int i = 0; i < g->n; i++)
        if (g->v[i].graph) be->op->graph_free(be, g->v[i].graph);
}

/* The entry for steps of this shape; NULL where there is no room for more. *before: there was one
 * already. */
static struct step_graph *graph_find(struct step_graphs *g, const struct step_shape *shape,
                                     bool *before)
{
    struct step_graph *x = NULL;
    *before = true;
    for (int i = 0; i < g->n; i++)
        if (!memcmp(&g->v[i].shape, shape, sizeof *shape)) return &g->v[i];
    *before = false;
    for (int i = 0; i < g->n && g->n == STEP_GRAPHS && !x; i++)
        if (!g->v[i].graph) x = &g->v[i];
    if (!x && g->n < STEP_GRAPHS) x = &g->v[g->n++];
    if (x) *x = (struct step_graph){.shape = *shape};
    return x;
}

static void step_run(struct run *r, const struct step_input *in, const struct step_shape *shape)
{
    const struct ops *op = r->be->op;
    bool before = false;
    struct step_graph *x = op->capture_begin ? graph_find(&r->graphs, shape, &before) : NULL;
    if (before && !x->tried && op->capture_begin(r->be)) {
        x->tried = true;
        step_ops(r, in, shape);
        x->graph = op->capture_end(r->be);
    }
    if (x && x->graph)
        op->graph_launch(r->be, x->graph);
    else
        step_ops(r, in, shape);
}

/* ---- a step ---- */

enum heed_status run_step(struct run *r, const struct step *s, int k, int32_t *id, float *score,
                          struct heed_error *err)
{
    assert(k <= r->o.candidates && s->wants <= r->o.wants && !r->o.train);
    struct step_shape shape = step_shape(r, s, k);
    struct step_input in = step_upload(r, s, &shape);
    size_t found = (size_t)s->first[s->sentences] * (k + s->wants);
    size_t ids = (size_t)shape.rows * (k + s->wants); /* where the ids begin */
    step_run(r, &in, &shape);
    r->be->op->download(r->be, r->found.host, r->found.device, (ids + found) * sizeof *score);
    enum heed_status status = r->be->op->sync(r->be, err);
    if (status) return status;
    memcpy(score, r->found.host, found * sizeof *score);
    memcpy(id, r->found.host + ids, found * sizeof *id);
    return HEED_OK;
}

enum heed_status run_watched(struct run *r, int n, float *weights, struct heed_error *err)
{
    struct mat w = mat_top(r->stepped, n * r->p->config.heads);
    r->be->op->download(r->be, weights, w.p, (size_t)w.rows * w.cols * sizeof *weights);
    return r->be->op->sync(r->be, err);
}
