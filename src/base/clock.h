/*
 * clock.h - the time that has passed, in seconds, from a clock that is never set.
 */
#ifndef HEED_BASE_CLOCK_H
#define HEED_BASE_CLOCK_H
#include <time.h>

static inline double clock_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
