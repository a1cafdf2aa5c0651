/*
 * emulated.h - the kernels for AMX over an emulation of its instructions (ops/cpu/amx_tiles.h), so
 * that tests of them run on every machine. The library does not have these.
 */
#ifndef HEED_TESTS_EMULATED_H
#define HEED_TESTS_EMULATED_H
#include "ops/cpu/amx.h"
#include "ops/cpu/isa.h"

extern const struct amx_kernels amx_emulated_baseline, amx_emulated_avx2, amx_emulated_avx512;

/* The rest of a kernel, such as rounding, is compiled for the instructions of `level`. */
static inline const struct amx_kernels *amx_emulated(enum isa_level level)
{
#if defined(__x86_64__)
    if (level == ISA_AVX2) return &amx_emulated_avx2;
    if (level == ISA_AVX512) return &amx_emulated_avx512;
#endif
    (void)level;
    return &amx_emulated_baseline;
}

#endif
