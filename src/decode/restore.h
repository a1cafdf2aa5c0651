/*
 * restore.h - puts what the vocabulary could not spell of a text into its translation.
 *
 * A stretch that stood before or behind everything that was read goes to that end of the
 * translation. A stretch that stood between words goes beside the translation of one or both of
 * these words, which the alignment tells.
 */
#ifndef HEED_DECODE_RESTORE_H
#define HEED_DECODE_RESTORE_H
#include "decode/align.h"

/* Whether restore_text needs an alignment: a stretch stood between words. */
bool restore_needs_alignment(const struct spelling *s);

/* r is the translation of s->read, joined before. It becomes the translation of s->text, and its
 * lists and flags say what was copied and what was left out. a: the alignment of s->read and r, or
 * NULL where none is needed. What the request bans is not copied, and nothing is copied into a
 * translation that is given. Where out is not NULL, *out becomes the alignment of s->text and r,
 * one block that the caller frees. */
enum heed_status restore_text(struct heed_result *r, const struct spelling *s,
                              const struct heed_alignment *a, const struct heed_request *request,
                              struct heed_alignment **out, struct heed_error *err);

/* Adds to the lists and flags of r what was not read of a given translation. */
enum heed_status restore_given(struct heed_result *r, const struct spelling *s,
                               struct heed_error *err);

#endif
