/*
 * linear_attention_tiles.cu - linear attention of whole sentences and its gradients in bf16 on the
 * tensor cores, heads of 32, 64 or 128. See linear_attention.cu for the sums.
 *
 * A block computes one sentence and one key/value head in chunks of D positions, D the width of a
 * head, with D / 16 warps. Of each D by D matrix a warp has 16 rows: of the results of a chunk, and
 * of the state, whose sums are in registers and whose copy in bf16 is in shared memory for all
 * warps. The column of 1 in [v, 1] and of e in [g, e] is not part of the tiles:
 *
 *   output  a vector of sums of y is kept beside the state, and phi(q) z is computed in f32
 *   dq      x is dout, and the results are multiplied by 1 / (phi(q) z); minus dout . o of a query
 *           is added to each x yT of its row, and times the sum of z to what the state gives
 *   dk      e of a query is added to each x yT of its column, and the sum of e z is kept
 */
#include "ops/cuda/attention_device.h"
#include "ops/cuda/linear_attention.h"
#include "ops/cuda/linear_device.h"

enum kind { OUTPUT, DQ, DK, DV };

template <int D> struct tiles {
    alignas(TILE_ALIGN) char x[D * D * 2], y[D * D * 2], z[D * D * 2], state[D * D * 2];
    float sum[D];             /* beside the state: of y, of z or of e z */
    float scale[D], error[D]; /* of the queries of a chunk */
};

/* Where the rows of a head are. */
struct source {
    const bf16 *p;
    int ld;
};

static __device__ inline struct source source_of(const struct mat &m, int row, int col)
{
    struct source s = {(const bf16 *)m.p + (size_t)row * m.ld + col, m.ld};
    return s;
}

/* ---- loading ---- */

enum change { PLAIN, PHI, SCALED };

static __device__ inline uint32_t changed(uint32_t pair, enum change change, float scale)
{
    float2 x = unpack(pair);
    return change == PHI ? pack(phi(x.x), phi(x.y)) : pack(x.x * scale, x.y * scale);
}

/* A tile of n rows from row i of a source on; zeros in the others. scale: of each row */
template <int D>
static __device__ void load_tile(char *to, struct source s, int i, int n, enum change change,
                                 const float *scale)
{
    const int chunks = D / 8, chunk = threadIdx.x % chunks;
#pragma unroll 4
    for (int row = threadIdx.x / chunks; row < D; row += 16) {
        uint4 u = make_uint4(0, 0, 0, 0);
        if (row < n) {
            u = *(const uint4 *)(s.p + (size_t)(i + row) * s.ld + chunk * 8);
            float by = change == SCALED ? scale[row] : 1;
            if (change != PLAIN)
                u = make_uint4(changed(u.x, change, by), changed(u.y, change, by),
                               changed(u.z, change, by), changed(u.w, change, by));
        }
        *(uint4 *)(to + chunk_at<D>(row, chunk)) = u;
    }
}

static __device__ inline float dot(uint32_t a, uint32_t b)
{
    float2 x = unpack(a), y = unpack(b);
    return x.x * y.x + x.y * y.y;
}

/* ---- one block's work ---- */

template <int D, enum kind K>
struct work {
    const struct attention &a; const struct attention_grad & g; struct tiles<D> & m; struct job j;
    int warp, lane;
    struct lanes l;
    float state[D / 8][4]; /* 16 rows of the state */
    float out[D / 8][4];   /* 16 rows of results */
    float sum[2];          /* OUTPUT: phi(q) z of rows g and g + 8, the part of this lane */
};

/* Whether x is of queries, and y and z of keys. */
static __device__ constexpr bool asks_queries(enum kind k)
{
    return k == OUTPUT || k == DQ;
}

/* The heads of x, and those of y and z: all that share the keys, or one pass. */
template <int D, enum kind K> static __device__ int asked(const struct work<D, K> &w)
{
    return asks_queries(K) ? w.j.shared : 1;
}
template <int D, enum kind K> static __device__ int heads(const struct work<D, K> &w)
{
    return asks_queries(K) ? 1 : w.j.shared;
}

template <int D, enum kind K>
static __device__ struct source of_queries(const struct work<D, K> &w, const struct mat &m, int h)
{
    return source_of(m, w.j.q0, (w.j.head + h) * D);
}
template <int D, enum kind K>
static __device__ struct source of_keys(const struct work<D, K> &w, const struct mat &m)
{
    return source_of(m, w.j.k0, w.j.kv_head * D);
}

