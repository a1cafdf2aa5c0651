/*
 * text.h - a picture that is plain text or JSON, written to memory.
 *
 * Call order: text_begin, fprintf to `to`, text_end. Numbers are written with a decimal point in
 * every locale. A failure to allocate is returned by text_end, so that the calls between need no
 * checks: where `to` is NULL, text_end is called at once.
 */
#ifndef HEED_VIEW_TEXT_H
#define HEED_VIEW_TEXT_H
#include <stdio.h>

#include "base/locale.h"
#include "heed.h"

struct text_out {
    FILE *to; /* NULL: out of memory */
    char *text;
    size_t n;
    struct c_locale locale; /* of the caller; the C locale is in force until text_end */
};

void text_begin(struct text_out *t);
/* *out is malloced and NUL-terminated. */
enum heed_status text_end(struct text_out *t, char **out, struct heed_error *err);

/* Writes a JSON string with its quotes. */
void text_json_string(FILE *to, const char *text);
/* A number, or null where it is not finite. */
void text_json_number(FILE *to, double value);
/* Write n numbers as a JSON array. */
void text_json_floats(FILE *to, const float *value, size_t n);
void text_json_doubles(FILE *to, const double *value, size_t n);

/* Writes a text for a terminal: U+FFFD for control characters, which a terminal would obey. */
void text_visible(FILE *to, const char *text);

/* Writes a bar of at most `columns` columns for a value from 0 to 1. */
void text_bar(FILE *to, double value, int columns);

#endif
