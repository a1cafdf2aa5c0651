/*
 * attention_kernels.c - softmax(q kT / sqrt(dk)) v of one sentence and one head, and its gradient
 * (paper 3.2.1). Compiled once per ISA; see attention.h.
 *
 * The scores are never stored as a whole but computed in tiles of a block of queries by a block of
 * keys; most sentences are one tile. The rows of a tile are copied to panels (panel.h), keys
 * transposed, so that scores are vectors over keys. All products of both passes are then the same
 * kernel:
 *
 *   forward:  s = q kT;  p = exp(s - top), top and sum kept running over key blocks;  o = p v / sum
 *   backward: s = q kT;  p = exp(s - lse);  dp = do vT;  ds = p * (dp - delta), delta = do . o;
 *             dv = pT do;  dk = dsT q;  dq = ds k
 *
 * q is scaled by 1/sqrt(dk) as it is copied. Dropout multiplies p after the sum is taken, and dp.
 * The weight of a masked key is exactly 0 and every sum runs over keys or columns in one order, so
 * the bits of a query do not depend on the tile it is in.
 */
#include "base/minmax.h"
#include "ops/cpu/attention.h"
#include "ops/cpu/panel.h"

enum {
    QUERIES = 32, /* most queries of a tile */
    KEYS = 128,   /* most keys of a tile */
    SCORES = QUERIES * KEYS,
    QPANEL = 4096,         /* floats of a panel of query rows */
    KPANEL = 8192,         /* preferred floats of a panel of key rows */
    KPANEL_MAX = 16 * 1024 /* floats of a panel of key rows of the widest head */
};

static int clamp(int x, int low, int high)
{
    return x < low ? low : x > high ? high : x;
}

/* ---- sums and maxima of W vectors ---- */

/* Lane r of the result is the sum of the lanes of x[r], in lane order; x is overwritten. */
INLINE vf sum_rows(vf x[W])
{
    transpose(x);
    vf r = x[0];
    for (int l = 1; l < W; l++) r += x[l];
    return r;
}
INLINE vf top_rows(vf x[W])
{
    transpose(x);
    vf r = x[0];
    for (int l = 1; l < W; l++) r = vf_max(r, x[l]);
    return r;
}

/* A mask of the lanes below n; n may be negative or larger than W. */
INLINE vi lanes_below(int n)
{
    vi lane;
    for (int l = 0; l < W; l++) lane[l] = l;
    return lane < n;
}

/* ---- one sentence, one head, cut into tiles ---- */

struct job {
    const struct attention *a;
    int head, kv_head;
    int q0, nq, k0, nk; /* first row and number of rows of queries and keys */
    int dk, dv;         /* width of the head */
    int ldk, ldv;       /* width of the head in the panels: dk and dv rounded up to whole vectors */
    int queries, keys;  /* largest numbers of a tile */
    float scale;
};

static struct job job_make(const struct attention *a, int sentence, int head)
{
    const struct seqs *s = &a->seqs;
    struct job j = {.a = a, .head = head, .kv_head = head / attention_shared(a)};
    j.q0 = s->q[sentence];
    j.nq = s->q[sentence + 1] - j.q0;
    j.k0 = s->k[sentence];
    j.nk = s->klen[sentence];
    j.dk = attention_dk(a);
    j.dv = attention_dv(a);
    j.ldk = round_up(j.dk);
    j.ldv = round_up(j.dv);
    int wide = j.ldk > j.ldv ? j.ldk : j.ldv;
    j.queries = int_min(QUERIES, QPANEL / wide);
    j.keys = clamp(KPANEL / wide / 16 * 16, 16, KEYS);
    j.scale = 1.0f / sqrtf((float)j.dk);
    return j;
}

