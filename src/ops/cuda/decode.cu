/*
 * decode.cu - the ops of decoding: packed weights, rows of the KV cache, the best next tokens.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/bf16.h"
#include "ops/cuda/device.h"

/* ---- packed weights: see mat_unpacked ---- */

static size_t packed_row_bytes(enum type type, int cols)
{
    struct mat m = {NULL, 1, cols, cols, type};
    m = mat_unpacked(m);
    return (size_t)m.ld * type_size(m.type);
}

size_t cuda_pack_bytes(enum type type, int rows, int cols)
{
    return (size_t)rows * packed_row_bytes(type, cols);
}

/* One row of stored weights as f32 */
static void stored_row(float *to, struct stored from, int row, int cols)
{
    size_t first = (size_t)row * cols;
    for (int i = 0; i < cols; i++) {
        if (from.type == TYPE_F32) to[i] = ((const float *)from.v)[first + i];
        if (from.type == TYPE_BF16) to[i] = bf16_to_float(((const uint16_t *)from.v)[first + i]);
        if (from.type == TYPE_I8) to[i] = from.scale[row] * ((const int8_t *)from.v)[first + i];
    }
}

static void pack_bytes_row(uint16_t *to, const int8_t *q, float unit, int cols, size_t row_bytes)
{
    for (int i = 0; i < cols; i++) to[i] = bf16_from_float(q[i]);
    memcpy((char *)to + row_bytes - PACKED_UNIT * sizeof *to, &unit, sizeof unit);
}

/* wide, narrow: buffers of one row */
static void pack_row(void *to, enum type type, struct stored from, int row, int cols, float *wide,
                     int8_t *narrow)
{
    size_t row_bytes = packed_row_bytes(type, cols);
    memset(to, 0, row_bytes);
    if (type == TYPE_PACKED_I8 && from.type == TYPE_I8) {
        pack_bytes_row((uint16_t *)to, (const int8_t *)from.v + (size_t)row * cols, from.scale[row],
                       cols, row_bytes);
        return;
    }
    stored_row(wide, from, row, cols);
    if (type == TYPE_PACKED_I8) {
        float unit = quant_row(narrow, wide, cols);
        pack_bytes_row((uint16_t *)to, narrow, unit, cols, row_bytes);
    } else if (type == TYPE_PACKED_BF16) {
        for (int i = 0; i < cols; i++) ((uint16_t *)to)[i] = bf16_from_float(wide[i]);
    } else {
        memcpy(to, wide, row_bytes);
    }
}

void cuda_pack(struct gpu *c, struct mat w, struct stored from)
{
    size_t row_bytes = packed_row_bytes(w.type, w.cols);
    char *host = (char *)malloc(w.rows * row_bytes + w.cols * (sizeof(float) + 1) + 1);
    if (!host) {
        if (!c->failed.status) error_memory(&c->failed, w.rows * row_bytes, "packed weights");
        return;
    }
    float *wide = (float *)(host + w.rows * row_bytes);
    int8_t *narrow = (int8_t *)(wide + w.cols);
    for (int row = 0; row < w.rows; row++)
        pack_row(host + row * row_bytes, w.type, from, row, w.cols, wide, narrow);
    memory_upload(c, w.p, host, w.rows * row_bytes, c->stream);
    free(host);
}

/* ---- the cache ---- */

enum { WARPS = 4 };

template <class T, class U, int V>
static __global__ void put_rows(rows<T> cache, rows<const U> from, const int32_t *at, int n,
                                int cols)
{
    int row = blockIdx.x * WARPS + threadIdx.y;
    chain_wait();
    if (row >= n) return;
    for (int col = threadIdx.x * V; col < cols; col += LANES * V) {
        float x[V];
        load(x, from.at(row, col));
        store(cache.at(at[row], col), x);
    }
}

