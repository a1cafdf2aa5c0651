/*
 * utf8.c - UTF-8 from outside; see utf8.h.
 */
#include "serve/utf8.h"

#include <unicode/utf8.h>

void utf8_mend(struct buffer *out, const char *text, size_t n)
{
    size_t good = 0; /* where the valid bytes begin that are not put in yet */
    for (size_t at = 0; at < n;) {
        size_t next = at;
        UChar32 c;
        U8_NEXT(text, next, n, c);
        if (c > 0) {
            at = next;
            continue;
        }
        buffer_put(out, text + good, at - good);
        buffer_text(out, "\xef\xbf\xbd");
        good = ++at;
    }
    buffer_put(out, text + good, n - good);
}

size_t utf8_count(const char *text, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

/* Characters of four bytes are two code units, all others are one. */
size_t utf8_utf16_units(const char *text, size_t n)
{
    size_t units = utf8_count(text, n);
    for (size_t i = 0; i < n; i++) units += (unsigned char)text[i] >= 0xf0;
    return units;
}