/* scale = 1 / (phi(q) z) and error = - dout . o, in DK times scale, of n queries from i on; 0 in
 * the others. The threads of a row are neighbours in a warp. */
template <int D, enum kind K>
static __device__ void load_errors(struct work<D, K> &w, int h, int i, int n)
{
    const int chunks = D / 8, chunk = threadIdx.x % chunks;
    struct source dout = of_queries(w, w.g.dout, h), o = of_queries(w, w.a.o, h);
    for (int row = threadIdx.x / chunks; row < D; row += 16) {
        float delta = 0, scale = 0;
        if (row < n) {
            uint4 x = *(const uint4 *)(dout.p + (size_t)(i + row) * dout.ld + chunk * 8);
            uint4 y = *(const uint4 *)(o.p + (size_t)(i + row) * o.ld + chunk * 8);
            delta = dot(x.x, y.x) + dot(x.y, y.y) + dot(x.z, y.z) + dot(x.w, y.w);
            scale = inverse(element(w.a.lse, w.j.q0 + i + row, w.j.head + h));
        }
#pragma unroll
        for (int k = chunks / 2; k > 0; k /= 2) delta += __shfl_xor_sync(ALL_LANES, delta, k);
        if (chunk) continue;
        w.m.scale[row] = scale;
        w.m.error[row] = K == DK ? -delta * scale : -delta;
    }
}

template <int D, enum kind K>
static __device__ void load_x(struct work<D, K> &w, int h, int i, int n)
{
    char *x = w.m.x;
    if (K == DQ) load_errors(w, h, i, n);
    if (K == OUTPUT) load_tile<D>(x, of_queries(w, w.a.q, h), i, n, PHI, NULL);
    if (K == DQ) load_tile<D>(x, of_queries(w, w.g.dout, h), i, n, PLAIN, NULL);
    if (K == DK) load_tile<D>(x, of_keys(w, w.a.v), i, n, PLAIN, NULL);
    if (K == DV) load_tile<D>(x, of_keys(w, w.a.k), i, n, PHI, NULL);
}

template <int D, enum kind K>
static __device__ void load_yz(struct work<D, K> &w, int h, int i, int n)
{
    char *y = w.m.y, *z = w.m.z;
    if (!asks_queries(K)) {
        load_errors(w, h, i, n);
        __syncthreads();
    }
    if (K == OUTPUT) load_tile<D>(y, of_keys(w, w.a.k), i, n, PHI, NULL);
    if (K == OUTPUT) load_tile<D>(z, of_keys(w, w.a.v), i, n, PLAIN, NULL);
    if (K == DQ) load_tile<D>(y, of_keys(w, w.a.v), i, n, PLAIN, NULL);
    if (K == DQ) load_tile<D>(z, of_keys(w, w.a.k), i, n, PHI, NULL);
    if (K == DK) load_tile<D>(y, of_queries(w, w.g.dout, h), i, n, SCALED, w.m.scale);
    if (K == DK) load_tile<D>(z, of_queries(w, w.a.q, h), i, n, PHI, NULL);
    if (K == DV) load_tile<D>(y, of_queries(w, w.a.q, h), i, n, PHI, NULL);
    if (K == DV) load_tile<D>(z, of_queries(w, w.g.dout, h), i, n, SCALED, w.m.scale);
}

/* ---- the state ---- */

template <int N> static __device__ void clear(float (&x)[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) x[n][e] = 0;
}

/* The vector beside the state, a column by each of the first D threads. */
template <int D, enum kind K> static __device__ void add_to_vector(struct work<D, K> &w, int n)
{
    const char *tile = K == OUTPUT ? w.m.y : w.m.z;
    int c = threadIdx.x;
    if (c >= D) return;
    float total = w.m.sum[c];
    for (int k = 0; k < n; k++) {
        float x = __bfloat162float(*(const bf16 *)(tile + chunk_at<D>(k, c / 8) + c % 8 * 2));
        total = K == DK ? fmaf(w.m.error[k], x, total) : total + x;
    }
    w.m.sum[c] = total;
}

