/*
 * vec.h - vectors of W floats, for kernels that are written once and compiled for every ISA.
 *
 * It uses the vector extension of gcc and clang: the same source becomes SSE2, AVX2, AVX-512 or
 * NEON code, depending on the flags of the file that includes this one. Intrinsics are used only
 * where the extension cannot express what one instruction does. Loads and stores take the element
 * type as a constant, so that one always-inline body serves f32 and bf16.
 */
#ifndef HEED_OPS_CPU_VEC_H
#define HEED_OPS_CPU_VEC_H
#include <math.h>
#include <string.h>

#include "ops/drop.h"

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#define NEON 1
#endif
#if defined(__AVX512F__)
#define W 16
#elif defined(__AVX2__)
#define W 8
#else
#define W 4
#endif
#ifndef NEON
#define NEON 0
#endif
#define REGISTERS (W == 16 || NEON ? 32 : 16) /* of vectors */
#define INLINE    static inline __attribute__((always_inline))

/* A file of kernels is compiled with ISA defined as the name of its instruction set, such as avx2.
 * OF_ISA(kernels) is kernels_avx2, the name of its table of kernels, and ISA_TEXT is "avx2". */
#define OF_ISA(name)       OF_ISA_(name, ISA)
#define OF_ISA_(name, isa) JOINED(name, isa)
#define JOINED(name, isa)  name##_##isa
#define ISA_TEXT           ISA_TEXT_(ISA)
#define ISA_TEXT_(isa)     QUOTED(isa)
#define QUOTED(isa)        #isa

typedef float vf __attribute__((vector_size(4 * W)));
typedef int32_t vi __attribute__((vector_size(4 * W)));
typedef uint32_t vu __attribute__((vector_size(4 * W)));
typedef uint64_t vl __attribute__((vector_size(4 * W)));
typedef uint16_t vh __attribute__((vector_size(2 * W)));

INLINE vf vf_all(float x)
{
    return x - (vf){0};
}
INLINE vu vu_all(uint32_t x)
{
    return x - (vu){0};
}
INLINE vf vf_bits(vu x)
{
    vf r;
    memcpy(&r, &x, sizeof r);
    return r;
}
INLINE vu vu_bits(vf x)
{
    vu r;
    memcpy(&r, &x, sizeof r);
    return r;
}
INLINE vl vl_bits(vf x)
{
    vl r;
    memcpy(&r, &x, sizeof r);
    return r;
}
/* m ? a : b, lane by lane; m is the result of a comparison: all ones or zero */
INLINE vf vf_pick(vi m, vf a, vf b)
{
#if NEON
    return (vf)vbslq_f32((uint32x4_t)m, (float32x4_t)a, (float32x4_t)b);
#else
    return vf_bits(((vu)m & vu_bits(a)) | (~(vu)m & vu_bits(b)));
#endif
}
/* a > b ? a : b; where either is a NaN, b */
INLINE vf vf_max(vf a, vf b)
{
#if W == 16
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif W == 8
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (vf)_mm_max_ps((__m128)a, (__m128)b);
#else
    return vf_pick(a > b, a, b);
#endif
}
/* a < b ? a : b; where either is a NaN, b */
INLINE vf vf_min(vf a, vf b)
{
#if W == 16
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif W == 8
    return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (vf)_mm_min_ps((__m128)a, (__m128)b);
#else
    return vf_pick(a < b, a, b);
#endif
}
INLINE vf vf_sqrt(vf x)
{
#if W == 16
    return (vf)_mm512_sqrt_ps((__m512)x);
#elif W == 8
    return (vf)_mm256_sqrt_ps((__m256)x);
#elif defined(__SSE2__)
    return (vf)_mm_sqrt_ps((__m128)x);
#elif NEON
    return (vf)vsqrtq_f32((float32x4_t)x);
#else
    for (int l = 0; l < W; l++) x[l] = sqrtf(x[l]);
    return x;
#endif
}
/* 0, 1, 2, ... */
INLINE vu vu_lanes(void)
{
    static const uint32_t lane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    vu r;
    memcpy(&r, lane, sizeof r);
    return r;
}
/* x in the first n lanes, fill in the others */
INLINE vf vf_first(vf x, int n, float fill)
{
    return n >= W ? x : vf_pick((vi)vu_lanes() < n, x, vf_all(fill));
}
/* Bit l of the result is set where a comparison is true in lane l. */
INLINE uint32_t vi_mask(vi m)
{
#if W == 16
    return _mm512_movepi32_mask((__m512i)m);
#elif W == 8
    return (uint32_t)_mm256_movemask_ps((__m256)m);
#elif defined(__SSE2__)
    return (uint32_t)_mm_movemask_ps((__m128)m);
#else
    const vu bit = {1, 2, 4, 8};
    vu bits = (vu)m & bit;
#if NEON
    return vaddvq_u32((uint32x4_t)bits);
#else
    return bits[0] | bits[1] | bits[2] | bits[3];
#endif
#endif
}

