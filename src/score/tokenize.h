/*
 * tokenize.h - text as BLEU, chrF and TER read it: code points, cut into tokens as sacreBLEU does.
 * The tokens of the model are another matter: see tokens/tokenizer.h.
 *
 * Call order: find a tokenizer, metric_tokenize each line into a reused metric_text, release it.
 */
#ifndef HEED_SCORE_TOKENIZE_H
#define HEED_SCORE_TOKENIZE_H
#include "heed.h"

/* A line, one int32_t per code point; ngram_words replaces them with one number per word. {0} is
 * empty. */
struct metric_text {
    int32_t *c; /* [n] */
    size_t n;
    int32_t *spare; /* the next rule writes here; as large as c */
    size_t cap;     /* elements of c and of spare */
};

struct metric_tokenizer;

/* name: 13a, zh, intl, char or none. Any other returns NULL and HEED_EARG. */
const struct metric_tokenizer *metric_tokenizer_find(const char *name, struct heed_error *err);

/* The line with whitespace between its tokens; more than one in a row counts as one. */
enum heed_status metric_tokenize(struct metric_text *t, const struct metric_tokenizer *k,
                                 const char *line, bool lower, struct heed_error *err);
/* The code points of the line, in lower case where `lower` is true; each maximal part that is not
 * UTF-8 becomes one U+FFFD. */
enum heed_status metric_decode(struct metric_text *t, const char *line, bool lower,
                               struct heed_error *err);
/* The words of chrF++: those between whitespace, with one punctuation mark of ASCII cut off, at the
 * end of the word or else at its beginning. */
enum heed_status metric_decode_words(struct metric_text *t, const char *line, bool lower,
                                     struct heed_error *err);
/* Whitespace as Python's str.split sees it. */
bool metric_is_space(int32_t c);

void metric_text_release(struct metric_text *t);

#endif
