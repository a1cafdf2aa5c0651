/*
 * waiting.h - how long OpenMP threads spin before they sleep, for programs that compute for long.
 * The file that has main includes it, and nothing is to be called.
 *
 * libgomp lets a waiting thread spin for milliseconds, which takes the core away from whatever
 * would end the wait as soon as another program runs beside ours. A tenth of a millisecond is
 * longer than what lies between two of our parallel regions, so shorter spinning costs nothing on
 * idle cores.
 *
 * libgomp has no function to set this. It reads GOMP_SPINCOUNT from the environment when it is
 * loaded, before any code of the program can change the environment. So the program defines getenv
 * itself, which the dynamic loader prefers to the C library's. This getenv answers as the C
 * library's does, and returns our number for GOMP_SPINCOUNT where the user has set neither that nor
 * OMP_WAIT_POLICY.
 */
#ifndef HEED_CLI_WAITING_H
#define HEED_CLI_WAITING_H
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

static inline char *environment_find(const char *name)
{
    size_t n = strlen(name);
    for (char **e = environ; n && e && *e; e++) {
        if (strncmp(*e, name, n) == 0 && (*e)[n] == '=') return *e + n + 1;
    }
    return NULL;
}

__attribute__((visibility("default"))) char *getenv(const char *name)
{
    static char spins[] = "2000";
    char *value = environment_find(name);
    bool asked = !value && strcmp(name, "GOMP_SPINCOUNT") == 0;
    return asked && !environment_find("OMP_WAIT_POLICY") ? spins : value;
}

#endif
