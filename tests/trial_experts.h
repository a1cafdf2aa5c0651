/*
 * trial_experts.h - trials of the ops of a mixture of experts, for the table of test_ops.c.
 *
 * The rows of a matrix of taken rows that belong to no expert are padding: they hold NaNs, an op
 * may write to them, and they are not compared.
 */
#ifndef HEED_TESTS_TRIAL_EXPERTS_H
#define HEED_TESTS_TRIAL_EXPERTS_H
#include "base/minmax.h"
#include "ops/drop.h"
#include "trial.h"

static struct activation activation_of(const struct trial *t, struct mat slope);

/* From 1 to 6 experts, of which a row chooses 1 to 3. */
static int trial_experts(const struct trial *t)
{
    return 1 + (t->rows + t->cols) % 6;
}
static int trial_per_row(const struct trial *t)
{
    return int_min(trial_experts(t), 1 + t->cols % 3);
}
static int trial_choices(const struct trial *t)
{
    return t->rows * trial_per_row(t);
}
static int trial_taken(const struct trial *t)
{
    return routing_taken(t->rows, trial_per_row(t), trial_experts(t));
}
/* 0: no limit */
static int trial_capacity(const struct trial *t)
{
    return t->flags & LIMITED ? 1 + trial_choices(t) / (2 * trial_experts(t)) : 0;
}

/* A routing whose arrays are in ints, one after another. */
static struct routing trial_routing(const struct trial *t, const int32_t *ints, struct mat gate)
{
    int choices = trial_choices(t), experts = trial_experts(t);
    int32_t *at = (int32_t *)ints;
    return (struct routing){.experts = experts,
                            .per_row = trial_per_row(t),
                            .capacity = trial_capacity(t),
                            .noise = t->flags & DROP ? 0.5f : 0,
                            .draw = {0, 99, 6},
                            .gate = gate,
                            .chosen = at,
                            .place = at + choices,
                            .asked = at + 2 * choices,
                            .rows = at + 2 * choices + experts,
                            .start = at + 2 * choices + 2 * experts};
}

/* Draws the choices and works out where they go. Of more than two experts the last gets nothing. */
static void plan_choices(struct trial *t)
{
    struct routing r = trial_routing(t, t->ints, (struct mat){0});
    int choices = trial_choices(t), drawn = r.experts > 2 ? r.experts - 1 : r.experts;
    assert_true(2 * choices + 3 * r.experts + 1 <= INTS);
    for (int i = 0; i < choices; i++) {
        int first = (int)random_below(&t->random, drawn);
        r.chosen[i] = i % r.per_row ? (r.chosen[i - 1] + 1) % r.experts : first;
        r.place[i] = -1;
    }
    for (int e = 0; e < r.experts; e++) {
        r.asked[e] = r.rows[e] = 0;
        for (int i = 0; i < choices; i++) {
            if (r.chosen[i] != e) continue;
            r.asked[e]++;
            if (!r.capacity || r.rows[e] < r.capacity) r.place[i] = r.start[e] + r.rows[e]++;
        }
        r.start[e + 1] = r.start[e] + (r.rows[e] + ROW_PAD - 1) / ROW_PAD * ROW_PAD;
    }
}

/* A matrix of taken rows, after plan_choices. */
static void taken(struct trial *t, enum access role, const char *name, int cols, double low,
                  double high)
{
    struct routing r = trial_routing(t, t->ints, (struct mat){0});
    slot_add(t, role, name, trial_taken(t), cols, t->act, true, low, high);
    struct slot *s = &t->slot[t->slots - 1];
    size_t size = type_size(s->dev.type);
    for (int i = 0; i < s->dev.rows; i++) {
        bool padding = true;
        for (int e = 0; e < r.experts; e++)
            if (i >= r.start[e] && i < r.start[e] + r.rows[e]) padding = false;
        if (!padding) continue;
        memset(t->fate + s->at + (size_t)i * s->dev.ld * size, SLACK, (size_t)cols * size);
        for (int c = 0; c < cols; c++) number_set(s->ref, i, c, (double)NAN);
    }
}

static void gates(struct trial *t)
{
    slot_add(t, IN, "gate", t->rows, trial_per_row(t), TYPE_F32, true, 0.1, 1);
}

/* ---- route ---- */

static void plan_ints(struct trial *t, const char *name, int n)
{
    par(t, OUT, name, 1, n, TYPE_F32);
    like_device(t);
    t->slot[t->slots - 1].ints = true;
}
static void plan_route(struct trial *t)
{
    int experts = trial_experts(t), choices = trial_choices(t);
    act(t, IN, "x", t->rows, t->cols, t->act);
    par(t, IN, "w", experts, t->cols, TYPE_F32);
    act(t, OUT, "p", t->rows, experts, TYPE_F32);
    act(t, OUT, "gate", t->rows, trial_per_row(t), TYPE_F32);
    t->flags &KEEP ? par(t, OUT, "tally", 1, 2 * experts + 1, TYPE_F32) : absent(t);
    plan_ints(t, "chosen", choices);
    plan_ints(t, "place", choices);
    plan_ints(t, "asked", experts);
    plan_ints(t, "rows", experts);
    plan_ints(t, "start", experts + 1);
}
static void call_route(struct backend *be, const struct trial *t, const struct mat *m,
                       const int32_t *ints)
{
    struct routing r = trial_routing(t, ints, m[3]);
    r.p = m[2];
    r.tally = m[4];
    r.chosen = m[5].p, r.place = m[6].p, r.asked = m[7].p, r.rows = m[8].p, r.start = m[9].p;
    be->op->route(be, &r, m[0], m[1]);
}

