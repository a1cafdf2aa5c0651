/*
 * pieces.h - from texts to what a search takes, and from what it found to texts.
 *
 * A short text is one piece. A long one goes sentence by sentence, and a sentence longer than the
 * model takes is cut. Every text is treated by itself, so that its translation does not depend on
 * the others.
 *
 * Call order: {0}; pieces_fill; pieces_prefix or not; search_run; pieces_join for each text and
 * rank; pieces_release.
 */
#ifndef HEED_DECODE_PIECES_H
#define HEED_DECODE_PIECES_H
#include "decode/search.h"

/* What is translated by itself: one or more sentences of a text. */
struct part {
    size_t at;       /* of its ids */
    int first;       /* of its pieces; they end where those of the next part begin */
    const char *gap; /* the white space before it, in the text */
    size_t gap_len;
};

struct pieces {
    struct heed_ids ids; /* of every text, end to end */
    struct part *part;   /* [parts + 1] */
    int parts, parts_cap;
    int *text;               /* [texts + 1] the first part of each */
    struct heed_ids *src;    /* [n] views into ids */
    struct heed_ids *prefix; /* [n] what a translation must begin with */
    struct translation *out; /* [n * nbest] */
    unsigned *flags;         /* [n] of the best translation; see heed_result */
    int n, nbest;
};

/* longest: tokens of a piece. The texts must live until the last join. */
enum heed_status pieces_fill(struct pieces *p, const struct heed_tokenizer *t, int longest,
                             int nbest, const char *const *text, int texts, struct heed_error *err);
/* The translation of text i begins with prefix[i]; NULL: with anything. whole: and that is all of
 * it, so the text must be one piece. longest: tokens of a translation. */
enum heed_status pieces_prefix(struct pieces *p, const struct heed_tokenizer *t, int longest,
                               const char *const *prefix, bool whole, int texts,
                               struct heed_error *err);
void pieces_release(struct pieces *p);

/* Translation `rank` of a text, whose text the caller frees; where there are fewer, the result
 * stays as it is. A text without tokens has one translation, an empty one. */
enum heed_status pieces_join(const struct pieces *p, const struct heed_tokenizer *t, int text,
                             int rank, struct heed_result *r, struct heed_error *err);

#endif
