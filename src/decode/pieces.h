/*
 * pieces.h - from texts to what a search takes, and from what it found to texts.
 *
 * A short text is one piece. A long one goes sentence by sentence, and a sentence longer than the
 * model takes is cut. Every text is treated by itself, so that its translation does not depend on
 * the others.
 *
 * Call order: {0}; pieces_fill; pieces_wish or not; search_run; pieces_join for each text and rank;
 * pieces_release.
 */
#ifndef HEED_DECODE_PIECES_H
#define HEED_DECODE_PIECES_H
#include "decode/search.h"
#include "tokens/spelling.h"

/* What is translated by itself: one or more sentences of a text. */
struct part {
    size_t at;              /* of its ids */
    int first;              /* of its pieces; they end where those of the next part begin */
    struct heed_span where; /* in the text */
    size_t gap;             /* bytes of white space before it */
};

/* The phrases that the translations of a text must have or must not. */
struct phrases {
    struct heed_ids *v; /* [required + banned] */
    int n;
};

struct pieces {
    const char **read;         /* [texts] what the model reads: a text, or its spelling's read */
    struct spelling *spelling; /* [texts] what cannot be spelled of each; {0}: nothing */
    struct spelling *given;    /* [texts] where whole, the same of the given translations */
    const struct heed_wish *asked; /* [texts] or NULL */
    struct heed_ids ids;           /* of every text, end to end */
    struct part *part;             /* [parts + 1] */
    int parts, parts_cap;
    int *text;               /* [texts + 1] the first part of each */
    struct phrases *phrases; /* [texts] */
    int texts;
    int32_t *tagged;         /* the ids once more, with the tag before each piece */
    struct heed_ids *src;    /* [n] views into tagged or ids */
    struct beam_wish *wish;  /* [n] */
    struct translation *out; /* [n * nbest] */
    size_t *target;  /* [parts * nbest] where a part begins in the translation of its text */
    unsigned *flags; /* [n] of the best translation; see heed_result */
    int n, nbest;
    struct heed_error **refused; /* [texts] why a text is not translated; NULL: it is */
    int tag_n;                   /* ids of the tag */
    bool whole;
};

struct pieces_options {
    int longest; /* tokens of a piece */
    int nbest;   /* translations of each */
    bool whole;  /* translations are given, as prefixes: a text is not split, and one without
                  * tokens counts */
    struct heed_ids tag; /* what every piece begins with; empty: nothing */
};

/* The texts and wishes must live until the last join. */
enum heed_status pieces_fill(struct pieces *p, const struct heed_tokenizer *t,
                             const struct pieces_options *o, const char *const *text, int texts,
                             struct heed_error *err);
/* wish [texts]; what is given whole gets its end mark. longest: tokens of a translation. A text
 * whose wish cannot be granted is refused. */
enum heed_status pieces_wish(struct pieces *p, const struct heed_tokenizer *t, int longest,
                             const struct heed_wish *wish, struct heed_error *err);
void pieces_release(struct pieces *p);
/* Takes a text out of what is searched for; its result will say why. */
enum heed_status pieces_refuse(struct pieces *p, int text, const struct heed_error *why,
                               struct heed_error *err);
/* The pieces of a text are [*first, *last). */
void pieces_of(const struct pieces *p, int text, int *first, int *last);

/* Whether `part` occurs in the text. */
bool text_has(const char *text, size_t len, const char *part, size_t part_len);

/* Copies of texts. {0} is empty. */
struct texts {
    char **v;
    int n;
};
enum heed_status texts_add(struct texts *x, const char *text, size_t len, struct heed_error *err);
void texts_release(struct texts *x);

/* A part's translation: its tokens, its text, and where in the text each token ends. Byte tokens of
 * a model that has not learned bytes (tokenizer_spells) are not in the text. */
struct target {
    struct heed_ids ids;
    char *text;
    size_t len;
    size_t *end;           /* [ids.n] */
    struct texts left_out; /* what these bytes spell */
};
/* Makes *x, {0} before, of translation `rank` of a part; the caller releases it in any case. */
enum heed_status target_make(struct target *x, const struct pieces *p,
                             const struct heed_tokenizer *t, int text, int part, int rank,
                             struct heed_error *err);
void target_release(struct target *x);
/* Translation `rank` of a text, whose text, ids, scores and lists the caller frees; where there are
 * fewer, the result stays as it is. The best is always there: that of a text without tokens, or of
 * one that was refused, is empty. The caller frees r->why as well. What was not read of the text is
 * not in it yet (restore.h). */
enum heed_status pieces_join(struct pieces *p, const struct heed_tokenizer *t, int text, int rank,
                             struct heed_result *r, struct heed_error *err);

#endif
