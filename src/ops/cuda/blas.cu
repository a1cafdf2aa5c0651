/*
 * blas.cu - products by cuBLASLt; see blas.h.
 *
 * The library is half a gigabyte, so it is loaded when the first device is opened and not when the
 * program starts. Asking it for an algorithm takes longer than most products, so the answers,
 * called plans, are kept in a hash table by shape. Batches differ in their number of rows, so the
 * plan is that of the number rounded up, in eight steps to a doubling. The algorithm depends on the
 * rounded shape alone, so the same product gives the same bits in every run. Call order: blas_open,
 * blas_run, blas_close.
 */
#include "ops/cuda/blas.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "ops/cuda/device.h"

enum { WORKSPACE = 64 << 20, PLANS = 4096 /* a power of two */ };

/* ---- the library ---- */

struct lt {
    decltype(&cublasLtCreate) create;
    decltype(&cublasLtDestroy) destroy;
    decltype(&cublasLtMatmul) matmul;
    decltype(&cublasLtMatmulAlgoGetHeuristic) choose;
    decltype(&cublasLtMatmulDescCreate) desc_create;
    decltype(&cublasLtMatmulDescDestroy) desc_destroy;
    decltype(&cublasLtMatmulDescSetAttribute) desc_set;
    decltype(&cublasLtMatrixLayoutCreate) layout_create;
    decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
    decltype(&cublasLtMatrixLayoutSetAttribute) layout_set;
    decltype(&cublasLtMatmulPreferenceCreate) preference_create;
    decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
    decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
};

static const struct {
    const char *name;
    size_t at;
} symbols[] = {
    {"cublasLtCreate", offsetof(struct lt, create)},
    {"cublasLtDestroy", offsetof(struct lt, destroy)},
    {"cublasLtMatmul", offsetof(struct lt, matmul)},
    {"cublasLtMatmulAlgoGetHeuristic", offsetof(struct lt, choose)},
    {"cublasLtMatmulDescCreate", offsetof(struct lt, desc_create)},
    {"cublasLtMatmulDescDestroy", offsetof(struct lt, desc_destroy)},
    {"cublasLtMatmulDescSetAttribute", offsetof(struct lt, desc_set)},
    {"cublasLtMatrixLayoutCreate", offsetof(struct lt, layout_create)},
    {"cublasLtMatrixLayoutDestroy", offsetof(struct lt, layout_destroy)},
    {"cublasLtMatrixLayoutSetAttribute", offsetof(struct lt, layout_set)},
    {"cublasLtMatmulPreferenceCreate", offsetof(struct lt, preference_create)},
    {"cublasLtMatmulPreferenceDestroy", offsetof(struct lt, preference_destroy)},
    {"cublasLtMatmulPreferenceSetAttribute", offsetof(struct lt, preference_set)},
};

#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)
#define LIBRARY    "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR)

/* The library is never unloaded: another backend may use it, and it is not made for unloading. */
static enum heed_status lt_load(struct lt *lt, struct heed_error *err)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) library = dlopen("/usr/local/cuda/lib64/" LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return error_set(err, HEED_EUNSUPPORTED, "CUDA needs %s, which cannot be loaded: %s",
                         LIBRARY, dlerror());
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *f = dlsym(library, symbols[i].name);
        if (!f) return error_set(err, HEED_EUNSUPPORTED, "%s has no %s", LIBRARY, symbols[i].name);
        memcpy((char *)lt + symbols[i].at, &f, sizeof f);
    }
    return HEED_OK;
}

/* ---- plans ---- */

/* cuBLAS is column-major: it sees our row-major matrices transposed, so left and right operands are
 * swapped. */
struct shape {
    int m, n, k, lda, ldb, ldc;
    int ta, tb, in, out, relu;
    int bias; /* its alignment, at most 16; 0: there is none */
    int align_a, align_b, align_c;
};

struct plan {
    struct shape shape; /* with the rows of the batch rounded up */
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    bool used, found; /* used: the slot has a plan; found: cuBLASLt has an algorithm */
};

struct blas {
    struct lt lt;
    cublasLtHandle_t handle;
    void *workspace;
    struct plan plan[PLANS];
    int plans;
};

/* Rounds up to the next of eight steps to a doubling; steps are at least 16 rows. */
static int rounded(int rows)
{
    int step = 16;
    while (step * 16 < rows) step *= 2;
    return (rows + step - 1) / step * step;
}

/* Whether the product sums over the rows of the batch: a is transposed. Otherwise the rows of the
 * batch are rows of c. */
static bool sums_rows(const struct shape *s)
{
    return s->tb;
}

/* The alignment of p in bytes, at most `most`. */
static int alignment(const void *p, int most)
{
    uintptr_t low = (uintptr_t)p & -(uintptr_t)p;
    return low == 0 || low > (uintptr_t)most ? most : (int)low;
}

