/*
 * experts_linear.cu - the products of a mixture of experts, forward and backward: see ops.h.
 *
 * Each expert multiplies its own rows with its own matrix. How many rows it has is known to the
 * device alone, so the grid has blocks for the worst case, and a block finds its expert and its
 * tile of rows from struct routing; blocks beyond the last tile end at once.
 *
 * There are two kernels for each product. `tiles` computes 128 x 128 results of bf16 operands on
 * the tensor cores, from tiles in shared memory that are copied some steps ahead. `plain` takes any
 * type and any alignment. Both sum over the inner side in a fixed order and do the work behind the
 * product, activation and dropout, before they store a result.
 */
#include <assert.h>

#include "ops/cuda/activation.h"
#include "ops/cuda/attention_device.h"
#include "ops/cuda/device.h"

/* ---- which rows a block computes ---- */

struct span {
    int expert; /* -1: nothing is left to compute */
    int first, end;
};

/* Tile number `tile` of all tiles of `height` rows, those of the first expert first. */
static __device__ inline struct span span_of(const struct routing &r, int tile, int height)
{
    struct span s = {-1, 0, 0};
    for (int e = 0; e < r.experts; e++) {
        int n = r.rows[e], tiles = (n + height - 1) / height;
        if (tile < tiles) {
            s.expert = e, s.first = r.start[e] + tile * height, s.end = r.start[e] + n;
            return s;
        }
        tile -= tiles;
    }
    return s;
}

/* As many tiles as there can be. */
static int tiles_most(struct mat taken, const struct routing *r, int height)
{
    return taken.rows / height + r->experts;
}

/* ---- what is done to a result before it is stored ---- */

/* N numbers, one or two; two begin at an even column of a matrix with aligned rows */
template <class U> static __device__ inline void store_some(U *p, const float (&x)[1])
{
    store(p, x);
}
static __device__ inline void store_some(float *p, const float (&x)[2])
{
    *(float2 *)p = make_float2(x[0], x[1]);
}
static __device__ inline void store_some(bf16 *p, const float (&x)[2])
{
    *(uint32_t *)p = pack(x[0], x[1]);
}
template <class U> static __device__ inline void load_some(float (&x)[1], const U *p)
{
    load(x, p);
}
static __device__ inline void load_some(float (&x)[2], const float *p)
{
    float2 two = *(const float2 *)p;
    x[0] = two.x, x[1] = two.y;
}
static __device__ inline void load_some(float (&x)[2], const bf16 *p)
{
    float2 two = unpack(*(const uint32_t *)p);
    x[0] = two.x, x[1] = two.y;
}

/* y = drop(f(z)) and its derivative by z, where z = the product + bias. In packed int8 weights a
 * result is a sum of integers, times the scales of its row of x and of w. */
template <class U> struct forward {
    rows<U> y, slope; /* slope.p NULL: not stored */
    const float *bias;
    enum activation_kind kind;
    struct drop_site site;
    const float *unit; /* scales of the rows of x; NULL: there are none */
    rows<const bf16> w;
    template <int N>
    __device__ void put(const struct span &s, int row, int col, int cols, float (&x)[N],
                        struct drop_row mask) const
    {
        int out = s.expert * cols + col;
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (unit) x[i] *= unit[row] * packed_unit(w.at(out + i, 0), (int)w.ld);
            x[i] += bias[out + i];
        }
        float d[N];
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = activation(kind, x[i], &d[i]);
        drop(x, mask, col);
        store_some(y.at(row, col), x);
        if (!slope.p) return;
        drop(d, mask, col);
        store_some(slope.at(row, col), d);
    }
};

/* dx, multiplied by the derivative of x = drop(f(z)). seen: slope, or where the kind keeps none x,
 * which after a ReLU is 0 where the gradient is */
template <class U> struct backward {
    rows<U> dx;
    rows<const U> seen;
    enum activation_kind kind;
    struct drop_site site;
    template <int N>
    __device__ void put(const struct span &, int row, int col, int, float (&x)[N],
                        struct drop_row mask) const
    {
        float t[N] = {};
        if (kind == ACT_NONE)
            drop(x, mask, col);
        else
            load_some(t, seen.at(row, col));
#pragma unroll
        for (int i = 0; i < N && kind != ACT_NONE; i++)
            x[i] = kind != ACT_RELU ? x[i] * t[i] : t[i] <= 0 ? 0 : x[i] * site.scale;
        store_some(dx.at(row, col), x);
    }
};

