/*
 * golden.h - reads the files that the scripts in tests/golden wrote, and the model they describe.
 */
#ifndef HEED_TESTS_GOLDEN_H
#define HEED_TESTS_GOLDEN_H
#include <stdio.h>

#include "store/safetensors.h"
#include "toy.h"

/* As in model.py. */
static const struct heed_config golden_config = {.d_model = 32,
                                                 .d_ff = 64,
                                                 .heads = 4,
                                                 .encoder_layers = 2,
                                                 .decoder_layers = 2,
                                                 .vocab_size = 50,
                                                 .max_length = 24};
/* As in variants.py. */
static const struct heed_config golden_variant_config = {.d_model = 16,
                                                         .d_ff = 32,
                                                         .heads = 2,
                                                         .encoder_layers = 1,
                                                         .decoder_layers = 1,
                                                         .vocab_size = 50,
                                                         .max_length = 24};
enum { GOLDEN_TENSORS = 128 };

static inline struct safetensors *golden_file(const char *path)
{
    struct heed_error err = {0};
    struct safetensors *file = NULL;
    if (safetensors_open(&file, path, &err)) fail_msg("%s", err.text);
    return file;
}

static inline const struct tensor *golden_find(const struct safetensors *file, const char *name)
{
    const struct tensor *t = safetensors_find(file, name);
    if (!t || t->type != TYPE_F32) fail_msg("no f32 tensor %s in the golden file", name);
    return t;
}

/* The tensors whose names have the prefix, laid out like the parameters; the caller frees the
 * array. */
static inline float *golden_gather(struct parameters *p, const struct safetensors *file,
                                   const char *prefix)
{
    struct parameter list[GOLDEN_TENSORS];
    int tensors = parameters_list(&p->config, list, GOLDEN_TENSORS);
    assert_true(tensors <= GOLDEN_TENSORS);
    float *flat = malloc(p->n * sizeof *flat);
    assert_non_null(flat);
    for (const struct parameter *at = list; at < list + tensors; at++) {
        char name[80];
        snprintf(name, sizeof name, "%s%.63s", prefix, at->name);
        const struct tensor *t = golden_find(file, name);
        assert_int_equal(t->bytes, (size_t)at->rows * at->cols * sizeof *flat);
        memcpy(flat + at->at, t->data, t->bytes);
    }
    return flat;
}

/* Makes these the parameters. */
static inline void golden_set(struct parameters *p, const float *flat)
{
    struct heed_error err = {0};
    p->be->op->upload(p->be, p->master.p, flat, p->n * sizeof *flat);
    if (p->copy.p) p->be->op->cast(p->be, p->copy, p->master);
    assert_int_equal(p->be->op->sync(p->be, &err), HEED_OK);
}

#endif
