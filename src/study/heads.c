/*
 * heads.c - heed_heads_of: what every head of a model does on a corpus, and what is lost without
 * it.
 *
 * The corpus goes through the model batch by batch, in the order of its lines: first the loss, with
 * all heads and without each, then the attention weights. A batch counts as a whole or not at all,
 * so that a study that is stopped is one of fewer sentences. BLEU comes last.
 */
#include "study/heads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/minmax.h"
#include "corpus/batch.h"
#include "decode/search.h"
#include "ops/engine.h"
#include "store/directory.h"
#include "store/weights.h"
#include "tokens/tokenizer.h"

enum { BATCH_ROWS = 512, BATCH_SENTENCES = 64 };

/* ---- the corpus ---- */

static void pair_release(struct pair_ids *x)
{
    free(x->src.v);
    free(x->tgt.v);
}

/* Appends a pair; one with an empty or overlong side is skipped. */
static enum heed_status pair_add(struct study *s, const struct heed_ids *tag, int line,
                                 struct heed_error *err)
{
    const char *src = s->o.src[line], *tgt = s->o.tgt[line];
    struct pair_ids x = {.line = line};
    enum heed_status status = HEED_OK;
    if (tag->n) {
        size_t cap = 0;
        status = array_reserve(&x.src.v, &cap, tag->n, sizeof *x.src.v, "a sentence", err);
        if (!status) memcpy(x.src.v, tag->v, tag->n * sizeof *x.src.v);
        x.src.n = tag->n;
        x.src.cap = cap;
    }
    if (!status)
        status = tokenizer_encode_source(s->tokenizer, src, strlen(src), !tag->n, &x.src, err);
    if (!status) status = heed_encode(s->tokenizer, tgt, strlen(tgt), &x.tgt, err);
    size_t most = (size_t)s->config.max_length - 1;
    if (status || x.src.n == tag->n || !x.tgt.n || x.src.n > most || x.tgt.n > most) {
        s->h.skipped += !status;
        pair_release(&x);
        return status;
    }
    s->rows = int_max(s->rows, (int)(x.src.n > x.tgt.n ? x.src.n : x.tgt.n) + 1);
    s->pair[s->pairs++] = x;
    return HEED_OK;
}

static enum heed_status read_pairs(struct study *s, struct heed_error *err)
{
    struct heed_ids tag = {0};
    s->rows = BATCH_ROWS;
    s->pair = calloc((size_t)s->o.n + 1, sizeof *s->pair);
    enum heed_status status =
        s->pair ? HEED_OK : error_memory(err, (size_t)s->o.n * sizeof *s->pair, "sentences");
    if (!status && s->o.to) status = tokenizer_tag(s->tokenizer, s->o.to, &tag, err);
    s->tag = (int)tag.n;
    for (int i = 0; i < s->o.n && !status; i++) status = pair_add(s, &tag, i, err);
    free(tag.v);
    if (!status && s->pairs == 0)
        status = error_set(err, HEED_EARG,
                           "none of %d pairs can be measured: one side is empty, or longer than "
                           "the %d tokens that the model takes",
                           s->o.n, s->config.max_length - 1);
    s->h.sentences_all = s->pairs;
    return status;
}

/* The batch that begins with pair `first`; *n: its pairs. */
static struct packed *batch_at(const struct study *s, int first, int *n, struct heed_error *err)
{
    struct heed_ids src[BATCH_SENTENCES], tgt[BATCH_SENTENCES];
    size_t sources = 0, targets = 0;
    for (*n = 0; *n < BATCH_SENTENCES && first + *n < s->pairs; ++*n) {
        const struct pair_ids *x = &s->pair[first + *n];
        sources += x->src.n + 1;
        targets += x->tgt.n + 1;
        if (sources > (size_t)s->rows || targets > (size_t)s->rows) break;
        src[*n] = x->src;
        tgt[*n] = x->tgt;
    }
    return packed_make(src, tgt, *n, tokenizer_bos(s->tokenizer), tokenizer_eos(s->tokenizer), err);
}

/* ---- memory ---- */