/* ---- tiles ---- */

enum {
    TILE = 128, /* rows and columns of the result of a block */
    DEPTH = 32, /* of the inner side that is multiplied at a time */
    STAGES = 4, /* tiles in shared memory: one is multiplied, the others are being copied */
    WARPS = 8,  /* two by four, each with 64 x 32 results */
    THREADS = WARPS * LANES,
    SIDE_BYTES = TILE * DEPTH * 2,
    STAGE_BYTES = 2 * SIDE_BYTES,
    TILES_BYTES = STAGES * STAGE_BYTES
};

/* An operand: numbers [first, end) along the side of the result. TURNED: its rows are the inner
 * side, so that it is read as its transpose. */
template <class T> struct side {
    const T *p;
    size_t ld;
    int first, end;
    const float *per; /* int8 weights: factor of each row before it is rounded; NULL: none */
};

/* Starts to copy rows of D numbers, a whole tile, from (row, col) on; zeros beyond the ends. */
template <int D>
static __device__ inline void copy_part(uint32_t to, const side<bf16> &a, int row, int row_end,
                                        int col, int col_end)
{
    const int chunks = D / 8, turns = TILE * DEPTH / 8 / THREADS;
#pragma unroll
    for (int turn = 0, i = threadIdx.x; turn < turns; turn++, i += THREADS) {
        int r = row + i / chunks, c = col + i % chunks * 8;
        bool there = r < row_end && c < col_end;
        copy_chunk(to + chunk_at<D>(i / chunks, i % chunks),
                   there ? a.p + (size_t)r * a.ld + c : a.p, there);
    }
}

/* The same from f32, rounded on the way: to bf16, or to multiples of 1 / per. */
template <int D>
static __device__ inline void copy_part(uint32_t to, const side<float> &a, int row, int row_end,
                                        int col, int col_end)
{
    const int chunks = D / 8, turns = TILE * DEPTH / 8 / THREADS;
#pragma unroll
    for (int turn = 0, i = threadIdx.x; turn < turns; turn++, i += THREADS) {
        int r = row + i / chunks, c = col + i % chunks * 8;
        float x[8] = {};
        if (r < row_end && c < col_end) {
            load(x, a.p + (size_t)r * a.ld + c);
            float per = a.per ? a.per[r] : 1;
#pragma unroll
            for (int k = 0; k < 8; k++) x[k] = a.per ? rintf(x[k] * per) : x[k];
        }
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(
                         to + chunk_at<D>(i / chunks, i % chunks)),
                     "r"(pack(x[0], x[1])), "r"(pack(x[2], x[3])), "r"(pack(x[4], x[5])),
                     "r"(pack(x[6], x[7]))
                     : "memory");
    }
}

template <bool TURNED, class T>
static __device__ inline void copy_side(uint32_t to, const side<T> &a, int inner, int inner_end)
{
    if (TURNED)
        copy_part<TILE>(to, a, inner, inner_end, a.first, a.end);
    else
        copy_part<DEPTH>(to, a, a.first, a.end, inner, inner_end);
}

/* 16 x 16 numbers of the left operand: rows [at, at + 16) of the result, inner numbers of `half` */
template <bool TURNED>
static __device__ inline void left_of(uint32_t (&r)[4], uint32_t tile, int at, int half,
                                      const struct lanes &narrow, const struct lanes &wide)
{
    if (TURNED)
        load_matrix_turned(r, (tile + half * 16 * TILE * 2 + wide.across) ^ at / 16 * 32);
    else
        load_left(r, tile + at * DEPTH * 2, half, narrow);
}

template <bool TURNED>
static __device__ inline void right_of(uint32_t (&r)[4], uint32_t tile, int at, int half,
                                       const struct lanes &narrow, const struct lanes &wide)
{
    if (TURNED)
        load_right_turned(r, tile + half * 16 * TILE * 2, at / 16, wide);
    else
        load_right(r, tile + at * DEPTH * 2, half, narrow);
}

