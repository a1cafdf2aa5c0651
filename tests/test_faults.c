/*
 * test_faults.c - what counts as a fault of a translation, case by case.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "decode/faults.h"

/* A letter is an id; a full stop is the end mark. */
static struct heed_ids ids_of(const char *text, int32_t *v)
{
    struct heed_ids ids = {.v = v};
    for (; *text && *text != '.'; text++) v[ids.n++] = *text;
    return ids;
}

static void test_cases(void **state)
{
    (void)state;
    static const struct {
        const char *src, *out;
        unsigned want;
    } cases[] = {
        {"abc", "xyz.", 0},
        {"abc", "xyz", HEED_FLAG_CUT},
        {"abc", "", HEED_FLAG_CUT},
        {"abc", ".", 0},
        /* a copy, but not of a name or number */
        {"abcde", "abcde.", HEED_FLAG_COPY},
        {"abcd", "abcd.", 0},
        {"abcde", "abcdf.", 0},
        {"abcde", "abcdef.", 0},
        /* eight times one token, four times several, anywhere */
        {"abc", "xxxxxxxx.", HEED_FLAG_LOOP},
        {"abc", "xxxxxxx.", 0},
        {"abc", "qrxyxyxyxys.", HEED_FLAG_LOOP},
        {"abc", "qrxyxyxyxs.", 0},
        {"abc", "abcdefghijklabcdefghijklabcdefghijklabcdefghijkl.", HEED_FLAG_LOOP},
        {"abc", "abcdefghijklmabcdefghijklmabcdefghijklmabcdefghijklm.", 0},
        {"abc", "xxxxxxxxx", HEED_FLAG_LOOP | HEED_FLAG_CUT},
        /* the source does so too */
        {"ababababc", "xyxyxyxyz.", 0},
        {"aaaaaaaa", "xxxxxxxx.", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int32_t v[2][64];
        const char *out = cases[i].out;
        struct heed_ids src = ids_of(cases[i].src, v[0]);
        struct translation t = {.ids = ids_of(out, v[1])};
        t.ended = out[t.ids.n] == '.';
        unsigned found = faults_of(&src, &t);
        if (found != cases[i].want)
            fail_msg("'%s' for '%s' has faults %u, expected %u", out, cases[i].src, found,
                     cases[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