/* state += yT z, the 16 rows of this warp */
template <int D, enum kind K> static __device__ void to_state(struct work<D, K> &w, int n)
{
    uint32_t y = shared_address(w.m.y), z = shared_address(w.m.z);
    for (int k = 0; k * 16 < n; k++) {
        uint32_t left[4];
        load_matrix_turned(left, (y + k * 16 * D * 2 + w.l.across) ^ w.warp * 32);
        add_product<D>(w.state, left, z + k * 16 * D * 2, w.l);
    }
    if (K != DV) add_to_vector(w, n);
}

/* Copies the state to shared memory, rounded to bf16. */
template <int D, enum kind K> static __device__ void put_state(struct work<D, K> &w)
{
    int row = w.warp * 16 + w.lane / 4, at = w.lane % 4 * 4;
    char *to = w.m.state;
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
        const float *s = w.state[n];
        *(uint32_t *)(to + chunk_at<D>(row, n) + at) = pack(s[0], s[1]);
        *(uint32_t *)(to + chunk_at<D>(row + 8, n) + at) = pack(s[2], s[3]);
    }
}

/* ---- results of the 16 rows of this warp; x: their rows of x ---- */

template <int D, enum kind K>
static __device__ void load_left_rows(const struct work<D, K> &w, uint32_t (&x)[D / 16][4])
{
    uint32_t rows = shared_address(w.m.x) + w.warp * 16 * D * 2;
#pragma unroll
    for (int step = 0; step < D / 16; step++) load_left(x[step], rows, step, w.l);
}

/* OUTPUT: phi(q) z of what is in the state, the part of this lane */
template <int D, enum kind K>
static __device__ void add_sums(struct work<D, K> &w, const uint32_t (&x)[D / 16][4])
{
#pragma unroll
    for (int step = 0; step < D / 16; step++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float *z = w.m.sum + step * 16 + e / 2 * 8 + w.lane % 4 * 2;
            float2 two = unpack(x[step][e]);
            w.sum[e % 2] += two.x * z[0] + two.y * z[1];
        }
}

/* DQ: out += error times the vector beside the state; DK: out += that vector */
template <int D, enum kind K> static __device__ void add_vector(struct work<D, K> &w)
{
    int row = w.warp * 16 + w.lane / 4, col = w.lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float by = K == DQ ? w.m.error[row + e / 2 * 8] : 1;
            w.out[n][e] = fmaf(by, w.m.sum[n * 8 + col + e % 2], w.out[n][e]);
        }
}

/* out += x state */
template <int D, enum kind K>
static __device__ void from_state(struct work<D, K> &w, const uint32_t (&x)[D / 16][4])
{
    uint32_t rows = shared_address(w.m.state);
#pragma unroll
    for (int step = 0; step < D / 16; step++)
        add_product<D>(w.out, x[step], rows + step * 16 * D * 2, w.l);
    if (K == OUTPUT) add_sums(w, x);
    if (K == DQ || K == DK) add_vector(w);
}

/* p: x yT in the 8 columns from col on; what is masked becomes 0 */
template <int D, enum kind K>
static __device__ void finish(struct work<D, K> &w, float (&p)[4], int col, bool diagonal)
{
#pragma unroll
    for (int e = 0; e < 4; e++) {
        int r = w.warp * 16 + w.lane / 4 + e / 2 * 8, c = col + w.lane % 4 * 2 + e % 2;
        if (K == DQ) p[e] += w.m.error[r];
        if (K == DK) p[e] += w.m.error[c];
        if (diagonal && (asks_queries(K) ? c > r : c < r)) p[e] = 0;
        if (K == OUTPUT) w.sum[e / 2] += p[e];
    }
}

/* out += mask(x yT) z, 16 columns of x yT at a time */
template <int D, enum kind K>
static __device__ void within_chunk(struct work<D, K> &w, const uint32_t (&x)[D / 16][4], int n)
{
    uint32_t y = shared_address(w.m.y), z = shared_address(w.m.z);
    int first = asks_queries(K) ? 0 : w.warp, last = asks_queries(K) ? w.warp : (n - 1) / 16;
    for (int k = first; k <= last; k++) {
        float p[2][4] = {};
        uint32_t left[4];
#pragma unroll
        for (int step = 0; step < D / 16; step++) {
            uint32_t right[4];
            load_right(right, y + k * 16 * D * 2, step, w.l);
            multiply(p[0], x[step], right[0], right[1]);
            multiply(p[1], x[step], right[2], right[3]);
        }
        finish(w, p[0], k * 16, k == w.warp);
        finish(w, p[1], k * 16 + 8, k == w.warp);
        as_left(left, p[0], p[1]);
        add_product<D>(w.out, left, z + k * 16 * D * 2, w.l);
    }
}

