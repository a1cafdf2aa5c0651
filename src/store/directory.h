/*
 * directory.h - a model directory: config.json, vocab.model and model.safetensors.
 *
 * This is the one place that finds, checks, loads and writes these files together. Weights alone
 * are read and written by weights.h, at the path that directory_weights gives.
 */
#ifndef HEED_STORE_DIRECTORY_H
#define HEED_STORE_DIRECTORY_H
#include "base/file.h"
#include "heed.h"

#define MODEL_CONFIG  "config.json"
#define MODEL_VOCAB   "vocab.model"
#define MODEL_WEIGHTS "model.safetensors"

struct parameters;

/* ---- reading ---- */

/* The configuration of the model in dir. */
enum heed_status directory_config(struct heed_config *c, const char *dir, struct heed_error *err);
/* Configuration and vocabulary, which must have the size that the configuration says; the caller
 * frees *t. */
enum heed_status directory_read(struct heed_config *c, struct heed_tokenizer **t, const char *dir,
                                struct heed_error *err);
/* The whole model for translation, its weights on the engine's device, until directory_unload. */
enum heed_status directory_load(struct parameters **p, struct heed_tokenizer **t,
                                struct heed_engine *e, const char *dir, enum heed_weights weights,
                                struct heed_error *err);
void directory_unload(struct parameters *p, struct heed_tokenizer *t, struct heed_engine *e);

/* HEED_EFORMAT naming the first field in which the configuration of dir differs from c. */
enum heed_status directory_same_config(const char *dir, const struct heed_config *c,
                                       struct heed_error *err);
/* *same: whether the vocabulary of dir is t, byte for byte. */
enum heed_status directory_same_vocabulary(const char *dir, const struct heed_tokenizer *t,
                                           bool *same, struct heed_error *err);

/* ---- writing ---- */

/* The path of the weights in dir, which need not be there. */
enum heed_status directory_weights(char path[FILE_PATH_MAX], const char *dir,
                                   struct heed_error *err);
/* Writes configuration and vocabulary to dir, which is made when it is missing. Each file is whole
 * or as it was before. Weights come last, so that a new directory that has them is complete. */
enum heed_status directory_begin(const char *dir, const struct heed_config *c,
                                 const struct heed_tokenizer *t, struct heed_error *err);
/* Writes a whole model to dir: directory_begin, then the weights, which are the master of p or,
 * where `values` is not NULL, in host memory there. */
enum heed_status directory_save(const char *dir, struct parameters *p, const void *values,
                                const struct heed_tokenizer *t, struct heed_error *err);

/* HEED_EARG where a model made from those in dirs[n] must not be written to out: out is one of
 * them, or the directory of a training run, of its checkpoints or of its best weights. */
enum heed_status directory_check_out(const char *const *dirs, int n, const char *out,
                                     struct heed_error *err);
/* HEED_EARG where a new training run must not write to out: out has weights already, or a
 * vocabulary other than t, which was read from the file `vocab`. */
enum heed_status directory_check_new_run(const char *out, const struct heed_tokenizer *t,
                                         const char *vocab, struct heed_error *err);

#endif
