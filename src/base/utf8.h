/*
 * utf8.h - is this text well formed? Bytes from outside are looked at before SentencePiece sees
 * them.
 */
#ifndef HEED_BASE_UTF8_H
#define HEED_BASE_UTF8_H
#include <stdbool.h>
#include <stddef.h>

/* Bytes of the character at s[0..n), 1 to 4, or 0 where none starts: stray or missing continuation
 * bytes, overlong forms, surrogates, beyond U+10FFFF, and NUL, which no text holds. */
static inline size_t utf8_char(const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    if (n == 0 || s[0] == 0) return 0;
    if (s[0] < 0x80) return 1;
    size_t len = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (s[0] < 0xc2 || s[0] > 0xf4 || n < len) return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if (s[0] == 0xe0 && s[1] < 0xa0) return 0;
    if (s[0] == 0xed && s[1] > 0x9f) return 0;
    if (s[0] == 0xf0 && s[1] < 0x90) return 0;
    if (s[0] == 0xf4 && s[1] > 0x8f) return 0;
    return len;
}

/* Length in bytes of the control character that text[0..n) begins with: one below U+0020, or U+007F
 * to U+009F. Terminals obey some of them. 0: the text begins with none. */
static inline size_t utf8_control(const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    if (n == 0) return 0;
    if (s[0] < ' ' || s[0] == 0x7f) return 1;
    return n > 1 && s[0] == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0 ? 2 : 0;
}

static inline bool utf8_valid(const char *text, size_t n)
{
    size_t len;
    for (size_t i = 0; i < n; i += len)
        if ((len = utf8_char(text + i, n - i)) == 0) return false;
    return true;
}

#endif
