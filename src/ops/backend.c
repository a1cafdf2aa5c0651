/*
 * backend.c - the name of a device becomes an open backend. Called once per engine; everything
 * after that goes through the table in ops.h.
 */
#include <string.h>

#include "base/error.h"
#include "ops/ops.h"

enum heed_status backend_open(struct backend **out, const char *device, int threads,
                              struct heed_error *err)
{
    if (!strcmp(device, "cpu")) return cpu_open(out, threads, err);
    if (!strcmp(device, "ref")) return ref_open(out, err);
    if (!strncmp(device, "cuda:", 5))
        return error_set(err, HEED_EUNSUPPORTED,
                         "device is '%s', but this build has no CUDA; expected 'cpu' or 'ref'",
                         device);
    return error_set(err, HEED_EARG, "device is '%s', expected 'cpu', 'ref' or 'cuda:N'", device);
}
