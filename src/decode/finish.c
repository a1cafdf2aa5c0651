/*
 * finish.c - the last stage of a translation: links between words, and what the model did not read.
 *
 * The attention of a translation is computed after the search: the translation is given to the
 * search once more, as a whole, so that only the translations that are linked cost anything.
 */
#include <stdlib.h>

#include "base/error.h"
#include "decode/restore.h"
#include "decode/session.h"
#include "tokens/tokenizer.h"

int align_layer(const struct heed_config *c)
{
    return c->decoder_layers > 1 ? c->decoder_layers - 2 : 0;
}

/* ---- attention ---- */

/* The mean of the heads of t->attention, for the n tokens of a translation and the tokens of its
 * source, both without end marks. */
static float *mean_attention(const struct translation *t, size_t n, size_t sources, int heads)
{
    float *mean = calloc(n * sources + 1, sizeof *mean);
    for (size_t i = 0; mean && i < n && i < t->ids.n; i++)
        for (int h = 0; h < heads; h++) {
            const float *row = t->attention + (i * heads + h) * (sources + 1);
            for (size_t j = 0; j < sources; j++) mean[i * sources + j] += row[j] / (float)heads;
        }
    return mean;
}

enum { BLOCK = 64 }; /* pieces whose attention is computed at once: keeps memory small */

/* attention[i]: the attention of translation `rank` of each of the pieces i = which[..n). */
static enum heed_status attend(struct heed_session *s, const struct pieces *p, int rank,
                               const int *which, int n, float **attention, struct heed_error *err)
{
    const struct heed_config *c = &s->m->p->config;
    int32_t end = tokenizer_eos(s->m->tokenizer);
    struct sentence x[BLOCK];
    struct translation out[BLOCK] = {0};
    for (int i = 0; i < n; i++) {
        struct heed_ids ids = p->sentence[which[i]].out[rank].ids;
        if (ids.v)
            ids.v[ids.n++] = end; /* translations have room for it */
        else
            ids = (struct heed_ids){&end, 1, 1};
        if (ids.n > (size_t)c->max_length) ids.n = c->max_length;
        x[i] = (struct sentence){.src = p->sentence[which[i]].src,
                                 .beam = {.width = 1, .nbest = 1},
                                 .must = {.prefix = ids},
                                 .attention_layer = 1 + align_layer(c),
                                 .out = &out[i]};
    }
    enum heed_status status = search_run(s->search, x, n, err);
    for (int i = 0; i < n && !status; i++) {
        size_t tokens = p->sentence[which[i]].out[rank].ids.n;
        attention[which[i]] = mean_attention(&out[i], tokens, x[i].src.n, c->heads);
        if (!attention[which[i]]) status = error_memory(err, c->max_length, "an alignment");
    }
    for (int i = 0; i < n; i++) translation_release(&out[i]);
    return status;
}

/* Whether the words of a translation are linked to those of its text: the request asks for it, or
 * it is needed to place what was not read. */
static bool is_linked(const struct heed_session *s, const struct pieces *p, int text, int rank)
{
    const struct text *x = &p->text[text];
    if (rank >= s->answer[text].n || x->refused) return false;
    return (x->o.align && rank == 0) ||
           (x->spelling.n && !x->request->given && restore_needs_alignment(&x->spelling));
}

/* attention[i] of all pieces of the texts whose translation `rank` is linked. */
static enum heed_status attend_linked(struct heed_session *s, const struct pieces *p, int rank,
                                      float **attention, struct heed_error *err)
{
    int which[BLOCK], n = 0;
    enum heed_status status = HEED_OK;
    for (int i = 0; i < p->texts && !status; i++) {
        int first, last;
        if (!is_linked(s, p, i, rank)) continue;
        pieces_of(p, i, &first, &last);
        for (int k = first; k < last && !status; k++) {
            which[n++] = k;
            if (n < BLOCK) continue;
            status = attend(s, p, rank, which, n, attention, err);
            n = 0;
        }
    }
    return n && !status ? attend(s, p, rank, which, n, attention, err) : status;
}

/* ---- texts ---- */

/* Puts what was not read of a text into translation `rank`. *a is the alignment of what was read,
 * and becomes that of the whole text, or NULL where it is not asked for. The text of a given
 * translation stays as it is; its lists tell what was not read. */
static enum heed_status restore(const struct text *x, int rank, struct heed_alignment **a,
                                struct heed_error *err)
{
    struct heed_result *r = &x->result[rank];
    struct heed_alignment *whole = NULL;
    enum heed_status status = HEED_OK;
    if (x->spelling.text) {
        bool told = *a && x->o.align && rank == 0 && !x->spelling.mended;
        status = restore_text(r, &x->spelling, *a, x->request, told ? &whole : NULL, err);
        free(*a);
        *a = whole;
    }
    return status ? status : restore_given(r, &x->given, err);
}

/* Finishes translation `rank` of every text. */
static enum heed_status finish_rank(struct heed_session *s, const struct pieces *p, int rank,
                                    float **attention, struct heed_error *err)
{
    enum heed_status status = attend_linked(s, p, rank, attention, err);
    for (int i = 0; i < p->texts && !status; i++) {
        const struct text *x = &p->text[i];
        struct heed_alignment *a = NULL;
        if (rank >= s->answer[i].n || x->refused) continue;
        if (is_linked(s, p, i, rank))
            status = align_text(&a, p, s->m->tokenizer, i, rank, attention, err);
        if (!status) status = restore(x, rank, &a, err);
        x->result[rank].alignment = a;
    }
    return status;
}

enum heed_status finish(struct heed_session *s, const struct pieces *p, struct heed_error *err)
{
    float **attention = calloc(p->n + 1, sizeof *attention); /* of each piece */
    if (!attention) return error_memory(err, p->n * sizeof *attention, "alignments");
    enum heed_status status = HEED_OK;
    int ranks = 0;
    for (int i = 0; i < p->texts; i++) ranks = s->answer[i].n > ranks ? s->answer[i].n : ranks;
    for (int rank = 0; rank < ranks && !status; rank++) {
        status = finish_rank(s, p, rank, attention, err);
        for (int i = 0; i < p->n; i++) {
            free(attention[i]);
            attention[i] = NULL;
        }
    }
    free(attention);
    return status;
}
