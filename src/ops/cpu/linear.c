/*
 * linear.c - the linear layer of the CPU backend, that of experts, and the gate, forward and
 * backward: see ops.h.
 *
 * Place: called through the op table for every projection, feed-forward and output layer; products
 * by gemm.h, rows by kernels.h.
 *
 * Products run on a row count rounded up to ROW_PAD, so that batches of slightly different size
 * share generated code. The padding rows of y and dx get values that are never read. The weight
 * gradient sums over rows, so the padding rows of dy and x are set to zero before it.
 */
#include <assert.h>
#include <string.h>

#include "ops/cpu/cpu.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/kernels.h"

static struct mat padded(struct mat m)
{
    m.rows = (m.rows + ROW_PAD - 1) / ROW_PAD * ROW_PAD;
    return m;
}

static void clear_padding(struct mat m)
{
    for (int r = m.rows; r < padded(m).rows; r++)
        memset(mat_at(m, r, 0), 0, (size_t)m.cols * type_size(m.type));
}

/* y = x wT + b; with relu, max(0, x wT + b) */
static void multiply(struct cpu *cpu, struct mat y, struct mat x, struct mat w, struct mat b,
                     bool relu)
{
    struct packed_weights p = cpu_packed(w);
    if (!type_packed(w.type)) {
        gemm_run(cpu->gemm,
                 &(struct gemm_job){
                     .c = padded(y), .a = padded(x), .b = w, .tb = true, .bias = b, .relu = relu});
        return;
    }
    assert(y.type == TYPE_F32 && x.type == TYPE_F32);
    if (!cpu->failed.status)
        packed_run(&cpu->packed, y.p, y.ld, x.p, x.ld, y.rows, &p, b.p, relu, cpu->threads,
                   &cpu->failed);
}

/* Row r; NULL where the matrix is absent */
static void *row_or_null(struct mat m, int r)
{
    return m.p ? mat_at(m, r, 0) : NULL;
}

/* What the product leaves to do to y: all of an activation but ReLU, and dropout. */
static void activate(struct cpu *cpu, struct mat y, struct activation f)
{
    enum activation_kind kind = f.kind == ACT_RELU ? ACT_NONE : f.kind;
    if (kind == ACT_NONE && f.drop.p == 0) return;
#pragma omp parallel for schedule(static) num_threads(cpu_team(cpu, mat_count(y)))
    for (int r = 0; r < y.rows; r++)
        cpu->k->activate(mat_at(y, r, 0), row_or_null(f.slope, r), mat_at(y, r, 0), y.cols, y.type,
                         kind, drop_row(f.drop, (uint64_t)r));
}

void cpu_linear(struct backend *be, struct mat y, struct mat x, struct mat w, struct mat b,
                struct activation f)
{
    struct cpu *cpu = cpu_of(be);
    multiply(cpu, y, x, w, b, f.kind == ACT_RELU);
    activate(cpu, y, f);
}

static bool is_identity(struct activation f)
{
    return f.kind == ACT_NONE && f.drop.p == 0;
}

/* dx, the gradient of x = drop(f(z)), becomes the gradient of z. */
static void activate_bwd(struct cpu *cpu, struct mat dx, struct mat x, struct activation f)
{
    assert(!f.slope.p == !activation_keeps_slope(f.kind));
#pragma omp parallel for schedule(static) num_threads(cpu_team(cpu, mat_count(dx)))
    for (int r = 0; r < dx.rows; r++)
        cpu->k->activate_bwd(mat_at(dx, r, 0), mat_at(x, r, 0), row_or_null(f.slope, r), dx.cols,
                             dx.type, f.kind, drop_row(f.drop, (uint64_t)r));
}

void cpu_bias_bwd(struct backend *be, struct mat db, struct mat dy)
{
    struct cpu *cpu = cpu_of(be);
#pragma omp parallel for schedule(static) num_threads(cpu_team(cpu, mat_count(dy)))
    for (int c = 0; c < dy.cols; c += CPU_STRIP) {
        int n = dy.cols - c < CPU_STRIP ? dy.cols - c : CPU_STRIP;
        cpu->k->add_columns(mat_at(db, 0, c), mat_at(dy, 0, c), dy.ld, dy.rows, n, dy.type);
    }
}

