/*
 * norm.cu - dropout, residual and layer norm, forward and backward (paper 3.1, 5.4): together, as
 * add_norm, or apart, as add and norm.
 *
 * A warp holds an aligned row of up to 1,024 numbers in registers: every input is read once and
 * every output written once. For other rows, called odd below, a block computes one row and reads
 * it several times.
 */
#include "ops/cuda/device.h"

enum {
    WARPS = 8,        /* of a block; each computes one row at a time */
    V = 8,            /* numbers that a lane loads at once */
    SPAN = LANES * V, /* numbers that a warp loads at once */
    SPANS = 4,        /* most spans of a row in registers */
    BLOCKS = 132 * 2, /* most blocks of backward: each stores partial sums of dg, db and drb */
    ODD_THREADS = 128,
    ODD_BLOCKS = 64 /* blocks along the rows, for the partial sums of odd rows */
};

/* ---- forward ---- */

/* t = x + dropout(r) of columns [col, col+W) */
template <class T, int W>
static __device__ inline void add(float (&t)[W], const T *x, const T *r, struct drop_row mask,
                                  int col)
{
    float s[W];
    load(t, x);
    load(s, r);
    drop(s, mask, col);
#pragma unroll
    for (int i = 0; i < W; i++) t[i] += s[i];
}

template <class T, int N, bool ADDS>
static __global__ void __launch_bounds__(LANES *WARPS)
    norm_rows(rows<T> y, rows<T> xhat, rows<float> rstd, rows<const T> x, rows<const T> r,
              const float *g, const float *b, int n, int cols, struct drop_site site)
{
    int lane = threadIdx.x, row = blockIdx.x * WARPS + threadIdx.y;
    chain_wait();
    if (row >= n) return;
    struct drop_row mask = mask_of(site, row);
    float t[N][V], mean = 0, var = 0;
#pragma unroll
    for (int k = 0; k < N; k++) {
        int col = k * SPAN + lane * V;
        if (col >= cols) continue;
        if (ADDS)
            add(t[k], x.at(row, col), r.at(row, col), mask, col);
        else
            load(t[k], x.at(row, col));
#pragma unroll
        for (int i = 0; i < V; i++) mean += t[k][i];
    }
    mean = warp_sum(mean) / cols;
#pragma unroll
    for (int k = 0; k < N; k++)
#pragma unroll
        for (int i = 0; i < V; i++)
            if (k * SPAN + lane * V < cols) {
                t[k][i] -= mean;
                var += t[k][i] * t[k][i];
            }
    float s = rsqrtf(warp_sum(var) / cols + (float)NORM_EPSILON);
    if (rstd.p && lane == 0) *rstd.at(row, 0) = s;
#pragma unroll
    for (int k = 0; k < N; k++) {
        int col = k * SPAN + lane * V;
        if (col >= cols) continue;
        float gain[V], bias[V];
        load(gain, g + col);
        load(bias, b + col);
#pragma unroll
        for (int i = 0; i < V; i++) t[k][i] *= s;
        if (xhat.p) store(xhat.at(row, col), t[k]);
#pragma unroll
        for (int i = 0; i < V; i++) t[k][i] = t[k][i] * gain[i] + bias[i];
        store(y.at(row, col), t[k]);
    }
}

/* t = x + dropout(r), or x where there is no r */
template <class T>
static __device__ inline void add_odd(float (&t)[1], rows<const T> x, rows<const T> r,
                                      struct drop_row mask, int row, int col)
{
    if (r.p)
        add(t, x.at(row, col), r.at(row, col), mask, col);
    else
        load(t, x.at(row, col));
}

