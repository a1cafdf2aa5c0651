/*
 * isa.h - which instructions the CPU backend uses: what the processor says of itself, and what is
 * chosen from it.
 *
 * Place: asked once when a backend is opened; kernels, products with packed weights and matrix
 * products all follow the same answer. Order: isa_read, isa_best, and isa_hold where the name of
 * the device asks for less. The last two are functions of their arguments alone, so a test can try
 * the processors that it does not have.
 */
#ifndef HEED_OPS_CPU_ISA_H
#define HEED_OPS_CPU_ISA_H
#include "ops/cpu/gemm.h"

/* What the kernel files are compiled for; each level has all of those below it. */
enum isa_level { ISA_BASELINE, ISA_AVX2, ISA_AVX512, ISA_LEVELS };

/* What CPUID and XGETBV say. All zero: a processor of another architecture. */
struct cpuid {
    char vendor[13];     /* leaf 0 */
    uint32_t ecx1;       /* leaf 1 */
    uint32_t ebx7, ecx7; /* leaf 7 */
    uint32_t eax7_1;     /* leaf 7, subleaf 1 */
    uint64_t xcr0;       /* which registers the system saves */
};

struct isa {
    enum isa_level level;
    bool dnnl;          /* oneDNN may be used */
    bool bf16_products; /* products of bf16 are computed in bf16; otherwise in f32, from operands
                         * that are widened first */
    /* products with packed weights, see packed_kernels.c */
    bool f32_pairs, bf16_dot, i8_dot;
};

struct cpuid isa_read(void);
/* What is fastest on this processor, of what works. */
struct isa isa_best(const struct cpuid *c);
/* Lowers to `level` and to nothing beyond it; false: the processor does not have it. */
bool isa_hold(struct isa *isa, enum isa_level level);

/* "baseline", "avx2", "avx512" */
const char *isa_name(enum isa_level level);
/* ISA_LEVELS: there is no such name */
enum isa_level isa_named(const char *name);

/* The kernels of a level. */
struct isa_kernels {
    const struct kernels *rows;
    const struct attend_kernels *attend;
    const struct packed_kernel *packed; /* [PACKED_KINDS] */
    gemm_step *step;
};
const struct isa_kernels *isa_kernels(enum isa_level level);

#endif
