/*
 * experts.cu - a mixture of experts but for its products, which are in experts_linear.cu: see
 * struct routing in ops.h.
 *
 * A warp computes a row. The choices are sorted by expert in two kernels: in the first a block
 * counts the choices of one expert in the order of their numbers, in the second each choice finds
 * its row among those taken. All of it stays on the device.
 */
#include "ops/cuda/device.h"

enum {
    WARPS = 8,   /* of a block; each has a row */
    TOGETHER = 8 /* experts whose sums a lane holds at once */
};

/* ---- the router ---- */

/* The sums of x[c] * w[e][c] of a row, for all experts, in logit. */
template <class T, int V>
static __device__ inline void logits_of(float *logit, const T *x, rows<const float> w, int experts,
                                        int cols)
{
    for (int first = 0; first < experts; first += TOGETHER) {
        float sum[TOGETHER] = {};
        for (int col = threadIdx.x * V; col < cols; col += LANES * V) {
            float a[V], b[V];
            load(a, x + col);
#pragma unroll
            for (int e = 0; e < TOGETHER; e++) {
                if (first + e >= experts) continue;
                load(b, w.at(first + e, col));
#pragma unroll
                for (int v = 0; v < V; v++) sum[e] += a[v] * b[v];
            }
        }
#pragma unroll
        for (int e = 0; e < TOGETHER; e++) {
            float all = warp_sum(sum[e]);
            if (threadIdx.x == e && first + e < experts) logit[first + e] = all;
        }
    }
    __syncwarp();
}

static __device__ inline float warp_most(float x)
{
#pragma unroll
    for (int i = LANES / 2; i > 0; i /= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, i));
    return x;
}

enum { EACH = (int)EXPERTS_MAX / LANES }; /* experts of a lane */

/* The expert with the largest p, among equals the lowest number; every lane gets it. A NaN counts
 * as 0, and what was taken before, marked by -1, as less than that. */
static __device__ inline int best_of(const float (&p)[EACH])
{
    float most = -2;
    int best = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        float x = p[i] >= 0 || p[i] < 0 ? p[i] : 0;
        if (x > most) most = x, best = i * LANES + threadIdx.x;
    }
#pragma unroll
    for (int i = LANES / 2; i > 0; i /= 2) {
        float other = __shfl_xor_sync(ALL_LANES, most, i);
        int at = __shfl_xor_sync(ALL_LANES, best, i);
        if (other > most || (other == most && at < best)) most = other, best = at;
    }
    return best;
}

/* p, chosen and gate of each row. */
template <class T, int V>
static __global__ void __launch_bounds__(LANES *WARPS)
    choose(struct routing r, rows<float> p, rows<float> gate, rows<const T> x, rows<const float> w,
           int n, int cols, struct drop_site draw)
{
    __shared__ float logit[WARPS][EXPERTS_MAX];
    int row = blockIdx.x * WARPS + threadIdx.y, lane = threadIdx.x;
    float *own = logit[threadIdx.y], mine[EACH], most = -INFINITY, sum = 0;
    chain_wait();
    if (row >= n) return;
    logits_of<T, V>(own, x.at(row, 0), w, r.experts, cols);
    struct drop_row noise = drop_site_row(draw, row);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int e = i * LANES + lane;
        mine[i] = e < r.experts ? own[e] + r.noise * drop_noise(noise, e) : -INFINITY;
        most = fmaxf(most, mine[i]);
    }
    most = warp_most(most);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        mine[i] = i * LANES + lane < r.experts ? expf(mine[i] - most) : 0;
        sum += mine[i];
    }
    sum = warp_sum(sum);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int e = i * LANES + lane;
        mine[i] = e < r.experts ? mine[i] / sum : -1;
        if (e < r.experts) own[e] = *p.at(row, e) = mine[i];
    }
    __syncwarp();
    float of_chosen = 0;
    for (int k = 0; k < r.per_row; k++) {
        int best = best_of(mine);
        of_chosen += own[best];
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (i * LANES + lane == best) mine[i] = -1;
        if (lane == k) {
            r.chosen[(size_t)row * r.per_row + k] = best;
            *gate.at(row, k) = own[best];
        }
    }
    if (lane < r.per_row && r.per_row > 1) *gate.at(row, lane) /= of_chosen;
}

