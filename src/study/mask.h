/*
 * mask.h - a model without one of its heads: zeros in the head's columns of the projection W_O that
 * follows the heads (paper 3.2.2), so that its output has no effect.
 *
 * Call order: mask_open, then mask_put and mask_lift in turn, mask_release.
 */
#ifndef HEED_STUDY_MASK_H
#define HEED_STUDY_MASK_H
#include "model/parameters.h"

struct mask {
    struct parameters *p; /* plain f32 */
    struct mat out;       /* the projection that is changed now; absent: none */
    float *kept, *host;   /* its values, and those with zeros */
};

/* p: of weights_open_plain; it must outlive the mask. */
enum heed_status mask_open(struct mask *m, struct parameters *p, struct heed_error *err);
/* Masks a head, both counted from 0, on the device of p. */
enum heed_status mask_put(struct mask *m, enum heed_attention_use use, int layer, int head,
                          struct heed_error *err);
/* Makes the parameters what they were before. */
enum heed_status mask_lift(struct mask *m, struct heed_error *err);
void mask_release(struct mask *m);

#endif
