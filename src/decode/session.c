/*
 * session.c - heed.h's session: text in, text out.
 */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "decode/align.h"
#include "decode/faults.h"
#include "decode/restore.h"
#include "decode/session.h"
#include "ops/engine.h"
#include "tokens/tokenizer.h"

struct heed_translate_options heed_translate_defaults(void)
{
    return (struct heed_translate_options){.beam = 4, .nbest = 1, .length_penalty = 0.6f};
}

/* longest: tokens that the model takes */
static enum heed_status check_options(const struct heed_translate_options *o, int longest,
                                      struct heed_error *err)
{
    enum { BATCH_TOKENS_MAX = 1000000 };
    if (o->beam < 1 || o->beam > BEAM_MAX)
        return error_set(err, HEED_EARG, "beam is %d, expected 1 to %d", o->beam, BEAM_MAX);
    if (o->nbest < 1 || o->nbest > o->beam)
        return error_set(err, HEED_EARG, "nbest is %d, expected 1 to the beam of %d", o->nbest,
                         o->beam);
    if (!(o->length_penalty >= 0 && o->length_penalty <= 10))
        return error_set(err, HEED_EARG, "length penalty is %g, expected 0 to 10",
                         (double)o->length_penalty);
    if (!(o->temperature >= 0 && o->temperature <= 100) || o->top_k < 0 ||
        o->top_k > BEAM_SAMPLED || !(o->top_p >= 0 && o->top_p <= 1))
        return error_set(err, HEED_EARG,
                         "temperature, top-k and top-p are %g, %d and %g, expected 0 to 100, 0 to "
                         "%d and 0 to 1",
                         (double)o->temperature, o->top_k, (double)o->top_p, BEAM_SAMPLED);
    if (o->max_length < 0 || o->no_repeat_ngram < 0)
        return error_set(err, HEED_EARG,
                         "max length and no-repeat n-gram are %d and %d, expected at least 0",
                         o->max_length, o->no_repeat_ngram);
    if (o->batch_tokens < 0 || o->batch_tokens > BATCH_TOKENS_MAX)
        return error_set(err, HEED_EARG, "batch tokens are %d, expected 0 to %d", o->batch_tokens,
                         BATCH_TOKENS_MAX);
    int most = o->max_length && o->max_length < longest ? o->max_length : longest;
    if (o->min_length < 0 || o->min_length >= most)
        return error_set(err, HEED_EARG,
                         "min length is %d, expected at least 0 and less than the max length of %d",
                         o->min_length, most);
    return HEED_OK;
}

static enum heed_status session_open(struct heed_session *s, struct heed_error *err)
{
    const struct heed_translate_options *o = &s->o;
    const struct heed_tokenizer *t = s->m->tokenizer;
    struct search_options so = {.bos = tokenizer_bos(t),
                                .longest = o->max_length,
                                .batch_tokens = o->batch_tokens,
                                .watched = o->align || !tokenizer_knows_bytes(t),
                                .beam = {.width = o->beam,
                                         .nbest = o->nbest,
                                         .length_penalty = o->length_penalty,
                                         .min_length = o->min_length,
                                         .no_repeat = o->no_repeat_ngram,
                                         .temperature = o->temperature,
                                         .top_k = o->top_k,
                                         .top_p = o->top_p,
                                         .seed = o->seed,
                                         .eos = tokenizer_eos(t)}};
    enum heed_status status = check_options(o, s->m->p->config.max_length, err);
    if (!status && o->to) status = tokenizer_tag(t, o->to, &s->tag, err);
    if (!status && (int)s->tag.n >= s->m->p->config.max_length - 1)
        status = error_set(err, HEED_EARG, "the model takes %d tokens, expected more than a tag's",
                           s->m->p->config.max_length - 1);
    if (!status) status = engine_fork(s->m->engine, &s->be, err);
    return status ? status : search_open(&s->search, s->be, s->m->p, &so, err);
}

