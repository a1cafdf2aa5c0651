/*
 * table1.c - time, memory and path length of one layer (paper 4): the rows measure.
 *
 * A row is a kind of layer of one width, measured at all lengths, or the path lengths of a kind.
 * The report is in table1_report.c.
 */
#include "paper/table1.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "ops/engine.h"
#include "paper/path.h"

const char *const table1_kind[LAYER_KINDS] = {"attention", "recurrent", "convolution",
                                              "restricted"};

enum { LEAST_WIDTH = 64 };

/* The number of a row is its kind, for paths, or width * LAYER_KINDS + kind. */

static enum heed_status plan(struct heed_study *s, struct heed_error *err)
{
    enum heed_status st = HEED_OK;
    char name[ROW_NAME];
    if (s->o.widest < LEAST_WIDTH || s->o.longest < TABLE1_LEAST_LENGTH)
        return error_set(err, HEED_EARG,
                         "--widest is %d and --longest %d, expected at least %d "
                         "and %d",
                         s->o.widest, s->o.longest, LEAST_WIDTH, TABLE1_LEAST_LENGTH);
    for (int kind = 0; kind < LAYER_KINDS && !st; kind++) {
        snprintf(name, sizeof name, "path-%s", table1_kind[kind]);
        st = study_add_row(s, kind, name, err, "path length of the %s layer", table1_kind[kind]);
    }
    for (int d = LEAST_WIDTH; d <= s->o.widest && !st; d *= 2) {
        for (int kind = 0; kind < LAYER_KINDS && !st; kind++) {
            snprintf(name, sizeof name, "%s-d%d", table1_kind[kind], d);
            st = study_add_row(s, d * LAYER_KINDS + kind, name, err,
                               "one %s layer of width %d, up to %d positions", table1_kind[kind], d,
                               s->o.longest);
        }
    }
    return st;
}

/* ---- time ---- */

/* Milliseconds of the fastest of some calls: one to warm up, then at least three and for a while.
 */
static enum heed_status fastest(struct layer *l, void (*call)(struct layer *), double *ms,
                                struct heed_error *err)
{
    enum { LEAST = 3 };
    const double least_seconds = 0.05;
    double sum = 0;
    enum heed_status st = HEED_OK;
    *ms = INFINITY;
    for (int i = 0; (i <= LEAST || sum < least_seconds) && !st; i++) {
        double began = clock_now();
        call(l);
        st = l->be->op->sync(l->be, err);
        double took = clock_now() - began;
        if (!i) continue;
        sum += took;
        *ms = fmin(*ms, took * 1e3);
    }
    return st;
}

static enum heed_status time_layer(struct layer *l, json_t *point, struct heed_error *err)
{
    double forward, backward, attend = NAN, attend_backward = NAN;
    bool attention = l->kind == LAYER_ATTENTION || l->kind == LAYER_RESTRICTED;
    enum heed_status st = fastest(l, layer_forward, &forward, err);
    if (!st) st = fastest(l, layer_backward, &backward, err);
    if (!st && attention) st = fastest(l, layer_attend, &attend, err);
    if (!st && attention) st = fastest(l, layer_attend_backward, &attend_backward, err);
    if (st) return st;
    json_object_set_new(point, "n", json_integer(l->n));
    result_set(point, "forward_ms", forward);
    result_set(point, "backward_ms", backward);
    if (attention) {
        result_set(point, "attend_forward_ms", attend);
        result_set(point, "attend_backward_ms", attend_backward);
    }
    json_object_set_new(point, "kept_bytes", json_integer((json_int_t)l->kept));
    return HEED_OK;
}

static enum heed_status compute_times(struct heed_study *s, const struct row *r, struct backend *be,
                                      json_t *result, bool *done, struct heed_error *err)
{
    int d = r->number / LAYER_KINDS, kind = r->number % LAYER_KINDS;
    enum type type = s->o.train.precision == HEED_BF16 ? TYPE_BF16 : TYPE_F32;
    json_t *points = json_array();
    enum heed_status st = HEED_OK;
    json_object_set_new(result, "kind", json_string(table1_kind[kind]));
    json_object_set_new(result, "d", json_integer(d));
    json_object_set_new(result, "points", points);
    for (int n = TABLE1_LEAST_LENGTH; n <= s->o.longest && !st; n *= 2) {
        struct layer l;
        if (study_stopping(s)) return HEED_OK;
        st = layer_open(&l, be, kind, n, d, TABLE1_WINDOW, type, s->o.seed, err);
        if (st) break;
        json_t *point = json_object();
        st = time_layer(&l, point, err);
        json_array_append_new(points, point);
        layer_close(&l);
    }
    *done = !st;
    return st;
}

/* ---- paths ---- */

static enum heed_status compute_path(struct heed_study *s, const struct row *r, struct backend *be,
                                     json_t *result, bool *done, struct heed_error *err)
{
    int path[PATH_DISTANCES];
    enum heed_status st = path_measure(be, (enum layer_kind)r->number, s->o.seed, path, err);
    json_t *list = json_array();
    for (int i = 0; i < PATH_DISTANCES && !st; i++)
        json_array_append_new(list,
                              json_pack("{si si}", "distance", path_distance[i], "path", path[i]));
    json_object_set_new(result, "kind", json_string(table1_kind[r->number]));
    json_object_set_new(result, "paths", list);
    *done = !st;
    return st;
}

static enum heed_status compute(struct heed_study *s, const struct row *r, json_t *result,
                                bool *done, struct heed_error *err)
{
    struct backend *be;
    enum heed_status st = engine_fork(s->engine, &be, err);
    if (st) return st;
    st = r->number < LAYER_KINDS ? compute_path(s, r, be, result, done, err)
                                 : compute_times(s, r, be, result, done, err);
    be->op->close(be);
    return st;
}

static enum heed_status settings(struct heed_study *s, json_t *j, struct heed_error *err)
{
    (void)err;
    json_object_set_new(j, "longest", json_integer(s->o.longest));
    json_object_set_new(j, "widest", json_integer(s->o.widest));
    json_object_set_new(j, "precision",
                        json_string(s->o.train.precision == HEED_BF16 ? "bf16" : "f32"));
    return HEED_OK;
}

const struct experiment table1_experiment = {
    .name = "table1",
    .title = "Table 1: time, memory and path length of one layer",
    .plan = plan,
    .settings = settings,
    .compute = compute,
    .report = table1_report,
};
