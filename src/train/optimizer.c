/*
 * optimizer.c - Adam, learning rate schedule and guard; see optimizer.h.
 */
#include "train/optimizer.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"

double schedule_lr(const struct schedule *s, int64_t step)
{
    double t = (double)step, w = (double)s->warmup;
    double after = s->kind == HEED_SCHEDULE_CONSTANT ? 1 : sqrt(w / t);
    return s->peak * fmin(t / w, after);
}

double schedule_paper_peak(int d_model, int64_t warmup)
{
    return 1 / sqrt((double)d_model * (double)warmup);
}

/* A gradient norm above spike_factor times its running mean is a spike, once the mean covers
 * GUARD_STEPS steps. Each spike raises the mean by spike_growth, so that a norm that stays large is
 * accepted in time. */
static const double spike_factor = 10, mean_decay = 0.98, spike_growth = 1.2;
enum { GUARD_STEPS = 100 };

static double guard_limit(const struct guard *g)
{
    return g->seen < GUARD_STEPS ? 0 : spike_factor * g->norm;
}

static void guard_update(struct guard *g, double norm, bool skipped)
{
    if (skipped) {
        g->norm *= isfinite(norm) ? spike_growth : 1;
        return;
    }
    g->seen++;
    double decay = fmin(mean_decay, 1 - 1 / (double)g->seen);
    g->norm = decay * g->norm + (1 - decay) * norm;
}

/* Norms that optimizer_norms computes. */
static size_t units_of(const struct slices *s)
{
    return s ? (size_t)(s->spans * s->units) : 1;
}

enum heed_status optimizer_open(struct optimizer **out, struct parameters *p,
                                const struct slices *slices, struct heed_error *err)
{
    struct optimizer *o = calloc(1, sizeof *o);
    if (!o) return error_memory(err, sizeof *o, "the optimizer");
    struct backend *be = p->be;
    size_t own = slices ? slices->own : p->n, bytes = own * type_size(p->precision.master);
    o->p = p;
    o->slices = slices;
    o->m = o->v = mat_make(NULL, 1, (int)own, p->precision.master);
    if (p->vector) o->master = o->m;
    enum heed_status s = be->op->alloc(be, &o->m.p, bytes, USED_WHOLE, err);
    if (!s && p->vector) s = be->op->alloc(be, &o->master.p, bytes, USED_WHOLE, err);
    if (!s) s = be->op->alloc(be, &o->v.p, bytes, USED_WHOLE, err);
    size_t norms = units_of(slices) * sizeof *o->sq;
    if (!s) s = be->op->alloc(be, (void **)&o->sq, norms, USED_WHOLE, err);
    if (s) {
        optimizer_free(o);
        return s;
    }
    be->op->zero(be, o->m.p, bytes);
    be->op->zero(be, o->v.p, bytes);
    *out = o;
    return HEED_OK;
}

void optimizer_free(struct optimizer *o)
{
    if (!o) return;
    struct backend *be = o->p->be;
    be->op->free(be, o->m.p);
    be->op->free(be, o->v.p);
    be->op->free(be, o->master.p);
    be->op->free(be, o->sq);
    free(o);
}

void optimizer_begin(struct optimizer *o, struct mat grad, struct adam h)
{
    struct parameters *p = o->p;
    struct backend *be = p->be;
    h.limit = guard_limit(&o->guard);
    o->begun = h;
    be->op->sqnorm(be, o->sq, grad);
    be->op->adam(be, p->master, o->m, o->v, p->copy, grad, o->sq, &h);
    be->op->download(be, &o->sq_host, o->sq, sizeof o->sq_host);
}

