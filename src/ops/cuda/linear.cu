/*
 * linear.cu - the linear layer, forward and backward: see ops.h.
 *
 * The product adds the bias and applies ReLU to its result before it stores it. Other activations,
 * dropout, and in backward the way through both and the sum for the bias, are kernels of their own:
 * one pass over the matrix, which hopper.cu saves where it can.
 */
#include <assert.h>

#include "ops/cuda/activation.h"
#include "ops/cuda/blas.h"
#include "ops/cuda/device.h"

/* ---- sums over rows ---- */

/* Each block adds up LANES columns: each thread sums every LANES-th row of a column, then a warp
 * sums what the threads of a column have. */
static __global__ void add_partials(const __grid_constant__ struct sums s, const float *partial,
                                    int rows, int cols)
{
    __shared__ float part[LANES][LANES + 1];
    int tx = threadIdx.x, ty = threadIdx.y, col = blockIdx.x * LANES + tx, width = s.n * cols;
    float sum = 0;
    chain_wait();
#pragma unroll 4
    for (int i = ty; i < rows; i += LANES)
        if (col < width) sum += partial[(size_t)i * width + col];
    part[ty][tx] = sum;
    __syncthreads();
    sum = warp_sum(part[tx][ty]);
    col = blockIdx.x * LANES + ty;
    if (tx == 0 && col < width) s.to[col / cols][col % cols] += sum;
}

void cuda_add_partials(struct gpu *c, struct sums s, const float *partial, int rows, int cols)
{
    chain_launch(add_partials, ceiling(s.n * cols, LANES), dim3(LANES, LANES), 0, c->chain, s,
                 partial, rows, cols);
}

enum {
    STRIP_WARPS = 8,       /* of a block; each has other rows of the same columns */
    STRIP_DEPTH = 4,       /* rows whose loads a thread has in flight at once */
    STRIP_BLOCKS = 132 * 8 /* approximate number of blocks: enough for the largest GPU, and the same
                            * on all, so that sums have the same bits */
};

/* How dx, the gradient of x = drop(f(z)), becomes that of z */
enum way_back {
    BY_MASK, /* f is the identity: dropout alone */
    BY_X,    /* f is ReLU: what x says; what was dropped is 0 in it, what is above 0 was kept */
    BY_SLOPE /* any other f: what forward stored */
};

/* dx of some rows and LANES * V columns becomes the gradient dz of z, as stored, and is summed by
 * columns into a row of partial. dz may be dx. seen: x or slope, whichever is read on this way
 * back. */
template <class T, int V, enum way_back WAY>
static __global__ void __launch_bounds__(LANES *STRIP_WARPS, WAY == BY_MASK ? 4 : 2)
    strip(rows<T> dz, rows<const T> dx, rows<const T> seen, float *partial, int n, int cols,
          struct drop_site site, int height)
{
    __shared__ float part[STRIP_WARPS][LANES * V + 1];
    int tx = threadIdx.x, ty = threadIdx.y, col = (blockIdx.x * LANES + tx) * V;
    int first = blockIdx.y * height, last = min(n, first + height);
    bool changed = WAY != BY_MASK || site.threshold || dz.p != dx.p;
    float sum[V] = {};
    for (int r = first + ty; r < last && col < cols; r += STRIP_WARPS * STRIP_DEPTH) {
        float g[STRIP_DEPTH][V], other[STRIP_DEPTH][V];
#pragma unroll
        for (int i = 0; i < STRIP_DEPTH; i++) {
            int row = r + i * STRIP_WARPS;
            if (row < last) load(g[i], dx.at(row, col));
            if (row < last && WAY != BY_MASK) load(other[i], seen.at(row, col));
        }
#pragma unroll
        for (int i = 0; i < STRIP_DEPTH; i++) {
            int row = r + i * STRIP_WARPS;
            if (row >= last) continue;
            if (WAY == BY_MASK) drop(g[i], mask_of(site, row), col);
#pragma unroll
            for (int v = 0; v < V; v++) {
                if (WAY == BY_X) g[i][v] = other[i][v] <= 0 ? 0 : g[i][v] * site.scale;
                if (WAY == BY_SLOPE) g[i][v] *= other[i][v];
            }
            if (changed) {
#pragma unroll
                for (int v = 0; v < V; v++) g[i][v] = as_stored(g[i][v], dz.p);
                store(dz.at(row, col), g[i]);
            }
#pragma unroll
            for (int v = 0; v < V; v++) sum[v] += g[i][v];
        }
    }
    if (!partial) return;
#pragma unroll
    for (int v = 0; v < V; v++) part[ty][tx * V + v] = sum[v];
    __syncthreads();
    for (int i = ty * LANES + tx; i < LANES * V; i += LANES * STRIP_WARPS) {
        float s = 0;
        for (int w = 0; w < STRIP_WARPS; w++) s += part[w][i];
        int to = blockIdx.x * LANES * V + i;
        if (to < cols) partial[(size_t)blockIdx.y * cols + to] = s;
    }
}

