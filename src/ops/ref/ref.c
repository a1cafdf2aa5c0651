/*
 * ref.c - the reference backend: every op in plain C, as its formula reads. Other backends are
 * tested against it.
 *
 * Arithmetic is in double whatever the type of the matrices (f32, bf16 or f64). So gradients of a
 * model in f64 can be checked by finite differences, and the results of a model in f32 are those
 * that a fast backend must approximate. Nothing here is fast.
 */
#include "ops/ref/ref.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ops/drop.h"
#include "ops/quant.h"

/* ---- memory ---- */

static enum heed_status ref_alloc(struct backend *be, void **p, size_t bytes, enum use use,
                                  struct heed_error *err)
{
    (void)be, (void)use;
    void *block = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!block && bytes) return error_memory(err, bytes, "the reference backend");
    *p = block;
    return HEED_OK;
}

static void ref_free(struct backend *be, void *p)
{
    (void)be;
    free(p);
}

static void ref_zero(struct backend *be, void *p, size_t bytes)
{
    (void)be;
    memset(p, 0, bytes);
}

static void ref_copy(struct backend *be, void *dst, const void *src, size_t bytes)
{
    (void)be;
    memcpy(dst, src, bytes);
}

static enum heed_status ref_sync(struct backend *be, struct heed_error *err)
{
    (void)be, (void)err;
    return HEED_OK;
}

static void ref_close(struct backend *be)
{
    free(be);
}

/* ---- packed weights ---- */

struct ref {
    struct backend base;
    float row[1 << 16];   /* a row of x, rounded as packed weights require */
    double sums[1 << 14]; /* a row before its norm, at most the widest d_model */
};

/* A packed row is [1 + cols] floats: the scale, then the numbers as multiples of it. The scale is 1
 * unless the type is int8. */
static float *packed_at(struct mat w, int row)
{
    return (float *)w.p + (size_t)row * (w.cols + 1);
}

/* Rounds a row as a packed type requires, to multiples of *scale. */
static void pack_row(float *scale, float *row, int n, enum type type)
{
    float most = quant_most(row, n);
    for (int i = 0; i < n; i++) {
        int8_t q;
        if (type == TYPE_PACKED_BF16) row[i] = bf16_to_float(bf16_from_float(row[i]));
        if (type != TYPE_PACKED_I8) continue;
        quant_numbers(&q, row + i, 1, most);
        row[i] = q;
    }
    if (type == TYPE_PACKED_I8) *scale = quant_scale(most);
}

static size_t ref_pack_bytes(enum type type, int rows, int cols)
{
    (void)type;
    return (size_t)rows * (cols + 1) * sizeof(float);
}

static void ref_pack(struct backend *be, struct mat w, struct stored from)
{
    (void)be;
    for (int r = 0; r < w.rows; r++) {
        float *to = packed_at(w, r), scale = from.type == TYPE_I8 ? from.scale[r] : 1;
        struct mat m = {(void *)from.v, w.rows, w.cols, w.cols, from.type};
        to[0] = 1;
        for (int c = 0; c < w.cols; c++)
            to[1 + c] =
                from.type == TYPE_I8 ? scale * ((int8_t *)mat_at(m, r, 0))[c] : (float)get(m, r, c);
        pack_row(to, to + 1, w.cols, w.type);
    }
}

/* ---- embedding: paper 3.4, 3.5 ---- */

static void ref_embed(struct backend *be, struct mat y, const int32_t *id, const int32_t *pos,
                      struct mat e, struct mat position, struct drop d)
{
    (void)be;
    for (int i = 0; i < y.rows; i++) {
        struct drop_row mask = drop_row(d, i);
        for (int c = 0; c < y.cols; c++) {
            double w = type_packed(e.type)
                           ? (double)packed_at(e, id[i])[0] * packed_at(e, id[i])[1 + c]
                           : get(e, id[i], c);
            double place = position.p ? get(position, pos[i], c) : 0;
            set(y, i, c, (w * sqrt(y.cols) + place) * drop_factor(mask, c));
        }
    }
}

static void ref_embed_bwd(struct backend *be, struct mat de, const int32_t *id, struct mat dy,
                          double scale, struct drop d)
{
    (void)be;
    for (int i = 0; i < dy.rows; i++) {
        struct drop_row mask = drop_row(d, i);
        for (int c = 0; c < dy.cols; c++)
            add(de, id[i], c, get(dy, i, c) * scale * drop_factor(mask, c));
    }
}

