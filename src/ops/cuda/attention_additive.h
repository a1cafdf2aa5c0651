/*
 * attention_additive.h - the score of additive attention, a . tanh(q + k), as all kernels compute
 * it.
 *
 * e^(2(x + y)) is e^(2x) e^(2y), and tanh(z) is 1 - 2 / (1 + e^(2z)): a kernel that has the
 * exponentials of its queries and of its keys evaluates tanh for a pair of them with one
 * reciprocal. The absolute error is about 3e-7. Numbers beyond ADDITIVE_NEAR, whose exponentials
 * could overflow, take tanhf instead. Which of the two a pair of numbers takes depends on the pair
 * alone, so every kernel finds the same tanh.
 *
 * Scores are not divided by sqrt(dk) and grow with the width of a head. At 44,100 floats are 2^-8
 * apart, so a sum also has what its additions rounded away (Kahan): a weight, the exponential of a
 * score less another number, is then as exact as for small scores.
 */
#ifndef HEED_OPS_CUDA_ATTENTION_ADDITIVE_H
#define HEED_OPS_CUDA_ATTENTION_ADDITIVE_H
#include "ops/cuda/attention_device.h"

#define ADDITIVE_NEAR 20.0f

static __device__ __forceinline__ bool additive_far(float x)
{
    return !(fabsf(x) <= ADDITIVE_NEAR); /* a NaN is far, so that it shows in the results */
}

static __device__ __forceinline__ float additive_exp(float x)
{
    return expf(2 * x);
}

static __device__ __forceinline__ float reciprocal_fast(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* tanh(x + y) from e^(2x) and e^(2y), where neither x nor y is far */
static __device__ __forceinline__ float tanh_near(float exp_x, float exp_y)
{
    return fmaf(-2, reciprocal_fast(fmaf(exp_x, exp_y, 1)), 1);
}

/* tanh(x + y) of any numbers */
static __device__ __forceinline__ float tanh_any(float x, float y)
{
    if (additive_far(x) || additive_far(y)) return tanhf(x + y);
    return tanh_near(additive_exp(x), additive_exp(y));
}

/* A sum, and how much more it is than the sum of the exact terms. */
struct score {
    float sum, lost;
};

static __device__ __forceinline__ void score_add(struct score &s, float x)
{
    float term = x - s.lost, sum = s.sum + term;
    s.lost = (sum - s.sum) - term;
    s.sum = sum;
}

/* Adds another sum. The result is the same bits whichever of the two is added to the other. */
static __device__ __forceinline__ void score_merge(struct score &s, const struct score &other)
{
    float sum = s.sum + other.sum, second = sum - s.sum;
    float rest = (s.sum - (sum - second)) + (other.sum - second);
    s.lost = (s.lost + other.lost) - rest;
    s.sum = sum;
}

/* The score of row q of a.q and row k of a.k in a head, without what alibi subtracts. */
static __device__ __forceinline__ struct score additive_score(const struct attention &a, int head,
                                                              int dk, int q, int k)
{
    struct score s = {};
    int q_col = head * dk, k_col = kv_head_of(a, head) * dk;
    for (int c = 0; c < dk; c += 4) {
        float sum = 0;
        for (int e = c; e < min(c + 4, dk); e++)
            sum = fmaf(element(a.additive, head, e),
                       tanh_any(element(a.q, q, q_col + e), element(a.k, k, k_col + e)), sum);
        score_add(s, sum);
    }
    return s;
}

/* The score less `base`. A score of -INFINITY has lost = 0. */
static __device__ __forceinline__ float score_above(const struct score &s, float base)
{
    return (s.sum - base) - s.lost;
}

#endif