static struct shape shape_of(const struct product *p)
{
    struct shape s;
    memset(&s, 0, sizeof s);
    s.m = p->c.cols, s.n = p->c.rows, s.k = p->ta ? p->a.rows : p->a.cols;
    s.lda = p->b.ld, s.ldb = p->a.ld, s.ldc = p->c.ld;
    s.ta = p->tb, s.tb = p->ta;
    s.in = p->a.type, s.out = p->c.type;
    s.bias = p->bias ? alignment(p->bias, 16) : 0, s.relu = p->relu;
    s.align_a = alignment(p->b.p, 256), s.align_b = alignment(p->a.p, 256);
    s.align_c = alignment(p->c.p, 256);
    return s;
}

static cudaDataType_t data_type(int type)
{
    return type == TYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static void plan_close(const struct lt *lt, struct plan *p)
{
    if (!p->used) return;
    if (p->a) lt->layout_destroy(p->a);
    if (p->b) lt->layout_destroy(p->b);
    if (p->c) lt->layout_destroy(p->c);
    if (p->desc) lt->desc_destroy(p->desc);
    memset(p, 0, sizeof *p);
}

static void plan_describe(const struct lt *lt, struct plan *p, const struct shape *s)
{
    cublasOperation_t n = CUBLAS_OP_N, t = CUBLAS_OP_T;
    cublasLtEpilogue_t epilogue = s->bias && s->relu ? CUBLASLT_EPILOGUE_RELU_BIAS
                                  : s->bias          ? CUBLASLT_EPILOGUE_BIAS
                                  : s->relu          ? CUBLASLT_EPILOGUE_RELU
                                                     : CUBLASLT_EPILOGUE_DEFAULT;
    cudaDataType_t out = data_type(s->out);
    lt->desc_create(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    lt->desc_set(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, s->ta ? &t : &n, sizeof n);
    lt->desc_set(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, s->tb ? &t : &n, sizeof n);
    lt->desc_set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (s->bias) lt->desc_set(p->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &out, sizeof out);
    lt->layout_create(&p->a, data_type(s->in), s->ta ? s->k : s->m, s->ta ? s->m : s->k, s->lda);
    lt->layout_create(&p->b, data_type(s->in), s->tb ? s->n : s->k, s->tb ? s->k : s->n, s->ldb);
    lt->layout_create(&p->c, out, s->m, s->n, s->ldc);
}

/* Sets the layouts to the number of rows of the batch. */
static void plan_rows(const struct lt *lt, struct plan *p, const struct shape *s)
{
    uint64_t rows = (uint64_t)(sums_rows(s) ? s->k : s->n);
    cublasLtMatrixLayout_t other = sums_rows(s) ? p->a : p->c;
    lt->layout_set(p->b, CUBLASLT_MATRIX_LAYOUT_COLS, &rows, sizeof rows);
    lt->layout_set(other, CUBLASLT_MATRIX_LAYOUT_COLS, &rows, sizeof rows);
}

static void plan_choose(struct blas *b, struct plan *p, const struct shape *s)
{
    const struct lt *lt = &b->lt;
    cublasLtMatmulPreference_t prefer = NULL;
    cublasLtMatmulHeuristicResult_t result;
    int results = 0;
    uint64_t workspace = WORKSPACE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        uint32_t value;
    } align[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)s->align_a},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)s->align_b},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)s->align_c},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)s->align_c}};
    p->found = false;
    if (lt->preference_create(&prefer) != CUBLAS_STATUS_SUCCESS) return;
    lt->preference_set(prefer, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                       sizeof workspace);
    for (int i = 0; i < 4; i++)
        lt->preference_set(prefer, align[i].name, &align[i].value, sizeof align[i].value);
    plan_rows(lt, p, s);
    if (lt->choose(b->handle, p->desc, p->a, p->b, p->c, p->c, prefer, 1, &result, &results) ==
            CUBLAS_STATUS_SUCCESS &&
        results == 1 && result.state == CUBLAS_STATUS_SUCCESS) {
        p->algo = result.algo;
        p->found = true;
    }
    lt->preference_destroy(prefer);
}

static uint32_t hash(const struct shape *s)
{
    uint32_t h = 2166136261u;
    for (const unsigned char *p = (const unsigned char *)s; p < (const unsigned char *)(s + 1); p++)
        h = (h ^ *p) * 16777619u;
    return h ^ h >> 15;
}

/* bias: a pointer with the alignment of the bias, on which the choice of the algorithm may depend
 */
