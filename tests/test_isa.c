/*
 * test_isa.c - the choice of an instruction set for processors that this machine need not have:
 * isa_best is a function of what CPUID says, or the kernel of ARM64. Each case is what a processor,
 * or a virtual machine on one, reports.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "emulated.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/isa.h"

/* ---- processors ---- */

enum {
    AVX_ECX1 = 1 << 12 | 1 << 27 | 1 << 28 | 1 << 29, /* FMA, OSXSAVE, AVX, F16C */
    AVX2_EBX7 = 1 << 5,
    SKYLAKE_EBX7 = AVX2_EBX7 | 1 << 16 | 1 << 17 | 1 << 30, /* AVX512 F, DQ, BW; VL is bit 31 */
    VNNI_ECX7 = 1 << 11,
    AVX_VNNI_EAX7_1 = 1 << 4,
    BF16_EAX7_1 = 1 << 5,
    AMX_EDX7 = 1 << 22 | 1 << 24 | 1 << 25, /* BF16, TILE, INT8 */
};
#define VL_EBX7 (1u << 31)

static struct cpuid nehalem(void)
{
    return (struct cpuid){.vendor = "GenuineIntel"};
}
static struct cpuid haswell(void)
{
    return (struct cpuid){
        .vendor = "GenuineIntel", .ecx1 = AVX_ECX1, .ebx7 = AVX2_EBX7, .xcr0 = 0x7};
}
static struct cpuid alder_lake(void) /* a client without AVX-512 */
{
    struct cpuid c = haswell();
    c.eax7_1 = AVX_VNNI_EAX7_1;
    return c;
}
static struct cpuid skylake_server(void)
{
    struct cpuid c = haswell();
    c.ebx7 = SKYLAKE_EBX7 | VL_EBX7;
    c.xcr0 = 0xe7;
    return c;
}
static struct cpuid cooper_lake(void)
{
    struct cpuid c = skylake_server();
    c.ecx7 = VNNI_ECX7;
    c.eax7_1 = BF16_EAX7_1;
    return c;
}
/* Also the virtual machines on one that announce AMX and hide the leaf that describes its tiles:
 * that leaf is not read. */
static struct cpuid sapphire_rapids(void)
{
    struct cpuid c = cooper_lake();
    c.eax7_1 |= AVX_VNNI_EAX7_1;
    c.edx7 = AMX_EDX7;
    c.xcr0 = 0x600e7;
    c.tile_permission = true;
    return c;
}
static struct cpuid zen4(void)
{
    struct cpuid c = cooper_lake();
    strcpy(c.vendor, "AuthenticAMD");
    return c;
}

/* ARM64 */
enum {
    ARM_HWCAP = 1 << 0 | 1 << 1 | 1 << 7,       /* floating point, NEON, CRC-32 */
    DOTPROD_HWCAP = 1 << 8 | 1 << 12 | 1 << 20, /* atomics, ASIMDRDM, ASIMDDP */
    I8MM_HWCAP2 = 1 << 13 | 1 << 14             /* I8MM, BF16 */
};

static struct cpuid cortex_a57(void)
{
    return (struct cpuid){.hwcap = ARM_HWCAP};
}
static struct cpuid neoverse_n1(void)
{
    return (struct cpuid){.hwcap = ARM_HWCAP | DOTPROD_HWCAP};
}
static struct cpuid neoverse_v1(void)
{
    return (struct cpuid){.hwcap = ARM_HWCAP | DOTPROD_HWCAP, .hwcap2 = I8MM_HWCAP2};
}

/* ---- choices ---- */

static void check(struct cpuid c, struct isa want)
{
    struct isa got = isa_best(&c);
    assert_int_equal(got.level, want.level);
    assert_int_equal(got.dnnl, !c.hwcap);
    assert_int_equal(got.bf16_products, want.bf16_products);
    assert_int_equal(got.f32_pairs, want.f32_pairs);
    assert_int_equal(got.bf16_dot, want.bf16_dot);
    assert_int_equal(got.i8_dot, want.i8_dot);
    assert_ptr_equal(got.amx, want.amx);
}

