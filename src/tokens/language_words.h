/*
 * language_words.h - the words that language.c knows languages by.
 */
#ifndef HEED_TOKENS_LANGUAGE_WORDS_H
#define HEED_TOKENS_LANGUAGE_WORDS_H

struct language_words {
    const char *language; /* such as "de" */
    const char *script;   /* as ISO 15924 calls it, of a language with several; NULL: any */
    const char *words;    /* separated by spaces */
};

/* Row i, from 0; NULL where there is none. */
const struct language_words *language_words_at(int i);

#endif
