/*
 * attention_plain.cu - attention of any width, type and alignment in f32 arithmetic: for widths
 * that no other kernel supports, for gradients in f32, and for attention weights.
 *
 * One warp computes one row: a query, or in the second half of backward a key. It goes through the
 * keys, or queries, 32 at a time: each lane first computes the dot product with one of them, then
 * the sums of some columns.
 */
#include "ops/cuda/attention_device.h"
#include "ops/cuda/attention_parts.h"

enum { WARPS = 4 }; /* of a block */

static __device__ float element(const struct mat &m, int row, int col)
{
    size_t at = (size_t)row * m.ld + col;
    return m.type == TYPE_BF16 ? __bfloat162float(((const bf16 *)m.p)[at]) : ((float *)m.p)[at];
}

static __device__ void set(const struct mat &m, int row, int col, float x)
{
    size_t at = (size_t)row * m.ld + col;
    if (m.type == TYPE_BF16)
        ((bf16 *)m.p)[at] = __float2bfloat16_rn(x);
    else
        ((float *)m.p)[at] = x;
}

/* The dot product of `width` columns of row i of x, from column xc on, and of row j of y, from
 * column yc on. */
static __device__ float dot(const struct mat &x, int i, int xc, const struct mat &y, int j, int yc,
                            int width)
{
    float sum = 0;
    for (int c = 0; c < width; c++) sum = fmaf(element(x, i, xc + c), element(y, j, yc + c), sum);
    return sum;
}

static __device__ float warp_sum(float x)
{
    for (int i = 16; i; i /= 2) x += __shfl_xor_sync(~0u, x, i);
    return x;
}

static __device__ float warp_max(float x)
{
    for (int i = 16; i; i /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, i));
    return x;
}

/* The row that a warp computes. */
struct work {
    struct sentence s;
    int i, head, dk, dv;
    int q, o, k, v; /* first columns of the head in q and o, and of its key/value head in k and v */
    float scale;
};

static __device__ void work_head(struct work &p, const struct attention &a, int head)
{
    int kv_head = kv_head_of(a, head);
    p.head = head;
    p.q = head * p.dk, p.o = head * p.dv;
    p.k = kv_head * p.dk, p.v = kv_head * p.dv;
}

/* heads: those that blocks are launched for, a.heads or a.kv_heads. With the latter, the head of
 * the work is the first of those that share the key/value head. */
static __device__ struct work work_here(const struct attention &a, int heads, int longest)
{
    struct work p;
    struct place place = place_of(blockIdx.x, heads, (longest + WARPS - 1) / WARPS);
    p.s = sentence_at(a.seqs, place.sentence);
    p.i = place.tile * WARPS + threadIdx.x / 32;
    p.dk = a.q.cols / a.heads, p.dv = a.o.cols / a.heads;
    p.scale = 1 / sqrtf((float)p.dk);
    work_head(p, a, place.head * (a.heads / heads));
    return p;
}

static __device__ int key_row(const struct attention &a, const struct sentence &s, int j)
{
    return a.seqs.at ? a.seqs.at[s.k + j] : s.k + j;
}

static __device__ float factor(const struct drop_site &d, uint2 key, int j)
{
    return dropped(d, key, j) ? 0 : d.scale;
}

/* to[c] = to[c] * keep + sum over j < n of w[j] * m(row[j], col + c). Each lane computes its own
 * columns, so no synchronization is needed. */
static __device__ void add_rows(float *to, float keep, const float *w, const struct mat &m,
                                const int *row, int n, int col, int width, int lane)
{
    for (int c = lane; c < width; c += 32) {
        float sum = to[c] * keep;
        for (int j = 0; j < n; j++) sum = fmaf(w[j], element(m, row[j], col + c), sum);
        to[c] = sum;
    }
}

static __device__ void set_rows(const struct mat &m, int row, int col, const float *x, int width,
                                float scale, int lane)
{
    for (int c = lane; c < width; c += 32) set(m, row, col + c, x[c] * scale);
}

static __global__ void forward(struct attention a, struct drop_site drop)
{
    __shared__ float sums[WARPS][HEAD_WIDTH_MAX], weight[WARPS][32];
    __shared__ int rows[WARPS][32];
    struct work p = work_here(a, a.heads, a.seqs.max_q);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (p.i >= p.s.nq) return;
    int row = p.s.q + p.i, keys = seen(p.s, p.i);
    uint2 mask = dropout_key(drop, (uint64_t)row * a.heads + p.head);
    float top = -INFINITY, total = 0, *o = sums[warp];
    for (int c = lane; c < p.dv; c += 32) o[c] = 0;
    for (int j0 = 0; j0 < keys; j0 += 32) {
        int j = j0 + lane, key = key_row(a, p.s, min(j, keys - 1));
        float s = j < keys ? dot(a.q, row, p.q, a.k, key, p.k, p.dk) * p.scale : -INFINITY;
        float before = top;
        top = fmaxf(top, warp_max(s));
        float keep = expf(before - top), w = expf(s - top);
        total = total * keep + warp_sum(w);
        __syncwarp();
        rows[warp][lane] = key;
        weight[warp][lane] = w * factor(drop, mask, j);
        __syncwarp();
        add_rows(o, keep, weight[warp], a.v, rows[warp], min(32, keys - j0), p.v, p.dv, lane);
    }
    set_rows(a.o, row, p.o, o, p.dv, keys ? 1 / total : 0, lane);
    if (a.lse.p && lane == 0) set(a.lse, row, p.head, keys ? top + logf(total) : -INFINITY);
}

