/*
 * nearer.c - guesses what was meant by a mistyped word.
 */
#include <limits.h>
#include <string.h>

#include "base/minmax.h"
#include "heed.h"

enum { WORD_MAX = 64 };

/* Insertions, deletions, replacements and swaps of two neighbouring letters that turn a into b;
 * both are shorter than WORD_MAX. d[i][j] is the distance of the first i letters of a from the
 * first j of b. */
static int edit_distance(const char *a, const char *b)
{
    int na = (int)strlen(a), nb = (int)strlen(b);
    int d[WORD_MAX][WORD_MAX];
    for (int i = 0; i <= na; i++) d[i][0] = i;
    for (int j = 0; j <= nb; j++) d[0][j] = j;
    for (int i = 1; i <= na; i++)
        for (int j = 1; j <= nb; j++) {
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            int replaced = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            int shorter = int_min(d[i - 1][j], d[i][j - 1]) + 1;
            d[i][j] = int_min(replaced, shorter);
            if (swapped) d[i][j] = int_min(d[i][j], d[i - 2][j - 2] + 1);
        }
    return d[na][nb];
}

/* INT_MAX: the candidate cannot be what was meant. */
static int distance(const char *word, const char *candidate)
{
    if (!candidate || strlen(candidate) >= WORD_MAX) return INT_MAX;
    size_t n = strlen(word);
    /* a word cut short counts as one typing error, since people abbreviate */
    if (n >= 3 && strncmp(candidate, word, n) == 0) return 1;
    int limit = n < 5 ? 1 : n < 8 ? 2 : 3;
    int edits = edit_distance(word, candidate);
    return edits <= limit ? edits : INT_MAX;
}

const char *heed_nearer(const char *word, const char *best, const char *candidate)
{
    if (!word || !*word || strlen(word) >= WORD_MAX) return best;
    return distance(word, candidate) < distance(word, best) ? candidate : best;
}
