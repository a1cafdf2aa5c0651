/*
 * cpu.c - the CPU backend: opens the kernels of the best ISA and distributes the work of each op
 * over threads. The kernels for one row or span are in kernels.c; products are in linear.c,
 * attention in attention.c.
 *
 * Rows and spans are independent of each other, and a sum over rows is computed by one thread for
 * each column, so results do not depend on the number of threads. Order: cpu_open, ops, sync,
 * close.
 */
#include <assert.h>
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/minmax.h"
#include "ops/bf16.h"
#include "ops/cpu/attention.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/kernels.h"

enum {
    SPAN = 65536, /* elements of a flat array that one thread takes at a time */
    HUGE_PAGE = 2 << 20,
    HUGE_FROM = 64 << 20, /* bytes from which a block asks for huge pages */
    AMX_CHUNK = 40 << 20  /* with AMX a pass over the weights of the output layer and their gradient
                           * takes as long as multiplying them with hundreds of rows */
};

static size_t size_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- memory and order ---- */

/* A large block that is used from end to end asks for huge pages. */
static enum heed_status cpu_alloc(struct backend *be, void **p, size_t bytes, enum use use,
                                  struct heed_error *err)
{
    (void)be;
    size_t align = use == USED_WHOLE && bytes >= HUGE_FROM ? HUGE_PAGE : 64;
    void *block = NULL;
    if (bytes <= SIZE_MAX - align)
        block = aligned_alloc(align, bytes ? (bytes + align - 1) / align * align : align);
    if (!block) return error_memory(err, bytes, "the CPU backend");
#ifdef MADV_HUGEPAGE
    if (align == HUGE_PAGE) (void)madvise(block, bytes, MADV_HUGEPAGE);
#endif
    *p = block;
    return HEED_OK;
}

static void cpu_free(struct backend *be, void *p)
{
    (void)be;
    free(p);
}

static void cpu_zero(struct backend *be, void *p, size_t bytes)
{
    struct cpu *cpu = cpu_of(be);
#pragma omp parallel for schedule(static) num_threads(cpu_team(cpu, bytes / 4))
    for (size_t i = 0; i < bytes; i += SPAN * 4)
        memset((char *)p + i, 0, size_min(bytes - i, SPAN * 4));
}

static void cpu_copy(struct backend *be, void *dst, const void *src, size_t bytes)
{
    (void)be;
    if (bytes) memcpy(dst, src, bytes);
}

static enum heed_status cpu_sync(struct backend *be, struct heed_error *err)
{
    struct cpu *cpu = cpu_of(be);
    struct heed_error failed = cpu->failed;
    cpu->failed = (struct heed_error){0};
    if (failed.status && err) *err = failed;
    return failed.status ? failed.status : gemm_status(cpu->gemm, err);
}

static void cpu_close(struct backend *be)
{
    struct cpu *cpu = cpu_of(be);
    gemm_free(cpu->gemm);
    packed_close(&cpu->packed);
    free(cpu->attend_work);
    free(cpu->tables);
    free(cpu->partial);
    free(cpu->topk_work);
    free(cpu);
}

/* ---- embedding ---- */

/* The row of `position` that is added at a position; NULL where there is none. */
static const float *position_row(struct mat position, const int32_t *pos, int i)
{
    assert(!position.p || (pos[i] >= 0 && pos[i] < position.rows));
    return position.p ? mat_at(position, pos[i], 0) : NULL;
}

/* Rows of packed weights are unpacked into y first. */
static void embed_packed(struct cpu *cpu, struct mat y, const int32_t *id, const int32_t *pos,
                         struct mat e, struct mat position, struct drop d)
{
    struct packed_weights w = cpu_packed(e);
    float scale = sqrtf((float)y.cols);
#pragma omp parallel for schedule(static) num_threads(cpu_team(cpu, mat_count(y)))
    for (int i = 0; i < y.rows; i++) {
        float *row = mat_at(y, i, 0);
        assert(id[i] >= 0 && id[i] < e.rows);
        packed_row(row, &w, id[i]);
        cpu->k->embed(row, TYPE_F32, row, TYPE_F32, position_row(position, pos, i), y.cols, scale,
                      drop_row(d, (uint64_t)i));
    }
}