static __global__ void weights(struct attention a)
{
    struct work p = work_here(a, a.heads, a.seqs.max_q);
    if (p.i >= p.s.nq) return;
    int row = p.s.q + p.i, keys = seen(p.s, p.i);
    float lse = element(a.lse, row, p.head);
    float *to = (float *)a.weights.p + ((size_t)row * a.heads + p.head) * a.weights.ld;
    for (int j = threadIdx.x % 32; j < a.weights.cols; j += 32)
        to[j] = j < keys
                    ? expf(dot(a.q, row, p.q, a.k, key_row(a, p.s, j), p.k, p.dk) * p.scale - lse)
                    : 0;
}

/* The weight of (query i, key j) before dropout, and the gradient of its score. */
static __device__ float2 weight_and_slope(const struct attention &a, const struct attention_grad &g,
                                          const struct work &p, int i, int j, float delta,
                                          float mask)
{
    int q = p.s.q + i, k = p.s.k + j;
    float s = dot(a.q, q, p.q, a.k, k, p.k, p.dk) * p.scale;
    float w = expf(s - element(a.lse, q, p.head));
    float dw = dot(g.dout, q, p.o, a.v, k, p.v, p.dv) * mask;
    return make_float2(w, w * (dw - delta));
}

static __global__ void backward_queries(struct attention a, struct attention_grad g,
                                        struct drop_site drop)
{
    __shared__ float sums[WARPS][HEAD_WIDTH_MAX], slope[WARPS][32];
    __shared__ int rows[WARPS][32];
    struct work p = work_here(a, a.heads, a.seqs.max_q);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (p.i >= p.s.nq) return;
    int row = p.s.q + p.i, keys = seen(p.s, p.i);
    uint2 mask = dropout_key(drop, (uint64_t)row * a.heads + p.head);
    float delta = 0, *dq = sums[warp];
    for (int c = lane; c < p.dv; c += 32)
        delta += element(g.dout, row, p.o + c) * element(a.o, row, p.o + c);
    delta = warp_sum(delta);
    for (int c = lane; c < p.dk; c += 32) dq[c] = 0;
    for (int j0 = 0; j0 < keys; j0 += 32) {
        int j = j0 + lane;
        __syncwarp();
        if (j < keys) {
            slope[warp][lane] = weight_and_slope(a, g, p, p.i, j, delta, factor(drop, mask, j)).y;
            rows[warp][lane] = p.s.k + j;
        }
        __syncwarp();
        add_rows(dq, 1, slope[warp], a.k, rows[warp], min(32, keys - j0), p.k, p.dk, lane);
    }
    set_rows(g.dq, row, p.q, dq, p.dk, p.scale, lane);
}

static __global__ void backward_keys(struct attention a, struct attention_grad g, struct drop_site drop)
{
    __shared__ float dk_sums[WARPS][HEAD_WIDTH_MAX], dv_sums[WARPS][HEAD_WIDTH_MAX];
    __shared__ float weight[WARPS][32], slope[WARPS][32];
    __shared__ int rows[WARPS][32];
    struct work p = work_here(a, a.kv_heads, a.seqs.max_k);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, j = p.i;
    if (j >= p.s.nk) return;
    float *dk = dk_sums[warp], *dv = dv_sums[warp];
    for (int c = lane; c < p.dk; c += 32) dk[c] = 0;
    for (int c = lane; c < p.dv; c += 32) dv[c] = 0;
    for (int h = 0, shared = a.heads / a.kv_heads; h < shared; h++) {
        if (h) work_head(p, a, p.head + 1);
        for (int i0 = max(0, j - p.s.ahead); i0 < p.s.nq; i0 += 32) {
            int i = i0 + lane, row = p.s.q + i;
            __syncwarp();
            if (i < p.s.nq) {
                uint2 mask = dropout_key(drop, (uint64_t)row * a.heads + p.head);
                float m = factor(drop, mask, j);
                float delta = dot(g.dout, row, p.o, a.o, row, p.o, p.dv);
                float2 w = weight_and_slope(a, g, p, i, j, delta, m);
                weight[warp][lane] = w.x * m;
                slope[warp][lane] = w.y;
                rows[warp][lane] = row;
            }
            __syncwarp();
            int n = min(32, p.s.nq - i0);
            add_rows(dk, 1, slope[warp], a.q, rows[warp], n, p.q, p.dk, lane);
            add_rows(dv, 1, weight[warp], g.dout, rows[warp], n, p.o, p.dv, lane);
        }
    }
    set_rows(g.dk, p.s.k + j, p.k, dk, p.dk, p.scale, lane);
    set_rows(g.dv, p.s.k + j, p.v, dv, p.dv, 1, lane);
}

static int grid(const struct attention *a, int heads, int longest)
{
    return a->seqs.n * ((longest + WARPS - 1) / WARPS) * heads;
}

void attention_plain_forward(const struct attention *a, cudaStream_t stream)
{
    forward<<<grid(a, a->heads, a->seqs.max_q), WARPS * 32, 0, stream>>>(*a, drop_site(a->drop));
}

void attention_weights(const struct attention *a, cudaStream_t stream)
{
    weights<<<grid(a, a->heads, a->seqs.max_q), WARPS * 32, 0, stream>>>(*a);
}

void attention_plain_backward(const struct attention *a, const struct attention_grad *g,
                              cudaStream_t stream)
{
    struct drop_site drop = drop_site(a->drop);
    if (a->seqs.max_q)
        backward_queries<<<grid(a, a->heads, a->seqs.max_q), WARPS * 32, 0, stream>>>(*a, *g, drop);
    if (a->seqs.max_k)
        backward_keys<<<grid(a, a->kv_heads, a->seqs.max_k), WARPS * 32, 0, stream>>>(*a, *g, drop);
}
