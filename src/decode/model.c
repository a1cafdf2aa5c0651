/*
 * model.c - heed.h's model: weights and vocabulary of a model directory, loaded once and shared by
 * all sessions.
 */
#include <stdlib.h>

#include "base/error.h"
#include "decode/session.h"
#include "store/directory.h"
#include "tokens/tokenizer.h"

struct heed_model *heed_model_load(struct heed_engine *e, const char *dir,
                                   enum heed_weights weights, struct heed_error *err)
{
    if (!e || !dir) {
        error_null(err, e ? "dir" : "engine");
        return NULL;
    }
    struct heed_model *m = calloc(1, sizeof *m);
    if (!m) {
        error_memory(err, sizeof *m, "a model");
        return NULL;
    }
    m->engine = e;
    if (directory_load(&m->p, &m->tokenizer, e, dir, weights, err)) {
        free(m);
        return NULL;
    }
    return m;
}

void heed_model_free(struct heed_model *m)
{
    if (!m) return;
    directory_unload(m->p, m->tokenizer, m->engine);
    free(m);
}

const struct heed_config *heed_model_config(const struct heed_model *m)
{
    return m ? &m->p->config : NULL;
}

const struct heed_tokenizer *heed_model_tokenizer(const struct heed_model *m)
{
    return m ? m->tokenizer : NULL;
}

int heed_model_languages(const struct heed_model *m, const char *const **out)
{
    const char *const *language;
    int n = m && out ? tokenizer_languages(m->tokenizer, &language) : 0;
    if (n) *out = language;
    return n;
}

int64_t heed_model_parameters(const struct heed_model *m)
{
    return m ? (int64_t)parameters_count(&m->p->config) : 0;
}

enum heed_weights heed_model_weights(const struct heed_model *m)
{
    if (!m) return HEED_WEIGHTS_AS_STORED;
    switch (m->p->precision.matrix) {
    case TYPE_PACKED_I8:
        return HEED_WEIGHTS_INT8;
    case TYPE_PACKED_BF16:
    case TYPE_BF16:
        return HEED_WEIGHTS_BF16;
    default:
        return HEED_WEIGHTS_F32;
    }
}
