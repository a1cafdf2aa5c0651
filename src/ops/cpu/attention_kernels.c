/*
 * attention_kernels.c - softmax(q kT / sqrt(dk)) v of heads of one sentence, and its gradient
 * (paper 3.2.1). Compiled once per ISA; see attention.h.
 *
 * The scores are never stored as a whole but computed in tiles of a block of queries by a block of
 * keys (tile.h); most sentences are one tile. The rows of a tile are copied to panels (panel.h),
 * keys transposed, so that scores are vectors over keys. All products of both passes are then the
 * same kernel:
 *
 *   forward:  s = q kT;  p = exp(s - top), top and sum kept running over key blocks;  o = p v / sum
 *   backward: s = q kT;  p = exp(s - lse);  dp = do vT;  ds = p * (dp - delta), delta = do . o;
 *             dv = pT do;  dk = dsT q;  dq = ds k
 *
 * q is scaled by 1/sqrt(dk) as it is copied. Dropout multiplies p after the sum is taken, and dp.
 * The weight of a masked key is exactly 0 and every sum runs over keys or columns in one order, so
 * the bits of a query do not depend on the tile it is in.
 *
 * The other forms of attention (forms.h) change the scores of a tile, or compute them, and add to o
 * and to the gradients once the tiles of a block of queries are done.
 */
#include "ops/cpu/few.h"
#include "ops/cpu/forms.h"

/* ---- sums and maxima of the lanes of up to W vectors ---- */

/* Lane r of the result is the sum of the lanes of x[r], in lane order, for r below n; x is
 * overwritten. */
INLINE vf sum_rows(vf x[W], int n)
{
    vf sum = {0};
    if (n > FEW) {
        transpose(x);
        sum = x[0];
        for (int l = 1; l < W; l++) sum += x[l];
    } else {
        for (int r = 0; r < n; r++) {
            float s = x[r][0];
            for (int l = 1; l < W; l++) s += x[r][l];
            sum[r] = s;
        }
    }
    return sum;
}
INLINE vf top_rows(vf x[W], int n)
{
    vf top = vf_all(-INFINITY);
    if (n > FEW) {
        transpose(x);
        top = x[0];
        for (int l = 1; l < W; l++) top = vf_max(top, x[l]);
    } else {
        for (int r = 0; r < n; r++) top[r] = vf_top(x[r]);
    }
    return top;
}

/* ---- forward ---- */

/* State of the online softmax of each query after some of its key blocks. */
struct running {
    PANEL(top, QUERIES);   /* largest score; -inf: no key yet */
    PANEL(sum, QUERIES);   /* of exp(score - top) */
    PANEL(scale, QUERIES); /* factor by which the last block scaled the weights of earlier blocks */
};

/* Sets the scores of keys after the last that a row sees to -inf; returns the largest of the
 * others, lane by lane. */
INLINE vf mask_row(float *p, struct key_span sees)
{
    vf top = vf_all(-INFINITY);
    for (int c = span_start(sees); c < sees.to; c += W) {
        vf x = vf_pick(lanes_below(sees.to - c), load(p + c), vf_all(-INFINITY));
        store(p + c, x);
        top = vf_max(top, x);
    }
    return top;
}

/* Turns scores into exp(score - top), returns their sums lane by lane, then applies dropout. */
INLINE vf weigh_row(float *p, int ld, struct key_span sees, float top, bool drop, struct drop_row d,
                    int key)
{
    vf sum = {0};
    int c = 0, start = span_start(sees);
    for (; c < start; c += W) store(p + c, (vf){0});
    for (; c < sees.to; c += W) {
        vf x = vf_exp(load(p + c) - top);
        sum += x;
        if (drop) x *= vf_drop(d, (uint32_t)(key + c));
        store(p + c, x);
    }
    for (; c < ld; c += W) store(p + c, (vf){0});
    return sum;
}

