/*
 * bench_choices_cuda.cu - how fast the algorithms are that cuBLASLt proposes for the products of a
 * training step of `base`, in bf16. heed takes the first of them (ops/cuda/blas.cu).
 *
 *     bench_choices_cuda [ROWS]
 *
 * ROWS: tokens of a batch on one side, 25,000 unless given. Prints a line for each product: how
 * often a step has it, then the microseconds of each choice; * marks a choice whose result has the
 * same bits as that of the first. The sum at the end is over a step.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

enum { CHOICES = 8, RUNS = 20, LOGIT_ROWS = 5632, VOCAB = 37000 };
static const size_t workspace_bytes = 64 << 20;

static void check(int failed, const char *what)
{
    if (!failed) return;
    fprintf(stderr, "%s failed: %d\n", what, failed);
    exit(1);
}
#define CHECK(call) check((int)(call), #call)

/* c [m, n] = a b with k terms, all row-major; ta: a is stored as [k, m]; tb: b as [n, k] */
struct product {
    const char *name;
    int times; /* in a step */
    int m, n, k;
    bool ta, tb, add; /* add: c is f32 and is added to */
};

struct plan {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulHeuristicResult_t choice[CHOICES];
    int choices;
};

static cublasLtHandle_t handle;
static void *workspace;

/* cuBLASLt is column-major, so it computes the transposed product: operands change sides. */
static struct plan plan_make(const struct product *p)
{
    struct plan x = {};
    cublasOperation_t no = CUBLAS_OP_N, yes = CUBLAS_OP_T;
    cudaDataType_t out = p->add ? CUDA_R_32F : CUDA_R_16BF;
    CHECK(cublasLtMatmulDescCreate(&x.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    CHECK(cublasLtMatmulDescSetAttribute(x.desc, CUBLASLT_MATMUL_DESC_TRANSA, p->tb ? &yes : &no,
                                         sizeof no));
    CHECK(cublasLtMatmulDescSetAttribute(x.desc, CUBLASLT_MATMUL_DESC_TRANSB, p->ta ? &yes : &no,
                                         sizeof no));
    CHECK(cublasLtMatrixLayoutCreate(&x.a, CUDA_R_16BF, p->tb ? p->k : p->n, p->tb ? p->n : p->k,
                                     p->tb ? p->k : p->n));
    CHECK(cublasLtMatrixLayoutCreate(&x.b, CUDA_R_16BF, p->ta ? p->m : p->k, p->ta ? p->k : p->m,
                                     p->ta ? p->m : p->k));
    CHECK(cublasLtMatrixLayoutCreate(&x.c, out, p->n, p->m, p->n));
    cublasLtMatmulPreference_t prefer;
    CHECK(cublasLtMatmulPreferenceCreate(&prefer));
    CHECK(cublasLtMatmulPreferenceSetAttribute(prefer, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &workspace_bytes, sizeof workspace_bytes));
    CHECK(cublasLtMatmulAlgoGetHeuristic(handle, x.desc, x.a, x.b, x.c, x.c, prefer, CHOICES,
                                         x.choice, &x.choices));
    cublasLtMatmulPreferenceDestroy(prefer);
    return x;
}

static void run(const struct product *p, const struct plan *x, int choice, const void *a,
                const void *b, void *c)
{
    float one = 1, beta = p->add;
    CHECK(cublasLtMatmul(handle, x->desc, &one, b, x->a, a, x->b, &beta, c, x->c, c, x->c,
                         &x->choice[choice].algo, workspace, workspace_bytes, 0));
}

static float microseconds(const struct product *p, const struct plan *x, int choice, const void *a,
                          const void *b, void *c)
{
    cudaEvent_t begin, end;
    float ms = 0;
    cudaEventCreate(&begin), cudaEventCreate(&end);
    run(p, x, choice, a, b, c);
    cudaEventRecord(begin);
    for (int i = 0; i < RUNS; i++) run(p, x, choice, a, b, c);
    cudaEventRecord(end);
    CHECK(cudaEventSynchronize(end));
    cudaEventElapsedTime(&ms, begin, end);
    cudaEventDestroy(begin), cudaEventDestroy(end);
    return ms * 1000 / (float)RUNS;
}

/* Numbers around 0 that differ, so that the order of a sum shows in its bits. */
static __global__ void fill(__nv_bfloat16 *to, size_t n, uint32_t seed)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        uint32_t h = ((uint32_t)i ^ seed) * 2654435761u;
        h = (h ^ h >> 15) * 2246822519u;
        to[i] = __float2bfloat16((float)(h >> 8) / 16777216.f - 0.5f);
    }
}

