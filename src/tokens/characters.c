/*
 * characters.c - the characters of a text and their properties; see characters.h.
 */
#include "tokens/characters.h"

#include <unicode/uchar.h>
#include <unicode/utf8.h>

int32_t char_before(const char *text, size_t at)
{
    UChar32 c = 0;
    int32_t i = at < U8_MAX_LENGTH ? (int32_t)at : U8_MAX_LENGTH; /* ICU counts in int32_t */
    const uint8_t *s = (const uint8_t *)text + at - i;
    if (i) U8_PREV(s, 0, i, c);
    return c;
}

int32_t char_behind(const char *text, size_t at)
{
    UChar32 c = 0;
    int32_t i = 0;
    const uint8_t *s = (const uint8_t *)text + at;
    if (*s) U8_NEXT(s, i, -1, c);
    return c;
}

size_t char_bytes(int32_t c)
{
    return (size_t)U8_LENGTH(c);
}

bool char_is_space(int32_t c)
{
    return c == 0 || u_isUWhiteSpace(c);
}

bool char_is_visible(int32_t c)
{
    return !u_iscntrl(c) && !u_hasBinaryProperty(c, UCHAR_DEFAULT_IGNORABLE_CODE_POINT);
}

bool char_is_ideographic(int32_t c)
{
    return u_hasBinaryProperty(c, UCHAR_IDEOGRAPHIC);
}

bool char_is_wide(int32_t c)
{
    return (c >= 0x2e80 && c <= 0x9fff) || (c >= 0xff00 && c <= 0xff65);
}

bool char_is_spaced(int32_t c)
{
    int32_t width = u_getIntPropertyValue(c, UCHAR_EAST_ASIAN_WIDTH);
    return u_isalnum(c) && width != U_EA_WIDE && width != U_EA_FULLWIDTH;
}

bool char_opens(int32_t c)
{
    int8_t kind = u_charType(c);
    return kind == U_START_PUNCTUATION || kind == U_INITIAL_PUNCTUATION;
}

bool char_closes(int32_t c)
{
    int8_t kind = u_charType(c);
    return kind == U_END_PUNCTUATION || kind == U_FINAL_PUNCTUATION;
}

bool char_follows(int32_t c)
{
    return char_closes(c) || u_charType(c) == U_OTHER_PUNCTUATION;
}
