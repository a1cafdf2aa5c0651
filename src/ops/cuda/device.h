/*
 * device.h - what the kernels share: matrices on the device, loads and stores of 8 numbers, sums.
 *
 * Kernels compute in float. They are templates over the type of the numbers in memory and over V,
 * how many numbers a thread loads at once: 8 where rows are 16-byte aligned and a multiple of 8
 * long, else 1.
 */
#ifndef HEED_OPS_CUDA_DEVICE_H
#define HEED_OPS_CUDA_DEVICE_H
#include "ops/cuda/cuda.h"
#include "ops/cuda/fragment.h"
#include "ops/cuda/launch.h"
#include "ops/drop.h"
#include "ops/quant.h"

enum { LANES = 32 };
#define ALL_LANES 0xffffffffu

/* ---- matrices ---- */

template <class T> struct rows {
    T *p;
    size_t ld;
    __device__ T *at(size_t row, int col) const
    {
        return p + row * ld + col;
    }
};

template <class T> static rows<T> rows_of(struct mat m)
{
    rows<T> r = {(T *)m.p, (size_t)m.ld};
    return r;
}

/* Whether V may be 8 for this matrix; true for an absent one. */
static inline bool mat_wide(struct mat m)
{
    return !m.p || ((uintptr_t)m.p % 16 == 0 && m.cols % 8 == 0 &&
                    (size_t)m.ld * type_size(m.type) % 16 == 0);
}

static inline int ceiling(size_t n, size_t size)
{
    return (int)((n + size - 1) / size);
}

/* ---- V numbers at a time ---- */

template <int V> static __device__ inline void load(float (&x)[V], const float *p)
{
    if (V == 8) {
        float4 a = *(const float4 *)p, b = *(const float4 *)(p + 4);
        x[0] = a.x, x[1 % V] = a.y, x[2 % V] = a.z, x[3 % V] = a.w;
        x[4 % V] = b.x, x[5 % V] = b.y, x[6 % V] = b.z, x[7 % V] = b.w;
    } else {
        x[0] = *p;
    }
}

template <int V> static __device__ inline void load(float (&x)[V], const bf16 *p)
{
    if (V == 8) {
        uint4 u = *(const uint4 *)p;
        uint32_t word[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 two = unpack(word[i]);
            x[2 * i % V] = two.x, x[(2 * i + 1) % V] = two.y;
        }
    } else {
        x[0] = __bfloat162float(*p);
    }
}

template <int V> static __device__ inline void store(float *p, const float (&x)[V])
{
    if (V == 8) {
        *(float4 *)p = make_float4(x[0], x[1 % V], x[2 % V], x[3 % V]);
        *(float4 *)(p + 4) = make_float4(x[4 % V], x[5 % V], x[6 % V], x[7 % V]);
    } else {
        *p = x[0];
    }
}

template <int V> static __device__ inline void store(bf16 *p, const float (&x)[V])
{
    if (V == 8) {
        uint32_t word[4];
#pragma unroll
        for (int i = 0; i < 4; i++) word[i] = pack(x[2 * i % V], x[(2 * i + 1) % V]);
        *(uint4 *)p = make_uint4(word[0], word[1], word[2], word[3]);
    } else {
        *p = __float2bfloat16_rn(x[0]);
    }
}

/* x rounded to the type of the pointer, as if it were stored and loaded again */
static __device__ inline float as_stored(float x, const float *)
{
    return x;
}
static __device__ inline float as_stored(float x, const bf16 *)
{
    return __bfloat162float(__float2bfloat16_rn(x));
}

/* ---- dropout ---- */

/* Applies dropout to columns [col, col+V) of a row. */
template <int V> static __device__ inline void drop(float (&x)[V], struct drop_row mask, int col)
{
    if (mask.threshold == 0) return;
#pragma unroll
    for (int i = 0; i < V; i++) x[i] *= drop_factor(mask, (uint32_t)(col + i));
}

static __device__ inline struct drop_row mask_of(struct drop_site s, size_t row)
{
    struct drop_row none = {0, 0, 0, 1};
    return s.threshold ? drop_site_row(s, row) : none;
}

/* ---- sums; every lane, or every thread of the block, gets the result ---- */

static __device__ inline float warp_sum(float x)
{
#pragma unroll
    for (int i = LANES / 2; i > 0; i /= 2) x += __shfl_xor_sync(ALL_LANES, x, i);
    return x;
}

/* The number of threads of the block must be a multiple of LANES. */
static __device__ inline float block_sum(float x)
{
    __shared__ float part[LANES];
    int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, warps = blockDim.x / LANES;
    x = warp_sum(x);
    __syncthreads(); /* an earlier sum may still be read */
    if (lane == 0) part[warp] = x;
    __syncthreads();
    return warp_sum(lane < warps ? part[lane] : 0);
}

/* The scale of a row of packed int8 numbers: see mat_unpacked. */
static __device__ inline float packed_unit(const bf16 *row, int ld)
{
    return *(const float *)(row + ld - PACKED_UNIT);
}

#endif
