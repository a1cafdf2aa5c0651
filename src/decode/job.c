/*
 * job.c - see job.h.
 */
#include "decode/job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "decode/join.h"
#include "tokens/tokenizer.h"

/* ---- sentences ---- */

static void more_free(struct job *j)
{
    for (int i = 0; i < j->outs; i++) translation_release(&j->out[i]);
    free(j->more);
    free(j->out);
    free(j->piece);
    j->more = NULL;
    j->out = NULL;
    j->piece = NULL;
    j->more_n = j->outs = 0;
}

enum heed_status job_more(struct job *j, int n, int outs, struct heed_error *err)
{
    more_free(j);
    j->more = calloc(n + 1, sizeof *j->more);
    j->out = calloc(outs + 1, sizeof *j->out);
    j->piece = calloc(n + 1, sizeof *j->piece);
    if (!j->more || !j->out || !j->piece)
        return error_memory(err, outs * sizeof *j->out, "a second search");
    j->more_n = n;
    j->outs = outs;
    return HEED_OK;
}

/* Gives the search as many sentences as can be open at once. */
static void search_fill(struct job *j)
{
    struct search *search = j->session->search;
    for (; j->added < j->asked_n; j->added++) {
        struct sentence *x = &j->asked[j->added];
        int inside = j->added - (j->asked_n - j->left);
        if (inside >= search_room(search, x->beam.width)) break;
        x->owner = j;
        search_add(search, x);
    }
}

static void search_for(struct job *j, struct sentence *x, int n)
{
    j->asked = x;
    j->asked_n = j->left = n;
    j->added = 0;
    search_fill(j);
}

void job_found(struct job *j)
{
    j->left--;
    search_fill(j);
}

/* ---- the answer ---- */

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

/* The answer, with the translations as they were found. */
static enum heed_status answer(struct job *j, struct heed_error *err)
{
    struct pieces *p = &j->p;
    struct heed_error why = {0};
    enum heed_status status = HEED_OK;
    for (int i = 0; i < p->n && !why.status; i++)
        check_found(&p->sentence[i], p->request->given, &why);
    if (why.status) status = pieces_refuse(p, &why, err);
    j->result = calloc(p->nbest, sizeof *j->result);
    j->answer.result = j->result;
    if (!j->result) return error_memory(err, p->nbest * sizeof *j->result, "translations");
    if (!status) status = text_join(p, j->session->m->tokenizer, j->result, &j->answer.n, err);
    if (status) return status;
    if (!p->refused) {
        bool one = p->n == 1;
        j->answer.beam = one ? p->sentence->out->beam : NULL;
        j->answer.beams = one ? p->sentence->out->beams : 0;
        return HEED_OK;
    }
    j->answer.status = p->refused->status;
    j->answer.why = strdup(p->refused->text);
    return j->answer.why ? HEED_OK : error_memory(err, strlen(p->refused->text) + 1, "an answer");
}

static void result_release(struct heed_result *r)
{
    free((char *)r->text);
    free((int32_t *)r->id);
    free((float *)r->token_logp);
    free((struct heed_alignment *)r->alignment);
    strings_release(&(struct strings){(char **)r->copied, r->copied_n});
    strings_release(&(struct strings){(char **)r->left_out, r->left_out_n});
}

/* ---- stages ---- */

enum heed_status job_open(struct job **out, struct heed_session *s,
                          const struct heed_request *request, struct heed_error *err)
{
    struct job *j = calloc(1, sizeof *j);
    if (!j) return error_memory(err, sizeof *j, "a request");
    j->session = s;
    j->end = tokenizer_eos(s->m->tokenizer);
    enum heed_status status =
        pieces_fill(&j->p, s->m->tokenizer, s->m->p->config.max_length, request, err);
    if (status) {
        job_free(j);
        return status;
    }
    search_for(j, j->p.sentence, j->p.n);
    *out = j;
    return HEED_OK;
}

/* Ends the stage that the job is in. */
static enum heed_status stage_end(struct job *j, struct heed_error *err)
{
    if (j->stage == STAGE_MEND) {
        mend_end(j);
        return answer(j, err);
    }
    return j->stage == STAGE_LINK ? links_end(j, err) : HEED_OK;
}

enum heed_status job_next(struct job *j, struct heed_error *err)
{
    enum heed_status status = HEED_OK;
    while (!j->left && !j->done && !status) {
        status = stage_end(j, err);
        if (status) break;
        if (j->stage == STAGE_LINK) {
            more_free(j);
            j->done = true;
            break;
        }
        j->stage++;
        status = j->stage == STAGE_MEND ? mend_begin(j, err) : links_begin(j, err);
        if (!status) search_for(j, j->more, j->more_n);
    }
    return status;
}

/* The first piece that is not finished lends its hypothesis to text_so_far as its translation. In
 * later stages all pieces are finished. */
enum heed_status job_so_far(struct job *j, char **out, struct heed_error *err)
{
    struct pieces *p = &j->p;
    int n = 0;
    while (n < p->n && p->sentence[n].out->ids.v) n++;
    if (n == p->n) return text_so_far(p, j->session->m->tokenizer, n, out, err);
    struct heed_ids *ids = &p->sentence[n].out->ids;
    *ids = search_so_far(j->session->search, &p->sentence[n]);
    enum heed_status status = text_so_far(p, j->session->m->tokenizer, n + (ids->n > 0), out, err);
    *ids = (struct heed_ids){0};
    return status;
}

void job_free(struct job *j)
{
    if (!j) return;
    for (int i = 0; i < j->added && j->left; i++) search_drop(j->session->search, &j->asked[i]);
    for (int i = 0; i < j->p.nbest && j->result; i++) result_release(&j->result[i]);
    free(j->result);
    free((char *)j->answer.why);
    more_free(j);
    pieces_release(&j->p);
    free(j);
}
