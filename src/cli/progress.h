/*
 * progress.h - training as a person watches it, on stderr: in a terminal one line that updates,
 * elsewhere a plain line now and then; validations, checkpoints and trouble on lines of their own.
 */
#ifndef HEED_CLI_PROGRESS_H
#define HEED_CLI_PROGRESS_H
#include "heed.h"

struct progress {
    bool quiet, terminal;
    int64_t steps;                     /* of the whole training */
    const volatile sig_atomic_t *stop; /* the flag that Ctrl-C sets */
    bool stopping;                     /* the user has been told so */
    bool drawn;                        /* the updating line is on the screen */
    double shown;                      /* when a step was last shown, in seconds of this run */
    double loss;                       /* sum over the steps since then */
    int n;
};

void progress_init(struct progress *p, int64_t steps, const volatile sig_atomic_t *stop,
                   bool quiet);
/* For struct heed_train_options: event = progress_event, user = the struct progress. */
void progress_event(void *user, const struct heed_event *e);
/* Takes the updating line off the screen; before anything else is printed on stderr. */
void progress_clear(struct progress *p);

#endif
