/*
 * few.h - private to the attention kernels: the products of a tile of a few queries, as in
 * decoding.
 *
 * Such a tile is computed for several heads at once, because one head has too little work that is
 * independent. The rows of the panels are the queries of the first head, then those of the second,
 * and so on. Keys are used once, so they are not copied to a panel as a whole, and values are read
 * from their matrix. The sums are those of scores() and weigh(), in the same order, so the bits of
 * a query do not depend on the number of queries of its tile. Included once per ISA; see vec.h.
 */
#ifndef HEED_OPS_CPU_FEW_H
#define HEED_OPS_CPU_FEW_H
#include "ops/cpu/tile.h"

/* Most queries of such a tile, and most of its heads. */
enum { FEW = 4, FEW_HEADS = QUERIES / FEW };

/* Where the rows of the keys and the values of a tile begin, all heads side by side. After the last
 * key of the tile that key comes again, up to whole vectors: its scores there are masked. */
struct few_rows {
    const char *k[KEYS], *v[KEYS];
};

static void few_rows_find(struct few_rows *rows, const struct job *job, const struct tile *t)
{
    const struct attention *a = job->a;
    struct source k = {a->k, a->seqs.at, job->k0 + t->j, 0};
    for (int j = 0; j < t->ld; j++) {
        int row = int_min(j, t->nj - 1) + k.row;
        if (k.at) row = k.at[row];
        rows->k[j] = mat_at(a->k, row, 0);
        rows->v[j] = mat_at(a->v, row, 0);
    }
}

/* ---- scores ---- */

/* A vector of keys of one head, transposed, and the queries and scores that belong to it. */
struct few_block {
    const float *q;  /* [R][ldk] */
    const float *kt; /* [ldk][W] */
    float *p;        /* [R][ld] */
};

/* p = q kT of n <= B blocks */
INLINE void score_blocks(const struct job *job, int ld, const struct few_block *b, int n,
                         const int R, const int B)
{
    vf sum[FEW][4] = {0};
    for (int c = 0; c < job->dk; c++) {
#pragma GCC unroll 4
        for (int i = 0; i < B; i++) {
            vf x = load(b[i].kt + c * W);
#pragma GCC unroll 4
            for (int r = 0; r < R; r++) sum[r][i] += b[i].q[r * job->ldk + c] * x;
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < B; i++)
#pragma GCC unroll 4
        for (int r = 0; r < R && i < n; r++) store(b[i].p + r * ld, sum[r][i]);
}

/* Prefetches what a head needs after the scores of its keys [j, j + W): the W keys after them, and
 * the values of keys [j, j + W). Those of many sentences are not in the cache, and waiting for them
 * takes longer than the arithmetic. size: bytes of a number of k and v */
INLINE void expect_after(const struct job *job, const struct few_rows *rows, int j, int ld,
                         size_t size)
{
    size_t k = job->dk * size, v = job->dv * size, line = 64;
    for (int l = j; l < j + W; l++) {
        const char *value = rows->v[l] + job->kv_head * v;
        for (size_t i = 0; i < v; i += line) __builtin_prefetch(value + i, 0, 2);
        if (l + W >= ld) continue;
        const char *key = rows->k[l + W] + job->kv_head * k;
        for (size_t i = 0; i < k; i += line) __builtin_prefetch(key + i, 0, 2);
    }
}

INLINE void score_few_as(const struct job *job, int heads, const struct tile *t, float *p,
                         const float *q, const struct few_rows *rows, float *kt, enum type type,
                         const int R)
{
    enum { MOST = 4 };
    const int B = R <= 2 ? MOST : MOST / 2; /* blocks whose sums fit the registers */
    struct key_span s = tile_sees(job, t, 0, R);
    int size = job->ldk * W, fit = KPANEL_MAX / size;
    struct few_block b[MOST];
    for (int j = span_start(s); j < s.to; j += W)
        for (int h = 0; h < heads;) {
            int n = int_min(int_min(B, fit), heads - h);
            for (int i = 0; i < B; i++) {
                int from = i < n ? i : 0; /* a block that is missing is computed in vain */
                b[i] = (struct few_block){q + (h + from) * R * job->ldk, kt + from * size,
                                          p + (h + from) * R * t->ld + j};
            }
            for (int i = 0; i < n; i++) {
                load_columns_of(kt + i * size, W, rows->k + j,
                                (size_t)job[h + i].kv_head * job->dk * type_size(type), job->dk,
                                type);
                expect_after(job + h + i, rows, j, t->ld, type_size(type));
            }
            score_blocks(job, t->ld, b, n, R, B);
            h += n;
        }
}

/* ---- values ---- */

/* o [R][ldv] = or += p [R][ld] v */
INLINE void weigh_few_as(const struct job *job, const struct tile *t, float *o, bool add,
                         const float *p, const struct few_rows *rows, enum type type, const int R)
{
    struct key_span s = tile_sees(job, t, 0, R);
    size_t offset = (size_t)job->kv_head * job->dv * type_size(type);
    for (int c = 0; c < job->ldv; c += VECS * W) {
        vf sum[FEW][VECS] = {0};
        int vecs = int_min(VECS, (job->ldv - c) / W);
#pragma GCC unroll 4
        for (int r = 0; r < R && add; r++)
#pragma GCC unroll 4
            for (int n = 0; n < VECS; n++)
                if (n < vecs) sum[r][n] = load(o + r * job->ldv + c + n * W);
        for (int j = span_start(s); j < s.to; j++) {
#pragma GCC unroll 4
            for (int n = 0; n < VECS; n++) {
                if (n >= vecs) break;
                vf x = load_edge(rows->v[j] + offset, c + n * W, job->dv, type);
#pragma GCC unroll 4
                for (int r = 0; r < R; r++) sum[r][n] += p[r * t->ld + j] * x;
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; r++)
#pragma GCC unroll 4
            for (int n = 0; n < VECS; n++)
                if (n < vecs) store(o + r * job->ldv + c + n * W, sum[r][n]);
    }
}

/* ---- the number of queries and the element type as constants ---- */

#define WITH_QUERIES(n, narrow, f, ...)                                                            \
    switch (n) {                                                                                   \
        CASE_QUERIES(1, narrow, f, __VA_ARGS__);                                                   \
        CASE_QUERIES(2, narrow, f, __VA_ARGS__);                                                   \
        CASE_QUERIES(3, narrow, f, __VA_ARGS__);                                                   \
        CASE_QUERIES(4, narrow, f, __VA_ARGS__);                                                   \
    }
#define CASE_QUERIES(R, narrow, f, ...)                                                            \
    case R:                                                                                        \
        if (narrow)                                                                                \
            f(__VA_ARGS__, TYPE_BF16, R);                                                          \
        else                                                                                       \
            f(__VA_ARGS__, TYPE_F32, R);                                                           \
        break

/* The scores of the queries of all heads. kt [KPANEL_MAX]: memory */
static void score_few(const struct job *job, int heads, const struct tile *t, float *p,
                      const float *q, const struct few_rows *rows, float *kt)
{
    bool narrow = job->a->k.type == TYPE_BF16;
    WITH_QUERIES(t->ni, narrow, score_few_as, job, heads, t, p, q, rows, kt)
}

/* The sums of the values of one head. */
static void weigh_few(const struct job *job, const struct tile *t, float *o, bool add,
                      const float *p, const struct few_rows *rows)
{
    bool narrow = job->a->v.type == TYPE_BF16;
    WITH_QUERIES(t->ni, narrow, weigh_few_as, job, t, o, add, p, rows)
}

#endif
