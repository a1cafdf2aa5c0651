/*
 * sentences.h - where the sentences and the words of a text begin and end, in any language: by the
 * rules of Unicode (UAX #29), as ICU applies them. Texts too long for a model are translated
 * sentence by sentence; alignments link words.
 */
#ifndef HEED_TOKENS_SENTENCES_H
#define HEED_TOKENS_SENTENCES_H
#include "heed.h"

/* Sentences or words, without white space around them; between two of them there is only white
 * space. {0} is empty; free(v) releases it. */
struct spans {
    struct heed_span *v;
    size_t n, cap;
};

/* The part of text[0..len) that is left without white space at both ends; white space is what
 * Unicode says it is. */
struct heed_span text_trimmed(const char *text, size_t len);

/* Appends the sentences or words of text[0..len), which need not be valid UTF-8. None of them is
 * empty, and a text of white space has none. A mark of punctuation is a word. */
enum heed_status sentences_split(struct spans *out, const char *text, size_t len,
                                 struct heed_error *err);
enum heed_status words_split(struct spans *out, const char *text, size_t len,
                             struct heed_error *err);

/* How many of n words or sentences end at or before `at`. */
int spans_ended(const struct heed_span *v, int n, size_t at);

#endif
