/*
 * attention.c - heed_attention_of: the attention of a translation in every layer and head.
 *
 * The text is translated, unless a translation is given. Then one pass over both, with the
 * translation fed in as a whole, writes out all attention weights.
 */
#include "decode/attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "corpus/pack.h"
#include "decode/session.h"
#include "tokens/tokenizer.h"

/* Shapes of the three maps, without tokens and weights. */
static void shapes(struct heed_attention *a, const struct heed_config *c, const struct packed *b)
{
    int s = b->rows_src, t = b->rows_tgt, h = c->heads;
    a->map[HEED_USE_ENCODER] = (struct heed_attention_map){c->encoder_layers, h, s, s, 0, 0, 0};
    a->map[HEED_USE_DECODER] = (struct heed_attention_map){c->decoder_layers, h, t, t, 0, 0, 0};
    a->map[HEED_USE_CROSS] = (struct heed_attention_map){c->decoder_layers, h, t, s, 0, 0, 0};
}

static size_t map_size(const struct heed_attention_map *m)
{
    return (size_t)m->layers * m->heads * m->queries * m->keys;
}

static void pieces_put(const char **to, const struct heed_tokenizer *t, const int32_t *id, int n)
{
    for (int i = 0; i < n; i++) to[i] = heed_tokenizer_piece(t, id[i]);
}

/* One block of memory with the tokens of a sentence in a batch of its own; the weights are not
 * filled yet. id: [rows_tgt] the translation, which ends in the end mark unless it was cut. */
static struct heed_attention *attention_make(const struct heed_config *c,
                                             const struct heed_tokenizer *t, const struct packed *b,
                                             const int32_t *id, struct heed_error *err)
{
    struct heed_attention shape = {.align_layer = align_layer(c)};
    shapes(&shape, c, b);
    size_t weights = 0, tokens = (size_t)b->rows_src + 2 * (size_t)b->rows_tgt;
    for (int k = 0; k < HEED_USES; k++) weights += map_size(&shape.map[k]);
    size_t bytes = sizeof shape + tokens * sizeof(char *) + weights * sizeof(float);
    struct heed_attention *a = malloc(bytes);
    if (!a) {
        error_memory(err, bytes, "the attention of a translation");
        return NULL;
    }
    *a = shape;
    const char **source = (const char **)(a + 1), **fed = source + b->rows_src;
    const char **found = fed + b->rows_tgt;
    float *weight = (float *)(found + b->rows_tgt);
    pieces_put(source, t, b->src, b->rows_src);
    pieces_put(fed, t, b->tgt_in, b->rows_tgt);
    pieces_put(found, t, id, b->rows_tgt);
    a->map[HEED_USE_ENCODER].query = a->map[HEED_USE_ENCODER].key = source;
    a->map[HEED_USE_DECODER].query = a->map[HEED_USE_DECODER].key = fed;
    a->map[HEED_USE_CROSS].query = found;
    a->map[HEED_USE_CROSS].key = source;
    for (int k = 0; k < HEED_USES; k++) {
        a->map[k].weight = weight;
        weight += map_size(&a->map[k]);
    }
    return a;
}

/* From [layers][queries][heads][keys], as a pass writes them. */
static enum heed_status map_fill(const struct heed_attention_map *m, const float *from,
                                 struct heed_error *err)
{
    size_t row = m->keys, map = row * m->queries;
    float *to = (float *)m->weight;
    for (size_t i = 0; i < map_size(m); i++)
        if (!isfinite(from[i]))
            return error_set(err, HEED_ENUMERIC,
                             "the model gives attention weights that are not "
                             "finite");
    for (int l = 0; l < m->layers; l++, to += m->heads * map)
        for (int i = 0; i < m->queries; i++)
            for (int h = 0; h < m->heads; h++, from += row)
                memcpy(to + h * map + i * row, from, row * sizeof *to);
    return HEED_OK;
}

