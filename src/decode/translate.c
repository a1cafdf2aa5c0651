/*
 * translate.c - heed_translate: texts to pieces, search, a second search for what went wrong,
 * pieces to texts.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "decode/faults.h"
#include "decode/join.h"
#include "decode/session.h"

/* ---- translations that went wrong ---- */

/* What is wrong with a translation of a sentence whose source begins with `tag` tokens. */
static unsigned flags_of(const struct sentence *x, const struct translation *t, size_t tag)
{
    struct heed_ids src = {x->src.v + tag, x->src.n - tag, 0};
    return faults_of(&src, t);
}

/* Keeps the translations of the second search for piece i if they mend what was wrong. */
static void take_better(struct pieces *p, int i, size_t tag, struct translation *again)
{
    const struct sentence *x = &p->sentence[i];
    unsigned flags = flags_of(x, again, tag);
    bool mended = !(flags & FAULTS_TO_MEND);
    for (int k = 0; k < x->beam.nbest && mended; k++) {
        struct translation swap = x->out[k];
        x->out[k] = again[k];
        again[k] = swap;
    }
    p->flags[i] = (mended ? flags : p->flags[i]) | HEED_FLAG_RETRIED;
}

/* A piece that is searched for a second time. */
struct retry {
    int piece;
    size_t tag; /* tokens of its tag */
};

/* Searches for n pieces once more, where no n-gram may come twice. */
static enum heed_status retry(struct heed_session *s, struct pieces *p, const struct retry *which,
                              int n, struct heed_error *err)
{
    enum { NO_REPEAT = 3 };
    size_t outs = 0;
    for (int i = 0; i < n; i++) outs += p->sentence[which[i].piece].beam.nbest;
    struct sentence *x = malloc((n + 1) * sizeof *x);
    struct translation *out = calloc(outs + 1, sizeof *out), *at = out;
    enum heed_status status =
        x && out ? HEED_OK : error_memory(err, outs * sizeof *out, "a second search");
    for (int i = 0; i < n && !status; i++, at += x[i - 1].beam.nbest) {
        x[i] = p->sentence[which[i].piece];
        x[i].beam.no_repeat = NO_REPEAT;
        x[i].out = at;
    }
    if (!status) status = search_run(s->search, x, n, err);
    for (int i = 0; i < n && !status; i++) take_better(p, which[i].piece, which[i].tag, x[i].out);
    for (size_t i = 0; out && i < outs; i++) translation_release(&out[i]);
    free(x);
    free(out);
    return status;
}

/* Looks for faults in the best translation of every piece; loops and outputs without an end are
 * searched for a second time, unless the options forbid repeats already. */
static enum heed_status mend(struct heed_session *s, struct pieces *p, struct heed_error *err)
{
    struct retry *bad = malloc((p->n + 1) * sizeof *bad);
    if (!bad) return error_memory(err, p->n * sizeof *bad, "the flags of translations");
    int n = 0;
    for (int i = 0; i < p->texts; i++) {
        const struct text *x = &p->text[i];
        int first, last;
        pieces_of(p, i, &first, &last);
        for (int k = first; k < last; k++) {
            const struct sentence *y = &p->sentence[k];
            if (!y->src.n || y->out->broken) continue;
            p->flags[k] = flags_of(y, y->out, x->tag.n);
            if ((p->flags[k] & FAULTS_TO_MEND) && !x->request->given && !x->o.no_repeat_ngram)
                bad[n++] = (struct retry){k, x->tag.n};
        }
    }
    enum heed_status status = n ? retry(s, p, bad, n, err) : HEED_OK;
    free(bad);
    return status;
}

/* HEED_OK, or why a sentence has no translation, or none whose scores are finite. The limit on
 * scores keeps sums over the sentences of a text finite too. */
static enum heed_status check_found(const struct sentence *x, bool given, struct heed_error *why)
{
    const double most = 1e30;
    bool finite = !x->out->broken, found = x->out->ids.v;
    if (!x->src.n && !x->must.prefix.n) return HEED_OK; /* there was nothing to search for */
    for (int k = 0; k < x->beam.nbest; k++) finite = finite && fabs(x->out[k].logp) < most;
    if (!finite || (!found && given))
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
        for (int k = first; k < last && !why.status; k++)
            check_found(&p->sentence[k], p->text[i].request->given, &why);
        enum heed_status status = why.status ? pieces_refuse(p, i, &why, err) : HEED_OK;
        if (status) return status;
    }
    return HEED_OK;
}

/* ---- answers ---- */

static enum heed_status answers_open(struct heed_session *s, struct pieces *p,
                                     struct heed_error *err)
{
    size_t n = 0;
    for (int i = 0; i < p->texts; i++) n += p->text[i].nbest;
    s->answer = calloc((size_t)p->texts + 1, sizeof *s->answer);
    s->result = s->answer ? calloc(n + 1, sizeof *s->result) : NULL;
    if (!s->result) return error_memory(err, n * sizeof *s->result, "translations");
    s->answers = p->texts;
    s->results = n;
    struct heed_result *at = s->result;
    for (int i = 0; i < p->texts; i++) {
        s->answer[i].result = p->text[i].result = at;
        at += p->text[i].nbest;
    }
    return HEED_OK;
}

/* The answer to a text, with its translations as they were found. */
static enum heed_status answer(struct heed_session *s, const struct pieces *p, int text,
                               struct heed_error *err)
{
    const struct heed_error *refused = p->text[text].refused;
    struct heed_answer *a = &s->answer[text];
    enum heed_status status = text_join(p, s->m->tokenizer, text, &a->n, err);
    if (!refused || status) return status;
    a->status = refused->status;
    a->why = strdup(refused->text);
    return a->why ? HEED_OK : error_memory(err, strlen(refused->text) + 1, "an answer");
}

static enum heed_status translate(struct heed_session *s, struct pieces *p,
                                  const struct heed_request *request, int n, struct heed_error *err)
{
    enum heed_status status =
        pieces_fill(p, s->m->tokenizer, s->m->p->config.max_length, request, n, err);
    if (!status) status = search_run(s->search, p->sentence, p->n, err);
    if (!status) status = mend(s, p, err);
    if (!status) status = refuse_unfound(p, err);
    if (!status) status = answers_open(s, p, err);
    for (int i = 0; i < n && !status; i++) status = answer(s, p, i, err);
    return status ? status : finish(s, p, err);
}

enum heed_status heed_translate(struct heed_session *s, const struct heed_request *request, int n,
                                const struct heed_answer **out, struct heed_error *err)
{
    struct pieces p = {0};
    if (!s) return error_null(err, "session");
    if (!out) return error_null(err, "out");
    if (n < 0) return error_set(err, HEED_EARG, "there are %d requests, expected at least 0", n);
    if (n && !request) return error_null(err, "request");
    for (int i = 0; i < n; i++)
        if (!request[i].text) return error_set(err, HEED_EARG, "request[%d].text is NULL", i);
    session_forget(s);
    enum heed_status status = translate(s, &p, request, n, err);
    pieces_release(&p);
    if (!status) *out = s->answer;
    return status;
}
