/*
 * path.c - path lengths by the reach of the gradient; see path.h.
 */
#include "paper/path.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

const int path_distance[PATH_DISTANCES] = {1, 2, 4, 8, 16, 32};

/* The gradient of the loss is 1 at the last position of the first sentence and 0 elsewhere. */
static enum heed_status seed_gradient(struct layer *l, struct heed_error *err)
{
    size_t n = (size_t)l->dy.rows * l->dy.cols;
    float *host = calloc(n, sizeof *host);
    if (!host) return error_memory(err, n * sizeof *host, "a gradient");
    float *last = host + (size_t)layer_row(l, 0, l->n - 1) * l->dy.cols;
    for (int j = 0; j < l->dy.cols; j++) last[j] = 1;
    l->be->op->upload(l->be, l->dy.p, host, n * sizeof *host);
    enum heed_status st = l->be->op->sync(l->be, err);
    free(host);
    return st;
}

/* Notes `length` as the path of the distances that the gradient dx has reached now. *all: every
 * distance has one. */
static enum heed_status note(struct layer *l, int length, int path[PATH_DISTANCES], bool *all,
                             struct heed_error *err)
{
    float row[PATH_WIDTH];
    enum heed_status st = HEED_OK;
    *all = true;
    for (int i = 0; i < PATH_DISTANCES && !st; i++) {
        int at = layer_row(l, 0, l->n - 1 - path_distance[i]);
        if (path[i]) continue;
        l->be->op->download(l->be, row, mat_at(l->dx, at, 0), sizeof row);
        st = l->be->op->sync(l->be, err);
        for (int j = 0; j < PATH_WIDTH && !path[i]; j++)
            if (row[j] != 0) path[i] = length;
        *all = *all && path[i];
    }
    return st;
}

static enum heed_status open_layer(struct layer *l, struct backend *be, enum layer_kind kind,
                                   uint64_t seed, struct heed_error *err)
{
    return layer_open(l, be, kind, PATH_LENGTH, PATH_WIDTH, PATH_WINDOW, TYPE_F32, seed, err);
}

static enum heed_status measure_steps(struct backend *be, uint64_t seed, int path[PATH_DISTANCES],
                                      struct heed_error *err)
{
    struct layer l;
    bool all = false;
    enum heed_status st = open_layer(&l, be, LAYER_RECURRENT, seed, err);
    if (st) return st;
    st = seed_gradient(&l, err);
    layer_forward(&l);
    for (int steps = 1; steps < PATH_LENGTH && !st && !all; steps++) {
        layer_backward_steps(&l, steps);
        st = note(&l, steps, path, &all, err);
    }
    layer_close(&l);
    return st;
}

/* Runs backward from the last of PATH_LAYERS layers, which see the output of the one before. */
static enum heed_status measure_stack(struct layer *l, int path[PATH_DISTANCES],
                                      struct heed_error *err)
{
    const struct ops *op = l->be->op;
    bool all = false;
    for (int i = 0; i < PATH_LAYERS; i++) {
        layer_forward(&l[i]);
        if (i + 1 < PATH_LAYERS) op->cast(l->be, l[i + 1].x, l[i].y);
    }
    enum heed_status st = seed_gradient(&l[PATH_LAYERS - 1], err);
    for (int i = PATH_LAYERS - 1; i >= 0 && !st && !all; i--) {
        layer_backward(&l[i]);
        st = note(&l[i], PATH_LAYERS - i, path, &all, err);
        if (i) op->cast(l->be, l[i - 1].dy, l[i].dx);
    }
    return st;
}

enum heed_status path_measure(struct backend *be, enum layer_kind kind, uint64_t seed,
                              int path[PATH_DISTANCES], struct heed_error *err)
{
    memset(path, 0, PATH_DISTANCES * sizeof *path);
    if (kind == LAYER_RECURRENT) return measure_steps(be, seed, path, err);
    struct layer *l = calloc(PATH_LAYERS, sizeof *l);
    if (!l) return error_memory(err, PATH_LAYERS * sizeof *l, "layers");
    int n = 0;
    enum heed_status st = HEED_OK;
    while (n < PATH_LAYERS && !(st = open_layer(&l[n], be, kind, seed + (uint64_t)n, err))) n++;
    if (!st) st = measure_stack(l, path, err);
    while (n > 0) layer_close(&l[--n]);
    free(l);
    return st;
}
