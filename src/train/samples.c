/*
 * samples.c - samples.jsonl; see samples.h.
 *
 * The first sample is a short pair, whose attention is a small picture. It is the attention of the
 * reference, not of the model's translation: so its tokens are the same at every validation, and a
 * model that has not yet learned to end a sentence writes no more than another. The other samples
 * are spread over the text.
 */
#include "train/samples.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "corpus/pairs.h"
#include "decode/attention.h"
#include "decode/search.h"
#include "tokens/tokenizer.h"
#include "train/jsonl.h"

enum {
    SAMPLES = 5,
    SHORTEST = 4, /* tokens of each side of the first sample ... */
    SHORT = 12,   /* ... and most of them */
    LONG = 60,    /* most tokens of each side of the others */
    DIGITS = 3    /* of a weight of attention */
};

struct sample {
    char *source, *reference; /* NULL: the text has no such pair */
    struct heed_ids src, ref; /* their tokens, without end marks */
};

struct samples {
    struct attention_model model;
    struct search *search;
    struct jsonl file;
    struct sample sample[SAMPLES];
};

/* ---- choosing pairs ---- */

static void sample_release(struct sample *x)
{
    free(x->source);
    free(x->reference);
    free(x->src.v);
    free(x->ref.v);
    *x = (struct sample){0};
}

static enum heed_status sample_fill(struct sample *x, const struct heed_tokenizer *t,
                                    const struct pair *p, struct heed_error *err)
{
    enum heed_status st = tokenizer_well_formed(p->src, p->src_len, &x->source, err);
    if (!st) st = tokenizer_well_formed(p->tgt, p->tgt_len, &x->reference, err);
    if (!st) st = heed_encode(t, p->src, p->src_len, &x->src, err);
    if (!st) st = heed_encode(t, p->tgt, p->tgt_len, &x->ref, err);
    return st;
}

static bool has_length(const struct sample *x, size_t least, size_t most)
{
    return x->src.n >= least && x->src.n <= most && x->ref.n >= least && x->ref.n <= most;
}

/* Takes a pair as the first sample, or else as sample `place`, if one of these is missing and the
 * pair has the right length. */
static enum heed_status sample_offer(struct samples *s, int place, const struct pair *p,
                                     struct heed_error *err)
{
    struct sample *first = &s->sample[0], *other = &s->sample[place], x = {0};
    size_t longest = (size_t)search_longest(s->search);
    if (first->source && other->source) return HEED_OK;
    enum heed_status st = sample_fill(&x, s->model.tokenizer, p, err);
    bool fits = !st && has_length(&x, 1, longest < LONG ? longest : LONG);
    if (fits && !first->source && has_length(&x, SHORTEST, SHORT))
        *first = x;
    else if (fits && !other->source)
        *other = x;
    else
        sample_release(&x);
    return st;
}

/* Counts the pairs, then chooses among them. */
static enum heed_status choose(struct samples *s, const struct heed_corpus *corpus,
                               struct heed_error *err)
{
    struct pairs *pairs = NULL;
    struct pair p;
    int64_t n = 0;
    enum heed_status st = pairs_open(&pairs, corpus, err);
    for (; !st && !(st = pairs_peek(pairs, &p, err)) && p.src; n++) pairs_take(pairs);
    if (!st) pairs_rewind(pairs);
    for (int64_t i = 0; i < n && !st && !(st = pairs_peek(pairs, &p, err)) && p.src; i++) {
        st = sample_offer(s, 1 + (int)(i * (SAMPLES - 1) / n), &p, err);
        pairs_take(pairs);
    }
    pairs_free(pairs);
    return st;
}

