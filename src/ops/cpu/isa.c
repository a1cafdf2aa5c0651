/*
 * isa.c - which instructions the CPU backend uses. See isa.h.
 *
 * A flag of CPUID says that the processor has an instruction, not that a program may use it: the
 * operating system must also save the registers that the instruction uses (XCR0). The flags of AMX
 * are not read, because no kernel for AMX is used: gemm_dnnl.c says why oneDNN's are not.
 */
#include "ops/cpu/isa.h"

#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "ops/cpu/attention.h"
#include "ops/cpu/experts.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/linear_attention.h"
#include "ops/cpu/packed.h"

/* ---- what the processor reports ---- */

/* Flags by register, as the manuals of Intel and AMD name them */
enum {
    ECX1_FMA = 1 << 12,
    ECX1_OSXSAVE = 1 << 27,
    ECX1_AVX = 1 << 28,
    ECX1_F16C = 1 << 29,
    EBX7_AVX2 = 1 << 5,
    EBX7_AVX512F = 1 << 16,
    EBX7_AVX512DQ = 1 << 17,
    EBX7_AVX512BW = 1 << 30,
    ECX7_AVX512_VNNI = 1 << 11,
    EAX7_1_AVX512_BF16 = 1 << 5,
};
#define EBX7_AVX512VL (1u << 31)

/* State that the operating system saves: the registers of AVX, and those of AVX-512 too */
enum { XCR0_AVX = 0x6, XCR0_AVX512 = 0xe6 };

static bool has(uint64_t value, uint64_t bits)
{
    return (value & bits) == bits;
}

#if defined(__x86_64__)
static uint64_t read_xcr0(void)
{
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

struct cpuid isa_read(void)
{
    struct cpuid c = {0};
    uint32_t highest, name[3], unused; /* highest: the leaves above this one do not exist */
    __cpuid(0, highest, name[0], name[2], name[1]);
    memcpy(c.vendor, name, sizeof name);
    __cpuid(1, unused, unused, c.ecx1, unused);
    if (highest >= 7) {
        uint32_t subleaves;
        __cpuid_count(7, 0, subleaves, c.ebx7, c.ecx7, unused);
        if (subleaves >= 1) __cpuid_count(7, 1, c.eax7_1, unused, unused, unused);
    }
    if (c.ecx1 & ECX1_OSXSAVE) c.xcr0 = read_xcr0();
    (void)unused;
    return c;
}
#else
struct cpuid isa_read(void)
{
    return (struct cpuid){0};
}
#endif

/* ---- what is chosen ---- */

/* All instructions that the compiler may use in files of this level (cmake/kernels.cmake). */
static bool has_avx2(const struct cpuid *c)
{
    return has(c->ecx1, ECX1_OSXSAVE | ECX1_AVX | ECX1_FMA | ECX1_F16C) &&
           has(c->ebx7, EBX7_AVX2) && has(c->xcr0, XCR0_AVX);
}

static bool has_avx512(const struct cpuid *c)
{
    return has_avx2(c) && has(c->xcr0, XCR0_AVX512) &&
           has(c->ebx7, EBX7_AVX512F | EBX7_AVX512DQ | EBX7_AVX512BW | EBX7_AVX512VL);
}

/* On Intel's processors the bf16 dot products of AVX-512 run at half the rate of f32
 * multiplications at best, so that two products in one instruction gain nothing; on AMD's they run
 * at the full rate. AMD's processors have separate units for additions of f32, which F32_PAIRS
 * uses. */
struct isa isa_best(const struct cpuid *c)
{
    bool intel = !strcmp(c->vendor, "GenuineIntel"), amd = !strcmp(c->vendor, "AuthenticAMD");
    bool avx512 = has_avx512(c), bf16 = avx512 && has(c->eax7_1, EAX7_1_AVX512_BF16);
    struct isa isa = {.level = avx512 ? ISA_AVX512 : has_avx2(c) ? ISA_AVX2 : ISA_BASELINE};
    isa.dnnl = true;
    isa.bf16_products = bf16 && !intel;
    isa.f32_pairs = avx512 && amd;
    isa.bf16_dot = bf16 && !intel;
    isa.i8_dot = avx512 && has(c->ecx7, ECX7_AVX512_VNNI);
    return isa;
}

/* oneDNN chooses its kernels by what the processor has. Of those that gemm_dnnl.c takes, the ones
 * for f32 need AVX-512 and nothing beyond. */
bool isa_hold(struct isa *isa, enum isa_level level)
{
    if (isa->level < level) return false;
    *isa = (struct isa){.level = level, .dnnl = level == ISA_AVX512};
    return true;
}

/* ---- names and kernels ---- */

static const char *const names[ISA_LEVELS] = {"baseline", "avx2", "avx512"};

const char *isa_name(enum isa_level level)
{
    return names[level];
}

enum isa_level isa_named(const char *name)
{
    int i = 0;
    while (i < ISA_LEVELS && strcmp(name, names[i])) i++;
    return (enum isa_level)i;
}

const struct isa_kernels *isa_kernels(enum isa_level level)
{
    static const struct isa_kernels all[ISA_LEVELS] = {
        {&kernels_baseline, &attend_baseline, &linear_baseline, &experts_baseline, packed_baseline,
         gemm_step_baseline},
#if defined(__x86_64__)
        {&kernels_avx2, &attend_avx2, &linear_avx2, &experts_avx2, packed_avx2, gemm_step_avx2},
        {&kernels_avx512, &attend_avx512, &linear_avx512, &experts_avx512, packed_avx512,
         gemm_step_avx512},
#endif
    };
    return &all[level];
}
