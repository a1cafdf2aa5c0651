/*
 * pieces.h - from the texts of a call to the sentences of a search.
 *
 * A text consists of parts, a part of pieces, and a piece is one sentence of the search. A short
 * text is one part. A long one has a part for each of its sentences, where short sentences are
 * joined with the next. A part longer than the model takes is cut into several pieces; any other is
 * one piece. Every text is treated by itself, so that its translation does not depend on the
 * others.
 *
 * Call order: {0}; pieces_fill; search_run; text_join (join.h) for each text; pieces_release.
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

/* A text of the call. */
struct text {
    const struct heed_request *request;
    struct heed_translate_options o; /* of the request, or the defaults */
    const char *read;                /* what the model reads: the text, or spelling.read */
    struct spelling spelling;        /* what the vocabulary cannot spell; {0}: it spells all */
    struct spelling given;           /* the same of the translation that is given */
    struct heed_ids tag;             /* the language tag before each piece; empty: none */
    struct heed_ids *phrase;         /* [phrases] the required phrases, then the banned ones */
    int phrases;
    int first;                  /* its first part; the next text begins behind its last */
    int nbest;                  /* translations that are asked for */
    struct heed_result *result; /* [nbest] they become these */
    struct heed_error *refused; /* why it is not translated; NULL: it is */
};

struct pieces {
    struct text *text; /* [texts + 1] */
    int texts;
    struct heed_ids ids; /* of every text, end to end, without tags */
    struct part *part;   /* [parts + 1] */
    int parts;
    size_t parts_cap;
    struct sentence *sentence; /* [n] the pieces; their sources point into tagged */
    unsigned *flags;           /* [n] of the best translation of each; see heed_flag */
    int n;
    int32_t *tagged;         /* the ids with the tag before each piece */
    struct translation *out; /* [outs] the translations of all pieces, end to end */
    size_t outs;
    size_t *target; /* those of all parts, end to end */
};

/* Makes the pieces of n texts. A text whose request makes no sense is refused, and the others are
 * not affected. longest: tokens of a sentence that the model takes, end mark included. The requests
 * must live until the last join. */
enum heed_status pieces_fill(struct pieces *p, const struct heed_tokenizer *t, int longest,
                             const struct heed_request *request, int n, struct heed_error *err);
void pieces_release(struct pieces *p);
/* Takes a text out of what is searched for; its answer will say why. */
enum heed_status pieces_refuse(struct pieces *p, int text, const struct heed_error *why,
                               struct heed_error *err);
/* The pieces of a text are [*first, *last). */
void pieces_of(const struct pieces *p, int text, int *first, int *last);

/* Gives the pieces of a text the constraints of its request: the prefix to the first, the phrases
 * to all. HEED_EARG where they contradict each other or do not fit. In constraints.c, called by
 * pieces_fill. */
enum heed_status constraints_make(struct pieces *p, const struct heed_tokenizer *t, int text,
                                  int longest, struct heed_error *err);

#endif
