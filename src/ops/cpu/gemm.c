/*
 * gemm.c - matrix products: chooses who computes them and keeps the first error.
 *
 * Place: between linear.c and the three ways to compute a product: gemm_amx.c, gemm_dnnl.c and
 * gemm_plain.c.
 * Order: gemm_open, gemm_run many times, gemm_status at sync, gemm_free.
 */
#include "ops/cpu/gemm.h"

#include <assert.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ops/cpu/amx.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/isa.h"
#include "ops/cpu/kernels.h"

/* Memory for a bf16 matrix that is widened to f32; grows as needed. */
struct wide {
    float *v;
    size_t bytes;
};

struct gemm {
    int threads;
    struct isa isa;
    const struct isa_kernels *kernels;
    struct gemm_dnnl *dnnl;   /* NULL: oneDNN computes no product */
    struct gemm_amx amx;      /* for bf16 products where isa.amx is set */
    struct wide a, b, c;      /* operands of bf16 products that are computed in f32 */
    void *work;               /* for gemm_plain_run; NULL until first needed */
    struct heed_error failed; /* the first failure that gemm_status has not returned yet */
};

static void run_plain(struct gemm *g, const struct gemm_job *j)
{
    size_t bytes = gemm_plain_work * (size_t)g->threads;
    if (!g->work) g->work = malloc(bytes);
    if (g->work)
        gemm_plain_run(j, g->kernels->step, g->work, g->threads);
    else
        error_memory(&g->failed, bytes, "the work space of matrix products");
}

bool gemm_in_bf16(const struct gemm *g)
{
    return g->isa.amx || (g->dnnl && g->isa.bf16_products);
}

bool gemm_kernel_taken(const char *name)
{
    return !strncmp(name, "brg", strlen("brg")) && !strstr(name, "amx");
}

/* ---- products of bf16 in f32 ---- */

static void cast(const struct gemm *g, struct mat to, struct mat from)
{
    int team = (size_t)to.rows * to.cols < CPU_SMALL ? 1 : g->threads;
#pragma omp parallel for schedule(static) num_threads(team)
    for (int r = 0; r < to.rows; r++)
        g->kernels->rows->cast(mat_at(to, r, 0), to.type, mat_at(from, r, 0), from.type,
                               (size_t)to.cols);
}

/* A matrix of m's shape in f32; its p is NULL and err is set where memory is lacking. */
static struct mat wide_reserve(struct wide *w, struct mat m, struct heed_error *err)
{
    size_t bytes = ((size_t)m.rows * m.cols * sizeof *w->v + 63) / 64 * 64;
    if (bytes > w->bytes) {
        free(w->v);
        w->v = aligned_alloc(64, bytes);
        w->bytes = w->v ? bytes : 0;
        if (!w->v) error_memory(err, bytes, "a matrix product in f32");
    }
    return mat_make(w->v, m.rows, m.cols, TYPE_F32);
}

/* Computes a bf16 product with oneDNN's f32 kernels. f32 represents the product of two bf16 numbers
 * exactly; the f32 sums are rounded to bf16 once at the end. */
static enum heed_status run_widened(struct gemm *g, const struct gemm_job *j,
                                    struct heed_error *err)
{
    struct gemm_job wide = *j;
    wide.a = wide_reserve(&g->a, j->a, err);
    wide.b = wide_reserve(&g->b, j->b, err);
    if (j->c.type == TYPE_BF16) wide.c = wide_reserve(&g->c, j->c, err);
    if (!wide.a.p || !wide.b.p || !wide.c.p) return HEED_ENOMEM;
    cast(g, wide.a, j->a);
    cast(g, wide.b, j->b);
    if (j->c.type == TYPE_BF16 && j->beta != 0) cast(g, wide.c, j->c);
    enum heed_status status = gemm_dnnl_run(g->dnnl, &wide, err);
    if (status == HEED_OK && j->c.type == TYPE_BF16) cast(g, j->c, wide.c);
    return status;
}

/* HEED_EUNSUPPORTED: neither AMX nor oneDNN computes this product. */
static enum heed_status run_fast(struct gemm *g, const struct gemm_job *j, struct heed_error *err)
{
    if (j->a.type == TYPE_BF16 && g->isa.amx)
        return gemm_amx_run(&g->amx, j, g->isa.amx, g->threads, err);
    if (!g->dnnl) return HEED_EUNSUPPORTED;
    if (j->a.type == TYPE_BF16 && !gemm_in_bf16(g)) return run_widened(g, j, err);
    return gemm_dnnl_run(g->dnnl, j, err);
}

/* ---- any product ---- */

void gemm_run(struct gemm *g, const struct gemm_job *j)
{
    int k = gemm_inner(j);
    assert(k > 0 && k == (j->tb ? j->b.cols : j->b.rows));
    assert(j->c.rows == (j->ta ? j->a.cols : j->a.rows));
    assert(j->c.cols == (j->tb ? j->b.rows : j->b.cols));
    if (j->c.rows == 0 || j->c.cols == 0 || g->failed.status != HEED_OK) return;
    struct heed_error err = {0};
    enum heed_status status = run_fast(g, j, &err);
    if (status == HEED_EUNSUPPORTED)
        run_plain(g, j);
    else if (status != HEED_OK)
        g->failed = err;
}

enum heed_status gemm_status(struct gemm *g, struct heed_error *err)
{
    enum heed_status status = g->failed.status;
    if (status != HEED_OK && err) *err = g->failed;
    g->failed = (struct heed_error){0};
    return status;
}

enum heed_status gemm_open(struct gemm **out, int threads, const struct isa *isa,
                           struct heed_error *err)
{
    assert(threads >= 1);
    struct gemm *g = calloc(1, sizeof *g);
    if (!g) return error_memory(err, sizeof *g, "matrix products");
    /* oneDNN divides the work among the number of threads it is told. If OpenMP started fewer, part
     * of the work would not be done, so the number is limited to what OpenMP starts. */
    int most = omp_get_thread_limit();
    g->threads = threads < most ? threads : most;
    g->isa = *isa;
    g->kernels = isa_kernels(isa->level);
    enum heed_status status = isa->dnnl ? gemm_dnnl_open(&g->dnnl, g->threads, err) : HEED_OK;
    if (status == HEED_OK)
        *out = g;
    else
        gemm_free(g);
    return status;
}

void gemm_free(struct gemm *g)
{
    if (!g) return;
    gemm_dnnl_free(g->dnnl);
    gemm_amx_release(&g->amx);
    free(g->work);
    free(g->a.v);
    free(g->b.v);
    free(g->c.v);
    free(g);
}