/* ---- the choices of each expert ---- */

enum { RANK_THREADS = 1024, RANK_EACH = 8 };

/* The sum of n over the threads before this one; *all: over all threads of the block. */
static __device__ inline int sum_before(int n, int *all)
{
    __shared__ int part[LANES];
    int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, sum = n, before = 0;
#pragma unroll
    for (int i = 1; i < LANES; i *= 2) {
        int other = __shfl_up_sync(ALL_LANES, sum, i);
        if (lane >= i) sum += other;
    }
    __syncthreads(); /* an earlier sum may still be read */
    if (lane == LANES - 1) part[warp] = sum;
    __syncthreads();
    *all = 0;
    for (int w = 0; w < RANK_THREADS / LANES; w++) {
        if (w == warp) before = *all;
        *all += part[w];
    }
    return before + sum - n;
}

/* A block numbers the choices of one expert, in their order, and drops those beyond the capacity.
 * column: the sum of the expert's column of p; NULL: not wanted */
static __global__ void __launch_bounds__(RANK_THREADS)
    rank_choices(struct routing r, float *column, rows<const float> p, int n)
{
    int e = blockIdx.x, before = 0, choices = n * r.per_row;
    chain_wait();
    for (int base = 0; base < choices; base += RANK_THREADS * RANK_EACH) {
        int at = base + threadIdx.x * RANK_EACH, count = 0, all;
        bool mine[RANK_EACH];
#pragma unroll
        for (int i = 0; i < RANK_EACH; i++) {
            mine[i] = at + i < choices && r.chosen[at + i] == e;
            count += mine[i];
        }
        int rank = before + sum_before(count, &all);
#pragma unroll
        for (int i = 0; i < RANK_EACH; i++)
            if (mine[i]) {
                r.place[at + i] = r.capacity && rank >= r.capacity ? -1 : rank;
                rank++;
            }
        before += all;
    }
    if (threadIdx.x == 0) {
        r.asked[e] = before;
        r.rows[e] = r.capacity ? min(before, r.capacity) : before;
    }
    if (!column) return;
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += RANK_THREADS) sum += *p.at(i, e);
    sum = block_sum(sum);
    if (threadIdx.x == 0) column[e] = sum;
}

enum { THREADS = 256 };

/* The numbers of the choices become rows among those taken. */
static __global__ void place_choices(struct routing r, const float *column, float *tally, int n)
{
    __shared__ int start[EXPERTS_MAX + 1];
    int i = blockIdx.x * THREADS + threadIdx.x, choices = n * r.per_row;
    chain_wait();
    if (threadIdx.x == 0) {
        start[0] = 0;
        for (int e = 0; e < r.experts; e++)
            start[e + 1] = start[e] + (r.rows[e] + ROW_PAD - 1) / ROW_PAD * ROW_PAD;
    }
    __syncthreads();
    if (i < choices && r.place[i] >= 0) r.place[i] += start[r.chosen[i]];
    if (blockIdx.x) return;
    if (threadIdx.x <= r.experts) r.start[threadIdx.x] = start[threadIdx.x];
    if (!tally) return;
    if (threadIdx.x < r.experts) {
        tally[threadIdx.x] = r.asked[threadIdx.x];
        tally[r.experts + threadIdx.x] = r.rows[threadIdx.x];
    }
    if (threadIdx.x == 0) {
        float loss = 0;
        for (int e = 0; e < r.experts && n; e++) loss += r.asked[e] * column[e];
        tally[2 * r.experts] = n ? loss * r.experts / choices : 0;
    }
}

