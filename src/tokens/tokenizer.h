/*
 * tokenizer.h - SentencePiece behind a small C interface: text to ids and back. Second stage of the
 * walk; the functions for callers outside the library are in heed.h.
 */
#ifndef HEED_TOKENS_TOKENIZER_H
#define HEED_TOKENS_TOKENIZER_H
#include "heed.h"
#ifdef __cplusplus
extern "C" {
#endif

int tokenizer_bos(const struct heed_tokenizer *t);
int tokenizer_eos(const struct heed_tokenizer *t);
/* The languages that have a tag, such as "de" for ">>de<<"; returns how many there are. They are
 * valid as long as t. */
int tokenizer_languages(const struct heed_tokenizer *t, const char *const **out);
/* Appends the ids of the tag of a language: for "de" those of ">>de<<". */
enum heed_status tokenizer_tag(const struct heed_tokenizer *t, const char *language,
                               struct heed_ids *out, struct heed_error *err);
/* Appends the ids of a text to translate. Unlike heed_encode, it reads a tab and the other white
 * space of ASCII as a space, and the tag of a language (>>de<<) as text like any other. Only if
 * `tagged`, a tag at the front of the text is encoded as a tag. */
enum heed_status tokenizer_encode_source(const struct heed_tokenizer *t, const char *text,
                                         size_t len, bool tagged, struct heed_ids *out,
                                         struct heed_error *err);
/* Sets end[i] to the offset in text where the i-th of the n ids that tokenizer_encode_source gives
 * ends. The text must be valid UTF-8. */
enum heed_status tokenizer_source_ends(const struct heed_tokenizer *t, const char *text, size_t len,
                                       bool tagged, size_t *end, size_t n, struct heed_error *err);
/* Whether a model has learned all of these ids. No model has learned the unknown mark. Characters
 * without a piece are spelled in bytes; a model has learned bytes only where more than one in ten
 * thousand characters of the vocabulary's training text needed them. */
bool tokenizer_spells(const struct heed_tokenizer *t, const int32_t *id, size_t n);
/* Whether a model has learned the bytes, in the sense of tokenizer_spells. */
bool tokenizer_knows_bytes(const struct heed_tokenizer *t);
/* A copy of the text as heed_encode reads it: with U+FFFD for every byte that is not part of a
 * character. *out is malloced. */
enum heed_status tokenizer_well_formed(const char *text, size_t len, char **out,
                                       struct heed_error *err);
/* Like heed_decode; also sets end[i] to the offset in the text where id i ends. */
enum heed_status tokenizer_decode_ends(const struct heed_tokenizer *t, const int32_t *id, size_t n,
                                       char **text, size_t *len, size_t *end,
                                       struct heed_error *err);
/* Makes a tokenizer from the bytes of a model file, which errors call `name`. */
struct heed_tokenizer *tokenizer_parse(const char *data, size_t len, const char *name,
                                       struct heed_error *err);
/* The bytes of the model file; valid as long as t. */
const char *tokenizer_bytes(const struct heed_tokenizer *t, size_t *len);

/* Encodes much text: an encoder remembers the ids of the words it has seen, which is several times
 * faster than heed_encode and gives the same ids. It belongs to one thread at a time; t must
 * outlive it. */
struct encoder;
struct encoder *encoder_new(const struct heed_tokenizer *t, struct heed_error *err);
enum heed_status encoder_run(struct encoder *e, const char *text, size_t len, struct heed_ids *out,
                             struct heed_error *err);
void encoder_free(struct encoder *e);

#ifdef __cplusplus
}
#endif
#endif
