/*
 * quantize.c - a model directory with smaller weights: matrices in bf16, or in int8 with a scale
 * for each row, in the layout of the CPU backend (ops/panels.h).
 */
#include <stdlib.h>

#include "base/error.h"
#include "ops/bf16.h"
#include "store/directory.h"
#include "store/weights.h"

/* Writes the tensors of an f32 file, which are those of p, with the matrices rounded to bf16. The
 * others stay f32. */
static enum heed_status write_bf16(const char *path, struct parameters *p,
                                   const struct safetensors *file, struct heed_error *err)
{
    int n;
    size_t bytes = 1;
    struct parameter *list = weights_list(p, &n, err);
    if (!list) return HEED_ENOMEM;
    for (int i = 0; i < n; i++) bytes += safetensors_find(file, list[i].name)->bytes / 2;
    struct tensor *t = malloc(((size_t)n + 1) * sizeof *t);
    uint16_t *half = malloc(bytes), *to = half;
    enum heed_status st = t && half ? HEED_OK : error_memory(err, bytes, "smaller weights");
    for (int i = 0; i < n && !st; i++) {
        t[i] = *safetensors_find(file, list[i].name);
        if (!list[i].matrix) continue;
        const float *from = t[i].data;
        t[i].type = TYPE_BF16;
        t[i].data = to;
        t[i].bytes /= 2;
        for (size_t k = 0; k < t[i].bytes / 2; k++) *to++ = bf16_from_float(from[k]);
    }
    if (!st) st = safetensors_write(path, t, n, err);
    free(list);
    free(half);
    free(t);
    return st;
}

enum heed_status heed_quantize(const char *dir, enum heed_weights weights, const char *out,
                               struct heed_error *err)
{
    char from[FILE_PATH_MAX], to[FILE_PATH_MAX];
    struct heed_config config;
    struct heed_tokenizer *t = NULL;
    struct safetensors *file = NULL;
    struct backend *be = NULL;
    struct parameters *p = NULL;
    bool int8 = weights == HEED_WEIGHTS_INT8;
    enum type type = int8 ? TYPE_PACKED_I8 : TYPE_PACKED_BF16;
    if (!dir || !out) return error_null(err, dir ? "out" : "dir");
    if (weights != HEED_WEIGHTS_BF16 && !int8)
        return error_set(err, HEED_EARG, "weights are %d, expected %d (bf16) or %d (int8)", weights,
                         HEED_WEIGHTS_BF16, HEED_WEIGHTS_INT8);
    enum heed_status st = directory_check_out(&dir, 1, out, err);
    if (!st) st = directory_weights(from, dir, err);
    if (!st) st = directory_weights(to, out, err);
    if (!st) st = directory_read(&config, &t, dir, err);
    if (!st) st = safetensors_open(&file, from, err);
    if (!st) st = weights_check_types(file, TYPE_F32, from, err);
    if (!st) st = backend_open(&be, "cpu", 0, err);
    /* The model is opened as it will be read, also for bf16: what cannot be used is refused before
     * anything is written. */
    if (!st) st = weights_open_packed(&p, be, &config, type, from, err);
    if (!st) st = directory_begin(out, &config, t, err);
    if (!st) st = int8 ? weights_save_packed(p, to, err) : write_bf16(to, p, file, err);
    parameters_free(p);
    if (be) be->op->close(be);
    safetensors_free(file);
    heed_tokenizer_free(t);
    return st;
}
