/*
 * linear_attention.cu - linear attention of whole sentences and its gradients, of any width and
 * type, in f32 arithmetic.
 *
 * With g = dout / (phi(q) z) and e = - (dout . o) / (phi(q) z) of each query, the output and the
 * three gradients are the same sum over the positions j that position i sees, or is seen by:
 *
 *   sum over j of (x_i . y_j) z_j
 *
 *                                        x          y          z
 *   phi(q) S, phi(q) z                   phi(q)     phi(k)     [v, 1]
 *   dq / phi'(q)                         [g, e]     [v, 1]     phi(k)
 *   dk / phi'(k)                         [v, 1]     [g, e]     phi(q)
 *   dv                                   phi(k)     phi(q)     g
 *
 * A block computes it for one sentence, one key/value head and some columns of z, the tile: it goes
 * over the positions in chunks and keeps the sum of yT z over the chunks that lie behind, the
 * state, in shared memory. With a causal mask a chunk is
 *
 *   out = x state + mask(x yT) z;   state += yT z
 *
 * from the first chunk to the last for queries, which see what is before them, and from the last to
 * the first for keys. Without a mask the state of the whole sentence comes first, then out = x
 * state.
 */
#include <assert.h>

#include "ops/cuda/linear_attention.h"
#include "ops/cuda/linear_device.h"

enum {
    THREADS = 128,
    CHUNK = 32,
    TILE = 64,
    BLOCK = 4 /* rows and columns of a product by a thread */
};

/* What x, y and z are. */
enum factor {
    QUERIES,  /* phi(q) */
    KEYS,     /* phi(k) */
    VALUES,   /* v, and in x and y, and in z of the output, also a 1 */
    GRADIENTS /* g, and in x and y also e */
};

/* One row of the table above; result: whose gradient is computed. OUTPUT is no gradient, and
 * STATE only stores the state. */
enum kind { OUTPUT, DQ, DK, DV, STATE };
struct sweep {
    enum kind kind;
    enum factor x, y, z, result;
};

static __device__ inline struct sweep sweep_of(enum kind kind)
{
    switch (kind) {
    case DQ:
        return {DQ, GRADIENTS, VALUES, KEYS, QUERIES};
    case DK:
        return {DK, VALUES, GRADIENTS, QUERIES, KEYS};
    case DV:
        return {DV, KEYS, QUERIES, GRADIENTS, VALUES};
    default:
        return {kind, QUERIES, KEYS, VALUES, QUERIES};
    }
}

/* ---- shared memory ---- */

/* Sizes that the widths of a head and the memory of a device give. */
struct sizes {
    int chunk, cols; /* positions of a chunk and columns of a tile, at most */
    int ldx, ldz, ldp;
    int depth; /* rows of the state, at most */
};

static inline int round_up(int n, int to)
{
    return (n + to - 1) / to * to;
}

static struct sizes sizes_make(int dk, int dv, int chunk, int cols)
{
    struct sizes s;
    s.chunk = chunk, s.cols = cols;
    s.depth = round_up(dk > dv + 1 ? dk : dv + 1, BLOCK);
    s.ldx = s.depth + 1; /* odd: lanes that read one column of several rows use different banks */
    s.ldp = chunk + 1;
    s.ldz = round_up(cols + 1, BLOCK);
    return s;
}

static size_t sizes_bytes(const struct sizes &s)
{
    size_t rows = 2 * s.ldx + 2 * s.ldz + s.ldp + 2;
    return (s.chunk * rows + (size_t)s.depth * s.ldz) * sizeof(float);
}

static struct sizes sizes_that_fit(int dk, int dv, int shared)
{
    int chunk = CHUNK, cols = TILE;
    struct sizes s = sizes_make(dk, dv, chunk, cols);
    while (sizes_bytes(s) > (size_t)shared && (chunk > BLOCK || cols > BLOCK)) {
        if (chunk > 2 * BLOCK || cols == BLOCK)
            chunk /= 2;
        else
            cols /= 2;
        s = sizes_make(dk, dv, chunk, cols);
    }
    return s;
}

