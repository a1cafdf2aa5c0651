/*
 * attention_tiles.cu - attention in bf16 on the tensor cores, heads of up to 128.
 *
 * A group of warps computes one head of up to 128 queries of a sentence, each warp 16 of them. The
 * group copies the queries and their keys and values to shared memory: all at once where they fit,
 * otherwise 64 keys at a time, copying the next ones while it computes. A warp goes over the keys
 * in steps of 32 (16 at the end) with the running maximum and sum of the online softmax, so the
 * bits of a query depend on its sentence alone. For short sentences a block has several groups, one
 * per head. With a window, a group skips the keys that none of its queries sees, and a warp those
 * that none of its own sees. See attention_relative.h for learned vectors for distances.
 */
#include <assert.h>

#include "ops/cuda/attention_device.h"
#include "ops/cuda/attention_parts.h"
#include "ops/cuda/attention_relative.h"

enum { MOST_WARPS = 8, ALL_KEYS = 128, SOME_KEYS = 64 };

/* How the work is divided; computed from what the host knows. */
struct cut {
    int warps;  /* of a group */
    int groups; /* of a block, one per head */
    int tiles;  /* of queries of the longest sentence */
    int keys;   /* rows of keys in shared memory at a time */
    struct widths widths;
};

template <int D> struct query_tile {
    uint32_t q[D / 16][4];
    float o[D / 8][4];
    float top[2], sum[2]; /* of rows g and g + 8; sum: over the columns of this lane */
    int seen[2];          /* number of keys that each row sees, or the end of the keys it sees */
    uint2 mask[2];
    /* of the forms besides the paper's */
    int position; /* of row g */
    float scale;  /* of scores, to base 2 */
    float slope;
    float *products; /* of row g with relative_k: see attention_relative.h */
    struct outer outer;
};

/* A score in another form than the paper's. r: 0 for row g, 1 for row g + 8; away: distance as a
 * float */
template <int D, enum form FORM>
static __device__ __forceinline__ float form_score(const struct query_tile<D> &t,
                                                   const struct attention &a,
                                                   const struct relative &rel, float s, int r,
                                                   int j, float away)
{
    int distance = j - t.position - 8 * r, row = 0;
    float *product = NULL;
    if (FORM == FORM_RELATIVE) {
        row = distance_row(rel, distance);
        product = t.products + 8 * r * rel.pitch + row;
        s += *product;
    }
    s = fmaf(-t.slope, fabsf(away), s);
    if (j >= t.seen[r] || before_window(a, distance, j)) s = -INFINITY;
    if (FORM == FORM_RELATIVE && inner_row(rel, row)) *product = s;
    return s;
}

/* Sums the weights of a step by rows of relative_v: those of the outer rows; of the inner rows, the
 * scores are kept, and are set to those of weight 0 where the weight was dropped. */
template <int D, int N>
static __device__ __forceinline__ void relative_weights(struct query_tile<D> &t,
                                                        const struct relative &rel,
                                                        const float (&w)[N][4], int j)
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int row = distance_row(rel, j + n * 8 + e % 2 - t.position - e / 2 * 8);
            outer_add(t.outer, rel, row, e / 2, w[n][e]);
            if (inner_row(rel, row) && w[n][e] == 0)
                t.products[e / 2 * 8 * rel.pitch + row] = -INFINITY;
        }
}

/* o += the weights of the rows of relative_v times these rows */
template <int D>
static __device__ __forceinline__ void relative_values(struct query_tile<D> &t,
                                                       const struct attention &a,
                                                       const struct relative &rel, int lane,
                                                       const struct lanes &l)
{
    const float scale = LOG2_E / sqrtf((float)D);
    outer_settle(t.outer);
    __syncwarp();
    for (int at = 0; at < rel.padded; at += 16) {
        float w[2][4];
        uint32_t left[4];
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int row = at + n * 8 + lane % 4 * 2 + e % 2, r = e / 2;
                int j = t.position + 8 * r + row - rel.clip;
                bool visible = j >= 0 && j < t.seen[r] && !before_window(a, row - rel.clip, j);
                float x = 0;
                if (row == 0)
                    x = t.outer.lower[r];
                else if (row == rel.last)
                    x = t.outer.upper[r];
                else if (row < rel.last && visible)
                    x = exp2_fast((t.products[8 * r * rel.pitch + row] - t.top[r]) * scale);
                w[n][e] = x;
            }
        as_left(left, w[0], w[1]);
        add_product<D>(t.o, left, shared_address(rel.v) + at * D * 2, l);
        add_product<D>(t.o, left, shared_address(rel.v_rest) + at * D * 2, l);
    }
}

