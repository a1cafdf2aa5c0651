/*
 * text.c - text from outside and text for others; see text.h.
 */
#include "cli/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unicode/utf8.h>
#include <unistd.h>

#include "cli/cli.h"

size_t text_char(const char *text, size_t n, unsigned *c)
{
    size_t len = 0;
    UChar32 code;
    if (n == 0 || text[0] == '\0') return 0;
    U8_NEXT(text, len, n, code);
    if (code < 0) return 0;
    if (c) *c = (unsigned)code;
    return len;
}

bool text_is_valid(const char *text)
{
    size_t n;
    for (size_t left = strlen(text); left; text += n, left -= n) {
        if ((n = text_char(text, left, NULL)) == 0) return false;
    }
    return true;
}

char *text_mend(const char *text, size_t len, bool *mended)
{
    static const char replacement[] = TEXT_REPLACEMENT;
    size_t bad = 0, n;
    for (size_t i = 0; i < len; i += n ? n : 1)
        bad += (n = text_char(text + i, len - i, NULL)) == 0;
    char *copy = malloc(len + 2 * bad + 1), *p = copy;
    if (!copy) return NULL;
    for (size_t i = 0; i < len; i += n ? n : 1) {
        n = text_char(text + i, len - i, NULL);
        memcpy(p, n ? text + i : replacement, n ? n : 3);
        p += n ? n : 3;
    }
    *p = '\0';
    if (bad) *mended = true;
    return copy;
}

bool text_has_controls(const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if ((c < ' ' && c != '\t') || c == 0x7f) return true;
    }
    return false;
}

static bool is_control(unsigned c)
{
    return c < ' ' || (c >= 0x7f && c < 0xa0);
}

void text_print_visible(FILE *f, const char *text, size_t len)
{
    for (size_t i = 0, n; i < len; i += n) {
        unsigned c = 0;
        n = text_char(text + i, len - i, &c);
        bool odd = n == 0 || (is_control(c) && c != '\t');
        if (n == 0) n = 1;
        fwrite(odd ? TEXT_REPLACEMENT : text + i, 1, odd ? 3 : n, f);
    }
}

/* Pieces of byte fallback may spell a line end. It is printed as a space, because an additional
 * line would shift all lines that follow. */
void text_print(FILE *f, const char *text, size_t len)
{
    bool terminal = cli_terminal(fileno(f));
    for (size_t i = 0, n; i < len; i += n) {
        n = strcspn(text + i, "\n\r");
        if (n > len - i) n = len - i;
        if (n > 0 && terminal) {
            text_print_visible(f, text + i, n);
        } else if (n > 0) {
            fwrite(text + i, 1, n, f);
        } else {
            putc(' ', f);
            n = 1;
        }
    }
}

/* RFC 8259, section 7: quote, backslash and control characters are escaped. */
void text_print_json(const char *text, size_t len)
{
    putchar('"');
    for (size_t i = 0, n; i < len; i += n ? n : 1) {
        unsigned c = 0;
        n = text_char(text + i, len - i, &c);
        if (n == 0 && text[i]) {
            fputs(TEXT_REPLACEMENT, stdout);
        } else if (c == '"' || c == '\\') {
            printf("\\%c", (int)c);
        } else if (c == '\t') {
            fputs("\\t", stdout);
        } else if (c < ' ' || c == 0x7f) {
            printf("\\u%04x", c);
        } else {
            fwrite(text + i, 1, n, stdout);
        }
    }
    putchar('"');
}

/* Whether a terminal shows nothing for a character, or does something instead. The joiners inside
 * of emoji are not among these. */
static bool is_hidden(unsigned c)
{
    return is_control(c) || c == 0xad || c == 0x200b || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff;
}

void text_say(const char *text)
{
    enum { MOST = 64 };
    unsigned c = 0;
    int shown = 0;
    for (size_t left = strlen(text), n; left; text += n, left -= n) {
        if (shown++ == MOST) {
            fputs("...", stderr);
            return;
        }
        n = text_char(text, left, &c);
        if (n && !is_hidden(c)) {
            fwrite(text, 1, n, stderr);
        } else {
            if (!n) c = (unsigned char)*text, n = 1;
            fprintf(stderr, "U+%04X", c);
        }
    }
}
