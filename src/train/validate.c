/*
 * validate.c - validation loss, BLEU and chrF.
 *
 * The ranks of a cluster share the batches of the loss and the sources to translate: rank r has
 * every one whose number modulo the number of ranks is r. Rank 0 sums the losses of all tokens in
 * the order of the text and scores all translations, so that neither depends on the ranks.
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
    struct samples *samples; /* NULL: another rank writes them */
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
    if (!s && cluster_rank(o->cluster) == 0) s = samples_open(&v->samples, p, &samples, err);
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

static bool is_mine(const struct validator *v, int i)
{
    return i % cluster_ranks(v->o.cluster) == cluster_rank(v->o.cluster);
}

/* ---- loss ---- */

/* The losses of the tokens of all batches, on rank 0: nll [tokens]. */
static enum heed_status share_losses(struct validator *v, double *nll, struct heed_error *err)
{
    struct heed_cluster *c = v->o.cluster;
    struct transfers t = {0};
    enum heed_status s = HEED_OK;
    for (int i = 0; i < v->batches && !s; i++) {
        size_t bytes = (size_t)v->batch[i]->rows_tgt * sizeof *nll;
        int owner = i % cluster_ranks(c);
        if (owner && cluster_rank(c) == 0)
            s = cluster_receive(c, &t, nll, bytes, owner, TAG_EXCHANGE, err);
        else if (owner && is_mine(v, i))
            s = cluster_send(c, &t, nll, bytes, 0, TAG_EXCHANGE, err);
        nll += v->batch[i]->rows_tgt;
    }
    if (!s && t.n) s = cluster_wait(c, &t, err);
    transfers_release(&t);
    return s;
}

static enum heed_status mean_loss(struct validator *v, struct run *r, double *mean,
                                  struct heed_error *err)
{
    size_t tokens = 0, at = 0;
    for (int i = 0; i < v->batches; i++) tokens += (size_t)v->batch[i]->rows_tgt;
    double sum = 0, *nll = malloc((tokens + 1) * sizeof *nll);
    if (!nll) return error_memory(err, tokens * sizeof *nll, "validation");
    enum heed_status s = HEED_OK;
    for (int i = 0; i < v->batches && !s; at += (size_t)v->batch[i++]->rows_tgt) {
        if (!is_mine(v, i)) continue;
        s = run_loss(r, v->batch[i], &(struct loss_options){0}, &(struct loss){0}, err);
        if (!s) run_nll(r, nll + at);
    }
    if (!s) s = share_losses(v, nll, err);
    for (size_t i = 0; i < tokens && !s && cluster_rank(v->o.cluster) == 0; i++) sum += nll[i];
    *mean = tokens ? sum / (double)tokens : 0;
    free(nll);
    return s;
}

/* ---- translation ---- */

/* Texts that follow each other, each with its NUL. */
struct joined {
    char *v;
    size_t n, cap;
};

/* Translates the own sources by greedy search. out [n], zeroed; the caller releases each of them.
 */
static enum heed_status search_greedy(struct validator *v, struct translation *out,
                                      struct heed_error *err)
{
    struct sentence *x = calloc((size_t)v->n + 1, sizeof *x);
    int n = 0;
    if (!x) return error_memory(err, (size_t)v->n * sizeof *x, "validation");
    for (int i = 0; i < v->n; i++) {
        if (!is_mine(v, i)) continue;
        x[n++] =
            (struct sentence){.src = v->src[i], .beam = {.width = 1, .nbest = 1}, .out = &out[i]};
    }
    enum heed_status s = search_run(v->search, x, n, err);
    free(x);
    return s;
}

/* The translations of the own sources, as text. */
static enum heed_status translate_own(struct validator *v, struct joined *text,
                                      struct heed_error *err)
{
    struct translation *out = calloc((size_t)v->n + 1, sizeof *out);
    if (!out) return error_memory(err, (size_t)v->n * sizeof *out, "validation");
    enum heed_status s = search_greedy(v, out, err);
    for (int i = 0; i < v->n; i++) {
        char *one = NULL;
        size_t len;
        if (is_mine(v, i) && !s)
            s = heed_decode(v->o.tokenizer, out[i].ids.v, out[i].ids.n, &one, &len, err);
        size_t bytes = one ? strlen(one) + 1 : 0;
        if (!s) s = array_reserve(&text->v, &text->cap, text->n + bytes + 1, 1, "validation", err);
        if (!s && one) memcpy(text->v + text->n, one, bytes);
        text->n += bytes;
        free(one);
        translation_release(&out[i]);
    }
    free(out);
    return s;
}

/* Finds the translation of every source among those of all ranks, and scores them. */
static enum heed_status score(struct validator *v, const char *all, const size_t *size,
                              struct validation *result, struct heed_error *err)
{
    int ranks = cluster_ranks(v->o.cluster);
    const char **hyp = calloc((size_t)v->n + 1, sizeof *hyp);
    const char *const *ref = (const char *const *)v->ref.v;
    struct heed_score bleu, chrf;
    if (!hyp) return error_memory(err, (size_t)v->n * sizeof *hyp, "validation");
    for (int r = 0; r < ranks; all += size[r++]) {
        const char *next = all;
        for (int i = r; i < v->n; i += ranks, next += strlen(next) + 1) hyp[i] = next;
    }
    enum heed_status s = heed_bleu(hyp, ref, v->n, v->o.tokenize, &bleu, err);
    if (!s) s = heed_chrf(hyp, ref, v->n, &chrf, err);
    free(hyp);
    if (s) return s;
    result->bleu = bleu.value;
    result->chrf = chrf.value;
    return HEED_OK;
}

static enum heed_status translate(struct validator *v, struct validation *result,
                                  struct heed_error *err)
{
    struct joined mine = {0};
    char *all = NULL;
    size_t *size = calloc((size_t)cluster_ranks(v->o.cluster), sizeof *size);
    enum heed_status s = size ? HEED_OK : error_memory(err, sizeof *size, "validation");
    if (!s) s = translate_own(v, &mine, err);
    if (!s) s = cluster_to_first(v->o.cluster, mine.v, mine.n, &all, size, err);
    if (!s && all) s = score(v, all, size, result, err);
    free(mine.v);
    free(all);
    free(size);
    return s;
}

enum heed_status validate(struct validator *v, struct run *r, int64_t step, struct validation *out,
                          struct heed_error *err)
{
    out->bleu = out->chrf = -1;
    enum heed_status s = mean_loss(v, r, &out->nll, err);
    if (!s && v->search) s = translate(v, out, err);
    if (!s && v->samples) s = samples_write(v->samples, step, err);
    return s ? s : cluster_from_first(v->o.cluster, out, sizeof *out, err);
}
