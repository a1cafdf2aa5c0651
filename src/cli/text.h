/*
 * text.h - text from outside and text for others: UTF-8 that may be broken, blank lines, JSON.
 */
#ifndef HEED_CLI_TEXT_H
#define HEED_CLI_TEXT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define TEXT_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Bytes of the character that text[0..n) starts with, and which one it is (c may be NULL); 0 where
 * none starts. NUL is none: no C string can hold it. */
size_t text_char(const char *text, size_t n, unsigned *c);

bool text_is_valid(const char *text);
/* A NUL-terminated copy with U+FFFD for each byte that is no part of a character; the caller frees
 * it. NULL when memory is out. *mended is set to true where there was such a byte. */
char *text_mend(const char *text, size_t len, bool *mended);

/* Control characters other than the tab. */
bool text_has_controls(const char *text);

/* U+FFFD for each control character, which a terminal might obey, and for what is not UTF-8. */
void text_print_visible(FILE *f, const char *text, size_t len);
/* Prints a text on one line: line ends in it become spaces, and on a terminal it is printed like
 * text_print_visible does. No line end follows. */
void text_print(FILE *f, const char *text, size_t len);
/* To standard output: a JSON string with its quotes. */
void text_print_json(const char *text, size_t len);
/* The beginning of a text to standard error: control characters and marks of direction by their
 * numbers. */
void text_say(const char *text);

#endif