static void ref_rotate(struct backend *be, struct mat x, const int32_t *pos, struct mat table,
                       bool opposite)
{
    (void)be;
    for (int i = 0; i < x.rows; i++)
        for (int c = 0; c < x.cols; c += 2) {
            int pair = c % table.cols;
            double cosine = get(table, pos[i], pair), sine = get(table, pos[i], pair + 1);
            double even = get(x, i, c), odd = get(x, i, c + 1);
            if (opposite) sine = -sine;
            set(x, i, c, even * cosine - odd * sine);
            set(x, i, c + 1, even * sine + odd * cosine);
        }
}

/* ---- activations ---- */

/* (1 + erf(z / sqrt(2))) / 2 without the cancellation below 0 */
static double normal_distribution(double z)
{
    return erfc(-z / sqrt(2)) / 2;
}

/* 1 / (1 + exp(-z)) */
static double logistic(double z)
{
    return 1 / (1 + exp(-z));
}

static double activation_value(enum activation_kind kind, double z)
{
    switch (kind) {
    case ACT_RELU:
        return z < 0 ? 0 : z;
    case ACT_GELU:
        return z * normal_distribution(z);
    case ACT_SILU:
        return z * logistic(z);
    default:
        return z;
    }
}

static double activation_derivative(enum activation_kind kind, double z)
{
    switch (kind) {
    case ACT_RELU:
        return z > 0 ? 1 : 0;
    case ACT_GELU:
        return normal_distribution(z) + z * exp(-z * z / 2) / sqrt(2 * acos(-1));
    case ACT_SILU:
        return logistic(z) * (1 + z * logistic(-z));
    default:
        return 1;
    }
}

/* ---- linear: paper 3.3 ---- */

/* Stores element (i, o) of y, and of slope where it is wanted, from the product z. */
static void set_activated(struct mat y, int i, int o, double z, struct activation f)
{
    double mask = drop_factor(drop_row(f.drop, i), o);
    set(y, i, o, activation_value(f.kind, z) * mask);
    if (f.slope.p) set(f.slope, i, o, activation_derivative(f.kind, z) * mask);
}

/* row: work space, [x.cols] */
static void linear_packed(float *row, struct mat y, struct mat x, struct mat w, struct mat b,
                          struct activation f)
{
    float scale = 1;
    for (int i = 0; i < y.rows; i++) {
        for (int c = 0; c < x.cols; c++) row[c] = (float)get(x, i, c);
        pack_row(&scale, row, x.cols, w.type);
        for (int o = 0; o < y.cols; o++) {
            const float *v = packed_at(w, o);
            double s = 0;
            for (int c = 0; c < x.cols; c++) s += (double)row[c] * v[1 + c];
            set_activated(y, i, o, s * scale * v[0] + (b.p ? get(b, 0, o) : 0), f);
        }
    }
}

static void ref_linear(struct backend *be, struct mat y, struct mat x, struct mat w, struct mat b,
                       struct activation f)
{
    if (type_packed(w.type)) {
        linear_packed(((struct ref *)be)->row, y, x, w, b, f);
        return;
    }
    for (int i = 0; i < y.rows; i++)
        for (int o = 0; o < y.cols; o++) {
            double s = b.p ? get(b, 0, o) : 0;
            for (int c = 0; c < x.cols; c++) s += get(x, i, c) * get(w, o, c);
            set_activated(y, i, o, s, f);
        }
}

static void ref_gate(struct backend *be, struct mat h, struct mat z, struct drop d)
{
    (void)be;
    for (int i = 0; i < h.rows; i++) {
        struct drop_row mask = drop_row(d, i);
        for (int c = 0; c < h.cols; c++)
            set(h, i, c,
                activation_value(ACT_SILU, get(z, i, c)) * get(z, i, h.cols + c) *
                    drop_factor(mask, c));
    }
}

/* db += column sums of dy: a bias was added to every row. */
static void add_columns(struct mat db, struct mat dy)
{
    for (int c = 0; c < db.cols; c++) {
        double sum = 0;
        for (int i = 0; i < dy.rows; i++) sum += get(dy, i, c);
        add(db, 0, c, sum);
    }
}

/* The derivative of x = drop(f(z)) by z. Where it is not kept, f is the identity, or ReLU, whose
 * output x is above 0 where z was and the element was not dropped. */
