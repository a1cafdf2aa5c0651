/*
 * weights.c - parameters to and from safetensors files, tensor by tensor; see weights.h.
 */
#include "store/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"

struct parameter *weights_list(struct parameters *p, int *n, struct heed_error *err)
{
    *n = parameters_list(&p->config, NULL, 0);
    struct parameter *list = malloc(*n * sizeof *list);
    if (!list)
        error_memory(err, *n * sizeof *list, "the list of parameters");
    else
        parameters_list(&p->config, list, *n);
    return list;
}

/* Names in the file: the array's prefix before the tensor's name. */
typedef char file_name[sizeof((struct parameter *)0)->name + 8];

enum heed_status weights_save(struct parameters *p, const struct flat *flat, int arrays,
                              const char *path, struct heed_error *err)
{
    enum heed_status status = HEED_ENOMEM;
    enum type type = p->precision.master;
    size_t size = type_size(type), bytes = p->n * size;
    int n, count = 0;
    struct parameter *list = weights_list(p, &n, err);
    struct tensor *t = calloc((size_t)arrays * (list ? n : 0) + 1, sizeof *t);
    file_name *name = calloc((size_t)arrays * (list ? n : 0) + 1, sizeof *name);
    char *host = flat[0].host ? NULL : malloc(arrays * bytes);
    if (!list || !t || !name || !(host || flat[0].host)) {
        error_memory(err, arrays * bytes, "writing parameters");
        goto out;
    }
    for (int a = 0; a < arrays; a++) {
        const char *data = host ? host + a * bytes : flat[a].host;
        if (host) p->be->op->download(p->be, host + a * bytes, flat[a].m.p, bytes);
        for (int i = 0; i < n; i++, count++) {
            snprintf(name[count], sizeof name[count], "%s%s", flat[a].prefix, list[i].name);
            bool vector = list[i].dims == 1;
            t[count] = (struct tensor){
                .name = name[count],
                .type = type,
                .dims = list[i].dims,
                .shape = {vector ? list[i].cols : list[i].rows, vector ? 0 : list[i].cols},
                .data = data + list[i].at * size,
                .bytes = (size_t)list[i].rows * list[i].cols * size};
        }
    }
    status = p->be->op->sync(p->be, err);
    if (!status) status = safetensors_write(path, t, count, err);
out:
    free(host);
    free(name);
    free(t);
    free(list);
    return status;
}

/* Neither infinite nor NaN. A product may pass over a NaN in a weight (gemm.h), so it must not get
 * in. */
static bool all_finite(const struct tensor *t)
{
    size_t n = t->bytes / type_size(t->type);
    bool good = true;
    if (t->type == TYPE_F64)
        for (size_t i = 0; i < n; i++) good &= isfinite(((const double *)t->data)[i]);
    if (t->type == TYPE_F32)
        for (size_t i = 0; i < n; i++) good &= isfinite(((const float *)t->data)[i]);
    if (t->type == TYPE_BF16)
        for (size_t i = 0; i < n; i++) good &= (((const uint16_t *)t->data)[i] & 0x7f80) != 0x7f80;
    return good;
}

enum heed_status weights_check_types(const struct safetensors *file, enum type type,
                                     const char *path, struct heed_error *err)
{
    for (int i = 0; i < safetensors_count(file); i++) {
        const struct tensor *t = safetensors_at(file, i);
        if (t->type != type)
            return error_set(err, HEED_EFORMAT, "%s: tensor %.80s is %s, expected %s", path,
                             t->name, tensor_dtype(t->type), tensor_dtype(type));
    }
    return HEED_OK;
}

/* "[7]" or "[7, 5]" */
static void shape_format(char out[64], int dims, int64_t rows, int64_t cols)
{
    if (dims == 2)
        snprintf(out, 64, "[%lld, %lld]", (long long)rows, (long long)cols);
    else
        snprintf(out, 64, "[%lld]", (long long)cols);
}

