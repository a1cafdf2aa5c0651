/*
 * gemm_none.c - what stands for gemm_dnnl.c in a build without oneDNN: every tile is refused, so
 * that gemm.c gives it to gemm_plain.c.
 */
#include "base/error.h"
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

enum heed_status gemm_dnnl_prepare(struct gemm_dnnl *d, const struct gemm_job *tile, int n,
                                   size_t *scratch, struct heed_error *err)
{
    (void)d, (void)tile, (void)n, (void)scratch;
    return error_set(err, HEED_EUNSUPPORTED, "heed was built without oneDNN");
}

enum heed_status gemm_dnnl_tile(struct gemm_dnnl *d, const struct gemm_job *tile, int thread,
                                void *scratch, struct heed_error *err)
{
    (void)scratch;
    return gemm_dnnl_prepare(d, tile, thread, NULL, err);
}
