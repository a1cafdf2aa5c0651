/*
 * link.c - the last stage of a request: links between words, and what the model did not read.
 *
 * The attention of a translation is computed after the search: the translation is given to the
 * search once more, as a whole, so that only the translations that are linked cost anything.
 */
#include <stdlib.h>

#include "base/error.h"
#include "base/minmax.h"
#include "decode/job.h"
#include "decode/restore.h"

int align_layer(const struct heed_config *c)
{
    return c->decoder_layers > 1 ? c->decoder_layers - 2 : 0;
}

/* ---- attention ---- */

/* A translation of a piece, with its end mark, as an output that is given. */
static struct sentence given_as_whole(struct job *j, const struct sentence *x, int rank)
{
    const struct heed_config *c = &j->session->m->p->config;
    struct heed_ids ids = x->out[rank].ids;
    if (ids.v)
        ids.v[ids.n++] = j->end; /* translations have room for it */
    else
        ids = (struct heed_ids){&j->end, 1, 1};
    ids.n = (size_t)int_min((int)ids.n, c->max_length);
    return (struct sentence){.src = x->src,
                             .beam = {.width = 1, .nbest = 1},
                             .must = {.prefix = ids},
                             .attention_layer = 1 + align_layer(c)};
}

/* How many of the results have their words linked to those of the text: the best one where the
 * request asks for it, all where it is needed to place what was not read. */
static int count_linked(const struct job *j)
{
    const struct pieces *p = &j->p;
    if (p->refused) return 0;
    bool placed = p->spelling.n && !p->request->given && restore_needs_alignment(&p->spelling);
    return placed ? j->answer.n : p->o.align ? 1 : 0;
}

enum heed_status links_begin(struct job *j, struct heed_error *err)
{
    const struct pieces *p = &j->p;
    j->linked = count_linked(j);
    enum heed_status status = job_more(j, j->linked * p->n, j->linked * p->n, err);
    for (int n = 0; n < j->more_n && !status; n++) {
        j->more[n] = given_as_whole(j, &p->sentence[n % p->n], n / p->n);
        j->more[n].out = &j->out[n];
    }
    return status;
}

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

/* The alignment of result `rank`. */
static enum heed_status align(struct heed_alignment **out, const struct job *j, int rank,
                              struct heed_error *err)
{
    const struct pieces *p = &j->p;
    float **attention = calloc(p->n + 1, sizeof *attention);
    enum heed_status status = attention ? HEED_OK : error_memory(err, p->n, "an alignment");
    for (int i = 0; i < p->n && !status; i++) {
        const struct sentence *x = &p->sentence[i];
        attention[i] = mean_attention(&j->out[rank * p->n + i], x->out[rank].ids.n, x->src.n,
                                      j->session->m->p->config.heads);
        if (!attention[i]) status = error_memory(err, x->src.n, "an alignment");
    }
    if (!status)
        status =
            align_text(out, p, j->session->m->tokenizer, &j->result[rank], rank, attention, err);
    for (int i = 0; i < p->n && attention; i++) free(attention[i]);
    free(attention);
    return status;
}

/* ---- what was not read ---- */

/* Puts what was not read of the text into result `rank`. *a is the alignment of what was read, and
 * becomes that of the whole text, or NULL where it is not asked for. The text of a given
 * translation stays as it is; its lists tell what was not read. */
static enum heed_status restore(const struct job *j, int rank, struct heed_alignment **a,
                                struct heed_error *err)
{
    const struct pieces *p = &j->p;
    struct heed_result *r = &j->result[rank];
    struct heed_alignment *whole = NULL;
    enum heed_status status = HEED_OK;
    if (p->spelling.text) {
        bool told = *a && p->o.align && rank == 0 && !p->spelling.mended;
        status = restore_text(r, &p->spelling, *a, p->request, told ? &whole : NULL, err);
        free(*a);
        *a = whole;
    }
    return status ? status : restore_given(r, &p->given, err);
}

enum heed_status links_end(struct job *j, struct heed_error *err)
{
    enum heed_status status = HEED_OK;
    for (int rank = 0; rank < j->answer.n && !j->p.refused && !status; rank++) {
        struct heed_alignment *a = NULL;
        if (rank < j->linked) status = align(&a, j, rank, err);
        if (!status) status = restore(j, rank, &a, err);
        j->result[rank].alignment = a;
    }
    return status;
}
