/*
 * search.h - from the ids of sentences to the ids of their translations: the encoder runs once per
 * sentence, the decoder once per output position, with a KV cache.
 *
 * A search belongs to one thread and shares its weights with others. Sentences wait in a queue.
 * Between two steps as many of them as there is room for are encoded together, and join those that
 * are being translated; a sentence that is finished leaves at once. So a step costs only what is
 * still open, and sentences of any age share it. Each sentence has its own options, and beams of
 * different widths share a step. The translation of a sentence does not depend on the other
 * sentences: on a CPU it is the same to the last bit.
 *
 * Call order: search_open; search_add and search_advance in any order, or search_run; search_free.
 */
#ifndef HEED_DECODE_SEARCH_H
#define HEED_DECODE_SEARCH_H
#include "decode/beam.h"
#include "model/run.h"

struct search;

struct search_options {
    int bos, eos; /* ids of the marks */
    int rows;     /* hypotheses that a step decodes, of all sentences; 0: what the device prefers */
    int source_rows; /* tokens of the sources of all open sentences, end marks included; 0: as many
                      * as suit `rows` */
};

/* be: as for run_open */
enum heed_status search_open(struct search **out, struct backend *be, const struct parameters *p,
                             const struct search_options *o, struct heed_error *err);
void search_free(struct search *s);

/* A translation without marks. token_score has the log-probability of each token and, where the
 * output ended by itself and was not cut at its longest length, that of the end mark. */
struct translation {
    struct heed_ids ids;
    float *token_score; /* [ids.n], or [ids.n + 1] when ended */
    bool ended;
    bool broken;        /* of the best: there is none, for the model's scores are not finite */
    double logp, score; /* the sum of token_score; the same with the length penalty */
    float *attention;   /* [tokens, heads, source tokens + 1] where attention_layer asks for it */
    struct heed_beam_node *beam; /* [beams] of the best, where beam_options.trace asks for it */
    int beams;
};
void translation_release(struct translation *t);

/* A sentence and how it is to be translated. */
struct sentence {
    struct heed_ids src; /* without end mark, at most search_longest tokens */
    struct beam_options beam;
    struct constraints must;
    int longest; /* tokens of an output, end mark included; 0: 50 more than the source's (paper 6.1)
                  */
    /* Counted from 1: out->attention gets the cross-attention of this decoder layer, from every
     * token of the output, its end mark included, to every token of the source and its end mark.
     * Only for an output that is given as a whole (must.prefix). 0: no attention is kept. */
    int attention_layer;
    struct translation *out; /* [beam.nbest], zeroed by the caller */
    void *owner;             /* for the caller */
    struct sentence *next;   /* in the list that it is in; the search sets it */
};

/* Puts a sentence at the end of the queue; the caller keeps it until search_finished returns it or
 * search_drop takes it back. */
void search_add(struct search *s, struct sentence *x);
/* Takes in sentences that wait, where there is room, and decodes one position of every open
 * sentence. After a failure no sentence waits or is open. */
enum heed_status search_advance(struct search *s, struct heed_error *err);
/* A sentence that is finished, in the order in which they finish; NULL: none. The caller releases
 * every translation of `out`, even of a sentence that was not finished; those that were not found
 * stay zero. A sentence without tokens has none, unless a prefix is given. */
struct sentence *search_finished(struct search *s);
/* The tokens of the best hypothesis of a sentence that is open, without its end mark: of the one
 * that would be its translation if the search ended now. Valid until the next call on the search;
 * empty where the sentence is not open. */
struct heed_ids search_so_far(const struct search *s, const struct sentence *x);
/* Whether no sentence waits or is open. */
bool search_idle(const struct search *s);
/* Takes back a sentence that was added and has not been returned. */
void search_drop(struct search *s, struct sentence *x);
/* Takes back all. */
void search_drop_all(struct search *s);

/* Translates n sentences, longest first. There must be no others. */
enum heed_status search_run(struct search *s, struct sentence *sentence, int n,
                            struct heed_error *err);
/* How many sentences with beams of this width are open at once, at least 1. */
int search_room(const struct search *s, int width);
/* The most tokens of a source, without its end mark. */
int search_longest(const struct search *s);

#endif
