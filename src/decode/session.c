/*
 * session.c - heed.h's session: opened, and freed with its requests.
 */
#include "decode/session.h"

#include <stdlib.h>

#include "base/error.h"
#include "ops/engine.h"
#include "tokens/tokenizer.h"

static enum heed_status session_open(struct heed_session *s, const struct heed_session_options *o,
                                     struct heed_error *err)
{
    enum { BATCH_TOKENS_MAX = 1000000 };
    enum { TOKENS_A_ROW = 8 }; /* of the source: a sentence of 32 tokens has a beam of 4 */
    if (o->batch_tokens < 0 || o->batch_tokens > BATCH_TOKENS_MAX)
        return error_set(err, HEED_EARG, "batch tokens are %d, expected 0 to %d", o->batch_tokens,
                         BATCH_TOKENS_MAX);
    struct search_options so = {.bos = tokenizer_bos(s->m->tokenizer),
                                .eos = tokenizer_eos(s->m->tokenizer),
                                .rows = (o->batch_tokens + TOKENS_A_ROW - 1) / TOKENS_A_ROW,
                                .source_rows = o->batch_tokens};
    enum heed_status status = engine_fork(s->m->engine, &s->be, err);
    return status ? status : search_open(&s->search, s->be, s->m->p, &so, err);
}

struct heed_session *heed_session_open(const struct heed_model *m,
                                       const struct heed_session_options *o, struct heed_error *err)
{
    static const struct heed_session_options defaults;
    if (!m) {
        error_null(err, "model");
        return NULL;
    }
    struct heed_session *s = calloc(1, sizeof *s);
    if (!s) {
        error_memory(err, sizeof *s, "a session");
        return NULL;
    }
    s->m = m;
    if (session_open(s, o ? o : &defaults, err)) {
        heed_session_free(s);
        return NULL;
    }
    return s;
}

void heed_session_free(struct heed_session *s)
{
    if (!s) return;
    search_free(s->search);
    session_forget(s);
    if (s->be) s->be->op->close(s->be);
    free(s);
}
