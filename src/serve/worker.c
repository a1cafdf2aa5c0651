/*
 * worker.c - the thread that translates; see worker.h.
 *
 * The thread holds the lock while it looks after its list of tasks, and releases it while the
 * session computes. The session belongs to this thread alone.
 */
#include "serve/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "serve/answer.h"

enum { BATCH = 256 }; /* lines that are given to the session, or taken from it, at a time */

static const double NEWS_EVERY = 0.05; /* seconds between two partial translations */

struct worker {
    struct worker_options o;
    struct heed_session *session;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    bool stop;
    struct task *first, *last; /* in the order in which they are served next */
    struct worker_counts count;
    /* the thread's own */
    int hypotheses; /* of the lines that the session has */
    double news;    /* when partial translations are next looked at */
};

double worker_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the list of tasks: with the lock held ---- */

static void list_add(struct worker *w, struct task *t)
{
    t->before = w->last;
    t->next = NULL;
    *(w->last ? &w->last->next : &w->first) = t;
    w->last = t;
}

static void list_remove(struct worker *w, struct task *t)
{
    *(t->before ? &t->before->next : &w->first) = t->next;
    *(t->next ? &t->next->before : &w->last) = t->before;
}

static void wake(struct task *t)
{
    t->changed = true;
    if (!t->asleep) return;
    t->asleep = false;
    t->wake(t->user);
}

static void task_end(struct worker *w, struct task *t, enum task_state state, const char *why)
{
    list_remove(w, t);
    w->count.tasks--;
    w->count.lines_waiting -= t->lines - t->finished;
    t->state = state;
    if (why) snprintf(t->why, sizeof t->why, "%s", why);
    if (t->abandoned) {
        t->free(t);
    } else {
        wake(t);
    }
}

/* Takes back the lines of a task that the session has not finished. */
static void take_back(struct worker *w, struct task *t)
{
    for (int i = 0; i < t->begun; i++) {
        if (t->line[i].answer) continue;
        heed_cancel(w->session, &t->line[i]);
        w->hypotheses -= t->line[i].request.options->beam;
    }
}

/* Ends tasks that were cancelled or are late. */
static void sweep(struct worker *w)
{
    double now = worker_now();
    for (struct task *t = w->first, *next; t; t = next) {
        next = t->next;
        bool late = t->deadline > 0 && now > t->deadline;
        if (!t->cancel && !late) continue;
        take_back(w, t);
        task_end(w, t, t->cancel ? TASK_CANCELLED : TASK_LATE, NULL);
    }
}

/* After a failure, ends every task that the session has lines of. */
static void fail_all(struct worker *w, const char *why)
{
    for (struct task *t = w->first, *next; t; t = next) {
        next = t->next;
        if (!t->begun) continue;
        take_back(w, t);
        task_end(w, t, TASK_FAILED, why);
    }
}

/* The next lines for the session, a line of each task in turn, as many as it should have. */
static int choose_lines(struct worker *w, struct line **out)
{
    int n = 0, exhausted = 0;
    while (n < BATCH && w->hypotheses < w->o.hypotheses && exhausted < w->count.tasks) {
        struct task *t = w->first;
        list_remove(w, t);
        list_add(w, t);
        exhausted = t->begun == t->lines ? exhausted + 1 : 0;
        if (t->begun == t->lines) continue;
        out[n] = &t->line[t->begun++];
        w->hypotheses += out[n++]->request.options->beam;
    }
    return n;
}

/* ---- the session: without the lock ---- */

struct found {
    struct line *line;
    struct heed_answer *answer;
};

/* Takes at most BATCH answers that are finished. */
static enum heed_status take_found(struct worker *w, struct found *out, int *n,
                                   struct heed_error *err)
{
    const struct heed_answer *a;
    const void *user;
    for (*n = 0; *n < BATCH && (a = heed_finished(w->session, &user)); (*n)++) {
        out[*n] = (struct found){(struct line *)user, answer_copy(a)};
        if (out[*n].answer) continue;
        *err = (struct heed_error){HEED_ENOMEM, "out of memory for an answer"};
        return HEED_ENOMEM;
    }
    return HEED_OK;
}

/* Gives n lines to the session, decodes one step and takes what is finished. */
static enum heed_status advance(struct worker *w, struct line **line, int n, struct found *found,
                                int *found_n, struct heed_error *err)
{
    enum heed_status status = HEED_OK;
    *found_n = 0;
    for (int i = 0; i < n && !status; i++) {
        status = heed_submit(w->session, &line[i]->request, line[i], err);
    }
    if (!status) status = heed_advance(w->session, err);
    return status ? status : take_found(w, found, found_n, err);
}

/* The attention of a task's line, from a second search for it and a pass over what it found, which
 * the other requests of the session share. An error is one of the session, which has lost them. */
