/*
 * sets.h - the instruction sets that a benchmark of products compares, and the peak of AMX. A file
 * that includes it is compiled with AMX_INSTRUCTIONS defined where the compiler knows these
 * instructions (ops/cpu/amx_tiles.h); they run only where isa_best finds AMX.
 */
#ifndef HEED_BENCH_SETS_H
#define HEED_BENCH_SETS_H
#include <string.h>

#include "bench.h"
#include "ops/cpu/amx.h"
#include "ops/cpu/amx_tiles.h"
#include "ops/cpu/isa.h"

struct bench_set {
    const char *name;
    struct isa isa;
};

/* The set of this name: "amx"; "vectors", the best without AMX; or a device's, such as "avx2".
 * Where name is NULL: AMX and vectors side by side, or vectors alone. Returns how many there are.
 */
static inline int bench_sets(struct bench_set set[2], const char *name)
{
    struct cpuid found = isa_read();
    struct isa best = isa_best(&found), vectors = best;
    vectors.amx = NULL;
    set[0] = set[1] = (struct bench_set){"vectors", vectors};
    if (name ? !strcmp(name, "vectors") : !best.amx) return 1;
    if (!name || !strcmp(name, "amx")) {
        if (!best.amx) bench_die("this machine has no AMX");
        set[0] = (struct bench_set){"amx", best};
        return name ? 1 : 2;
    }
    if (isa_limit(&vectors, name))
        bench_die("the set is '%s', expected vectors or one that heed --version lists", name);
    set[0] = (struct bench_set){name, vectors};
    return 1;
}

/* Multiplies tiles into four independent sums, in registers. Returns the number of operations. */
static inline double bench_burn_amx(bool i8)
{
    enum { ROUNDS = 1 << 20, LEFT = 4, RIGHT };
    struct tiles t;
    struct tile_shapes s = tile_shapes();
    for (int i = 0; i < TILES; i++) tile_shape(&s, i, TILE_ROWS);
    tiles_configure(&t, &s);
    for (int i = 0; i < ROUNDS && i8; i++) {
        tile_dot_i8(&t, 0, LEFT, RIGHT);
        tile_dot_i8(&t, 1, LEFT, RIGHT);
        tile_dot_i8(&t, 2, LEFT, RIGHT);
        tile_dot_i8(&t, 3, LEFT, RIGHT);
    }
    for (int i = 0; i < ROUNDS && !i8; i++) {
        tile_dot_bf16(&t, 0, LEFT, RIGHT);
        tile_dot_bf16(&t, 1, LEFT, RIGHT);
        tile_dot_bf16(&t, 2, LEFT, RIGHT);
        tile_dot_bf16(&t, 3, LEFT, RIGHT);
    }
    tiles_release(&t);
    return 2.0 * TILE_NUMBERS * (i8 ? 64 : 32) * 4 * ROUNDS;
}
static double bench_burn_i8(void)
{
    return bench_burn_amx(true);
}
static double bench_burn_bf16(void)
{
    return bench_burn_amx(false);
}

/* The peak of AMX in billions of operations per second; the machine must have AMX. */
static inline double bench_peak_amx(int threads, bool i8)
{
    return bench_rate(threads, i8 ? bench_burn_i8 : bench_burn_bf16);
}

#endif
