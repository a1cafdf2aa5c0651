/*
 * progress.h - training as a person watches it, on stderr: in a terminal one line that updates,
 * elsewhere a plain line now and then; validations, checkpoints and trouble on lines of their own.
 */
#ifndef HEED_CLI_PROGRESS_H
#define HEED_CLI_PROGRESS_H
#include "heed.h"

struct progress {
    bool quiet, terminal;
    int64_t steps; /* of the whole training */
    bool stopping; /* a signal asks for a stop, and the user was told so */
    bool drawn;    /* the updating line is on the screen */
    double shown;  /* when a step was last shown, in seconds of this run */
    double loss;   /* sum over the steps since then */
    int n;
};

void progress_init(struct progress *p, int64_t steps, bool quiet);
/* stop: a signal has asked for it. */
void progress_event(struct progress *p, const struct heed_event *e, bool stop);
/* Takes the updating line off the screen; before anything else is printed on stderr. */
void progress_clear(struct progress *p);

#endif