struct heed_session *heed_session_open(const struct heed_model *m,
                                       const struct heed_translate_options *o,
                                       struct heed_error *err)
{
    if (!m) {
        error_null(err, "model");
        return NULL;
    }
    struct heed_session *s = calloc(1, sizeof *s);
    if (!s) {
        error_memory(err, sizeof *s, "a session");
        return NULL;
    }
    s->m = m;
    s->o = o ? *o : heed_translate_defaults();
    if (session_open(s, err)) {
        heed_session_free(s);
        return NULL;
    }
    return s;
}

static void results_free(struct heed_session *s)
{
    for (size_t i = 0; i < s->results; i++) {
        free((char *)s->result[i].text);
        free((char *)s->result[i].why);
        free((int32_t *)s->result[i].id);
        free((float *)s->result[i].token_logp);
        free((struct heed_alignment *)s->result[i].alignment);
        texts_release(&(struct texts){(char **)s->result[i].copied, s->result[i].copied_n});
        texts_release(&(struct texts){(char **)s->result[i].left_out, s->result[i].left_out_n});
    }
    free(s->result);
    s->result = NULL;
    s->results = 0;
}

void heed_session_free(struct heed_session *s)
{
    if (!s) return;
    results_free(s);
    search_free(s->search);
    free(s->tag.v);
    if (s->be) s->be->op->close(s->be);
    free(s);
}

/* ---- translations that went wrong ---- */

/* Of piece i, whose source is looked at without its tag. */
static unsigned flags_of(const struct pieces *p, int i, const struct translation *t)
{
    struct heed_ids src = {p->src[i].v + p->tag_n, p->src[i].n - p->tag_n, 0};
    return faults_of(&src, t);
}

/* A second try of piece i is kept when it mends what was wrong. */
static void take_better(struct pieces *p, int i, struct translation *again)
{
    struct translation *first = &p->out[(size_t)i * p->nbest];
    unsigned flags = flags_of(p, i, &again[0]);
    bool mended = !(flags & FAULTS_TO_MEND);
    for (int k = 0; k < p->nbest && mended; k++) {
        struct translation swap = first[k];
        first[k] = again[k];
        again[k] = swap;
    }
    p->flags[i] = (mended ? flags : p->flags[i]) | HEED_FLAG_RETRIED;
}

/* The pieces which[..n) once more, without any n-gram twice. */
static enum heed_status retry(struct heed_session *s, struct pieces *p, const int *which, int n,
                              struct heed_error *err)
{
    enum { GUARD = 3 };
    struct heed_ids *src = malloc((n + 1) * sizeof *src);
    struct beam_wish *wish = malloc((n + 1) * sizeof *wish);
    struct translation *again = calloc((size_t)n * p->nbest + 1, sizeof *again);
    enum heed_status status = HEED_OK;
    if (!src || !wish || !again)
        status = error_memory(err, (size_t)n * p->nbest * sizeof *again, "a second try");
    for (int i = 0; i < n && !status; i++) src[i] = p->src[which[i]], wish[i] = p->wish[which[i]];
    search_no_repeat(s->search, GUARD);
    if (!status) status = search_run(s->search, src, wish, n, again, err);
    search_no_repeat(s->search, s->o.no_repeat_ngram);
    for (int i = 0; i < n && !status; i++) take_better(p, which[i], again + (size_t)i * p->nbest);
    for (int i = 0; again && i < n * p->nbest; i++) translation_release(&again[i]);
    free(src);
    free(wish);
    free(again);
    return status;
}

/* Looks at what was found for every piece; loops and outputs without an end get another try. */
static enum heed_status look(struct heed_session *s, struct pieces *p, struct heed_error *err)
{
    int *bad = malloc((p->n + 1) * sizeof *bad), n = 0;
    if (!bad) return error_memory(err, p->n * sizeof *bad, "the flags of translations");
    for (int i = 0; i < p->n; i++) {
        if (!p->src[i].n || p->out[(size_t)i * p->nbest].broken) continue;
        p->flags[i] = flags_of(p, i, &p->out[(size_t)i * p->nbest]);
        if (p->flags[i] & FAULTS_TO_MEND) bad[n++] = i;
    }
    bool again = n && !p->whole && !s->o.no_repeat_ngram;
    enum heed_status status = again ? retry(s, p, bad, n, err) : HEED_OK;
    free(bad);
    return status;
}

