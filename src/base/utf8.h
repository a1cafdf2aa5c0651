/*
 * utf8.h - characters of UTF-8 text. ICU's macros decode them, here and wherever else heed reads
 * UTF-8. Bytes from outside are checked with these functions before SentencePiece sees them.
 */
#ifndef HEED_BASE_UTF8_H
#define HEED_BASE_UTF8_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unicode/utf8.h>

#define UTF8_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD, which replaces a byte that is not UTF-8 */

/* Length in bytes, 1 to 4, of the character that text[0..n) begins with; *c is its code point.
 * Returns 0 where no character begins: at a stray or missing continuation byte, an overlong form, a
 * surrogate, a code point beyond U+10FFFF, and at NUL, which no text holds. */
static inline size_t utf8_next(const char *text, size_t n, int32_t *c)
{
    size_t len = 0;
    if (n == 0 || text[0] == '\0') return 0;
    U8_NEXT(text, len, n, *c);
    return *c < 0 ? 0 : len;
}

/* The same without the code point. */
static inline size_t utf8_char(const char *text, size_t n)
{
    int32_t c;
    return utf8_next(text, n, &c);
}

/* Length in bytes of the control character that text[0..n) begins with: one below U+0020, or U+007F
 * to U+009F. Terminals obey some of them. Returns 0 where the text begins with another character.
 */
static inline size_t utf8_control(const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    if (n == 0) return 0;
    if (s[0] < ' ' || s[0] == 0x7f) return 1;
    return n > 1 && s[0] == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0 ? 2 : 0;
}

static inline bool utf8_valid(const char *text, size_t n)
{
    for (size_t i = 0, len; i < n; i += len) {
        bool ascii = (signed char)text[i] > 0; /* most text: not worth a call of the decoder */
        if ((len = ascii ? 1 : utf8_char(text + i, n - i)) == 0) return false;
    }
    return true;
}

/* Copies text[0..n) to `to`, which has room for 3n bytes, with U+FFFD in place of each byte that is
 * not part of a character. Returns the length of the copy, which has no NUL at its end. */
static inline size_t utf8_mend(char *to, const char *text, size_t n)
{
    static const char replacement[] = UTF8_REPLACEMENT;
    size_t at = 0, len;
    for (size_t i = 0; i < n; i += len ? len : 1) {
        len = utf8_char(text + i, n - i);
        size_t bytes = len ? len : sizeof replacement - 1;
        memcpy(to + at, len ? text + i : replacement, bytes);
        at += bytes;
    }
    return at;
}

#endif
