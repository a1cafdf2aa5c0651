/*
 * adam.cu - ops on flat arrays: the norm of the gradient, Adam in one sweep (paper 5.3), conversion
 * between types.
 */
#include "ops/adam.h"
#include "ops/cuda/device.h"

enum { THREADS = 256, WARPS = THREADS / LANES, BLOCKS = 132 * 8, V = 8 };

/* ---- the norm ---- */

static __device__ inline double block_sum_double(double x)
{
    __shared__ double part[WARPS];
    for (int i = LANES / 2; i > 0; i /= 2) x += __shfl_xor_sync(ALL_LANES, x, i);
    if (threadIdx.x % LANES == 0) part[threadIdx.x / LANES] = x;
    __syncthreads();
    x = 0;
    for (int i = 0; i < WARPS; i++) x += part[i];
    return x;
}

/* Each thread loads 4 numbers at a time where the array is aligned, and single ones at the end. */
static __global__ void __launch_bounds__(THREADS)
    sum_squares(double *partial, const float *g, size_t n)
{
    size_t stride = (size_t)gridDim.x * THREADS, first = (size_t)blockIdx.x * THREADS + threadIdx.x;
    size_t fours = (uintptr_t)g % 16 ? 0 : n / 4;
    double sum = 0;
#pragma unroll 4
    for (size_t i = first; i < fours; i += stride) {
        float4 x = ((const float4 *)g)[i];
        sum += (double)x.x * x.x + (double)x.y * x.y;
        sum += (double)x.z * x.z + (double)x.w * x.w;
    }
    for (size_t i = fours * 4 + first; i < n; i += stride) sum += (double)g[i] * g[i];
    sum = block_sum_double(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

static __global__ void __launch_bounds__(THREADS)
    add_squares(double *out, const double *partial, int n)
{
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += THREADS) sum += partial[i];
    sum = block_sum_double(sum);
    if (threadIdx.x == 0) *out = sum;
}

void cuda_sqnorm(struct gpu *c, double *out, struct mat g)
{
    double *partial = (double *)c->scratch;
    int blocks = min(BLOCKS, max(1, ceiling(g.cols, THREADS * 4)));
    if (g.type != TYPE_F32) {
        cuda_refuse(c, "gradients other than f32");
        return;
    }
    sum_squares<<<blocks, THREADS, 0, c->stream>>>(partial, (const float *)g.p, (size_t)g.cols);
    add_squares<<<1, THREADS, 0, c->stream>>>(out, partial, blocks);
}

/* ---- Adam ---- */

/* The factor by which gradients are multiplied; NAN: the step is skipped. */
static __device__ inline float factor_of(struct adam h, double sq)
{
    double norm = sqrt(sq) * h.scale;
    if (!isfinite(norm) || (h.limit > 0 && norm > h.limit)) return NAN;
    return (float)(h.clip > 0 && norm > h.clip ? h.scale * (h.clip / norm) : h.scale);
}

template <int W>
static __device__ inline void adam_at(float *p, float *m, float *v, bf16 *copy, const float *g,
                                      float factor, struct adam_rates r)
{
    float param[W], first[W], second[W], grad[W];
    load(grad, g);
    load(first, m);
    load(second, v);
    load(param, p);
#pragma unroll
    for (int i = 0; i < W; i++) {
        grad[i] *= factor;
        first[i] += (grad[i] - first[i]) * r.new1;
        second[i] = second[i] * r.old2 + grad[i] * grad[i] * r.new2;
        param[i] -= r.rate * first[i] / (sqrtf(second[i]) * r.root + r.epsilon);
    }
    store(m, first);
    store(v, second);
    store(p, param);
    if (copy) store(copy, param);
}

static __global__ void __launch_bounds__(THREADS)
    adam_sweep(float *p, float *m, float *v, bf16 *copy, const float *g, const double *sq, size_t n,
               size_t wide, struct adam h, struct adam_rates r)
{
    __shared__ float shared_factor;
    if (threadIdx.x == 0) shared_factor = factor_of(h, *sq);
    __syncthreads();
    float factor = shared_factor;
    if (isnan(factor)) return;
    size_t stride = (size_t)gridDim.x * THREADS, first = (size_t)blockIdx.x * THREADS + threadIdx.x;
    for (size_t i = first * V; i < wide; i += stride * V)
        adam_at<V>(p + i, m + i, v + i, copy ? copy + i : NULL, g + i, factor, r);
    for (size_t i = wide + first; i < n; i += stride)
        adam_at<1>(p + i, m + i, v + i, copy ? copy + i : NULL, g + i, factor, r);
}

void cuda_adam(struct gpu *c, struct mat p, struct mat m, struct mat v, struct mat copy,
               struct mat g, const double *sq, const struct adam *h)
{
    if (p.type != TYPE_F32 || (copy.p && copy.type != TYPE_BF16)) {
        cuda_refuse(c, "parameters other than f32 with a copy in bf16");
        return;
    }
    size_t n = (size_t)p.cols, low = (uintptr_t)p.p | (uintptr_t)m.p | (uintptr_t)v.p |
                                     (uintptr_t)g.p | (uintptr_t)copy.p;
    size_t wide = low % 16 ? 0 : n / V * V;
    int blocks = min(BLOCKS * 4, max(1, ceiling(n, THREADS * V)));
    adam_sweep<<<blocks, THREADS, 0, c->stream>>>((float *)p.p, (float *)m.p, (float *)v.p,
                                                  (bf16 *)copy.p, (const float *)g.p, sq, n, wide,
                                                  *h, adam_rates(h));
}

/* ---- sums of gradients ---- */

static __global__ void accumulate_sweep(float *x, const float *y, size_t n)
{
    size_t stride = (size_t)gridDim.x * THREADS;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += stride) x[i] += y[i];
}