/* Why piece i has no translation, or none whose scores are numbers; HEED_OK where it has. Scores
 * stay so far from the largest float that sums over pieces are finite too. */
static enum heed_status check_found(const struct pieces *p, int i, struct heed_error *why)
{
    const double most = 1e30;
    const struct translation *x = &p->out[(size_t)i * p->nbest];
    bool finite = !x->broken, found = x->ids.v;
    if (!p->src[i].n && !p->wish[i].prefix.n) return HEED_OK; /* there was nothing to search for */
    for (int k = 0; k < p->nbest; k++) finite = finite && fabs(x[k].logp) < most;
    if (!finite || (!found && p->whole))
        return error_set(why, HEED_ENUMERIC,
                         "the model gives it no score that is a finite number: its weights are "
                         "damaged or far too large");
    return found ? HEED_OK
                 : error_set(why, HEED_EARG,
                             "nothing is left to say: every token is banned, comes too early or "
                             "repeats what may not be repeated");
}

static enum heed_status refuse_unfound(struct pieces *p, struct heed_error *err)
{
    for (int i = 0; i < p->texts; i++) {
        struct heed_error why = {0};
        int first, last;
        pieces_of(p, i, &first, &last);
        for (int k = first; k < last && !why.status; k++) check_found(p, k, &why);
        enum heed_status status = why.status ? pieces_refuse(p, i, &why, err) : HEED_OK;
        if (status) return status;
    }
    return HEED_OK;
}

/* What is required cannot be drawn. */
static enum heed_status refuse_required(const struct heed_session *s, struct pieces *p,
                                        const struct heed_wish *wish, struct heed_error *err)
{
    struct heed_error why;
    enum heed_status status = HEED_OK;
    if (s->o.temperature <= 0) return HEED_OK;
    error_set(&why, HEED_EARG,
              "temperature is %g, expected 0: what is required can only be searched for",
              (double)s->o.temperature);
    for (int i = 0; i < p->texts && !status; i++)
        if (wish[i].required_n) status = pieces_refuse(p, i, &why, err);
    return status;
}

/* ---- alignment ---- */

/* The mean over the heads, for the tokens and sources of a translation without their end marks. */
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

/* The layer that tells best where words come from: the last but one (Garg et al. 2019). */
static int telling_layer(const struct heed_config *c)
{
    return c->decoder_layers > 1 ? c->decoder_layers - 2 : 0;
}

/* What the tokens of translation `rank` of the pieces which[..n) attended to: they are given to the
 * search once more. */
static enum heed_status watch(struct heed_session *s, const struct pieces *p, int rank,
                              const int *which, int n, float **attention, struct heed_error *err)
{
    const struct heed_config *c = &s->m->p->config;
    int32_t end = tokenizer_eos(s->m->tokenizer);
    struct heed_ids *src = malloc((size_t)n * sizeof *src);
    struct beam_wish *wish = calloc(n, sizeof *wish);
    struct translation *out = calloc((size_t)n * p->nbest, sizeof *out);
    enum heed_status status = HEED_OK;
    if (!src || !wish || !out)
        status = error_memory(err, n * p->nbest * sizeof *out, "an alignment");
    for (int i = 0; i < n && !status; i++) {
        struct heed_ids ids = p->out[(size_t)which[i] * p->nbest + rank].ids;
        if (!ids.v) ids.v = &end;
        ids.v[ids.n++] = end; /* translations have room for it */
        if (ids.n > (size_t)c->max_length) ids.n = c->max_length;
        wish[i].prefix = ids;
        src[i] = p->src[which[i]];
    }
    search_watch(s->search, telling_layer(c));
    if (!status) status = search_run(s->search, src, wish, n, out, err);
    search_watch(s->search, -1);
    for (int i = 0; i < n && !status; i++) {
        attention[which[i]] =
            mean_attention(&out[(size_t)i * p->nbest],
                           p->out[(size_t)which[i] * p->nbest + rank].ids.n, src[i].n, c->heads);
        if (!attention[which[i]]) status = error_memory(err, c->max_length, "an alignment");
    }
    for (int i = 0; out && i < n * p->nbest; i++) translation_release(&out[i]);
    free(src);
    free(wish);
    free(out);
    return status;
}