static double slope_of(struct activation f, struct mat x, int i, int c)
{
    if (activation_keeps_slope(f.kind)) return get(f.slope, i, c);
    return activation_derivative(f.kind, get(x, i, c)) * drop_factor(drop_row(f.drop, i), c);
}

static void ref_linear_bwd(struct backend *be, struct mat dx, float beta, struct mat db,
                           struct mat dw, struct mat dy, struct mat x, struct mat w,
                           struct activation f)
{
    (void)be;
    assert((dx.p && beta == 0) || (f.kind == ACT_NONE && f.drop.p == 0 && !db.p));
    for (int i = 0; i < dx.rows; i++)
        for (int c = 0; c < dx.cols; c++) {
            double s = beta != 0 ? (double)beta * get(dx, i, c) : 0;
            for (int o = 0; o < dy.cols; o++) s += get(dy, i, o) * get(w, o, c);
            set(dx, i, c, s * slope_of(f, x, i, c));
        }
    add_columns(db, dx);
    for (int o = 0; o < dy.cols; o++)
        for (int c = 0; c < x.cols; c++) {
            double s = 0;
            for (int i = 0; i < dy.rows; i++) s += get(dy, i, o) * get(x, i, c);
            add(dw, o, c, s);
        }
}

static void ref_gate_bwd(struct backend *be, struct mat dz, struct mat db, struct mat dh,
                         struct mat z, struct drop d)
{
    (void)be;
    for (int i = 0; i < dh.rows; i++) {
        struct drop_row mask = drop_row(d, i);
        for (int c = 0; c < dh.cols; c++) {
            double left = get(z, i, c), right = get(z, i, dh.cols + c);
            double g = get(dh, i, c) * drop_factor(mask, c);
            set(dz, i, c, g * right * activation_derivative(ACT_SILU, left));
            set(dz, i, dh.cols + c, g * activation_value(ACT_SILU, left));
        }
    }
    add_columns(db, dz);
}

static void ref_bias_bwd(struct backend *be, struct mat db, struct mat dy)
{
    (void)be;
    add_columns(db, dy);
}

/* ---- dropout + residual + layer norm: paper 3.1, 5.4 ---- */

/* Row i of y = norm(t) * g + b, where t are the numbers of the row. */
static void norm_row(struct mat y, struct mat xhat, struct mat rstd, int i, const double *t,
                     struct mat g, struct mat b)
{
    int n = y.cols;
    double mean = 0, var = 0;
    for (int c = 0; c < n; c++) mean += t[c] / n;
    for (int c = 0; c < n; c++) var += (t[c] - mean) * (t[c] - mean) / n;
    double s = 1 / sqrt(var + NORM_EPSILON);
    if (rstd.p) set(rstd, i, 0, s);
    for (int c = 0; c < n; c++) {
        if (xhat.p) set(xhat, i, c, (t[c] - mean) * s);
        set(y, i, c, (t[c] - mean) * s * get(g, 0, c) + get(b, 0, c));
    }
}

static void ref_add_norm(struct backend *be, struct mat y, struct mat xhat, struct mat rstd,
                         struct mat x, struct mat r, struct mat g, struct mat b, struct drop d)
{
    double *t = ((struct ref *)be)->sums;
    for (int i = 0; i < y.rows; i++) {
        struct drop_row mask = drop_row(d, i);
        for (int c = 0; c < y.cols; c++) t[c] = get(x, i, c) + get(r, i, c) * drop_factor(mask, c);
        norm_row(y, xhat, rstd, i, t, g, b);
    }
}

static void ref_norm(struct backend *be, struct mat y, struct mat xhat, struct mat rstd,
                     struct mat x, struct mat g, struct mat b)
{
    double *t = ((struct ref *)be)->sums;
    for (int i = 0; i < y.rows; i++) {
        for (int c = 0; c < y.cols; c++) t[c] = get(x, i, c);
        norm_row(y, xhat, rstd, i, t, g, b);
    }
}

static void ref_add(struct backend *be, struct mat y, struct mat x, struct mat r, struct drop d)
{
    (void)be;
    for (int i = 0; i < y.rows; i++) {
        struct drop_row mask = drop_row(d, i);
        for (int c = 0; c < y.cols; c++)
            set(y, i, c, get(x, i, c) + get(r, i, c) * drop_factor(mask, c));
    }
}