static void cpu_embed(struct backend *be, struct mat y, const int32_t *id, const int32_t *pos,
                      struct mat e, struct mat position, struct drop d)
{
    struct cpu *cpu = cpu_of(be);
    float scale = sqrtf((float)y.cols);
    if (type_packed(e.type)) {
        embed_packed(cpu, y, id, pos, e, position, d);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(cpu_team(cpu, mat_count(y)))
    for (int i = 0; i < y.rows; i++) {
        assert(id[i] >= 0 && id[i] < e.rows);
        cpu->k->embed(mat_at(y, i, 0), y.type, mat_at(e, id[i], 0), e.type,
                      position_row(position, pos, i), y.cols, scale, drop_row(d, (uint64_t)i));
    }
}

/* An id may occur in many rows, so each thread adds up a strip of columns, over the rows in order.
 */
static void cpu_embed_bwd(struct backend *be, struct mat de, const int32_t *id, struct mat dy,
                          double scale, struct drop d)
{
    struct cpu *cpu = cpu_of(be);
#pragma omp parallel for schedule(static) num_threads(cpu_team(cpu, mat_count(dy)))
    for (int c = 0; c < dy.cols; c += CPU_STRIP) {
        int n = int_min(dy.cols - c, CPU_STRIP);
        for (int i = 0; i < dy.rows; i++)
            cpu->k->embed_bwd(mat_at(de, id[i], c), mat_at(dy, i, c), dy.type, c, n, (float)scale,
                              drop_row(d, (uint64_t)i));
    }
}

static void cpu_rotate(struct backend *be, struct mat x, const int32_t *pos, struct mat table,
                       bool opposite)
{
    struct cpu *cpu = cpu_of(be);
#pragma omp parallel for schedule(static) num_threads(cpu_team(cpu, mat_count(x)))
    for (int i = 0; i < x.rows; i++) {
        assert(pos[i] >= 0 && pos[i] < table.rows);
        cpu->k->rotate(mat_at(x, i, 0), x.cols, x.type, mat_at(table, pos[i], 0), table.cols,
                       opposite);
    }
}

/* ---- layer norm ---- */

static void cpu_add_norm(struct backend *be, struct mat y, struct mat xhat, struct mat rstd,
                         struct mat x, struct mat r, struct mat g, struct mat b, struct drop d)
{
    struct cpu *cpu = cpu_of(be);
#pragma omp parallel for schedule(static) num_threads(cpu_team(cpu, mat_count(y)))
    for (int i = 0; i < y.rows; i++) {
        float s = cpu->k->norm(mat_at(y, i, 0), xhat.p ? mat_at(xhat, i, 0) : NULL, mat_at(x, i, 0),
                               mat_at(r, i, 0), g.p, b.p, y.cols, y.type, drop_row(d, (uint64_t)i));
        if (rstd.p) *(float *)mat_at(rstd, i, 0) = s;
    }
}

/* The gradients of gain and bias of a norm. */
static void norm_columns(struct cpu *cpu, int team, struct mat dg, struct mat db, struct mat dy,
                         struct mat xhat)
{
#pragma omp parallel for schedule(static) num_threads(team)
    for (int c = 0; c < dy.cols; c += CPU_STRIP)
        cpu->k->norm_bwd_columns(mat_at(dg, 0, c), mat_at(db, 0, c), mat_at(dy, 0, c), dy.ld,
                                 mat_at(xhat, 0, c), xhat.ld, dy.rows,
                                 int_min(dy.cols - c, CPU_STRIP), dy.type);
}

static void cpu_add_norm_bwd(struct backend *be, struct mat dx, struct mat dr, struct mat drb,
                             struct mat dg, struct mat db, struct mat dy, struct mat xhat,
                             struct mat rstd, struct mat g, struct drop d)
{
    struct cpu *cpu = cpu_of(be);
    int team = cpu_team(cpu, mat_count(dy));
#pragma omp parallel for schedule(static) num_threads(team)
    for (int i = 0; i < dy.rows; i++)
        cpu->k->norm_bwd(mat_at(dx, i, 0), mat_at(dr, i, 0), mat_at(dy, i, 0), mat_at(xhat, i, 0),
                         *(float *)mat_at(rstd, i, 0), g.p, dy.cols, dy.type,
                         drop_row(d, (uint64_t)i));
    norm_columns(cpu, team, dg, db, dy, xhat);
    if (drb.p) cpu_bias_bwd(be, drb, dr);
}

static void cpu_norm(struct backend *be, struct mat y, struct mat xhat, struct mat rstd,
                     struct mat x, struct mat g, struct mat b)
{
    struct cpu *cpu = cpu_of(be);
#pragma omp parallel for schedule(static) num_threads(cpu_team(cpu, mat_count(y)))
    for (int i = 0; i < y.rows; i++) {
        float s = cpu->k->norm_alone(mat_at(y, i, 0), xhat.p ? mat_at(xhat, i, 0) : NULL,
                                     mat_at(x, i, 0), g.p, b.p, y.cols, y.type);
        if (rstd.p) *(float *)mat_at(rstd, i, 0) = s;
    }
}

static void cpu_norm_bwd(struct backend *be, struct mat dx, float beta, struct mat dg,
                         struct mat db, struct mat dy, struct mat xhat, struct mat rstd,
                         struct mat g)
{
    struct cpu *cpu = cpu_of(be);
    int team = cpu_team(cpu, mat_count(dy));
#pragma omp parallel for schedule(static) num_threads(team)
    for (int i = 0; i < dy.rows; i++)
        cpu->k->norm_alone_bwd(mat_at(dx, i, 0), beta, mat_at(dy, i, 0), mat_at(xhat, i, 0),
                               *(float *)mat_at(rstd, i, 0), g.p, dy.cols, dy.type);
    norm_columns(cpu, team, dg, db, dy, xhat);
}

static void cpu_add(struct backend *be, struct mat y, struct mat x, struct mat r, struct drop d)
{
    struct cpu *cpu = cpu_of(be);
#pragma omp parallel for schedule(static) num_threads(cpu_team(cpu, mat_count(y)))
    for (int i = 0; i < y.rows; i++)
        cpu->k->add(mat_at(y, i, 0), mat_at(x, i, 0), mat_at(r, i, 0), y.cols, y.type,
                    drop_row(d, (uint64_t)i));
}

static void cpu_add_bwd(struct backend *be, struct mat dr, struct mat drb, struct mat dy,
                        struct drop d)
{
    struct cpu *cpu = cpu_of(be);
#pragma omp parallel for schedule(static) num_threads(cpu_team(cpu, mat_count(dy)))
    for (int i = 0; i < dy.rows; i++)
        cpu->k->activate(mat_at(dr, i, 0), NULL, mat_at(dy, i, 0), dy.cols, dy.type, ACT_NONE,
                         drop_row(d, (uint64_t)i));
    if (drb.p) cpu_bias_bwd(be, drb, dr);
}

/* ---- loss and search: rows of logits ---- */

static void cpu_xent(struct backend *be, struct mat logits, const int32_t *target, float eps,
                     bool grad, struct mat loss)
{
    struct cpu *cpu = cpu_of(be);
#pragma omp parallel for schedule(static) num_threads(cpu_team(cpu, mat_count(logits)))
    for (int i = 0; i < logits.rows; i++)
        cpu->k->xent(mat_at(logits, i, 0), logits.cols, logits.type, target[i], eps, grad,
                     mat_at(loss, i, 0));
}

/* ---- optimizer ---- */

/* Spans depend on the length alone; their sums are added in order. */
static void cpu_sqnorm(struct backend *be, double *out, struct mat g)
{
    struct cpu *cpu = cpu_of(be);
    size_t n = mat_count(g), span = SPAN;
    while ((n + span - 1) / span > CPU_PARTIALS) span *= 2;
    int spans = (int)((n + span - 1) / span);
#pragma omp parallel for schedule(static) num_threads(cpu_team(cpu, n))
    for (int i = 0; i < spans; i++)
        cpu->partial[i] =
            cpu->k->sum_squares((float *)g.p + i * span, size_min(n - i * span, span));
    double sum = 0;
    for (int i = 0; i < spans; i++) sum += cpu->partial[i];
    *out = sum;
}

static void cpu_adam(struct backend *be, struct mat p, struct mat m, struct mat v, struct mat copy,
                     struct mat g, const double *sq, const struct adam *h)
{
    struct cpu *cpu = cpu_of(be);
    assert(!copy.p || copy.type == TYPE_BF16);
    double size = sqrt(*sq) * h->scale;
    if (!isfinite(size) || (h->limit > 0 && size > h->limit)) return;
    float factor = (float)(h->clip > 0 && size > h->clip ? h->scale * (h->clip / size) : h->scale);
    size_t n = mat_count(p);
#pragma omp parallel for schedule(static) num_threads(cpu_team(cpu, n))
    for (size_t i = 0; i < n; i += SPAN)
        cpu->k->adam((float *)p.p + i, (float *)m.p + i, (float *)v.p + i,
                     copy.p ? (uint16_t *)copy.p + i : NULL, (float *)g.p + i,
                     size_min(n - i, SPAN), factor, h);
}

/* Both rows and columns are divided among the threads: a matrix may be one row of all parameters or
 * many short rows. */
static void cpu_accumulate(struct backend *be, struct mat x, struct mat y)
{
    struct cpu *cpu = cpu_of(be);
    assert(x.type == TYPE_F32 && y.type == TYPE_F32);
    size_t n = mat_count(x);
#pragma omp parallel for schedule(static) num_threads(cpu_team(cpu, n))
    for (size_t i = 0; i < n; i += SPAN) {
        float *to = (float *)x.p + i;
        const float *from = (const float *)y.p + i;
        for (size_t k = 0; k < size_min(n - i, SPAN); k++) to[k] += from[k];
    }
}

static void cpu_cast(struct backend *be, struct mat dst, struct mat src)
{
    struct cpu *cpu = cpu_of(be);
#pragma omp parallel for collapse(2) schedule(static) num_threads(cpu_team(cpu, mat_count(dst)))
    for (int i = 0; i < dst.rows; i++)
        for (int c = 0; c < dst.cols; c += SPAN)
            cpu->k->cast(mat_at(dst, i, c), dst.type, mat_at(src, i, c), src.type,
                         (size_t)int_min(dst.cols - c, SPAN));
}

/* ---- decoding ---- */

static size_t cpu_pack_bytes(enum type type, int rows, int cols)
{
    return packed_bytes((enum packed_kind)(type - TYPE_PACKED_F32), rows, cols);
}

static void cpu_pack(struct backend *be, struct mat w, struct stored from)
{
    packed_fill(cpu_packed(w).kind, w.p, from, w.rows, w.cols, cpu_of(be)->threads);
}

static void cpu_cache_put(struct backend *be, struct mat cache, struct mat rows, const int32_t *at)
{
    struct cpu *cpu = cpu_of(be);
#pragma omp parallel for schedule(static) num_threads(cpu_team(cpu, mat_count(rows)))
    for (int i = 0; i < rows.rows; i++) {
        assert(at[i] >= 0 && at[i] < cache.rows);
        cpu->k->cast(mat_at(cache, at[i], 0), cache.type, mat_at(rows, i, 0), rows.type,
                     (size_t)rows.cols);
    }
}

static const char *cpu_note(struct backend *be, enum heed_precision precision)
{
    if (precision != HEED_BF16 || gemm_in_bf16(cpu_of(be)->gemm)) return NULL;
    return "matrix products of bf16 are computed in f32: the instructions in use have no faster "
           "way";
}

/* ---- the table ---- */

static const struct ops cpu_ops = {
    .name = "cpu",
    .host = true,
    .chunk = 8 << 20,
    .chunk_rows = 1024,
    .chunk_bf16 = 8 << 20,
    .step_rows = 128,
    .linear_topk_most = 16, /* each thread sorts the best of its columns for every row */
    .panels = true,
    .attend_forms = true,
    .activations = ACT_KINDS,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .zero = cpu_zero,
    .upload = cpu_copy,
    .upload_ahead = cpu_copy,
    .download = cpu_copy,
    .sync = cpu_sync,
    .close = cpu_close,
    .note = cpu_note,
    .embed = cpu_embed,
    .linear = cpu_linear,
    .gate = cpu_gate,
    .attend = cpu_attend,
    .attend_linear = cpu_attend_linear,
    .add_norm = cpu_add_norm,
    .add = cpu_add,
    .norm = cpu_norm,
    .rotate = cpu_rotate,
    .route = cpu_route,
    .dispatch = cpu_dispatch,
    .experts_linear = cpu_experts_linear,
    .combine = cpu_combine,
    .embed_bwd = cpu_embed_bwd,
    .linear_bwd = cpu_linear_bwd,
    .bias_bwd = cpu_bias_bwd,
    .gate_bwd = cpu_gate_bwd,
    .experts_linear_bwd = cpu_experts_linear_bwd,
    .route_bwd = cpu_route_bwd,
    .attend_bwd = cpu_attend_bwd,
    .attend_linear_bwd = cpu_attend_linear_bwd,
    .add_norm_bwd = cpu_add_norm_bwd,
    .add_bwd = cpu_add_bwd,
    .norm_bwd = cpu_norm_bwd,
    .xent = cpu_xent,
    .sqnorm = cpu_sqnorm,
    .adam = cpu_adam,
    .accumulate = cpu_accumulate,
    .cast = cpu_cast,
    .pack_bytes = cpu_pack_bytes,
    .pack = cpu_pack,
    .cache_put = cpu_cache_put,
    .linear_state = cpu_linear_state,
    .attend_state = cpu_attend_state,
    .topk = cpu_topk,
    .linear_topk = cpu_linear_topk,
};

/* ---- open ---- */

static void *thread_wait(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* OpenMP's runtime ends the process where it cannot start a thread. So this function first starts n
 * threads of its own at the same time; where that fails, the caller gets an error. After these have
 * ended OpenMP starts its team, which reuses the memory of their stacks. */
static enum heed_status threads_start(int n, struct heed_error *err)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t *thread = malloc((size_t)n * sizeof *thread);
    if (!thread) return error_memory(err, (size_t)n * sizeof *thread, "threads");
    int started = 1, code = 0; /* the calling thread is one of them */
    pthread_mutex_lock(&gate);
    while (started < n && !(code = pthread_create(&thread[started], NULL, thread_wait, &gate)))
        started++;
    pthread_mutex_unlock(&gate);
    for (int i = 1; i < started; i++) pthread_join(thread[i], NULL);
    free(thread);
    if (code) return error_set(err, HEED_ENOMEM, "cannot start %d threads: %s", n, strerror(code));
    int present = 0; /* the compiler would remove a parallel region without an effect */
#pragma omp parallel num_threads(n) reduction(+ : present)
    present += 1;
    assert(present >= 1 && present <= n);
    return HEED_OK;
}

enum heed_status cpu_open_isa(struct backend **out, int threads, const struct isa *isa,
                              struct heed_error *err)
{
    const size_t page = 4096;
    if (threads < 0 || threads > CPU_THREADS)
        return error_set(err, HEED_EARG, "threads is %d, expected 0 (all cores) to %d", threads,
                         CPU_THREADS);
    struct cpu *cpu = malloc(sizeof *cpu);
    if (!cpu) return error_memory(err, sizeof *cpu, "the CPU backend");
    *cpu = (struct cpu){
        .ops = cpu_ops,
        .threads = threads ? threads : omp_get_num_procs(),
        .k = isa_kernels(isa->level)->rows,
        .attend = isa_kernels(isa->level)->attend,
        .linear = isa_kernels(isa->level)->linear,
        .experts = isa_kernels(isa->level)->experts,
        .partial = malloc(CPU_PARTIALS * sizeof *cpu->partial),
    };
    cpu->base.op = &cpu->ops;
    if (isa->amx) cpu->ops.chunk_bf16 = AMX_CHUNK;
    size_t work = (size_t)cpu->threads * ATTEND_WORK;
    cpu->attend_work = aligned_alloc(page, work);
    enum heed_status status = HEED_OK;
    if (!cpu->partial || !cpu->attend_work) status = error_memory(err, work, "the CPU backend");
    packed_open(&cpu->packed, isa);
    if (status == HEED_OK)
        status = threads_start(int_min(cpu->threads, omp_get_thread_limit()), err);
    if (status == HEED_OK) status = gemm_open(&cpu->gemm, cpu->threads, isa, err);
    if (status == HEED_OK)
        *out = &cpu->base;
    else
        cpu_close(&cpu->base);
    return status;
}

/* The best choice for this machine */
static struct isa isa_here(void)
{
    struct cpuid found = isa_read();
    struct isa best = isa_best(&found);
    isa_check_amx(&best);
    return best;
}

enum heed_status cpu_open(struct backend **out, const char *isa, int threads,
                          struct heed_error *err)
{
    struct isa best = isa_here(), held = best;
    enum heed_status status = isa ? isa_limit(&held, isa) : HEED_OK;
    if (status == HEED_EARG)
        return error_set(err, status,
                         "device is 'cpu:%s', expected 'cpu', 'cpu:baseline', 'cpu:avx2', "
                         "'cpu:avxvnni', 'cpu:avx512', 'cpu:vnni' or 'cpu:amx', or on ARM64 "
                         "'cpu:neon', 'cpu:dotprod' or 'cpu:i8mm'",
                         isa);
    if (status)
        return error_set(err, status,
                         "device is 'cpu:%s', which this machine lacks; it has 'cpu:%s'", isa,
                         isa_set(&best, 0));
    return cpu_open_isa(out, threads, &held, err);
}

const char *cpu_isa(int i)
{
    struct isa best = isa_here();
    return isa_set(&best, i);
}
