/*
 * gemm.c - matrix products: who computes them, and what went wrong.
 *
 * Place: between linear.c and the two ways to compute a product, gemm_dnnl.c and gemm_plain.c.
 * Order: gemm_open, gemm_run many times, gemm_status at sync, gemm_free.
 */
#include "ops/cpu/gemm.h"

#include <assert.h>
#include <omp.h>
#include <stdlib.h>

#include "base/error.h"

struct gemm {
    int threads;
    struct gemm_dnnl *dnnl;
    void *work;               /* for gemm_plain_run; NULL until first needed */
    struct heed_error failed; /* the first failure not yet told */
};

static void run_plain(struct gemm *g, const struct gemm_job *j)
{
    size_t bytes = gemm_plain_work * (size_t)g->threads;
    if (!g->work) g->work = malloc(bytes);
    if (g->work)
        gemm_plain_run(j, g->work, g->threads);
    else
        error_memory(&g->failed, bytes, "the work space of matrix products");
}

void gemm_run(struct gemm *g, const struct gemm_job *j)
{
    int k = gemm_inner(j);
    assert(k > 0 && k == (j->tb ? j->b.cols : j->b.rows));
    assert(j->c.rows == (j->ta ? j->a.cols : j->a.rows));
    assert(j->c.cols == (j->tb ? j->b.rows : j->b.cols));
    if (j->c.rows == 0 || j->c.cols == 0 || g->failed.status != HEED_OK) return;
    struct heed_error err = {0};
    enum heed_status status = gemm_dnnl_run(g->dnnl, j, &err);
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

enum heed_status gemm_open(struct gemm **out, int threads, struct heed_error *err)
{
    assert(threads >= 1);
    struct gemm *g = calloc(1, sizeof *g);
    if (!g) return error_memory(err, sizeof *g, "matrix products");
    /* oneDNN plans for all the threads it is promised and leaves out the work of those that do not
     * come, so none may be promised that OpenMP would not give. */
    int most = omp_get_thread_limit();
    g->threads = threads < most ? threads : most;
    enum heed_status status = gemm_dnnl_open(&g->dnnl, g->threads, err);
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
    free(g->work);
    free(g);
}
