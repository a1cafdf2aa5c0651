/*
 * embed.cu - embeddings and their gradient (paper 3.4, 3.5).
 *
 * Backward adds the rows that have the same id. The rows are sorted by id with a stable sort and
 * divided into windows of fixed length. A warp sums a strip of columns of a window. An id whose
 * rows are all in that window is added to the gradient at once. An id whose rows continue in the
 * window before or after leaves a partial sum; a second kernel adds the partial sums of an id in
 * order. So many warps share the work of a frequent id, each row of the gradient has one writer at
 * a time, and the order of every sum is fixed.
 */
#include <cub/device/device_radix_sort.cuh>

#include "ops/cuda/device.h"

enum { WARPS = 4, WINDOW = 16 };

/* ---- forward ---- */

/* E: float or bf16. bytes: the rows of e are packed int8 and end with their scale. */
template <class T, class E, int V>
static __global__ void embed_rows(rows<T> y, const int32_t *id, const int32_t *pos, rows<const E> e,
                                  rows<const float> position, int n, int cols, float root,
                                  bool bytes, struct drop_site site)
{
    int row = blockIdx.x * WARPS + threadIdx.y;
    chain_wait();
    if (row >= n) return;
    const E *from = e.at(id[row], 0);
    const float *place = position.p ? position.at(pos[row], 0) : NULL;
    struct drop_row mask = mask_of(site, row);
    if (bytes) root *= packed_unit((const bf16 *)from, (int)e.ld);
    for (int col = threadIdx.x * V; col < cols; col += LANES * V) {
        float x[V], p[V] = {};
        load(x, from + col);
        if (place) load(p, place + col);
#pragma unroll
        for (int i = 0; i < V; i++) x[i] = x[i] * root + p[i];
        drop(x, mask, col);
        store(y.at(row, col), x);
    }
}

template <class T, class E, int V>
static void embed_run(struct gpu *c, struct mat y, const int32_t *id, const int32_t *pos,
                      struct mat e, struct mat position, struct drop d, bool bytes)
{
    chain_launch(embed_rows<T, E, V>, ceiling(y.rows, WARPS), dim3(LANES, WARPS), 0, c->chain,
                 rows_of<T>(y), id, pos, rows_of<const E>(e), rows_of<const float>(position),
                 y.rows, y.cols, sqrtf((float)y.cols), bytes, drop_site(d));
}

template <class T, class E>
static void embed_wide(struct gpu *c, struct mat y, const int32_t *id, const int32_t *pos,
                       struct mat e, struct mat position, struct drop d, bool bytes)
{
    if (mat_wide(y) && mat_wide(e) && mat_wide(position))
        embed_run<T, E, 8>(c, y, id, pos, e, position, d, bytes);
    else
        embed_run<T, E, 1>(c, y, id, pos, e, position, d, bytes);
}

void cuda_embed(struct gpu *c, struct mat y, const int32_t *id, const int32_t *pos, struct mat e,
                struct mat position, struct drop d)
{
    bool bytes = e.type == TYPE_PACKED_I8;
    struct mat plain = mat_unpacked(e);
    if (y.type == TYPE_F32 && plain.type == TYPE_F32)
        embed_wide<float, float>(c, y, id, pos, plain, position, d, bytes);
    else if (y.type == TYPE_F32 && plain.type == TYPE_BF16)
        embed_wide<float, bf16>(c, y, id, pos, plain, position, d, bytes);
    else if (y.type == TYPE_BF16 && plain.type == TYPE_BF16)
        embed_wide<bf16, bf16>(c, y, id, pos, plain, position, d, bytes);
    else
        cuda_refuse(c, "matrices of these types");
}

/* ---- backward ---- */

/* Rows in the order of their ids. partial: [windows, 2, cols], the sums of the ids at the start and
 * at the end of a window that continue in its neighbours. */
struct sorted {
    const int32_t *id, *row; /* [n] */
    float *partial;
    int n;
};

static __global__ void count_up(int32_t *to, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = i;
}

/* Adds the sum of a run, the rows [first, last) of one id in a window, to the gradient; where the
 * id continues in a neighbouring window, stores it as a partial sum. */
template <int V>
static __device__ inline void flush(float (&sum)[V], rows<float> de, struct sorted s, int first,
                                    int last, int window, int col, int cols, float scale)
{
    int begin = window * WINDOW, end = min(s.n, begin + WINDOW);
    bool before = first == begin && begin > 0 && s.id[begin - 1] == s.id[begin];
    bool after = last == end && end < s.n && s.id[end] == s.id[end - 1];
    float old[V];
    if (before || after) {
        store(s.partial + ((size_t)window * 2 + !before) * cols + col, sum);
        return;
    }
    float *to = de.at(s.id[first], col);
    load(old, to);
#pragma unroll
    for (int i = 0; i < V; i++) old[i] += sum[i] * scale;
    store(to, old);
}

