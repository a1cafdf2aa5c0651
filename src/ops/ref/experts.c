/*
 * experts.c - a mixture of experts in the reference backend: see struct routing in ops.h.
 */
#include <math.h>

#include "ops/drop.h"
#include "ops/ref/ref.h"

/* ---- the router ---- */

/* p = softmax(x wT + noise) of row i */
static void probabilities(const struct routing *r, struct mat x, struct mat w, int i)
{
    struct drop_row noise = drop_row(r->draw, (uint64_t)i);
    double logit[EXPERTS_MAX], most = -INFINITY, sum = 0;
    for (int e = 0; e < r->experts; e++) {
        logit[e] = (double)r->noise * (double)drop_noise(noise, (uint32_t)e);
        for (int c = 0; c < x.cols; c++) logit[e] += get(x, i, c) * get(w, e, c);
        most = fmax(most, logit[e]);
    }
    for (int e = 0; e < r->experts; e++) sum += exp(logit[e] - most);
    for (int e = 0; e < r->experts; e++) set(r->p, i, e, exp(logit[e] - most) / sum);
}

/* The K largest p of row i. */
static void choose(const struct routing *r, int i)
{
    int32_t *chosen = r->chosen + (size_t)i * r->per_row;
    double sum = 0;
    for (int k = 0; k < r->per_row; k++) {
        int best = -1;
        for (int e = 0; e < r->experts; e++) {
            bool again = false;
            for (int before = 0; before < k; before++) again |= chosen[before] == e;
            if (!again && (best < 0 || get(r->p, i, e) > get(r->p, i, best))) best = e;
        }
        chosen[k] = best;
        sum += get(r->p, i, best);
    }
    for (int k = 0; k < r->per_row; k++)
        set(r->gate, i, k, get(r->p, i, chosen[k]) / (r->per_row > 1 ? sum : 1));
}

/* Where the rows of each expert are, and which choices it takes. */
static void place(const struct routing *r, int choices)
{
    for (int e = 0; e < r->experts; e++) r->asked[e] = 0;
    for (int i = 0; i < choices; i++) {
        int before = r->asked[r->chosen[i]]++;
        r->place[i] = r->capacity && before >= r->capacity ? -1 : before;
    }
    r->start[0] = 0;
    for (int e = 0; e < r->experts; e++) {
        int rows = r->capacity && r->asked[e] > r->capacity ? r->capacity : r->asked[e];
        r->rows[e] = rows;
        r->start[e + 1] = r->start[e] + (rows + ROW_PAD - 1) / ROW_PAD * ROW_PAD;
    }
    for (int i = 0; i < choices; i++)
        if (r->place[i] >= 0) r->place[i] += r->start[r->chosen[i]];
}

static double share(const struct routing *r, int e)
{
    return (double)r->asked[e] / ((double)r->p.rows * r->per_row);
}

static void tally(const struct routing *r)
{
    double loss = 0;
    for (int e = 0; e < r->experts; e++) {
        double sum = 0;
        for (int i = 0; i < r->p.rows; i++) sum += get(r->p, i, e);
        if (r->p.rows) loss += r->experts * share(r, e) * sum;
        set(r->tally, 0, e, r->asked[e]);
        set(r->tally, 0, r->experts + e, r->rows[e]);
    }
    set(r->tally, 0, 2 * r->experts, loss);
}

void ref_route(struct backend *be, const struct routing *r, struct mat x, struct mat w)
{
    (void)be;
    for (int i = 0; i < x.rows; i++) {
        probabilities(r, x, w, i);
        choose(r, i);
    }
    place(r, x.rows * r->per_row);
    if (r->tally.p) tally(r);
}

/* ---- rows to the experts and back ---- */

void ref_dispatch(struct backend *be, struct mat y, struct mat x, const struct routing *r,
                  bool gated)
{
    (void)be;
    for (int i = 0; i < x.rows; i++)
        for (int k = 0; k < r->per_row; k++) {
            int to = r->place[i * r->per_row + k];
            for (int c = 0; c < x.cols && to >= 0; c++)
                set(y, to, c, get(x, i, c) * (gated ? get(r->gate, i, k) : 1));
        }
}

void ref_combine(struct backend *be, struct mat y, struct mat x, const struct routing *r)
{
    (void)be;
    for (int i = 0; i < y.rows; i++)
        for (int c = 0; c < y.cols; c++) {
            double sum = 0;
            for (int k = 0; k < r->per_row; k++) {
                int from = r->place[i * r->per_row + k];
                if (from >= 0) sum += get(r->gate, i, k) * get(x, from, c);
            }
            set(y, i, c, sum);
        }
}

