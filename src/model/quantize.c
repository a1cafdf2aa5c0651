/*
 * quantize.c - a model directory with smaller weights: bf16, or int8 with a scale for each row.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "model/files.h"
#include "model/safetensors.h"
#include "ops/bf16.h"
#include "ops/quant.h"

enum { PATH = 4096 };

/* The tensors of the new file; their data and the scales' names are malloced. */
struct small {
    struct tensor *t;
    int n;
};

static void small_release(struct small *s)
{
    for (int i = 0; i < s->n; i++) {
        free((void *)s->t[i].data);
        free((void *)s->t[i].name);
    }
    free(s->t);
}

/* Adds a tensor with room for its data, or returns NULL. */
static void *small_add(struct small *s, struct tensor t, const char *suffix)
{
    size_t len = strlen(t.name) + strlen(suffix) + 1;
    char *name = malloc(len);
    void *data = malloc(t.bytes + 1);
    if (!name || !data) {
        free(name);
        free(data);
        return NULL;
    }
    snprintf(name, len, "%s%s", t.name, suffix);
    t.name = name;
    t.data = data;
    s->t[s->n++] = t;
    return data;
}

static bool add_int8(struct small *s, const struct tensor *t)
{
    int rows = (int)t->shape[0], cols = (int)t->shape[1];
    struct tensor q = *t, scales = {t->name, TYPE_F32, 1, {rows}, NULL, rows * sizeof(float)};
    q.type = TYPE_I8;
    q.bytes = (size_t)rows * cols;
    int8_t *to = small_add(s, q, "");
    float *scale = to ? small_add(s, scales, ".scale") : NULL;
    for (int r = 0; scale && r < rows; r++)
        scale[r] =
            quant_row(to + (size_t)r * cols, (const float *)t->data + (size_t)r * cols, cols);
    return scale;
}

static bool add_bf16(struct small *s, const struct tensor *t)
{
    struct tensor half = *t;
    half.type = TYPE_BF16;
    half.bytes = t->bytes / 2;
    uint16_t *to = small_add(s, half, "");
    for (size_t i = 0; to && i < half.bytes / 2; i++)
        to[i] = bf16_from_float(((const float *)t->data)[i]);
    return to;
}

static bool add_copy(struct small *s, const struct tensor *t)
{
    void *to = small_add(s, *t, "");
    if (to) memcpy(to, t->data, t->bytes);
    return to;
}

/* Matrices get smaller; biases and norms stay. */
static enum heed_status fill(struct small *s, const struct safetensors *file,
                             enum heed_weights weights, const char *path, struct heed_error *err)
{
    int n = safetensors_count(file);
    s->t = calloc(2 * (size_t)n + 1, sizeof *s->t);
    if (!s->t) return error_memory(err, 2 * n * sizeof *s->t, "smaller weights");
    for (int i = 0; i < n; i++) {
        const struct tensor *t = safetensors_at(file, i);
        if (t->type != TYPE_F32)
            return error_set(err, HEED_EFORMAT,
                             "%s: tensor %s is not F32: the weights are small already", path,
                             t->name);
        bool good = t->dims == 1                   ? add_copy(s, t)
                    : weights == HEED_WEIGHTS_INT8 ? add_int8(s, t)
                                                   : add_bf16(s, t);
        if (!good) return error_memory(err, t->bytes, "smaller weights");
    }
    return HEED_OK;
}

enum heed_status heed_quantize(const char *dir, enum heed_weights weights, const char *out,
                               struct heed_error *err)
{
    char from[PATH], to[PATH];
    struct safetensors *file = NULL;
    struct small s = {0};
    if (weights != HEED_WEIGHTS_BF16 && weights != HEED_WEIGHTS_INT8)
        return error_set(err, HEED_EARG, "weights are neither bf16 nor int8");
    enum heed_status st = file_join(from, sizeof from, dir, MODEL_WEIGHTS, err);
    if (!st) st = file_join(to, sizeof to, out, MODEL_WEIGHTS, err);
    if (!st) st = safetensors_open(&file, from, err);
    if (!st) st = fill(&s, file, weights, from, err);
    if (!st) st = file_mkdir(out, err);
    if (!st) st = file_copy(dir, out, MODEL_CONFIG, err);
    if (!st) st = file_copy(dir, out, MODEL_VOCAB, err);
    if (!st) st = safetensors_write(to, s.t, s.n, err);
    small_release(&s);
    safetensors_free(file);
    return st;
}