/* Whether the words of a translation are linked to those of its text: for the caller, or to find
 * where what was not read goes. */
static bool is_linked(const struct heed_session *s, const struct pieces *p, int text, int rank)
{
    const struct spelling *x = &p->spelling[text];
    return s->result[(size_t)text * p->nbest + rank].text && !p->refused[text] &&
           ((s->o.align && rank == 0) || (x->n && !p->whole && restore_needs_alignment(x)));
}

/* Piece by piece in blocks, so that memory stays small. */
static enum heed_status watch_linked(struct heed_session *s, const struct pieces *p, int rank,
                                     float **attention, struct heed_error *err)
{
    enum { BLOCK = 64 };
    int which[BLOCK], n = 0;
    enum heed_status status = HEED_OK;
    for (int i = 0; i < p->texts && !status; i++) {
        int first, last;
        if (!is_linked(s, p, i, rank)) continue;
        pieces_of(p, i, &first, &last);
        for (int k = first; k < last && !status; k++) {
            which[n++] = k;
            if (n < BLOCK) continue;
            status = watch(s, p, rank, which, n, attention, err);
            n = 0;
        }
    }
    return n && !status ? watch(s, p, rank, which, n, attention, err) : status;
}

/* What was not read of a text goes into its translation r, and a, the alignment of what was, gives
 * way to that of the whole. Of a translation that was given nothing is changed but what is told. */
static enum heed_status restore(const struct heed_session *s, const struct pieces *p, int text,
                                int rank, struct heed_result *r, struct heed_alignment **a,
                                struct heed_error *err)
{
    const struct spelling *x = &p->spelling[text];
    struct heed_alignment *whole = NULL;
    struct restore_options o = {.wish = p->asked ? &p->asked[text] : NULL, .nothing = p->whole};
    enum heed_status status = HEED_OK;
    if (x->text) {
        bool told = *a && s->o.align && rank == 0 && !x->mended;
        status = restore_text(r, x, *a, o, told ? &whole : NULL, err);
        free(*a);
        *a = whole;
    }
    return status ? status : restore_given(r, &p->given[text], err);
}

/* Translation `rank` of every text: what was not read of it, and which words come from which. */
static enum heed_status finish(struct heed_session *s, const struct pieces *p, int rank,
                               float **attention, struct heed_error *err)
{
    enum heed_status status = watch_linked(s, p, rank, attention, err);
    for (int i = 0; i < p->texts && !status; i++) {
        struct heed_result *r = &s->result[(size_t)i * p->nbest + rank];
        struct heed_alignment *a = NULL;
        if (!r->text || p->refused[i]) continue;
        if (is_linked(s, p, i, rank))
            status = align_text(&a, p, s->m->tokenizer, i, rank, attention, r, err);
        if (!status) status = restore(s, p, i, rank, r, &a, err);
        r->alignment = a;
    }
    return status;
}

static enum heed_status finish_all(struct heed_session *s, const struct pieces *p,
                                   struct heed_error *err)
{
    float **attention = calloc(p->n + 1, sizeof *attention);
    if (!attention) return error_memory(err, p->n * sizeof *attention, "alignments");
    enum heed_status status = HEED_OK;
    for (int rank = 0; rank < p->nbest && !status; rank++) {
        status = finish(s, p, rank, attention, err);
        for (int i = 0; i < p->n; i++) {
            free(attention[i]);
            attention[i] = NULL;
        }
    }
    free(attention);
    return status;
}

