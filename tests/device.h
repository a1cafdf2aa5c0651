/*
 * device.h - which device the tests are about: the CPU, or the one that HEED_TEST_DEVICE names.
 * "cpu:avx2" and its like are the CPU, held to less than it has.
 *
 * With a device that is not the CPU a test goes on after a failure and says how near the others
 * were: to be run where time is dear.
 */
#ifndef HEED_TESTS_DEVICE_H
#define HEED_TESTS_DEVICE_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"

enum { SKIPPED = 77 }; /* exit status, as CMakeLists.txt says */

/* The CPU, or as much of it as HEED_TEST_DEVICE asks for */
static inline const char *device_cpu(void)
{
    const char *name = getenv("HEED_TEST_DEVICE");
    return name && !strncmp(name, "cpu", strlen("cpu")) ? name : "cpu";
}

/* NULL: the backends of this machine's processor */
static inline const char *device_named(void)
{
    const char *name = getenv("HEED_TEST_DEVICE");
    return name && strncmp(name, "cpu", strlen("cpu")) ? name : NULL;
}

static inline const char *device_or_cpu(void)
{
    return device_named() ? device_named() : device_cpu();
}

/* The second under HEED_TEST_FEW, for tools that make each launch of a kernel slow. */
static inline int few(int enough, int fewer)
{
    return getenv("HEED_TEST_FEW") ? fewer : enough;
}

/* Ends the program where the device is not there. Before anything else. */
static inline void device_or_skip(void)
{
    struct heed_error err = {0};
    struct backend *be;
    if (!device_named()) return;
    if (backend_open(&be, device_named(), 0, &err)) {
        printf("skipped: %s\n", err.text);
        exit(SKIPPED);
    }
    be->op->close(be);
}

#endif
