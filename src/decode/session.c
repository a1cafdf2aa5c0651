/*
 * session.c - heed.h's model and session: text in, text out.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "decode/search.h"
#include "model/config.h"
#include "model/files.h"
#include "ops/engine.h"
#include "text/tokenizer.h"

struct heed_model {
    struct parameters *p;
    struct heed_tokenizer *tokenizer;
};

struct heed_session {
    const struct heed_model *m;
    struct search *search;
    struct heed_result *result; /* of the last call */
    int results;
};

/* ---- model ---- */

static enum heed_status model_open(struct heed_model *m, struct backend *be, const char *dir,
                                   struct heed_error *err)
{
    char path[4096];
    struct heed_config c;
    enum heed_status s = file_join(path, sizeof path, dir, MODEL_CONFIG, err);
    if (!s) s = config_load(&c, path, err);
    if (!s) s = file_join(path, sizeof path, dir, MODEL_VOCAB, err);
    if (!s && !(m->tokenizer = heed_tokenizer_load(path, err))) s = HEED_EFORMAT;
    if (!s && heed_tokenizer_size(m->tokenizer) != c.vocab_size)
        s = error_set(err, HEED_EFORMAT, "%s has %d pieces, expected %d by config.json", path,
                      heed_tokenizer_size(m->tokenizer), c.vocab_size);
    if (!s) s = file_join(path, sizeof path, dir, MODEL_WEIGHTS, err);
    if (!s) s = parameters_open(&m->p, be, &c, precision_f32, err);
    if (!s) s = parameters_load(m->p, &(struct flat){"", m->p->master}, 1, path, err);
    return s;
}

struct heed_model *heed_model_load(struct heed_engine *e, const char *dir, struct heed_error *err)
{
    struct heed_model *m = calloc(1, sizeof *m);
    if (!m) {
        error_memory(err, sizeof *m, "a model");
        return NULL;
    }
    if (model_open(m, e->be, dir, err)) {
        heed_model_free(m);
        return NULL;
    }
    return m;
}

void heed_model_free(struct heed_model *m)
{
    if (!m) return;
    parameters_free(m->p);
    heed_tokenizer_free(m->tokenizer);
    free(m);
}

/* ---- session ---- */

struct heed_session *heed_session_open(const struct heed_model *m, struct heed_error *err)
{
    struct heed_session *s = calloc(1, sizeof *s);
    if (!s) {
        error_memory(err, sizeof *s, "a session");
        return NULL;
    }
    s->m = m;
    struct search_marks marks = {tokenizer_bos(m->tokenizer), tokenizer_eos(m->tokenizer)};
    if (search_open(&s->search, m->p, marks, err)) {
        free(s);
        return NULL;
    }
    return s;
}

static void results_free(struct heed_session *s)
{
    for (int i = 0; i < s->results; i++) free((char *)s->result[i].text);
    free(s->result);
    s->result = NULL;
    s->results = 0;
}

void heed_session_free(struct heed_session *s)
{
    if (!s) return;
    results_free(s);
    search_free(s->search);
    free(s);
}

/* The pieces of n texts: a text longer than the model takes is cut, its parts are translated one
 * by one and joined again. */
struct pieces {
    struct heed_ids all;  /* the ids of every text, end to end */
    struct heed_ids *src; /* [n] views into all */
    struct heed_ids *out; /* [n] */
    float *score;         /* [n] */
    int *text;            /* [n] which text a piece belongs to */
    int n;
};

static void pieces_release(struct pieces *p)
{
    for (int i = 0; i < p->n && p->out; i++) free(p->out[i].v);
    free(p->all.v);
    free(p->src);
    free(p->out);
    free(p->score);
    free(p->text);
}

static enum heed_status pieces_fill(struct pieces *p, const struct heed_session *s,
                                    const char *const *src, int n, struct heed_error *err)
{
    size_t longest = search_longest(s->search), *end = malloc((n + 1) * sizeof *end);
    enum heed_status status = end ? HEED_OK : error_memory(err, n * sizeof *end, "sentences");
    for (int i = 0; i < n && !status; i++) {
        size_t start = p->all.n;
        status = heed_encode(s->m->tokenizer, src[i], strlen(src[i]), &p->all, err);
        end[i] = p->all.n;
        p->n += (int)((p->all.n - start + longest - 1) / longest);
    }
    if (!status) {
        p->src = calloc(p->n + 1, sizeof *p->src);
        p->out = calloc(p->n + 1, sizeof *p->out);
        p->score = calloc(p->n + 1, sizeof *p->score);
        p->text = calloc(p->n + 1, sizeof *p->text);
        if (!p->src || !p->out || !p->score || !p->text)
            status = error_memory(err, p->n * sizeof *p->src, "sentences");
    }
    size_t at = 0;
    for (int i = 0, k = 0; i < n && !status; i++)
        for (; at < end[i]; k++) {
            size_t len = end[i] - at < longest ? end[i] - at : longest;
            p->src[k] = (struct heed_ids){p->all.v + at, len, 0};
            p->text[k] = i;
            at += len;
        }
    free(end);
    return status;
}

/* Text i of the results from its pieces [*k, ...). */
static enum heed_status join(struct heed_session *s, const struct pieces *p, int i, int *k,
                             struct heed_error *err)
{
    struct heed_result *r = &s->result[i];
    int first = *k;
    size_t n = 0;
    for (; *k < p->n && p->text[*k] == i; ++*k) n += p->out[*k].n, r->score += p->score[*k];
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    if (!ids) return error_memory(err, n * sizeof *ids, "a translation");
    n = 0;
    for (int j = first; j < *k; j++)
        for (size_t t = 0; t < p->out[j].n; t++) ids[n++] = p->out[j].v[t];
    enum heed_status status = heed_decode(s->m->tokenizer, ids, n, (char **)&r->text, &r->len, err);
    free(ids);
    return status;
}

enum heed_status heed_translate(struct heed_session *s, const char *const *src, int n,
                                const struct heed_result **out, struct heed_error *err)
{
    struct pieces p = {0};
    results_free(s);
    enum heed_status status = pieces_fill(&p, s, src, n, err);
    if (!status) status = search_greedy(s->search, p.src, p.n, p.out, p.score, err);
    if (!status && !(s->result = calloc(n + 1, sizeof *s->result)))
        status = error_memory(err, n * sizeof *s->result, "translations");
    if (!status) s->results = n;
    for (int i = 0, k = 0; i < n && !status; i++) status = join(s, &p, i, &k, err);
    pieces_release(&p);
    if (!status) *out = s->result;
    return status;
}
