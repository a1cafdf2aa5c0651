/*
 * isa.h - which instructions the CPU backend uses: what the processor reports and what is chosen
 * from it.
 *
 * Place: called once when a backend is opened; row kernels, products with packed weights and matrix
 * products all use the same choice. Order: isa_read, isa_best, isa_check_amx, and isa_limit where
 * the name of the device asks for less. All but isa_read depend on their arguments alone, so a test
 * can try processors that the machine does not have.
 */
#ifndef HEED_OPS_CPU_ISA_H
#define HEED_OPS_CPU_ISA_H
#include "ops/cpu/gemm.h"

struct amx_kernels; /* amx.h */

/* The levels that kernel files are compiled for. The baseline is what every processor of its
 * architecture has; on ARM64 that includes NEON. The others are of x86-64 (AVX2, AVX-512) or of
 * ARM64 (DOTPROD: dot products of int8; I8MM: products of small matrices, of int8 and of bf16);
 * each includes the instructions of those before it that are of its architecture. */
enum isa_level { ISA_BASELINE, ISA_AVX2, ISA_AVX512, ISA_DOTPROD, ISA_I8MM, ISA_LEVELS };

/* What CPUID, XGETBV and the operating system report. All zero: a processor of another
 * architecture. */
struct cpuid {
    char vendor[13];           /* leaf 0 */
    uint32_t ecx1;             /* leaf 1 */
    uint32_t ebx7, ecx7, edx7; /* leaf 7 */
    uint32_t eax7_1;           /* leaf 7, subleaf 1 */
    uint64_t xcr0;             /* which registers the operating system saves */
    bool tile_permission;      /* whether it has let this process use the tiles of AMX */
    uint64_t hwcap, hwcap2;    /* ARM64: AT_HWCAP and AT_HWCAP2 of getauxval */
};

struct isa {
    enum isa_level level;
    bool dnnl;          /* oneDNN may be used */
    bool bf16_products; /* products of bf16 are computed in bf16; otherwise their operands are
                         * widened and the products computed in f32 */
    /* products with packed weights, see packed_kernels.c; i8_dot: by VNNI, on vectors of the level
     */
    bool f32_pairs, bf16_dot, i8_dot;
    bool avx_vnni;                 /* the processor has VNNI for vectors of AVX2 */
    const struct amx_kernels *amx; /* NULL: AMX is not used */
};

/* Where the processor has AMX, this asks the operating system for permission to use it, for the
 * whole process. */
struct cpuid isa_read(void);
/* The fastest choice that works on this processor. */
struct isa isa_best(const struct cpuid *c);
/* Multiplies two tiles of each type and gives up AMX where the result is not that of plain C. */
void isa_check_amx(struct isa *isa);
/* Whether a processor whose best level is `best` has `level` too. */
bool isa_includes(enum isa_level best, enum isa_level level);
/* Limits *isa to the instructions of `level`; false: the processor does not have that level. */
bool isa_hold(struct isa *isa, enum isa_level level);

/* The sets of kernels that a processor has, by name and best first; NULL after the last. The levels
 * are sets; others are "amx", "vnni" (AVX-512 with VNNI, and with bf16_dot and f32_pairs where
 * these are faster) and "avxvnni" (AVX2 with VNNI). best: what isa_best found */
const char *isa_set(const struct isa *best, int i);
/* Limits *isa to a set; HEED_EUNSUPPORTED: the processor lacks it, HEED_EARG: there is no such
 * name.
 */
enum heed_status isa_limit(struct isa *isa, const char *name);

/* "baseline", "avx2", "avx512", "dotprod", "i8mm" */
const char *isa_name(enum isa_level level);
/* "neon" is the baseline of ARM64. Returns ISA_LEVELS where there is no such name. */
enum isa_level isa_named(const char *name);

/* The kernels of a level. */
struct isa_kernels {
    const struct kernels *rows;
    const struct attend_kernels *attend;
    const struct linear_kernels *linear;
    const struct expert_kernels *experts;
    const struct packed_kernel *packed; /* [PACKED_KINDS] */
    gemm_step *step;
};
/* level: one of this build's architecture */
const struct isa_kernels *isa_kernels(enum isa_level level);

#endif
