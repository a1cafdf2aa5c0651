/*
 * waiting.h - how long OpenMP threads spin before they sleep, for programs that compute for long.
 *
 * libgomp lets a waiting thread spin for milliseconds, which takes the core away from whatever
 * would end the wait as soon as another program runs beside ours. A tenth of a millisecond is
 * longer than what lies between two of our parallel regions, so shorter spinning costs nothing on
 * idle cores.
 */
#ifndef HEED_CLI_WAITING_H
#define HEED_CLI_WAITING_H
#include <stdlib.h>
#include <unistd.h>

/* Before the program has done anything. libgomp reads its settings before main, hence the second
 * start; without one the program is only slower. A setting of the user's stays. */
static inline void wait_briefly(char **argv)
{
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT")) return;
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n < 0 || setenv("GOMP_SPINCOUNT", "2000", 1) != 0) return;
    path[n] = '\0'; /* by its own name, so that ps and killall know the program */
    execv(path, argv);
}

#endif