enum heed_status samples_open(struct samples **out, const struct parameters *p,
                              const struct samples_options *o, struct heed_error *err)
{
    struct samples *s = calloc(1, sizeof *s);
    if (!s) return error_memory(err, sizeof *s, "samples");
    s->file.fd = -1;
    s->model = (struct attention_model){p->be, p, o->tokenizer};
    struct search_options so = {.bos = tokenizer_bos(o->tokenizer),
                                .eos = tokenizer_eos(o->tokenizer),
                                .rows = SAMPLES,
                                .source_rows = SAMPLES * (LONG + 1)};
    enum heed_status st = search_open(&s->search, p->be, p, &so, err);
    if (!st) st = choose(s, &o->corpus, err);
    if (!st) st = jsonl_open(&s->file, o->dir, "samples.jsonl", o->step, err);
    if (st) {
        samples_free(s);
        return st;
    }
    *out = s;
    return HEED_OK;
}

void samples_free(struct samples *s)
{
    if (!s) return;
    for (int i = 0; i < SAMPLES; i++) sample_release(&s->sample[i]);
    search_free(s->search);
    jsonl_close(&s->file);
    free(s);
}

/* ---- a line ---- */

/* Translates all samples by greedy search. out [SAMPLES], zeroed; the caller releases each. */
static enum heed_status translate(struct samples *s, struct translation *out,
                                  struct heed_error *err)
{
    struct sentence x[SAMPLES];
    int n = 0;
    for (int i = 0; i < SAMPLES; i++) {
        const struct heed_ids *src = &s->sample[i].src;
        int longest = 2 * (int)src->n + 10; /* an untrained model does not end by itself */
        if (!s->sample[i].source) continue;
        x[n++] = (struct sentence){
            .src = *src, .beam = {.width = 1, .nbest = 1}, .longest = longest, .out = &out[i]};
    }
    return search_run(s->search, x, n, err);
}

/* Adds a sample and its translation to an array. */
static enum heed_status add_text(json_t *texts, const struct samples *s, const struct sample *x,
                                 const struct heed_ids *found, struct heed_error *err)
{
    char *text = NULL, *clean = NULL;
    size_t len;
    enum heed_status st = heed_decode(s->model.tokenizer, found->v, found->n, &text, &len, err);
    if (!st) st = tokenizer_well_formed(text, len, &clean, err);
    if (!st &&
        json_array_append_new(texts, json_pack("{ss ss ss}", "source", x->source, "reference",
                                               x->reference, "translation", clean)))
        st = error_memory(err, len, s->file.path);
    free(text);
    free(clean);
    return st;
}

/* The attention of the first sample as heed_attention_picture writes it. *out stays NULL where its
 * weights are not finite. */
static enum heed_status show_attention(json_t **out, const struct samples *s,
                                       struct heed_error *err)
{
    const struct sample *x = &s->sample[0];
    struct heed_attention *a = NULL;
    struct heed_attention_view view = {0};
    int32_t id[SHORT + 1];
    char *text = NULL;
    memcpy(id, x->ref.v, x->ref.n * sizeof *id);
    id[x->ref.n] = tokenizer_eos(s->model.tokenizer);
    enum heed_status st = attention_of_ids(&a, &s->model, &x->src, id, (int)x->ref.n + 1, err);
    if (st == HEED_ENUMERIC) return HEED_OK; /* as in log.jsonl, it is not the end of a training */
    if (!st) st = heed_attention_picture(a, HEED_PICTURE_JSON, &view, &text, err);
    if (!st && !(*out = json_loads(text, 0, NULL)))
        st = error_memory(err, strlen(text), s->file.path);
    heed_attention_free(a);
    free(text);
    return st;
}

enum heed_status samples_write(struct samples *s, int64_t step, struct heed_error *err)
{
    struct translation out[SAMPLES] = {0};
    json_t *texts = json_array(), *attention = NULL;
    enum heed_status st = texts ? translate(s, out, err) : error_memory(err, 64, s->file.path);
    for (int i = 0; i < SAMPLES; i++) {
        const struct sample *x = &s->sample[i];
        if (!st && x->source) st = add_text(texts, s, x, &out[i].ids, err);
        translation_release(&out[i]);
    }
    if (!st && s->sample[0].source) st = show_attention(&attention, s, err);
    if (st) {
        json_decref(texts);
        return st;
    }
    json_t *line =
        json_pack("{sI so so*}", "step", (json_int_t)step, "texts", texts, "attention", attention);
    return jsonl_append(&s->file, line, DIGITS, err);
}