enum heed_status optimizer_norms(struct optimizer *o, const struct mat *sum, double *out,
                                 struct heed_error *err)
{
    const struct slices *s = o->slices;
    struct backend *be = o->p->be;
    size_t bytes = units_of(s) * sizeof *o->sq;
    be->op->zero(be, o->sq, bytes);
    for (int i = 0; i < s->spans; i++)
        for (int k = 0; k < s->units; k++) {
            struct span unit = slices_unit(s, i, k);
            if (!unit.n) continue;
            be->op->sqnorm(be, o->sq + i * s->units + k,
                           slices_mat(sum[i], unit.at - s->part[i].at, unit.n));
        }
    be->op->download(be, out, o->sq, bytes);
    return be->op->sync(be, err);
}

/* Copies what is no matrix from the own slices of the master to shared parameters. */
static void publish_vectors(struct optimizer *o)
{
    struct parameters *p = o->p;
    struct backend *be = p->be;
    for (int i = 0; i < p->vectors; i++) {
        const struct flat_part *v = &p->vector[i];
        for (int k = 0; k < o->slices->spans; k++) {
            const struct flat_part *own = &o->slices->part[k];
            size_t from = v->at > own->at ? v->at : own->at;
            size_t end = v->at + v->n < own->at + own->n ? v->at + v->n : own->at + own->n;
            if (from < end)
                be->op->cast(be, slices_mat(p->master, v->to + from - v->at, end - from),
                             slices_mat(o->master, own->to + from - own->at, end - from));
        }
    }
}

void optimizer_refresh(struct optimizer *o)
{
    struct parameters *p = o->p;
    for (int i = 0; i < o->slices->spans; i++) {
        const struct flat_part *own = &o->slices->part[i];
        if (own->n)
            p->be->op->cast(p->be, slices_mat(p->copy, own->at, own->n),
                            slices_mat(o->master, own->to, own->n));
    }
    publish_vectors(o);
}

enum heed_status optimizer_start(struct optimizer *o, const void *values, struct heed_error *err)
{
    struct backend *be = o->p->be;
    size_t size = type_size(o->master.type);
    for (int i = 0; i < o->slices->spans; i++) {
        const struct flat_part *own = &o->slices->part[i];
        be->op->upload(be, (char *)o->master.p + own->to * size,
                       (const char *)values + own->at * size, own->n * size);
    }
    return be->op->sync(be, err);
}

void optimizer_begin_slices(struct optimizer *o, const struct mat *sum, double sq, struct adam h)
{
    const struct slices *s = o->slices;
    struct parameters *p = o->p;
    struct backend *be = p->be;
    struct mat copy = p->copy;
    h.limit = guard_limit(&o->guard);
    o->begun = h;
    o->sq_host = sq;
    be->op->upload(be, o->sq, &o->sq_host, sizeof o->sq_host);
    for (int i = 0; i < s->spans; i++) {
        const struct flat_part *own = &s->part[i];
        if (!own->n) continue;
        if (p->copy.p) copy = slices_mat(p->copy, own->at, own->n);
        struct mat master = o->master.p ? slices_mat(o->master, own->to, own->n)
                                        : slices_mat(p->master, own->at, own->n);
        be->op->adam(be, master, slices_mat(o->m, own->to, own->n),
                     slices_mat(o->v, own->to, own->n), copy, sum[i], o->sq, &h);
    }
    if (o->master.p) publish_vectors(o);
}

enum heed_status optimizer_done(struct optimizer *o, struct update *out, struct heed_error *err)
{
    enum heed_status s = o->p->be->op->sync(o->p->be, err);
    double limit = o->begun.limit;
    if (s) return s;
    out->norm = sqrt(o->sq_host) * o->begun.scale;
    out->skipped = !isfinite(out->norm) || (limit > 0 && out->norm > limit);
    guard_update(&o->guard, out->norm, out->skipped);
    return HEED_OK;
}

enum heed_status optimizer_check(struct optimizer *o, bool *sound, struct heed_error *err)
{
    struct backend *be = o->p->be;
    double sq = 0;
    be->op->sqnorm(be, o->sq, o->master.p ? o->master : o->p->master);
    be->op->download(be, &sq, o->sq, sizeof sq);
    enum heed_status s = be->op->sync(be, err);
    *sound = isfinite(sq);
    return s;
}
