/*
 * validate.c - validation loss and BLEU.
 */
#include "train/validate.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "decode/search.h"
#include "text/batch.h"
#include "text/pairs.h"
#include "text/tokenizer.h"

/* Lines of text, each NUL-terminated; grown by doubling. */
struct lines {
    char **v;
    int n, cap;
};

struct validator {
    const struct parameters *p;
    struct validator_options o;
    struct lines ref;
    struct heed_ids *src; /* [n] sources that fit the model, longer ones cut */
    int n, cap;
    struct search *search; /* NULL: no BLEU */
};

static enum heed_status lines_add(struct lines *l, const char *text, size_t len,
                                  struct heed_error *err)
{
    if (l->n == l->cap) {
        int cap = l->cap ? 2 * l->cap : 1024;
        char **v = realloc(l->v, cap * sizeof *v);
        if (!v) return error_memory(err, cap * sizeof *v, "validation text");
        l->v = v;
        l->cap = cap;
    }
    char *copy = malloc(len + 1);
    if (!copy) return error_memory(err, len + 1, "validation text");
    for (size_t i = 0; i < len; i++) copy[i] = text[i] ? text[i] : ' ';
    copy[len] = '\0';
    l->v[l->n++] = copy;
    return HEED_OK;
}

static void lines_release(struct lines *l)
{
    for (int i = 0; i < l->n; i++) free(l->v[i]);
    free(l->v);
}

static enum heed_status add_source(struct validator *v, const char *text, size_t len,
                                   struct heed_error *err)
{
    if (v->n == v->cap) {
        int cap = v->cap ? 2 * v->cap : 1024;
        struct heed_ids *src = realloc(v->src, cap * sizeof *src);
        if (!src) return error_memory(err, cap * sizeof *src, "validation text");
        v->src = src;
        v->cap = cap;
    }
    struct heed_ids *ids = &v->src[v->n++];
    *ids = (struct heed_ids){0};
    enum heed_status s = heed_encode(v->o.tokenizer, text, len, ids, err);
    size_t longest = search_longest(v->search);
    if (ids->n > longest) ids->n = longest;
    return s;
}

static enum heed_status read_text(struct validator *v, struct heed_error *err)
{
    struct pairs *pairs = NULL;
    enum heed_status s = pairs_open(&pairs, &v->o.corpus, err);
    while (!s) {
        struct pair p;
        s = pairs_peek(pairs, &p, err);
        if (s || !p.src) break;
        s = lines_add(&v->ref, p.tgt, p.tgt_len, err);
        if (!s) s = add_source(v, p.src, p.src_len, err);
        pairs_take(pairs);
    }
    pairs_free(pairs);
    return s;
}

static enum heed_status open_batches(const struct validator *v, struct batches **b,
                                     struct heed_error *err)
{
    struct batch_options o = {.corpus = v->o.corpus,
                              .tokenizer = v->o.tokenizer,
                              .batch_tokens = v->o.batch_tokens,
                              .max_length = v->p->config.max_length,
                              .threads = v->o.threads};
    return batch_open(b, &o, err);
}

enum heed_status validator_open(struct validator **out, const struct parameters *p,
                                const struct validator_options *o, struct heed_error *err)
{
    struct validator *v = calloc(1, sizeof *v);
    if (!v) return error_memory(err, sizeof *v, "validation");
    v->p = p;
    v->o = *o;
    struct search_options greedy = {
        .bos = tokenizer_bos(o->tokenizer),
        .beam = {.width = 1, .nbest = 1, .eos = tokenizer_eos(o->tokenizer)}};
    /* What is wrong with the text, or with a name, should show now and not after hours. */
    struct batches *once = NULL;
    enum heed_status s = open_batches(v, &once, err);
    batch_free(once);
    if (!s && o->tokenize) {
        struct heed_score ignored;
        s = heed_bleu((const char *[]){"a"}, (const char *[]){"a"}, 1, o->tokenize, &ignored, err);
        if (!s) s = search_open(&v->search, p->be, p, &greedy, err);
        if (!s) s = read_text(v, err);
    }
    if (s) {
        validator_free(v);
        return s;
    }
    *out = v;
    return HEED_OK;
}

void validator_free(struct validator *v)
{
    if (!v) return;
    for (int i = 0; i < v->n; i++) free(v->src[i].v);
    free(v->src);
    lines_release(&v->ref);
    search_free(v->search);
    free(v);
}

static enum heed_status mean_loss(struct validator *v, struct run *r, double *nll,
                                  struct heed_error *err)
{
    struct batches *b = NULL;
    struct loss sum = {0};
    const struct packed *batch;
    struct batch_cursor after;
    enum heed_status s = open_batches(v, &b, err);
    while (!s && !(s = batch_next(b, &batch, &after, err)) && batch)
        s = run_loss(r, batch, &(struct loss_options){0}, &sum, err);
    batch_free(b);
    *nll = sum.tokens ? sum.nll / (double)sum.tokens : 0;
    return s;
}

static enum heed_status bleu(struct validator *v, double *score, struct heed_error *err)
{
    struct translation *out = calloc(v->n + 1, sizeof *out);
    char **hyp = calloc(v->n + 1, sizeof *hyp);
    struct heed_score result;
    enum heed_status s = out && hyp ? HEED_OK : error_memory(err, v->n * sizeof *out, "validation");
    if (!s) s = search_run(v->search, v->src, NULL, v->n, out, err);
    for (int i = 0; i < v->n && !s; i++) {
        size_t len;
        s = heed_decode(v->o.tokenizer, out[i].ids.v, out[i].ids.n, &hyp[i], &len, err);
    }
    if (!s)
        s = heed_bleu((const char *const *)hyp, (const char *const *)v->ref.v, v->n, v->o.tokenize,
                      &result, err);
    for (int i = 0; i < v->n; i++) {
        if (out) translation_release(&out[i]);
        if (hyp) free(hyp[i]);
    }
    free(hyp);
    free(out);
    if (!s) *score = result.value;
    return s;
}

enum heed_status validate(struct validator *v, struct run *r, struct validation *out,
                          struct heed_error *err)
{
    out->bleu = -1;
    enum heed_status s = mean_loss(v, r, &out->nll, err);
    if (!s && v->search) s = bleu(v, &out->bleu, err);
    return s;
}