template <class T>
static __global__ void norm_odd(rows<T> y, rows<T> xhat, rows<float> rstd, rows<const T> x,
                                rows<const T> r, const float *g, const float *b, int cols,
                                struct drop_site site)
{
    int row = blockIdx.x;
    struct drop_row mask = mask_of(site, row);
    float t[1], one[1], mean = 0, var = 0;
    for (int c = threadIdx.x; c < cols; c += ODD_THREADS) {
        add_odd(t, x, r, mask, row, c);
        mean += t[0];
    }
    mean = block_sum(mean) / cols;
    for (int c = threadIdx.x; c < cols; c += ODD_THREADS) {
        add_odd(t, x, r, mask, row, c);
        var += (t[0] - mean) * (t[0] - mean);
    }
    float s = rsqrtf(block_sum(var) / cols + (float)NORM_EPSILON);
    if (rstd.p && threadIdx.x == 0) *rstd.at(row, 0) = s;
    for (int c = threadIdx.x; c < cols; c += ODD_THREADS) {
        add_odd(t, x, r, mask, row, c);
        t[0] = (t[0] - mean) * s;
        one[0] = t[0] * g[c] + b[c];
        if (xhat.p) store(xhat.at(row, c), t);
        store(y.at(row, c), one);
    }
}

template <class T, int N>
static void norm_run(struct gpu *c, struct mat y, struct mat xhat, struct mat rstd, struct mat x,
                     struct mat r, struct mat g, struct mat b, struct drop d)
{
    chain_launch(r.p ? norm_rows<T, N, true> : norm_rows<T, N, false>, ceiling(y.rows, WARPS),
                 dim3(LANES, WARPS), 0, c->chain, rows_of<T>(y), rows_of<T>(xhat),
                 rows_of<float>(rstd), rows_of<const T>(x), rows_of<const T>(r), (const float *)g.p,
                 (const float *)b.p, y.rows, y.cols, drop_site(d));
}

template <class T>
static void norm_any(struct gpu *c, struct mat y, struct mat xhat, struct mat rstd, struct mat x,
                     struct mat r, struct mat g, struct mat b, struct drop d)
{
    bool wide = mat_wide(y) && mat_wide(xhat) && mat_wide(x) && mat_wide(r) && mat_wide(g) &&
                mat_wide(b) && y.cols <= SPAN * SPANS;
    if (!wide)
        norm_odd<T><<<y.rows, ODD_THREADS, 0, c->stream>>>(
            rows_of<T>(y), rows_of<T>(xhat), rows_of<float>(rstd), rows_of<const T>(x),
            rows_of<const T>(r), (const float *)g.p, (const float *)b.p, y.cols, drop_site(d));
    else if (y.cols <= SPAN)
        norm_run<T, 1>(c, y, xhat, rstd, x, r, g, b, d);
    else if (y.cols <= 2 * SPAN)
        norm_run<T, 2>(c, y, xhat, rstd, x, r, g, b, d);
    else
        norm_run<T, SPANS>(c, y, xhat, rstd, x, r, g, b, d);
}

void cuda_add_norm(struct gpu *c, struct mat y, struct mat xhat, struct mat rstd, struct mat x,
                   struct mat r, struct mat g, struct mat b, struct drop d)
{
    if (y.type == TYPE_BF16)
        norm_any<bf16>(c, y, xhat, rstd, x, r, g, b, d);
    else if (y.type == TYPE_F32)
        norm_any<float>(c, y, xhat, rstd, x, r, g, b, d);
    else
        cuda_refuse(c, "numbers other than f32 and bf16");
}

/* ---- add and drop ---- */

enum { ADD_THREADS = 256 };

/* y = x + dropout(r), or dropout(r) where there is no x; a thread computes W numbers of a row. */
template <class T, int W>
static __global__ void __launch_bounds__(ADD_THREADS)
    add_rows(rows<T> y, rows<const T> x, rows<const T> r, int n, int cols, struct drop_site site)
{
    int across = cols / W, at = blockIdx.x * ADD_THREADS + threadIdx.x;
    int row = at / across, col = at % across * W;
    if (row >= n) return;
    float t[W];
    struct drop_row mask = mask_of(site, row);
    if (x.p) {
        add(t, x.at(row, col), r.at(row, col), mask, col);
    } else {
        load(t, r.at(row, col));
        drop(t, mask, col);
    }
    store(y.at(row, col), t);
}

