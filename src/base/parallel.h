/*
 * parallel.h - runs numbered tasks on a few threads.
 */
#ifndef HEED_BASE_PARALLEL_H
#define HEED_BASE_PARALLEL_H

enum { PARALLEL_MAX = 256 }; /* threads */

/* How many threads are meant by an option that is 0 for one per core: 1 to PARALLEL_MAX. */
int parallel_threads(int wanted);

/* Calls task(arg, thread, i) for every i from 0 to n - 1, and returns when all have returned. Tasks
 * begin in the order of their numbers, on at most `threads` threads; the calling thread is one of
 * them and does all where no other can be started. `thread` is below `threads`; tasks with the same
 * `thread` run one after another. */
void parallel_run(int threads, long n, void (*task)(void *arg, int thread, long i), void *arg);

#endif