struct panels {
    float *x, *y; /* [chunk][ldx] */
    float *z;     /* [chunk][ldz] */
    float *out;   /* [chunk][ldz] */
    float *p;     /* [chunk][ldp]   x yT */
    float *state; /* [depth][ldz] */
    float *scale; /* [chunk] of each query: 1 / (phi(q) z) ... */
    float *error; /* [chunk] ... and e */
};

static __device__ struct panels panels_at(float *memory, const struct sizes &s)
{
    struct panels m;
    m.x = memory, m.y = m.x + s.chunk * s.ldx;
    m.z = m.y + s.chunk * s.ldx, m.out = m.z + s.chunk * s.ldz;
    m.state = m.out + s.chunk * s.ldz, m.p = m.state + s.depth * s.ldz;
    m.scale = m.p + s.chunk * s.ldp, m.error = m.scale + s.chunk;
    return m;
}

/* ---- one block's work ---- */

struct work {
    struct attention a;
    struct attention_grad g;
    struct sizes size;
    struct sweep s;
    struct job j;
    int col, cols; /* of the tile in z */
};

static __device__ bool of_queries(enum factor f)
{
    return f == QUERIES || f == GRADIENTS;
}
static __device__ bool is_phi(enum factor f)
{
    return f == QUERIES || f == KEYS;
}
/* Columns of a factor as z, and as x or y. */
static __device__ int factor_width(const struct job &j, enum factor f)
{
    return is_phi(f) ? j.dk : j.dv;
}
static __device__ int factor_depth(const struct job &j, enum factor f)
{
    return is_phi(f) ? j.dk : j.dv + 1;
}
/* The heads of a factor: all that share the keys, or one pass where the factor is of keys. */
static __device__ int factor_heads(const struct job &j, enum factor f)
{
    return of_queries(f) ? j.shared : 1;
}
static __device__ int positions(const struct job &j, enum factor f)
{
    return of_queries(f) ? j.nq : j.nk;
}
/* Columns of z with the one that is 1. */
static __device__ int wide(const struct work &w)
{
    return w.cols + (w.s.z == VALUES);
}

/* Number c of position i in a factor before phi or scaling. h counts the heads that share the keys.
 */
static __device__ float factor_at(const struct work &w, enum factor f, int h, int i, int c)
{
    const struct job &j = w.j;
    switch (f) {
    case QUERIES:
        return element(w.a.q, j.q0 + i, (j.head + h) * j.dk + c);
    case KEYS:
        return element(w.a.k, j.k0 + i, j.kv_head * j.dk + c);
    case VALUES:
        return element(w.a.v, j.k0 + i, j.kv_head * j.dv + c);
    default:
        return element(w.g.dout, j.q0 + i, (j.head + h) * j.dv + c);
    }
}

/* scale and error of n queries from i on; a warp computes a query. */
static __device__ void load_errors(const struct work &w, const struct panels &m, int h, int i,
                                   int n)
{
    const struct job &j = w.j;
    int head = j.head + h, lane = threadIdx.x % LANES;
    for (int r = threadIdx.x / LANES; r < n; r += THREADS / LANES) {
        int row = j.q0 + i + r;
        float delta = 0;
        for (int c = lane; c < j.dv; c += LANES)
            delta += element(w.g.dout, row, head * j.dv + c) * element(w.a.o, row, head * j.dv + c);
        delta = warp_sum(delta);
        if (lane) continue;
        m.scale[r] = inverse(element(w.a.lse, row, head));
        m.error[r] = -delta * m.scale[r];
    }
    __syncthreads();
}

/* x or y: n positions from i on */
static __device__ void load_rows(const struct work &w, const struct panels &m, float *to,
                                 enum factor f, int h, int i, int n)
{
    int width = factor_width(w.j, f), depth = factor_depth(w.j, f);
    if (f == GRADIENTS) load_errors(w, m, h, i, n);
    for (int at = threadIdx.x; at < n * depth; at += THREADS) {
        int r = at / depth, c = at % depth;
        float x = c < width ? factor_at(w, f, h, i + r, c) : 1;
        if (is_phi(f)) x = phi(x);
        if (f == GRADIENTS) x = c < width ? x * m.scale[r] : m.error[r];
        to[r * w.size.ldx + c] = x;
    }
}