void heed_heads_free(struct heed_heads *h)
{
    struct study *s = (struct study *)h;
    if (!s) return;
    for (int i = 0; i < s->pairs; i++) pair_release(&s->pair[i]);
    for (int u = 0; u < HEED_USES; u++) {
        free(s->cosines[u]);
        free((float *)s->h.alike[u]);
    }
    free(s->pair);
    free(s->kind);
    free(s->head);
    free(s->sums);
    free(s->batch);
    free(s->best);
    free(s->example);
    free(s->name);
    free(s->norm);
    free(s->row);
    free(s->weights);
    free(s->nll_without);
    free(s->batch_nll);
    mask_release(&s->mask);
    run_free(s->run);
    parameters_free(s->p);
    heed_tokenizer_free(s->tokenizer);
    if (s->be) s->be->op->close(s->be);
    free(s);
}

static void name_heads(struct study *s)
{
    struct heed_head *h = s->head;
    for (int u = 0; u < HEED_USES; u++)
        for (int l = 0; l < s->h.layers[u]; l++)
            for (int k = 0; k < s->h.heads; k++, h++)
                *h = (struct heed_head){.use = (enum heed_attention_use)u,
                                        .layer = l,
                                        .head = k,
                                        .loss_lost = NAN,
                                        .bleu_lost = NAN};
}

static enum heed_status results_open(struct study *s, struct heed_error *err)
{
    const struct heed_config *c = &s->config;
    struct heed_heads *h = &s->h;
    h->heads = c->heads;
    h->layers[HEED_USE_ENCODER] = c->encoder_layers;
    h->layers[HEED_USE_DECODER] = h->layers[HEED_USE_CROSS] = c->decoder_layers;
    h->n = (c->encoder_layers + 2 * c->decoder_layers) * c->heads;
    h->bleu = NAN;
    size_t n = (size_t)h->n;
    h->head = s->head = calloc(n, sizeof *s->head);
    s->sums = calloc(n, sizeof *s->sums);
    s->batch = calloc(n, sizeof *s->batch);
    s->best = calloc(n, sizeof *s->best);
    s->norm = calloc(n, sizeof *s->norm);
    s->row = calloc(n, sizeof *s->row);
    s->nll_without = calloc(n, sizeof *s->nll_without);
    s->batch_nll = calloc(n, sizeof *s->batch_nll);
    bool all = s->head && s->sums && s->batch && s->best && s->norm && s->row && s->nll_without &&
               s->batch_nll;
    for (int u = 0; u < HEED_USES; u++) {
        size_t heads = (size_t)h->layers[u] * h->heads;
        h->alike[u] = calloc(heads * heads, sizeof(float));
        s->cosines[u] = calloc(heads * heads, sizeof(double));
        all = all && h->alike[u] && s->cosines[u];
    }
    if (!all) return error_memory(err, n * n * sizeof(double), "the study of heads");
    name_heads(s);
    for (int i = 0; i < h->n; i++)
        for (int r = 0; r < HEED_ROLES; r++) s->best[i][r].line = -1;
    for (int i = 0; i < PAIRS; i++) s->pair_best[i].line = -1;
    return HEED_OK;
}

static enum heed_status model_open(struct study *s, struct heed_engine *e, const char *dir,
                                   struct heed_error *err)
{
    char path[FILE_PATH_MAX];
    enum heed_status status = engine_fork(e, &s->be, err);
    if (!status) status = directory_read(&s->config, &s->tokenizer, dir, err);
    if (!status) status = directory_weights(path, dir, err);
    if (!status) status = weights_open_plain(&s->p, s->be, &s->config, path, err);
    if (!status) status = mask_open(&s->mask, s->p, err);
    return status;
}

static enum heed_status run_open_for(struct study *s, struct heed_error *err)
{
    const struct run_options o = {
        .rows_src = s->rows, .rows_tgt = s->rows, .sentences = BATCH_SENTENCES, .watch = true};
    return run_open(&s->run, s->be, s->p, &o, err);
}

/* ---- loss ---- */

/* Says how far the study is; false: it is to stop. */
static bool goes_on(const struct study *s, const char *what, double done)
{
    return !s->o.event || s->o.event(s->o.user, what, done);
}

static enum heed_status batch_loss(struct study *s, const struct packed *b, double *nll,
                                   struct heed_error *err)
{
    struct loss sum = {0};
    enum heed_status status = run_loss(s->run, b, &(struct loss_options){0}, &sum, err);
    if (!status && !isfinite(sum.nll))
        status = error_set(err, HEED_ENUMERIC, "the loss is %g, expected a finite number", sum.nll);
    *nll = sum.nll;
    return status;
}

