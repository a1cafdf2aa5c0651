/*
 * variants.h - the forms of the model that tests go through besides the paper's: each is the fields
 * of config.json that differ. tests/golden/variants.py has the same names and fields.
 */
#ifndef HEED_TESTS_VARIANTS_H
#define HEED_TESTS_VARIANTS_H
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "heed.h"

struct variant {
    const char *name;
    const char *fields; /* "activation=gelu norm=pre" */
};

static const struct variant variants[] = {
    {"paper", ""},
    {"gelu", "activation=gelu"},
    {"silu", "activation=silu"},
    {"swiglu", "activation=swiglu"},
    {"no_position", "position=none"},
    {"bias", "bias=true"},
    {"pre", "norm=pre"},
    {"pre_gelu", "norm=pre activation=gelu"},
    {"pre_bias", "norm=pre bias=true"},
    {"tie_decoder", "tie=decoder"},
    {"tie_none", "tie=none"},
    {"pre_swiglu", "norm=pre activation=swiglu"},
    {"learned", "position=learned"},
    {"rope", "position=rope"},
    {"rope_d_k", "position=rope heads=3 kv_heads=1 d_k=6 d_v=5"},
    {"modern", "norm=pre position=rope activation=swiglu heads=4 kv_heads=2"},
    {"learned_tie_none", "position=learned tie=none"},
    {"multi_query", "kv_heads=1"},
    {"grouped", "heads=4 kv_heads=2"},
    {"wide_heads", "d_k=6 d_v=10"},
    {"odd_heads", "heads=3 kv_heads=1 d_k=5 d_v=7 bias=true"},
    {"linear", "attention=linear"},
    {"linear_learned", "attention=linear position=learned norm=pre"},
    {"linear_modern",
     "attention=linear norm=pre position=rope activation=swiglu heads=4 kv_heads=2"},
    {"linear_odd_heads", "attention=linear heads=3 kv_heads=1 d_k=5 d_v=7 bias=true"},
    {"alibi", "position=alibi"},
    {"alibi_grouped", "position=alibi norm=pre heads=4 kv_heads=2"},
    {"relative", "position=relative"},
    {"relative_grouped", "position=relative heads=3 kv_heads=1 d_k=6 d_v=5"},
    {"window", "attention=window window=2"},
    {"window_global", "attention=window window=3 global=2"},
    {"window_relative", "attention=window window=4 global=1 position=relative"},
    {"window_alibi", "attention=window window=1 position=alibi heads=4 kv_heads=2"},
    {"additive", "attention=additive"},
    {"additive_grouped", "attention=additive position=alibi heads=3 kv_heads=1 d_k=5 d_v=7"},
    {"all_at_once", "norm=pre activation=swiglu position=learned tie=none bias=true "
                    "heads=4 kv_heads=2 d_k=6 d_v=10"},
    {"moe", "ff=moe experts=4"},
    {"moe_one", "ff=moe experts=4 experts_per_token=1 activation=gelu"},
    {"moe_modern", "ff=moe experts=5 experts_per_token=3 norm=pre position=rope activation=swiglu "
                   "heads=4 kv_heads=2"},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

/* The configuration `base` in the form of a variant. */
static inline struct heed_config variant_config(const struct variant *v,
                                                const struct heed_config *base)
{
    struct heed_config c = *base;
    struct heed_error err = {0};
    char fields[256], *next;
    snprintf(fields, sizeof fields, "%s", v->fields);
    for (char *field = strtok_r(fields, " ", &next); field; field = strtok_r(NULL, " ", &next)) {
        char *value = strchr(field, '=');
        *value++ = '\0';
        if (heed_config_set(&c, field, value, &err)) fail_msg("%s: %s", v->name, err.text);
    }
    return c;
}

/* Runs the test once for each variant, which is its state. */
static inline int variants_run(const char *group, CMUnitTestFunction test)
{
    struct CMUnitTest tests[VARIANTS];
    for (int v = 0; v < VARIANTS; v++)
        tests[v] = (struct CMUnitTest){variants[v].name, test, NULL, NULL, (void *)&variants[v]};
    return _cmocka_run_group_tests(group, tests, VARIANTS, NULL, NULL);
}

#endif