template <class T>
static void add_any(struct gpu *c, struct mat y, struct mat x, struct mat r, struct drop d)
{
    bool wide = mat_wide(y) && mat_wide(x) && mat_wide(r);
    size_t threads = (size_t)y.rows * (wide ? y.cols / V : y.cols);
    auto kernel = wide ? add_rows<T, V> : add_rows<T, 1>;
    kernel<<<ceiling(threads, ADD_THREADS), ADD_THREADS, 0, c->stream>>>(
        rows_of<T>(y), rows_of<const T>(x), rows_of<const T>(r), y.rows, y.cols, drop_site(d));
}

void cuda_add(struct gpu *c, struct mat y, struct mat x, struct mat r, struct drop d)
{
    if (y.type == TYPE_BF16)
        add_any<bf16>(c, y, x, r, d);
    else if (y.type == TYPE_F32)
        add_any<float>(c, y, x, r, d);
    else
        cuda_refuse(c, "numbers other than f32 and bf16");
}

/* ---- backward ---- */

/* What backward of a norm computes besides dx, dg and db. ALONE: nothing, and beta times the old dx
 * is added to dx. */
enum besides { ALONE, RESIDUAL, RESIDUAL_BIAS };

/* Adds up the sums of the warps of a block and stores them in a row of partial. */
template <int N> static __device__ inline void leave(float *to, const float (&sum)[N][V], int cols)
{
    __shared__ float part[WARPS][N * SPAN];
    int lane = threadIdx.x, warp = threadIdx.y;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < N; k++) store(&part[warp][k * SPAN + lane * V], sum[k]);
    __syncthreads();
    for (int c = warp * LANES + lane; c < cols; c += LANES * WARPS) {
        float s = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) s += part[w][c];
        to[c] = s;
    }
}

/* A block stores a row of partial sums of dg, one of db and, with RESIDUAL_BIAS, one of drb. */
template <class T, int N, int BESIDES>
static __global__ void __launch_bounds__(LANES *WARPS, N > 2 ? 1 : 2)
    norm_rows_bwd(rows<T> dx, rows<T> dr, float *partial, rows<const T> dy, rows<const T> xhat,
                  rows<const float> rstd, const float *g, int n, int cols, struct drop_site site,
                  float beta)
{
    const bool BIAS = BESIDES == RESIDUAL_BIAS;
    bool adds = BESIDES == ALONE && beta != 0;
    int lane = threadIdx.x;
    float gain[N][V], dg[N][V] = {}, db[N][V] = {}, drb[N][V] = {};
    chain_wait();
#pragma unroll
    for (int k = 0; k < N; k++)
        if (k * SPAN + lane * V < cols) load(gain[k], g + k * SPAN + lane * V);
    for (int row = blockIdx.x * WARPS + threadIdx.y; row < n; row += gridDim.x * WARPS) {
        float t[N][V], h[N][V], old[N][V], mean = 0, dot = 0, s = *rstd.at(row, 0);
#pragma unroll
        for (int k = 0; k < N; k++) {
            int col = k * SPAN + lane * V;
            if (col >= cols) continue;
            load(t[k], dy.at(row, col));
            load(h[k], xhat.at(row, col));
            if (adds) load(old[k], dx.at(row, col));
        }
#pragma unroll
        for (int k = 0; k < N; k++)
#pragma unroll
            for (int i = 0; i < V; i++)
                if (k * SPAN + lane * V < cols) {
                    db[k][i] += t[k][i];
                    dg[k][i] += t[k][i] * h[k][i];
                    t[k][i] *= gain[k][i];
                    mean += t[k][i];
                    dot += t[k][i] * h[k][i];
                }
        mean = warp_sum(mean) / cols;
        dot = warp_sum(dot) / cols;
        struct drop_row mask = mask_of(site, row);
#pragma unroll
        for (int k = 0; k < N; k++) {
            int col = k * SPAN + lane * V;
            if (col >= cols) continue;
#pragma unroll
            for (int i = 0; i < V; i++) t[k][i] = (t[k][i] - mean - h[k][i] * dot) * s;
#pragma unroll
            for (int i = 0; i < V; i++)
                if (adds) t[k][i] += beta * old[k][i];
            store(dx.at(row, col), t[k]);
            if (BESIDES == ALONE) continue;
            drop(t[k], mask, col);
            store(dr.at(row, col), t[k]);
#pragma unroll
            for (int i = 0; i < V; i++)
                if (BIAS) drb[k][i] += as_stored(t[k][i], dr.p);
        }
    }
    partial += (size_t)blockIdx.x * (BIAS ? 3 : 2) * cols;
    leave<N>(partial, dg, cols);
    leave<N>(partial + cols, db, cols);
    if (BIAS) leave<N>(partial + 2 * cols, drb, cols);
}

