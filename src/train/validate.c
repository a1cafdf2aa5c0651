/*
 * validate.c - validation loss, BLEU and chrF.
 */
#include "train/validate.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "corpus/batch.h"
#include "corpus/pairs.h"
#include "decode/search.h"
#include "tokens/tokenizer.h"
#include "train/samples.h"

/* Lines of text, each NUL-terminated. */
struct lines {
    char **v;
    int n;
    size_t cap;
};

struct validator {
    const struct parameters *p;
    struct validator_options o;
    struct packed **batch; /* [batches] the tokens of both sides, for the loss */
    int batches;
    size_t batches_cap;
    struct samples *samples;
    /* for BLEU and chrF */
    struct search *search; /* NULL: nothing is translated */
    struct lines ref;      /* the references */
    struct heed_ids *src;  /* [n] tokens of the sources, cut to what the model takes */
    int n;
    size_t cap;
};

static enum heed_status lines_add(struct lines *l, const char *text, size_t len,
                                  struct heed_error *err)
{
    enum heed_status s =
        array_reserve(&l->v, &l->cap, (size_t)l->n + 1, sizeof *l->v, "validation text", err);
    if (s) return s;
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
    enum heed_status s =
        array_reserve(&v->src, &v->cap, (size_t)v->n + 1, sizeof *v->src, "validation text", err);
    if (s) return s;
    struct heed_ids *ids = &v->src[v->n++];
    *ids = (struct heed_ids){0};
    s = heed_encode(v->o.tokenizer, text, len, ids, err);
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

static enum heed_status keep_batch(struct validator *v, const struct packed *b,
                                   struct heed_error *err)
{
    enum heed_status s = array_reserve(&v->batch, &v->batches_cap, (size_t)v->batches + 1,
                                       sizeof *v->batch, "validation text", err);
    if (s) return s;
    struct packed *copy = packed_copy(b, err);
    if (!copy) return HEED_ENOMEM;
    v->batch[v->batches++] = copy;
    return HEED_OK;
}

static enum heed_status read_batches(struct validator *v, struct heed_error *err)
{
    struct batch_options o = {.corpus = v->o.corpus,
                              .tokenizer = v->o.tokenizer,
                              .batch_tokens = v->o.batch_tokens,
                              .max_length = v->p->config.max_length,
                              .threads = v->o.threads};
    struct batches *b = NULL;
    const struct packed *batch;
    struct batch_cursor after;
    enum heed_status s = batch_open(&b, &o, err);
    while (!s && !(s = batch_next(b, &batch, &after, err)) && batch) s = keep_batch(v, batch, err);
    batch_free(b);
    return s;
}

enum heed_status validator_open(struct validator **out, const struct parameters *p,
                                const struct validator_options *o, struct heed_error *err)
{
    struct validator *v = calloc(1, sizeof *v);
    if (!v) return error_memory(err, sizeof *v, "validation");
    v->p = p;
    v->o = *o;
    struct search_options so = {.bos = tokenizer_bos(o->tokenizer),
                                .eos = tokenizer_eos(o->tokenizer)};
    struct samples_options samples = {o->corpus, o->tokenizer, o->dir, o->step};
    enum heed_status s = read_batches(v, err);
    if (!s && o->tokenize) {
        /* an unknown tokenizer is an error now, not at the first validation hours later */
        struct heed_score ignored;
        s = heed_bleu((const char *[]){"a"}, (const char *[]){"a"}, 1, o->tokenize, &ignored, err);
        if (!s) s = search_open(&v->search, p->be, p, &so, err);
        if (!s) s = read_text(v, err);
    }
    if (!s) s = samples_open(&v->samples, p, &samples, err);
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
    for (int i = 0; i < v->batches; i++) packed_free(v->batch[i]);
    free(v->batch);
    for (int i = 0; i < v->n; i++) free(v->src[i].v);
    free(v->src);
    lines_release(&v->ref);
    search_free(v->search);
    samples_free(v->samples);
    free(v);
}

static enum heed_status mean_loss(struct validator *v, struct run *r, double *nll,
                                  struct heed_error *err)
{
    struct loss sum = {0};
    enum heed_status s = HEED_OK;
    for (int i = 0; i < v->batches && !s; i++)
        s = run_loss(r, v->batch[i], &(struct loss_options){0}, &sum, err);
    *nll = sum.tokens ? sum.nll / (double)sum.tokens : 0;
    return s;
}

/* Translates all sources by greedy search. out [n], zeroed; the caller releases each of them. */
static enum heed_status search_greedy(struct validator *v, struct translation *out,
                                      struct heed_error *err)
{
    struct sentence *x = calloc((size_t)v->n + 1, sizeof *x);
    if (!x) return error_memory(err, (size_t)v->n * sizeof *x, "validation");
    for (int i = 0; i < v->n; i++)
        x[i] =
            (struct sentence){.src = v->src[i], .beam = {.width = 1, .nbest = 1}, .out = &out[i]};
    enum heed_status s = search_run(v->search, x, v->n, err);
    free(x);
    return s;
}

static enum heed_status translate(struct validator *v, struct validation *result,
                                  struct heed_error *err)
{
    struct translation *out = calloc((size_t)v->n + 1, sizeof *out);
    char **hyp = calloc((size_t)v->n + 1, sizeof *hyp);
    const char *const *text = (const char *const *)hyp;
    const char *const *ref = (const char *const *)v->ref.v;
    struct heed_score bleu, chrf;
    enum heed_status s =
        out && hyp ? HEED_OK : error_memory(err, (size_t)v->n * sizeof *out, "validation");
    if (!s) s = search_greedy(v, out, err);
    for (int i = 0; i < v->n && !s; i++) {
        size_t len;
        s = heed_decode(v->o.tokenizer, out[i].ids.v, out[i].ids.n, &hyp[i], &len, err);
    }
    if (!s) s = heed_bleu(text, ref, v->n, v->o.tokenize, &bleu, err);
    if (!s) s = heed_chrf(text, ref, v->n, &chrf, err);
    for (int i = 0; i < v->n; i++) {
        if (out) translation_release(&out[i]);
        if (hyp) free(hyp[i]);
    }
    free(hyp);
    free(out);
    if (s) return s;
    result->bleu = bleu.value;
    result->chrf = chrf.value;
    return HEED_OK;
}

enum heed_status validate(struct validator *v, struct run *r, int64_t step, struct validation *out,
                          struct heed_error *err)
{
    out->bleu = out->chrf = -1;
    enum heed_status s = mean_loss(v, r, &out->nll, err);
    if (!s && v->search) s = translate(v, out, err);
    return s ? s : samples_write(v->samples, step, err);
}