enum heed_status weights_check(const struct tensor *t, const struct parameter *want, enum type type,
                               const char *name, const char *path, struct heed_error *err)
{
    if (!t) return error_set(err, HEED_EFORMAT, "%s: tensor %s is missing", path, name);
    if (t->type != type)
        return error_set(err, HEED_EFORMAT, "%s: tensor %s is %s, expected %s", path, name,
                         tensor_dtype(t->type), tensor_dtype(type));
    int64_t rows = t->dims == 2 ? t->shape[0] : 1, cols = t->shape[t->dims - 1];
    if (t->dims != want->dims || rows != want->rows || cols != want->cols) {
        char found[64], expected[64];
        shape_format(found, t->dims, rows, cols);
        shape_format(expected, want->dims, want->rows, want->cols);
        return error_set(err, HEED_EFORMAT,
                         "%s: tensor %s has shape %s, expected %s by config.json", path, name,
                         found, expected);
    }
    if (!all_finite(t))
        return error_set(err, HEED_EFORMAT, "%s: tensor %s holds a value that is not finite", path,
                         name);
    return HEED_OK;
}

/* The tensor that holds a parameter of an array; name is set to what the file calls it. */
static const struct tensor *find_tensor(const struct safetensors *file, file_name name,
                                        const char *prefix, const struct parameter *p)
{
    snprintf(name, sizeof(file_name), "%s%s", prefix, p->name);
    return safetensors_find(file, name);
}

/* Whether the file holds the n tensors of each array and no others. */
static enum heed_status check_file(const struct safetensors *file, enum type type,
                                   const struct flat *flat, int arrays,
                                   const struct parameter *list, int n, const char *path,
                                   struct heed_error *err)
{
    enum heed_status s = weights_check_types(file, type, path, err);
    for (int a = 0; a < arrays; a++)
        for (int i = 0; i < n && !s; i++) {
            file_name name;
            const struct tensor *t = find_tensor(file, name, flat[a].prefix, &list[i]);
            s = weights_check(t, &list[i], type, name, path, err);
        }
    if (!s && safetensors_count(file) != arrays * n)
        s = error_set(err, HEED_EFORMAT, "%s holds %d tensors, expected %d by config.json", path,
                      safetensors_count(file), arrays * n);
    return s;
}

/* Uploads the elements of a tensor, which is at `at` in the flat array, that the array has. */
static void load_tensor(struct parameters *p, const struct flat *f, size_t at,
                        const struct tensor *t)
{
    size_t size = type_size(p->precision.master), n = t->bytes / size;
    struct flat_part whole = {0, p->n, 0};
    const struct flat_part *part = f->part ? f->part : &whole;
    for (int i = 0; i < (f->part ? f->parts : 1); i++) {
        size_t from = at > part[i].at ? at : part[i].at;
        size_t end = at + n < part[i].at + part[i].n ? at + n : part[i].at + part[i].n;
        if (from >= end) continue;
        p->be->op->upload(p->be, (char *)f->m.p + (part[i].to + from - part[i].at) * size,
                          (const char *)t->data + (from - at) * size, (end - from) * size);
    }
}

enum heed_status weights_load(struct parameters *p, const struct flat *flat, int arrays,
                              const char *path, struct heed_error *err)
{
    int n;
    struct safetensors *file = NULL;
    struct parameter *list = weights_list(p, &n, err);
    if (!list) return HEED_ENOMEM;
    enum heed_status s = safetensors_open(&file, path, err);
    if (!s) s = check_file(file, p->precision.master, flat, arrays, list, n, path, err);
    if (!s) {
        for (int a = 0; a < arrays; a++)
            for (int i = 0; i < n; i++) {
                file_name name;
                const struct tensor *t = find_tensor(file, name, flat[a].prefix, &list[i]);
                load_tensor(p, &flat[a], list[i].at, t);
            }
        parameters_refresh_copy(p);
        s = p->be->op->sync(p->be, err);
    }
    safetensors_free(file);
    free(list);
    return s;
}
