/*
 * attention_tiles.cu - attention in bf16 on the tensor cores, heads of 32, 64 or 128.
 *
 * A group of warps computes one head of up to 128 queries of a sentence, each warp 16 of them. The
 * group copies the queries and their keys and values to shared memory: all at once where they fit,
 * otherwise 64 keys at a time, copying the next ones while it computes. A warp goes over the keys
 * in steps of 32 (16 at the end) with the running maximum and sum of the online softmax, so the
 * bits of a query depend on its sentence alone. For short sentences a block has several groups, one
 * per head.
 */
#include <assert.h>

#include "ops/cuda/attention_device.h"
#include "ops/cuda/attention_parts.h"

enum { MOST_WARPS = 8, ALL_KEYS = 128, SOME_KEYS = 64 };

/* How the work is divided; computed from what the host knows. */
struct cut {
    int warps;  /* of a group */
    int groups; /* of a block, one per head */
    int tiles;  /* of queries of the longest sentence */
    int keys;   /* rows of keys in shared memory at a time */
};

template <int D> struct query_tile {
    uint32_t q[D / 16][4];
    float o[D / 8][4];
    float top[2], sum[2]; /* of rows g and g + 8; sum: over the columns of this lane */
    int seen[2];          /* number of keys that each row sees */
    uint2 mask[2];
};

/* One step of the online softmax, over keys [j0, j0 + 8 N) of the sentence. keys, values: addresses
 * of their rows in shared memory */
template <int D, int N>
static __device__ __forceinline__ void attend_step(struct query_tile<D> &t, uint32_t keys,
                                                   uint32_t values, int j0,
                                                   const struct drop_site &drop, int lane,
                                                   const struct lanes &l)
{
    const float scale = LOG2_E / sqrtf((float)D);
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
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = t.top[r], sum = 0;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                if (j + n * 8 + e >= t.seen[r]) s[n][2 * r + e] = -INFINITY;
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
#pragma unroll
    for (int n = 0; n < N; n += 2) {
        uint32_t w[4];
        as_left(w, s[n], s[n + 1]);
        add_product<D>(t.o, w, values + n * 8 * D * 2, l);
    }
}

/* ALL: all keys of a sentence fit in shared memory. Otherwise shared memory has two buffers: one is
 * read while the next keys are copied to the other. */