/* ---- pairs of lanes (2i, 2i+1) ---- */

/* Both lanes of a pair get its first, or its second number, or each the other's. */
#if NEON
INLINE vf vf_evens(vf x)
{
    return (vf)vtrn1q_f32((float32x4_t)x, (float32x4_t)x);
}
INLINE vf vf_odds(vf x)
{
    return (vf)vtrn2q_f32((float32x4_t)x, (float32x4_t)x);
}
INLINE vf vf_swap(vf x)
{
    return (vf)vrev64q_f32((float32x4_t)x);
}
#else
INLINE vf vf_evens(vf x)
{
    vl pair = vl_bits(x) & UINT32_MAX;
    return vf_bits((vu)(pair | pair << 32));
}
INLINE vf vf_odds(vf x)
{
    vl pair = vl_bits(x) >> 32;
    return vf_bits((vu)(pair | pair << 32));
}
INLINE vf vf_swap(vf x)
{
    vl pair = vl_bits(x);
    return vf_bits((vu)(pair >> 32 | pair << 32));
}
#endif

/* ---- memory ---- */

INLINE vf bf16_widen(vh x)
{
#if W == 16
    return vf_bits((vu)_mm512_cvtepu16_epi32((__m256i)x) << 16);
#elif W == 8
    return vf_bits((vu)_mm256_cvtepu16_epi32((__m128i)x) << 16);
#elif NEON
    return vf_bits((vu)vshll_n_u16((uint16x4_t)x, 16));
#else
    return vf_bits(__builtin_convertvector(x, vu) << 16);
#endif
}
/* Round to nearest even; a NaN stays a NaN. AVX512_BF16, which the kernels for AMX are compiled
 * with, makes zeros of numbers below the normal ones, as the products of AMX do. */
INLINE vh bf16_narrow(vf x)
{
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    return (vh)vreinterpret_u16_bf16(vcvt_bf16_f32((float32x4_t)x));
#elif W == 16 && defined(__AVX512BF16__)
    return (vh)_mm512_cvtneps_pbh((__m512)x);
#else
    vu u = vu_bits(x);
    vu r = u + 0x7fff + (u >> 16 & 1);
#if W == 16
    __mmask16 nan = _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q);
    r = (vu)_mm512_mask_or_epi32((__m512i)r, nan, (__m512i)u, (__m512i)vu_all(0x400000));
    return (vh)_mm512_cvtepi32_epi16((__m512i)(r >> 16));
#else
    r = vu_bits(vf_pick(x != x, vf_bits(u | 0x400000), vf_bits(r)));
#if NEON
    return (vh)vshrn_n_u32((uint32x4_t)r, 16);
#else
    return __builtin_convertvector(r >> 16, vh);
#endif
#endif
#endif
}

/* W elements at index i of p */
INLINE vf vf_load(const void *p, size_t i, enum type t)
{
    if (t == TYPE_BF16) {
        vh h;
        memcpy(&h, (const uint16_t *)p + i, sizeof h);
        return bf16_widen(h);
    }
    vf r;
    memcpy(&r, (const float *)p + i, sizeof r);
    return r;
}
INLINE void vf_store(void *p, size_t i, vf x, enum type t)
{
    if (t == TYPE_BF16) {
        vh h = bf16_narrow(x);
        memcpy((uint16_t *)p + i, &h, sizeof h);
    } else {
        memcpy((float *)p + i, &x, sizeof x);
    }
}
/* The first n <= W elements; the other lanes are `fill`. */
INLINE vf vf_load_part(const void *p, size_t i, int n, float fill, enum type t)
{
    if (n == W) return vf_load(p, i, t);
    vf r = vf_all(fill);
#if W == 16
    __mmask16 m = (__mmask16)((1u << n) - 1);
    if (t == TYPE_F32) return (vf)_mm512_mask_loadu_ps((__m512)r, m, (const float *)p + i);
    vf h = bf16_widen((vh)_mm256_maskz_loadu_epi16(m, (const uint16_t *)p + i));
    return (vf)_mm512_mask_blend_ps(m, (__m512)r, (__m512)h);
#else
    for (int l = 0; l < W && l < n; l++) {
        if (t == TYPE_BF16) {
            uint32_t u = (uint32_t)((const uint16_t *)p)[i + l] << 16;
            float f;
            memcpy(&f, &u, sizeof f);
            r[l] = f;
        } else {
            r[l] = ((const float *)p)[i + l];
        }
    }
    return r;
#endif
}
INLINE void vf_store_part(void *p, size_t i, int n, vf x, enum type t)
{
    if (n == W) {
        vf_store(p, i, x, t);
        return;
    }
#if W == 16
    __mmask16 m = (__mmask16)((1u << n) - 1);
    if (t == TYPE_F32)
        _mm512_mask_storeu_ps((float *)p + i, m, (__m512)x);
    else
        _mm256_mask_storeu_epi16((uint16_t *)p + i, m, (__m256i)bf16_narrow(x));
#else
    vh h = bf16_narrow(x);
    for (int l = 0; l < W && l < n; l++) {
        if (t == TYPE_BF16)
            ((uint16_t *)p)[i + l] = h[l];
        else
            ((float *)p)[i + l] = x[l];
    }
#endif
}