/* ---- translation ---- */

static enum heed_status translate(struct heed_session *s, const char *const *src,
                                  const struct heed_wish *wish, bool whole, int n,
                                  const struct heed_result **out, struct heed_error *err)
{
    const struct heed_tokenizer *t = s->m->tokenizer;
    int nbest = s->o.nbest;
    struct pieces p = {0};
    int longest = s->m->p->config.max_length;
    struct pieces_options po = {
        .longest = search_longest(s->search), .nbest = nbest, .whole = whole, .tag = s->tag};
    if (s->o.max_length && !whole && s->o.max_length < longest) longest = s->o.max_length;
    results_free(s);
    enum heed_status status = pieces_fill(&p, t, &po, src, n, err);
    if (!status && wish) status = pieces_wish(&p, t, longest, wish, err);
    if (!status && wish) status = refuse_required(s, &p, wish, err);
    if (!status) status = search_run(s->search, p.src, p.wish, p.n, p.out, err);
    if (!status) status = look(s, &p, err);
    if (!status) status = refuse_unfound(&p, err);
    if (!status && !(s->result = calloc((size_t)n * nbest + 1, sizeof *s->result)))
        status = error_memory(err, n * sizeof *s->result, "translations");
    if (!status) s->results = (size_t)n * nbest;
    for (int i = 0; i < n && !status; i++)
        for (int k = 0; k < nbest && !status; k++)
            status = pieces_join(&p, t, i, k, &s->result[(size_t)i * nbest + k], err);
    if (!status) status = finish_all(s, &p, err);
    pieces_release(&p);
    if (!status) *out = s->result;
    return status;
}

/* Arguments that no session could take. The number of results is an int's, since they are counted
 * by ints. */
static enum heed_status check_call(const struct heed_session *s, const char *const *src, int n,
                                   const void *out, struct heed_error *err)
{
    if (!s) return error_null(err, "session");
    if (!out) return error_null(err, "out");
    if (n > INT_MAX / s->o.nbest)
        return error_set(err, HEED_EARG,
                         "src has %d texts, expected at most %d with %d results for each", n,
                         INT_MAX / s->o.nbest, s->o.nbest);
    return error_strings(err, "src", src, n);
}

enum heed_status heed_translate(struct heed_session *s, const char *const *src, int n,
                                const struct heed_result **out, struct heed_error *err)
{
    enum heed_status status = check_call(s, src, n, out, err);
    return status ? status : translate(s, src, NULL, false, n, out, err);
}

enum heed_status heed_translate_with(struct heed_session *s, const char *const *src,
                                     const struct heed_wish *wish, int n,
                                     const struct heed_result **out, struct heed_error *err)
{
    enum heed_status status = check_call(s, src, n, out, err);
    return status ? status : translate(s, src, wish, false, n, out, err);
}

enum heed_status heed_rescore(struct heed_session *s, const char *const *src,
                              const char *const *tgt, int n, const struct heed_result **out,
                              struct heed_error *err)
{
    enum heed_status status = check_call(s, src, n, out, err);
    if (!status) status = error_strings(err, "tgt", tgt, n);
    if (status) return status;
    struct heed_wish *wish = calloc((size_t)n + 1, sizeof *wish);
    if (!wish) return error_memory(err, n * sizeof *wish, "translations to be scored");
    for (int i = 0; i < n; i++) wish[i].prefix = tgt[i];
    status = translate(s, src, wish, true, n, out, err);
    free(wish);
    return status;
}

/* ---- attention of every layer and head ---- */

