/*
 * scores.c - how trained models translate: loss, BLEU and chrF of a test text; see training.h.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "corpus/pairs.h"
#include "paper/training.h"

enum { BLOCK = 256 }; /* sentences of a call, between which the time is looked at */

/* ---- text ---- */

static enum heed_status add_line(char ***v, size_t *cap, int n, const char *text, size_t len,
                                 struct heed_error *err)
{
    enum heed_status st = array_reserve(v, cap, (size_t)n + 1, sizeof **v, "test text", err);
    if (st) return st;
    char *copy = malloc(len + 1);
    if (!copy) return error_memory(err, len + 1, "test text");
    for (size_t i = 0; i < len; i++) copy[i] = text[i] ? text[i] : ' ';
    copy[len] = '\0';
    (*v)[n] = copy;
    return HEED_OK;
}

enum heed_status test_text_read(struct test_text *t, const struct heed_study *s,
                                struct heed_error *err)
{
    struct pairs *pairs = NULL;
    enum heed_status st = pairs_open(&pairs, s->o.test.n ? &s->o.test : &s->o.train.valid, err);
    *t = (struct test_text){0};
    while (!st) {
        struct pair p;
        st = pairs_peek(pairs, &p, err);
        if (st || !p.src) break;
        st = add_line(&t->src, &t->src_cap, t->n, p.src, p.src_len, err);
        if (!st && (st = add_line(&t->ref, &t->ref_cap, t->n, p.tgt, p.tgt_len, err)))
            free(t->src[t->n]);
        if (!st) t->n++;
        pairs_take(pairs);
    }
    pairs_free(pairs);
    if (!st && !t->n) st = error_set(err, HEED_EARG, "the test text has no lines");
    return st;
}

void test_text_release(struct test_text *t)
{
    for (int i = 0; i < t->n; i++) {
        free(t->src[i]);
        free(t->ref[i]);
    }
    free(t->src);
    free(t->ref);
}

/* ---- scores ---- */

/* Translates a block of at most BLOCK sentences; hyp[n] are malloced. */
static enum heed_status translate(struct heed_session *session, const char *const *src, int n,
                                  char **hyp, struct heed_error *err)
{
    struct heed_request request[BLOCK] = {0};
    const struct heed_answer *answer;
    for (int i = 0; i < n; i++) request[i] = (struct heed_request){.text = src[i]};
    enum heed_status st = heed_translate(session, request, n, &answer, err);
    for (int i = 0; i < n && !st; i++) {
        hyp[i] = strdup(answer[i].result->text);
        if (!hyp[i]) st = error_memory(err, answer[i].result->len, "translations");
    }
    return st;
}

/* Adds -log p of the references and their tokens. */
static enum heed_status add_nll(struct heed_session *session, const char *const *src,
                                const char *const *ref, int n, double *nll, double *tokens,
                                struct heed_error *err)
{
    struct heed_request request[BLOCK] = {0};
    const struct heed_answer *answer;
    for (int i = 0; i < n; i++) request[i] = (struct heed_request){.text = src[i], .given = ref[i]};
    enum heed_status st = heed_translate(session, request, n, &answer, err);
    for (int i = 0; i < n && !st; i++) {
        if (answer[i].status != HEED_OK) continue;
        *nll -= (double)answer[i].result->logp;
        *tokens += answer[i].result->tokens;
    }
    return st;
}

/* Sentences that are scored, and their translations. */
struct scored {
    const char **src, **ref;
    char **hyp;
    int n;
};

static enum heed_status translate_all(struct heed_study *s, struct heed_session *session,
                                      struct scored *x, double *nll, bool *done,
                                      struct heed_error *err)
{
    double sum = 0, tokens = 0;
    enum heed_status st = HEED_OK;
    for (int i = 0, n; i < x->n && !st; i += n) {
        n = x->n - i < BLOCK ? x->n - i : BLOCK;
        if (study_stopping(s)) return HEED_OK;
        st = translate(session, x->src + i, n, x->hyp + i, err);
        if (!st) st = add_nll(session, x->src + i, x->ref + i, n, &sum, &tokens, err);
    }
    *nll = tokens > 0 ? sum / tokens : NAN;
    *done = !st;
    return st;
}

enum heed_status test_score(struct heed_study *s, struct heed_session *session,
                            const struct test_text *t, const int *index, int n,
                            struct test_scores *out, bool *done, struct heed_error *err)
{
    size_t room = (size_t)n + 1;
    struct scored x = {.src = calloc(room, sizeof *x.src),
                       .ref = calloc(room, sizeof *x.ref),
                       .hyp = calloc(room, sizeof *x.hyp),
                       .n = n};
    enum heed_status st =
        x.src && x.ref && x.hyp ? HEED_OK : error_memory(err, 3 * room * sizeof *x.src, "scores");
    *done = false;
    for (int i = 0; i < n && !st; i++) {
        x.src[i] = t->src[index[i]];
        x.ref[i] = t->ref[index[i]];
    }
    if (!st) st = translate_all(s, session, &x, &out->nll, done, err);
    const char *const *hyp = (const char *const *)x.hyp;
    if (!st && *done) st = heed_bleu(hyp, x.ref, n, s->o.train.valid_tokenize, &out->bleu, err);
    if (!st && *done) st = heed_chrf(hyp, x.ref, n, &out->chrf, err);
    for (int i = 0; x.hyp && i < n; i++) free(x.hyp[i]);
    free(x.hyp);
    free(x.src);
    free(x.ref);
    return st;
}

enum heed_status training_score(struct heed_study *s, const char *dir, json_t *result, bool *done,
                                struct heed_error *err)
{
    struct test_text t = {0};
    struct test_scores x = {0};
    int *all = NULL;
    struct heed_session *session = NULL;
    struct heed_model *m = heed_model_load(s->engine, dir, HEED_WEIGHTS_AS_STORED, err);
    *done = false;
    if (!m) return err->status;
    enum heed_status st = test_text_read(&t, s, err);
    if (!st && !(session = heed_session_open(m, NULL, err))) st = err->status;
    if (!st && !(all = malloc((size_t)t.n * sizeof *all)))
        st = error_memory(err, (size_t)t.n * sizeof *all, "scores");
    for (int i = 0; i < t.n && !st; i++) all[i] = i;
    if (!st) st = test_score(s, session, &t, all, t.n, &x, done, err);
    if (!st && *done) {
        result_set(result, "test_nll", x.nll);
        result_set(result, "bleu", x.bleu.value);
        result_set(result, "chrf", x.chrf.value);
        json_object_set_new(result, "signature", json_string(x.bleu.signature));
    }
    free(all);
    heed_session_free(session);
    heed_model_free(m);
    test_text_release(&t);
    return st;
}
