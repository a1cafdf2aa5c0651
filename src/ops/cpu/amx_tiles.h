/*
 * amx_tiles.h - private to amx_kernels.c: the few instructions of Intel's AMX that are used, or an
 * emulation of them in plain C.
 *
 * A file that is compiled with AMX_INSTRUCTIONS defined gets the instructions; the compiler must
 * know them (cmake/kernels.cmake). Any other gets the emulation, with which the same kernels are
 * tested on every machine; struct tiles then holds what the processor would hold. Order:
 * tiles_configure, the operations on tiles, tiles_release; all by one thread.
 *
 * Where the processor raises an invalid-opcode or a protection fault (a tile that is not
 * configured, shapes that do not fit, one tile as two operands), the emulation fails an assertion.
 */
#ifndef HEED_OPS_CPU_AMX_TILES_H
#define HEED_OPS_CPU_AMX_TILES_H
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "ops/bf16.h"

/* Palette 1, the same on every processor with AMX: CPUID leaf 0x1d describes it, but some virtual
 * machines hide that leaf. */
enum { TILES = 8, TILE_ROWS = 16, TILE_LINE = 64, TILE_BYTES = TILE_ROWS * TILE_LINE };
enum { TILE_NUMBERS = TILE_BYTES / 4 }; /* sums in a tile */

/* Rows and bytes of a row of each tile, as ldtilecfg reads them. A tile that is not used has 0 of
 * both. */
struct tile_shapes {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[TILES], reserved2[TILES];
    uint8_t rows[TILES], reserved3[TILES];
};

static inline struct tile_shapes tile_shapes(void)
{
    return (struct tile_shapes){.palette = 1};
}
/* rows = 0: the tile is not used. */
static inline void tile_shape(struct tile_shapes *s, int tile, int rows)
{
    s->rows[tile] = (uint8_t)rows;
    s->bytes[tile] = rows ? TILE_LINE : 0;
}

#define TILE_OP static inline __attribute__((always_inline))

#ifdef AMX_INSTRUCTIONS

/* The tiles are registers of the processor, whose numbers must be constants. */
struct tiles {
    char none;
};

TILE_OP void tiles_configure(struct tiles *t, const struct tile_shapes *s)
{
    (void)t;
    __asm__ volatile("ldtilecfg %0" : : "m"(*s));
}
TILE_OP void tiles_release(struct tiles *t)
{
    (void)t;
    __asm__ volatile("tilerelease");
}
TILE_OP void tile_zero(struct tiles *t, const int to)
{
    (void)t;
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(to));
}
/* Rows are `pitch` bytes apart; 0: every row is the one at p. */
TILE_OP void tile_load(struct tiles *t, const int to, const void *p, size_t pitch)
{
    (void)t;
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(pitch), "i"(to) : "memory");
}
/* Like tile_load, for a tile that is not loaded again soon: it does not displace others from the
 * first-level cache. */
TILE_OP void tile_load_once(struct tiles *t, const int to, const void *p, size_t pitch)
{
    (void)t;
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(pitch), "i"(to) : "memory");
}
TILE_OP void tile_store(struct tiles *t, const int from, void *p, size_t pitch)
{
    (void)t;
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(pitch), "i"(from) : "memory");
}
/* sum [rows][16] int32 += a [rows][64] uint8 times b, where b [16][16][4] int8 has 4 rows of the
 * right factor side by side */
TILE_OP void tile_dot_i8(struct tiles *t, const int sum, const int a, const int b)
{
    (void)t;
    __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(a), "i"(b));
}
/* sum [rows][16] float += a [rows][32] bf16 times b, where b [16][16][2] bf16 has 2 rows of the
 * right factor side by side */
TILE_OP void tile_dot_bf16(struct tiles *t, const int sum, const int a, const int b)
{
    (void)t;
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(a), "i"(b));
}

#else

struct tiles {
    struct tile_shapes shape; /* palette 0: not configured */
    uint8_t tile[TILES][TILE_ROWS][TILE_LINE];
};

static inline void tiles_configure(struct tiles *t, const struct tile_shapes *s)
{
    static const uint8_t zero[16];
    assert(s->palette == 1 && s->start == 0);
    assert(!memcmp(s->reserved, zero, sizeof s->reserved));
    assert(!memcmp(s->reserved2, zero, sizeof s->reserved2));
    assert(!memcmp(s->reserved3, zero, sizeof s->reserved3));
    for (int i = 0; i < TILES; i++) {
        assert(s->rows[i] <= TILE_ROWS && s->bytes[i] <= TILE_LINE && s->bytes[i] % 4 == 0);
        assert(!s->rows[i] == !s->bytes[i]);
    }
    memset(t, 0, sizeof *t);
    t->shape = *s;
}

