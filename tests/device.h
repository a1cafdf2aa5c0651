/*
 * device.h - the device that a test runs on: the CPU, or the device that HEED_TEST_DEVICE names.
 * "cpu:avx2" and the like are the CPU, limited to that instruction set.
 *
 * On a device other than the CPU a test goes on after a failure and prints how near the other
 * results were, so that one run on a borrowed machine shows as much as possible.
 */
#ifndef HEED_TESTS_DEVICE_H
#define HEED_TESTS_DEVICE_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"

enum { SKIPPED = 77 }; /* exit status of a test that is skipped; see CMakeLists.txt */

/* "cpu", or the instruction set that HEED_TEST_DEVICE limits it to */
static inline const char *device_cpu(void)
{
    const char *name = getenv("HEED_TEST_DEVICE");
    return name && !strncmp(name, "cpu", strlen("cpu")) ? name : "cpu";
}

/* The device other than the CPU that is tested; NULL: the CPU is */
static inline const char *device_named(void)
{
    const char *name = getenv("HEED_TEST_DEVICE");
    return name && strncmp(name, "cpu", strlen("cpu")) ? name : NULL;
}

static inline const char *device_or_cpu(void)
{
    return device_named() ? device_named() : device_cpu();
}

/* How many trials to make: `enough`, or `fewer` where HEED_TEST_FEW is set, for tools that make
 * each launch of a kernel slow. */
static inline int few(int enough, int fewer)
{
    return getenv("HEED_TEST_FEW") ? fewer : enough;
}

/* Ends the program as skipped where there is no such device. A test calls this first. */
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
