/*
 * join.h - from the translations of pieces, which a search found, to the translations of a text.
 */
#ifndef HEED_DECODE_JOIN_H
#define HEED_DECODE_JOIN_H
#include "decode/pieces.h"

/* Makes the results of a text, result[nbest], from what was found for its pieces. *found: how many
 * there are, at least 1: the only one of a text without tokens, or of one that was refused, is
 * empty. What was not read of the text is not in them yet (restore.h). The caller frees text, id,
 * token_logp and left_out of each result, on failure too. */
enum heed_status text_join(const struct pieces *p, const struct heed_tokenizer *t,
                           struct heed_result *result, int *found, struct heed_error *err);

/* The text of the best translations of the first n pieces. *out is malloced. */
enum heed_status text_so_far(const struct pieces *p, const struct heed_tokenizer *t, int n,
                             char **out, struct heed_error *err);

/* Copies of strings. {0} is empty. */
struct strings {
    char **v;
    int n;
};
enum heed_status strings_add(struct strings *x, const char *text, size_t len,
                             struct heed_error *err);
void strings_release(struct strings *x);

/* Translation `rank` of pieces: its tokens, its text, and where in the text each token ends. Byte
 * tokens of a model that has not learned bytes (tokenizer_spells) are not in the text. */
struct target {
    struct heed_ids ids;
    char *text;
    size_t len;
    size_t *end;             /* [ids.n] */
    struct strings left_out; /* what these bytes spell */
};
/* Makes *x, {0} before; the caller releases it, on failure too. */
enum heed_status target_make(struct target *x, const struct pieces *p,
                             const struct heed_tokenizer *t, int part, int rank,
                             struct heed_error *err);
void target_release(struct target *x);

/* Whether `part` occurs in the text. */
bool text_has(const char *text, size_t len, const char *part, size_t part_len);

#endif
