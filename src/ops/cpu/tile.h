/*
 * tile.h - private to the attention kernels: one head of one sentence, cut into tiles of a block of
 * queries by a block of keys, which of these keys the queries see, and the products of a tile.
 *
 * A key that a query does not see has the weight 0 exactly. So a sum over keys may run over more of
 * them than the query sees, but those that no query of a few rows sees are left out. Included once
 * per ISA; see vec.h.
 */
#ifndef HEED_OPS_CPU_TILE_H
#define HEED_OPS_CPU_TILE_H
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
    const struct attend_tables *tables;
    int head, kv_head;
    int q0, nq, k0, nk; /* first row and number of rows of queries and keys */
    int dk, dv;         /* width of the head */
    int ldk, ldv;       /* width of the head in the panels: dk and dv rounded up to whole vectors */
    int queries, keys;  /* largest numbers of a tile */
    float scale;
    float slope; /* what alibi subtracts from a score for each position of distance */
    bool window; /* whether some query does not see a key because of the window */
    /* The distances of queries and the keys they see that have a row of their own in relative_k:
     * the lowest, and how many. Those beyond share the first or the last of these rows. */
    int lowest, distances;
};

/* Turns the job into that of another head of the sentence. */
static void job_set_head(struct job *j, int head)
{
    j->head = head;
    j->kv_head = head / attention_shared(j->a);
    j->slope = (float)attention_slope(j->a, head);
}

static struct job job_make(const struct attention *a, const struct attend_tables *tables,
                           int sentence, int head)
{
    const struct seqs *s = &a->seqs;
    struct job j = {.a = a, .tables = tables};
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
    j.scale = a->additive.p ? 1.0f : 1.0f / sqrtf((float)j.dk);
    j.window = a->window && a->window < j.nk - 1;
    int clip = a->relative_k.rows / 2, reach = j.window && !a->global ? a->window : j.nk;
    j.lowest = -int_min(clip, reach);
    j.distances = 1 - j.lowest + (s->causal ? 0 : -j.lowest);
    job_set_head(&j, head);
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

/* The position of query i in the sentence: key j is at position j. */
static int job_position(const struct job *j, int i)
{
    return j->nk - j->nq + i;
}

/* The keys that one of the queries [i, i+n) sees, and perhaps more. What a query sees begins no
 * earlier than what the query before it sees. It also ends no earlier, except that the first
 * queries of a sentence may see all keys (`global`). */
static struct key_span job_sees(const struct job *j, int i, int n)
{
    struct key_span b = attention_sees(j->a, job_position(j, i + n - 1), j->nk);
    if (!j->window) return b;
    struct key_span a = attention_sees(j->a, job_position(j, i), j->nk);
    return (struct key_span){int_min(b.first, a.from), a.from, int_max(a.to, b.to)};
}

/* The first key of the next key block after the one from key j on that has keys of this span; the
 * first of all where j is -job->keys; s.to or more where there is no other. */
static int next_block(const struct job *job, struct key_span s, int j)
{
    j += job->keys;
    return j < s.first || j >= s.from ? j : int_max(j, s.from / job->keys * job->keys);
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

static struct key_span tile_sees_window(const struct job *job, const struct tile *t, int r, int n)
{
    struct key_span s = job_sees(job, t->i + r, n);
    s.first = clamp(s.first - t->j, 0, t->nj);
    s.from = clamp(s.from - t->j, 0, t->nj);
    s.to = clamp(s.to - t->j, 0, t->nj);
    return s.from < s.to ? s : (struct key_span){s.first, s.first, s.first};
}
/* What rows [r, r+n) of the tile see of its keys, counted from the first key of the tile. Loops
 * over rows give a constant for `window`, whether there is one, so that they are short without. */
INLINE struct key_span tile_sees_as(const struct job *job, const struct tile *t, int r, int n,
                                    bool window)
{
    if (window) return tile_sees_window(job, t, r, n);
    if (!job->a->seqs.causal) return (struct key_span){0, 0, t->nj};
    return (struct key_span){0, 0, clamp(job_position(job, t->i + r + n) - t->j, 0, t->nj)};
}
INLINE struct key_span tile_sees(const struct job *job, const struct tile *t, int r, int n)
{
    return tile_sees_as(job, t, r, n, job->window);
}

/* The first vector that has keys of a span of a tile. */
INLINE int span_start(struct key_span s)
{
    return s.first ? 0 : s.from & ~(W - 1);
}

/* The rows of the tile [*first, *last) that see one of its keys [c, c+n), and perhaps more. */
static void tile_seen_by(const struct job *job, const struct tile *t, int c, int n, int *first,
                         int *last)
{
    const struct attention *a = job->a;
    int position = job_position(job, t->i), key = t->j + c; /* of the first row and the first key */
    *first = a->seqs.causal ? clamp(key - position, 0, t->ni) : 0;
    *last = t->ni;
    if (!job->window || key < a->global) return;
    *last = clamp(key + n + a->window - position, *first, t->ni);
    if (position >= a->global) *first = clamp(key - a->window - position, *first, *last);
}

/* p [ni][ld] = x [ni][ldx] yT, yT [depth][ld]; vectors of keys that no query of a block of rows
 * sees are not computed. */
static void scores(const struct job *job, const struct tile *t, float *p, const float *x, int ldx,
                   const float *yt, int depth)
{
    for (int r = 0; r < t->ni; r += ROWS) {
        int rows = int_min(ROWS, t->ni - r);
        struct key_span s = tile_sees(job, t, r, rows);
        int start = span_start(s);
        product(p + r * t->ld + start, t->ld, false, (struct left){x + r * ldx, ldx, 1}, yt + start,
                t->ld, rows, depth, round_up(s.to) - start);
    }
}

/* o [ni][ld] (+)= p [ni][nj] y [nj][ld] */
static void weigh(const struct job *job, const struct tile *t, float *o, bool add, const float *p,
                  const float *y, int ld)
{
    for (int r = 0; r < t->ni; r += ROWS) {
        int rows = int_min(ROWS, t->ni - r);
        struct key_span s = tile_sees(job, t, r, rows);
        int start = span_start(s);
        product(o + r * ld, ld, add, (struct left){p + r * t->ld + start, t->ld, 1}, y + start * ld,
                ld, rows, s.to - start, ld);
    }
}

/* dy [nj][ld] += pT [nj][ni] x [ni][ld] */
static void weigh_back(const struct job *job, const struct tile *t, float *dy, const float *p,
                       const float *x, int ld)
{
    for (int c = 0; c < t->nj; c += ROWS) {
        int keys = int_min(ROWS, t->nj - c), first, last;
        tile_seen_by(job, t, c, keys, &first, &last);
        product(dy + c * ld, ld, true, (struct left){p + first * t->ld + c, 1, t->ld},
                x + first * ld, ld, keys, last - first, ld);
    }
}

static struct drop_row weight_drop(const struct job *job, int i)
{
    const struct attention *a = job->a;
    return drop_row(a->drop, (uint64_t)(job->q0 + i) * a->heads + job->head);
}

#endif