static enum heed_status loss_without(struct study *s, const struct packed *b, int i, double *nll,
                                     struct heed_error *err)
{
    const struct heed_head *h = &s->head[i];
    enum heed_status status = mask_put(&s->mask, h->use, h->layer, h->head, err);
    if (status) return status;
    status = batch_loss(s, b, nll, err);
    enum heed_status lifted = mask_lift(&s->mask, status ? NULL : err);
    return status ? status : lifted;
}

/* The batch that begins with pair `first`, of n. *stopped: it does not count. */
static enum heed_status add_batch(struct study *s, const struct packed *b, int first, int n,
                                  bool *stopped, struct heed_error *err)
{
    double nll = 0;
    bool masks = s->o.mask != HEED_MASK_NONE;
    enum heed_status status = batch_loss(s, b, &nll, err);
    for (int i = 0; i < s->h.n && masks && !status && !*stopped; i++) {
        status = loss_without(s, b, i, &s->batch_nll[i], err);
        *stopped =
            !goes_on(s, "loss without each head", (first + (double)n * i / s->h.n) / s->pairs);
    }
    if (!status && !*stopped) status = study_weights(s, b, s->pair + first, err);
    if (status || *stopped) return status;
    s->nll += nll;
    for (int i = 0; i < s->h.n; i++) s->nll_without[i] += s->batch_nll[i];
    s->h.sentences += n;
    s->h.tokens += b->rows_tgt;
    *stopped = !goes_on(s, masks ? "loss without each head" : "attention weights",
                        (double)(first + n) / s->pairs);
    return HEED_OK;
}

static enum heed_status measure(struct study *s, bool *stopped, struct heed_error *err)
{
    enum heed_status status = HEED_OK;
    for (int first = 0, n = 0; first < s->pairs && !status && !*stopped; first += n) {
        struct packed *b = batch_at(s, first, &n, err);
        status = b ? add_batch(s, b, first, n, stopped, err) : HEED_ENOMEM;
        packed_free(b);
    }
    return status;
}

/* ---- BLEU ---- */

/* A search and room for its results. */
struct translations {
    struct search *search;
    struct sentence *x;
    struct translation *out;
    char **text;
    const char **ref;
    int n;
};

static void translations_clear(struct translations *t)
{
    for (int i = 0; i < t->n; i++) {
        if (t->out) translation_release(&t->out[i]);
        if (t->text) free(t->text[i]);
        if (t->out) t->out[i] = (struct translation){0};
        if (t->text) t->text[i] = NULL;
    }
}

static void translations_release(struct translations *t)
{
    translations_clear(t);
    search_free(t->search);
    free(t->x);
    free(t->out);
    free(t->text);
    free(t->ref);
}

static enum heed_status translations_open(struct translations *t, struct study *s,
                                          struct heed_error *err)
{
    size_t n = (size_t)s->h.sentences + 1;
    struct search_options o = {.bos = tokenizer_bos(s->tokenizer),
                               .eos = tokenizer_eos(s->tokenizer)};
    t->n = (int)s->h.sentences;
    t->x = calloc(n, sizeof *t->x);
    t->out = calloc(n, sizeof *t->out);
    t->text = calloc(n, sizeof *t->text);
    t->ref = calloc(n, sizeof *t->ref);
    if (!t->x || !t->out || !t->text || !t->ref)
        return error_memory(err, n * sizeof *t->x, "translations");
    for (int i = 0; i < t->n; i++) {
        t->ref[i] = s->o.tgt[s->pair[i].line];
        t->x[i] = (struct sentence){
            .src = s->pair[i].src, .beam = {.width = 1, .nbest = 1}, .out = &t->out[i]};
    }
    return search_open(&t->search, s->be, s->p, &o, err);
}

/* BLEU of the greedy translations of the sentences that were measured, by the weights as they are
 * now. */
static enum heed_status bleu_now(struct translations *t, const struct study *s, double *bleu,
                                 struct heed_error *err)
{
    struct heed_score score;
    enum heed_status status = search_run(t->search, t->x, t->n, err);
    for (int i = 0; i < t->n && !status; i++) {
        size_t len;
        status =
            heed_decode(s->tokenizer, t->out[i].ids.v, t->out[i].ids.n, &t->text[i], &len, err);
    }
    if (!status)
        status = heed_bleu((const char *const *)t->text, t->ref, t->n, s->o.tokenize, &score, err);
    translations_clear(t);
    if (!status) *bleu = score.value;
    return status;
}