/* Rows of this head: of q, o or dout; and of k or v. */
static struct source query_rows(const struct job *j, struct mat m, int i, int width)
{
    return (struct source){m, NULL, j->q0 + i, j->head * width};
}
static struct source key_rows(const struct job *j, struct mat m, int first, int width)
{
    return (struct source){m, j->a->seqs.at, j->k0 + first, j->kv_head * width};
}

/* Number of keys that query i sees: all, or with a causal mask those up to its own position. */
static int job_seen(const struct job *j, int i)
{
    return j->a->seqs.causal ? clamp(j->nk - j->nq + i + 1, 0, j->nk) : j->nk;
}

/* Queries [i, i+ni) by keys [j, j+nj); ld: nj rounded up to whole vectors, the width of p. */
struct tile {
    int i, ni, j, nj, ld;
};

static struct tile tile_make(const struct job *job, int i, int last, int j)
{
    int nj = int_min(job->keys, job->nk - j);
    return (struct tile){i, int_min(job->queries, last - i), j, nj, round_up(nj)};
}
/* Number of keys of the tile that its row r sees. */
static int tile_seen(const struct job *job, const struct tile *t, int r)
{
    return clamp(job_seen(job, t->i + r) - t->j, 0, t->nj);
}
/* The first row of the tile that sees its key c; t->ni where no row does. */
static int tile_first(const struct job *job, const struct tile *t, int c)
{
    if (!job->a->seqs.causal) return 0;
    return clamp(t->j + c - (job->nk - job->nq) - t->i, 0, t->ni);
}

/* p [ni][ld] = x [ni][ldx] yT, yT [depth][ld]; vectors of keys that no query of a block of rows
 * sees are not computed. */
static void scores(const struct job *job, const struct tile *t, float *p, const float *x, int ldx,
                   const float *yt, int depth)
{
    for (int r = 0; r < t->ni; r += ROWS) {
        int rows = int_min(ROWS, t->ni - r);
        product(p + r * t->ld, t->ld, false, (struct left){x + r * ldx, ldx, 1}, yt, t->ld, rows,
                depth, round_up(tile_seen(job, t, r + rows - 1)));
    }
}

/* o [ni][ld] (+)= p [ni][nj] y [nj][ld] */
static void weigh(const struct job *job, const struct tile *t, float *o, bool add, const float *p,
                  const float *y, int ld)
{
    for (int r = 0; r < t->ni; r += ROWS) {
        int rows = int_min(ROWS, t->ni - r);
        product(o + r * ld, ld, add, (struct left){p + r * t->ld, t->ld, 1}, y, ld, rows,
                tile_seen(job, t, r + rows - 1), ld);
    }
}

/* dy [nj][ld] += pT [nj][ni] x [ni][ld] */
static void weigh_back(const struct job *job, const struct tile *t, float *dy, const float *p,
                       const float *x, int ld)
{
    for (int c = 0; c < t->nj; c += ROWS) {
        int r = tile_first(job, t, c);
        product(dy + c * ld, ld, true, (struct left){p + r * t->ld + c, 1, t->ld}, x + r * ld, ld,
                int_min(ROWS, t->nj - c), t->ni - r, ld);
    }
}

static struct drop_row weight_drop(const struct job *job, int i)
{
    const struct attention *a = job->a;
    return drop_row(a->drop, (uint64_t)(job->q0 + i) * a->heads + job->head);
}

/* ---- forward ---- */

/* State of the online softmax of each query after some of its key blocks. */
struct running {
    PANEL(top, QUERIES);   /* largest score; -inf: no key yet */
    PANEL(sum, QUERIES);   /* of exp(score - top) */
    PANEL(scale, QUERIES); /* factor by which the last block scaled the weights of earlier blocks */
};

/* Sets the scores of masked keys to -inf; returns the largest of the others, lane by lane. */
INLINE vf mask_row(float *p, int seen)
{
    vf top = vf_all(-INFINITY);
    for (int c = 0; c < seen; c += W) {
        vf x = vf_pick(lanes_below(seen - c), load(p + c), vf_all(-INFINITY));
        store(p + c, x);
        top = vf_max(top, x);
    }
    return top;
}

