/*
 * forms.h - private to the attention kernels: what the forms of attention besides the paper's do to
 * a tile; see struct attention in ops.h. Included once per ISA; see vec.h.
 *
 * Vectors for distances (relative) take part through short rows of R numbers a query, one for each
 * distance, instead of a product for each key:
 *
 *   scores += q . relative_k of their distance:  one product q relative_kT, then look-ups
 *   o += weights . relative_v of their distance: sums of the weights of equal distance, then one
 *                                                product with relative_v
 *
 * and likewise in backward. So that W look-ups or sums are one vector, such a row is stored between
 * W numbers on either side that stand for all the distances beyond the first and the last.
 */
#ifndef HEED_OPS_CPU_FORMS_H
#define HEED_OPS_CPU_FORMS_H
#include "ops/cpu/tile.h"

/* ---- distances of queries and keys ---- */

enum { DISTANCES = QUERIES * (W + (DISTANCES_MAX + W - 1) / W * W + W) }; /* floats */

/* Width of a row of numbers for distances; the first is number W of the row. */
static int distances_width(const struct job *job)
{
    return W + round_up(job->distances) + W;
}
/* The row of the tables for the lowest distance. */
static int distances_row(const struct job *job)
{
    return job->tables->relative_k.rows / 2 + job->lowest;
}

/* Where in such a row the numbers of the W keys begin of which the first is at distance d. */
INLINE int distance_at(const struct job *job, int d)
{
    return W + clamp(d - job->lowest, -W, job->distances);
}

/* y [ni] = x [ni][depth] tableT: the numbers for all distances of the rows x of some queries */
static void distances_from(const struct job *job, int ni, float *y, const float *x, int ldx,
                           struct mat tablet)
{
    int ld = distances_width(job), n = job->distances;
    const float *columns = mat_at(tablet, 0, distances_row(job));
    for (int r = 0; r < ni; r += ROWS)
        product(y + r * ld + W, ld, false, (struct left){x + r * ldx, ldx, 1}, columns, tablet.ld,
                int_min(ROWS, ni - r), tablet.rows, round_up(n));
    for (int r = 0; r < ni; r++, y += ld) {
        store(y, vf_all(y[W]));
        store(y + W + n, vf_all(y[W + n - 1]));
    }
}

/* x += the numbers for the distances of the keys - slope * distance, in the tile x [ni][ld];
 * numbers: NULL where there are none. */
static void add_distances(const struct job *job, const struct tile *t, float *x, float slope,
                          const float *numbers)
{
    for (int r = 0; r < t->ni; r++, x += t->ld) {
        struct key_span s = tile_sees(job, t, r, 1);
        int away = t->j - job_position(job, t->i + r); /* distance of the first key of the tile */
        const float *row = numbers ? numbers + r * distances_width(job) : NULL;
        for (int c = span_start(s); c < s.to; c += W) {
            vf d = __builtin_convertvector((vi)vu_lanes() + (away + c), vf);
            vf y = load(x + c) - slope * vf_max(d, -d);
            store(x + c, row ? y + load(row + distance_at(job, away + c)) : y);
        }
    }
}

/* sums [ni] += the weights p [ni][ld] of a tile, those of equal distance together */
static void sum_distances(const struct job *job, const struct tile *t, float *sums, const float *p)
{
    int ld = distances_width(job);
    for (int r = 0; r < t->ni; r++, p += t->ld, sums += ld) {
        struct key_span s = tile_sees(job, t, r, 1);
        int away = t->j - job_position(job, t->i + r);
        for (int c = span_start(s); c < s.to; c += W) {
            float *at = sums + distance_at(job, away + c);
            store(at, load(at) + load(p + c));
        }
    }
}

/* Adds the sums for the distances beyond the first and the last to these. */
static void close_distances(const struct job *job, int ni, float *sums)
{
    int ld = distances_width(job), n = job->distances;
    for (int r = 0; r < ni; r++, sums += ld) {
        sums[W] += vf_sum(load(sums));
        sums[W + n - 1] += vf_sum(load(sums + W + n));
    }
}

/* y [ni][ldy] += sums [ni][R] table [R][ldy] */
static void weigh_distances(const struct job *job, int ni, float *y, int ldy, const float *sums,
                            struct mat table)
{
    int ld = distances_width(job);
    for (int r = 0; r < ni; r += ROWS)
        product(y + r * ldy, ldy, true, (struct left){sums + r * ld + W, ld, 1},
                mat_at(table, distances_row(job), 0), table.ld, int_min(ROWS, ni - r),
                job->distances, ldy);
}