INLINE void soften_as(const struct job *job, int heads, const struct tile *t, float *p,
                      struct running *run, bool window)
{
    bool drop = job->a->drop.p > 0;
    for (int g = 0, rows = heads * t->ni, query = 0; g < rows; g += W) {
        int n = int_min(W, rows - g);
        struct key_span sees[W];
        vf part[W];
        for (int r = 0; r < n; r++) {
            sees[r] = tile_sees_as(job, t, query, 1, window);
            query = query + 1 < t->ni ? query + 1 : 0;
            part[r] = mask_row(p + (g + r) * t->ld, sees[r]);
        }
        for (int r = n; r < W && n > FEW; r++) part[r] = (vf){0};
        vf old = load(run->top + g), top = vf_max(old, top_rows(part, n));
        /* A row without a key has no finite top; 0 stands in for it, as exp(-inf - 0) is 0. */
        vf base = vf_pick(top == -INFINITY, vf_all(0.0f), top);
        vf scale = vf_exp(old - base);
        for (int r = 0; r < n; r++) {
            struct drop_row d = {0};
            int head = drop && heads > 1 ? (g + r) / t->ni : 0;
            if (drop) d = weight_drop(job + head, t->i + g + r - head * t->ni);
            part[r] = weigh_row(p + (g + r) * t->ld, t->ld, sees[r], base[r], drop, d, t->j);
        }
        store(run->top + g, top);
        store(run->scale + g, scale);
        store(run->sum + g, load(run->sum + g) * scale + sum_rows(part, n));
    }
}

/* One step of the online softmax: turns the scores of a tile into weights, W rows at a time. The
 * rows of each head, whose job is job[head], follow those of the head before it. */
static void soften(const struct job *job, int heads, const struct tile *t, float *p,
                   struct running *run)
{
    if (job->window)
        soften_as(job, heads, t, p, run, true);
    else
        soften_as(job, heads, t, p, run, false);
}

static void rescale(float *o, int n, int ld, const float *scale)
{
    for (int r = 0; r < n; r++)
        for (int c = 0; c < ld; c += W) store(o + r * ld + c, load(o + r * ld + c) * scale[r]);
}

/* row: the first of this head in run */
static void finish(const struct job *job, const struct tile *t, float *o, struct running *run,
                   int row)
{
    const struct attention *a = job->a;
    float *scale = run->scale + row;
    for (int r = 0; r < t->ni; r++) {
        float top = run->top[row + r], sum = run->sum[row + r];
        bool none = top == -INFINITY;
        scale[r] = none ? 0.0f : 1.0f / sum;
        if (a->lse.p)
            *(float *)mat_at(a->lse, job->q0 + t->i + r, job->head) =
                none ? -INFINITY : top + logf(sum);
    }
    rescale(o, t->ni, job->ldv, scale);
    store_rows(a->o, job->q0 + t->i, job->head * job->dv, o, job->ldv, t->ni, job->dv, 1.0f);
}

/* The work space of forward: the panels of one tile, and for relative the numbers and the sums of
 * the weights for the distances of each query. */
struct forward_panels {
    PANEL(q, QPANEL);
    PANEL(kt, KPANEL_MAX);
    PANEL(v, KPANEL_MAX);
    PANEL(p, SCORES);
    PANEL(o, QPANEL);
    PANEL(score_distances, DISTANCES);
    PANEL(weight_distances, DISTANCES);
};
_Static_assert(sizeof(struct forward_panels) <= ATTEND_WORK, "the work space of a thread");

/* The numbers and the sums for the distances of row `row` of the panels. */
static float *score_distances(const struct job *job, struct forward_panels *m, int row)
{
    return m->score_distances + row * distances_width(job);
}
static float *weight_distances(const struct job *job, struct forward_panels *m, int row)
{
    return m->weight_distances + row * distances_width(job);
}

/* Loads the queries of a tile of one head, whose first row in the panels is `row`, and begins their
 * sums. */