/* The results of a warp: rows down * 64 + 16 i + (0, 8) + lane / 4 of the tile, columns
 * across * 32 + 8 j + lane % 4 * 2 + (0, 1). */
struct results {
    float c[4][4][4];
};

/* One step: the inner numbers of a stage. */
template <bool A_TURNED, bool B_TURNED>
static __device__ inline void multiply_stage(struct results &t, uint32_t stage, int down,
                                             int across, const struct lanes &narrow,
                                             const struct lanes &wide)
{
#pragma unroll
    for (int half = 0; half < DEPTH / 16; half++) {
        uint32_t a[4][4], b[2][4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            left_of<A_TURNED>(a[i], stage, down * 64 + i * 16, half, narrow, wide);
#pragma unroll
        for (int j = 0; j < 2; j++)
            right_of<B_TURNED>(b[j], stage + SIDE_BYTES, across * 32 + j * 16, half, narrow, wide);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                multiply(t.c[i][2 * j], a[i], b[j][0], b[j][1]);
                multiply(t.c[i][2 * j + 1], a[i], b[j][2], b[j][3]);
            }
    }
}

/* The product over inner numbers [inner, inner_end). */
template <bool A_TURNED, bool B_TURNED, class A>
static __device__ inline void multiply_tiles(struct results &t, uint32_t shared, const side<A> &a,
                                             const side<bf16> &b, int inner, int inner_end)
{
    int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const struct lanes narrow = lanes_make<DEPTH>(lane), wide = lanes_make<TILE>(lane);
    int steps = (inner_end - inner + DEPTH - 1) / DEPTH;
    for (int i = 0; i < STAGES - 1; i++) {
        uint32_t to = shared + i * STAGE_BYTES;
        if (i < steps) {
            copy_side<A_TURNED>(to, a, inner + i * DEPTH, inner_end);
            copy_side<B_TURNED>(to + SIDE_BYTES, b, inner + i * DEPTH, inner_end);
        }
        copy_commit();
    }
    for (int i = 0; i < steps; i++) {
        int next = i + STAGES - 1;
        copy_wait<STAGES - 2>();
        __syncthreads(); /* stage i has arrived for all, and nobody reads stage i - 1 any more */
        if (next < steps) {
            uint32_t to = shared + next % STAGES * STAGE_BYTES;
            copy_side<A_TURNED>(to, a, inner + next * DEPTH, inner_end);
            copy_side<B_TURNED>(to + SIDE_BYTES, b, inner + next * DEPTH, inner_end);
        }
        copy_commit();
        multiply_stage<A_TURNED, B_TURNED>(t, shared + i % STAGES * STAGE_BYTES, warp / 4, warp % 4,
                                           narrow, wide);
    }
}

/* Rows of all experts times their matrices w [experts * w_rows, w_cols]; RIGHT_TURNED: the inner
 * side are the rows of an expert's matrix, as in dx. */
template <bool RIGHT_TURNED, class A, class F>
static __global__ void __launch_bounds__(THREADS, 2)
    tiles(F f, struct routing r, rows<const A> x, const float *per, rows<const bf16> w, int w_rows,
          int cols, int inner)
{
    extern __shared__ __align__(TILE_ALIGN) char shared[];
    chain_wait();
    struct span s = span_of(r, blockIdx.y, TILE);
    if (s.expert < 0) return;
    const bf16 *own = w.at((size_t)s.expert * w_rows, 0);
    side<A> a = {x.p, x.ld, s.first, s.end, per};
    side<bf16> b = {own, w.ld, (int)blockIdx.x * TILE, cols, NULL};
    struct results t = {};
    multiply_tiles<false, RIGHT_TURNED>(t, shared_address(shared), a, b, 0, inner);
    int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    int row = s.first + warp / 4 * 64 + lane / 4, col = b.first + warp % 4 * 32 + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 8; i++, row += 8) {
        if (row >= s.end) break;
        struct drop_row mask = mask_of(f.site, row);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float two[2] = {t.c[i / 2][j][i % 2 * 2], t.c[i / 2][j][i % 2 * 2 + 1]};
            if (col + j * 8 < cols) f.put(s, row, col + j * 8, cols, two, mask);
        }
    }
}