void cuda_accumulate(struct gpu *c, struct mat x, struct mat y)
{
    if (x.type != TYPE_F32 || y.type != TYPE_F32) {
        cuda_refuse(c, "gradients other than f32");
        return;
    }
    int blocks = min(BLOCKS * 4, ceiling(x.cols, THREADS));
    accumulate_sweep<<<blocks, THREADS, 0, c->stream>>>((float *)x.p, (const float *)y.p,
                                                        (size_t)x.cols);
}

/* ---- conversion between types ---- */

template <class T, class U, int W>
static __global__ void cast_rows(rows<T> dst, rows<const U> src, size_t cols)
{
    size_t row = blockIdx.y;
    for (size_t col = (size_t)(blockIdx.x * THREADS + threadIdx.x) * W; col < cols;
         col += gridDim.x * THREADS * W) {
        float x[W];
        load(x, src.at(row, 0) + col);
        store(dst.at(row, 0) + col, x);
    }
}

template <class T, class U, int W>
static void cast_run(struct gpu *c, struct mat dst, struct mat src)
{
    enum { MOST = 65535 }; /* largest y dimension of a grid */
    int blocks = min(BLOCKS * 4, ceiling(dst.cols, THREADS * W));
    for (int row = 0; row < dst.rows; row += MOST) {
        int n = min(MOST, dst.rows - row);
        cast_rows<T, U, W><<<dim3(blocks, n), THREADS, 0, c->stream>>>(
            rows_of<T>(mat_rows(dst, row, n)), rows_of<const U>(mat_rows(src, row, n)), dst.cols);
    }
}

template <class T, class U> static void cast_wide(struct gpu *c, struct mat dst, struct mat src)
{
    if (mat_wide(dst) && mat_wide(src))
        cast_run<T, U, V>(c, dst, src);
    else
        cast_run<T, U, 1>(c, dst, src);
}

/* A matrix whose rows are contiguous as a single row. */
static struct mat flat(struct mat m)
{
    m.cols *= m.rows, m.ld = m.cols, m.rows = 1;
    return m;
}

void cuda_cast(struct gpu *c, struct mat dst, struct mat src)
{
    bool f32 = dst.type == TYPE_F32, from_f32 = src.type == TYPE_F32;
    if ((!f32 && dst.type != TYPE_BF16) || (!from_f32 && src.type != TYPE_BF16)) {
        cuda_refuse(c, "numbers other than f32 and bf16");
        return;
    }
    if (dst.ld == dst.cols && src.ld == src.cols && (size_t)dst.rows * dst.cols < INT32_MAX)
        dst = flat(dst), src = flat(src);
    if (f32)
        from_f32 ? cast_wide<float, float>(c, dst, src) : cast_wide<float, bf16>(c, dst, src);
    else
        from_f32 ? cast_wide<bf16, float>(c, dst, src) : cast_wide<bf16, bf16>(c, dst, src);
}