static void forward_begin(const struct job *job, const struct tile *t, int row,
                          struct forward_panels *m, struct running *run)
{
    struct mat kt = job->tables->relative_kt;
    float *q = m->q + row * job->ldk;
    load_rows(q, job->ldk, query_rows(job, job->a->q, t->i, job->dk), t->ni, job->dk, job->scale);
    for (int r = row; r < row + t->ni; r++) run->top[r] = -INFINITY, run->sum[r] = 0.0f;
    if (!kt.p) return;
    distances_from(job, t->ni, score_distances(job, m, row), q, job->ldk, kt);
    memset(weight_distances(job, m, row), 0,
           (size_t)t->ni * distances_width(job) * sizeof *m->weight_distances);
}

/* After the softmax of a tile: scales the sums of earlier tiles, where there are `more`. */
static void forward_rescale(const struct job *job, const struct tile *t, int row, bool more,
                            struct forward_panels *m, const struct running *run)
{
    if (more) rescale(m->o + row * job->ldv, t->ni, job->ldv, run->scale + row);
    if (!job->a->relative_k.p) return;
    float *sums = weight_distances(job, m, row);
    if (more) rescale(sums, t->ni, distances_width(job), run->scale + row);
    sum_distances(job, t, sums, m->p + row * t->ld);
}

/* Ends the work on the queries of a tile of one head whose tiles of keys are all done. */
static void forward_end(const struct job *job, const struct tile *t, int row,
                        struct forward_panels *m, struct running *run)
{
    float *o = m->o + row * job->ldv;
    if (job->a->relative_k.p) {
        float *sums = weight_distances(job, m, row);
        close_distances(job, t->ni, sums);
        weigh_distances(job, t->ni, o, job->ldv, sums, job->tables->relative_v);
    }
    finish(job, t, o, run, row);
}

/* Queries [first, last) of one head. */
static void forward_head(const struct job *job, int first, int last, struct forward_panels *m)
{
    const struct attention *a = job->a;
    struct running run;
    int packed = -1; /* first key of the block that kt and v hold; -1: none */
    for (int i = first; i < last; i += job->queries) {
        struct tile t = tile_make(job, i, last, 0);
        struct key_span sees = job_sees(job, i, t.ni);
        bool more = false; /* whether o has the sums of earlier key blocks */
        int j = next_block(job, sees, -job->keys);
        forward_begin(job, &t, 0, m, &run);
        do {
            t = tile_make(job, i, last, j);
            if (packed != j) {
                load_columns(m->kt, t.ld, key_rows(job, a->k, j, job->dk), t.nj, job->dk);
                load_rows(m->v, job->ldv, key_rows(job, a->v, j, job->dv), t.nj, job->dv, 1.0f);
                packed = j;
            }
            if (a->additive.p)
                additive_scores(job, &t, m->p, m->q, m->kt);
            else
                scores(job, &t, m->p, m->q, job->ldk, m->kt, job->dk);
            change_scores(job, &t, m->p, m->score_distances);
            soften(job, 1, &t, m->p, &run);
            forward_rescale(job, &t, 0, more, m, &run);
            weigh(job, &t, m->o, more, m->p, m->v, job->ldv);
            more = true;
        } while ((j = next_block(job, sees, j)) < sees.to);
        forward_end(job, &t, 0, m, &run);
    }
}

/* Queries [first, last), at most FEW, of several heads at once. */
static void forward_few(const struct job *job, int heads, int first, int last,
                        struct forward_panels *m)
{
    struct running run;
    struct few_rows rows;
    struct tile t = tile_make(job, first, last, 0);
    struct key_span sees = job_sees(job, first, t.ni);
    bool more = false; /* whether o has the sums of earlier key blocks */
    int n = t.ni, j = next_block(job, sees, -job->keys);
    for (int h = 0; h < heads; h++) forward_begin(job + h, &t, h * n, m, &run);
    do {
        t = tile_make(job, first, last, j);
        few_rows_find(&rows, job, &t);
        score_few(job, heads, &t, m->p, m->q, &rows, m->kt);
        for (int h = 0; h < heads; h++)
            change_scores(job + h, &t, m->p + h * n * t.ld, score_distances(job, m, h * n));
        soften(job, heads, &t, m->p, &run);
        for (int h = 0; h < heads; h++) {
            forward_rescale(job + h, &t, h * n, more, m, &run);
            weigh_few(job + h, &t, m->o + h * n * job->ldv, more, m->p + h * n * t.ld, &rows);
        }
        more = true;
    } while ((j = next_block(job, sees, j)) < sees.to);
    for (int h = 0; h < heads; h++) forward_end(job + h, &t, h * n, m, &run);
}