template <class T, int V>
static void choose_run(struct gpu *c, const struct routing *r, struct mat x, struct mat w)
{
    chain_launch(choose<T, V>, ceiling(x.rows, WARPS), dim3(LANES, WARPS), 0, c->chain, *r,
                 rows_of<float>(r->p), rows_of<float>(r->gate), rows_of<const T>(x),
                 rows_of<const float>(w), x.rows, x.cols, drop_site(r->draw));
}

void cuda_route(struct gpu *c, const struct routing *r, struct mat x, struct mat w)
{
    bool wide = mat_wide(x) && mat_wide(w);
    float *column = r->tally.p ? (float *)c->scratch : NULL;
    if (x.rows && x.type == TYPE_BF16)
        wide ? choose_run<bf16, 8>(c, r, x, w) : choose_run<bf16, 1>(c, r, x, w);
    else if (x.rows)
        wide ? choose_run<float, 8>(c, r, x, w) : choose_run<float, 1>(c, r, x, w);
    chain_launch(rank_choices, r->experts, RANK_THREADS, 0, c->chain, *r, column,
                 rows_of<const float>(r->p), x.rows);
    chain_launch(place_choices, max(1, ceiling((size_t)x.rows * r->per_row, THREADS)), THREADS, 0,
                 c->chain, *r, column, (float *)r->tally.p, x.rows);
}

/* ---- rows to the experts and back ---- */

/* A warp copies the row of one choice. */
template <class T, int V>
static __global__ void __launch_bounds__(LANES *WARPS)
    dispatch(rows<T> y, rows<const T> x, struct routing r, rows<const float> gate, int choices,
             int cols)
{
    int choice = blockIdx.x * WARPS + threadIdx.y;
    chain_wait();
    int to = choice < choices ? r.place[choice] : -1, row = choice / r.per_row;
    if (to < 0) return;
    float factor = gate.p ? *gate.at(row, choice % r.per_row) : 1;
    for (int col = threadIdx.x * V; col < cols; col += LANES * V) {
        float t[V];
        load(t, x.at(row, col));
#pragma unroll
        for (int v = 0; v < V; v++) t[v] *= factor;
        store(y.at(to, col), t);
    }
}

template <class T, int V>
static void dispatch_run(struct gpu *c, struct mat y, struct mat x, const struct routing *r,
                         bool gated)
{
    int choices = x.rows * r->per_row;
    struct mat none = {};
    chain_launch(dispatch<T, V>, ceiling(choices, WARPS), dim3(LANES, WARPS), 0, c->chain,
                 rows_of<T>(y), rows_of<const T>(x), *r,
                 rows_of<const float>(gated ? r->gate : none), choices, x.cols);
}

void cuda_dispatch(struct gpu *c, struct mat y, struct mat x, const struct routing *r, bool gated)
{
    bool wide = mat_wide(y) && mat_wide(x);
    if (x.type == TYPE_BF16)
        wide ? dispatch_run<bf16, 8>(c, y, x, r, gated) : dispatch_run<bf16, 1>(c, y, x, r, gated);
    else
        wide ? dispatch_run<float, 8>(c, y, x, r, gated)
             : dispatch_run<float, 1>(c, y, x, r, gated);
}

/* sum += the rows of x that were taken of the row, times their gates where there are any */
template <class T, int V>
static __device__ inline void add_taken(float (&sum)[V], rows<const T> x, const struct routing &r,
                                        rows<const float> gate, int row, int col)
{
    for (int k = 0; k < r.per_row; k++) {
        int from = r.place[(size_t)row * r.per_row + k];
        if (from < 0) continue;
        float t[V], factor = gate.p ? *gate.at(row, k) : 1;
        load(t, x.at(from, col));
#pragma unroll
        for (int v = 0; v < V; v++) sum[v] += factor * t[v];
    }
}

template <class T, int V>
static __global__ void __launch_bounds__(LANES *WARPS)
    combine(rows<T> y, rows<const T> x, struct routing r, rows<const float> gate, int n, int cols)
{
    int row = blockIdx.x * WARPS + threadIdx.y;
    chain_wait();
    if (row >= n) return;
    for (int col = threadIdx.x * V; col < cols; col += LANES * V) {
        float sum[V] = {};
        add_taken(sum, x, r, gate, row, col);
        store(y.at(row, col), sum);
    }
}

