/*
 * search.h - from the ids of sentences to the ids of their translations: the encoder runs once per
 * sentence, the decoder once per output position, with a KV cache.
 *
 * A search belongs to one thread and shares its weights with others. Sentences are batched by
 * length; a sentence that is finished leaves its batch, so a step costs only what is still open.
 * Each sentence has its own options, and beams of different widths share a batch. The translation
 * of a sentence does not depend on the other sentences: on a CPU it is the same to the last bit.
 */
#ifndef HEED_DECODE_SEARCH_H
#define HEED_DECODE_SEARCH_H
#include "decode/beam.h"
#include "model/run.h"

struct search;

struct search_options {
    int bos, eos; /* ids of the marks */
    int rows;     /* hypotheses that a step decodes, of all sentences; 0: what the device prefers */
    int source_rows; /* tokens of the sources of a batch, end marks included; 0: as many as suit
                      * `rows` */
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
};

/* Translates n sentences. The caller releases every translation of `out` even on failure; those
 * that were not found stay zero. A sentence without tokens has none, unless a prefix is given. */
enum heed_status search_run(struct search *s, const struct sentence *sentence, int n,
                            struct heed_error *err);
/* The most tokens of a source, without its end mark. */
int search_longest(const struct search *s);

#endif
