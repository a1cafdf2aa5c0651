/*
 * files.h - the names inside a model directory, and which directories may become one.
 */
#ifndef HEED_STORE_FILES_H
#define HEED_STORE_FILES_H
#include "heed.h"

#define MODEL_CONFIG  "config.json"
#define MODEL_VOCAB   "vocab.model"
#define MODEL_WEIGHTS "model.safetensors"

/* HEED_EARG where a model made from those in dirs[n] must not be written to out: it is one of them,
 * or the directory of a training run, of its checkpoints or of its best weights. */
enum heed_status files_check_out(const char *const *dirs, int n, const char *out,
                                 struct heed_error *err);
/* *c: the configuration of the model in dir, whose vocabulary was found to be sound and of its
 * size.
 */
enum heed_status files_check_model(struct heed_config *c, const char *dir, struct heed_error *err);

#endif
