/*
 * loss.cu - label-smoothed cross-entropy and its gradient in place (paper 5.4).
 *
 * One block computes one row. While it finds the maximum and the sum it copies the row to shared
 * memory, from where the gradient is computed; a row that does not fit there is read a second time.
 */
#include "ops/cuda/device.h"

enum { THREADS = 512 };

/* A maximum and the sum of exp(x - maximum) over some x */
struct soft {
    float max, sum;
};

static __device__ inline float exponential(float x, const float *)
{
    return expf(x);
}
/* The fast exponential is precise enough where the result is rounded to bf16. */
static __device__ inline float exponential(float x, const bf16 *)
{
    return __expf(x);
}

static __device__ inline struct soft join(struct soft a, struct soft b)
{
    float max = fmaxf(a.max, b.max);
    struct soft s = {max, 0};
    if (a.sum != 0) s.sum += a.sum * expf(a.max - max);
    if (b.sum != 0) s.sum += b.sum * expf(b.max - max);
    return s;
}

static __device__ inline struct soft block_join(struct soft s)
{
    __shared__ struct soft part[LANES];
    int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    for (int level = 0; level < 2; level++) {
#pragma unroll
        for (int i = LANES / 2; i > 0; i /= 2) {
            struct soft other = {__shfl_xor_sync(ALL_LANES, s.max, i),
                                 __shfl_xor_sync(ALL_LANES, s.sum, i)};
            s = join(s, other);
        }
        if (level) break;
        if (lane == 0) part[warp] = s;
        __syncthreads();
        struct soft none = {-INFINITY, 0};
        s = lane < blockDim.x / LANES ? part[lane] : none;
    }
    return s;
}

/* keep: the row fits in shared memory */
template <class T, int V>
static __global__ void __launch_bounds__(THREADS)
    xent_row(rows<T> logits, const int32_t *target, rows<float> loss, int cols, float eps,
             bool grad, bool keep)
{
    extern __shared__ uint4 memory[];
    T *row = logits.at(blockIdx.x, 0), *copy = (T *)memory;
    chain_wait();
    int want = target[blockIdx.x];
    struct soft s = {-INFINITY, 0};
    float total = 0;
#pragma unroll 2
    for (int col = threadIdx.x * V; col < cols; col += THREADS * V) {
        float x[V];
        load(x, row + col);
        if (keep) store(copy + col, x);
        float max = s.max;
#pragma unroll
        for (int i = 0; i < V; i++) max = fmaxf(max, x[i]);
        if (s.sum != 0) s.sum *= exponential(s.max - max, row);
        s.max = max;
#pragma unroll
        for (int i = 0; i < V; i++) {
            s.sum += exponential(x[i] - max, row);
            total += x[i];
        }
    }
    s = block_join(s);
    total = block_sum(total);
    float log_sum = logf(s.sum), at_target[1];
    load(at_target, row + want);
    __syncthreads(); /* all threads have read row[want] before one overwrites it */
    if (threadIdx.x == 0) {
        float nll = s.max - at_target[0] + log_sum;
        *loss.at(blockIdx.x, 0) = s.max - (1 - eps) * at_target[0] - eps * (total / cols) + log_sum;
        *loss.at(blockIdx.x, 1) = nll;
    }
    if (!grad) return;
    float over = s.max + log_sum, rest = eps / cols;
#pragma unroll 2
    for (int col = threadIdx.x * V; col < cols; col += THREADS * V) {
        float x[V];
        load(x, keep ? copy + col : row + col);
#pragma unroll
        for (int i = 0; i < V; i++)
            x[i] = exponential(x[i] - over, row) - rest - (col + i == want ? 1 - eps : 0);
        store(row + col, x);
    }
}

template <class T, int V>
static void xent_run(struct gpu *c, struct mat logits, const int32_t *target, float eps, bool grad,
                     struct mat loss)
{
    size_t bytes = (size_t)logits.cols * sizeof(T) + 16;
    bool keep = grad && bytes + 2048 <= (size_t)c->shared;
    if (keep) cuda_check(c, shared_allow((const void *)xent_row<T, V>, bytes));
    chain_launch(xent_row<T, V>, logits.rows, THREADS, keep ? bytes : 0, c->chain,
                 rows_of<T>(logits), target, rows_of<float>(loss), logits.cols, eps, grad, keep);
}

void cuda_xent(struct gpu *c, struct mat logits, const int32_t *target, float eps, bool grad,
               struct mat loss)
{
    bool wide = mat_wide(logits);
    if (logits.type == TYPE_BF16)
        wide ? xent_run<bf16, 8>(c, logits, target, eps, grad, loss)
             : xent_run<bf16, 1>(c, logits, target, eps, grad, loss);
    else if (logits.type == TYPE_F32)
        wide ? xent_run<float, 8>(c, logits, target, eps, grad, loss)
             : xent_run<float, 1>(c, logits, target, eps, grad, loss);
    else
        cuda_refuse(c, "numbers other than f32 and bf16");
}