static const struct isa baseline = {.level = ISA_BASELINE}, avx2 = {.level = ISA_AVX2},
                        avx_vnni = {.level = ISA_AVX2, .i8_dot = true},
                        avx512 = {.level = ISA_AVX512},
                        intel_bf16 = {.level = ISA_AVX512, .i8_dot = true},
                        amd_bf16 = {.level = ISA_AVX512,
                                    .bf16_products = true,
                                    .f32_pairs = true,
                                    .bf16_dot = true,
                                    .i8_dot = true};

static void test_levels(void **state)
{
    (void)state;
    check((struct cpuid){0}, baseline); /* another architecture */
    check(nehalem(), baseline);
    check(haswell(), avx2);
    check(alder_lake(), avx_vnni);
    check(skylake_server(), avx512);
}

/* A level needs every instruction that the compiler may use for it, and a system that saves its
 * registers. */
static void test_parts_missing(void **state)
{
    (void)state;
    static const uint32_t ecx1[] = {1 << 12, 1 << 27, 1 << 28, 1 << 29};
    static const uint32_t ebx7[] = {1 << 16, 1 << 17, 1 << 30, VL_EBX7};
    for (int i = 0; i < 4; i++) {
        struct cpuid c = skylake_server();
        c.ecx1 &= ~ecx1[i];
        check(c, baseline);
        c = skylake_server();
        c.ebx7 &= ~ebx7[i];
        check(c, avx2);
    }
    struct cpuid c = skylake_server();
    c.xcr0 = 0x7;
    check(c, avx2);
    c.xcr0 = 0x3;
    check(c, baseline);
}

static void test_bf16(void **state)
{
    (void)state;
    check(cooper_lake(), intel_bf16);
    check(zen4(), amd_bf16);
    struct cpuid old = zen4(); /* AVX2 only */
    old.ebx7 = AVX2_EBX7;
    check(old, avx2);
}

#ifdef HEED_AMX
static const struct amx_kernels *const real = &amx_real;
#else
static const struct amx_kernels *const real = NULL; /* the compiler does not know AMX */
#endif

/* Every flag counts, both bits of XCR0 and the permission; what is missing leaves AVX-512. */
static void test_amx(void **state)
{
    (void)state;
    struct isa with = intel_bf16;
    with.amx = real;
    check(sapphire_rapids(), with);
    static const uint32_t flag[] = {1 << 22, 1 << 24, 1 << 25};
    for (int i = 0; i < 3; i++) {
        struct cpuid c = sapphire_rapids();
        c.edx7 &= ~flag[i];
        check(c, intel_bf16);
    }
    static const uint64_t xcr0[] = {0xe7, 0x200e7, 0x400e7};
    for (int i = 0; i < 3; i++) {
        struct cpuid c = sapphire_rapids();
        c.xcr0 = xcr0[i];
        check(c, intel_bf16);
    }
    struct cpuid c = sapphire_rapids();
    c.tile_permission = false;
    check(c, intel_bf16);
    c = sapphire_rapids();
    c.ecx7 = 0; /* no VNNI, which the kernels use too */
    check(c, avx512);
    c = sapphire_rapids();
    c.eax7_1 &= ~(1u << 5); /* no AVX512_BF16, which rounds their results */
    assert_null(isa_best(&c).amx);
    c = sapphire_rapids();
    c.ebx7 = AVX2_EBX7;
    check(c, avx_vnni);
}

static void wrong_i8(int32_t *sum, const uint8_t *a, const int8_t *b)
{
    amx_emulated(ISA_BASELINE)->product_i8(sum, a, b);
    sum[200]++;
}
static void wrong_bf16(float *sum, const uint16_t *a, const uint16_t *b)
{
    amx_emulated(ISA_BASELINE)->product_bf16(sum, a, b);
    sum[3]++;
}

/* AMX is given up where a product of one tile is wrong. */
static void test_check_amx(void **state)
{
    (void)state;
    struct amx_kernels amx = *amx_emulated(ISA_BASELINE);
    struct isa isa = {.amx = &amx};
    isa_check_amx(&isa);
    assert_ptr_equal(isa.amx, &amx);
    amx.product_i8 = wrong_i8;
    isa_check_amx(&isa);
    assert_null(isa.amx);
    amx = *amx_emulated(ISA_BASELINE);
    amx.product_bf16 = wrong_bf16;
    isa.amx = &amx;
    isa_check_amx(&isa);
    assert_null(isa.amx);
    isa_check_amx(&isa);
    assert_null(isa.amx);
}

