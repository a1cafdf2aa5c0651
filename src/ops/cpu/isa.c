/*
 * isa.c - which instructions the CPU backend uses. See isa.h.
 *
 * A flag of CPUID says that the processor has an instruction, not that a program may use it: the
 * operating system must also save the registers that the instruction uses (XCR0), and let the
 * process use the tiles of AMX. The leaf of CPUID that describes the tiles is not read: they are
 * the same on all processors, and some virtual machines hide that leaf. On ARM64 the kernel of the
 * operating system reports what a program may use.
 */
#include "ops/cpu/isa.h"

#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "ops/bf16.h"
#include "ops/cpu/amx.h"
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
    EDX7_AMX_BF16 = 1 << 22,
    EDX7_AMX_TILE = 1 << 24,
    EDX7_AMX_INT8 = 1 << 25,
    EAX7_1_AVX_VNNI = 1 << 4,
    EAX7_1_AVX512_BF16 = 1 << 5,
};
#define EBX7_AVX512VL (1u << 31)

/* Flags of ARM64, as the kernel of Linux defines them */
enum {
    HWCAP_OF_ASIMD = 1 << 1, /* NEON */
    HWCAP_OF_CRC32 = 1 << 7,
    HWCAP_OF_ATOMICS = 1 << 8,
    HWCAP_OF_ASIMDRDM = 1 << 12,
    HWCAP_OF_ASIMDDP = 1 << 20,
    HWCAP2_OF_I8MM = 1 << 13,
    HWCAP2_OF_BF16 = 1 << 14,
};

/* State that the operating system saves: the registers of AVX, those of AVX-512 too, and the tiles
 * of AMX and their configuration */
enum { XCR0_AVX = 0x6, XCR0_AVX512 = 0xe6, XCR0_AMX = 0x60000 };

static bool has(uint64_t value, uint64_t bits)
{
    return (value & bits) == bits;
}

#if defined(__x86_64__)
/* Whether the processor has AMX and the operating system saves its registers */
static bool has_amx(const struct cpuid *c)
{
    return has(c->edx7, EDX7_AMX_TILE | EDX7_AMX_INT8 | EDX7_AMX_BF16) && has(c->xcr0, XCR0_AMX);
}

/* Linux lets a process use the tiles only after it has asked for permission, because they make its
 * signal frames larger. Permission is refused where a thread has a small alternate signal stack. */