template <class T>
static __global__ void norm_odd_bwd(rows<T> dx, rows<T> dr, rows<const T> dy, rows<const T> xhat,
                                    rows<const float> rstd, const float *g, int cols,
                                    struct drop_site site, float beta)
{
    int row = blockIdx.x;
    struct drop_row mask = mask_of(site, row);
    float t[1], h[1], mean = 0, dot = 0, s = *rstd.at(row, 0);
    for (int c = threadIdx.x; c < cols; c += ODD_THREADS) {
        load(t, dy.at(row, c));
        load(h, xhat.at(row, c));
        mean += t[0] * g[c];
        dot += t[0] * g[c] * h[0];
    }
    mean = block_sum(mean) / cols;
    dot = block_sum(dot) / cols;
    for (int c = threadIdx.x; c < cols; c += ODD_THREADS) {
        load(t, dy.at(row, c));
        load(h, xhat.at(row, c));
        t[0] = (t[0] * g[c] - mean - h[0] * dot) * s;
        if (!dr.p && beta != 0) {
            load(h, dx.at(row, c));
            t[0] += beta * h[0];
        }
        store(dx.at(row, c), t);
        if (!dr.p) continue;
        drop(t, mask, c);
        store(dr.at(row, c), t);
    }
}

/* The partial sums of some rows; each thread sums one column. */
template <class T>
static __global__ void norm_odd_columns(float *partial, rows<const T> dy, rows<const T> xhat,
                                        rows<const T> dr, bool bias, int n, int cols, int height)
{
    int col = blockIdx.x * ODD_THREADS + threadIdx.x, first = blockIdx.y * height;
    float t[1], h[1], r[1] = {}, dg = 0, db = 0, drb = 0;
    if (col >= cols) return;
    for (int row = first; row < n && row < first + height; row++) {
        load(t, dy.at(row, col));
        load(h, xhat.at(row, col));
        if (bias) load(r, dr.at(row, col));
        dg += t[0] * h[0];
        db += t[0];
        drb += r[0];
    }
    partial += (size_t)blockIdx.y * (bias ? 3 : 2) * cols + col;
    partial[0] = dg;
    partial[cols] = db;
    if (bias) partial[2 * cols] = drb;
}

template <class T, int N>
static int norm_run_bwd(struct gpu *c, struct mat dx, struct mat dr, struct mat drb, struct mat dy,
                        struct mat xhat, struct mat rstd, struct mat g, struct drop d, float beta)
{
    int blocks = min(BLOCKS, ceiling(dy.rows, WARPS));
    auto kernel = drb.p  ? norm_rows_bwd<T, N, RESIDUAL_BIAS>
                  : dr.p ? norm_rows_bwd<T, N, RESIDUAL>
                         : norm_rows_bwd<T, N, ALONE>;
    chain_launch(kernel, blocks, dim3(LANES, WARPS), 0, c->chain, rows_of<T>(dx), rows_of<T>(dr),
                 (float *)c->scratch, rows_of<const T>(dy), rows_of<const T>(xhat),
                 rows_of<const float>(rstd), (const float *)g.p, dy.rows, dy.cols, drop_site(d),
                 beta);
    return blocks;
}