template <class T, class U>
static void put_run(struct gpu *c, struct mat cache, struct mat from, const int32_t *at)
{
    rows<T> to = rows_of<T>(cache);
    rows<const U> source = rows_of<const U>(from);
    int blocks = ceiling(from.rows, WARPS);
    if (mat_wide(cache) && mat_wide(from))
        chain_launch(put_rows<T, U, 8>, blocks, dim3(LANES, WARPS), 0, c->chain, to, source, at,
                     from.rows, from.cols);
    else
        chain_launch(put_rows<T, U, 1>, blocks, dim3(LANES, WARPS), 0, c->chain, to, source, at,
                     from.rows, from.cols);
}

void cuda_cache_put(struct gpu *c, struct mat cache, struct mat from, const int32_t *at)
{
    bool f32 = cache.type == TYPE_F32, from_f32 = from.type == TYPE_F32;
    if ((!f32 && cache.type != TYPE_BF16) || (!from_f32 && from.type != TYPE_BF16))
        cuda_refuse(c, "numbers other than f32 and bf16");
    else if (f32)
        from_f32 ? put_run<float, float>(c, cache, from, at)
                 : put_run<float, bf16>(c, cache, from, at);
    else
        from_f32 ? put_run<bf16, float>(c, cache, from, at)
                 : put_run<bf16, bf16>(c, cache, from, at);
}

/* ---- the best next tokens ----
 *
 * One block computes one row, in two passes. In the first each thread finds the best of its own
 * tokens; the k-th best of these is a bound that at least k tokens reach. The second pass collects
 * the tokens that reach the bound, usually little more than k, and sorts them. Where there are more
 * than ROOM, the row is searched k times instead. A token's logit and id form one integer, its key,
 * so no two keys are equal and the order in which tokens are collected does not matter. */

enum { TOP_THREADS = 1024, ROOM = 4096 };

typedef unsigned long long key;

/* The key is larger for a larger logit, and for a lower id among equal logits. 0 is below all keys.
 */
static __device__ inline key key_of(float logit, int id)
{
    uint32_t u = __float_as_uint(logit == 0 ? 0.0f : logit); /* -0 is 0 */
    u = u & 0x80000000u ? ~u : u | 0x80000000u;
    return (key)u << 32 | (0xffffffffu - (uint32_t)id);
}
static __device__ inline int key_id(key k)
{
    return (int)(0xffffffffu - (uint32_t)k);
}

/* Bitonic sort of one key per thread of the first n, n a power of two, the largest first, into v.
 * Threads of one warp exchange keys by shuffles, others through v. */
static __device__ inline void sort_threads(key *v, key mine, int n)
{
    int self = threadIdx.x;
    for (int size = 2; size <= n; size *= 2)
        for (int step = size / 2; step > 0; step /= 2) {
            key other;
            if (step < LANES) {
                other = __shfl_xor_sync(ALL_LANES, mine, step);
            } else {
                __syncthreads();
                v[self] = mine;
                __syncthreads();
                other = v[self ^ step];
            }
            bool larger = ((self & size) == 0) == ((self & step) == 0);
            mine = (other > mine) == larger ? other : mine;
        }
    __syncthreads();
    v[self] = mine;
    __syncthreads();
}

/* Bitonic sort of v[n], n a power of two, the largest first. */
static __device__ inline void sort_keys(key *v, int n)
{
    for (int size = 2; size <= n; size *= 2)
        for (int step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            for (int i = threadIdx.x; i < n; i += TOP_THREADS) {
                int other = i ^ step;
                bool falls = (i & size) == 0;
                if (other > i && (v[i] < v[other]) == falls) {
                    key swap = v[i];
                    v[i] = v[other];
                    v[other] = swap;
                }
            }
        }
    __syncthreads();
}

static __device__ inline key block_max(key k)
{
    __shared__ key part[LANES];
    for (int i = LANES / 2; i > 0; i /= 2) {
        key other = __shfl_xor_sync(ALL_LANES, k, i);
        k = other > k ? other : k;
    }
    __syncthreads();
    if (threadIdx.x % LANES == 0) part[threadIdx.x / LANES] = k;
    __syncthreads();
    k = 0;
    for (int i = 0; i < TOP_THREADS / LANES; i++) k = part[i] > k ? part[i] : k;
    return k;
}

