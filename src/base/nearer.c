/*
 * nearer.c - guesses what was meant by a mistyped word.
 */
#include <limits.h>
#include <string.h>

#include "heed.h"

enum { WORD_MAX = 64 };

/* Insertions, deletions and replacements that turn a into b; both are shorter than WORD_MAX. */
static int edit_distance(const char *a, const char *b)
{
    int na = (int)strlen(a), nb = (int)strlen(b);
    int row[WORD_MAX];
    for (int j = 0; j <= nb; j++) row[j] = j;
    for (int i = 1; i <= na; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= nb; j++) {
            int replaced = diagonal + (a[i - 1] != b[j - 1]);
            int shorter = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = replaced < shorter ? replaced : shorter;
        }
    }
    return row[nb];
}

/* INT_MAX: the candidate cannot be what was meant. */
static int distance(const char *word, const char *candidate)
{
    if (!candidate || strlen(candidate) >= WORD_MAX) return INT_MAX;
    size_t n = strlen(word);
    /* a word cut short counts as one typing error, since people abbreviate */
    if (n >= 3 && strncmp(candidate, word, n) == 0) return 1;
    int limit = n < 4 ? 1 : n < 8 ? 2 : 3;
    int edits = edit_distance(word, candidate);
    return edits <= limit ? edits : INT_MAX;
}

const char *heed_nearer(const char *word, const char *best, const char *candidate)
{
    if (!word || !*word || strlen(word) >= WORD_MAX) return best;
    return distance(word, candidate) < distance(word, best) ? candidate : best;
}