static void forward(const struct attention *a, const struct attend_tables *tables, int sentence,
                    int head, int heads, int first, int last, void *work)
{
    struct job job[FEW_HEADS] = {job_make(a, tables, sentence, head)};
    bool few = last - first <= FEW && !a->additive.p;
    int most = few ? int_min(FEW_HEADS, job->queries / (last - first)) : 1;
    for (int end = head + heads; head < end; head += most) {
        int n = int_min(most, end - head);
        for (int h = 0; h < n; h++) {
            job[h] = job[0];
            job_set_head(&job[h], head + h);
        }
        if (few)
            forward_few(job, n, first, last, work);
        else
            forward_head(job, first, last, work);
    }
}

/* ---- backward ---- */

/* The work space of backward: the panels of one tile, and for relative the numbers and sums for the
 * distances of each query. */
struct backward_panels {
    PANEL(q, QPANEL);
    PANEL(o, QPANEL);
    PANEL(dout, QPANEL);
    PANEL(dq, QPANEL);
    PANEL(lse, QUERIES);
    PANEL(delta, QUERIES); /* dout . o, row by row */
    PANEL(k, KPANEL_MAX);
    PANEL(kt, KPANEL_MAX);
    PANEL(vt, KPANEL_MAX);
    PANEL(dk, KPANEL_MAX);
    PANEL(dv, KPANEL_MAX);
    PANEL(p, SCORES);
    PANEL(ds, SCORES);
    PANEL(score_distances, DISTANCES); /* what is added to the scores */
    PANEL(grad_distances, DISTANCES);  /* and to the gradients of the weights */
    PANEL(p_distances, DISTANCES);     /* sums of p */
    PANEL(ds_distances, DISTANCES);    /* and of ds */
};
_Static_assert(sizeof(struct backward_panels) <= ATTEND_WORK, "the work space of a thread");

static void load_keys(const struct job *job, const struct tile *t, struct backward_panels *m)
{
    const struct attention *a = job->a;
    struct source k = key_rows(job, a->k, t->j, job->dk), v = key_rows(job, a->v, t->j, job->dv);
    load_columns(m->kt, t->ld, k, t->nj, job->dk);
    load_columns(m->vt, t->ld, v, t->nj, job->dv);
    load_rows(m->k, job->ldk, k, t->nj, job->dk, 1.0f);
}

static void load_queries(const struct job *job, const struct attention_grad *g,
                         const struct tile *t, struct backward_panels *m)
{
    const struct attention *a = job->a;
    int row = job->q0 + t->i;
    load_rows(m->q, job->ldk, query_rows(job, a->q, t->i, job->dk), t->ni, job->dk, job->scale);
    load_rows(m->dout, job->ldv, query_rows(job, g->dout, t->i, job->dv), t->ni, job->dv, 1.0f);
    load_rows(m->o, job->ldv, query_rows(job, a->o, t->i, job->dv), t->ni, job->dv, 1.0f);
    for (int from = 0; from < t->ni; from += W) {
        vf part[W];
        for (int r = 0; r < W; r++) {
            part[r] = (vf){0};
            if (from + r >= t->ni) continue;
            size_t at = (size_t)(from + r) * job->ldv;
            for (int c = 0; c < job->ldv; c += W)
                part[r] += load(m->dout + at + c) * load(m->o + at + c);
            m->lse[from + r] = *(const float *)mat_at(a->lse, row + from + r, job->head);
        }
        store(m->delta + from, sum_rows(part, W));
    }
    if (!a->relative_k.p) return;
    size_t bytes = (size_t)t->ni * distances_width(job) * sizeof *m->p_distances;
    distances_from(job, t->ni, m->score_distances, m->q, job->ldk, job->tables->relative_kt);
    distances_from(job, t->ni, m->grad_distances, m->dout, job->ldv, job->tables->relative_vt);
    memset(m->p_distances, 0, bytes);
    memset(m->ds_distances, 0, bytes);
}

