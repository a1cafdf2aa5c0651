/*
 * pieces.h - from the text of a request to the sentences of a search.
 *
 * A text consists of parts, a part of pieces, and a piece is one sentence of the search. A short
 * text is one part. A long one has a part for each of its sentences, where short sentences are
 * joined with the next. A part longer than the model takes is cut into several pieces; any other is
 * one piece.
 *
 * Call order: {0}; pieces_fill; a search for the sentences; text_join (join.h); pieces_release.
 */
#ifndef HEED_DECODE_PIECES_H
#define HEED_DECODE_PIECES_H
#include "decode/search.h"
#include "tokens/spelling.h"

struct part {
    size_t at;              /* of its first id in pieces.ids; the next part begins at its end */
    int first;              /* its first piece; the next part begins behind its last */
    struct heed_span where; /* bytes of what is read of the text */
    size_t gap;             /* bytes of white space before it */
    size_t *target;         /* [nbest] where it begins in each translation of its text */
};

struct pieces {
    const struct heed_request *request;
    struct heed_translate_options o; /* of the request, or the defaults */
    const char *read;                /* what the model reads: the text, or spelling.read */
    struct spelling spelling;        /* what the vocabulary cannot spell; {0}: it spells all */
    struct spelling given;           /* the same of the translation that is given */
    struct heed_ids tag;             /* the language tag before each piece; empty: none */
    struct heed_ids *phrase;         /* [phrases] the required phrases, then the banned ones */
    int phrases;
    int nbest;                  /* translations that are asked for */
    struct heed_error *refused; /* why the text is not translated; NULL: it is */

    struct heed_ids ids; /* of the text, without tags */
    struct part *part;   /* [parts + 1] */
    int parts;
    size_t parts_cap;
    struct sentence *sentence; /* [n] the pieces; their sources point into tagged */
    unsigned *flags;           /* [n] of the best translation of each; see heed_flag */
    int n;
    int32_t *tagged;         /* the ids with the tag before each piece */
    struct translation *out; /* [n * nbest] the translations of all pieces, end to end */
    size_t *target;          /* those of all parts, end to end */
};

/* Makes the pieces of a text. A text whose request makes no sense is refused: it has no pieces.
 * longest: tokens of a sentence that the model takes, end mark included. The request must live as
 * long as the pieces. */
enum heed_status pieces_fill(struct pieces *p, const struct heed_tokenizer *t, int longest,
                             const struct heed_request *request, struct heed_error *err);
void pieces_release(struct pieces *p);
/* The text is not translated, for the reason `why`, which the answer will give. */
enum heed_status pieces_refuse(struct pieces *p, const struct heed_error *why,
                               struct heed_error *err);

/* Gives the pieces the constraints of the request: the prefix to the first, the phrases to all.
 * HEED_EARG where they contradict each other or do not fit. In constraints.c, called by
 * pieces_fill. */
enum heed_status constraints_make(struct pieces *p, const struct heed_tokenizer *t, int longest,
                                  struct heed_error *err);

#endif
