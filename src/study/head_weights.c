/*
 * head_weights.c - what the attention weights of a batch show. One pass over the batch writes the
 * weights of every layer and head to host memory (run_attention); they are added up sentence by
 * sentence, in a fixed order, and forgotten.
 */
#include "base/array.h"
#include "base/minmax.h"
#include "decode/session.h"
#include "study/heads.h"

/* The weights of one use in a batch. */
struct use_weights {
    enum heed_attention_use use;
    const float *v; /* [layers][rows][heads][keys] */
    int layers, heads, rows, keys;
};

static const float *row_of(const struct use_weights *u, int layer, int row, int head)
{
    return u->v + (((size_t)layer * u->rows + row) * u->heads + head) * u->keys;
}

int study_first_head(const struct study *s, enum heed_attention_use use)
{
    int first = 0;
    for (int i = 0; i < (int)use; i++) first += s->h.layers[i] * s->h.heads;
    return first;
}

/* The source token that target row `row` is aligned with: the one that the heads of the layer of
 * alignments give most weight to together. The tag of a language is no token to align with, nor is
 * the end mark, except with the end mark of the target. */
static int aligned(const struct study *s, const struct use_weights *cross, int row, int sources,
                   bool last)
{
    int layer = align_layer(&s->config), best = last ? sources - 1 : 0;
    float most = -1;
    for (int k = s->tag; k < sources - 1 && !last; k++) {
        float sum = 0;
        for (int h = 0; h < cross->heads; h++) sum += row_of(cross, layer, row, h)[k];
        if (sum > most) most = sum, best = k;
    }
    return best;
}

/* What query i of a sentence sees; id: the tokens of the source. */
static struct head_query query_of(const struct study *s, const struct use_weights *u, int row,
                                  int i, int queries, int keys, const int32_t *id)
{
    int first = u->use == HEED_USE_DECODER ? 1 : int_max(1, s->tag);
    struct head_query q = {.keys = u->use == HEED_USE_DECODER ? i + 1 : keys,
                           .centre = i,
                           .diagonal = i,
                           .first = i >= first ? first : 0};
    if (u->use != HEED_USE_DECODER) q.end = keys > 1 && !s->kind[id[keys - 2]].letters ? 2 : 1;
    if (u->use == HEED_USE_CROSS) {
        q.centre = aligned(s, u, row, keys, i == queries - 1);
        q.diagonal = queries > 1 ? (double)i * (keys - 1) / (queries - 1) : 0;
        q.first = int_min(first, keys);
    }
    return q;
}

/* Adds query `row` of a batch, in all layers and heads, to the sums of its sentence. */
static void add_query(struct study *s, const struct use_weights *u, int row,
                      const struct head_query *q)
{
    int first = study_first_head(s, u->use), n = u->layers * u->heads;
    for (int i = 0; i < n; i++) {
        s->row[i] = row_of(u, i / u->heads, row, i % u->heads);
        head_sums_add(&s->batch[first + i], s->row[i], q);
    }
    head_cosines_add(s->cosines[u->use], s->norm, s->row, n, q->keys);
    s->queries[u->use]++;
}

/* One sentence of one use: its queries are rows [from, from + queries) of the batch. */
static void add_sentence(struct study *s, const struct use_weights *u, int from, int queries,
                         int keys, const int32_t *id, int line)
{
    int n = u->layers * u->heads;
    for (int i = 0; i < queries; i++) {
        struct head_query q = query_of(s, u, from + i, i, queries, keys, id);
        if (q.keys < 2) continue;
        add_query(s, u, from + i, &q);
        for (int h = 0; h < n && u->use == HEED_USE_ENCODER; h++)
            study_best_pairs(s, h, line, id, keys, i, s->row[h], (size_t)u->heads * u->keys);
    }
}

enum heed_status study_weights(struct study *s, const struct packed *b, const struct pair_ids *pair,
                               struct heed_error *err)
{
    const struct heed_config *c = &s->config;
    struct use_weights u[HEED_USES] = {
        {HEED_USE_ENCODER, NULL, c->encoder_layers, c->heads, b->rows_src, b->max_src},
        {HEED_USE_DECODER, NULL, c->decoder_layers, c->heads, b->rows_tgt, b->max_tgt},
        {HEED_USE_CROSS, NULL, c->decoder_layers, c->heads, b->rows_tgt, b->max_src}};
    size_t at[HEED_USES], all = 0;
    for (int i = 0; i < HEED_USES; i++) {
        at[i] = all;
        all += (size_t)u[i].layers * u[i].rows * u[i].heads * u[i].keys;
    }
    enum heed_status status = array_reserve(&s->weights, &s->weights_cap, all, sizeof *s->weights,
                                            "attention weights", err);
    if (status) return status;
    for (int i = 0; i < HEED_USES; i++) u[i].v = s->weights + at[i];
    const struct run_weights to = {s->weights + at[HEED_USE_ENCODER],
                                   s->weights + at[HEED_USE_DECODER],
                                   s->weights + at[HEED_USE_CROSS]};
    status = run_attention(s->run, b, &to, err);
    for (int i = 0; i < b->n && !status; i++) {
        int sources = b->src_len[i], targets = b->tgt_len[i];
        const int32_t *id = b->src + b->src_off[i];
        for (int k = 0; k < s->h.n; k++) s->batch[k] = (struct head_sums){0};
        add_sentence(s, &u[HEED_USE_ENCODER], b->src_off[i], sources, sources, id, pair[i].line);
        add_sentence(s, &u[HEED_USE_DECODER], b->tgt_off[i], targets, targets, id, pair[i].line);
        add_sentence(s, &u[HEED_USE_CROSS], b->tgt_off[i], targets, sources, id, pair[i].line);
        for (int k = 0; k < s->h.n; k++) head_sums_join(&s->sums[k], &s->batch[k]);
        study_best_roles(s, s->batch, pair[i].line, sources);
    }
    return status;
}
