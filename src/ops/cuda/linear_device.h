/*
 * linear_device.h - what the kernels of linear attention share: phi, and where a sentence and a
 * head are.
 */
#ifndef HEED_OPS_CUDA_LINEAR_DEVICE_H
#define HEED_OPS_CUDA_LINEAR_DEVICE_H
#include "ops/cuda/attention_device.h"
#include "ops/cuda/device.h"

static __device__ inline float phi(float x)
{
    return x > 0 ? x + 1 : expf(x);
}
static __device__ inline float phi_slope(float x)
{
    return x > 0 ? 1 : expf(x);
}

static __device__ inline float inverse(float sum)
{
    return sum >= (float)LINEAR_SUM_MIN ? 1 / sum : 0;
}

/* One sentence and one key/value head. */
struct job {
    int q0, nq, k0, nk;        /* first row and number of rows of queries and keys */
    int kv_head, head, shared; /* head: the first of those that share the key/value head */
    int dk, dv;
};

/* a.kv_heads is set. */
static __device__ inline struct job job_at(const struct attention &a, int sentence, int kv_head)
{
    struct job j;
    const struct seqs &s = a.seqs;
    j.q0 = s.q[sentence], j.nq = s.q[sentence + 1] - j.q0;
    j.k0 = s.k[sentence], j.nk = s.klen[sentence];
    j.shared = a.heads / a.kv_heads;
    j.kv_head = kv_head, j.head = kv_head * j.shared;
    j.dk = a.q.cols / a.heads, j.dv = a.o.cols / a.heads;
    return j;
}

/* S of a key/value head in a row of the states; its z follows. */
static __device__ inline float *state_at(const struct mat &states, const struct job &j, int row)
{
    return (float *)states.p + (size_t)row * states.ld + (size_t)j.kv_head * j.dk * (j.dv + 1);
}

/* Kernels read kv_heads without asking whether it is 0. */
static inline struct attention with_kv_heads(const struct attention *a)
{
    struct attention b = *a;
    b.kv_heads = attention_kv_heads(a);
    return b;
}

#endif
