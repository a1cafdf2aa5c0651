/*
 * tokenizer.h - SentencePiece behind a small C face: text to ids and back. Second stage of the
 * walk; what callers outside the library need is in heed.h.
 */
#ifndef HEED_TOKENS_TOKENIZER_H
#define HEED_TOKENS_TOKENIZER_H
#include "heed.h"
#ifdef __cplusplus
extern "C" {
#endif

int tokenizer_bos(const struct heed_tokenizer *t);
int tokenizer_eos(const struct heed_tokenizer *t);
/* Appends the ids that stand for the tag of a language, such as "de" for ">>de<<". */
enum heed_status tokenizer_tag(const struct heed_tokenizer *t, const char *language,
                               struct heed_ids *out, struct heed_error *err);
/* Appends the ids of a text to translate. Unlike heed_encode's, they are those of the text with a
 * space for a tab and the other white space of ASCII, and the tag of a language in it is text like
 * any other; but where `tagged`, one at the front is the tag that it is. */
enum heed_status tokenizer_encode_source(const struct heed_tokenizer *t, const char *text,
                                         size_t len, bool tagged, struct heed_ids *out,
                                         struct heed_error *err);
/* Where in the text, which is valid UTF-8, each of these ids ends, in bytes: end[n]. */
enum heed_status tokenizer_source_ends(const struct heed_tokenizer *t, const char *text, size_t len,
                                       bool tagged, size_t *end, size_t n, struct heed_error *err);
/* Whether a model has learned what all these ids stand for. It has not learned the unknown mark. It
 * has learned bytes, by which characters without a piece are spelled, only where they were needed
 * for more than one in ten thousand characters of the vocabulary's training text. */
bool tokenizer_spells(const struct heed_tokenizer *t, const int32_t *id, size_t n);
/* Whether that is so of all bytes. */
bool tokenizer_knows_bytes(const struct heed_tokenizer *t);
/* A copy as heed_encode reads it: with U+FFFD for every byte that is no part of a character. */
enum heed_status tokenizer_well_formed(const char *text, size_t len, char **out,
                                       struct heed_error *err);
/* The text of n ids, as of heed_decode, and where in it each of them ends. */
enum heed_status tokenizer_decode_ends(const struct heed_tokenizer *t, const int32_t *id, size_t n,
                                       char **text, size_t *len, size_t *end,
                                       struct heed_error *err);
/* From the bytes of a model file; name is what an error calls them. */
struct heed_tokenizer *tokenizer_parse(const char *data, size_t len, const char *name,
                                       struct heed_error *err);
/* The bytes of the model, as loaded; valid as long as t. */
const char *tokenizer_bytes(const struct heed_tokenizer *t, size_t *len);

/* For much text: remembers the ids of the words it has seen, which is some times faster than
 * heed_encode and gives the same ids. One thread's; t must outlive it. */
struct encoder;
struct encoder *encoder_new(const struct heed_tokenizer *t, struct heed_error *err);
enum heed_status encoder_run(struct encoder *e, const char *text, size_t len, struct heed_ids *out,
                             struct heed_error *err);
void encoder_free(struct encoder *e);

#ifdef __cplusplus
}
#endif
#endif