static enum heed_status attention_fill(const struct attention_model *m, struct heed_attention *a,
                                       const struct packed *b, struct heed_error *err)
{
    size_t size[HEED_USES], all = 0;
    for (int k = 0; k < HEED_USES; k++) all += size[k] = map_size(&a->map[k]);
    float *weight = malloc(all * sizeof *weight);
    if (!weight) return error_memory(err, all * sizeof *weight, "the attention of a translation");
    const struct run_options o = {
        .rows_src = b->rows_src, .rows_tgt = b->rows_tgt, .sentences = 1, .watch = true};
    const struct run_weights to = {.encoder = weight,
                                   .decoder = weight + size[HEED_USE_ENCODER],
                                   .cross = weight + all - size[HEED_USE_CROSS]};
    struct run *run = NULL;
    enum heed_status status = run_open(&run, m->be, m->p, &o, err);
    if (!status) status = run_attention(run, b, &to, err);
    const float *from = weight;
    for (int k = 0; k < HEED_USES && !status; from += size[k++])
        status = map_fill(&a->map[k], from, err);
    run_free(run);
    free(weight);
    return status;
}

enum heed_status attention_of_ids(struct heed_attention **out, const struct attention_model *m,
                                  const struct heed_ids *src, const int32_t *id, int n,
                                  struct heed_error *err)
{
    const struct heed_tokenizer *t = m->tokenizer;
    int rows = (int)src->n + 1;
    size_t words = pack_words(1, rows, n);
    int32_t *word = malloc(words * sizeof *word);
    if (!word) return error_memory(err, words * sizeof *word, "the attention of a translation");
    struct packed b;
    pack_begin(&b, word, 1, rows, n);
    /* Of the translation, all tokens but the last are fed in. */
    pack_add(&b, src->v, (int)src->n, id, n - 1, tokenizer_bos(t), tokenizer_eos(t));
    struct heed_attention *a = attention_make(&m->p->config, t, &b, id, err);
    enum heed_status status = a ? attention_fill(m, a, &b, err) : HEED_ENOMEM;
    free(word);
    if (status)
        heed_attention_free(a);
    else
        *out = a;
    return status;
}

/* HEED_OK where a text is translated in one piece. */
static enum heed_status check_pieces(const struct pieces *p, struct heed_error *err)
{
    if (p->refused) return error_set(err, p->refused->status, "%s", p->refused->text);
    if (p->ids.n == 0 && p->spelling.n)
        return error_set(err, HEED_EARG, "the vocabulary cannot spell any of the text");
    if (p->n == 0) return error_set(err, HEED_EARG, "the text is empty");
    if (p->n > 1)
        return error_set(err, HEED_EARG,
                         "the text has %zu tokens and is translated in %d pieces, expected one "
                         "piece: give one sentence",
                         p->ids.n, p->n);
    return HEED_OK;
}

enum heed_status heed_attention_of(struct heed_session *s, const struct heed_request *request,
                                   struct heed_attention **out, struct heed_error *err)
{
    if (!s) return error_null(err, "session");
    if (!request) return error_null(err, "request");
    if (!request->text) return error_null(err, "request->text");
    if (!out) return error_null(err, "out");
    const struct attention_model m = {s->be, s->m->p, s->m->tokenizer};
    const struct heed_answer *found;
    struct pieces p = {0};
    enum heed_status status = pieces_fill(&p, m.tokenizer, m.p->config.max_length, request, err);
    if (!status) status = check_pieces(&p, err);
    if (!status) status = heed_translate(s, request, 1, &found, err);
    if (!status && found->status) status = error_set(err, found->status, "%s", found->why);
    if (!status)
        status = attention_of_ids(out, &m, &p.sentence[0].src, found->result->id,
                                  found->result->tokens, err);
    pieces_release(&p);
    return status;
}

void heed_attention_free(struct heed_attention *a)
{
    free(a);
}
