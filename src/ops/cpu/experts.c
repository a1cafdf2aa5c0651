/*
 * experts.c - a mixture of experts on the CPU, but for the products, which are in linear.c: see
 * struct routing in ops.h.
 *
 * Rows are independent of each other. The choices are counted and sorted by one thread, in the
 * order of their numbers.
 */
#include "ops/cpu/experts.h"

#include <math.h>

#include "base/minmax.h"
#include "ops/cpu/cpu.h"
#include "ops/drop.h"

/* ---- the router ---- */

/* p = softmax(x wT + noise) of row i */
static void probabilities(struct cpu *cpu, const struct routing *r, struct mat x, struct mat w,
                          int i)
{
    struct drop_row noise = drop_row(r->draw, (uint64_t)i);
    float *p = mat_at(r->p, i, 0), most = -INFINITY, sum = 0;
    cpu->experts->dots(p, mat_at(x, i, 0), w.p, w.ld, r->experts, x.cols, x.type);
    for (int e = 0; e < r->experts; e++) {
        if (r->noise > 0) p[e] += r->noise * drop_noise(noise, (uint32_t)e);
        if (p[e] > most) most = p[e];
    }
    for (int e = 0; e < r->experts; e++) sum += p[e] = expf(p[e] - most);
    for (int e = 0; e < r->experts; e++) p[e] /= sum;
}

/* The K largest p of row i, and their gates. */
static void choose(const struct routing *r, int i)
{
    int32_t *chosen = r->chosen + (size_t)i * r->per_row;
    const float *p = mat_at(r->p, i, 0);
    float *gate = mat_at(r->gate, i, 0), sum = 0;
    uint64_t taken = 0; /* a bit for each expert */
    for (int k = 0; k < r->per_row; k++) {
        int best = 0;
        while (taken >> best & 1) best++; /* there are more experts than have been taken */
        for (int e = best + 1; e < r->experts; e++)
            if (!(taken >> e & 1) && p[e] > p[best]) best = e;
        taken |= (uint64_t)1 << best;
        chosen[k] = best;
        sum += gate[k] = p[best];
    }
    for (int k = 0; k < r->per_row && r->per_row > 1; k++) gate[k] /= sum;
}
_Static_assert(EXPERTS_MAX <= 64, "experts are the bits of a word");

