/*
 * launch.c - see launch.h.
 */
#include "cli/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

/* Processes that the launcher started, by the variables that it sets in each of them; 0: there is
 * no launcher. */
static int launched(void)
{
    /* mpirun of Open MPI; srun, which sets it within its job steps alone */
    static const char *const variable[] = {"OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"};
    for (size_t i = 0; i < sizeof variable / sizeof *variable; i++) {
        const char *text = getenv(variable[i]);
        int n = text ? atoi(text) : 0;
        if (n > 1 || (n == 1 && i == 0)) return n;
    }
    return 0;
}

static void on_lost(void *user, const char *sentence)
{
    (void)user;
    cli_failure("%s; the job ends here, and --resume goes on", sentence);
}

int launch_open(struct heed_cluster **out)
{
    struct heed_error err = {0};
    struct heed_cluster_options o = {.ranks = launched(), .lost = on_lost};
    *out = NULL;
    if (!o.ranks) return CLI_DONE;
    *out = heed_cluster_open(&o, &err);
    return *out ? CLI_DONE : cli_failure("%s", err.text);
}

int launch_close(struct heed_cluster *c, int code)
{
    fflush(NULL);
    heed_cluster_free(c);
    return code;
}

const char *launch_device(const struct heed_cluster *c, const char *device,
                          char out[LAUNCH_DEVICE_MAX])
{
    if (!c || strcmp(device, "cuda") != 0) return device;
    snprintf(out, LAUNCH_DEVICE_MAX, "cuda:%d", heed_cluster_local_rank(c));
    return out;
}

int launch_failure(const struct heed_cluster *c, const struct heed_error *err)
{
    return heed_cluster_reports(c) ? cli_failure("%s", err->text) : CLI_FAILURE;
}