template <class T> static __device__ inline float number(const T *p)
{
    float x[1];
    load(x, p);
    return x[0];
}

/* best[k]: the k best of a row in order, found one after another; for rows in which more than ROOM
 * tokens reach the bound. */
template <class T> static __device__ void search(key *best, const T *row, int cols, int k)
{
    key last = ~(key)0;
    for (int j = 0; j < k; j++) {
        key mine = 0;
        for (int c = threadIdx.x; c < cols; c += TOP_THREADS) {
            key x = key_of(number(row + c), c);
            if (x < last && x > mine) mine = x;
        }
        last = block_max(mine);
        if (threadIdx.x == 0) best[j] = last;
    }
    __syncthreads();
}

template <class T, int V>
static __global__ void __launch_bounds__(TOP_THREADS)
    top_row(rows<const T> logits, int cols, int k, const int32_t *want, int wants, float *score,
            int32_t *id)
{
    __shared__ key v[ROOM];
    __shared__ int found;
    const T *row = logits.at(blockIdx.x, 0);
    chain_wait();
    key mine = 0;
    for (int col = threadIdx.x * V; col < cols; col += TOP_THREADS * V) {
        float x[V];
        load(x, row + col);
#pragma unroll
        for (int i = 0; i < V; i++) {
            key other = key_of(x[i], col + i);
            mine = other > mine ? other : mine;
        }
    }
    if (threadIdx.x == 0) found = 0;
    sort_threads(v, mine, TOP_THREADS);
    key bound = k <= TOP_THREADS ? v[k - 1] : 0;
    float max = number(row + key_id(v[0])), sum = 0;
    __syncthreads();
    for (int col = threadIdx.x * V; col < cols; col += TOP_THREADS * V) {
        float x[V];
        load(x, row + col);
#pragma unroll
        for (int i = 0; i < V; i++) {
            sum += expf(x[i] - max);
            key other = key_of(x[i], col + i);
            if (other < bound) continue;
            int at = atomicAdd(&found, 1);
            if (at < ROOM) v[at] = other;
        }
    }
    float over = logf(block_sum(sum));
    __syncthreads();
    int n = found, room = 2;
    while (room < n) room *= 2;
    if (n > ROOM) {
        search(v, row, cols, k);
    } else if (room <= TOP_THREADS) {
        sort_threads(v, threadIdx.x < n ? v[threadIdx.x] : 0, room);
    } else {
        for (int i = n + threadIdx.x; i < room; i += TOP_THREADS) v[i] = 0;
        sort_keys(v, room);
    }
    want += blockIdx.x * wants;
    score += (size_t)blockIdx.x * (k + wants);
    id += (size_t)blockIdx.x * (k + wants);
    for (int j = threadIdx.x; j < k + wants; j += TOP_THREADS) {
        int which = j < k ? key_id(v[j]) : want[j - k];
        score[j] = which < 0 ? -INFINITY : number(row + which) - max - over;
        id[j] = which;
    }
}

template <class T>
static void top_run(struct gpu *c, struct mat logits, int k, const int32_t *want, int wants,
                    float *score, int32_t *id)
{
    auto kernel = mat_wide(logits) ? top_row<T, 8> : top_row<T, 1>;
    chain_launch(kernel, logits.rows, TOP_THREADS, 0, c->chain, rows_of<const T>(logits),
                 logits.cols, k, want, wants, score, id);
}

void cuda_topk(struct gpu *c, struct mat logits, int k, const int32_t *want, int wants,
               float *score, int32_t *id)
{
    if (k > ROOM || k > logits.cols)
        cuda_refuse(c, "more candidates than 4,096 or than the vocabulary has");
    else if (logits.type == TYPE_F32)
        top_run<float>(c, logits, k, want, wants, score, id);
    else if (logits.type == TYPE_BF16)
        top_run<bf16>(c, logits, k, want, wants, score, id);
    else
        cuda_refuse(c, "numbers other than f32 and bf16");
}