/* ---- storing ---- */

/* out times phi' of what the gradient is of, whose rows are those from i on */
template <int D, enum kind K>
static __device__ void times_slope(struct work<D, K> &w, struct source s, int i, int n)
{
    int row = w.warp * 16 + w.lane / 4, col = w.lane % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (row + r * 8 >= n) continue;
        const bf16 *x = s.p + (size_t)(i + row + r * 8) * s.ld + col;
#pragma unroll
        for (int k = 0; k < D / 8; k++) {
            float2 two = unpack(*(const uint32_t *)(x + k * 8));
            w.out[k][2 * r] *= phi_slope(two.x), w.out[k][2 * r + 1] *= phi_slope(two.y);
        }
    }
}

/* Stores the results, times up in rows g and times down in rows g + 8. The rows of x in shared
 * memory are overwritten on the way. */
template <int D, enum kind K>
static __device__ void store(struct work<D, K> &w, struct source to, float up, float down, int i,
                             int n)
{
    store_rows<D>(w.out, up, down, w.m.x, w.warp * 16, (bf16 *)to.p, D, to.ld, i + w.warp * 16,
                  i + n, w.lane);
}

template <int D, enum kind K>
static __device__ void store_output(struct work<D, K> &w, int h, int i, int n)
{
    int row = w.warp * 16 + w.lane / 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        w.sum[r] += __shfl_xor_sync(ALL_LANES, w.sum[r], 1);
        w.sum[r] += __shfl_xor_sync(ALL_LANES, w.sum[r], 2);
        if (w.lane % 4 == 0 && row + r * 8 < n)
            set_element(w.a.lse, w.j.q0 + i + row + r * 8, w.j.head + h, w.sum[r]);
    }
    store(w, of_queries(w, w.a.o, h), inverse(w.sum[0]), inverse(w.sum[1]), i, n);
}

template <int D, enum kind K>
static __device__ void store_result(struct work<D, K> &w, int h, int i, int n)
{
    int row = w.warp * 16 + w.lane / 4;
    if (K == OUTPUT) store_output(w, h, i, n);
    if (K == DQ) {
        times_slope(w, of_queries(w, w.a.q, h), i, n);
        store(w, of_queries(w, w.g.dq, h), w.m.scale[row], w.m.scale[row + 8], i, n);
    }
    if (K == DK) {
        times_slope(w, of_keys(w, w.a.k), i, n);
        store(w, of_keys(w, w.g.dk), 1, 1, i, n);
    }
    if (K == DV) store(w, of_keys(w, w.g.dv), 1, 1, i, n);
}

/* ---- sweeps ---- */

template <int D, enum kind K> static __device__ void clear_state(struct work<D, K> &w)
{
    clear(w.state);
    if (threadIdx.x < D) w.m.sum[threadIdx.x] = 0;
}

template <int D, enum kind K> static __device__ void clear_results(struct work<D, K> &w)
{
    clear(w.out);
    w.sum[0] = w.sum[1] = 0;
}

template <int D, enum kind K> static __device__ void sweep_whole(struct work<D, K> &w)
{
    int ny = asks_queries(K) ? w.j.nk : w.j.nq, nx = asks_queries(K) ? w.j.nq : w.j.nk;
    clear_state(w);
    for (int i = 0; i < ny; i += D)
        for (int h = 0; h < heads(w); h++) {
            __syncthreads();
            load_yz(w, h, i, min(D, ny - i));
            __syncthreads();
            to_state(w, min(D, ny - i));
        }
    put_state(w);
    for (int i = 0; i < nx; i += D)
        for (int h = 0; h < asked(w); h++) {
            int n = min(D, nx - i);
            __syncthreads();
            load_x(w, h, i, n);
            __syncthreads();
            if (w.warp * 16 >= n) continue;
            uint32_t x[D / 16][4];
            load_left_rows(w, x);
            clear_results(w);
            from_state(w, x);
            store_result(w, h, i, n);
        }
}