template <class T, int V, enum way_back WAY>
static void strip_run(struct gpu *c, struct mat dz, struct mat db, struct mat dx, struct mat seen,
                      struct drop d)
{
    int strips = ceiling(dx.cols, LANES * V), batch = STRIP_WARPS * STRIP_DEPTH;
    int most = min(STRIP_BLOCKS / min(strips, STRIP_BLOCKS),
                   (int)(CUDA_SCRATCH / (sizeof(float) * dx.cols)));
    int height = ceiling(ceiling(dx.rows, most), batch) * batch, heights = ceiling(dx.rows, height);
    float *partial = db.p ? (float *)c->scratch : NULL;
    struct sums sums = {{(float *)db.p}, 1};
    strip<T, V, WAY><<<dim3(strips, heights), dim3(LANES, STRIP_WARPS), 0, c->stream>>>(
        rows_of<T>(dz), rows_of<const T>(dx), rows_of<const T>(seen), partial, dx.rows, dx.cols,
        drop_site(d), height);
    if (db.p) cuda_add_partials(c, sums, partial, heights, dx.cols);
}

template <enum way_back WAY>
static void strip_way(struct gpu *c, struct mat dz, struct mat db, struct mat dx, struct mat seen,
                      struct drop d)
{
    bool wide = mat_wide(dz) && mat_wide(dx) && (WAY == BY_MASK || mat_wide(seen));
    if (dx.type == TYPE_BF16)
        wide ? strip_run<bf16, 8, WAY>(c, dz, db, dx, seen, d)
             : strip_run<bf16, 1, WAY>(c, dz, db, dx, seen, d);
    else
        wide ? strip_run<float, 8, WAY>(c, dz, db, dx, seen, d)
             : strip_run<float, 1, WAY>(c, dz, db, dx, seen, d);
}

/* Takes dx, the gradient of x, back through dropout and f, where there is one, and sums it into
 * db. */
static void strip_any(struct gpu *c, struct mat dx, struct mat db, struct mat x,
                      struct activation f)
{
    bool seen = f.kind != ACT_NONE, changed = seen || f.drop.p > 0;
    double passes = (changed ? 2 : 1) + (seen ? 1 : 0);
    if (!changed && !db.p) return;
    cuda_mark(c, changed ? "linear_bwd, mask" : "linear_bwd, bias", passes * mat_bytes(dx), 0);
    if (f.kind == ACT_NONE)
        strip_way<BY_MASK>(c, dx, db, dx, x, f.drop);
    else if (f.kind == ACT_RELU)
        strip_way<BY_X>(c, dx, db, dx, x, f.drop);
    else
        strip_way<BY_SLOPE>(c, dx, db, dx, f.slope, f.drop);
}

/* ---- forward ---- */

enum { THREADS = 256 };