template <int D, bool ALL>
static __global__ void __launch_bounds__(MOST_WARPS * 32, D == 128 ? 1 : 2)
    forward(struct attention a, struct cut cut, struct drop_site drop)
{
    extern __shared__ __align__(TILE_ALIGN) char shared[];
    int warp = threadIdx.x / 32 % cut.warps, group = threadIdx.x / 32 / cut.warps;
    int lane = threadIdx.x % 32, threads = cut.warps * 32, tid = warp * 32 + lane;
    struct place place = place_of(blockIdx.x, a.heads / cut.groups, cut.tiles);
    int head = place.head * cut.groups + group, first = place.tile * cut.warps * 16;
    struct sentence s = sentence_at(a.seqs, place.sentence);
    if (first >= s.nq) return;

    const int row_bytes = D * 2, stages = ALL ? 1 : 2;
    char *tile = shared + group * (cut.warps * 16 + 2 * stages * cut.keys) * row_bytes;
    uint32_t queries = shared_address(tile), keys = queries + cut.warps * 16 * row_bytes;
    const int stage_bytes = 2 * cut.keys * row_bytes, value_bytes = cut.keys * row_bytes;
    const bf16 *q = (const bf16 *)a.q.p + (size_t)s.q * a.q.ld + head * D;
    const int kv_column = kv_head_of(a, head) * D;
    const bf16 *k = (const bf16 *)a.k.p + (size_t)s.k * a.k.ld + kv_column;
    const bf16 *v = (const bf16 *)a.v.p + (size_t)s.k * a.v.ld + kv_column;

    /* A step may read fewer than 16 rows after the last key; these are zeros. */
    int end = seen(s, min(first + cut.warps * 16, s.nq) - 1), end16 = (end + 15) / 16 * 16;
    int blocks = ALL ? 1 : max(1, (end + cut.keys - 1) / cut.keys);
    copy_tile<D>(queries, q, a.q.ld, first, cut.warps * 16, s.nq, tid, threads);
    copy_tile<D>(keys, k, a.k.ld, 0, min(cut.keys, end16), end, tid, threads);
    copy_tile<D>(keys + value_bytes, v, a.v.ld, 0, min(cut.keys, end16), end, tid, threads);
    copy_commit();

    const struct lanes l = lanes_make<D>(lane);
    struct query_tile<D> t = {
    };
    int row = first + warp * 16 + lane / 4;
    int last = seen(s, min(first + warp * 16 + 15, s.nq - 1)); /* keys that the warp reads */
    if (first + warp * 16 >= s.nq) last = 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        t.top[r] = -INFINITY;
        t.seen[r] = seen(s, row + 8 * r);
        t.mask[r] = dropout_key(drop, (uint64_t)(s.q + row + 8 * r) * a.heads + head);
    }
    for (int block = 0; block < blocks; block++) {
        uint32_t here = keys + block % stages * stage_bytes;
        int j0 = block * cut.keys, next = j0 + cut.keys;
        if (block + 1 < blocks) {
            uint32_t to = keys + (block + 1) % stages * stage_bytes;
            int rows = min(cut.keys, end16 - next);
            copy_tile<D>(to, k, a.k.ld, next, rows, end, tid, threads);
            copy_tile<D>(to + value_bytes, v, a.v.ld, next, rows, end, tid, threads);
            copy_commit();
            copy_wait<1>();
        } else {
            copy_wait<0>();
        }
        __syncthreads();
        if (block == 0)
#pragma unroll
            for (int step = 0; step < D / 16; step++)
                load_left(t.q[step], queries + warp * 16 * row_bytes, step, l);
        int stop = min(next, last), j = j0;
        for (; j + 16 < stop; j += 32, here += 32 * row_bytes)
            attend_step<D, 4>(t, here, here + value_bytes, j, drop, lane, l);
        if (j < stop) attend_step<D, 2>(t, here, here + value_bytes, j, drop, lane, l);
        if (block + 1 < blocks) __syncthreads();
    }
    if (first + warp * 16 >= s.nq) return;

    float scale[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = t.sum[r];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        scale[r] = sum == 0 ? 0 : drop.scale / sum; /* 0: it sees no key; a NaN stays a NaN */
        if (a.lse.p && lane % 4 == 0 && row + 8 * r < s.nq)
            ((float *)a.lse.p)[(size_t)(s.q + row + 8 * r) * a.lse.ld + head] =
                sum == 0 ? -INFINITY : t.top[r] / sqrtf((float)D) + logf(sum);
    }
    bf16 *o = (bf16 *)a.o.p + (size_t)s.q * a.o.ld + head * D;
    store_rows<D>(t.o, scale[0], scale[1], tile, warp * 16, o, a.o.ld, first + warp * 16, s.nq,
                  lane);
}

template <int D, bool ALL> static void launch(const struct attention *a, cudaStream_t stream)
{
    struct cut c;
    c.warps = (a->seqs.max_q + 15) / 16;
    if (c.warps > MOST_WARPS) c.warps = MOST_WARPS;
    c.tiles = (a->seqs.max_q + c.warps * 16 - 1) / (c.warps * 16);
    c.groups = heads_of_block(a, c.warps);
    c.keys = ALL ? (a->seqs.max_k + 15) / 16 * 16 : SOME_KEYS;
    int bytes = c.groups * (c.warps * 16 + (ALL ? 2 : 4) * c.keys) * D * 2;
    allow_shared((const void *)forward<D, ALL>, bytes);
    int grid = a->seqs.n * c.tiles * (a->heads / c.groups);
    forward<D, ALL><<<grid, c.groups * c.warps * 32, bytes, stream>>>(*a, c, drop_site(a->drop));
}

void attention_tiles_forward(const struct attention *a, cudaStream_t stream)
{
    int width = attention_dk(a);
    bool all = a->seqs.max_k <= (width == 128 ? SOME_KEYS : ALL_KEYS);
    if (width == 32)
        all ? launch<32, true>(a, stream) : launch<32, false>(a, stream);
    else if (width == 64)
        all ? launch<64, true>(a, stream) : launch<64, false>(a, stream);
    else
        all ? launch<128, true>(a, stream) : launch<128, false>(a, stream);
}
