/*
 * spelling.h - what a vocabulary cannot spell: an emoji, markup, a word of another script.
 *
 * A character without a piece of its own is written in bytes. A model that has hardly seen any
 * bytes (tokenizer_spells) makes things up where it reads them. So the model is given the text
 * without such characters, and the translation gets them back (decode/restore.h).
 *
 * What is taken out of the text is not only the character but all that has no meaning without it:
 * the rest of its word, of its tag (<b>), of its placeholder ({0}) or of its path (C:\Users). Where
 * the vocabulary has another form of the same characters, the model reads that form instead:
 * characters of another width (full-width digits), the letters of a ligature, a letter joined with
 * its mark, a simplified Chinese character for a traditional one.
 *
 * What is taken out is copied to the translation, with two exceptions: characters that cannot be
 * seen, such as control characters, and a Chinese character among others that are read, which says
 * nothing to a reader of the other language. These are left out.
 */
#ifndef HEED_TOKENS_SPELLING_H
#define HEED_TOKENS_SPELLING_H
#include "heed.h"

/* A stretch of the text that the model does not read, with no white space at its ends. */
struct unspelled {
    struct heed_span where; /* in spelling.text */
    size_t at;              /* offset in spelling.read where it was taken out */
    bool copied;            /* to be copied into the translation; false: it is left out */
};

struct spelling {
    char *text;          /* the text, with U+FFFD in place of what was not UTF-8 */
    bool mended;         /* some of the text was not UTF-8 */
    char *read;          /* what the model reads */
    size_t *origin;      /* [bytes of read + 1] offset in text that each byte of read comes from */
    struct unspelled *v; /* [n] the stretches, in the order of the text */
    int n;
};

/* Fills s, which is {0}. tagged: see tokenizer_encode_source. */
enum heed_status spelling_make(struct spelling *s, const struct heed_tokenizer *t, const char *text,
                               bool tagged, struct heed_error *err);
void spelling_release(struct spelling *s);

#endif