template <class T, int V>
static void combine_run(struct gpu *c, struct mat y, struct mat x, const struct routing *r)
{
    chain_launch(combine<T, V>, ceiling(y.rows, WARPS), dim3(LANES, WARPS), 0, c->chain,
                 rows_of<T>(y), rows_of<const T>(x), *r, rows_of<const float>(r->gate), y.rows,
                 y.cols);
}

void cuda_combine(struct gpu *c, struct mat y, struct mat x, const struct routing *r)
{
    bool wide = mat_wide(y) && mat_wide(x);
    if (y.type == TYPE_BF16)
        wide ? combine_run<bf16, 8>(c, y, x, r) : combine_run<bf16, 1>(c, y, x, r);
    else
        wide ? combine_run<float, 8>(c, y, x, r) : combine_run<float, 1>(c, y, x, r);
}

/* ---- backward of the router ---- */

/* Writes the gradient of the row's logits to dl and over p. */
template <class T, int V>
static __device__ inline void logits_bwd(float *dl, rows<float> p, const struct routing &r,
                                         rows<const float> gate, rows<const T> dy, rows<const T> y,
                                         int row, int cols, float balance)
{
    int lane = threadIdx.x;
    float mine[EACH], dp[EACH], of_gates[EXPERTS_PER_ROW_MAX], mean = 0, gated = 0;
    for (int k = 0; k < r.per_row; k++) {
        int from = r.place[(size_t)row * r.per_row + k];
        float sum = 0;
        for (int col = lane * V; col < cols && from >= 0; col += LANES * V) {
            float a[V], b[V];
            load(a, dy.at(row, col));
            load(b, y.at(from, col));
#pragma unroll
            for (int v = 0; v < V; v++) sum += a[v] * b[v];
        }
        of_gates[k] = warp_sum(sum);
        gated += of_gates[k] * *gate.at(row, k);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int e = i * LANES + lane;
        mine[i] = e < r.experts ? *p.at(row, e) : 0;
        dp[i] = e < r.experts ? balance * r.asked[e] : 0;
        for (int k = 0; k < r.per_row && r.per_row == 1; k++)
            if (r.chosen[row] == e) dp[i] += of_gates[0];
        mean += dp[i] * mine[i];
    }
    mean = warp_sum(mean);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int e = i * LANES + lane;
        float d = mine[i] * (dp[i] - mean);
        for (int k = 0; k < r.per_row && r.per_row > 1; k++)
            if (r.chosen[(size_t)row * r.per_row + k] == e)
                d += *gate.at(row, k) * (of_gates[k] - gated);
        if (e < r.experts) dl[e] = *p.at(row, e) = d;
    }
    __syncwarp();
}

template <class T, int V>
static __global__ void __launch_bounds__(LANES *WARPS)
    route_bwd(rows<T> dx, float beta, rows<float> p, struct routing r, rows<const float> gate,
              rows<const T> dy, rows<const T> y, rows<const T> dtaken, rows<const float> w, int n,
              int cols, float balance)
{
    __shared__ float all[WARPS][EXPERTS_MAX];
    int row = blockIdx.x * WARPS + threadIdx.y;
    float *dl = all[threadIdx.y];
    if (row >= n) return;
    logits_bwd<T, V>(dl, p, r, gate, dy, y, row, cols, balance);
    for (int col = threadIdx.x * V; col < cols; col += LANES * V) {
        float sum[V] = {}, t[V];
        if (beta != 0) {
            load(t, dx.at(row, col));
#pragma unroll
            for (int v = 0; v < V; v++) sum[v] = beta * t[v];
        }
        add_taken(sum, dtaken, r, rows<const float>{NULL, 0}, row, col);
        for (int e = 0; e < r.experts; e++) {
            load(t, w.at(e, col));
#pragma unroll
            for (int v = 0; v < V; v++) sum[v] += dl[e] * t[v];
        }
        store(dx.at(row, col), sum);
    }
}

