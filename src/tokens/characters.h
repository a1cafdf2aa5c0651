/*
 * characters.h - the characters of a text and their properties, by Unicode's tables.
 */
#ifndef HEED_TOKENS_CHARACTERS_H
#define HEED_TOKENS_CHARACTERS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The character that ends before, or begins at, a place between two characters of a text that ends
 * in NUL. Returns 0 where there is none, and a negative number where the text is not valid UTF-8.
 */
int32_t char_before(const char *text, size_t at);
int32_t char_behind(const char *text, size_t at);
/* Length of a character in bytes of UTF-8. */
size_t char_bytes(int32_t c);

/* Whether c is white space, or 0: there is no character. */
bool char_is_space(int32_t c);
/* Whether c shows on a screen, unlike control characters and joiners. */
bool char_is_visible(int32_t c);
/* Whether c is an ideograph (a Chinese character): it has a meaning of its own, and no spaces
 * around it. */
bool char_is_ideographic(int32_t c);
/* Whether c is a Chinese, Japanese or full-width character, or a mark of their punctuation: there
 * are no spaces between those. */
bool char_is_wide(int32_t c);
/* Whether c is a letter or digit of a language that has spaces between its words. */
bool char_is_spaced(int32_t c);
/* Whether c is an opening bracket or quotation mark; whether it is a closing one. */
bool char_opens(int32_t c);
bool char_closes(int32_t c);
/* Whether c is a mark of punctuation that has no space before it. */
bool char_follows(int32_t c);

#endif
