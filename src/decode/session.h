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

struct job; /* job.h */
struct jobs {
    struct job *first, *last;
};

struct heed_session {
    const struct heed_model *m;
    struct backend *be; /* of its own, since a backend serves one thread */
    struct search *search;
    struct jobs running, done;  /* done: those of heed_submit whose answer was not taken */
    struct job *taken;          /* whose answer heed_finished returned last */
    char *partial;              /* what heed_partial returned last */
    struct job **call;          /* [calls] those of the last call of heed_translate */
    struct heed_answer *answer; /* [calls] their answers */
    int calls, calls_left;      /* calls_left: how many of them are not done */
};

/* Frees the requests and the answers of a session that has no search any more. */
void session_forget(struct heed_session *s);

/* The decoder layer that alignments are read from, counted from 0: the last but one, whose
 * attention follows the words best (Garg et al. 2019). */
int align_layer(const struct heed_config *c);

#endif