enum { DW_THREADS = 128, DW_ROWS = 128 };

/* partial[part][e][col] = the sum over the rows of a part of dl[row][e] * x[row][col], for some
 * experts and DW_THREADS columns */
template <class T>
static __global__ void __launch_bounds__(DW_THREADS)
    router_dw(float *partial, rows<const float> dl, rows<const T> x, int n, int cols, int experts,
              int height)
{
    int col = blockIdx.x * DW_THREADS + threadIdx.x, first = blockIdx.y * TOGETHER;
    int row = blockIdx.z * height, last = min(n, row + height);
    float sum[TOGETHER] = {};
    if (col >= cols) return;
    for (; row < last; row++) {
        float a[1];
        load(a, x.at(row, col));
#pragma unroll
        for (int e = 0; e < TOGETHER; e++)
            if (first + e < experts) sum[e] += *dl.at(row, first + e) * a[0];
    }
#pragma unroll
    for (int e = 0; e < TOGETHER; e++)
        if (first + e < experts)
            partial[((size_t)blockIdx.z * experts + first + e) * cols + col] = sum[e];
}

template <class T>
static void router_dw_run(struct gpu *c, struct mat dw, struct mat dl, struct mat x)
{
    int experts = dw.rows;
    int most = (int)(CUDA_SCRATCH / (sizeof(float) * experts * dw.cols));
    int parts = max(1, min(ceiling(x.rows, DW_ROWS), most)), height = ceiling(x.rows, parts);
    struct sums sums = {{(float *)dw.p}, 1};
    float *partial = (float *)c->scratch;
    dim3 grid(ceiling(dw.cols, DW_THREADS), ceiling(experts, TOGETHER), ceiling(x.rows, height));
    router_dw<T><<<grid, DW_THREADS, 0, c->stream>>>(
        partial, rows_of<const float>(dl), rows_of<const T>(x), x.rows, x.cols, experts, height);
    cuda_add_partials(c, sums, partial, grid.z, experts * dw.cols);
}

template <class T, int V>
static void route_bwd_run(struct gpu *c, struct mat dx, float beta, struct mat dy, struct mat y,
                          struct mat dtaken, struct mat w, const struct routing *r, float balance)
{
    route_bwd<T, V><<<ceiling(dx.rows, WARPS), dim3(LANES, WARPS), 0, c->stream>>>(
        rows_of<T>(dx), beta, rows_of<float>(r->p), *r, rows_of<const float>(r->gate),
        rows_of<const T>(dy), rows_of<const T>(y), rows_of<const T>(dtaken),
        rows_of<const float>(w), dx.rows, dx.cols, balance);
}

void cuda_route_bwd(struct gpu *c, struct mat dx, float beta, struct mat dw, struct mat dy,
                    struct mat y, struct mat dtaken, struct mat x, struct mat w,
                    const struct routing *r, float balance)
{
    bool wide = mat_wide(dx) && mat_wide(dy) && mat_wide(y) && mat_wide(dtaken) && mat_wide(w);
    /* the gradient of p in the loss of unbalanced experts is this times what each was asked for */
    float each = (float)((double)balance * r->experts / ((double)dx.rows * r->per_row));
    if (dx.type == TYPE_BF16) {
        wide ? route_bwd_run<bf16, 8>(c, dx, beta, dy, y, dtaken, w, r, each)
             : route_bwd_run<bf16, 1>(c, dx, beta, dy, y, dtaken, w, r, each);
        router_dw_run<bf16>(c, dw, r->p, x);
    } else {
        wide ? route_bwd_run<float, 8>(c, dx, beta, dy, y, dtaken, w, r, each)
             : route_bwd_run<float, 1>(c, dx, beta, dy, y, dtaken, w, r, each);
        router_dw_run<float>(c, dw, r->p, x);
    }
}