/* dw of expert blockIdx.z += dyT x over its rows */
static __global__ void __launch_bounds__(THREADS, 2)
    tiles_dw(rows<float> dw, struct routing r, rows<const bf16> dy, rows<const bf16> x, int outs,
             int cols)
{
    extern __shared__ __align__(TILE_ALIGN) char shared[];
    int e = blockIdx.z, start = r.start[e], end = start + r.rows[e];
    side<bf16> a = {dy.p, dy.ld, (int)blockIdx.y * TILE, outs, NULL};
    side<bf16> b = {x.p, x.ld, (int)blockIdx.x * TILE, cols, NULL};
    struct results t = {};
    if (start == end) return;
    multiply_tiles<true, true>(t, shared_address(shared), a, b, start, end);
    int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    int row = a.first + warp / 4 * 64 + lane / 4, col = b.first + warp % 4 * 32 + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 8; i++, row += 8)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (row >= outs || col + j * 8 >= cols) continue;
            float2 *to = (float2 *)dw.at((size_t)e * outs + row, col + j * 8), sum = *to;
            sum.x += t.c[i / 2][j][i % 2 * 2], sum.y += t.c[i / 2][j][i % 2 * 2 + 1];
            *to = sum;
        }
}

/* ---- plain: any type and alignment ---- */

enum { SMALL = 64, SLICE = 16, MINE = SMALL / 16 /* rows and columns of a thread's results */ };

/* An operand: number (i, k) is p[i * along + k * inner], i < end */
template <class T> struct any_side {
    const T *p;
    size_t along, inner;
    int first, end;
};

template <class T> static __device__ inline float as_float(T x)
{
    return (float)x;
}

/* to[k][i] = the numbers (first + i, at + k), rounded as packed weights require */
template <class T>
static __device__ inline void copy_slice(float (*to)[SMALL + 1], const any_side<T> &a, int at,
                                         int inner_end, bool to_bf16, const float *per)
{
    for (int i = threadIdx.x; i < SMALL * SLICE; i += THREADS) {
        /* neighbouring threads read neighbouring numbers */
        int row = a.inner == 1 ? i / SLICE : i % SMALL, k = a.inner == 1 ? i % SLICE : i / SMALL;
        bool there = a.first + row < a.end && at + k < inner_end;
        float x = there ? as_float(a.p[(a.first + row) * a.along + (size_t)(at + k) * a.inner]) : 0;
        if (per && there) x = rintf(x * per[a.first + row]);
        to[k][row] = to_bf16 ? as_stored(x, (const bf16 *)0) : x;
    }
}

template <class A, class B>
static __device__ inline void multiply_any(float (&sum)[MINE][MINE], const any_side<A> &a,
                                           const any_side<B> &b, int inner, int inner_end,
                                           bool to_bf16, const float *per)
{
    __shared__ float left[SLICE][SMALL + 1], right[SLICE][SMALL + 1];
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    for (; inner < inner_end; inner += SLICE) {
        copy_slice(left, a, inner, inner_end, to_bf16, per);
        copy_slice(right, b, inner, inner_end, false, (const float *)NULL);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < SLICE; k++)
#pragma unroll
            for (int i = 0; i < MINE; i++)
#pragma unroll
                for (int j = 0; j < MINE; j++)
                    sum[i][j] += left[k][ty + 16 * i] * right[k][tx + 16 * j];
        __syncthreads();
    }
}

/* w_along, w_inner: distances between the numbers of an expert's matrix along the result and along
 * the inner side */
