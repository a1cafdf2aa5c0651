/*
 * parallel.c - runs numbered tasks on a few threads; see parallel.h.
 */
#include "base/parallel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

int parallel_threads(int wanted)
{
    long n = wanted > 0 ? wanted : sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n < PARALLEL_MAX ? (int)n : PARALLEL_MAX;
}

struct tasks {
    void (*run)(void *arg, int thread, long i);
    void *arg;
    long n;
    atomic_long next;
};

struct runner {
    struct tasks *tasks;
    int number;
    pthread_t thread;
    bool started;
};

static void *runner_run(void *arg)
{
    struct runner *r = arg;
    struct tasks *t = r->tasks;
    for (long i; (i = atomic_fetch_add(&t->next, 1)) < t->n;) t->run(t->arg, r->number, i);
    return NULL;
}

void parallel_run(int threads, long n, void (*task)(void *arg, int thread, long i), void *arg)
{
    struct tasks tasks = {.run = task, .arg = arg, .n = n};
    struct runner runner[PARALLEL_MAX];
    atomic_init(&tasks.next, 0);
    if (threads > n) threads = (int)n;
    for (int i = 0; i < threads; i++) {
        runner[i] = (struct runner){.tasks = &tasks, .number = i};
        runner[i].started =
            i > 0 && pthread_create(&runner[i].thread, NULL, runner_run, &runner[i]) == 0;
    }
    if (n > 0) runner_run(&runner[0]);
    for (int i = 1; i < threads; i++)
        if (runner[i].started) pthread_join(runner[i].thread, NULL);
}