static void plan_route_bwd(struct trial *t)
{
    int experts = trial_experts(t);
    plan_choices(t);
    act(t, t->flags & BETA ? ADD : OUT, "dx", t->rows, t->cols, t->act);
    par(t, ADD, "dw", experts, t->cols, TYPE_F32);
    act(t, IN, "dy", t->rows, t->cols, t->act);
    taken(t, IN, "y", t->cols, -1, 1);
    taken(t, IN, "dtaken", t->cols, -1, 1);
    act(t, IN, "x", t->rows, t->cols, t->act);
    par(t, IN, "w", experts, t->cols, TYPE_F32);
    slot_add(t, ADD, "p", t->rows, experts, TYPE_F32, true, 0.1, 1);
    gates(t);
}
static void call_route_bwd(struct backend *be, const struct trial *t, const struct mat *m,
                           const int32_t *ints)
{
    struct routing r = trial_routing(t, ints, m[8]);
    r.p = m[7];
    be->op->route_bwd(be, m[0], t->flags & BETA ? 1 : 0, m[1], m[2], m[3], m[4], m[5], m[6], &r,
                      t->flags & GRAD ? 0.5f : 0);
}

/* ---- rows to the experts and back ---- */

static void plan_dispatch(struct trial *t)
{
    plan_choices(t);
    taken(t, OUT, "y", t->cols, 0, 0);
    act(t, IN, "x", t->rows, t->cols, t->act);
    gates(t);
}
static void call_dispatch(struct backend *be, const struct trial *t, const struct mat *m,
                          const int32_t *ints)
{
    struct routing r = trial_routing(t, ints, m[2]);
    be->op->dispatch(be, m[0], m[1], &r, t->flags & GATED);
}

static void plan_combine(struct trial *t)
{
    plan_choices(t);
    act(t, OUT, "y", t->rows, t->cols, t->act);
    taken(t, IN, "x", t->cols, -1, 1);
    gates(t);
}
static void call_combine(struct backend *be, const struct trial *t, const struct mat *m,
                         const int32_t *ints)
{
    struct routing r = trial_routing(t, ints, m[2]);
    be->op->combine(be, m[0], m[1], &r);
}

/* ---- the experts ---- */

static void plan_experts_linear(struct trial *t)
{
    int experts = trial_experts(t);
    plan_choices(t);
    taken(t, OUT, "y", t->out, 0, 0);
    taken(t, IN, "x", t->cols, -1, 1);
    par(t, IN, "w", experts * t->out, t->cols, t->act);
    par(t, IN, "b", experts, t->out, TYPE_F32);
    bool slope = t->flags & KEEP && activation_keeps_slope(t->activation);
    slope ? taken(t, OUT, "slope", t->out, 0, 0), stands_beside(t, 0) : absent(t);
}
static void call_experts_linear(struct backend *be, const struct trial *t, const struct mat *m,
                                const int32_t *ints)
{
    struct routing r = trial_routing(t, ints, (struct mat){0});
    be->op->experts_linear(be, m[0], m[1], m[2], m[3], activation_of(t, m[4]), &r);
}

static void plan_experts_linear_bwd(struct trial *t)
{
    int experts = trial_experts(t);
    plan_choices(t);
    taken(t, OUT, "dx", t->cols, 0, 0);
    par(t, ADD, "db", experts, t->out, TYPE_F32);
    par(t, ADD, "dw", experts * t->out, t->cols, TYPE_F32);
    taken(t, IN, "dy", t->out, -1, 1);
    taken(t, IN, "x", t->cols, -1, 1);
    par(t, IN, "w", experts * t->out, t->cols, t->act);
    bool slope = activation_keeps_slope(t->activation);
    slope ? taken(t, IN, "slope", t->cols, -1.2f, 1.2f) : absent(t);
}
static void call_experts_linear_bwd(struct backend *be, const struct trial *t, const struct mat *m,
                                    const int32_t *ints)
{
    struct routing r = trial_routing(t, ints, (struct mat){0});
    be->op->experts_linear_bwd(be, m[0], m[1], m[2], m[3], m[4], m[5], activation_of(t, m[6]), &r);
}

/* rows, in, out. The experts of the last have more than a tile of a product each. */
static const int routed_products[][3] = {{0, 8, 17},     {1, 1, 1},    {1, 3, 130},
                                         {15, 17, 3},    {16, 64, 64}, {17, 130, 8},
                                         {100, 64, 130}, {300, 8, 17}, {-1}};
static const int large_routed_products[][3] = {{300, 256, 512}, {330, 64, 1024}, {310, 1024, 96},
                                               {320, 328, 520}, {900, 129, 128}, {-1}};
static const int large_routed[][3] = {{450, 64}, {300, 256}, {70, 512}, {330, 1024}, {-1}};

#endif