/* One step of the online softmax, over keys [j0, j0 + 8 N) of the sentence. keys, values: addresses
 * of their rows in shared memory */
template <int D, int N, enum form FORM>
static __device__ __forceinline__ void attend_step(struct query_tile<D> &t, uint32_t keys,
                                                   uint32_t values, int j0,
                                                   const struct drop_site &drop, int lane,
                                                   const struct lanes &l, const struct attention &a,
                                                   const struct relative &rel)
{
    const float scale = FORM == FORM_DISTANCE ? t.scale : LOG2_E / sqrtf((float)D);
    float s[N][4] = {};
#pragma unroll
    for (int step = 0; step < D / 16; step++)
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t b[4];
            load_right(b, keys + n * 8 * D * 2, step, l);
            multiply(s[n], t.q[step], b[0], b[1]);
            multiply(s[n + 1], t.q[step], b[2], b[3]);
        }
    int j = j0 + lane % 4 * 2;
    float away = FORM ? (float)(j - t.position) : 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = t.top[r], sum = 0;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                if (FORM)
                    s[n][2 * r + e] =
                        form_score<D, FORM>(t, a, rel, s[n][2 * r + e], r, j + n * 8 + e,
                                            away + (float)(n * 8 + e - 8 * r));
                else if (j + n * 8 + e >= t.seen[r])
                    s[n][2 * r + e] = -INFINITY;
                top = fmaxf(top, s[n][2 * r + e]);
            }
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        float from = top == -INFINITY ? 0 : top * scale;
        float keep = exp2_fast(t.top[r] * scale - from);
        t.top[r] = top;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float w = exp2_fast(s[n][2 * r + e] * scale - from);
                sum += w;
                s[n][2 * r + e] = w;
            }
        t.sum[r] = t.sum[r] * keep + sum;
        if (FORM == FORM_RELATIVE) t.outer.lower[r] *= keep, t.outer.upper[r] *= keep;
#pragma unroll
        for (int n = 0; n < D / 8; n++) t.o[n][2 * r] *= keep, t.o[n][2 * r + 1] *= keep;
    }
    if (drop.threshold) {
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (dropped(drop, t.mask[e / 2], j + n * 8 + e % 2)) s[n][e] = 0;
    }
    if (FORM == FORM_RELATIVE) relative_weights<D, N>(t, rel, s, j);
#pragma unroll
    for (int n = 0; n < N; n += 2) {
        uint32_t w[4];
        as_left(w, s[n], s[n + 1]);
        add_product<D>(t.o, w, values + n * 8 * D * 2, l);
    }
}

/* ALL: all keys of a sentence fit in shared memory. Otherwise shared memory has two buffers: one is
 * read while the next keys are copied to the other. */
