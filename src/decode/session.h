/*
 * session.h - what heed.h's model and session are made of, and the stages of a translation.
 */
#ifndef HEED_DECODE_SESSION_H
#define HEED_DECODE_SESSION_H
#include "decode/pieces.h"

struct heed_model {
    struct heed_engine *engine;
    struct parameters *p;
    struct heed_tokenizer *tokenizer;
};

struct heed_session {
    const struct heed_model *m;
    struct backend *be; /* of its own, since a backend serves one thread */
    struct search *search;
    /* of the last call */
    struct heed_answer *answer; /* [answers] */
    int answers;
    struct heed_result *result; /* [results] those of all answers, end to end */
    size_t results;
};

/* Frees the answers of the last call. */
void session_forget(struct heed_session *s);

/* The decoder layer that alignments are read from, counted from 0: the last but one, whose
 * attention follows the words best (Garg et al. 2019). */
int align_layer(const struct heed_config *c);

/* After the join: puts what was not read of the texts into their results, and adds the alignments
 * that are asked for. In finish.c. */
enum heed_status finish(struct heed_session *s, const struct pieces *p, struct heed_error *err);

#endif