/* y holds z and becomes drop(f(z)); slope, where present, the derivative of that by z. */
template <class T, int V>
static __global__ void activate(rows<T> y, rows<T> slope, int cols, enum activation_kind kind,
                                struct drop_site site)
{
    int row = blockIdx.x, col = (blockIdx.y * THREADS + threadIdx.x) * V;
    float x[V], d[V];
    if (col >= cols) return;
    load(x, y.at(row, col));
#pragma unroll
    for (int v = 0; v < V; v++) x[v] = activation(kind, x[v], &d[v]);
    drop(x, mask_of(site, row), col);
    store(y.at(row, col), x);
    if (!slope.p) return;
    drop(d, mask_of(site, row), col);
    store(slope.at(row, col), d);
}

template <class T, int V> static void activate_run(struct gpu *c, struct mat y, struct activation f)
{
    dim3 grid(y.rows, ceiling(y.cols, THREADS * V));
    activate<T, V><<<grid, THREADS, 0, c->stream>>>(rows_of<T>(y), rows_of<T>(f.slope), y.cols,
                                                    f.kind, drop_site(f.drop));
}

static void activate_any(struct gpu *c, struct mat y, struct activation f)
{
    bool wide = mat_wide(y) && mat_wide(f.slope);
    cuda_mark(c, f.kind == ACT_NONE ? "linear, dropout" : "linear, activation",
              (f.slope.p ? 3 : 2) * mat_bytes(y), 0);
    if (y.type == TYPE_BF16)
        wide ? activate_run<bf16, 8>(c, y, f) : activate_run<bf16, 1>(c, y, f);
    else
        wide ? activate_run<float, 8>(c, y, f) : activate_run<float, 1>(c, y, f);
}

/* The bias in the type of y, as cuBLASLt requires. */
static const void *bias_like(struct gpu *c, struct mat b, enum type type)
{
    if (!b.p || type == b.type) return b.p;
    cuda_cast(c, mat_make(c->scratch, 1, b.cols, type), b);
    return c->scratch;
}

/* ---- packed weights: rows of x are rounded like the weights ---- */

/* Rounds a row to multiples of its scale, the largest magnitude over 127, as in quant.h. unit: the
 * scales */
static __global__ void quantize(rows<bf16> to, float *unit, rows<const float> x, int cols)
{
    __shared__ float part[THREADS / LANES];
    int row = blockIdx.x, lane = threadIdx.x % LANES;
    float most = 0;
    for (int i = threadIdx.x; i < cols; i += THREADS) most = fmaxf(most, fabsf(*x.at(row, i)));
    for (int i = LANES / 2; i > 0; i /= 2) most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, i));
    if (lane == 0) part[threadIdx.x / LANES] = most;
    __syncthreads();
    for (int i = 0; i < THREADS / LANES; i++) most = fmaxf(most, part[i]);
    float per = most < QUANT_TINY ? 0 : 127 / most;
    for (int i = threadIdx.x; i < cols; i += THREADS)
        *to.at(row, i) = __float2bfloat16_rn(rintf(*x.at(row, i) * per));
    if (threadIdx.x == 0) unit[row] = per == 0 ? 0 : most / 127;
}

static __global__ void scale(rows<float> y, const float *unit, rows<const bf16> w, const float *b,
                             int cols, bool relu)
{
    int row = blockIdx.x, col = blockIdx.y * THREADS + threadIdx.x;
    if (col >= cols) return;
    float x = *y.at(row, col) * unit[row] * packed_unit(w.at(col, 0), (int)w.ld);
    if (b) x += b[col];
    *y.at(row, col) = relu && x < 0 ? 0 : x;
}

