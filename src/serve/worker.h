/*
 * worker.h - the thread that translates: one for each loaded model, with the session that only this
 * thread uses. Requests of all connections share its decoding steps.
 *
 * A task is what one HTTP request asks of a model: lines to be translated. Whoever makes it puts it
 * in with worker_put and is woken when the task has ended, or earlier where it asks for news. The
 * lines of several tasks are taken in turn, so that a short text need not wait for the end of a
 * long document.
 *
 * Call order: worker_open; worker_put, task_* from any thread; worker_close.
 */
#ifndef HEED_SERVE_WORKER_H
#define HEED_SERVE_WORKER_H
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "heed.h"

struct worker;

struct line {
    struct heed_request request;
    /* Set by the worker. The caller reads `answer` of a task that has ended, or holds the lock. */
    struct heed_answer *answer; /* a copy, freed with the task; NULL: not finished */
    char *partial;              /* the translation so far, where the task asks for news */
    struct task *task;
};

enum task_state {
    TASK_UNDER_WAY,
    TASK_DONE,
    TASK_CANCELLED, /* whoever asked has gone */
    TASK_LATE,      /* the deadline has passed */
    TASK_FAILED     /* `why` says what happened to the session */
};

struct task {
    /* set by the caller before worker_put */
    struct line *line; /* [lines] */
    int lines;
    double deadline; /* as of worker_now; 0: none */
    bool news;       /* wake when a line is finished, and when partial translations have grown */
    bool attention;  /* `seen` is asked for: the attention of the only line */
    void (*free)(struct task *); /* releases the task and all that belongs to it */
    void (*wake)(void *user);    /* called by the worker's thread, with the lock held */
    void *user;

    atomic_bool cancel; /* the worker should end it */
    /* guarded by the lock of the worker, but for `state` of a task that has ended */
    enum task_state state;
    char why[sizeof((struct heed_error *)0)->text];
    int finished;                /* lines that have an answer */
    bool changed;                /* something is new since task_sleep last returned false */
    bool asleep;                 /* `wake` is to be called */
    bool abandoned;              /* the worker frees it */
    struct heed_attention *seen; /* freed by the caller */
    char *unseen;                /* why there is no attention; freed by the caller */

    /* the worker's own */
    struct worker *worker;
    int begun; /* lines that were given to the session */
    struct task *before, *next;
};

struct worker_options {
    int hypotheses; /* of the lines that the session has at once; more would make others wait */
    int queue;      /* most tasks that wait or are under way */
};

struct worker_counts {
    long long lines, tokens; /* translated so far; tokens of the best translations */
    int tasks;               /* that wait or are under way */
    int lines_waiting;       /* of those, the lines that are not finished */
};

/* The model must outlive the worker. */
struct worker *worker_open(const struct heed_model *m, const struct worker_options *o,
                           struct heed_error *err);
/* Ends the thread; there must be no task left. */
void worker_close(struct worker *w);

/* Seconds of a clock that only goes forward. */
double worker_now(void);
/* Hands a task over; false: too many wait, and the task stays the caller's. */
bool worker_put(struct worker *w, struct task *t);
struct worker_counts worker_count(struct worker *w);

/* The caller waits for the task: calls `suspend`, with the lock held, and returns true, unless the
 * task has ended or has news. */
bool task_sleep(struct task *t, void (*suspend)(void *user), void *user);
/* Lets the caller read lines while the task is under way. */
void task_lock(struct task *t);
void task_unlock(struct task *t);
/* Ends a task early; whoever waits for it is woken. Takes no lock. */
void task_cancel(struct task *t);
/* The caller needs the task no longer: it is freed at once where it has ended, else by the worker,
 * which ends it without waking anybody. */
void task_leave(struct task *t);

#endif