template <class A, class B, class F>
static __global__ void __launch_bounds__(THREADS)
    plain(F f, struct routing r, rows<const A> x, bool to_bf16, const float *per, rows<const B> w,
          int w_rows, size_t w_along, size_t w_inner, int cols, int inner)
{
    chain_wait();
    struct span s = span_of(r, blockIdx.y, SMALL);
    if (s.expert < 0) return;
    any_side<A> a = {x.p, x.ld, 1, s.first, s.end};
    any_side<B> b = {w.at((size_t)s.expert * w_rows, 0), w_along, w_inner, (int)blockIdx.x * SMALL,
                     cols};
    float sum[MINE][MINE] = {};
    multiply_any(sum, a, b, 0, inner, to_bf16, per);
#pragma unroll
    for (int i = 0; i < MINE; i++) {
        int row = s.first + threadIdx.x / 16 + 16 * i;
        if (row >= s.end) break;
        struct drop_row mask = mask_of(f.site, row);
#pragma unroll
        for (int j = 0; j < MINE; j++) {
            int col = b.first + threadIdx.x % 16 + 16 * j;
            float one[1] = {sum[i][j]};
            if (col < cols) f.put(s, row, col, cols, one, mask);
        }
    }
}

template <class T>
static __global__ void __launch_bounds__(THREADS)
    plain_dw(rows<float> dw, struct routing r, rows<const T> dy, rows<const T> x, int outs,
             int cols)
{
    int e = blockIdx.z, start = r.start[e], end = start + r.rows[e];
    any_side<T> a = {dy.p, 1, dy.ld, (int)blockIdx.y * SMALL, outs};
    any_side<T> b = {x.p, 1, x.ld, (int)blockIdx.x * SMALL, cols};
    float sum[MINE][MINE] = {};
    multiply_any(sum, a, b, start, end, false, (const float *)NULL);
#pragma unroll
    for (int i = 0; i < MINE; i++)
#pragma unroll
        for (int j = 0; j < MINE; j++) {
            int row = a.first + threadIdx.x / 16 + 16 * i,
                col = b.first + threadIdx.x % 16 + 16 * j;
            if (row < outs && col < cols) *dw.at((size_t)e * outs + row, col) += sum[i][j];
        }
}

/* ---- forward ---- */

/* The scale of each row of x, as in quant.h, and by what the row is multiplied before it is
 * rounded. Padding rows get what they get. */
static __global__ void row_units(float *unit, float *per, rows<const float> x, int n, int cols)
{
    int row = blockIdx.x * WARPS + threadIdx.y;
    float most = 0;
    chain_wait();
    if (row >= n) return;
    for (int i = threadIdx.x; i < cols; i += LANES) most = fmaxf(most, fabsf(*x.at(row, i)));
    for (int i = LANES / 2; i > 0; i /= 2) most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, i));
    if (threadIdx.x) return;
    per[row] = most < QUANT_TINY ? 0 : 127 / most;
    unit[row] = most < QUANT_TINY ? 0 : most / 127;
}

/* A: the type of x; U: that of y and slope */
template <class A, class U>
static void forward_tiles(struct gpu *c, const struct forward<U> &f, const struct routing *r,
                          struct mat x, const float *per, struct mat w, int outs)
{
    dim3 grid(ceiling(outs, TILE), tiles_most(x, r, TILE));
    cuda_check(c, shared_allow((const void *)tiles<false, A, struct forward<U>>, TILES_BYTES));
    chain_launch(tiles<false, A, struct forward<U>>, grid, THREADS, TILES_BYTES, c->chain, f, *r,
                 rows_of<const A>(x), per, rows_of<const bf16>(w), outs, outs, x.cols);
}

template <class A, class B, class U>
static void forward_plain(struct gpu *c, const struct forward<U> &f, const struct routing *r,
                          struct mat x, bool to_bf16, const float *per, struct mat w, int outs)
{
    dim3 grid(ceiling(outs, SMALL), tiles_most(x, r, SMALL));
    chain_launch(plain<A, B, struct forward<U>>, grid, THREADS, 0, c->chain, f, *r,
                 rows_of<const A>(x), to_bf16, per, rows_of<const B>(w), outs, (size_t)w.ld,
                 (size_t)1, outs, x.cols);
}

template <class U>
static struct forward<U> forward_of(struct mat y, struct mat w, struct mat b, struct activation f,
                                    const float *unit) {
    struct forward<U> o = {
        rows_of<U>(y), rows_of<U>(f.slope), (const float *)b.p, f.kind,
            drop_site(f.drop), unit, rows_of<const bf16>(w)
    };
    return o;
}

