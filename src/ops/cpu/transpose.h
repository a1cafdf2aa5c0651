/*
 * transpose.h - transposes a square of W vectors of W lanes. Included once per ISA; see vec.h.
 */
#ifndef HEED_OPS_CPU_TRANSPOSE_H
#define HEED_OPS_CPU_TRANSPOSE_H
#include "ops/cpu/vec.h"

/* Transposes W vectors. */
#if W == 16
/* Within each quarter of the vectors, 4 rows and 4 columns change places; then the quarters do. The
 * instructions that stay within quarters are the fastest. */
INLINE void transpose(vf x[W])
{
    vf y[W];
#pragma GCC unroll 4
    for (int i = 0; i < W; i += 4) {
        __m512 a = _mm512_unpacklo_ps((__m512)x[i], (__m512)x[i + 1]);
        __m512 b = _mm512_unpackhi_ps((__m512)x[i], (__m512)x[i + 1]);
        __m512 c = _mm512_unpacklo_ps((__m512)x[i + 2], (__m512)x[i + 3]);
        __m512 d = _mm512_unpackhi_ps((__m512)x[i + 2], (__m512)x[i + 3]);
        y[i] = (vf)_mm512_unpacklo_pd((__m512d)a, (__m512d)c);
        y[i + 1] = (vf)_mm512_unpackhi_pd((__m512d)a, (__m512d)c);
        y[i + 2] = (vf)_mm512_unpacklo_pd((__m512d)b, (__m512d)d);
        y[i + 3] = (vf)_mm512_unpackhi_pd((__m512d)b, (__m512d)d);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m512 a = _mm512_shuffle_f32x4((__m512)y[i], (__m512)y[i + 4], 0x88);
        __m512 b = _mm512_shuffle_f32x4((__m512)y[i], (__m512)y[i + 4], 0xdd);
        __m512 c = _mm512_shuffle_f32x4((__m512)y[i + 8], (__m512)y[i + 12], 0x88);
        __m512 d = _mm512_shuffle_f32x4((__m512)y[i + 8], (__m512)y[i + 12], 0xdd);
        x[i] = (vf)_mm512_shuffle_f32x4(a, c, 0x88);
        x[i + 8] = (vf)_mm512_shuffle_f32x4(a, c, 0xdd);
        x[i + 4] = (vf)_mm512_shuffle_f32x4(b, d, 0x88);
        x[i + 12] = (vf)_mm512_shuffle_f32x4(b, d, 0xdd);
    }
}
#elif W == 8
/* As above, with halves of four vectors and lanes in place of quarters. */
INLINE void transpose(vf x[W])
{
    vf y[W];
#pragma GCC unroll 2
    for (int i = 0; i < W; i += 4) {
        __m256 a = _mm256_unpacklo_ps((__m256)x[i], (__m256)x[i + 1]);
        __m256 b = _mm256_unpackhi_ps((__m256)x[i], (__m256)x[i + 1]);
        __m256 c = _mm256_unpacklo_ps((__m256)x[i + 2], (__m256)x[i + 3]);
        __m256 d = _mm256_unpackhi_ps((__m256)x[i + 2], (__m256)x[i + 3]);
        y[i] = (vf)_mm256_unpacklo_pd((__m256d)a, (__m256d)c);
        y[i + 1] = (vf)_mm256_unpackhi_pd((__m256d)a, (__m256d)c);
        y[i + 2] = (vf)_mm256_unpacklo_pd((__m256d)b, (__m256d)d);
        y[i + 3] = (vf)_mm256_unpackhi_pd((__m256d)b, (__m256d)d);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        x[i] = (vf)_mm256_permute2f128_ps((__m256)y[i], (__m256)y[i + 4], 0x20);
        x[i + 4] = (vf)_mm256_permute2f128_ps((__m256)y[i], (__m256)y[i + 4], 0x31);
    }
}
#else
/* Indices that interleave the lower, and the upper, halves of two vectors of four lanes. */
#define LOW  0, 4, 1, 5
#define HIGH 2, 6, 3, 7
#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (vi){__VA_ARGS__})
#endif

/* A perfect shuffle of W*W elements rotates the bits of an element's index by one; after log2(W)
 * shuffles the bits of the row and of the lane have changed places. */
INLINE void transpose(vf x[W])
{
    for (int turn = 1; turn < W; turn *= 2) {
        vf y[W];
#pragma GCC unroll 16
        for (int i = 0; i < W / 2; i++) {
            y[2 * i] = SHUFFLE(x[i], x[i + W / 2], LOW);
            y[2 * i + 1] = SHUFFLE(x[i], x[i + W / 2], HIGH);
        }
        memcpy(x, y, sizeof y);
    }
}
#endif

#endif
