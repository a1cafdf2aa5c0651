/*
 * gate.cu - the gate of a gated feed-forward, forward and backward: see ops.h.
 *
 * z has left and right halves of `cols` columns each. A thread computes V columns of h, from the
 * columns at the same place in both halves.
 */
#include "ops/cuda/activation.h"
#include "ops/cuda/device.h"

/* ---- forward ---- */

enum { THREADS = 256 };

template <class T, int V>
static __global__ void gate(rows<T> h, rows<const T> z, int cols, struct drop_site site)
{
    int row = blockIdx.x, col = (blockIdx.y * THREADS + threadIdx.x) * V;
    float x[V], right[V];
    chain_wait();
    if (col >= cols) return;
    load(x, z.at(row, col));
    load(right, z.at(row, cols + col));
#pragma unroll
    for (int v = 0; v < V; v++) {
        float slope;
        x[v] = silu_for(x[v], &slope, h.p) * right[v];
    }
    drop(x, mask_of(site, row), col);
    store(h.at(row, col), x);
}

template <class T, int V>
static void gate_run(struct gpu *c, struct mat h, struct mat z, struct drop d)
{
    chain_launch(gate<T, V>, dim3(h.rows, ceiling(h.cols, THREADS * V)), THREADS, 0, c->chain,
                 rows_of<T>(h), rows_of<const T>(z), h.cols, drop_site(d));
}

void cuda_gate(struct gpu *c, struct mat h, struct mat z, struct drop d)
{
    bool wide = mat_wide(h) && mat_wide(z);
    if (h.type == TYPE_BF16)
        wide ? gate_run<bf16, 8>(c, h, z, d) : gate_run<bf16, 1>(c, h, z, d);
    else
        wide ? gate_run<float, 8>(c, h, z, d) : gate_run<float, 1>(c, h, z, d);
}

/* ---- backward ---- */

enum {
    WARPS = 8,       /* of a block; each has other rows of the same columns */
    DEPTH = 2,       /* rows whose loads a thread has in flight at once */
    BLOCKS = 132 * 8 /* approximate number of blocks: enough for the largest GPU, and the same on
                      * all, so that sums have the same bits */
};

/* g, x and y hold dh, left and right. x and y become the gradients of left and right, rounded to
 * the type T of dz. */
template <class T, int V>
static __device__ inline void gate_back(float (&x)[V], float (&y)[V], const float (&g)[V])
{
#pragma unroll
    for (int v = 0; v < V; v++) {
        float slope, value = silu_for(x[v], &slope, (const T *)0);
        float left = g[v] * y[v] * slope, right = g[v] * value;
        x[v] = as_stored(left, (const T *)0);
        y[v] = as_stored(right, (const T *)0);
    }
}

/* dz of some rows, from dh and z, for LANES * V columns of dh. Where partial is present, its row
 * blockIdx.y gets the column sums of these rows of dz. */
template <class T, int V>
static __global__ void __launch_bounds__(LANES *WARPS)
    gate_bwd(rows<T> dz, float *partial, rows<const T> dh, rows<const T> z, int n, int cols,
             struct drop_site site, int height)
{
    __shared__ float part[2][WARPS][LANES * V + 1];
    int tx = threadIdx.x, ty = threadIdx.y, col = (blockIdx.x * LANES + tx) * V;
    int first = blockIdx.y * height, last = min(n, first + height);
    float sum[2][V] = {};
    for (int r = first + ty; r < last && col < cols; r += WARPS * DEPTH) {
        float g[DEPTH][V], x[DEPTH][V], y[DEPTH][V];
#pragma unroll
        for (int i = 0; i < DEPTH; i++) {
            int row = r + i * WARPS;
            if (row >= last) continue;
            load(g[i], dh.at(row, col));
            load(x[i], z.at(row, col));
            load(y[i], z.at(row, cols + col));
        }
#pragma unroll
        for (int i = 0; i < DEPTH; i++) {
            int row = r + i * WARPS;
            if (row >= last) continue;
            drop(g[i], mask_of(site, row), col);
            gate_back<T>(x[i], y[i], g[i]);
            store(dz.at(row, col), x[i]);
            store(dz.at(row, cols + col), y[i]);
#pragma unroll
            for (int v = 0; v < V; v++) sum[0][v] += x[i][v], sum[1][v] += y[i][v];
        }
    }
    if (!partial) return;
#pragma unroll
    for (int v = 0; v < V; v++)
        part[0][ty][tx * V + v] = sum[0][v], part[1][ty][tx * V + v] = sum[1][v];
    __syncthreads();
    for (int i = ty * LANES + tx; i < 2 * LANES * V; i += LANES * WARPS) {
        int half = i / (LANES * V), at = i % (LANES * V), to = blockIdx.x * LANES * V + at;
        float s = 0;
        for (int w = 0; w < WARPS; w++) s += part[half][w][at];
        if (to < cols) partial[((size_t)blockIdx.y * 2 + half) * cols + to] = s;
    }
}

template <class T, int V>
static void gate_bwd_run(struct gpu *c, struct mat dz, struct mat db, struct mat dh, struct mat z,
                         struct drop d)
{
    int strips = ceiling(dh.cols, LANES * V), batch = WARPS * DEPTH;
    int most = min(BLOCKS / min(strips, BLOCKS), (int)(CUDA_SCRATCH / (sizeof(float) * dz.cols)));
    int height = ceiling(ceiling(dh.rows, most), batch) * batch, heights = ceiling(dh.rows, height);
    float *partial = db.p ? (float *)c->scratch : NULL;
    struct sums sums = {{(float *)db.p}, 1};
    gate_bwd<T, V><<<dim3(strips, heights), dim3(LANES, WARPS), 0, c->stream>>>(
        rows_of<T>(dz), partial, rows_of<const T>(dh), rows_of<const T>(z), dh.rows, dh.cols,
        drop_site(d), height);
    if (db.p) cuda_add_partials(c, sums, partial, heights, dz.cols);
}

void cuda_gate_bwd(struct gpu *c, struct mat dz, struct mat db, struct mat dh, struct mat z,
                   struct drop d)
{
    bool wide = mat_wide(dz) && mat_wide(dh) && mat_wide(z);
    if (dh.type == TYPE_BF16)
        wide ? gate_bwd_run<bf16, 8>(c, dz, db, dh, z, d)
             : gate_bwd_run<bf16, 1>(c, dz, db, dh, z, d);
    else
        wide ? gate_bwd_run<float, 8>(c, dz, db, dh, z, d)
             : gate_bwd_run<float, 1>(c, dz, db, dh, z, d);
}