/* ---- the experts ---- */

/* Expert e's rows of a matrix. */
static struct mat taken_by(const struct routing *r, struct mat m, int e)
{
    return m.p ? mat_rows(m, r->start[e], r->rows[e]) : m;
}

/* The mask of a row is that of its row among all taken. */
static void drop_taken(const struct routing *r, struct mat m, int e, struct drop d)
{
    struct mat own = taken_by(r, m, e);
    for (int i = 0; i < own.rows; i++)
        for (int c = 0; c < own.cols; c++)
            set(own, i, c, get(own, i, c) * drop_factor(drop_row(d, r->start[e] + i), c));
}

static struct activation activation_by(const struct routing *r, struct activation f, int e)
{
    return (struct activation){.kind = f.kind, .slope = taken_by(r, f.slope, e)};
}

void ref_experts_linear(struct backend *be, struct mat y, struct mat x, struct mat w, struct mat b,
                        struct activation f, const struct routing *r)
{
    for (int e = 0; e < r->experts; e++) {
        be->op->linear(be, taken_by(r, y, e), taken_by(r, x, e),
                       mat_expert(be->op, w, e, r->experts), mat_rows(b, e, 1),
                       activation_by(r, f, e));
        drop_taken(r, y, e, f.drop);
        drop_taken(r, f.slope, e, f.drop);
    }
}

void ref_experts_linear_bwd(struct backend *be, struct mat dx, struct mat db, struct mat dw,
                            struct mat dy, struct mat x, struct mat w, struct activation f,
                            const struct routing *r)
{
    for (int e = 0; e < r->experts; e++) {
        be->op->bias_bwd(be, mat_rows(db, e, 1), taken_by(r, dy, e));
        be->op->linear_bwd(be, taken_by(r, dx, e), 0, (struct mat){0},
                           mat_expert(be->op, dw, e, r->experts), taken_by(r, dy, e),
                           taken_by(r, x, e), mat_expert(be->op, w, e, r->experts),
                           activation_by(r, f, e));
        if (!activation_keeps_slope(f.kind)) drop_taken(r, dx, e, f.drop);
    }
}

/* ---- backward of the router ---- */

/* Row i of p becomes the gradient of the logits. */
static void logits_bwd(const struct routing *r, struct mat dy, struct mat y, int i, double balance)
{
    double dp[EXPERTS_MAX], dgate[EXPERTS_PER_ROW_MAX] = {0}, mean = 0, gated = 0;
    const int32_t *chosen = r->chosen + (size_t)i * r->per_row;
    for (int k = 0; k < r->per_row; k++) {
        int from = r->place[i * r->per_row + k];
        for (int c = 0; c < dy.cols && from >= 0; c++) dgate[k] += get(dy, i, c) * get(y, from, c);
        gated += dgate[k] * get(r->gate, i, k);
    }
    for (int e = 0; e < r->experts; e++) dp[e] = balance * r->experts * share(r, e);
    if (r->per_row == 1) dp[chosen[0]] += dgate[0];
    for (int e = 0; e < r->experts; e++) mean += dp[e] * get(r->p, i, e);
    for (int e = 0; e < r->experts; e++) set(r->p, i, e, get(r->p, i, e) * (dp[e] - mean));
    for (int k = 0; k < r->per_row && r->per_row > 1; k++)
        add(r->p, i, chosen[k], get(r->gate, i, k) * (dgate[k] - gated));
}

void ref_route_bwd(struct backend *be, struct mat dx, float beta, struct mat dw, struct mat dy,
                   struct mat y, struct mat dtaken, struct mat x, struct mat w,
                   const struct routing *r, float balance)
{
    (void)be;
    for (int i = 0; i < x.rows; i++) {
        logits_bwd(r, dy, y, i, (double)balance);
        for (int c = 0; c < x.cols; c++) {
            double sum = beta != 0 ? (double)beta * get(dx, i, c) : 0;
            for (int k = 0; k < r->per_row; k++) {
                int from = r->place[i * r->per_row + k];
                if (from >= 0) sum += get(dtaken, from, c);
            }
            for (int e = 0; e < r->experts; e++) sum += get(r->p, i, e) * get(w, e, c);
            set(dx, i, c, sum);
        }
    }
    for (int e = 0; e < r->experts; e++)
        for (int c = 0; c < x.cols; c++) {
            double sum = 0;
            for (int i = 0; i < x.rows; i++) sum += get(r->p, i, e) * get(x, i, c);
            add(dw, e, c, sum);
        }
}