/* Turns scores into exp(score - top), returns their sums lane by lane, then applies dropout. */
INLINE vf weigh_row(float *p, int ld, int seen, float top, bool drop, struct drop_row d, int key)
{
    vf sum = {0};
    int c = 0;
    for (; c < seen; c += W) {
        vf x = vf_exp(load(p + c) - top);
        sum += x;
        if (drop) x *= vf_drop(d, (uint32_t)(key + c));
        store(p + c, x);
    }
    for (; c < ld; c += W) store(p + c, (vf){0});
    return sum;
}

/* One step of the online softmax: turns the scores of a tile into weights, W rows at a time. */
static void soften(const struct job *job, const struct tile *t, float *p, struct running *run)
{
    bool drop = job->a->drop.p > 0;
    for (int g = 0; g < t->ni; g += W) {
        int n = int_min(W, t->ni - g), seen[W];
        vf part[W];
        for (int r = 0; r < W; r++) {
            seen[r] = r < n ? tile_seen(job, t, g + r) : 0;
            part[r] = mask_row(p + (g + r) * t->ld, seen[r]);
        }
        vf old = load(run->top + g), top = vf_max(old, top_rows(part));
        /* A row without a key has no finite top; 0 stands in for it, as exp(-inf - 0) is 0. */
        vf base = vf_pick(top == -INFINITY, vf_all(0.0f), top);
        vf scale = vf_exp(old - base);
        for (int r = 0; r < n; r++) {
            struct drop_row d = drop ? weight_drop(job, t->i + g + r) : (struct drop_row){0};
            part[r] = weigh_row(p + (g + r) * t->ld, t->ld, seen[r], base[r], drop, d, t->j);
        }
        store(run->top + g, top);
        store(run->scale + g, scale);
        store(run->sum + g, load(run->sum + g) * scale + sum_rows(part));
    }
}

static void rescale(float *o, int n, int ld, const float *scale)
{
    for (int r = 0; r < n; r++)
        for (int c = 0; c < ld; c += W) store(o + r * ld + c, load(o + r * ld + c) * scale[r]);
}

static void finish(const struct job *job, const struct tile *t, float *o, struct running *run)
{
    const struct attention *a = job->a;
    for (int r = 0; r < t->ni; r++) {
        bool none = run->top[r] == -INFINITY;
        run->scale[r] = none ? 0.0f : 1.0f / run->sum[r];
        if (a->lse.p)
            *(float *)mat_at(a->lse, job->q0 + t->i + r, job->head) =
                none ? -INFINITY : run->top[r] + logf(run->sum[r]);
    }
    rescale(o, t->ni, job->ldv, run->scale);
    store_rows(a->o, job->q0 + t->i, job->head * job->dv, o, job->ldv, t->ni, job->dv, 1.0f);
}

INLINE void score_one_as(const struct job *job, const struct tile *t, float *p, const float *q,
                         enum type type)
{
    struct source k = key_rows(job, job->a->k, t->j, job->dk);
    for (int j = 0; j < t->nj; j += W) {
        vf sum = {0};
        for (int c = 0; c < job->dk; c += W) {
            vf x[W];
            load_block(x, &k, j, t->nj - j, c, job->dk, type);
#pragma GCC unroll 16
            for (int l = 0; l < W; l++) sum += q[c + l] * x[l];
        }
        store(p + j, sum);
    }
}

/* The scores of a single query, as in decoding. Its keys are used once, so they are transposed in
 * registers and not copied to a panel. The same sums in the same order as in scores(). */
static void score_one(const struct job *job, const struct tile *t, float *p, const float *q)
{
    if (job->a->k.type == TYPE_BF16)
        score_one_as(job, t, p, q, TYPE_BF16);
    else
        score_one_as(job, t, p, q, TYPE_F32);
}