void cuda_experts_linear(struct gpu *c, struct mat y, struct mat x, struct mat w, struct mat b,
                         struct activation f, const struct routing *r)
{
    struct mat weights = mat_unpacked(w);
    int outs = y.cols;
    bool wide = mat_wide(y) && mat_wide(x) && mat_wide(weights) && mat_wide(f.slope);
    cuda_mark(c, "experts_linear", mat_bytes(x) + mat_bytes(y) + mat_bytes(weights),
              2.0 * x.rows * x.cols * outs);
    if (x.type != y.type || (x.type == TYPE_BF16 && weights.type != TYPE_BF16)) {
        cuda_refuse(c, "matrices of these types");
    } else if (x.type == TYPE_BF16) {
        struct forward<bf16> o = forward_of<bf16>(y, weights, b, f, NULL);
        wide ? forward_tiles<bf16, bf16>(c, o, r, x, NULL, weights, outs)
             : forward_plain<bf16, bf16, bf16>(c, o, r, x, false, NULL, weights, outs);
    } else if (weights.type == TYPE_F32) {
        struct forward<float> o = forward_of<float>(y, weights, b, f, NULL);
        forward_plain<float, float, float>(c, o, r, x, false, NULL, weights, outs);
    } else {
        float *unit = w.type == TYPE_PACKED_I8 ? (float *)c->scratch : NULL;
        float *per = unit ? unit + x.rows : NULL;
        struct forward<float> o = forward_of<float>(y, weights, b, f, unit);
        if (unit)
            chain_launch(row_units, ceiling(x.rows, WARPS), dim3(LANES, WARPS), 0, c->chain, unit,
                         per, rows_of<const float>(x), x.rows, x.cols);
        wide ? forward_tiles<float, float>(c, o, r, x, per, weights, outs)
             : forward_plain<float, bf16, float>(c, o, r, x, !unit, per, weights, outs);
    }
}

/* ---- backward ---- */

enum { PARTS = 16 }; /* at most, as far as the scratch block has room */

/* partial[part][e][col] = the sum of dy over a part of the rows of expert e, for LANES * V columns
 */
template <class T, int V>
static __global__ void __launch_bounds__(THREADS)
    bias_parts(float *partial, struct routing r, rows<const T> dy, int cols)
{
    __shared__ float part[WARPS][LANES * V + 1];
    int tx = threadIdx.x, ty = threadIdx.y, col = (blockIdx.x * LANES + tx) * V, e = blockIdx.y;
    int height = (r.rows[e] + gridDim.z - 1) / gridDim.z, end = r.start[e] + r.rows[e];
    int first = r.start[e] + blockIdx.z * height, last = min(end, first + height);
    float sum[V] = {};
#pragma unroll 4
    for (int row = first + ty; row < last; row += WARPS) {
        float x[V];
        if (col >= cols) break;
        load(x, dy.at(row, col));
#pragma unroll
        for (int v = 0; v < V; v++) sum[v] += x[v];
    }
#pragma unroll
    for (int v = 0; v < V; v++) part[ty][tx * V + v] = sum[v];
    __syncthreads();
    for (int i = ty * LANES + tx; i < LANES * V; i += THREADS) {
        float all = 0;
        int to = blockIdx.x * LANES * V + i;
        for (int w = 0; w < WARPS; w++) all += part[w][i];
        if (to < cols) partial[((size_t)blockIdx.z * r.experts + e) * cols + to] = all;
    }
}

template <class T, int V>
static void bias_sums(struct gpu *c, struct mat db, struct mat dy, const struct routing *r)
{
    float *partial = (float *)c->scratch;
    struct sums sums = {{(float *)db.p}, 1};
    int fit = (int)(CUDA_SCRATCH / (sizeof(float) * r->experts * dy.cols)), parts = min(PARTS, fit);
    dim3 grid(ceiling(dy.cols, LANES * V), r->experts, parts);
    cuda_mark(c, "experts_linear_bwd, bias", mat_bytes(dy), 0);
    bias_parts<T, V>
        <<<grid, dim3(LANES, WARPS), 0, c->stream>>>(partial, *r, rows_of<const T>(dy), dy.cols);
    cuda_add_partials(c, sums, partial, parts, r->experts * dy.cols);
}