template <int D, bool ALL, enum form FORM>
static __global__ void __launch_bounds__(MOST_WARPS * 32, D == 128 || FORM == FORM_RELATIVE ? 1 : 2)
    forward(struct attention a, struct cut cut, struct drop_site drop)
{
    extern __shared__ __align__(TILE_ALIGN) char shared[];
    int warp = threadIdx.x / 32 % cut.warps, group = threadIdx.x / 32 / cut.warps;
    int lane = threadIdx.x % 32, threads = cut.warps * 32, tid = warp * 32 + lane;
    struct place place = place_of(blockIdx.x, a.heads / cut.groups, cut.tiles);
    int head = place.head * cut.groups + group, first = place.tile * cut.warps * 16;
    chain_wait();
    struct sentence s = sentence_at(a.seqs, place.sentence);
    if (first >= s.nq) return;

    const int row_bytes = D * 2, stages = ALL ? 1 : 2;
    char *tile = shared + group * (cut.warps * 16 + 2 * stages * cut.keys) * row_bytes;
    float *products = NULL;
    struct relative rel = {};
    if (FORM == FORM_RELATIVE) { /* the tables, then the products of all groups, then the tiles */
        rel = relative_at<D>(a, shared);
        bring_tables<D>(rel, a);
        products =
            (float *)(shared + relative_bytes<D>(a) + group * product_bytes(a, cut.warps * 16));
        tile += relative_bytes<D>(a) + cut.groups * product_bytes(a, cut.warps * 16);
    }
    uint32_t queries = shared_address(tile), keys = queries + cut.warps * 16 * row_bytes;
    const int stage_bytes = 2 * cut.keys * row_bytes, value_bytes = cut.keys * row_bytes;
    const struct widths w = head_widths<D, FORM>(cut.widths);
    const int kv_head = kv_head_of(a, head);
    const bf16 *q = (const bf16 *)a.q.p + (size_t)s.q * a.q.ld + head * w.dk;
    const bf16 *k = (const bf16 *)a.k.p + (size_t)s.k * a.k.ld + kv_head * w.dk;
    const bf16 *v = (const bf16 *)a.v.p + (size_t)s.k * a.v.ld + kv_head * w.dv;

    /* A step may read fewer than 16 rows after the last key; these are zeros. */
    int last_query = min(first + cut.warps * 16, s.nq) - 1, start = 0;
    int end = seen(s, last_query), blocks_done = 0;
    struct key_span need = {}; /* the keys that the group reads */
    if (FORM) {
        need = span_both(keys_seen<true>(a, s, first), keys_seen<true>(a, s, last_query));
        end = need.to, start = span_block(need, -1, cut.keys);
    }
    int end16 = (end + 15) / 16 * 16;
    int blocks = ALL ? 1 : max(1, (end + cut.keys - 1) / cut.keys);
    copy_tile<D>(queries, q, w.dk, a.q.ld, first, cut.warps * 16, s.nq, tid, threads);
    int copied = FORM ? start * cut.keys : 0, rows = min(cut.keys, end16 - copied);
    copy_tile<D>(keys, k, w.dk, a.k.ld, copied, rows, end, tid, threads);
    copy_tile<D>(keys + value_bytes, v, w.dv, a.v.ld, copied, rows, end, tid, threads);
    copy_commit();

    const struct lanes l = lanes_make<D>(lane);
    struct query_tile<D> t = {
    };
    int row = first + warp * 16 + lane / 4;
    int last = seen(s, min(first + warp * 16 + 15, s.nq - 1)); /* keys that the warp reads */
    struct key_span own = {};
    if (FORM) {
        own = span_both(keys_seen<true>(a, s, first + warp * 16),
                        keys_seen<true>(a, s, min(first + warp * 16 + 15, s.nq - 1)));
        last = own.to;
    }
    if (first + warp * 16 >= s.nq) last = 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        t.top[r] = -INFINITY;
        t.seen[r] = seen(s, row + 8 * r);
        t.mask[r] = dropout_key(drop, (uint64_t)(s.q + row + 8 * r) * a.heads + head);
        if (FORM) t.seen[r] = keys_seen<true>(a, s, row + 8 * r).to;
    }
    if (FORM) {
        t.position = s.behind + row, t.slope = slope_of(a, head, w.dk);
        t.scale = LOG2_E / sqrtf((float)w.dk);
        t.products = products + (warp * 16 + lane / 4) * relative_pitch(a);
    }
    for (int block = start, following; block < blocks; block = following, blocks_done++) {
        int stage = FORM ? blocks_done : block;
        uint32_t here = keys + stage % stages * stage_bytes;
        int j0 = block * cut.keys, next = j0 + cut.keys;
        following = FORM ? span_block(need, block, cut.keys) : block + 1;
        if (following < blocks) {
            uint32_t to = keys + (stage + 1) % stages * stage_bytes;
            int from = FORM ? following * cut.keys : next, rows = min(cut.keys, end16 - from);
            copy_tile<D>(to, k, w.dk, a.k.ld, from, rows, end, tid, threads);
            copy_tile<D>(to + value_bytes, v, w.dv, a.v.ld, from, rows, end, tid, threads);
            copy_commit();
            copy_wait<1>();
        } else {
            copy_wait<0>();
        }
        __syncthreads();
        if (block == start)
#pragma unroll
            for (int step = 0; step < D / 16; step++)
                load_left(t.q[step], queries + warp * 16 * row_bytes, step, l);
        if (FORM == FORM_RELATIVE && block == start) {
            table_products<D>(products + warp * 16 * rel.pitch, rel,
                              queries + warp * 16 * row_bytes, rel.k, rel.k_rest, lane, l);
            __syncwarp();
        }
        int stop = min(next, last), j = j0;
        for (; j + 16 < stop; j += 32, here += 32 * row_bytes) {
            if (FORM && !ALL && span_skips(own, j, 32)) continue;
            attend_step<D, 4, FORM>(t, here, here + value_bytes, j, drop, lane, l, a, rel);
        }
        if (j < stop)
            attend_step<D, 2, FORM>(t, here, here + value_bytes, j, drop, lane, l, a, rel);
        if (following < blocks) __syncthreads();
    }
    if (first + warp * 16 >= s.nq) return;
    if (FORM == FORM_RELATIVE) relative_values<D>(t, a, rel, lane, l);

    float scale[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = t.sum[r];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        scale[r] = sum == 0 ? 0 : drop.scale / sum; /* 0: it sees no key; a NaN stays a NaN */
        if (a.lse.p && lane % 4 == 0 && row + 8 * r < s.nq)
            ((float *)a.lse.p)[(size_t)(s.q + row + 8 * r) * a.lse.ld + head] =
                sum == 0 ? -INFINITY : t.top[r] / sqrtf((float)w.dk) + logf(sum);
    }
    bf16 *o = (bf16 *)a.o.p + (size_t)s.q * a.o.ld + head * w.dv;
    store_rows<D>(t.o, scale[0], scale[1], tile, warp * 16, o, w.dv, a.o.ld, first + warp * 16,
                  s.nq, lane);
}

