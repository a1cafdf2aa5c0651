/*
 * options.h - the options of a training run.
 */
#ifndef HEED_TRAIN_OPTIONS_H
#define HEED_TRAIN_OPTIONS_H
#include "train/record.h"

/* HEED_EARG and one sentence for the first option that is missing or out of its range. */
enum heed_status train_options_check(const struct heed_train_options *o, struct heed_error *err);
/* Whether validation translates its source, for BLEU and chrF. */
bool train_options_translate(const struct heed_train_options *o);
/* What the weights of the run depend on; reads the training and validation text for it. */
enum heed_status train_options_recipe(struct recipe *r, const struct heed_train_options *o,
                                      struct heed_error *err);

#endif