static void linear_packed(struct gpu *c, struct mat y, struct mat x, struct mat w, struct mat b,
                          bool relu)
{
    struct mat plain = mat_unpacked(w);
    bool bytes = w.type == TYPE_PACKED_I8;
    int ld = (x.cols + 7) / 8 * 8;
    size_t row_bytes = ld * sizeof(bf16) + sizeof(float);
    int most = (int)(CUDA_SCRATCH / row_bytes) / ROW_PAD * ROW_PAD;
    for (int row = 0; row < x.rows; row += most) {
        int n = min(most, x.rows - row);
        struct mat from = mat_rows(x, row, n), to = mat_rows(y, row, n);
        struct mat narrow = {c->scratch, n, x.cols, ld, TYPE_BF16};
        float *unit = (float *)(c->scratch + (size_t)n * ld * sizeof(bf16));
        if (bytes)
            quantize<<<n, THREADS, 0, c->stream>>>(rows_of<bf16>(narrow), unit,
                                                   rows_of<const float>(from), x.cols);
        else
            cuda_cast(c, narrow, from);
        struct product p = {.c = to,
                            .a = narrow,
                            .b = plain,
                            .tb = true,
                            .bias = bytes ? NULL : b.p,
                            .relu = !bytes && relu,
                            .name = "linear, packed"};
        blas_run(c, &p);
        if (!bytes) continue;
        scale<<<dim3(n, ceiling(y.cols, THREADS)), THREADS, 0, c->stream>>>(
            rows_of<float>(to), unit, rows_of<const bf16>(plain), (const float *)b.p, y.cols, relu);
    }
}

/* y = drop(f(x wT + b)) with f the identity or ReLU, fused with the product as far as possible. */
static void linear_fused(struct gpu *c, struct mat y, struct mat x, struct mat w, struct mat b,
                         struct activation f)
{
    bool relu = f.kind == ACT_RELU;
    if (f.drop.p == 0 && cuda_linear_few(c, y, x, w, b, relu)) return;
    if (w.type == TYPE_PACKED_BF16 || w.type == TYPE_PACKED_I8) {
        if (x.type == TYPE_F32 && y.type == TYPE_F32 && f.drop.p == 0)
            linear_packed(c, y, x, w, b, relu);
        else
            cuda_refuse(c, "packed weights with dropout or with activations other than f32");
        return;
    }
    if (hopper_linear(c, y, x, w, b, f)) return;
    if (!relu && f.drop.p == 0 && resident_product(c, "linear", y, x, w, b, false)) return;
    struct product p = {.c = y,
                        .a = x,
                        .b = mat_unpacked(w),
                        .tb = true,
                        .bias = bias_like(c, b, y.type),
                        .relu = relu,
                        .name = "linear"};
    blas_run(c, &p);
    if (f.drop.p > 0) activate_any(c, y, (struct activation){.drop = f.drop});
}

void cuda_linear(struct gpu *c, struct mat y, struct mat x, struct mat w, struct mat b,
                 struct activation f)
{
    if (!activation_keeps_slope(f.kind)) {
        linear_fused(c, y, x, w, b, f);
    } else if (!hopper_linear(c, y, x, w, b, f)) {
        linear_fused(c, y, x, w, b, (struct activation){});
        activate_any(c, y, f);
    }
}

/* ---- backward ---- */

void cuda_linear_bwd(struct gpu *c, struct mat dx, float beta, struct mat db, struct mat dw,
                     struct mat dy, struct mat x, struct mat w, struct activation f)
{
    assert((dx.p && beta == 0) || (f.kind == ACT_NONE && f.drop.p == 0 && !db.p));
    assert(!f.slope.p == !activation_keeps_slope(f.kind));
    if (dx.p && !hopper_linear_dx(c, dx, db, dy, x, w, f)) {
        struct product p = {.c = dx, .a = dy, .b = w, .beta = beta, .name = "linear_bwd, dx"};
        if (beta != 0 || !resident_product(c, p.name, dx, dy, w, (struct mat){}, true))
            blas_run(c, &p);
        strip_any(c, dx, db, x, f);
    }
    struct product p = {.c = dw, .a = dy, .b = x, .ta = true, .beta = 1, .name = "linear_bwd, dw"};
    blas_run(c, &p);
}

void cuda_bias_bwd(struct gpu *c, struct mat db, struct mat dy)
{
    strip_way<BY_MASK>(c, dy, db, dy, dy, (struct drop){});
}

void cuda_add_bwd(struct gpu *c, struct mat dr, struct mat drb, struct mat dy, struct drop d)
{
    if (drb.p)
        strip_way<BY_MASK>(c, dr, drb, dy, dy, d);
    else
        cuda_add(c, dr, (struct mat){}, dy, d);
}