static __device__ void load_z(const struct work &w, const struct panels &m, int h, int i, int n)
{
    enum factor f = w.s.z;
    int cols = wide(w);
    if (f == GRADIENTS) load_errors(w, m, h, i, n);
    for (int at = threadIdx.x; at < n * cols; at += THREADS) {
        int r = at / cols, c = at % cols;
        float x = c < w.cols ? factor_at(w, f, h, i + r, w.col + c) : 1;
        if (is_phi(f)) x = phi(x);
        if (f == GRADIENTS) x *= m.scale[r];
        m.z[r * w.size.ldz + c] = x;
    }
}

/* c [rows][cols] (+)= a [rows][depth] b [depth][cols], where element (r, d) of a is
 * a[r * row + d * step], and that of b b[d * down + c * right]. Each thread computes blocks of
 * BLOCK by BLOCK; what is in rows and columns beyond a and b is computed as well and never read. */
static __device__ void product(float *c, int ldc, bool add, const float *a, int row, int step,
                               const float *b, int down, int right, int rows, int depth, int cols)
{
    int across = (cols + BLOCK - 1) / BLOCK, blocks = (rows + BLOCK - 1) / BLOCK * across;
    for (int t = threadIdx.x; t < blocks; t += THREADS) {
        int r = t / across * BLOCK, n = t % across * BLOCK;
        float sum[BLOCK][BLOCK];
#pragma unroll
        for (int i = 0; i < BLOCK; i++)
#pragma unroll
            for (int k = 0; k < BLOCK; k++) sum[i][k] = add ? c[(r + i) * ldc + n + k] : 0;
        const float *x = a + r * row, *y = b + n * right;
        for (int d = 0; d < depth; d++, x += step, y += down) {
            float left[BLOCK], on_right[BLOCK];
#pragma unroll
            for (int i = 0; i < BLOCK; i++) left[i] = x[i * row];
#pragma unroll
            for (int k = 0; k < BLOCK; k++) on_right[k] = y[k * right];
#pragma unroll
            for (int i = 0; i < BLOCK; i++)
#pragma unroll
                for (int k = 0; k < BLOCK; k++) sum[i][k] = fmaf(left[i], on_right[k], sum[i][k]);
        }
#pragma unroll
        for (int i = 0; i < BLOCK; i++)
#pragma unroll
            for (int k = 0; k < BLOCK; k++) c[(r + i) * ldc + n + k] = sum[i][k];
    }
}

/* out = x state */
static __device__ void from_state(const struct work &w, const struct panels &m, int n)
{
    const struct sizes &z = w.size;
    product(m.out, z.ldz, false, m.x, z.ldx, 1, m.state, z.ldz, 1, n, factor_depth(w.j, w.s.x),
            wide(w));
}

/* state (+)= yT z */
static __device__ void to_state(const struct work &w, const struct panels &m, bool add, int n)
{
    const struct sizes &z = w.size;
    product(m.state, z.ldz, add, m.y, 1, z.ldx, m.z, z.ldz, 1, factor_depth(w.j, w.s.y), n,
            wide(w));
}

/* out (+)= mask(x yT) z: a query sees the keys up to its own position, a key is seen by the queries
 * from it on. */
static __device__ void within_chunk(const struct work &w, const struct panels &m, bool add, int n)
{
    const struct sizes &z = w.size;
    bool back = !of_queries(w.s.x);
    product(m.p, z.ldp, false, m.x, z.ldx, 1, m.y, 1, z.ldx, n, factor_depth(w.j, w.s.x), n);
    __syncthreads();
    for (int at = threadIdx.x; at < n * n; at += THREADS) {
        int r = at / n, c = at % n;
        if (back ? c < r : c > r) m.p[r * z.ldp + c] = 0;
    }
    __syncthreads();
    product(m.out, z.ldz, add, m.p, z.ldp, 1, m.z, z.ldz, 1, n, n, wide(w));
}