INLINE void weigh_one_as(const struct job *job, const struct tile *t, float *o, bool add,
                         const float *p, enum type type)
{
    struct source v = key_rows(job, job->a->v, t->j, job->dv);
    int seen = tile_seen(job, t, 0);
    for (int c = 0; c < job->ldv; c += VECS * W) {
        vf sum[VECS];
        int vecs = int_min(VECS, (job->ldv - c) / W);
#pragma GCC unroll 4
        for (int n = 0; n < VECS; n++) sum[n] = add && n < vecs ? load(o + c + n * W) : (vf){0};
        for (int j = 0; j < seen; j++) {
            const char *row = source_row(&v, j);
#pragma GCC unroll 4
            for (int n = 0; n < VECS; n++)
                if (n < vecs) sum[n] += p[j] * load_edge(row, c + n * W, job->dv, type);
        }
#pragma GCC unroll 4
        for (int n = 0; n < VECS; n++)
            if (n < vecs) store(o + c + n * W, sum[n]);
    }
}

/* Like weigh() for a single query: values are read from their matrix, not from a panel. The same
 * sums in the same order. */
static void weigh_one(const struct job *job, const struct tile *t, float *o, bool add,
                      const float *p)
{
    if (job->a->v.type == TYPE_BF16)
        weigh_one_as(job, t, o, add, p, TYPE_BF16);
    else
        weigh_one_as(job, t, o, add, p, TYPE_F32);
}

/* The work space of forward: the panels of one tile. */
struct forward_panels {
    PANEL(q, QPANEL);
    PANEL(kt, KPANEL_MAX);
    PANEL(v, KPANEL_MAX);
    PANEL(p, SCORES);
    PANEL(o, QPANEL);
};
_Static_assert(sizeof(struct forward_panels) <= ATTEND_WORK, "the work space of a thread");

static void forward(const struct attention *a, int sentence, int head, int first, int last,
                    void *work)
{
    struct forward_panels *m = work;
    struct running run;
    struct job job = job_make(a, sentence, head);
    bool single = last - first == 1;
    int packed = -1; /* first key of the block that kt and v hold; -1: none */
    for (int i = first; i < last; i += job.queries) {
        struct tile t = tile_make(&job, i, last, 0);
        load_rows(m->q, job.ldk, query_rows(&job, a->q, i, job.dk), t.ni, job.dk, job.scale);
        for (int r = 0; r < QUERIES; r++) run.top[r] = -INFINITY, run.sum[r] = 0.0f;
        int j = 0, end = job_seen(&job, i + t.ni - 1);
        do {
            t = tile_make(&job, i, last, j);
            if (packed != j && !single) {
                load_columns(m->kt, t.ld, key_rows(&job, a->k, j, job.dk), t.nj, job.dk);
                load_rows(m->v, job.ldv, key_rows(&job, a->v, j, job.dv), t.nj, job.dv, 1.0f);
                packed = j;
            }
            if (single)
                score_one(&job, &t, m->p, m->q);
            else
                scores(&job, &t, m->p, m->q, job.ldk, m->kt, job.dk);
            soften(&job, &t, m->p, &run);
            if (j) rescale(m->o, t.ni, job.ldv, run.scale);
            if (single)
                weigh_one(&job, &t, m->o, j > 0, m->p);
            else
                weigh(&job, &t, m->o, j > 0, m->p, m->v, job.ldv);
        } while ((j += job.keys) < end);
        finish(&job, &t, m->o, &run);
    }
}

/* ---- backward ---- */

/* The work space of backward: the panels of one tile. */
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
        store(m->delta + from, sum_rows(part));
    }
}

/* Computes p, the weights after dropout, and ds, the gradient of the scores; both are 0 where a key
 * is masked. */