static struct heed_attention *attention_make(const struct heed_config *c,
                                             const struct heed_tokenizer *t,
                                             const struct heed_ids *src, const struct heed_ids *tgt,
                                             struct heed_error *err)
{
    int sources = (int)src->n + 1, targets = (int)tgt->n;
    size_t weights = (size_t)c->decoder_layers * c->heads * targets * sources;
    size_t bytes = sizeof(struct heed_attention) + (sources + targets) * sizeof(char *) +
                   weights * sizeof(float);
    struct heed_attention *a = malloc(bytes);
    if (!a) {
        error_memory(err, bytes, "the attention of a translation");
        return NULL;
    }
    const char **piece = (const char **)(a + 1);
    *a = (struct heed_attention){.layers = c->decoder_layers,
                                 .heads = c->heads,
                                 .telling = telling_layer(c),
                                 .targets = targets,
                                 .sources = sources,
                                 .target = piece,
                                 .source = piece + targets,
                                 .weight = (float *)(piece + targets + sources)};
    for (int i = 0; i < targets; i++) piece[i] = heed_tokenizer_piece(t, tgt->v[i]);
    for (int i = 0; i < sources; i++)
        piece[targets + i] =
            heed_tokenizer_piece(t, i < (int)src->n ? src->v[i] : tokenizer_eos(t));
    return a;
}

/* The translation is given to the search once more for each layer. */
static enum heed_status attention_fill(struct heed_session *s, struct heed_attention *a,
                                       const struct heed_ids *src, const struct heed_ids *tgt,
                                       struct heed_error *err)
{
    struct beam_wish wish = {.prefix = *tgt};
    size_t row = a->sources, map = row * a->targets;
    float *to = (float *)a->weight;
    enum heed_status status = HEED_OK;
    for (int l = 0; l < a->layers && !status; l++) {
        struct translation out[BEAM_MAX] = {0};
        search_watch(s->search, l);
        status = search_run(s->search, src, &wish, 1, out, err);
        search_watch(s->search, -1);
        if (!status && !out[0].attention)
            status =
                error_set(err, HEED_ENUMERIC, "the model gives the translation no probability");
        for (int i = 0; i < a->targets && !status; i++)
            for (int h = 0; h < a->heads; h++)
                memcpy(to + h * map + i * row, out[0].attention + ((size_t)i * a->heads + h) * row,
                       row * sizeof *to);
        to += a->heads * map;
        for (int i = 0; i < s->o.nbest; i++) translation_release(&out[i]);
    }
    return status;
}

enum heed_status heed_attention_of(struct heed_session *s, const char *src, const char *tgt,
                                   struct heed_attention **out, struct heed_error *err)
{
    enum heed_status status = check_call(s, &src, 1, out, err);
    if (status) return status;
    const struct heed_tokenizer *t = s->m->tokenizer;
    const struct heed_result *r;
    struct pieces p = {0};
    struct pieces_options po = {
        .longest = search_longest(s->search), .nbest = 1, .whole = tgt, .tag = s->tag};
    struct heed_attention *a = NULL;
    if (!s->o.align)
        return error_set(err, HEED_EARG, "attention needs a session that was opened with align");
    status = pieces_fill(&p, t, &po, &src, 1, err);
    if (!status && p.ids.n == 0 && p.spelling[0].n)
        status = error_set(err, HEED_EARG, "the vocabulary cannot spell any of the text");
    if (!status && p.n != 1)
        status = p.n ? error_set(err, HEED_EARG,
                                 "the text is translated in %d pieces, expected one", p.n)
                     : error_set(err, HEED_EARG, "the text is empty");
    if (!status)
        status =
            tgt ? heed_rescore(s, &src, &tgt, 1, &r, err) : heed_translate(s, &src, 1, &r, err);
    if (!status && r->status) status = error_set(err, r->status, "%s", r->why);
    if (!status) {
        struct heed_ids ids = {(int32_t *)r->id, (size_t)r->tokens, 0};
        a = attention_make(&s->m->p->config, t, &p.src[0], &ids, err);
        status = a ? attention_fill(s, a, &p.src[0], &ids, err) : HEED_ENOMEM;
    }
    pieces_release(&p);
    if (status)
        heed_attention_free(a);
    else
        *out = a;
    return status;
}

void heed_attention_free(struct heed_attention *a)
{
    free(a);
}
