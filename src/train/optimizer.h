/*
 * optimizer.h - Adam over the flat parameters, the paper's learning rate schedule, and the guard
 * that skips gradients that would ruin a run. Last stages of a training step.
 */
#ifndef HEED_TRAIN_OPTIMIZER_H
#define HEED_TRAIN_OPTIMIZER_H
#include "train/slices.h"

struct schedule {
    double peak;    /* learning rate at the end of the warm-up */
    int64_t warmup; /* steps, at least 1 */
    enum heed_schedule kind;
};

/* Rises linearly over the warm-up, then falls with the inverse square root of the step (paper 5.3,
 * equation 3) or stays. step counts from 1. */
double schedule_lr(const struct schedule *s, int64_t step);
/* The paper's own peak: d_model^-0.5 * warmup^-0.5. */
double schedule_paper_peak(int d_model, int64_t warmup);

/* The state of the guard, which is saved with a checkpoint. */
struct guard {
    double norm;  /* running mean of the gradient norm */
    int64_t seen; /* number of steps in that mean */
};

struct optimizer {
    struct parameters *p;
    const struct slices *slices; /* NULL: all parameters are this process's own */
    struct mat m, v;             /* [1,own] moments */
    struct mat master;           /* [1,own] of shared parameters (parameters_open_shared) */
    double *sq;        /* on the device: squared norm of the gradient, or of each unit of it */
    double sq_host;    /* that of the last step, in host memory */
    struct adam begun; /* what optimizer_begin was called with */
    struct guard guard;
};

/* slices: what this rank updates; NULL: everything. Both must outlive the optimizer. */
enum heed_status optimizer_open(struct optimizer **out, struct parameters *p,
                                const struct slices *slices, struct heed_error *err);
void optimizer_free(struct optimizer *o);

struct update {
    double norm;  /* norm of the scaled gradient, before clipping */
    bool skipped; /* nothing was changed: the norm is not finite, or far above its running mean */
};

/* One step of Adam with h, whose limit is set here. optimizer_begin enqueues it and does not wait;
 * optimizer_done waits for it. */
void optimizer_begin(struct optimizer *o, struct mat grad, struct adam h);
enum heed_status optimizer_done(struct optimizer *o, struct update *out, struct heed_error *err);
/* The same for slices. sum[spans]: gradients of the own parameters. optimizer_norms waits for the
 * squared norm of each unit of them, out[spans*units]; sq is the sum of those of all ranks. */
enum heed_status optimizer_norms(struct optimizer *o, const struct mat *sum, double *out,
                                 struct heed_error *err);
void optimizer_begin_slices(struct optimizer *o, const struct mat *sum, double sq, struct adam h);
/* Brings what shared parameters hold of the own slices up to date with their master, which was
 * loaded. */
void optimizer_refresh(struct optimizer *o);
/* Sets the own slices of the master of shared parameters: values [n] in host memory. */
enum heed_status optimizer_start(struct optimizer *o, const void *values, struct heed_error *err);
/* Sets *sound to whether every parameter, or with shared parameters every own one, is finite. */
enum heed_status optimizer_check(struct optimizer *o, bool *sound, struct heed_error *err);

#endif
