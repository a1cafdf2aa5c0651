/*
 * few.cu - linear layers of a few rows: decoding steps with few hypotheses.
 *
 * Such a product takes the time of reading the weights once. So the weights are read in one stream,
 * and prefetched while the kernel before is still running. A warp computes some outputs of all
 * rows; the rows are in shared memory, rounded as packed weights require. The bits of a row do not
 * depend on the other rows.
 */
#include "ops/cuda/device.h"

enum {
    ROWS = 8,    /* most rows of a block */
    OUTS = 4,    /* outputs of a warp where there are MANY in all; else one, ... */
    MANY = 2048, /* ... so that the whole GPU has work */
    WARPS = 8,
    THREADS = LANES * WARPS,
    V = 8,
    FEW = 16 /* most rows: with more, the other products are faster */
};

/* How rows of x are rounded before the product */
enum rounding { AS_IS, TO_BF16, TO_BYTES };

/* Rounds a row to multiples of its scale and returns the scale: as in quant.h */
static __device__ inline float row_to_bytes(float *x, int cols)
{
    __shared__ float part[WARPS];
    int lane = threadIdx.x % LANES;
    float most = 0;
    for (int i = threadIdx.x; i < cols; i += THREADS) most = fmaxf(most, fabsf(x[i]));
    for (int i = LANES / 2; i > 0; i /= 2) most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, i));
    __syncthreads();
    if (lane == 0) part[threadIdx.x / LANES] = most;
    __syncthreads();
    for (int i = 0; i < WARPS; i++) most = fmaxf(most, part[i]);
    float per = most < QUANT_TINY ? 0 : 127 / most;
    for (int i = threadIdx.x; i < cols; i += THREADS) x[i] = rintf(x[i] * per);
    return per == 0 ? 0 : most / 127;
}

/* Computes up to R rows of y from row blockIdx.y * R on; each warp computes N outputs. W: the type
 * of the weights */
template <class W, int R, int N, enum rounding HOW>
static __global__ void __launch_bounds__(THREADS)
    few_rows(rows<float> y, rows<const float> x, rows<const W> w, const float *b, int n, int outs,
             int cols, bool relu)
{
    extern __shared__ uint4 memory[];
    float *row = (float *)memory, unit[R];
    int first = blockIdx.y * R, lane = threadIdx.x % LANES;
    int out = (blockIdx.x * WARPS + threadIdx.x / LANES) * N;
    const int line = 128 / sizeof(W); /* numbers of a cache line */
    for (int i = lane; i * line < N * cols; i += LANES)
        chain_expect(w.at(min(out + i * line / cols, outs - 1), i * line % cols));
    chain_wait();
#pragma unroll 4
    for (int i = threadIdx.x * V; i < R * cols; i += THREADS * V) {
        int r = i / cols;
        float t[V] = {};
        if (first + r < n) load(t, x.at(first + r, i - r * cols));
#pragma unroll
        for (int k = 0; k < V; k++)
            if (HOW == TO_BF16) t[k] = as_stored(t[k], (const bf16 *)0);
        store(row + i, t);
    }
    if (HOW == TO_BYTES) {
        __syncthreads();
#pragma unroll
        for (int r = 0; r < R; r++) unit[r] = row_to_bytes(row + r * cols, cols);
    }
    __syncthreads();
    if (out >= outs) return;
    float sum[N][R] = {};
#pragma unroll 4
    for (int col = lane * V; col < cols; col += LANES * V) {
        float weight[N][V];
#pragma unroll
        for (int o = 0; o < N; o++) load(weight[o], w.at(min(out + o, outs - 1), col));
#pragma unroll
        for (int r = 0; r < R; r++) {
            float t[V];
            load(t, row + r * cols + col);
#pragma unroll
            for (int o = 0; o < N; o++)
#pragma unroll
                for (int i = 0; i < V; i++) sum[o][r] += weight[o][i] * t[i];
        }
    }
#pragma unroll
    for (int o = 0; o < N; o++) {
        float scale = 1, bias = b && out + o < outs ? b[out + o] : 0;
        if (HOW == TO_BYTES && out + o < outs)
            scale = packed_unit((const bf16 *)w.at(out + o, 0), (int)w.ld);
#pragma unroll
        for (int r = 0; r < R; r++) {
            float t = warp_sum(sum[o][r]);
            if (HOW == TO_BYTES) t = t * unit[r] * scale;
            t += bias;
            if (relu && t < 0) t = 0;
            if (lane == r && first + r < n && out + o < outs) *y.at(first + r, out + o) = t;
        }
    }
}

template <class W, int R, int N, enum rounding HOW>
static void few_launch(struct gpu *c, struct mat y, struct mat x, struct mat w, struct mat b,
                       bool relu)
{
    size_t bytes = (size_t)R * x.cols * sizeof(float);
    dim3 grid(ceiling(y.cols, WARPS * N), ceiling(y.rows, R));
    cuda_check(c, shared_allow((const void *)few_rows<W, R, N, HOW>, bytes));
    chain_launch(few_rows<W, R, N, HOW>, grid, THREADS, bytes, c->chain, rows_of<float>(y),
                 rows_of<const float>(x), rows_of<const W>(w), (const float *)b.p, y.rows, y.cols,
                 x.cols, relu);
}

template <class W, int R, enum rounding HOW>
static void few_run(struct gpu *c, struct mat y, struct mat x, struct mat w, struct mat b,
                    bool relu)
{
    if (y.cols < MANY)
        few_launch<W, R, 1, HOW>(c, y, x, w, b, relu);
    else
        few_launch<W, R, OUTS, HOW>(c, y, x, w, b, relu);
}

template <class W, enum rounding HOW>
static void few_any(struct gpu *c, struct mat y, struct mat x, struct mat w, struct mat b,
                    bool relu)
{
    if (y.rows == 1)
        few_run<W, 1, HOW>(c, y, x, w, b, relu);
    else if (y.rows <= ROWS / 2)
        few_run<W, ROWS / 2, HOW>(c, y, x, w, b, relu);
    else
        few_run<W, ROWS, HOW>(c, y, x, w, b, relu);
}

bool cuda_linear_few(struct gpu *c, struct mat y, struct mat x, struct mat w, struct mat b,
                     bool relu)
{
    struct mat plain = mat_unpacked(w);
    bool fits = y.rows <= FEW && mat_wide(plain) && mat_wide(x) && y.type == TYPE_F32 &&
                x.type == TYPE_F32 && (plain.type == TYPE_F32 || type_packed(w.type)) &&
                (size_t)ROWS * x.cols * sizeof(float) + 1024 <= (size_t)c->shared;
    if (!fits) return false;
    cuda_mark(c, "linear, few rows", mat_bytes(plain), 0);
    if (plain.type == TYPE_F32)
        few_any<float, AS_IS>(c, y, x, plain, b, relu);
    else if (w.type == TYPE_PACKED_BF16)
        few_any<bf16, TO_BF16>(c, y, x, plain, b, relu);
    else
        few_any<bf16, TO_BYTES>(c, y, x, plain, b, relu);
    return true;
}