INLINE void grad_softmax_as(const struct job *job, const struct tile *t, struct backward_panels *m,
                            bool window)
{
    bool drop = job->a->drop.p > 0;
    for (int r = 0; r < t->ni; r++) {
        float *p = m->p + r * t->ld, *ds = m->ds + r * t->ld;
        struct drop_row d = drop ? weight_drop(job, t->i + r) : (struct drop_row){0};
        struct key_span sees = tile_sees_as(job, t, r, 1, window);
        int c = 0, start = span_start(sees);
        for (; c < start; c += W) store(p + c, (vf){0}), store(ds + c, (vf){0});
        for (; c < sees.to; c += W) {
            vf x = vf_exp(load(p + c) - m->lse[r]);
            x = vf_pick(lanes_below(sees.to - c), x, vf_all(0.0f));
            vf keep = drop ? vf_drop(d, (uint32_t)(t->j + c)) : vf_all(1.0f);
            store(p + c, x * keep);
            store(ds + c, x * (load(ds + c) * keep - m->delta[r]));
        }
        for (; c < t->ld; c += W) store(p + c, (vf){0}), store(ds + c, (vf){0});
    }
}

/* Computes p, the weights after dropout, and ds, the gradient of the scores; both are 0 where a key
 * is masked. */
static void grad_scores(const struct job *job, const struct tile *t, struct backward_panels *m)
{
    if (job->a->additive.p)
        additive_scores(job, t, m->p, m->q, m->kt);
    else
        scores(job, t, m->p, m->q, job->ldk, m->kt, job->dk);
    change_scores(job, t, m->p, m->score_distances);
    scores(job, t, m->ds, m->dout, job->ldv, m->vt, job->dv);
    if (job->a->relative_v.p) add_distances(job, t, m->ds, 0.0f, m->grad_distances);
    if (job->window)
        grad_softmax_as(job, t, m, true);
    else
        grad_softmax_as(job, t, m, false);
}

/* Ends the work on the queries of a tile whose tiles of keys are all done: adds what the vectors
 * for distances contribute to dq, and the gradients of these vectors, and stores dq. q was scaled
 * as it was copied, so its gradient is scaled too. */
static void finish_queries(const struct job *job, const struct attention_grad *g,
                           const struct tile *t, struct backward_panels *m)
{
    if (job->a->relative_k.p) {
        close_distances(job, t->ni, m->p_distances);
        close_distances(job, t->ni, m->ds_distances);
        weigh_distances(job, t->ni, m->dq, job->ldk, m->ds_distances, job->tables->relative_k);
        weigh_distances_back(job, t->ni, g->drelative_k, m->ds_distances, m->q, job->ldk);
        weigh_distances_back(job, t->ni, g->drelative_v, m->p_distances, m->dout, job->ldv);
    }
    store_rows(g->dq, job->q0 + t->i, job->head * job->dk, m->dq, job->ldk, t->ni, job->dk,
               job->scale);
}

static void store_keys(const struct job *job, const struct attention_grad *g, const struct tile *t,
                       const struct backward_panels *m)
{
    int row = job->k0 + t->j;
    store_rows(g->dk, row, job->kv_head * job->dk, m->dk, job->ldk, t->nj, job->dk, 1.0f);
    store_rows(g->dv, row, job->kv_head * job->dv, m->dv, job->ldv, t->nj, job->dv, 1.0f);
}

/* Adds to dk and dv, for `keys`, and to dq, for `queries`, what a tile contributes; more: whether
 * dq has the sums of earlier tiles. */