/* ---- results ---- */

/* o = out / (phi(q) z), which is in the last column */
static __device__ void store_output(const struct work &w, const struct panels &m, int h, int i,
                                    int n)
{
    const struct job &j = w.j;
    for (int at = threadIdx.x; at < n * w.cols; at += THREADS) {
        int r = at / w.cols, c = at % w.cols, row = j.q0 + i + r;
        const float *out = m.out + r * w.size.ldz;
        set_element(w.a.o, row, (j.head + h) * j.dv + w.col + c, out[c] * inverse(out[w.cols]));
        if (w.col + c == 0) set_element(w.a.lse, row, j.head + h, out[w.cols]);
    }
}

static __device__ void store_gradient(const struct work &w, const struct panels &m, int h, int i,
                                      int n)
{
    const struct job &j = w.j;
    for (int at = threadIdx.x; at < n * w.cols; at += THREADS) {
        int r = at / w.cols, c = at % w.cols, col = w.col + c;
        float x = m.out[r * w.size.ldz + c];
        if (w.s.kind == DV) {
            set_element(w.g.dv, j.k0 + i + r, j.kv_head * j.dv + col, x);
            continue;
        }
        x *= phi_slope(factor_at(w, w.s.result, h, i + r, col));
        if (w.s.kind == DQ)
            set_element(w.g.dq, j.q0 + i + r, (j.head + h) * j.dk + col, x);
        else
            set_element(w.g.dk, j.k0 + i + r, j.kv_head * j.dk + col, x);
    }
}

static __device__ void store_result(const struct work &w, const struct panels &m, int h, int i,
                                    int n)
{
    if (w.s.kind == OUTPUT)
        store_output(w, m, h, i, n);
    else
        store_gradient(w, m, h, i, n);
}

/* ---- sweeps ---- */

/* state += yT z of n positions from i on, summed over the heads in order */
static __device__ void add_chunk(const struct work &w, const struct panels &m, bool add, int i,
                                 int n)
{
    for (int h = 0; h < factor_heads(w.j, w.s.y); h++, add = true) {
        __syncthreads();
        load_rows(w, m, m.y, w.s.y, h, i, n);
        load_z(w, m, h, i, n);
        __syncthreads();
        to_state(w, m, add, n);
    }
    __syncthreads();
}

static __device__ void sweep_whole(const struct work &w, const struct panels &m)
{
    int ny = positions(w.j, w.s.y), nx = w.s.kind == STATE ? 0 : positions(w.j, w.s.x);
    for (int at = threadIdx.x; at < w.size.depth * w.size.ldz; at += THREADS) m.state[at] = 0;
    for (int i = 0; i < ny; i += w.size.chunk) add_chunk(w, m, true, i, min(w.size.chunk, ny - i));
    for (int i = 0; i < nx; i += w.size.chunk)
        for (int h = 0; h < factor_heads(w.j, w.s.x); h++) {
            int n = min(w.size.chunk, nx - i);
            __syncthreads();
            load_rows(w, m, m.x, w.s.x, h, i, n);
            __syncthreads();
            from_state(w, m, n);
            __syncthreads();
            store_result(w, m, h, i, n);
        }
    __syncthreads();
}

/* A chunk under a causal mask. first: nothing is behind it, so the state is not read; last: nobody
 * will read the state */
