/*
 * session.h - what heed.h's model and session are made of.
 */
#ifndef HEED_DECODE_SESSION_H
#define HEED_DECODE_SESSION_H
#include "decode/search.h"

struct heed_model {
    struct heed_engine *engine;
    struct parameters *p;
    struct heed_tokenizer *tokenizer;
};

struct heed_session {
    const struct heed_model *m;
    struct heed_translate_options o;
    struct backend *be; /* of its own */
    struct search *search;
    struct heed_ids tag;        /* what every source begins with */
    struct heed_result *result; /* of the last call */
    size_t results;
};

#endif