template <class T>
static void backward_dx(struct gpu *c, struct mat dx, struct mat dy, struct mat x, struct mat w,
                        struct activation f, const struct routing *r, bool wide)
{
    struct backward<T> o = {
        rows_of<T>(dx), rows_of<const T>(f.slope.p ? f.slope : x), f.kind, drop_site(f.drop)
    };
    int outs = dy.cols, cols = dx.cols;
    cuda_mark(c, "experts_linear_bwd, dx", mat_bytes(dx) + mat_bytes(dy) + mat_bytes(w),
              2.0 * dy.rows * outs * cols);
    if (wide) {
        dim3 grid(ceiling(cols, TILE), tiles_most(dy, r, TILE));
        cuda_check(c,
                   shared_allow((const void *)tiles<true, bf16, struct backward<T>>, TILES_BYTES));
        tiles<true, bf16, struct backward<T>><<<grid, THREADS, TILES_BYTES, c->stream>>>(
            o, *r, rows_of<const bf16>(dy), NULL, rows_of<const bf16>(w), outs, cols, outs);
        return;
    }
    dim3 grid(ceiling(cols, SMALL), tiles_most(dy, r, SMALL));
    plain<T, T, struct backward<T>><<<grid, THREADS, 0, c->stream>>>(
        o, *r, rows_of<const T>(dy), false, NULL, rows_of<const T>(w), outs, (size_t)1,
        (size_t)w.ld, cols, outs);
}

template <class T>
static void backward_dw(struct gpu *c, struct mat dw, struct mat dy, struct mat x,
                        const struct routing *r, bool wide)
{
    int outs = dy.cols, cols = x.cols;
    cuda_mark(c, "experts_linear_bwd, dw", mat_bytes(x) + mat_bytes(dy) + 2 * mat_bytes(dw),
              2.0 * dy.rows * outs * cols);
    if (wide) {
        dim3 grid(ceiling(cols, TILE), ceiling(outs, TILE), r->experts);
        cuda_check(c, shared_allow((const void *)tiles_dw, TILES_BYTES));
        tiles_dw<<<grid, THREADS, TILES_BYTES, c->stream>>>(
            rows_of<float>(dw), *r, rows_of<const bf16>(dy), rows_of<const bf16>(x), outs, cols);
        return;
    }
    dim3 grid(ceiling(cols, SMALL), ceiling(outs, SMALL), r->experts);
    plain_dw<T><<<grid, THREADS, 0, c->stream>>>(rows_of<float>(dw), *r, rows_of<const T>(dy),
                                                 rows_of<const T>(x), outs, cols);
}

void cuda_experts_linear_bwd(struct gpu *c, struct mat dx, struct mat db, struct mat dw,
                             struct mat dy, struct mat x, struct mat w, struct activation f,
                             const struct routing *r)
{
    bool wide = dy.type == TYPE_BF16 && mat_wide(dx) && mat_wide(dy) && mat_wide(x) &&
                mat_wide(w) && mat_wide(dw) && mat_wide(f.slope);
    assert(!f.slope.p == !activation_keeps_slope(f.kind));
    if (dy.type != w.type || dy.type != x.type || dx.type != dy.type) {
        cuda_refuse(c, "matrices of these types");
    } else if (dy.type == TYPE_BF16) {
        mat_wide(dy) ? bias_sums<bf16, 8>(c, db, dy, r) : bias_sums<bf16, 1>(c, db, dy, r);
        backward_dx<bf16>(c, dx, dy, x, w, f, r, wide);
        backward_dw<bf16>(c, dw, dy, x, r, wide);
    } else {
        mat_wide(dy) ? bias_sums<float, 8>(c, db, dy, r) : bias_sums<float, 1>(c, db, dy, r);
        backward_dx<float>(c, dx, dy, x, w, f, r, false);
        backward_dw<float>(c, dw, dy, x, r, false);
    }
}
