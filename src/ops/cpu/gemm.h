/*
 * gemm.h - the matrix products of the CPU backend.
 *
 * The kernels for AMX compute products of bf16 (gemm_amx.c), where the processor has it. oneDNN
 * computes a product (gemm_dnnl.c) where it was found at configure time and has a kernel for it
 * that keeps the promises below; plain C (gemm_plain.c) computes the others. gemm.c chooses. Where
 * products of bf16 are not faster than those of f32 (isa.h), the operands are widened to f32.
 *
 * Promises: the bits of c do not depend on the number of threads, and the bits of a row of c do not
 * depend on the number of rows of c, as long as that is a multiple of ROW_PAD. The caller
 * (linear.c) rounds the rows up; a product has exactly the shape of the job. Only one thread at a
 * time may use a struct gemm, but different threads may use it one after another.
 */
#ifndef HEED_OPS_CPU_GEMM_H
#define HEED_OPS_CPU_GEMM_H
#include "ops/ops.h"

struct gemm;
struct isa; /* isa.h */

/* threads >= 1: how many a product may use, whatever the OpenMP settings of the process. */
enum heed_status gemm_open(struct gemm **out, int threads, const struct isa *isa,
                           struct heed_error *err);
void gemm_free(struct gemm *g);
/* Whether products of bf16 are computed in bf16, not in f32. */
bool gemm_in_bf16(const struct gemm *g);

/* c = op(a) op(b) + bias + beta*c, then ReLU when relu is set. op transposes where ta, tb say so;
 * the sizes are c.rows, c.cols and the inner side of a, which must not be 0. beta is 0 or 1; with
 * 0 c is not read. bias [1, c.cols] F32; {0}: none. a and b have one type (F32 or BF16), c is F32
 * or that type; the sum over the inner side is F32. c overlaps neither a nor b. The ReLU of a NaN
 * may be 0; a NaN in the input of the feed-forward is not lost, because the residual connection
 * passes it on. */
struct gemm_job {
    struct mat c, a, b, bias;
    bool ta, tb;
    float beta;
    bool relu;
};
/* After a failure (lack of memory) no more products are computed until gemm_status has returned it.
 */
void gemm_run(struct gemm *g, const struct gemm_job *j);
/* Returns the first failure since the last call, with its sentence in err; or HEED_OK. */
enum heed_status gemm_status(struct gemm *g, struct heed_error *err);

/* ---- private: two of the ways to compute a product; amx.h has the third ---- */

static inline int gemm_inner(const struct gemm_job *j)
{
    return j->ta ? j->a.rows : j->a.cols;
}

/* sum [STEP_M][STEP_N] += aT b, a [k][STEP_M], b [k][STEP_N]; gemm_kernels.c, once per ISA */
enum { GEMM_STEP_M = 6, GEMM_STEP_N = 16 };
typedef void gemm_step(float *restrict sum, const float *restrict a, const float *restrict b,
                       int k);
extern gemm_step gemm_step_baseline, gemm_step_avx2, gemm_step_avx512, gemm_step_dotprod,
    gemm_step_i8mm;

/* Computes any product on any machine. work: gemm_plain_work bytes for each thread. */
extern const size_t gemm_plain_work;
void gemm_plain_run(const struct gemm_job *j, gemm_step *step, void *work, int threads);

/* Whether the oneDNN kernel of this name is used: gemm_dnnl.c says which are not and why. */
bool gemm_kernel_taken(const char *name);

/* *out is NULL in a build without oneDNN. */
struct gemm_dnnl;
enum heed_status gemm_dnnl_open(struct gemm_dnnl **out, int threads, struct heed_error *err);
void gemm_dnnl_free(struct gemm_dnnl *d);
/* HEED_EUNSUPPORTED, without a sentence: gemm_plain_run must compute this product. */
enum heed_status gemm_dnnl_run(struct gemm_dnnl *d, const struct gemm_job *j,
                               struct heed_error *err);

#endif