static inline void tiles_release(struct tiles *t)
{
    t->shape = (struct tile_shapes){0};
}

static inline bool tile_ready(const struct tiles *t, int i)
{
    return t->shape.palette == 1 && i >= 0 && i < TILES && t->shape.rows[i];
}

static inline void tile_zero(struct tiles *t, int to)
{
    assert(tile_ready(t, to));
    memset(t->tile[to], 0, sizeof t->tile[to]);
}

static inline void tile_load(struct tiles *t, int to, const void *p, size_t pitch)
{
    tile_zero(t, to);
    for (int r = 0; r < t->shape.rows[to]; r++)
        memcpy(t->tile[to][r], (const char *)p + r * pitch, t->shape.bytes[to]);
}

static inline void tile_load_once(struct tiles *t, int to, const void *p, size_t pitch)
{
    tile_load(t, to, p, pitch);
}

static inline void tile_store(struct tiles *t, int from, void *p, size_t pitch)
{
    assert(tile_ready(t, from));
    for (int r = 0; r < t->shape.rows[from]; r++)
        memcpy((char *)p + r * pitch, t->tile[from][r], t->shape.bytes[from]);
}

static inline void tiles_check(const struct tiles *t, int sum, int a, int b)
{
    const struct tile_shapes *s = &t->shape;
    assert(tile_ready(t, sum) && tile_ready(t, a) && tile_ready(t, b));
    assert(sum != a && sum != b && a != b);
    assert(s->rows[sum] == s->rows[a] && s->bytes[sum] == s->bytes[b]);
    assert(s->bytes[a] == 4 * s->rows[b]);
}

static inline void tile_dot_i8(struct tiles *t, int sum, int a, int b)
{
    uint32_t s[TILE_ROWS][TILE_ROWS]; /* unsigned, because the instruction wraps around */
    tiles_check(t, sum, a, b);
    memcpy(s, t->tile[sum], sizeof s);
    for (int i = 0; i < t->shape.bytes[a]; i++) {
        int32_t w[TILE_ROWS];
        for (int n = 0; n < TILE_ROWS; n++) w[n] = (int8_t)t->tile[b][i / 4][4 * n + i % 4];
        for (int r = 0; r < t->shape.rows[a]; r++) {
            int32_t x = t->tile[a][r][i];
            for (int n = 0; n < TILE_ROWS; n++) s[r][n] += (uint32_t)(x * w[n]);
        }
    }
    memcpy(t->tile[sum], s, sizeof s);
}

/* Numbers below the normal ones become zeros. */
static inline float tile_flush(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

static inline void tile_widen(float *to, const void *from, int n)
{
    uint16_t h[2 * TILE_ROWS];
    memcpy(h, from, sizeof *h * (size_t)n);
    for (int i = 0; i < n; i++) to[i] = tile_flush(bf16_to_float(h[i]));
}

/* The arithmetic of tdpbf16ps, from its description in Intel's manual (Software Developer's Manual,
 * volume 2): within one instruction the first numbers of all pairs are summed in the order of k,
 * from 0, by fused multiplications and additions, and so are the second numbers; then the two sums
 * are added, and the result to what the tile held. Each step rounds to nearest even, takes inputs
 * below the normal numbers for zeros and makes such results zeros; no exceptions, whatever MXCSR
 * holds. The vector instruction vdpbf16ps adds both products of a pair to one sum, so it gives
 * other bits. */
static inline void tile_dot_bf16(struct tiles *t, int sum, int a, int b)
{
    float s[TILE_ROWS][TILE_ROWS], pairs[TILE_ROWS][2 * TILE_ROWS] = {0}; /* the two sums */
    tiles_check(t, sum, a, b);
    memcpy(s, t->tile[sum], sizeof s);
    for (int k = 0; k < t->shape.rows[b]; k++) {
        float w[2 * TILE_ROWS];
        tile_widen(w, t->tile[b][k], 2 * TILE_ROWS);
        for (int r = 0; r < t->shape.rows[a]; r++) {
            float x[2];
            tile_widen(x, t->tile[a][r] + 4 * k, 2);
            for (int n = 0; n < 2 * TILE_ROWS; n++)
                pairs[r][n] = tile_flush(fmaf(x[n % 2], w[n], pairs[r][n]));
        }
    }
    for (int r = 0; r < t->shape.rows[a]; r++)
        for (int n = 0; n < TILE_ROWS; n++)
            s[r][n] =
                tile_flush(tile_flush(s[r][n]) + tile_flush(pairs[r][2 * n] + pairs[r][2 * n + 1]));
    memcpy(t->tile[sum], s, sizeof s);
}

#endif
#endif
