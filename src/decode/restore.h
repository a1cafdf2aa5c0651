/*
 * restore.h - what the vocabulary could not spell of a text goes back into its translation.
 *
 * What stood before or behind everything that was read goes to that end. What stood between words
 * goes where one or both of them went, which their alignment tells.
 */
#ifndef HEED_DECODE_RESTORE_H
#define HEED_DECODE_RESTORE_H
#include "decode/align.h"

/* Whether an alignment is needed: something stood between words. */
bool restore_needs_alignment(const struct spelling *s);

/* r: the translation of s->read, joined before; its text becomes that of s->text, and its lists and
 * flags tell of it. a: the alignment of the words of both, or NULL where none is needed. o: what
 * stays out. *out: where out is not NULL, the alignment of s->text with r, one block that the
 * caller frees. */
struct restore_options {
    const struct heed_wish *wish; /* what it bans; may be NULL */
    bool nothing;                 /* r was given: its text stays as it is */
};
enum heed_status restore_text(struct heed_result *r, const struct spelling *s,
                              const struct heed_alignment *a, struct restore_options o,
                              struct heed_alignment **out, struct heed_error *err);

/* Tells of what was not read of a translation that was given. */
enum heed_status restore_given(struct heed_result *r, const struct spelling *s,
                               struct heed_error *err);

#endif