static struct plan *plan_find(struct blas *b, struct shape s, const void *bias)
{
    if (sums_rows(&s))
        s.k = rounded(s.k);
    else
        s.n = rounded(s.n);
    if (b->plans > PLANS / 2) {
        for (int i = 0; i < PLANS; i++) plan_close(&b->lt, &b->plan[i]);
        b->plans = 0;
    }
    struct plan *p;
    for (uint32_t i = hash(&s);; i++) {
        p = &b->plan[i % PLANS];
        if (!p->used) break;
        if (!memcmp(&p->shape, &s, sizeof s)) return p;
    }
    b->plans++;
    p->used = true;
    p->shape = s;
    plan_describe(&b->lt, p, &s);
    if (bias) b->lt.desc_set(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    plan_choose(b, p, &s);
    return p;
}

static bool plan_run(struct blas *b, struct plan *p, const struct product *q, cudaStream_t stream)
{
    float one = 1;
    return p->found && b->lt.matmul(b->handle, p->desc, &one, q->b.p, p->a, q->a.p, p->b, &q->beta,
                                    q->c.p, p->c, q->c.p, p->c, &p->algo, b->workspace, WORKSPACE,
                                    stream) == CUBLAS_STATUS_SUCCESS;
}

/* ---- the plain kernel: any shape, any alignment ---- */

enum { TILE = 16 };

/* am, ak, bk, bn: distances between elements of a along m and k, of b along k and n. */
template <class T, class U>
static __global__ void product_plain(rows<U> c, const T *a, size_t am, size_t ak, const T *b,
                                     size_t bk, size_t bn, const U *bias, bool relu, float beta,
                                     int m, int n, int k)
{
    __shared__ float left[TILE][TILE + 1], right[TILE][TILE + 1];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.x * TILE + ty, col = blockIdx.y * TILE + tx;
    float sum = 0;
    for (int at = 0; at < k; at += TILE) {
        bool in_a = row < m && at + tx < k, in_b = at + ty < k && col < n;
        left[ty][tx] = in_a ? (float)a[row * am + (at + tx) * ak] : 0;
        right[ty][tx] = in_b ? (float)b[(at + ty) * bk + col * bn] : 0;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; i++) sum += left[ty][i] * right[i][tx];
        __syncthreads();
    }
    if (row >= m || col >= n) return;
    U *to = c.at(row, col);
    if (bias) sum += (float)bias[col];
    if (relu && sum < 0) sum = 0;
    if (beta != 0) sum += beta * (float)*to;
    *to = (U)sum;
}

template <class T, class U> static void plain_run(struct gpu *c, const struct product *p)
{
    int m = p->c.rows, n = p->c.cols, k = p->ta ? p->a.rows : p->a.cols;
    size_t lda = p->a.ld, ldb = p->b.ld;
    dim3 grid(ceiling(m, TILE), ceiling(n, TILE));
    product_plain<T, U><<<grid, dim3(TILE, TILE), 0, c->stream>>>(
        rows_of<U>(p->c), (const T *)p->a.p, p->ta ? 1 : lda, p->ta ? lda : 1, (const T *)p->b.p,
        p->tb ? 1 : ldb, p->tb ? ldb : 1, (const U *)p->bias, p->relu, p->beta, m, n, k);
}

/* ---- one product ---- */

static bool types_taken(const struct product *p)
{
    enum type in = p->a.type, out = p->c.type;
    return in == p->b.type && (in == TYPE_F32 || in == TYPE_BF16) && (out == in || out == TYPE_F32);
}

void blas_run(struct gpu *c, const struct product *p)
{
    struct blas *b = c->blas;
    struct shape s = shape_of(p);
    cuda_check(c, cudaGetLastError()); /* of kernels that prepared the operands */
    if (!types_taken(p)) {
        cuda_refuse(c, "matrices of these types");
        return;
    }
    double mn = (double)s.m * s.n;
    double bytes = mat_bytes(p->a) + mat_bytes(p->b) + mat_bytes(p->c) * (p->beta != 0 ? 2 : 1);
    struct plan *plan = plan_find(b, s, p->bias);
    if (p->bias)
        b->lt.desc_set(plan->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias, sizeof p->bias);
    plan_rows(&b->lt, plan, &s);
    cuda_mark(c, p->name, bytes, 2 * mn * s.k);
    if (plan_run(b, plan, p, c->stream)) return;
    if (plan->found) { /* the algorithm of the rounded shape need not work for this one */
        plan_choose(b, plan, &s);
        bool done = plan_run(b, plan, p, c->stream);
        plan_choose(b, plan, &plan->shape);
        if (done) return;
    }
    cudaGetLastError();
    cuda_mark(c, "plain product", bytes, 2 * mn * s.k);
    if (s.in == TYPE_F32)
        plain_run<float, float>(c, p);
    else if (s.out == TYPE_F32)
        plain_run<bf16, float>(c, p);
    else
        plain_run<bf16, bf16>(c, p);
}

/* ---- life ---- */

enum heed_status blas_open(struct blas **out, struct gpu *c, struct heed_error *err)
{
    struct blas *b = (struct blas *)calloc(1, sizeof *b);
    if (!b) return error_memory(err, sizeof *b, "the CUDA backend");
    enum heed_status s = lt_load(&b->lt, err);
    if (!s) s = memory_alloc(c, &b->workspace, WORKSPACE, err);
    if (!s && b->lt.create(&b->handle) != CUBLAS_STATUS_SUCCESS)
        s = error_set(err, HEED_EUNSUPPORTED, "%s: cuBLASLt cannot be used", c->name);
    if (s)
        blas_close(b);
    else
        *out = b;
    return s;
}

void blas_close(struct blas *b)
{
    if (!b) return;
    for (int i = 0; i < PLANS; i++) plan_close(&b->lt, &b->plan[i]);
    if (b->handle) b->lt.destroy(b->handle);
    cudaFree(b->workspace);
    free(b);
}
