/*
 * subword.h - text to ids with BPE-dropout (Provilkov et al., 2020). Beside tokenizer, for training
 * alone.
 *
 * Byte pair encoding joins characters into ever longer pieces. BPE-dropout leaves out each join
 * with some probability, so that the same text is cut differently each time, and a model learns
 * from the parts of a word as well as from the word. Which joins are left out is a function of one
 * number.
 */
#ifndef HEED_TOKENS_SUBWORD_H
#define HEED_TOKENS_SUBWORD_H
#include "heed.h"

/* Belongs to one thread at a time; its tokenizer must outlive it. */
struct subword;

/* rate: the probability that a join is left out, in [0, 1). It is an error if t is not like the
 * vocabularies that heed trains: BPE with byte fallback over text that is not normalized. */
enum heed_status subword_new(struct subword **out, const struct heed_tokenizer *t, float rate,
                             struct heed_error *err);
/* Appends the ids of a text, a function of the rate, the text and random. At rate 0 they are those
 * of heed_encode; at every rate they decode to the same text. */
enum heed_status subword_run(struct subword *s, const char *text, size_t len, uint64_t random,
                             struct heed_ids *out, struct heed_error *err);
void subword_free(struct subword *s);

#endif