static __device__ void causal_chunk(const struct work &w, const struct panels &m, int i, int n,
                                    bool first, bool last)
{
    int asked = factor_heads(w.j, w.s.x), heads = factor_heads(w.j, w.s.y);
    for (int h = 0; h < asked; h++) {
        __syncthreads();
        load_rows(w, m, m.x, w.s.x, h, i, n);
        __syncthreads();
        if (!first) from_state(w, m, n);
        bool add = !first;
        for (int k = 0; k < heads; k++, add = true) {
            __syncthreads();
            if (h == 0) {
                load_rows(w, m, m.y, w.s.y, k, i, n);
                load_z(w, m, k, i, n);
            }
            __syncthreads();
            within_chunk(w, m, add, n);
        }
        __syncthreads();
        store_result(w, m, h, i, n);
    }
    if (last) return;
    if (heads > 1) {
        add_chunk(w, m, !first, i, n);
        return;
    }
    to_state(w, m, !first, n);
    __syncthreads();
}

static __device__ void sweep_causal(const struct work &w, const struct panels &m)
{
    int chunk = w.size.chunk, chunks = (w.j.nq + chunk - 1) / chunk;
    for (int k = 0; k < chunks; k++) {
        int i = (of_queries(w.s.x) ? k : chunks - 1 - k) * chunk;
        causal_chunk(w, m, i, min(chunk, w.j.nq - i), k == 0, k == chunks - 1);
    }
}

static __device__ void store_state(const struct work &w, const struct panels &m,
                                   const struct mat &states, int row)
{
    float *s = state_at(states, w.j, row), *z = s + (size_t)w.j.dk * w.j.dv;
    for (int at = threadIdx.x; at < w.j.dk * w.cols; at += THREADS) {
        int d = at / w.cols, c = at % w.cols;
        s[(size_t)d * w.j.dv + w.col + c] = m.state[d * w.size.ldz + c];
        if (w.col + c == 0) z[d] = m.state[d * w.size.ldz + w.cols];
    }
}

/* Blocks: x: sentences and key/value heads; y: tiles; z: the sweeps from `first` on. */
static __global__ void sweep(struct attention a, struct attention_grad g, struct mat states,
                             struct sizes size, enum kind first)
{
    extern __shared__ float memory[];
    chain_wait();
    struct panels m = panels_at(memory, size);
    struct work w;
    int sentence = blockIdx.x / a.kv_heads;
    w.a = a, w.g = g, w.size = size;
    w.s = sweep_of((enum kind)(first + blockIdx.z));
    w.j = job_at(a, sentence, blockIdx.x % a.kv_heads);
    w.col = blockIdx.y * size.cols;
    w.cols = min(size.cols, factor_width(w.j, w.s.z) - w.col);
    if (w.cols <= 0) return;
    if (a.seqs.causal)
        sweep_causal(w, m);
    else
        sweep_whole(w, m);
    if (w.s.kind == STATE) store_state(w, m, states, sentence);
}

static void launch(const struct attention *given, const struct attention_grad *g, struct mat states,
                   enum kind first, int kinds, int shared, struct chain chain)
{
    const struct attention a = with_kv_heads(given);
    int dk = attention_dk(&a), dv = attention_dv(&a), widest = dk > dv ? dk : dv;
    struct sizes size = sizes_that_fit(dk, dv, shared);
    size_t bytes = sizes_bytes(size);
    shared_allow((const void *)sweep, bytes);
    dim3 grid(a.seqs.n * a.kv_heads, ceiling(widest, size.cols), kinds);
    chain_launch(sweep, grid, dim3(THREADS), bytes, chain, a, *g, states, size, first);
}

void linear_attention_forward(const struct attention *a, int shared, struct chain chain)
{
    struct attention_grad none = {};
    if (linear_attention_tiles(a, NULL, shared, chain)) return;
    launch(a, &none, (struct mat){}, OUTPUT, 1, shared, chain);
}

void linear_attention_backward(const struct attention *a, const struct attention_grad *g,
                               int shared, struct chain chain)
{
    if (linear_attention_tiles(a, g, shared, chain)) return;
    launch(a, g, (struct mat){}, DQ, 3, shared, chain);
}

void linear_attention_sum(struct mat states, const struct attention *given, int shared,
                          struct chain chain)
{
    struct attention_grad none = {};
    struct attention a = *given;
    a.seqs.causal = false; /* the state is of all keys */
    launch(&a, &none, states, STATE, 1, shared, chain);
}
