/*
 * backend.c - opens the backend of a device by its name. All other calls go through the op table in
 * ops.h.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ops/ops.h"

/* The N of "cuda:N"; -1 for other names */
static int cuda_number(const char *device)
{
    char *end;
    const char *digits = device + strlen("cuda:");
    if (strncmp(device, "cuda:", strlen("cuda:")) || *digits < '0' || *digits > '9') return -1;
    long n = strtol(digits, &end, 10);
    return *end || n > INT_MAX ? -1 : (int)n;
}

enum heed_status backend_open(struct backend **out, const char *device, int threads,
                              struct heed_error *err)
{
    if (!strcmp(device, "cpu")) return cpu_open(out, NULL, threads, err);
    if (!strncmp(device, "cpu:", strlen("cpu:")))
        return cpu_open(out, device + strlen("cpu:"), threads, err);
    if (!strcmp(device, "ref")) return ref_open(out, err);
    int number = cuda_number(device);
#ifdef HEED_CUDA
    if (number >= 0) return cuda_open(out, number, err);
#else
    if (number >= 0)
        return error_set(err, HEED_EUNSUPPORTED,
                         "device is '%s', but this build has no CUDA; expected 'cpu' or 'ref'",
                         device);
#endif
    return error_set(err, HEED_EARG, "device is '%s', expected 'cpu', 'ref' or 'cuda:N'", device);
}