template <class T>
static int norm_run_odd_bwd(struct gpu *c, struct mat dx, struct mat dr, struct mat drb,
                            struct mat dy, struct mat xhat, struct mat rstd, struct mat g,
                            struct drop d, float beta)
{
    int height = ceiling(dy.rows, ODD_BLOCKS), heights = ceiling(dy.rows, height);
    norm_odd_bwd<T><<<dy.rows, ODD_THREADS, 0, c->stream>>>(
        rows_of<T>(dx), rows_of<T>(dr), rows_of<const T>(dy), rows_of<const T>(xhat),
        rows_of<const float>(rstd), (const float *)g.p, dy.cols, drop_site(d), beta);
    norm_odd_columns<T>
        <<<dim3(ceiling(dy.cols, ODD_THREADS), heights), ODD_THREADS, 0, c->stream>>>(
            (float *)c->scratch, rows_of<const T>(dy), rows_of<const T>(xhat), rows_of<const T>(dr),
            drb.p != NULL, dy.rows, dy.cols, height);
    return heights;
}

/* Returns the number of rows of partial sums that it stored in the scratch block. */
template <class T>
static int norm_any_bwd(struct gpu *c, struct mat dx, struct mat dr, struct mat drb, struct mat dy,
                        struct mat xhat, struct mat rstd, struct mat g, struct drop d, float beta)
{
    bool wide = mat_wide(dx) && mat_wide(dr) && mat_wide(dy) && mat_wide(xhat) && mat_wide(g);
    if (!wide || dy.cols > SPAN * SPANS)
        return norm_run_odd_bwd<T>(c, dx, dr, drb, dy, xhat, rstd, g, d, beta);
    if (dy.cols <= SPAN) return norm_run_bwd<T, 1>(c, dx, dr, drb, dy, xhat, rstd, g, d, beta);
    if (dy.cols <= 2 * SPAN) return norm_run_bwd<T, 2>(c, dx, dr, drb, dy, xhat, rstd, g, d, beta);
    return norm_run_bwd<T, SPANS>(c, dx, dr, drb, dy, xhat, rstd, g, d, beta);
}

static void norm_bwd(struct gpu *c, struct mat dx, float beta, struct mat dr, struct mat drb,
                     struct mat dg, struct mat db, struct mat dy, struct mat xhat, struct mat rstd,
                     struct mat g, struct drop d)
{
    struct sums sums = {{(float *)dg.p, (float *)db.p, (float *)drb.p}, drb.p ? 3 : 2};
    int n = 0;
    if (dy.type == TYPE_BF16)
        n = norm_any_bwd<bf16>(c, dx, dr, drb, dy, xhat, rstd, g, d, beta);
    else if (dy.type == TYPE_F32)
        n = norm_any_bwd<float>(c, dx, dr, drb, dy, xhat, rstd, g, d, beta);
    else
        cuda_refuse(c, "numbers other than f32 and bf16");
    if (n) cuda_add_partials(c, sums, (float *)c->scratch, n, dy.cols);
}

void cuda_add_norm_bwd(struct gpu *c, struct mat dx, struct mat dr, struct mat drb, struct mat dg,
                       struct mat db, struct mat dy, struct mat xhat, struct mat rstd, struct mat g,
                       struct drop d)
{
    norm_bwd(c, dx, 0, dr, drb, dg, db, dy, xhat, rstd, g, d);
}

void cuda_norm_bwd(struct gpu *c, struct mat dx, float beta, struct mat dg, struct mat db,
                   struct mat dy, struct mat xhat, struct mat rstd, struct mat g)
{
    struct mat none = {};
    norm_bwd(c, dx, beta, none, none, dg, db, dy, xhat, rstd, g, (struct drop){});
}