static void test_arm64(void **state)
{
    (void)state;
    check(cortex_a57(), baseline);
    check(neoverse_n1(), (struct isa){.level = ISA_DOTPROD});
    check(neoverse_v1(), (struct isa){.level = ISA_I8MM});
    /* The level i8mm needs the matrix instructions for int8 and for bf16, and dotprod. */
    for (int bit = 13; bit <= 14; bit++) {
        struct cpuid c = neoverse_v1();
        c.hwcap2 &= ~(1u << bit);
        check(c, (struct isa){.level = ISA_DOTPROD});
    }
    static const uint64_t hwcap[] = {1 << 7, 1 << 8, 1 << 12, 1 << 20};
    for (int i = 0; i < 4; i++) {
        struct cpuid c = neoverse_v1();
        c.hwcap &= ~hwcap[i];
        check(c, baseline);
    }
}

/* ---- less than the best ---- */

/* Each processor has the levels of its architecture up to its own, and no others. */
static void test_includes(void **state)
{
    (void)state;
    static const char has[ISA_LEVELS][ISA_LEVELS + 1] = {
        "10000", /* of a processor at the baseline: baseline, AVX2, AVX-512, dotprod, i8mm */
        "11000", "11100", "10010", "10011",
    };
    for (enum isa_level best = ISA_BASELINE; best < ISA_LEVELS; best++)
        for (enum isa_level level = ISA_BASELINE; level < ISA_LEVELS; level++)
            assert_int_equal(isa_includes(best, level), has[best][level] == '1');
}

static void check_hold(struct cpuid c, enum isa_level level)
{
    struct isa isa = isa_best(&c);
    if (!isa_includes(isa.level, level)) {
        assert_false(isa_hold(&isa, level));
        return;
    }
    assert_true(isa_hold(&isa, level));
    assert_int_equal(isa.level, level);
    assert_int_equal(isa.dnnl, level == ISA_AVX512);
    assert_false(isa.bf16_products || isa.f32_pairs || isa.bf16_dot || isa.i8_dot || isa.amx);
}

static void test_hold(void **state)
{
    (void)state;
    for (enum isa_level level = ISA_BASELINE; level < ISA_LEVELS; level++) {
        check_hold(zen4(), level);
        check_hold(sapphire_rapids(), level);
        check_hold(neoverse_v1(), level);
        assert_int_equal(isa_named(isa_name(level)), level);
    }
    struct cpuid c = haswell();
    struct isa isa = isa_best(&c);
    assert_false(isa_hold(&isa, ISA_AVX512));
    assert_int_equal(isa.level, ISA_AVX2);
    assert_int_equal(isa_named("sse"), ISA_LEVELS);
#if defined(__aarch64__)
    assert_int_equal(isa_named("neon"), ISA_BASELINE);
#endif
}

/* The names of the sets that a processor has, one after the other */
static void check_sets(struct cpuid c, const char *want)
{
    struct isa best = isa_best(&c);
    char got[128] = "";
    const char *name;
    for (int i = 0; (name = isa_set(&best, i)); i++) {
        struct isa isa = best;
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", i ? " " : "", name);
        assert_int_equal(isa_limit(&isa, name), HEED_OK);
        if (i) continue; /* the first is the best itself */
        assert_true(isa.level == best.level && isa.i8_dot == best.i8_dot && isa.amx == best.amx);
        assert_true(isa.f32_pairs == best.f32_pairs && isa.bf16_dot == best.bf16_dot);
    }
    assert_string_equal(got, want);
    assert_int_equal(isa_limit(&best, "tiles"), HEED_EARG);
}