static enum heed_status measure_bleu(struct study *s, struct heed_error *err)
{
    struct translations t = {0};
    enum heed_status status = translations_open(&t, s, err);
    if (!status) status = bleu_now(&t, s, &s->h.bleu, err);
    for (int i = 0; i < s->h.n && !status; i++) {
        struct heed_head *h = &s->head[i];
        double without = 0;
        if (!goes_on(s, "BLEU without each head", (double)i / s->h.n)) break;
        status = mask_put(&s->mask, h->use, h->layer, h->head, err);
        if (!status) status = bleu_now(&t, s, &without, err);
        if (!status) status = mask_lift(&s->mask, err);
        if (!status) h->bleu_lost = s->h.bleu - without;
    }
    translations_release(&t);
    return status;
}

/* ---- results ---- */

/* Means of the cosines, for both halves of the matrix, and for each head the head of its layer that
 * it is most alike. */
static void finish_alike(struct study *s, enum heed_attention_use use)
{
    int n = s->h.layers[use] * s->h.heads, heads = s->h.heads;
    float *alike = (float *)s->h.alike[use];
    for (int i = 0; i < n; i++) {
        alike[(size_t)i * n + i] = 1;
        for (int j = i + 1; j < n; j++) {
            double mean =
                s->queries[use] > 0 ? s->cosines[use][(size_t)i * n + j] / s->queries[use] : 0;
            alike[(size_t)i * n + j] = alike[(size_t)j * n + i] = (float)mean;
        }
    }
    for (int i = 0; i < n; i++) {
        struct heed_head *h = &s->head[study_first_head(s, use) + i];
        for (int j = i / heads * heads; j < (i / heads + 1) * heads; j++)
            if (j != i) h->alike = fmax(h->alike, (double)alike[(size_t)i * n + j]);
    }
}

static void finish_means(struct study *s)
{
    double tokens = s->h.tokens ? (double)s->h.tokens : NAN;
    s->h.loss = s->nll / tokens;
    for (int i = 0; i < s->h.n; i++) {
        head_means(&s->head[i], &s->sums[i]);
        if (s->o.mask != HEED_MASK_NONE)
            s->head[i].loss_lost = (s->nll_without[i] - s->nll) / tokens;
    }
    for (int u = 0; u < HEED_USES; u++) finish_alike(s, (enum heed_attention_use)u);
}

static enum heed_status check_options(const struct heed_heads_options *o, struct heed_error *err)
{
    struct heed_score ignored;
    enum heed_status status = error_strings(err, "options->src", o->src, o->n);
    if (!status) status = error_strings(err, "options->tgt", o->tgt, o->n);
    if (!status && (unsigned)o->mask > HEED_MASK_BLEU)
        status =
            error_set(err, HEED_EARG, "mask is %d, expected 0 to %d", (int)o->mask, HEED_MASK_BLEU);
    if (!status && o->mask == HEED_MASK_BLEU) /* an unknown tokenizer is an error now */
        status =
            heed_bleu((const char *[]){"a"}, (const char *[]){"a"}, 1, o->tokenize, &ignored, err);
    return status;
}

enum heed_status heed_heads_of(struct heed_engine *e, const char *dir,
                               const struct heed_heads_options *o, struct heed_heads **out,
                               struct heed_error *err)
{
    if (!e || !dir || !o || !out)
        return error_null(err, !e ? "engine" : !dir ? "dir" : !o ? "options" : "out");
    enum heed_status status = check_options(o, err);
    if (status) return status;
    struct study *s = calloc(1, sizeof *s);
    if (!s) return error_memory(err, sizeof *s, "the study of heads");
    bool stopped = false;
    s->o = *o;
    status = model_open(s, e, dir, err);
    if (!status) status = read_pairs(s, err);
    if (!status) status = results_open(s, err);
    if (!status) status = study_kinds(s, err);
    if (!status) status = run_open_for(s, err);
    if (!status) status = measure(s, &stopped, err);
    if (!status) finish_means(s);
    if (!status && o->mask == HEED_MASK_BLEU && !stopped) status = measure_bleu(s, err);
    if (!status) status = study_examples(s, err);
    if (status)
        heed_heads_free(&s->h);
    else
        *out = &s->h;
    return status;
}