static void grad_scores(const struct job *job, const struct tile *t, struct backward_panels *m)
{
    bool drop = job->a->drop.p > 0;
    scores(job, t, m->p, m->q, job->ldk, m->kt, job->dk);
    scores(job, t, m->ds, m->dout, job->ldv, m->vt, job->dv);
    for (int r = 0; r < t->ni; r++) {
        float *p = m->p + r * t->ld, *ds = m->ds + r * t->ld;
        struct drop_row d = drop ? weight_drop(job, t->i + r) : (struct drop_row){0};
        int c = 0, seen = tile_seen(job, t, r);
        for (; c < seen; c += W) {
            vf x = vf_exp(load(p + c) - m->lse[r]);
            x = vf_pick(lanes_below(seen - c), x, vf_all(0.0f));
            vf keep = drop ? vf_drop(d, (uint32_t)(t->j + c)) : vf_all(1.0f);
            store(p + c, x * keep);
            store(ds + c, x * (load(ds + c) * keep - m->delta[r]));
        }
        for (; c < t->ld; c += W) store(p + c, (vf){0}), store(ds + c, (vf){0});
    }
}

/* Stores dq of the queries of a tile. q was scaled as it was copied, so its gradient is scaled too.
 */
static void store_queries(const struct job *job, const struct attention_grad *g,
                          const struct tile *t, const struct backward_panels *m)
{
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

/* Adds to dk and dv of the key block from key j on what one head contributes. In a sentence of one
 * key block all keys of a query are in one tile, so dq is computed here too. */
static void add_head(const struct job *job, const struct attention_grad *g, int j,
                     struct backward_panels *m)
{
    bool one_block = job->nk <= job->keys;
    for (int i = 0; i < job->nq; i += job->queries) {
        struct tile t = tile_make(job, i, job->nq, j);
        if (!one_block && job_seen(job, i + t.ni - 1) <= j) continue;
        load_queries(job, g, &t, m);
        grad_scores(job, &t, m);
        weigh_back(job, &t, m->dv, m->p, m->dout, job->ldv);
        weigh_back(job, &t, m->dk, m->ds, m->q, job->ldk);
        if (!one_block) continue;
        weigh(job, &t, m->dq, false, m->ds, m->k, job->ldk);
        store_queries(job, g, &t, m);
    }
}

/* Computes dk and dv, key block by key block, as sums over the heads that share them, in order.
 * job: that of the first of these heads */
static void backward_keys(const struct job *job, const struct attention_grad *g,
                          struct backward_panels *m)
{
    int j = 0, end = job->head + attention_shared(job->a);
    do {
        struct tile t = tile_make(job, 0, job->nq, j);
        load_keys(job, &t, m);
        memset(m->dk, 0, (size_t)t.nj * job->ldk * sizeof *m->dk);
        memset(m->dv, 0, (size_t)t.nj * job->ldv * sizeof *m->dv);
        for (struct job one = *job; one.head < end; one.head++) add_head(&one, g, j, m);
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
        load_queries(job, g, &t, m);
        int j = 0, end = job_seen(job, i + t.ni - 1);
        do {
            t = tile_make(job, i, job->nq, j);
            load_keys(job, &t, m);
            grad_scores(job, &t, m);
            weigh(job, &t, m->dq, j > 0, m->ds, m->k, job->ldk);
        } while ((j += job->keys) < end);
        store_queries(job, g, &t, m);
    }
}

static void backward(const struct attention *a, const struct attention_grad *g, int sentence,
                     int kv_head, void *work)
{
    int shared = attention_shared(a);
    struct job job = job_make(a, sentence, kv_head * shared);
    backward_keys(&job, g, work);
    for (int h = 0; h < shared && job.nk > job.keys; h++, job.head++)
        backward_queries(&job, g, work);
}

#define NAME(a, b)  NAME_(a, b)
#define NAME_(a, b) a##_##b
#define TEXT(a)     TEXT_(a)
#define TEXT_(a)    #a

const struct attend_kernels NAME(attend, ISA) = {TEXT(ISA), forward, backward};
