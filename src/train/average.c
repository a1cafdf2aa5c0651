/*
 * average.c - the mean of several checkpoints' weights (paper 6.1).
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "model/parameters.h"
#include "store/directory.h"
#include "store/safetensors.h"

/* Adds the tensors of the model in dir to sum, in the order of the first model's file. */
static enum heed_status add_file(double *sum, const struct safetensors *first, const char *dir,
                                 struct heed_error *err)
{
    char path[FILE_PATH_MAX];
    struct safetensors *f = NULL;
    enum heed_status s = directory_weights(path, dir, err);
    if (!s) s = safetensors_open(&f, path, err);
    for (int i = 0; !s && i < safetensors_count(first); i++) {
        const struct tensor *a = safetensors_at(first, i), *b = safetensors_find(f, a->name);
        if (!b)
            s = error_set(err, HEED_EFORMAT, "%s: tensor %.80s is missing", path, a->name);
        else if (b->type != TYPE_F32)
            s = error_set(err, HEED_EFORMAT,
                          "%s: tensor %.80s is %s, expected F32: only weights in F32 can be "
                          "averaged",
                          path, a->name, tensor_dtype(b->type));
        else if (b->dims != a->dims || b->bytes != a->bytes)
            s = error_set(err, HEED_EFORMAT,
                          "%s: tensor %.80s has %zu bytes, expected %zu as in the first model",
                          path, a->name, b->bytes, a->bytes);
        if (s) break;
        size_t n = a->bytes / sizeof(float);
        for (size_t k = 0; k < n; k++) sum[k] += (double)((const float *)b->data)[k];
        sum += n;
    }
    if (!s && safetensors_count(f) != safetensors_count(first))
        s = error_set(err, HEED_EFORMAT, "%s holds %d tensors, expected %d as in the first model",
                      path, safetensors_count(f), safetensors_count(first));
    safetensors_free(f);
    return s;
}

static enum heed_status write_mean(const double *sum, int models, const struct safetensors *first,
                                   const char *out, struct heed_error *err)
{
    char path[FILE_PATH_MAX];
    int n = safetensors_count(first);
    size_t elements = 0, at = 0;
    for (int i = 0; i < n; i++) elements += safetensors_at(first, i)->bytes / sizeof(float);
    float *mean = malloc(elements * sizeof *mean + 1);
    struct tensor *t = malloc((n + 1) * sizeof *t);
    enum heed_status s = mean && t ? directory_weights(path, out, err)
                                   : error_memory(err, elements * sizeof *mean, "the mean");
    if (!s) {
        for (size_t k = 0; k < elements; k++) mean[k] = (float)(sum[k] / models);
        for (int i = 0; i < n; i++) {
            t[i] = *safetensors_at(first, i);
            t[i].data = mean + at;
            at += t[i].bytes / sizeof(float);
        }
        s = safetensors_write(path, t, n, err);
    }
    free(t);
    free(mean);
    return s;
}

/* All models must have the configuration of the first and its vocabulary, t. */
static enum heed_status check_alike(const struct heed_config *c, const struct heed_tokenizer *t,
                                    const char *const *dirs, int n, struct heed_error *err)
{
    enum heed_status s = HEED_OK;
    for (int i = 1; i < n && !s; i++) {
        bool same = true;
        s = directory_same_config(dirs[i], c, err);
        if (!s) s = directory_same_vocabulary(dirs[i], t, &same, err);
        if (!s && !same)
            s = error_set(err, HEED_EFORMAT, "%s has another vocabulary than %s", dirs[i], dirs[0]);
    }
    return s;
}

enum heed_status heed_average(const char *const *dirs, int n, const char *out,
                              struct heed_error *err)
{
    char path[FILE_PATH_MAX];
    struct safetensors *first = NULL;
    struct heed_tokenizer *t = NULL;
    double *sum = NULL;
    size_t elements = 0;
    struct heed_config config;
    enum heed_status s = error_strings(err, "dirs", dirs, n);
    if (!s && n == 0) s = error_set(err, HEED_EARG, "no model to average was given");
    if (!s && !out) s = error_null(err, "out");
    if (!s) s = directory_check_out(dirs, n, out, err);
    if (!s) s = directory_read(&config, &t, dirs[0], err);
    if (!s) s = check_alike(&config, t, dirs, n, err);
    if (!s) s = directory_weights(path, dirs[0], err);
    if (!s) s = safetensors_open(&first, path, err);
    for (int i = 0; !s && i < safetensors_count(first); i++)
        elements += safetensors_at(first, i)->bytes / sizeof(float);
    if (!s && !(sum = calloc(elements + 1, sizeof *sum)))
        s = error_memory(err, elements * sizeof *sum, "the mean");
    for (int i = 0; i < n && !s; i++) s = add_file(sum, first, dirs[i], err);
    if (!s && elements != parameters_count(&config))
        s = error_set(err, HEED_EFORMAT, "%s holds %zu parameters, expected %zu by %s", path,
                      elements, parameters_count(&config), MODEL_CONFIG);
    if (!s) s = directory_write(out, &config, t, err);
    if (!s) s = write_mean(sum, n, first, out, err);
    free(sum);
    safetensors_free(first);
    heed_tokenizer_free(t);
    return s;
}
