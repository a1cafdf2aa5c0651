/*
 * sentences.h - where the sentences of a text begin and end, in any language: by the rules of
 * Unicode (UAX #29), as ICU applies them. For texts longer than what a model takes at once.
 */
#ifndef HEED_TEXT_SENTENCES_H
#define HEED_TEXT_SENTENCES_H
#include "heed.h"

/* A sentence is text[start, end), without white space around it; up to the next one there is
 * nothing else. */
struct sentence {
    size_t start, end;
};

/* {0} is empty; free(v) releases it. */
struct sentences {
    struct sentence *v;
    size_t n, cap;
};

/* Appends the sentences of text[0..len), which need not be valid UTF-8. None of them is empty, and
 * a text of white space has none. */
enum heed_status sentences_split(struct sentences *out, const char *text, size_t len,
                                 struct heed_error *err);

#endif