/* Adds to dg and db, and writes dx = beta * dx + the gradient of x in y = norm(x) * g + b. */
static void ref_norm_bwd(struct backend *be, struct mat dx, float beta, struct mat dg,
                         struct mat db, struct mat dy, struct mat xhat, struct mat rstd,
                         struct mat g)
{
    (void)be;
    int n = dy.cols;
    for (int i = 0; i < dy.rows; i++) {
        double mean = 0, dot = 0;
        for (int c = 0; c < n; c++) {
            double t = get(dy, i, c) * get(g, 0, c);
            mean += t / n;
            dot += t * get(xhat, i, c) / n;
        }
        for (int c = 0; c < n; c++) {
            double t =
                (get(dy, i, c) * get(g, 0, c) - mean - get(xhat, i, c) * dot) * get(rstd, i, 0);
            set(dx, i, c, t + (beta != 0 ? (double)beta * get(dx, i, c) : 0));
        }
    }
    add_columns(db, dy);
    for (int c = 0; c < n; c++) {
        double dot = 0;
        for (int i = 0; i < dy.rows; i++) dot += get(dy, i, c) * get(xhat, i, c);
        add(dg, 0, c, dot);
    }
}

static void ref_add_bwd(struct backend *be, struct mat dr, struct mat drb, struct mat dy,
                        struct drop d)
{
    (void)be;
    for (int i = 0; i < dy.rows; i++) {
        struct drop_row mask = drop_row(d, i);
        for (int c = 0; c < dy.cols; c++) set(dr, i, c, get(dy, i, c) * drop_factor(mask, c));
    }
    add_columns(drb, dr);
}

static void ref_add_norm_bwd(struct backend *be, struct mat dx, struct mat dr, struct mat drb,
                             struct mat dg, struct mat db, struct mat dy, struct mat xhat,
                             struct mat rstd, struct mat g, struct drop d)
{
    ref_norm_bwd(be, dx, 0, dg, db, dy, xhat, rstd, g);
    ref_add_bwd(be, dr, drb, dx, d);
}

/* ---- loss: paper 5.4 ---- */

static void ref_xent(struct backend *be, struct mat logits, const int32_t *target, float eps,
                     bool grad, struct mat loss)
{
    (void)be;
    int n = logits.cols;
    for (int i = 0; i < logits.rows; i++) {
        double max = -INFINITY, sum = 0, smoothed = 0;
        for (int c = 0; c < n; c++) max = fmax(max, get(logits, i, c));
        for (int c = 0; c < n; c++) sum += exp(get(logits, i, c) - max);
        double lse = max + log(sum);
        set(loss, i, 1, lse - get(logits, i, target[i]));
        for (int c = 0; c < n; c++) {
            double want = (double)eps / n + (c == target[i] ? 1 - (double)eps : 0);
            double z = get(logits, i, c);
            smoothed += want * (lse - z);
            if (grad) set(logits, i, c, exp(z - lse) - want);
        }
        set(loss, i, 0, smoothed);
    }
}

/* ---- optimizer: paper 5.3 ---- */

static void ref_sqnorm(struct backend *be, double *out, struct mat g)
{
    (void)be;
    double s = 0;
    for (int i = 0; i < g.cols; i++) s += get(g, 0, i) * get(g, 0, i);
    *out = s;
}

static void ref_adam(struct backend *be, struct mat p, struct mat m, struct mat v, struct mat copy,
                     struct mat g, const double *sq, const struct adam *h)
{
    (void)be;
    double norm = sqrt(*sq) * h->scale;
    if (!isfinite(norm) || (h->limit > 0 && norm > h->limit)) return;
    double factor = h->scale * (h->clip > 0 && norm > h->clip ? h->clip / norm : 1);
    double c1 = 1 - pow(h->beta1, (double)h->step), c2 = 1 - pow(h->beta2, (double)h->step);
    for (int i = 0; i < p.cols; i++) {
        double gi = get(g, 0, i) * factor;
        double mi = h->beta1 * get(m, 0, i) + (1 - h->beta1) * gi;
        double vi = h->beta2 * get(v, 0, i) + (1 - h->beta2) * gi * gi;
        double pi = get(p, 0, i) - h->lr * (mi / c1) / (sqrt(vi / c2) + h->epsilon);
        set(m, 0, i, mi);
        set(v, 0, i, vi);
        set(p, 0, i, pi);
        if (copy.p) set(copy, 0, i, pi);
    }
}

