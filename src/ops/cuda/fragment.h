/*
 * fragment.h - fragments of bf16 matrices for tensor cores: pairs in registers, and their way from
 * and to shared memory.
 *
 * Of an 8x8 matrix a lane holds a pair: columns 2 * (lane % 4) and 2 * (lane % 4) + 1 of row
 * lane / 4. ldmatrix and stmatrix move four such matrices at a time; lane l gives the address of
 * the 16 bytes of row l % 8 of matrix l / 8.
 */
#ifndef HEED_OPS_CUDA_FRAGMENT_H
#define HEED_OPS_CUDA_FRAGMENT_H
#include <cuda_bf16.h>
#include <stdint.h>

typedef __nv_bfloat16 bf16;

static __device__ __forceinline__ uint32_t pack(float lo, float hi)
{
    __nv_bfloat162 h = __floats2bfloat162_rn(lo, hi);
    return *(uint32_t *)&h;
}

static __device__ __forceinline__ float2 unpack(uint32_t x)
{
    return make_float2(__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u));
}

static __device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

static __device__ __forceinline__ void load_matrix(uint32_t (&r)[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* Transposes each 8x8 matrix. */
static __device__ __forceinline__ void load_matrix_turned(uint32_t (&r)[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* Needs Hopper or newer. */
static __device__ __forceinline__ void store_matrix(uint32_t at, const uint32_t (&r)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

#endif