template <class T, int V>
static __global__ void sum_windows(rows<float> de, struct sorted s, rows<const T> dy, size_t base,
                                   int cols, float scale, struct drop_site site)
{
    enum { DEPTH = 4 };
    int window = blockIdx.x * WARPS + threadIdx.y, lane = threadIdx.x;
    int begin = window * WINDOW, end = min(s.n, begin + WINDOW);
    int col = (blockIdx.y * LANES + lane) * V;
    if (begin >= s.n || col >= cols) return;
    float sum[V] = {};
    int first = begin;
    for (int at = begin; at < end; at += DEPTH) {
        float x[DEPTH][V];
#pragma unroll
        for (int k = 0; k < DEPTH; k++)
            if (at + k < end) load(x[k], dy.at(s.row[at + k], col));
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            if (at + k >= end) continue;
            if (at + k > first && s.id[at + k] != s.id[first]) {
                flush(sum, de, s, first, at + k, window, col, cols, scale);
                first = at + k;
#pragma unroll
                for (int i = 0; i < V; i++) sum[i] = 0;
            }
            drop(x[k], mask_of(site, base + s.row[at + k]), col);
#pragma unroll
            for (int i = 0; i < V; i++) sum[i] += x[k][i];
        }
    }
    flush(sum, de, s, first, end, window, col, cols, scale);
}

/* The end of the run that row `from` is in */
static __device__ inline int run_end(struct sorted s, int from)
{
    int id = s.id[from], low = from, high = s.n; /* s.id[low] is id, s.id[high] is not */
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        *(s.id[middle] == id ? &low : &high) = middle;
    }
    return high;
}

/* Adds up a run that begins in this window and continues after it: the partial sum at the end of
 * this window, then those at the start of the windows up to the last of the run. */
static __global__ void join_windows(rows<float> de, struct sorted s, int cols, float scale)
{
    int window = blockIdx.x, begin = window * WINDOW, end = begin + WINDOW;
    if (end >= s.n || s.id[end] != s.id[end - 1]) return;
    int id = s.id[end];
    if (begin > 0 && s.id[begin] == id && s.id[begin - 1] == id)
        return; /* it began in an earlier window */
    int last = (run_end(s, end) - 1) / WINDOW;
    for (int col = threadIdx.x; col < cols; col += blockDim.x) {
        float sum = s.partial[((size_t)window * 2 + 1) * cols + col];
#pragma unroll 8
        for (int w = window + 1; w <= last; w++) sum += s.partial[(size_t)w * 2 * cols + col];
        *de.at(id, col) += sum * scale;
    }
}

template <class T, int V>
static void sum_run(struct gpu *c, struct mat de, struct sorted s, struct mat dy, int base,
                    float scale, struct drop d)
{
    int windows = ceiling(s.n, WINDOW);
    rows<float> to = rows_of<float>(de);
    dim3 grid(ceiling(windows, WARPS), ceiling(dy.cols, LANES * V));
    sum_windows<T, V><<<grid, dim3(LANES, WARPS), 0, c->stream>>>(
        to, s, rows_of<const T>(dy), (size_t)base, dy.cols, scale, drop_site(d));
    join_windows<<<windows, min(512, ceiling(dy.cols, LANES) * LANES), 0, c->stream>>>(
        to, s, dy.cols, scale);
}

static void sum_any(struct gpu *c, struct mat de, struct sorted s, struct mat dy, int base,
                    float scale, struct drop d)
{
    bool wide = mat_wide(de) && mat_wide(dy);
    if (dy.type == TYPE_BF16)
        wide ? sum_run<bf16, 8>(c, de, s, dy, base, scale, d)
             : sum_run<bf16, 1>(c, de, s, dy, base, scale, d);
    else
        wide ? sum_run<float, 8>(c, de, s, dy, base, scale, d)
             : sum_run<float, 1>(c, de, s, dy, base, scale, d);
}

/* Takes bytes from the scratch block. */
static char *take(char **at, size_t bytes)
{
    char *p = *at;
    *at += (bytes + 255) / 256 * 256;
    return p;
}

static int bits_of(int n)
{
    int bits = 1;
    while (bits < 31 && n > 1 << bits) bits++;
    return bits;
}

static void embed_bwd_part(struct gpu *c, struct mat de, const int32_t *id, struct mat dy, int base,
                           float scale, struct drop d)
{
    int n = dy.rows;
    char *at = c->scratch;
    int32_t *order = (int32_t *)take(&at, n * sizeof *order);
    int32_t *sorted_id = (int32_t *)take(&at, n * sizeof *order);
    int32_t *sorted_row = (int32_t *)take(&at, n * sizeof *order);
    float *partial = (float *)take(&at, (size_t)ceiling(n, WINDOW) * 2 * dy.cols * sizeof *partial);
    size_t left = c->scratch + CUDA_SCRATCH - at;
    count_up<<<ceiling(n, 256), 256, 0, c->stream>>>(order, n);
    cuda_check(c, cub::DeviceRadixSort::SortPairs(at, left, id, sorted_id, order, sorted_row, n, 0,
                                                  bits_of(de.rows), c->stream));
    struct sorted s = {sorted_id, sorted_row, partial, n};
    sum_any(c, de, s, dy, base, scale, d);
}

void cuda_embed_bwd(struct gpu *c, struct mat de, const int32_t *id, struct mat dy, double scale,
                    struct drop d)
{
    if (de.type != TYPE_F32 || (dy.type != TYPE_F32 && dy.type != TYPE_BF16)) {
        cuda_refuse(c, "numbers other than f32 and bf16");
        return;
    }
    enum { SORT = 64, FIXED = 4 << 20 }; /* scratch bytes of the sort: for each row, and fixed */
    size_t row_bytes = SORT + 2 * dy.cols * sizeof(float) / WINDOW + 1;
    int most = (int)((CUDA_SCRATCH - FIXED) / row_bytes) / ROW_PAD * ROW_PAD;
    for (int row = 0; row < dy.rows; row += most) {
        int n = min(most, dy.rows - row);
        embed_bwd_part(c, de, id + row, mat_rows(dy, row, n), row, (float)scale, d);
    }
}
