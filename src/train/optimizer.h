/*
 * optimizer.h - Adam over the flat parameters, the paper's schedule, and the guard that keeps one
 * bad batch from ruining a run. Last stages of a step.
 */
#ifndef HEED_TRAIN_OPTIMIZER_H
#define HEED_TRAIN_OPTIMIZER_H
#include "model/parameters.h"

struct schedule {
    double peak;    /* learning rate at the end of the warm-up */
    int64_t warmup; /* steps, at least 1 */
};

/* Rises linearly over the warm-up, then falls with the inverse square root of the step (paper 5.3,
 * equation 3). step counts from 1. */
double schedule_lr(const struct schedule *s, int64_t step);
/* The paper's own peak: d_model^-0.5 * warmup^-0.5. */
double schedule_paper_peak(int d_model, int64_t warmup);

/* What the guard remembers; saved with a checkpoint. */
struct guard {
    double norm;  /* running mean of the gradient norm */
    int64_t seen; /* steps in it */
};

struct optimizer {
    struct parameters *p;
    struct mat m, v;   /* [1,n] moments */
    double *sq;        /* on the device: squared norm of the gradient */
    double sq_host;    /* the same of the last step, here */
    struct adam begun; /* of that step */
    struct guard guard;
};

enum heed_status optimizer_open(struct optimizer **out, struct parameters *p,
                                struct heed_error *err);
void optimizer_free(struct optimizer *o);

struct update {
    double norm;  /* of the scaled gradient, before clipping */
    bool skipped; /* not a number, or far above its running mean: nothing was changed */
};

/* One step with h (whose limit is set here). Begun, it does not wait; done, it has. */
void optimizer_begin(struct optimizer *o, struct mat grad, struct adam h);
enum heed_status optimizer_done(struct optimizer *o, struct update *out, struct heed_error *err);
/* *sound: every parameter is a number. */
enum heed_status optimizer_check(struct optimizer *o, bool *sound, struct heed_error *err);

#endif
