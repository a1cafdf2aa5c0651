/*
 * attention_relative.h - learned vectors for distances in the attention kernels on tensor cores.
 *
 * A score is q . (k + relative_k[row]), where the row is that of the distance of key and query. So
 * a warp first computes the products of its 16 queries with every row of relative_k, which are few,
 * and then looks them up. Sums over the keys with relative_v, and with relative_k in backward, are
 * computed the other way: weights (or slopes) are first summed by the row that their key has for
 * the query, and then multiplied with the table. The outer rows are for many keys, and are summed
 * in registers. An inner row is for one key, so what belongs to it takes the place in shared memory
 * of the product that was looked up for it.
 */
#ifndef HEED_OPS_CUDA_ATTENTION_RELATIVE_H
#define HEED_OPS_CUDA_ATTENTION_RELATIVE_H
#include "ops/cuda/attention_device.h"

/* The tables in shared memory, shared by the warps of a block: tiles of bf16, zeros after the last
 * row. The tables are f32, so each is the sum of two tiles: the table rounded, and what the
 * rounding left, rounded. */
struct relative {
    int clip, last; /* the rows of distance 0 and of the largest */
    int padded;     /* rows of a tile */
    int pitch;      /* floats between the products of one query and the next */
    char *k, *k_rest, *v, *v_rest;
};

static __host__ __device__ inline int relative_padded(const struct attention &a)
{
    return (a.relative_k.rows + 15) / 16 * 16;
}
static __host__ __device__ inline int relative_pitch(const struct attention &a)
{
    return relative_padded(a) + 4;
}

/* Bytes of shared memory: of the tables, and of the products of some queries with one table. */
template <int D> static __host__ __device__ int relative_bytes(const struct attention &a)
{
    return 4 * relative_padded(a) * D * 2;
}
static __host__ __device__ inline int product_bytes(const struct attention &a, int queries)
{
    return queries * relative_pitch(a) * (int)sizeof(float);
}

template <int D>
static __device__ __forceinline__ struct relative relative_at(const struct attention &a, char *p)
{
    struct relative r;
    r.last = a.relative_k.rows - 1, r.clip = a.relative_k.rows / 2;
    r.padded = relative_padded(a), r.pitch = relative_pitch(a);
    const int bytes = r.padded * D * 2;
    r.k = p, r.k_rest = p + bytes, r.v = p + 2 * bytes, r.v_rest = p + 3 * bytes;
    return r;
}

/* Stores a table as a tile, and in `rest` what the rounding left. */
template <int D>
static __device__ __forceinline__ void bring_table(char *tile, char *rest, const struct mat &table,
                                                   int padded, int tid, int threads)
{
    const int chunks = D / 8;
    for (int i = tid; i < padded * chunks; i += threads) {
        int row = i / chunks, chunk = i % chunks;
        float4 x = make_float4(0, 0, 0, 0), y = x;
        if (row < table.rows) {
            const float *from = (const float *)table.p + (size_t)row * table.ld + chunk * 8;
            x = *(const float4 *)from, y = *(const float4 *)(from + 4);
        }
        uint4 h = make_uint4(pack(x.x, x.y), pack(x.z, x.w), pack(y.x, y.y), pack(y.z, y.w));
        *(uint4 *)(tile + chunk_at<D>(row, chunk)) = h;
        float2 a = unpack(h.x), b = unpack(h.y), c = unpack(h.z), d = unpack(h.w);
        *(uint4 *)(rest + chunk_at<D>(row, chunk)) =
            make_uint4(pack(x.x - a.x, x.y - a.y), pack(x.z - b.x, x.w - b.y),
                       pack(y.x - c.x, y.y - c.y), pack(y.z - d.x, y.w - d.y));
    }
}

/* The threads of the block store both tables; the caller must synchronize them. */
template <int D>
static __device__ __forceinline__ void bring_tables(const struct relative &r,
                                                    const struct attention &a)
{
    bring_table<D>(r.k, r.k_rest, a.relative_k, r.padded, threadIdx.x, blockDim.x);
    bring_table<D>(r.v, r.v_rest, a.relative_v, r.padded, threadIdx.x, blockDim.x);
}

/* The products of 16 tile rows, at address `rows`, with the rows of a table. to: [16, pitch]. The
 * caller must synchronize the warp. */
template <int D>
static __device__ __forceinline__ void table_products(float *to, const struct relative &r,
                                                      uint32_t rows, const char *tile,
                                                      const char *rest, int lane,
                                                      const struct lanes &l)
{
    for (int at = 0; at < r.padded; at += 16) {
        float c[2][4] = {};
#pragma unroll
        for (int step = 0; step < D / 16; step++) {
            uint32_t x[4], y[4];
            load_left(x, rows, step, l);
            load_right(y, shared_address(tile) + at * D * 2, step, l);
            multiply(c[0], x, y[0], y[1]);
            multiply(c[1], x, y[2], y[3]);
            load_right(y, shared_address(rest) + at * D * 2, step, l);
            multiply(c[0], x, y[0], y[1]);
            multiply(c[1], x, y[2], y[3]);
        }
        float *p = to + lane / 4 * r.pitch + at + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < 2; n++) {
            *(float2 *)(p + n * 8) = make_float2(c[n][0], c[n][1]);
            *(float2 *)(p + 8 * r.pitch + n * 8) = make_float2(c[n][2], c[n][3]);
        }
    }
}

/* The row of the tables for a distance. */
static __device__ __forceinline__ int distance_row(const struct relative &r, int distance)
{
    return max(0, min(r.last, r.clip + distance));
}

/* Whether a row is for one key of a query; otherwise it is one of the outer rows. */
static __device__ __forceinline__ bool inner_row(const struct relative &r, int row)
{
    return row > 0 && row < r.last;
}

/* What the keys of the outer rows add up to: lower[i], upper[i] of rows g + 8 i, in each lane over
 * its columns. */
struct outer {
    float lower[2], upper[2];
};

static __device__ __forceinline__ void outer_add(struct outer &o, const struct relative &r, int row,
                                                 int i, float x)
{
    if (row == 0)
        o.lower[i] += x;
    else if (row == r.last)
        o.upper[i] += x;
}

/* Sums over the lanes that have columns of the same rows. */
static __device__ __forceinline__ void outer_settle(struct outer &o)
{
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int e = 1; e < 4; e *= 2) {
            o.lower[i] += __shfl_xor_sync(~0u, o.lower[i], e);
            o.upper[i] += __shfl_xor_sync(~0u, o.upper[i], e);
        }
}

#endif