static void test_sets(void **state)
{
    (void)state;
    check_sets(nehalem(), "baseline");
    check_sets(haswell(), "avx2 baseline");
    check_sets(alder_lake(), "avxvnni avx2 baseline");
    check_sets(skylake_server(), "avx512 avx2 baseline");
    check_sets(zen4(), "vnni avx512 avx2 baseline");
    check_sets(sapphire_rapids(), real ? "amx vnni avx512 avxvnni avx2 baseline"
                                       : "vnni avx512 avxvnni avx2 baseline");
    check_sets(cortex_a57(), "baseline");
    check_sets(neoverse_v1(), "i8mm dotprod baseline");

    struct cpuid c = sapphire_rapids();
    struct isa isa = isa_best(&c);
    assert_int_equal(isa_limit(&isa, "avxvnni"), HEED_OK);
    assert_true(isa.level == ISA_AVX2 && isa.i8_dot && !isa.amx && !isa.dnnl);
    c = haswell();
    isa = isa_best(&c);
    assert_int_equal(isa_limit(&isa, "avxvnni"), HEED_EUNSUPPORTED);
    assert_int_equal(isa_limit(&isa, "vnni"), HEED_EUNSUPPORTED);
    c = alder_lake();
    isa = isa_best(&c);
    assert_int_equal(isa_limit(&isa, "vnni"), HEED_EUNSUPPORTED);
}

/* ---- this machine ---- */

/* The compiler's own opinion of the processor */
static void test_this_machine(void **state)
{
    (void)state;
    struct cpuid c = isa_read();
    struct isa isa = isa_best(&c);
#if defined(__x86_64__)
    assert_int_equal(isa.level >= ISA_AVX2,
                     __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") != 0);
    assert_int_equal(isa.level == ISA_AVX512,
                     __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"));
    if (isa.level == ISA_AVX512 && isa.i8_dot) assert_true(__builtin_cpu_supports("avx512vnni"));
    if (isa.bf16_dot) assert_true(__builtin_cpu_supports("avx512bf16"));
#else
    assert_false(isa_includes(isa.level, ISA_AVX2));
#endif
}

/* Linux names the processor's flags in /proc/cpuinfo. A device that asks for AMX is refused where
 * the processor does not have it. */
static void test_amx_here(void **state)
{
    (void)state;
    struct cpuid c = isa_read();
    struct isa isa = isa_best(&c);
    char line[8192], *flags = NULL;
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && !flags && fgets(line, sizeof line, f))
        if (!strncmp(line, "flags", 5)) flags = line;
    if (f) fclose(f);
    if (isa.amx) assert_true(flags && strstr(flags, " amx_tile") && strstr(flags, " amx_int8"));
    struct backend *be;
    struct heed_error err = {0};
    enum heed_status status = cpu_open(&be, "amx", 1, &err);
    assert_int_equal(status, isa.amx ? HEED_OK : HEED_EUNSUPPORTED);
    if (status)
        assert_non_null(strstr(err.text, "'cpu:amx', which this machine lacks"));
    else
        be->op->close(be);
    assert_int_equal(cpu_open(&be, "tiles", 1, &err), HEED_EARG);
    assert_non_null(strstr(err.text, "'cpu:amx'"));
}

/* heed_engine_note reports what is computed otherwise than asked for, and nothing else. */
static void test_note(void **state)
{
    (void)state;
    struct backend *be;
    struct heed_error err = {0};
    struct cpuid c = isa_read();
    struct isa isa = isa_best(&c);
    isa.amx = NULL;
    for (int i = 0; i < 3; i++) {
        bool bf16 = i > 0;
        isa.bf16_products = i == 1;
        if (i == 2) isa.amx = amx_emulated(isa.level);
        if (cpu_open_isa(&be, 1, &isa, &err)) fail_msg("%s", err.text);
        assert_null(be->op->note(be, HEED_F32));
        assert_int_equal(be->op->note(be, HEED_BF16) == NULL,
                         bf16 && gemm_in_bf16(cpu_of(be)->gemm));
        if (isa.amx) assert_true(gemm_in_bf16(cpu_of(be)->gemm));
        be->op->close(be);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels),    cmocka_unit_test(test_parts_missing),
        cmocka_unit_test(test_bf16),      cmocka_unit_test(test_amx),
        cmocka_unit_test(test_check_amx), cmocka_unit_test(test_arm64),
        cmocka_unit_test(test_includes),  cmocka_unit_test(test_hold),
        cmocka_unit_test(test_sets),      cmocka_unit_test(test_this_machine),
        cmocka_unit_test(test_amx_here),  cmocka_unit_test(test_note),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