static bool ask_for_tiles(void)
{
#if defined(__linux__)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return false;
#endif
}

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
        __cpuid_count(7, 0, subleaves, c.ebx7, c.ecx7, c.edx7);
        if (subleaves >= 1) __cpuid_count(7, 1, c.eax7_1, unused, unused, unused);
    }
    if (c.ecx1 & ECX1_OSXSAVE) c.xcr0 = read_xcr0();
    if (has_amx(&c)) c.tile_permission = ask_for_tiles();
    (void)unused;
    return c;
}
#elif defined(__aarch64__)
struct cpuid isa_read(void)
{
    return (struct cpuid){.hwcap = getauxval(AT_HWCAP), .hwcap2 = getauxval(AT_HWCAP2)};
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

/* All instructions that the compiler may use in files of this level: of ARMv8.2 and its extension
 */
static bool has_dotprod(const struct cpuid *c)
{
    return has(c->hwcap, HWCAP_OF_ASIMD | HWCAP_OF_CRC32 | HWCAP_OF_ATOMICS | HWCAP_OF_ASIMDRDM |
                             HWCAP_OF_ASIMDDP);
}

/* The fastest choice for ARM64. Every processor with the matrix instructions for int8 is expected
 * to have those for bf16 too; the level needs both. oneDNN is not used, because its results may
 * depend on the number of threads. */
static struct isa best_arm64(const struct cpuid *c)
{
    bool dotprod = has_dotprod(c);
    bool i8mm = dotprod && has(c->hwcap2, HWCAP2_OF_I8MM | HWCAP2_OF_BF16);
    return (struct isa){.level = i8mm ? ISA_I8MM : dotprod ? ISA_DOTPROD : ISA_BASELINE};
}

/* On Intel's processors the bf16 dot products of AVX-512 run at half the rate of f32
 * multiplications at best, so that two products in one instruction gain nothing; on AMD's they run
 * at the full rate. AMD's processors have separate units for additions of f32, which F32_PAIRS
 * uses. */
struct isa isa_best(const struct cpuid *c)
{
    if (has(c->hwcap, HWCAP_OF_ASIMD)) return best_arm64(c);
    bool intel = !strcmp(c->vendor, "GenuineIntel"), amd = !strcmp(c->vendor, "AuthenticAMD");
    bool avx512 = has_avx512(c), bf16 = avx512 && has(c->eax7_1, EAX7_1_AVX512_BF16);
    struct isa isa = {.level = avx512 ? ISA_AVX512 : has_avx2(c) ? ISA_AVX2 : ISA_BASELINE};
    isa.dnnl = true;
    isa.bf16_products = bf16 && !intel;
    isa.f32_pairs = avx512 && amd;
    isa.bf16_dot = bf16 && !intel;
    isa.avx_vnni = has_avx2(c) && has(c->eax7_1, EAX7_1_AVX_VNNI);
    isa.i8_dot = avx512 ? has(c->ecx7, ECX7_AVX512_VNNI) : isa.avx_vnni;
#ifdef HEED_AMX
    /* its kernels use AVX-512, its rounding to bf16, and the dot products of int8 for a few rows */
    if (bf16 && isa.i8_dot && has_amx(c) && c->tile_permission) isa.amx = &amx_real;
#endif
    return isa;
}

/* The numbers of the tiles are such that all sums are exact, in any order. */
void isa_check_amx(struct isa *isa)
{
    enum { SIDE = AMX_SIDE, BYTES = AMX_TILE, NUMBERS = AMX_TILE / 2 };
    uint8_t a[BYTES];
    int8_t b[BYTES];
    uint16_t x[NUMBERS], w[NUMBERS];
    int32_t ints[SIDE * SIDE] = {0};
    float floats[SIDE * SIDE] = {0};
    if (!isa->amx) return;
    for (int i = 0; i < BYTES; i++) a[i] = (uint8_t)(7 * i), b[i] = (int8_t)(i % 251 - 125);
    for (int i = 0; i < NUMBERS; i++) x[i] = bf16_from_float((float)(i % 127 - 60));
    for (int i = 0; i < NUMBERS; i++) w[i] = bf16_from_float((float)(i % 113 - 50));
    isa->amx->product_i8(ints, a, b);
    isa->amx->product_bf16(floats, x, w);
    bool right = true;
    for (int i = 0; i < SIDE * SIDE; i++) {
        int r = i / SIDE, n = i % SIDE;
        for (int k = 0; k < BYTES / SIDE; k++)
            ints[i] -= a[r * BYTES / SIDE + k] * b[(k / 4 * SIDE + n) * 4 + k % 4];
        for (int k = 0; k < AMX_DEEP; k++)
            floats[i] -= bf16_to_float(x[r * AMX_DEEP + k]) *
                         bf16_to_float(w[(k / 2 * SIDE + n) * 2 + k % 2]);
        right &= ints[i] == 0 && floats[i] == 0;
    }
    if (!right) isa->amx = NULL;
}

bool isa_includes(enum isa_level best, enum isa_level level)
{
    static const enum isa_level below[ISA_LEVELS] = {
        [ISA_AVX512] = ISA_AVX2, [ISA_I8MM] = ISA_DOTPROD}; /* the baseline is below the others */
    while (best != level && best != ISA_BASELINE) best = below[best];
    return best == level;
}

/* oneDNN chooses its kernels by what the processor has. Of those that gemm_dnnl.c takes, the ones
 * for f32 need AVX-512 and nothing beyond. */
bool isa_hold(struct isa *isa, enum isa_level level)
{
    if (!isa_includes(isa->level, level)) return false;
    *isa = (struct isa){.level = level, .dnnl = level == ISA_AVX512};
    return true;
}

enum heed_status isa_limit(struct isa *isa, const char *name)
{
    bool has_it;
    if (!strcmp(name, "amx")) {
        has_it = isa->amx;
    } else if (!strcmp(name, "vnni")) {
        has_it = isa->level == ISA_AVX512 && isa->i8_dot;
        if (has_it) isa->amx = NULL;
    } else if (!strcmp(name, "avxvnni")) {
        has_it = isa->avx_vnni;
        if (has_it) *isa = (struct isa){.level = ISA_AVX2, .i8_dot = true, .avx_vnni = true};
    } else {
        enum isa_level level = isa_named(name);
        if (level == ISA_LEVELS) return HEED_EARG;
        has_it = isa_hold(isa, level);
    }
    return has_it ? HEED_OK : HEED_EUNSUPPORTED;
}

const char *isa_set(const struct isa *best, int i)
{
    static const char *const sets[] = {"amx",  "vnni", "avx512",  "avxvnni",
                                       "avx2", "i8mm", "dotprod", "baseline"};
    for (size_t k = 0; k < sizeof sets / sizeof *sets; k++) {
        struct isa isa = *best;
        if (isa_limit(&isa, sets[k]) == HEED_OK && i-- == 0) return sets[k];
    }
    return NULL;
}

/* ---- names and kernels ---- */

static const char *const names[ISA_LEVELS] = {"baseline", "avx2", "avx512", "dotprod", "i8mm"};

const char *isa_name(enum isa_level level)
{
    return names[level];
}

enum isa_level isa_named(const char *name)
{
    int i = 0;
#if defined(__aarch64__)
    if (!strcmp(name, "neon")) return ISA_BASELINE;
#endif
    while (i < ISA_LEVELS && strcmp(name, names[i])) i++;
    return (enum isa_level)i;
}

const struct isa_kernels *isa_kernels(enum isa_level level)
{
    static const struct isa_kernels all[ISA_LEVELS] = {
        [ISA_BASELINE] = {&kernels_baseline, &attend_baseline, &linear_baseline, &experts_baseline,
                          packed_baseline, gemm_step_baseline},
#if defined(__x86_64__)
        [ISA_AVX2] = {&kernels_avx2, &attend_avx2, &linear_avx2, &experts_avx2, packed_avx2,
                      gemm_step_avx2},
        [ISA_AVX512] = {&kernels_avx512, &attend_avx512, &linear_avx512, &experts_avx512,
                        packed_avx512, gemm_step_avx512},
#elif defined(__aarch64__)
        [ISA_DOTPROD] = {&kernels_dotprod, &attend_dotprod, &linear_dotprod, &experts_dotprod,
                         packed_dotprod, gemm_step_dotprod},
        [ISA_I8MM] = {&kernels_i8mm, &attend_i8mm, &linear_i8mm, &experts_i8mm, packed_i8mm,
                      gemm_step_i8mm},
#endif
    };
    return &all[level];
}
