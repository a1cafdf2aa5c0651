/*
 * linear_state.cu - linear attention of a decoding step, from states, and attention weights.
 *
 * A step reads each number of a state once and writes it once, so it takes as long as the memory
 * traffic of the states; nothing of a state is kept in shared memory.
 */
#include "ops/cuda/linear_attention.h"
#include "ops/cuda/linear_device.h"

enum { WARPS = 4, THREADS = WARPS * LANES, COLUMNS = 4 * LANES };

/* A block computes one sentence and one key/value head. Warps share the rows of S among them, and a
 * lane has four columns at a time. */
struct step_memory {
    float q[HEAD_WIDTH_MAX], k[HEAD_WIDTH_MAX]; /* phi(q) of one query and phi(k) */
    float part[WARPS][COLUMNS];                 /* sums over the rows of each warp */
};

/* Returns phi(q) z. With `to`, z of the new state is written first. */
static __device__ float step_sum(const struct job &j, const float *from, float *to,
                                 const struct step_memory &m)
{
    size_t z = (size_t)j.dk * j.dv;
    float sum = 0;
    for (int c = threadIdx.x; c < j.dk; c += THREADS) {
        float x = (from ? from[z + c] : 0) + (to ? m.k[c] : 0);
        if (to) to[z + c] = x;
        sum += m.q[c] * x;
    }
    return block_sum(sum);
}

/* o of one query in one head, and with `to` the new S. */
static __device__ void step_query(const struct attention &a, const struct job &j, int row, int head,
                                  const float *from, float *to, struct step_memory &m)
{
    int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    float sum = step_sum(j, from, to, m);
    if (threadIdx.x == 0) set_element(a.lse, row, head, sum);
    for (int d0 = 0; d0 < j.dv; d0 += COLUMNS) {
        float v[4], o[4] = {0, 0, 0, 0};
#pragma unroll
        for (int n = 0; n < 4; n++) {
            int d = d0 + n * LANES + lane;
            v[n] = to && d < j.dv ? element(a.v, row, j.kv_head * j.dv + d) : 0;
        }
        for (int c = warp; c < j.dk; c += WARPS)
#pragma unroll
            for (int n = 0; n < 4; n++) {
                int d = d0 + n * LANES + lane;
                if (d >= j.dv) continue;
                size_t at = (size_t)c * j.dv + d;
                float s = from ? from[at] : 0;
                if (to) to[at] = s = fmaf(m.k[c], v[n], s);
                o[n] = fmaf(m.q[c], s, o[n]);
            }
#pragma unroll
        for (int n = 0; n < 4; n++) m.part[warp][n * LANES + lane] = o[n];
        __syncthreads();
        for (int d = threadIdx.x; d < min(COLUMNS, j.dv - d0); d += THREADS) {
            float x = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++) x += m.part[w][d];
            set_element(a.o, row, head * j.dv + d0 + d, x * inverse(sum));
        }
        __syncthreads();
    }
}

static __global__ void step(struct mat states, struct attention a)
{
    __shared__ struct step_memory m;
    chain_wait();
    int sentence = blockIdx.x / a.kv_heads;
    struct job j = job_at(a, sentence, blockIdx.x % a.kv_heads);
    int before = a.seqs.from[sentence];
    const float *from = before < 0 ? NULL : state_at(states, j, before);
    float *to = a.seqs.to ? state_at(states, j, a.seqs.to[sentence]) : NULL;
    for (int i = 0; i < j.nq; i++)
        for (int h = 0; h < j.shared; h++) {
            int row = j.q0 + i, head = j.head + h;
            for (int c = threadIdx.x; c < j.dk; c += THREADS) {
                m.q[c] = phi(element(a.q, row, head * j.dk + c));
                if (to) m.k[c] = phi(element(a.k, row, j.kv_head * j.dk + c));
            }
            __syncthreads();
            step_query(a, j, row, head, from, to, m);
            __syncthreads();
        }
}

void linear_attention_step(struct mat states, const struct attention *given, struct chain chain)
{
    const struct attention a = with_kv_heads(given);
    chain_launch(step, dim3(a.seqs.n * a.kv_heads), dim3(THREADS), 0, chain, states, a);
}

/* ---- weights: a warp computes those of one query in one head ---- */

static __device__ float affinity(const struct attention &a, const struct job &j, int row, int head,
                                 int key)
{
    float sum = 0;
    for (int c = 0; c < j.dk; c++)
        sum = fmaf(phi(element(a.q, row, head * j.dk + c)),
                   phi(element(a.k, key, j.kv_head * j.dk + c)), sum);
    return sum;
}

static __global__ void weights(struct attention a)
{
    chain_wait();
    int head = blockIdx.x % a.heads, sentence = blockIdx.x / a.heads;
    struct job j = job_at(a, sentence, head / (a.heads / a.kv_heads));
    int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    for (int i = warp; i < j.nq; i += WARPS) {
        int row = j.q0 + i, keys = a.seqs.causal ? i + 1 : j.nk;
        float *to = (float *)a.weights.p + ((size_t)row * a.heads + head) * a.weights.ld;
        float sum = 0;
        for (int k = lane; k < a.weights.cols; k += LANES) {
            to[k] = k < keys ? affinity(a, j, row, head, j.k0 + k) : 0;
            sum += to[k];
        }
        float scale = inverse(warp_sum(sum));
        for (int k = lane; k < a.weights.cols; k += LANES) to[k] *= scale;
    }
}

void linear_attention_weights(const struct attention *given, struct chain chain)
{
    const struct attention a = with_kv_heads(given);
    chain_launch(weights, dim3(a.seqs.n * a.heads), dim3(THREADS), 0, chain, a);
}
