/*
 * attention.c - heed_attention_of: the cross-attention of a translation in every layer and head.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "decode/session.h"
#include "tokens/tokenizer.h"

/* One block of memory, without weights yet. tgt ends in the end mark, unless it was cut. */
static struct heed_attention *attention_make(const struct heed_config *c,
                                             const struct heed_tokenizer *t,
                                             const struct heed_ids *src, const struct heed_ids *tgt,
                                             struct heed_error *err)
{
    int sources = (int)src->n + 1, targets = (int)tgt->n;
    size_t weights = (size_t)c->decoder_layers * c->heads * targets * sources;
    size_t bytes = sizeof(struct heed_attention) + (sources + targets) * sizeof(char *) +
                   weights * sizeof(float);
    struct heed_attention *a = malloc(bytes);
    if (!a) {
        error_memory(err, bytes, "the attention of a translation");
        return NULL;
    }
    const char **piece = (const char **)(a + 1);
    *a = (struct heed_attention){.layers = c->decoder_layers,
                                 .heads = c->heads,
                                 .align_layer = align_layer(c),
                                 .targets = targets,
                                 .sources = sources,
                                 .target = piece,
                                 .source = piece + targets,
                                 .weight = (float *)(piece + targets + sources)};
    for (int i = 0; i < targets; i++) piece[i] = heed_tokenizer_piece(t, tgt->v[i]);
    for (int i = 0; i < sources; i++)
        piece[targets + i] =
            heed_tokenizer_piece(t, i < (int)src->n ? src->v[i] : tokenizer_eos(t));
    return a;
}

/* Gives the translation to the search as a whole, once for each layer. */
static enum heed_status attention_fill(struct heed_session *s, struct heed_attention *a,
                                       const struct heed_ids *src, const struct heed_ids *tgt,
                                       struct heed_error *err)
{
    struct sentence x[LAYERS_MAX];
    struct translation out[LAYERS_MAX] = {0};
    size_t row = a->sources, map = row * a->targets;
    float *to = (float *)a->weight;
    for (int l = 0; l < a->layers; l++)
        x[l] = (struct sentence){.src = *src,
                                 .beam = {.width = 1, .nbest = 1},
                                 .must = {.prefix = *tgt},
                                 .attention_layer = 1 + l,
                                 .out = &out[l]};
    enum heed_status status = search_run(s->search, x, a->layers, err);
    for (int l = 0; l < a->layers; l++, to += a->heads * map) {
        const float *from = out[l].attention;
        if (!status && !from)
            status = error_set(err, HEED_ENUMERIC,
                               "the model gives the translation no finite probability");
        for (int i = 0; i < a->targets && !status; i++)
            for (int h = 0; h < a->heads; h++, from += row)
                memcpy(to + h * map + i * row, from, row * sizeof *to);
        translation_release(&out[l]);
    }
    return status;
}

/* HEED_OK where a text is translated in one piece. */
static enum heed_status check_pieces(const struct pieces *p, struct heed_error *err)
{
    const struct text *x = &p->text[0];
    if (x->refused) return error_set(err, x->refused->status, "%s", x->refused->text);
    if (p->ids.n == 0 && x->spelling.n)
        return error_set(err, HEED_EARG, "the vocabulary cannot spell any of the text");
    if (p->n == 0) return error_set(err, HEED_EARG, "the text is empty");
    if (p->n > 1)
        return error_set(err, HEED_EARG, "the text is translated in %d pieces, expected one", p->n);
    return HEED_OK;
}

enum heed_status heed_attention_of(struct heed_session *s, const struct heed_request *request,
                                   struct heed_attention **out, struct heed_error *err)
{
    if (!s) return error_null(err, "session");
    if (!request) return error_null(err, "request");
    if (!request->text) return error_null(err, "request->text");
    if (!out) return error_null(err, "out");
    const struct heed_config *c = &s->m->p->config;
    const struct heed_answer *found;
    struct pieces p = {0};
    struct heed_attention *a = NULL;
    enum heed_status status = pieces_fill(&p, s->m->tokenizer, c->max_length, request, 1, err);
    if (!status) status = check_pieces(&p, err);
    if (!status) status = heed_translate(s, request, 1, &found, err);
    if (!status && found->status) status = error_set(err, found->status, "%s", found->why);
    if (!status) {
        const struct heed_result *r = found->result;
        struct heed_ids tgt = {(int32_t *)r->id, (size_t)r->tokens, 0};
        a = attention_make(c, s->m->tokenizer, &p.sentence[0].src, &tgt, err);
        status = a ? attention_fill(s, a, &p.sentence[0].src, &tgt, err) : HEED_ENOMEM;
    }
    pieces_release(&p);
    if (status)
        heed_attention_free(a);
    else
        *out = a;
    return status;
}

void heed_attention_free(struct heed_attention *a)
{
    free(a);
}
