/*
 * gemm_none.c - replaces gemm_dnnl.c in a build without oneDNN: it refuses every product, so that
 * gemm.c gives all of them to gemm_plain.c.
 */
#include "ops/cpu/gemm.h"

enum heed_status gemm_dnnl_open(struct gemm_dnnl **out, int threads, struct heed_error *err)
{
    (void)threads, (void)err;
    *out = NULL;
    return HEED_OK;
}

void gemm_dnnl_free(struct gemm_dnnl *d)
{
    (void)d;
}

enum heed_status gemm_dnnl_run(struct gemm_dnnl *d, const struct gemm_job *j,
                               struct heed_error *err)
{
    (void)d, (void)j, (void)err;
    return HEED_EUNSUPPORTED;
}
