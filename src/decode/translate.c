/*
 * translate.c - requests to a session: submitted one by one, or all those of a call.
 */
#include <stdlib.h>

#include "base/error.h"
#include "decode/job.h"

/* ---- lists of jobs ---- */

static void put(struct jobs *l, struct job *j)
{
    j->before = l->last;
    j->next = NULL;
    *(l->last ? &l->last->next : &l->first) = j;
    l->last = j;
}

static void take_out(struct jobs *l, struct job *j)
{
    *(j->before ? &j->before->next : &l->first) = j->next;
    *(j->next ? &j->next->before : &l->last) = j->before;
}

/* Frees the jobs of a list, whose sentences the search has forgotten. */
static void free_all(struct jobs *l)
{
    for (struct job *j = l->first, *next; j; j = next) {
        next = j->next;
        j->left = 0;
        job_free(j);
    }
    *l = (struct jobs){0};
}

/* Frees what the last call of heed_translate returned. */
static void forget_call(struct heed_session *s)
{
    for (int i = 0; i < s->calls; i++) job_free(s->call[i]);
    free(s->call);
    free(s->answer);
    s->call = NULL;
    s->answer = NULL;
    s->calls = s->calls_left = 0;
}

void session_forget(struct heed_session *s)
{
    free_all(&s->running);
    free_all(&s->done);
    job_free(s->taken);
    s->taken = NULL;
    free(s->partial);
    s->partial = NULL;
    forget_call(s);
}

/* After a failure: takes back all that is under way. Returns the status. */
static enum heed_status give_up(struct heed_session *s, enum heed_status status)
{
    search_drop_all(s->search);
    for (int i = 0; i < s->calls; i++)
        if (s->call[i] && !s->call[i]->done) s->call[i] = NULL; /* `running` has it */
    free_all(&s->running);
    return status;
}

/* ---- one by one ---- */

static enum heed_status check_request(const struct heed_session *s,
                                      const struct heed_request *request, struct heed_error *err)
{
    if (!s) return error_null(err, "session");
    if (!request) return error_null(err, "request");
    return request->text ? HEED_OK : error_null(err, "request->text");
}

/* A job moves on where the search has finished all sentences of its stage. */
static enum heed_status move_on(struct heed_session *s, struct job *j, struct heed_error *err)
{
    enum heed_status status = j->left ? HEED_OK : job_next(j, err);
    if (!j->done) return status;
    take_out(&s->running, j);
    if (j->in_call)
        s->calls_left--;
    else
        put(&s->done, j);
    return status;
}

static enum heed_status begin(struct heed_session *s, const struct heed_request *request,
                              struct job **out, struct heed_error *err)
{
    enum heed_status status = job_open(out, s, request, err);
    if (!status) put(&s->running, *out);
    return status;
}

enum heed_status heed_submit(struct heed_session *s, const struct heed_request *request,
                             const void *user, struct heed_error *err)
{
    struct job *j;
    enum heed_status status = check_request(s, request, err);
    if (!status) status = begin(s, request, &j, err);
    if (status) return status;
    j->user = user;
    status = move_on(s, j, err);
    return status ? give_up(s, status) : HEED_OK;
}

enum heed_status heed_advance(struct heed_session *s, struct heed_error *err)
{
    if (!s) return error_null(err, "session");
    enum heed_status status = search_advance(s->search, err);
    for (struct sentence *x; !status && (x = search_finished(s->search));) {
        struct job *j = x->owner;
        job_found(j);
        status = move_on(s, j, err);
    }
    return status ? give_up(s, status) : HEED_OK;
}

const struct heed_answer *heed_finished(struct heed_session *s, const void **user)
{
    if (!s) return NULL;
    job_free(s->taken);
    s->taken = s->done.first;
    if (!s->taken) return NULL;
    take_out(&s->done, s->taken);
    if (user) *user = s->taken->user;
    return &s->taken->answer;
}

void heed_cancel(struct heed_session *s, const void *user)
{
    if (!s) return;
    struct jobs *lists[] = {&s->running, &s->done};
    for (int i = 0; i < 2; i++)
        for (struct job *j = lists[i]->first, *next; j; j = next) {
            next = j->next;
            if (j->in_call || j->user != user) continue;
            take_out(lists[i], j);
            job_free(j);
        }
}

const char *heed_partial(struct heed_session *s, const void *user)
{
    if (!s) return NULL;
    free(s->partial);
    s->partial = NULL;
    struct job *j = s->running.first;
    while (j && (j->in_call || j->user != user)) j = j->next;
    if (j) job_so_far(j, &s->partial, NULL);
    return s->partial;
}

/* ---- all requests of a call ---- */

static enum heed_status call_open(struct heed_session *s, int n, struct heed_error *err)
{
    s->call = calloc((size_t)n + 1, sizeof *s->call);
    s->answer = calloc((size_t)n + 1, sizeof *s->answer);
    if (!s->call || !s->answer) return error_memory(err, n * sizeof *s->answer, "requests");
    s->calls = s->calls_left = n;
    return HEED_OK;
}

static enum heed_status translate(struct heed_session *s, const struct heed_request *request, int n,
                                  struct heed_error *err)
{
    enum heed_status status = call_open(s, n, err);
    for (int i = 0; i < n && !status; i++) {
        status = begin(s, &request[i], &s->call[i], err);
        if (status) break;
        s->call[i]->in_call = true;
        status = move_on(s, s->call[i], err);
    }
    while (!status && s->calls_left) status = heed_advance(s, err);
    for (int i = 0; i < n && !status; i++) s->answer[i] = s->call[i]->answer;
    return status;
}

enum heed_status heed_translate(struct heed_session *s, const struct heed_request *request, int n,
                                const struct heed_answer **out, struct heed_error *err)
{
    if (!s) return error_null(err, "session");
    if (!out) return error_null(err, "out");
    if (n < 0) return error_set(err, HEED_EARG, "there are %d requests, expected at least 0", n);
    if (n && !request) return error_null(err, "request");
    for (int i = 0; i < n; i++)
        if (!request[i].text) return error_set(err, HEED_EARG, "request[%d].text is NULL", i);
    forget_call(s);
    enum heed_status status = translate(s, request, n, err);
    if (status) return give_up(s, status);
    *out = s->answer;
    return HEED_OK;
}
