/*
 * needs.h - what a model needs of a device beyond the ops that every backend has: see "optional" in
 * ops.h.
 *
 * needs_check is called when parameters and runs are opened, so that a device that lacks something
 * says so in a sentence before anything is computed.
 */
#ifndef HEED_MODEL_NEEDS_H
#define HEED_MODEL_NEEDS_H
#include "ops/ops.h"

/* HEED_EUNSUPPORTED naming the device and what it lacks to run, or with train to train, a model of
 * this configuration. */
enum heed_status needs_check(const struct ops *op, const struct heed_config *c, bool train,
                             struct heed_error *err);

#endif