/* Where the rows of each expert are, and which choices it takes. */
static void place(const struct routing *r, int choices)
{
    int most = r->capacity ? r->capacity : choices;
    for (int e = 0; e < r->experts; e++) r->asked[e] = 0;
    for (int i = 0; i < choices; i++) {
        int before = r->asked[r->chosen[i]]++;
        r->place[i] = before < most ? before : -1;
    }
    r->start[0] = 0;
    for (int e = 0; e < r->experts; e++) {
        r->rows[e] = int_min(r->asked[e], most);
        r->start[e + 1] = r->start[e] + (r->rows[e] + ROW_PAD - 1) / ROW_PAD * ROW_PAD;
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
    double sum[EXPERTS_MAX] = {0}, loss = 0;
    float *out = r->tally.p;
    for (int i = 0; i < r->p.rows; i++) {
        const float *p = mat_at(r->p, i, 0);
        for (int e = 0; e < r->experts; e++) sum[e] += (double)p[e];
    }
    for (int e = 0; e < r->experts; e++) {
        if (r->p.rows) loss += r->experts * share(r, e) * sum[e];
        out[e] = (float)r->asked[e];
        out[r->experts + e] = (float)r->rows[e];
    }
    out[2 * r->experts] = (float)loss;
}

void cpu_route(struct backend *be, const struct routing *r, struct mat x, struct mat w)
{
    struct cpu *cpu = cpu_of(be);
#pragma omp parallel for schedule(static) num_threads(cpu_team(cpu, mat_count(x)))
    for (int i = 0; i < x.rows; i++) {
        probabilities(cpu, r, x, w, i);
        choose(r, i);
    }
    place(r, x.rows * r->per_row);
    if (r->tally.p) tally(r);
}

/* ---- rows to the experts and back ---- */

void cpu_dispatch(struct backend *be, struct mat y, struct mat x, const struct routing *r,
                  bool gated)
{
    struct cpu *cpu = cpu_of(be);
#pragma omp parallel for schedule(static) num_threads(cpu_team(cpu, r->per_row *mat_count(x)))
    for (int i = 0; i < x.rows; i++)
        for (int k = 0; k < r->per_row; k++) {
            int to = r->place[i * r->per_row + k];
            float gate = gated ? *(float *)mat_at(r->gate, i, k) : 1;
            struct row_sum s = {.n = 1, .x = {mat_at(x, i, 0)}, .factor = {gate}};
            if (to >= 0) cpu->experts->sum(mat_at(y, to, 0), 0, &s, x.cols, x.type);
        }
}

/* The rows of m that were taken of row i, each with its gate or with the factor 1. */
static struct row_sum taken_of(const struct routing *r, struct mat m, int i, bool gated)
{
    struct row_sum s = {0};
    for (int k = 0; k < r->per_row; k++) {
        int from = r->place[i * r->per_row + k];
        if (from < 0) continue;
        s.factor[s.n] = gated ? *(float *)mat_at(r->gate, i, k) : 1;
        s.x[s.n++] = mat_at(m, from, 0);
    }
    return s;
}

void cpu_combine(struct backend *be, struct mat y, struct mat x, const struct routing *r)
{
    struct cpu *cpu = cpu_of(be);
#pragma omp parallel for schedule(static) num_threads(cpu_team(cpu, r->per_row *mat_count(y)))
    for (int i = 0; i < y.rows; i++) {
        struct row_sum s = taken_of(r, x, i, true);
        cpu->experts->sum(mat_at(y, i, 0), 0, &s, y.cols, y.type);
    }
}

/* ---- backward of the router ---- */

/* Row i of p becomes the gradient of the logits. dp: what the loss of unbalanced experts adds to
 * the gradient of a row of p */
static void logits_bwd(struct cpu *cpu, const struct routing *r, struct mat dy, struct mat y, int i,
                       const float *dp)
{
    const int32_t *chosen = r->chosen + (size_t)i * r->per_row;
    float *p = mat_at(r->p, i, 0), *gate = mat_at(r->gate, i, 0);
    float dgate[EXPERTS_PER_ROW_MAX] = {0}, mean = 0, gated = 0;
    for (int k = 0; k < r->per_row; k++) {
        int from = r->place[i * r->per_row + k];
        if (from >= 0)
            dgate[k] = cpu->experts->dot(mat_at(dy, i, 0), mat_at(y, from, 0), y.cols, y.type);
        gated += dgate[k] * gate[k];
    }
    for (int e = 0; e < r->experts; e++) mean += dp[e] * p[e];
    if (r->per_row == 1) { /* the gate is p itself */
        float of_gate = p[chosen[0]] * dgate[0];
        mean += of_gate;
        for (int e = 0; e < r->experts; e++) p[e] *= dp[e] - mean;
        p[chosen[0]] += of_gate;
        return;
    }
    for (int e = 0; e < r->experts; e++) p[e] *= dp[e] - mean;
    for (int k = 0; k < r->per_row; k++) p[chosen[k]] += gate[k] * (dgate[k] - gated);
}

void cpu_route_bwd(struct backend *be, struct mat dx, float beta, struct mat dw, struct mat dy,
                   struct mat y, struct mat dtaken, struct mat x, struct mat w,
                   const struct routing *r, float balance)
{
    struct cpu *cpu = cpu_of(be);
    float dp[EXPERTS_MAX];
    if (x.rows == 0) return;
    for (int e = 0; e < r->experts; e++)
        dp[e] = (float)((double)balance * r->experts * share(r, e));
#pragma omp parallel for schedule(static) num_threads(cpu_team(cpu, r->per_row *mat_count(x)))
    for (int i = 0; i < x.rows; i++) {
        logits_bwd(cpu, r, dy, y, i, dp);
        struct row_sum s = taken_of(r, dtaken, i, false);
        s.experts = r->experts;
        s.w = w.p;
        s.ldw = w.ld;
        s.dl = mat_at(r->p, i, 0);
        cpu->experts->sum(mat_at(dx, i, 0), beta, &s, dx.cols, dx.type);
    }
#pragma omp parallel for schedule(static) num_threads(cpu_team(cpu, r->experts *mat_count(x)))
    for (int c = 0; c < x.cols; c += CPU_STRIP)
        for (int e = 0; e < r->experts; e++)
            cpu->experts->weighted_columns(mat_at(dw, e, c), mat_at(r->p, 0, e), r->p.ld,
                                           mat_at(x, 0, c), x.ld, x.rows,
                                           int_min(x.cols - c, CPU_STRIP), x.type);
}
