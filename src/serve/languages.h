/*
 * languages.h - names and spellings of language codes.
 */
#ifndef HEED_SERVE_LANGUAGES_H
#define HEED_SERVE_LANGUAGES_H
#include <stdbool.h>
#include <stddef.h>

/* The English name of a code such as "de"; the code itself where it is not known. */
const char *language_name(const char *code);
/* Whether what a client wrote, such as "DE" or "zh-Hans", means a code that a model has. */
bool language_same(const char *written, const char *code);
/* Whether a name is that of a pair of languages, such as "en-de": writes both codes, each of at
 * most 15 bytes. */
bool language_pair(const char *name, char from[16], char to[16]);

#endif