/* dtable [R][ldx] += sumsT [R][ni] x [ni][ldx], for the distances that occur */
static void weigh_distances_back(const struct job *job, int ni, struct mat dtable,
                                 const float *sums, const float *x, int ldx)
{
    int ld = distances_width(job);
    for (int d = 0; d < job->distances; d += ROWS)
        product(mat_at(dtable, distances_row(job) + d, 0), dtable.ld, true,
                (struct left){sums + W + d, 1, ld}, x, ldx, int_min(ROWS, job->distances - d), ni,
                ldx);
}

/* ---- window ---- */

/* Sets the scores of the keys between the first keys of the sentence and the window of a query to
 * -inf. */
static void hide_keys(const struct job *job, const struct tile *t, float *p)
{
    for (int r = 0; r < t->ni; r++, p += t->ld) {
        struct key_span s = tile_sees(job, t, r, 1);
        for (int c = s.first ? s.first / W * W : span_start(s); c < s.from; c += W) {
            vi hidden = lanes_below(s.from - c) & ~lanes_below(s.first - c);
            store(p + c, vf_pick(hidden, vf_all(-INFINITY), load(p + c)));
        }
    }
}

/* Does what the form of attention does to the scores of a tile. numbers: for relative, q times
 * relative_kT, by distances_from */
static void change_scores(const struct job *job, const struct tile *t, float *p,
                          const float *numbers)
{
    const struct attention *a = job->a;
    if (a->alibi || a->relative_k.p)
        add_distances(job, t, p, job->slope, a->relative_k.p ? numbers : NULL);
    if (job->window) hide_keys(job, t, p);
}

/* ---- additive scores ---- */

/* tanh(x) = (1 - e^-2|x|) / (1 + e^-2|x|) with the sign of x. The error is at most 1e-7 everywhere,
 * also near 0: scores are sums of many of these numbers. A NaN stays a NaN. */
INLINE vf vf_tanh(vf x)
{
    vu sign = vu_bits(x) & 0x80000000u;
    vf e = vf_exp(-2.0f * vf_bits(vu_bits(x) ^ sign));
    return vf_bits(vu_bits((1.0f - e) / (1.0f + e)) ^ sign);
}

/* p [ni][ld] = the sum over the columns c of additive[c] * tanh(q[c] + k[c]) */
static void additive_scores(const struct job *job, const struct tile *t, float *p, const float *q,
                            const float *kt)
{
    const float *a = mat_at(job->tables->additive, job->head, 0);
    for (int r = 0; r < t->ni; r++, p += t->ld, q += job->ldk) {
        struct key_span s = tile_sees(job, t, r, 1);
        for (int j = span_start(s); j < s.to; j += W) {
            vf sum = {0};
            for (int c = 0; c < job->dk; c++)
                sum += a[c] * vf_tanh(q[c] + load(kt + c * t->ld + j));
            store(p + j, sum);
        }
    }
}

/* What the gradient ds [ni][ld] of the scores gives: for `keys` dk [nj][ldk] += it, for `queries`
 * dq [ni][ldk] (+)= it and da [ldk] += it, the gradient of this head's row of additive. */
INLINE void additive_back_as(const struct job *job, const struct tile *t, const float *ds,
                             const float *q, const float *k, bool keys, float *dk, bool queries,
                             float *dq, bool add, float *da)
{
    const float *a = mat_at(job->tables->additive, job->head, 0);
    for (int r = 0; r < t->ni; r++, ds += t->ld, q += job->ldk) {
        struct key_span s = tile_sees(job, t, r, 1);
        for (int c = 0; c < job->ldk; c += W) {
            vf x = load(q + c), weight = load(a + c), sum = {0}, dweight = {0};
            for (int j = span_start(s); j < s.to; j++) {
                vf y = vf_tanh(x + load(k + j * job->ldk + c));
                vf d = ds[j] * weight * (1.0f - y * y);
                sum += d;
                dweight += ds[j] * y;
                if (keys) store(dk + j * job->ldk + c, load(dk + j * job->ldk + c) + d);
            }
            if (!queries) continue;
            float *to = dq + r * job->ldk + c;
            store(to, add ? load(to) + sum : sum);
            store(da + c, load(da + c) + dweight);
        }
    }
}

/* dk is NULL where it is not wanted, and so is dq. */
static void additive_back(const struct job *job, const struct tile *t, const float *ds,
                          const float *q, const float *k, float *dk, float *dq, bool add, float *da)
{
    if (dk && dq)
        additive_back_as(job, t, ds, q, k, true, dk, true, dq, add, da);
    else if (dk)
        /* the last three are not used */
        additive_back_as(job, t, ds, q, k, true, dk, false, dk, false, dk);
    else
        additive_back_as(job, t, ds, q, k, false, NULL, true, dq, add, da);
}

#endif