void cpu_linear_bwd(struct backend *be, struct mat dx, float beta, struct mat db, struct mat dw,
                    struct mat dy, struct mat x, struct mat w, struct activation f)
{
    struct cpu *cpu = cpu_of(be);
    bool identity = is_identity(f);
    assert((dx.p && beta == 0) || (identity && !db.p));
    if (dy.rows == 0) return;
    clear_padding(dy);
    clear_padding(x);
    gemm_run(cpu->gemm,
             &(struct gemm_job){.c = dw, .a = padded(dy), .b = padded(x), .ta = true, .beta = 1});
    if (!dx.p) return;
    gemm_run(cpu->gemm, &(struct gemm_job){.c = padded(dx), .a = padded(dy), .b = w, .beta = beta});
    if (!identity) activate_bwd(cpu, dx, x, f);
    if (db.p) cpu_bias_bwd(be, db, dx);
}

/* ---- experts ---- */

/* Expert e's rows of a matrix of all rows taken. */
static struct mat taken_by(const struct routing *r, struct mat m, int e)
{
    return mat_rows(m, r->start[e], r->rows[e]);
}

/* All rows taken, and the padding rows between them, as one matrix. */
static struct mat taken(const struct routing *r, struct mat m)
{
    return mat_rows(m, 0, r->start[r->experts]);
}

/* One product for each expert, then the activation of all rows. */
void cpu_experts_linear(struct backend *be, struct mat y, struct mat x, struct mat w, struct mat b,
                        struct activation f, const struct routing *r)
{
    struct cpu *cpu = cpu_of(be);
    for (int e = 0; e < r->experts; e++)
        multiply(cpu, taken_by(r, y, e), taken_by(r, x, e), mat_expert(be->op, w, e, r->experts),
                 mat_rows(b, e, 1), f.kind == ACT_RELU);
    f.slope = taken(r, f.slope);
    activate(cpu, taken(r, y), f);
}

void cpu_experts_linear_bwd(struct backend *be, struct mat dx, struct mat db, struct mat dw,
                            struct mat dy, struct mat x, struct mat w, struct activation f,
                            const struct routing *r)
{
    struct cpu *cpu = cpu_of(be);
    for (int e = 0; e < r->experts; e++) {
        cpu_bias_bwd(be, mat_rows(db, e, 1), taken_by(r, dy, e));
        cpu_linear_bwd(be, taken_by(r, dx, e), 0, (struct mat){0},
                       mat_expert(be->op, dw, e, r->experts), taken_by(r, dy, e), taken_by(r, x, e),
                       mat_expert(be->op, w, e, r->experts), (struct activation){0});
    }
    if (is_identity(f)) return;
    f.slope = taken(r, f.slope);
    activate_bwd(cpu, taken(r, dx), taken(r, x), f);
}

/* ---- gate ---- */

void cpu_gate(struct backend *be, struct mat h, struct mat z, struct drop d)
{
    struct cpu *cpu = cpu_of(be);
#pragma omp parallel for schedule(static) num_threads(cpu_team(cpu, mat_count(z)))
    for (int r = 0; r < h.rows; r++)
        cpu->k->gate(mat_at(h, r, 0), mat_at(z, r, 0), mat_at(z, r, h.cols), h.cols, h.type,
                     drop_row(d, (uint64_t)r));
}

void cpu_gate_bwd(struct backend *be, struct mat dz, struct mat db, struct mat dh, struct mat z,
                  struct drop d)
{
    struct cpu *cpu = cpu_of(be);
#pragma omp parallel for schedule(static) num_threads(cpu_team(cpu, mat_count(z)))
    for (int r = 0; r < dh.rows; r++)
        cpu->k->gate_bwd(mat_at(dz, r, 0), mat_at(dz, r, dh.cols), mat_at(dh, r, 0),
                         mat_at(z, r, 0), mat_at(z, r, dh.cols), dh.cols, dh.type,
                         drop_row(d, (uint64_t)r));
    if (db.p) cpu_bias_bwd(be, db, dz);
}
