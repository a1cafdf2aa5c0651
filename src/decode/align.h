/*
 * align.h - which words of a translation come from which of its source, by what its tokens attended
 * to.
 */
#ifndef HEED_DECODE_ALIGN_H
#define HEED_DECODE_ALIGN_H
#include "decode/pieces.h"
#include "tokens/sentences.h"

/* The words of what is read of a text and of its translation r, joined before. attention [pieces]:
 * what each token of a piece's translation gave to each of its source, [tokens, tokens of src].
 * *out is one block that the caller frees; NULL where the text is not valid UTF-8. */
enum heed_status align_text(struct heed_alignment **out, const struct pieces *p,
                            const struct heed_tokenizer *t, int text, int rank,
                            float *const *attention, const struct heed_result *r,
                            struct heed_error *err);

/* An alignment of the words of a text and its translation, where no word has a link: they go to
 * link. NULL when memory is out. */
struct heed_alignment *alignment_make(const struct spans words[2], int **link,
                                      struct heed_error *err);

#endif
