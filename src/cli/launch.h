/*
 * launch.h - whether mpirun or srun started this process as one of several, its ranks.
 *
 * Without a launcher nothing of MPI is touched. Call order: launch_open, the work, launch_close.
 */
#ifndef HEED_CLI_LAUNCH_H
#define HEED_CLI_LAUNCH_H
#include "heed.h"

/* *out is NULL where no launcher started this process. CLI_DONE, or an exit code after a sentence.
 */
int launch_open(struct heed_cluster **out);
/* Leaves the job, and returns the exit code. Where the work failed on this rank alone, it ends the
 * job. */
int launch_close(struct heed_cluster *c, int code);

/* The device of this rank: "cuda" is the GPU with the number of the rank on its host. `out` is lent
 * for the result. */
enum { LAUNCH_DEVICE_MAX = 32 };
const char *launch_device(const struct heed_cluster *c, const char *device,
                          char out[LAUNCH_DEVICE_MAX]);

/* Like cli_failure, for an error of the library: one rank prints it. */
int launch_failure(const struct heed_cluster *c, const struct heed_error *err);

#endif