static void ref_accumulate(struct backend *be, struct mat x, struct mat y)
{
    (void)be;
    for (int i = 0; i < x.cols; i++) set(x, 0, i, get(x, 0, i) + get(y, 0, i));
}

static void ref_cast(struct backend *be, struct mat dst, struct mat src)
{
    (void)be;
    for (int i = 0; i < src.rows; i++)
        for (int c = 0; c < src.cols; c++) set(dst, i, c, get(src, i, c));
}

/* ---- decoding ---- */

static void ref_cache_put(struct backend *be, struct mat cache, struct mat rows, const int32_t *at)
{
    (void)be;
    for (int i = 0; i < rows.rows; i++)
        for (int c = 0; c < rows.cols; c++) set(cache, at[i], c, get(rows, i, c));
}

static void ref_topk(struct backend *be, struct mat logits, int k, const int32_t *want, int wants,
                     float *score_out, int32_t *id)
{
    (void)be;
    for (int i = 0; i < logits.rows; i++) {
        double max = -INFINITY, sum = 0;
        for (int c = 0; c < logits.cols; c++) max = fmax(max, get(logits, i, c));
        for (int c = 0; c < logits.cols; c++) sum += exp(get(logits, i, c) - max);
        double lse = max + log(sum);
        float *best = score_out + (size_t)i * (k + wants);
        int32_t *which = id + (size_t)i * (k + wants);
        int have = 0;
        for (int c = 0; c < logits.cols; c++) {
            float s = (float)(get(logits, i, c) - lse);
            int at = have;
            while (at > 0 && s > best[at - 1]) at--;
            if (at == k) continue;
            if (have < k) have++;
            for (int j = have - 1; j > at; j--) best[j] = best[j - 1], which[j] = which[j - 1];
            best[at] = s;
            which[at] = c;
        }
        for (int j = 0; j < wants; j++) {
            int32_t w = which[k + j] = want[(size_t)i * wants + j];
            best[k + j] = w < 0 ? -INFINITY : (float)(get(logits, i, w) - lse);
        }
    }
}

static const struct ops ref_ops = {
    .name = "ref",
    .host = true,
    .chunk = 8 << 20,
    .chunk_rows = 1024,
    .chunk_bf16 = 8 << 20,
    .step_rows = 128,
    .attend_forms = true,
    .activations = ACT_KINDS,
    .alloc = ref_alloc,
    .free = ref_free,
    .zero = ref_zero,
    .upload = ref_copy,
    .upload_ahead = ref_copy,
    .download = ref_copy,
    .sync = ref_sync,
    .close = ref_close,
    .embed = ref_embed,
    .linear = ref_linear,
    .gate = ref_gate,
    .attend = ref_attend,
    .attend_linear = ref_attend_linear,
    .add_norm = ref_add_norm,
    .add = ref_add,
    .norm = ref_norm,
    .rotate = ref_rotate,
    .route = ref_route,
    .dispatch = ref_dispatch,
    .experts_linear = ref_experts_linear,
    .combine = ref_combine,
    .embed_bwd = ref_embed_bwd,
    .linear_bwd = ref_linear_bwd,
    .bias_bwd = ref_bias_bwd,
    .gate_bwd = ref_gate_bwd,
    .experts_linear_bwd = ref_experts_linear_bwd,
    .route_bwd = ref_route_bwd,
    .attend_bwd = ref_attend_bwd,
    .attend_linear_bwd = ref_attend_linear_bwd,
    .add_norm_bwd = ref_add_norm_bwd,
    .add_bwd = ref_add_bwd,
    .norm_bwd = ref_norm_bwd,
    .xent = ref_xent,
    .sqnorm = ref_sqnorm,
    .adam = ref_adam,
    .accumulate = ref_accumulate,
    .cast = ref_cast,
    .pack_bytes = ref_pack_bytes,
    .pack = ref_pack,
    .cache_put = ref_cache_put,
    .linear_state = ref_linear_state,
    .attend_state = ref_attend_state,
    .topk = ref_topk,
};

enum heed_status ref_open(struct backend **out, struct heed_error *err)
{
    struct ref *ref = malloc(sizeof *ref);
    if (!ref) return error_memory(err, sizeof *ref, "the reference backend");
    ref->base.op = &ref_ops;
    *out = &ref->base;
    return HEED_OK;
}
