/*
 * language.c - which of some languages a text is written in, by its script.
 */
#include <stdlib.h>
#include <string.h>
#include <unicode/uchar.h>
#include <unicode/uscript.h>
#include <unicode/utf8.h>

#include "heed.h"

enum { SCRIPTS_MAX = 8 };

/* Whether a character is one of a script that the language is written in, by Unicode's tables. */
static bool is_written(const UScriptCode *script, int n, UChar32 c)
{
    for (int i = 0; i < n; i++)
        if (uscript_hasScript(c, script[i])) return true;
    return false;
}

/* The part of the letters of a text that the language is written in. */
static double share(const char *text, const char *language)
{
    UErrorCode status = U_ZERO_ERROR;
    UScriptCode script[SCRIPTS_MAX];
    int n = uscript_getCode(language, script, SCRIPTS_MAX, &status), i = 0;
    size_t letters = 0, own = 0;
    for (UChar32 c; text[i];) {
        U8_NEXT((const uint8_t *)text, i, -1, c);
        if (c < 0 || !u_isalpha(c)) continue;
        letters++;
        own += U_SUCCESS(status) && is_written(script, n, c);
    }
    return letters ? (double)own / (double)letters : 0;
}

static int compare(const void *a, const void *b)
{
    const struct heed_detection *x = a, *y = b;
    return (x->confidence < y->confidence) - (x->confidence > y->confidence);
}

int heed_detect_language(const char *text, const char *const *known, int n,
                         struct heed_detection *out)
{
    if (!text || !known || !out) return 0;
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double x = share(text, known[i]);
        out[i] = (struct heed_detection){known[i], (float)x};
        sum += x;
    }
    for (int i = 0; i < n && sum > 1; i++) out[i].confidence /= (float)sum;
    qsort(out, (size_t)(n > 0 ? n : 0), sizeof *out, compare);
    return n;
}