/* ---- sums and maxima over the lanes, always in the same order ---- */

typedef float vf4 __attribute__((vector_size(16)));

INLINE float vf_sum(vf x)
{
#if NEON
    return vpadds_f32(vadd_f32(vget_low_f32((float32x4_t)x), vget_high_f32((float32x4_t)x)));
#else
    vf4 q[W / 4];
    memcpy(q, &x, sizeof q);
#if W == 16
    q[0] += q[2];
    q[1] += q[3];
#endif
#if W >= 8
    q[0] += q[1];
#endif
    return (q[0][0] + q[0][2]) + (q[0][1] + q[0][3]);
#endif
}
/* the largest lane; no lane may be a NaN */
INLINE float vf_top(vf x)
{
#if W == 16
    return _mm512_reduce_max_ps((__m512)x);
#elif NEON
    return vmaxvq_f32((float32x4_t)x);
#else
    float r[W];
    memcpy(r, &x, sizeof r);
    for (int w = W / 2; w; w /= 2)
        for (int l = 0; l < w; l++) r[l] = r[l] > r[l + w] ? r[l] : r[l + w];
    return r[0];
#endif
}

/* ---- functions ---- */

/* e^x within two units in the last place: 2^k times a polynomial on [-ln2/2, ln2/2]. Below -87 the
 * result is 0, above 88 it is about 1e38, a NaN stays a NaN. */
INLINE vf vf_exp(vf x)
{
    const vf low = vf_all(-87.0f), shift = vf_all(12582912.0f); /* 1.5 * 2^23 rounds to integers */
    vf y = vf_max(low, vf_min(vf_all(88.0f), x));
    vf k = y * 1.44269504f + shift;
    vu exponent = vu_bits(k) << 23;
    k = k - shift;
    vf r = y - k * 0.693359375f + k * 2.12194440e-4f;
    vf p = vf_all(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return vf_pick(x < low, vf_all(0.0f), vf_bits(vu_bits(p) + exponent));
}

/* e^x for x <= 0 within four units in the last place, in fewer instructions: 2^k times a polynomial
 * of degree 5 for 2^r on [-1/2, 1/2]. It is 1 for 0, and about 1e-38 below -87; a NaN stays a NaN.
 */
INLINE vf vf_exp_negative(vf x)
{
    const vf scale = vf_all(1.44269504f), shift = vf_all(12582912.0f); /* as in vf_exp */
    vf y = vf_max(vf_all(-87.0f), x);
    vf k = y * scale + shift;
    vu exponent = vu_bits(k) << 23;
    vf r = y * scale - (k - shift);
    vf p = vf_all(1.3276471979e-3f);
    p = p * r + 9.6755413342e-3f;
    p = p * r + 5.5507132735e-2f;
    p = p * r + 2.4022119724e-1f;
    p = p * r + 6.9314696706e-1f;
    p = p * r + 1.0f;
    return vf_bits(vu_bits(p) + exponent);
}

/* Dropout factors of columns [col, col+W): see drop.h */
INLINE vf vf_drop(struct drop_row row, uint32_t col)
{
    vu x = (vu_lanes() * 0x9e3779b1u + col * 0x9e3779b1u) ^ row.key0;
    x = (x ^ x >> 16) * 0x21f0aaadu;
    x = (x ^ x >> 15) + row.key1;
    x = x * 0x735a2d97u;
    x = x ^ x >> 15;
    return vf_pick((vi)(x < row.threshold), vf_all(0.0f), vf_all(row.scale));
}

#endif
