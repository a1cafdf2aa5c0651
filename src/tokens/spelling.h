/*
 * spelling.h - what a vocabulary cannot spell: an emoji, markup, a word of another script.
 *
 * A character without a piece of its own is written in bytes. A model that has hardly seen any
 * bytes (tokenizer_spells) makes things up where it reads them. So it is given the text without
 * such characters, and the translation gets them back (decode/restore.h).
 *
 * Not only the character is taken away but what has no meaning without it: the rest of its word,
 * of its tag (<b>), of its placeholder ({0}) or, as in C:\Users, of all that it holds together.
 * Characters that are the same but for their width (full-width digits), ligatures, letters whose
 * marks stand apart from them, and traditional Chinese characters that have a simplified form are
 * read as what the vocabulary has instead.
 *
 * Characters that cannot be seen, such as control characters, are left out of the translation; and
 * so is a Chinese character among others that are read: to a reader of the other language it says
 * nothing.
 */
#ifndef HEED_TOKENS_SPELLING_H
#define HEED_TOKENS_SPELLING_H
#include "heed.h"

/* A stretch of the text that is not read, with no white space at its ends. */
struct unspelled {
    struct heed_span where; /* in the text */
    size_t at;              /* where in what is read it would be */
    bool copied;            /* into the translation; otherwise it is left out */
};

struct spelling {
    char *text;     /* the text, with U+FFFD in place of what was not UTF-8 */
    bool mended;    /* something was not UTF-8 */
    char *read;     /* what is left for the model */
    size_t *origin; /* [bytes of read + 1] where in text each of its bytes comes from */
    struct unspelled *v;
    int n;
};

/* {0} is empty. tagged: as of tokenizer_encode_source. */
enum heed_status spelling_make(struct spelling *s, const struct heed_tokenizer *t, const char *text,
                               bool tagged, struct heed_error *err);
void spelling_release(struct spelling *s);

#endif