static enum heed_status look_inside(struct worker *w, struct line *line, struct heed_error *err)
{
    struct heed_attention *seen = NULL;
    enum heed_status status = heed_attention_of(w->session, &line->request, &seen, err);
    char *unseen = status ? strdup(err->text) : NULL;
    pthread_mutex_lock(&w->lock);
    line->task->seen = seen;
    line->task->unseen = unseen;
    pthread_mutex_unlock(&w->lock);
    return status == HEED_EARG || status == HEED_ENUMERIC ? HEED_OK : status;
}

/* ---- what is told to others: with the lock held ---- */

static void publish(struct worker *w, const struct found *found, int n)
{
    for (int i = 0; i < n; i++) {
        struct line *line = found[i].line;
        struct task *t = line->task;
        line->answer = found[i].answer;
        w->hypotheses -= line->request.options->beam;
        w->count.lines_waiting--;
        w->count.lines++;
        w->count.tokens += line->answer->result->tokens;
        if (++t->finished == t->lines) {
            task_end(w, t, TASK_DONE, NULL);
        } else if (t->news) {
            wake(t);
        }
    }
}

/* Partial translations of the lines that are under way, for tasks that ask for news. */
static void publish_partials(struct worker *w)
{
    const double part = 0.2; /* of the time may go into partial translations */
    double began = worker_now();
    if (began < w->news) return;
    for (struct task *t = w->first; t; t = t->next) {
        bool grown = false;
        for (int i = 0; t->news && i < t->begun; i++) {
            struct line *line = &t->line[i];
            const char *text = line->answer ? NULL : heed_partial(w->session, line);
            if (!text || (line->partial && !strcmp(line->partial, text))) continue;
            free(line->partial);
            line->partial = strdup(text);
            grown = true;
        }
        if (grown) wake(t);
    }
    double took = worker_now() - began;
    w->news = began + (took / part > NEWS_EVERY ? took / part : NEWS_EVERY);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct line *line[BATCH];
    struct found found[BATCH];
    struct heed_error err = {0};
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->first && !w->stop) pthread_cond_wait(&w->work, &w->lock);
        if (!w->first) break;
        sweep(w);
        int n = choose_lines(w, line), found_n;
        pthread_mutex_unlock(&w->lock);
        enum heed_status status = advance(w, line, n, found, &found_n, &err);
        for (int i = 0; i < found_n && !status; i++) {
            if (found[i].line->task->attention) status = look_inside(w, found[i].line, &err);
        }
        pthread_mutex_lock(&w->lock);
        publish(w, found, found_n);
        if (status) fail_all(w, err.text);
        publish_partials(w);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* ---- for other threads ---- */

struct worker *worker_open(const struct heed_model *m, const struct worker_options *o,
                           struct heed_error *err)
{
    struct worker *w = calloc(1, sizeof *w);
    if (!w) {
        *err = (struct heed_error){HEED_ENOMEM, "out of memory for a worker"};
        return NULL;
    }
    w->o = *o;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->work, NULL);
    w->session = heed_session_open(m, NULL, err);
    if (w->session && pthread_create(&w->thread, NULL, work, w) == 0) return w;
    if (w->session) *err = (struct heed_error){HEED_ENOMEM, "cannot start a thread"};
    heed_session_free(w->session);
    free(w);
    return NULL;
}

void worker_close(struct worker *w)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->work);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    heed_session_free(w->session);
    pthread_cond_destroy(&w->work);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

bool worker_put(struct worker *w, struct task *t)
{
    pthread_mutex_lock(&w->lock);
    bool room = w->count.tasks < w->o.queue;
    if (room) {
        t->worker = w;
        for (int i = 0; i < t->lines; i++) t->line[i].task = t;
        list_add(w, t);
        w->count.tasks++;
        w->count.lines_waiting += t->lines;
        pthread_cond_signal(&w->work);
    }
    pthread_mutex_unlock(&w->lock);
    return room;
}

struct worker_counts worker_count(struct worker *w)
{
    pthread_mutex_lock(&w->lock);
    struct worker_counts count = w->count;
    pthread_mutex_unlock(&w->lock);
    return count;
}

void task_lock(struct task *t)
{
    if (t->worker) pthread_mutex_lock(&t->worker->lock);
}

void task_unlock(struct task *t)
{
    if (t->worker) pthread_mutex_unlock(&t->worker->lock);
}

bool task_sleep(struct task *t, void (*suspend)(void *user), void *user)
{
    task_lock(t);
    bool sleeps = t->state == TASK_UNDER_WAY && !(t->news && t->changed);
    if (sleeps) {
        t->asleep = true;
        suspend(user);
    } else {
        t->changed = false;
    }
    task_unlock(t);
    return sleeps;
}

void task_cancel(struct task *t)
{
    t->cancel = true;
}

void task_leave(struct task *t)
{
    struct worker *w = t->worker;
    if (w) pthread_mutex_lock(&w->lock);
    bool ended = !w || t->state != TASK_UNDER_WAY;
    if (!ended) {
        t->cancel = t->abandoned = true;
        t->asleep = false;
    }
    if (w) pthread_mutex_unlock(&w->lock);
    if (ended) t->free(t);
}