/* The results of a chunk; first: nothing is in the state yet. Where y and z are of several heads,
 * these are added to the state as well, unless nobody will read it. */
template <int D, enum kind K>
static __device__ void causal_results(struct work<D, K> &w, int h, int i, int n, bool first,
                                      bool last)
{
    bool busy = w.warp * 16 < n;
    uint32_t x[D / 16][4];
    clear_results(w);
    if (busy) load_left_rows(w, x);
    if (busy && !first) from_state(w, x);
    for (int k = 0; k < heads(w); k++) {
        if (heads(w) > 1) {
            __syncthreads();
            load_yz(w, k, i, n);
            __syncthreads();
        }
        if (busy) within_chunk(w, x, n);
        if (heads(w) > 1 && !last) to_state(w, n);
    }
    if (busy) store_result(w, h, i, n);
}

template <int D, enum kind K> static __device__ void sweep_causal(struct work<D, K> &w)
{
    int chunks = (w.j.nq + D - 1) / D;
    clear_state(w);
    for (int k = 0; k < chunks; k++) {
        int i = (asks_queries(K) ? k : chunks - 1 - k) * D, n = min(D, w.j.nq - i);
        bool last = k == chunks - 1;
        for (int h = 0; h < asked(w); h++) {
            __syncthreads();
            load_x(w, h, i, n);
            if (h == 0 && heads(w) == 1) load_yz(w, 0, i, n);
            __syncthreads();
            causal_results(w, h, i, n, k == 0, last);
        }
        if (last) break;
        __syncthreads();
        if (heads(w) == 1) to_state(w, n);
        put_state(w);
    }
}

template <int D, enum kind K>
static __global__ void __launch_bounds__(D * 2, D == 128 ? 1 : 256 / D)
    sweep(const __grid_constant__ struct attention a,
          const __grid_constant__ struct attention_grad g)
{
    extern __shared__ __align__(TILE_ALIGN) char memory[];
    chain_wait();
    int lane = threadIdx.x % LANES;
    struct work<D, K> w = {
        a, g, *(struct tiles<D> *)memory
    };
    w.j = job_at(a, blockIdx.x / a.kv_heads, blockIdx.x % a.kv_heads);
    w.warp = threadIdx.x / LANES, w.lane = lane;
    w.l = lanes_make<D>(lane);
    if (a.seqs.causal)
        sweep_causal(w);
    else
        sweep_whole(w);
}

template <int D, enum kind K>
static void launch(const struct attention *a, const struct attention_grad *g, struct chain chain)
{
    allow_shared((const void *)sweep<D, K>, sizeof(struct tiles<D>));
    chain_launch(sweep<D, K>, dim3(a->seqs.n * a->kv_heads), dim3(D * 2), sizeof(struct tiles<D>),
                 chain, *a, *g);
}

/* Every head of every row starts at a multiple of 16 bytes. */
static bool aligned(struct mat m)
{
    return m.type == TYPE_BF16 && (size_t)m.p % 16 == 0 && m.ld * type_size(m.type) % 16 == 0;
}

template <int D>
static bool computed(const struct attention *a, const struct attention_grad *g, int shared,
                     struct chain chain)
{
    if (sizeof(struct tiles<D>) > (size_t)shared) return false;
    if (g) {
        launch<D, DQ>(a, g, chain);
        launch<D, DK>(a, g, chain);
        launch<D, DV>(a, g, chain);
    } else {
        struct attention_grad none = {};
        launch<D, OUTPUT>(a, &none, chain);
    }
    return true;
}

bool linear_attention_tiles(const struct attention *given, const struct attention_grad *g,
                            int shared, struct chain chain)
{
    const struct attention whole = with_kv_heads(given), *a = &whole;
    int width = attention_dk(a);
    if (attention_dv(a) != width || !aligned(a->q) || !aligned(a->k) || !aligned(a->v) ||
        !aligned(a->o))
        return false;
    if (g && (!aligned(g->dq) || !aligned(g->dk) || !aligned(g->dv) || !aligned(g->dout)))
        return false;
    return width == 32    ? computed<32>(a, g, shared, chain)
           : width == 64  ? computed<64>(a, g, shared, chain)
           : width == 128 ? computed<128>(a, g, shared, chain)
                          : false;
}