static void add_tile(const struct job *job, const struct attention_grad *g, const struct tile *t,
                     bool keys, bool queries, bool more, struct backward_panels *m)
{
    const struct attention *a = job->a;
    if (keys) weigh_back(job, t, m->dv, m->p, m->dout, job->ldv);
    if (a->additive.p) {
        additive_back(job, t, m->ds, m->q, m->k, keys ? m->dk : NULL, queries ? m->dq : NULL, more,
                      mat_at(g->dadditive, job->head, 0));
    } else {
        if (keys) weigh_back(job, t, m->dk, m->ds, m->q, job->ldk);
        if (queries) weigh(job, t, m->dq, more, m->ds, m->k, job->ldk);
    }
    if (!queries || !a->relative_k.p) return;
    sum_distances(job, t, m->p_distances, m->p);
    sum_distances(job, t, m->ds_distances, m->ds);
}

/* Adds to dk and dv of the key block from key j on what one head contributes. In a sentence of one
 * key block all keys of a query are in one tile, so dq is computed here too. */
static void add_head(const struct job *job, const struct attention_grad *g, int j,
                     struct backward_panels *m)
{
    bool one_block = job->nk <= job->keys;
    for (int i = 0; i < job->nq; i += job->queries) {
        struct tile t = tile_make(job, i, job->nq, j);
        if (!one_block && tile_sees(job, &t, 0, t.ni).to == 0) continue;
        load_queries(job, g, &t, m);
        grad_scores(job, &t, m);
        add_tile(job, g, &t, true, one_block, false, m);
        if (one_block) finish_queries(job, g, &t, m);
    }
}

/* Computes dk and dv, key block by key block, as sums over the heads that share them, in order.
 * job: that of the first of these heads */
static void backward_keys(struct job *job, const struct attention_grad *g,
                          struct backward_panels *m)
{
    int j = 0, first = job->head, end = first + attention_shared(job->a);
    do {
        struct tile t = tile_make(job, 0, job->nq, j);
        load_keys(job, &t, m);
        memset(m->dk, 0, (size_t)t.nj * job->ldk * sizeof *m->dk);
        memset(m->dv, 0, (size_t)t.nj * job->ldv * sizeof *m->dv);
        for (int head = first; head < end; head++) {
            job_set_head(job, head);
            add_head(job, g, j, m);
        }
        store_keys(job, g, &t, m);
    } while ((j += job->keys) < job->nk);
}

/* Computes dq of one head, query block by query block, for sentences of more than one key block. It
 * computes the tiles a second time, so that the work space need not grow with the sentence. */
static void backward_queries(const struct job *job, const struct attention_grad *g,
                             struct backward_panels *m)
{
    for (int i = 0; i < job->nq; i += job->queries) {
        struct tile t = tile_make(job, i, job->nq, 0);
        struct key_span sees = job_sees(job, i, t.ni);
        bool more = false; /* whether dq has the sums of earlier key blocks */
        int j = next_block(job, sees, -job->keys);
        load_queries(job, g, &t, m);
        do {
            t = tile_make(job, i, job->nq, j);
            load_keys(job, &t, m);
            grad_scores(job, &t, m);
            add_tile(job, g, &t, false, true, more, m);
            more = true;
        } while ((j = next_block(job, sees, j)) < sees.to);
        finish_queries(job, g, &t, m);
    }
}

static void backward(const struct attention *a, const struct attend_tables *tables,
                     const struct attention_grad *g, int sentence, int kv_head, void *work)
{
    int shared = attention_shared(a);
    struct job job = job_make(a, tables, sentence, kv_head * shared);
    backward_keys(&job, g, work);
    for (int h = 0; h < shared && job.nk > job.keys; h++) {
        job_set_head(&job, kv_head * shared + h);
        backward_queries(&job, g, work);
    }
}

const struct attend_kernels OF_ISA(attend) = {ISA_TEXT, forward, backward};