static __nv_bfloat16 *filled(size_t n, uint32_t seed)
{
    __nv_bfloat16 *p;
    CHECK(cudaMalloc(&p, n * sizeof *p));
    fill<<<1024, 256>>>(p, n, seed);
    return p;
}

/* Prints the line of a product; adds what a step takes with the first and with the best choice. */
static void measure(const struct product *p, double *first, double *best)
{
    size_t out = (size_t)p->m * p->n * (p->add ? 4 : 2);
    __nv_bfloat16 *a = filled((size_t)p->m * p->k, 1), *b = filled((size_t)p->n * p->k, 2);
    char *c;
    std::vector<char> expected(out), got(out);
    struct plan x = plan_make(p);
    double least = 0, begin = 0;
    CHECK(cudaMalloc(&c, out));
    printf("%-22s %3d x [%d, %d, %d]", p->name, p->times, p->m, p->n, p->k);
    for (int i = 0; i < x.choices; i++) {
        CHECK(cudaMemset(c, 0, out));
        run(p, &x, i, a, b, c);
        CHECK(cudaMemcpy(i ? got.data() : expected.data(), c, out, cudaMemcpyDeviceToHost));
        bool same = !i || !memcmp(got.data(), expected.data(), out);
        double us = microseconds(p, &x, i, a, b, c);
        if (!i) begin = us;
        if (!i || us < least) least = us;
        printf(" %.1f%s", us, same ? "*" : "");
    }
    double flops = 2.0 * p->m * p->n * p->k;
    printf(" us; %.0f to %.0f TFLOP/s\n", flops / begin * 1e-6, flops / least * 1e-6);
    *first += begin * p->times, *best += least * p->times;
    cudaFree(a), cudaFree(b), cudaFree(c);
}

int main(int argc, char **argv)
{
    int rows = argc > 1 ? atoi(argv[1]) : 25000;
    const struct product product[] = {
        {"qkv", 12, rows, 1536, 512, false, true, false},
        {"out, q of cross", 24, rows, 512, 512, false, true, false},
        {"k and v of memory", 6, rows, 1024, 512, false, true, false},
        {"feed-forward 1", 12, rows, 2048, 512, false, true, false},
        {"feed-forward 2", 12, rows, 512, 2048, false, true, false},
        {"logits", 5, LOGIT_ROWS, VOCAB, 512, false, true, false},
        {"dx of qkv", 12, rows, 512, 1536, false, false, false},
        {"dx of out, q", 24, rows, 512, 512, false, false, false},
        {"dx of k and v", 6, rows, 512, 1024, false, false, false},
        {"dx of feed-forward 1", 12, rows, 512, 2048, false, false, false},
        {"dx of logits", 5, LOGIT_ROWS, 512, VOCAB, false, false, false},
        {"dw of qkv", 12, 1536, 512, rows, true, false, true},
        {"dw of out, q", 24, 512, 512, rows, true, false, true},
        {"dw of k and v", 6, 1024, 512, rows, true, false, true},
        {"dw of feed-forward 1", 12, 2048, 512, rows, true, false, true},
        {"dw of feed-forward 2", 12, 512, 2048, rows, true, false, true},
        {"dw of logits", 5, VOCAB, 512, LOGIT_ROWS, true, false, true},
    };
    double first = 0, best = 0;
    if (rows < 1) {
        fprintf(stderr, "ROWS is '%s', expected at least 1\n", argv[1]);
        return 2;
    }
    CHECK(cublasLtCreate(&handle));
    CHECK(cudaMalloc(&workspace, workspace_bytes));
    for (const struct product &p : product) measure(&p, &first, &best);
    printf("a step: %.2f ms with the first choices, %.2f ms with the best\n", first / 1000,
           best / 1000);
    return 0;
}
