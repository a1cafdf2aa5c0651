/*
 * align.h - which words of a translation come from which words of its source, by the attention of
 * their tokens.
 */
#ifndef HEED_DECODE_ALIGN_H
#define HEED_DECODE_ALIGN_H
#include "decode/pieces.h"
#include "tokens/sentences.h"

/* Links the words of r, which is translation `rank` of a text, joined before, to the words of what
 * is read of the text. attention[i]: that of piece i, [tokens of its translation, tokens of its
 * source]. *out is one block that the caller frees; NULL where the text is not valid UTF-8. */
enum heed_status align_text(struct heed_alignment **out, const struct pieces *p,
                            const struct heed_tokenizer *t, const struct heed_result *r, int rank,
                            float *const *attention, struct heed_error *err);

/* An alignment of the words of a text and of its translation without links: the caller fills
 * (*link)[targets]. One block; NULL when memory is out. */
struct heed_alignment *alignment_make(const struct spans words[2], int **link,
                                      struct heed_error *err);

#endif
