/*
 * adam.h - Adam's constants in f32 (paper 5.3), the same on every device.
 *
 *     m += (g - m) new1    v = v old2 + g g new2    p -= rate m / (sqrt(v) root + epsilon)
 */
#ifndef HEED_OPS_ADAM_H
#define HEED_OPS_ADAM_H
#include <math.h>

#include "ops/ops.h"

/* rate and root include the bias corrections of the two moments. */
struct adam_rates {
    float new1, old2, new2, rate, root, epsilon;
};

static inline struct adam_rates adam_rates(const struct adam *h)
{
    struct adam_rates r = {
        .new1 = (float)(1 - h->beta1),
        .old2 = (float)h->beta2,
        .new2 = (float)(1 - h->beta2),
        .rate = (float)(h->lr / (1 - pow(h->beta1, (double)h->step))),
        .root = (float)(1 / sqrt(1 - pow(h->beta2, (double)h->step))),
        .epsilon = (float)h->epsilon,
    };
    return r;
}

#endif