template <int D, bool ALL, enum form FORM>
static void launch(const struct attention *a, struct chain chain)
{
    struct cut c;
    c.warps = (a->seqs.max_q + 15) / 16;
    if (c.warps > MOST_WARPS) c.warps = MOST_WARPS;
    c.tiles = (a->seqs.max_q + c.warps * 16 - 1) / (c.warps * 16);
    c.groups = heads_of_block(a, c.warps);
    c.keys = ALL ? (a->seqs.max_k + 15) / 16 * 16 : SOME_KEYS;
    c.widths = widths_of(a);
    int bytes = c.groups * (c.warps * 16 + (ALL ? 2 : 4) * c.keys) * D * 2;
    if (FORM == FORM_RELATIVE)
        bytes += relative_bytes<D>(*a) + c.groups * product_bytes(*a, c.warps * 16);
    allow_shared((const void *)forward<D, ALL, FORM>, bytes);
    int grid = a->seqs.n * c.tiles * (a->heads / c.groups);
    chain_launch(forward<D, ALL, FORM>, grid, c.groups * c.warps * 32, bytes, chain, *a, c,
                 drop_site(a->drop));
}

template <int D, bool ALL> static void launch(const struct attention *a, struct chain chain)
{
    enum form form = form_of(a);
    if (form == FORM_PAPER)
        launch<D, ALL, FORM_PAPER>(a, chain);
    else if (form == FORM_DISTANCE)
        launch<D, ALL, FORM_DISTANCE>(a, chain);
    else
        launch<D, ALL, FORM_RELATIVE>(a, chain);
}

template <int D> static void launch(const struct attention *a, struct chain chain)
{
    bool all = a->seqs.max_k <= (D == 128 ? SOME_KEYS : ALL_KEYS);
    all ? launch<D, true>(a, chain) : launch<D, false>(a, chain);
}

void attention_tiles_forward(const struct attention *a, struct chain chain)
{
    int width = compiled_width(a);
    width == 32 ? launch<32>(a, chain) : width == 64 ? launch<64>(a, chain) : launch<128>(a, chain);
}

template <int D> static bool relative_fits(const struct attention *a)
{
    int tiles = (MOST_WARPS * 16 + 4 * SOME_KEYS) * D * 2;
    return tiles + relative_bytes<D>(*a) + product_bytes(*a, MOST_WARPS * 16) <= shared_limit();
}

bool attention_tiles_take(const struct attention *a)
{
    enum { MOST_RELATIVE = 65 }; /* rows of the tables */
    int width = compiled_width(a);
    if (a->additive.p || a->relative_k.rows > MOST_RELATIVE) return false;
    if (!a->relative_k.p) return true;
    /* The kernels for learned vectors are compiled for tables that are D wide. */
    if (!fills_compiled_width(a)) return false;
    return width == 32   ? relative_fits<32>(a)
           : width == 64 ? relative_fits<64>(a)
                         : relative_fits<128>(a);
}
