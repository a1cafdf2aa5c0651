/*
 * average.c - the mean of several checkpoints' weights (paper 6.1).
 */
#include <stdlib.h>

#include "base/error.h"
#include "base/file.h"
#include "store/directory.h"
#include "store/weights.h"

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

/* Adds the weights of the model in dir to sum, by way of p. */
static enum heed_status add_model(double *sum, struct parameters *p, const char *dir,
                                  struct heed_error *err)
{
    char path[FILE_PATH_MAX];
    const float *weight = p->master.p;
    enum heed_status s = directory_weights(path, dir, err);
    if (!s) s = weights_load(p, &(struct flat){.prefix = "", .m = p->master}, 1, path, err);
    for (size_t i = 0; i < p->n && !s; i++) sum[i] += (double)weight[i];
    return s;
}

/* The weights of p become the mean of those of n models, summed in double. */
static enum heed_status load_mean(struct parameters *p, const char *const *dirs, int n,
                                  struct heed_error *err)
{
    float *weight = p->master.p;
    double *sum = calloc(p->n, sizeof *sum);
    if (!sum) return error_memory(err, p->n * sizeof *sum, "the mean");
    enum heed_status s = HEED_OK;
    for (int i = 0; i < n && !s; i++) s = add_model(sum, p, dirs[i], err);
    for (size_t i = 0; i < p->n && !s; i++) weight[i] = (float)(sum[i] / n);
    free(sum);
    return s;
}

enum heed_status heed_average(const char *const *dirs, int n, const char *out,
                              struct heed_error *err)
{
    struct heed_config config;
    struct heed_tokenizer *t = NULL;
    struct backend *be = NULL;
    struct parameters *p = NULL;
    enum heed_status s = error_strings(err, "dirs", dirs, n);
    if (!s && n == 0) s = error_set(err, HEED_EARG, "no model to average was given");
    if (!s && !out) s = error_null(err, "out");
    if (!s) s = directory_check_out(dirs, n, out, err);
    if (!s) s = directory_read(&config, &t, dirs[0], err);
    if (!s) s = check_alike(&config, t, dirs, n, err);
    if (!s) s = backend_open(&be, "ref", 1, err); /* its memory is the host's */
    if (!s) s = parameters_open(&p, be, &config, precision_f32, err);
    if (!s) s = load_mean(p, dirs, n, err);
    if (!s) s = directory_save(out, p, NULL, t, err);
    parameters_free(p);
    if (be) be->op->close(be);
    heed_tokenizer_free(t);
    return s;
}
