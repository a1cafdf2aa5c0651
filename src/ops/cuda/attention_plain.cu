/*
 * attention_plain.cu - attention of any width, type, alignment and form in f32 arithmetic: for
 * widths that no other kernel supports, for gradients in f32, and for attention weights.
 *
 * One warp computes one row: a query, or in the second half of backward a key. It goes through the
 * keys, or queries, 32 at a time: each lane first computes the score with one of them, then the
 * sums of some columns. The gradients of the parameters of a form are sums over all queries: some
 * warps sum a part each, and the parts are added in a fixed order.
 *
 * FORMS: the kernel reads the members of struct attention from `window` on.
 */
#include "ops/cuda/attention_additive.h"
#include "ops/cuda/attention_parts.h"

enum { WARPS = 4 }; /* of a block */

/* The dot product of `width` columns of row i of x, from column xc on, and of row j of y, from
 * column yc on. */
static __device__ float dot(const struct mat &x, int i, int xc, const struct mat &y, int j, int yc,
                            int width)
{
    float sum = 0;
    for (int c = 0; c < width; c++) sum = fmaf(element(x, i, xc + c), element(y, j, yc + c), sum);
    return sum;
}

static __device__ float warp_sum(float x)
{
    for (int i = 16; i; i /= 2) x += __shfl_xor_sync(~0u, x, i);
    return x;
}

static __device__ float warp_max(float x)
{
    for (int i = 16; i; i /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, i));
    return x;
}

/* The row that a warp computes. */
struct work {
    struct sentence s;
    int i, head, dk, dv;
    int q, o, k, v; /* first columns of the head in q and o, and of its key/value head in k and v */
    float scale;
    float slope; /* of alibi */
};

static __device__ void work_head(struct work &p, const struct attention &a, int head)
{
    int kv_head = kv_head_of(a, head);
    p.head = head;
    p.q = head * p.dk, p.o = head * p.dv;
    p.k = kv_head * p.dk, p.v = kv_head * p.dv;
    p.slope = (float)attention_slope(&a, head);
}

static __device__ struct work work_of(const struct attention &a, int sentence, int i, int head)
{
    struct work p;
    p.s = sentence_at(a.seqs, sentence);
    p.i = i;
    p.dk = a.q.cols / a.heads, p.dv = a.o.cols / a.heads;
    p.scale = a.additive.p ? 1 : 1 / sqrtf((float)p.dk);
    work_head(p, a, head);
    return p;
}

/* heads: those that blocks are launched for, a.heads or a.kv_heads. With the latter, the head of
 * the work is the first of those that share the key/value head. */
static __device__ struct work work_here(const struct attention &a, int heads, int longest)
{
    struct place place = place_of(blockIdx.x, heads, (longest + WARPS - 1) / WARPS);
    return work_of(a, place.sentence, place.tile * WARPS + threadIdx.x / 32,
                   place.head * (a.heads / heads));
}

static __device__ int key_row(const struct attention &a, const struct sentence &s, int j)
{
    return a.seqs.at ? a.seqs.at[s.k + j] : s.k + j;
}

static __device__ float factor(const struct drop_site &d, uint2 key, int j)
{
    return dropped(d, key, j) ? 0 : d.scale;
}

static __device__ int relative_row(const struct attention &a, const struct work &p, int i, int j)
{
    return attention_relative_row(&a, j - (p.s.behind + i));
}

/* The scaled score of query i, in row q, and key j, in row k. */
template <bool FORMS>
static __device__ struct score pair_score(const struct attention &a, const struct work &p, int i,
                                          int q, int j, int k)
{
    float distance = FORMS ? (float)abs(j - (p.s.behind + i)) : 0;
    if (FORMS && a.additive.p) {
        struct score s = additive_score(a, p.head, p.dk, q, k);
        score_add(s, -p.slope * distance);
        return s;
    }
    float sum = dot(a.q, q, p.q, a.k, k, p.k, p.dk);
    if (FORMS && a.relative_k.p)
        sum += dot(a.q, q, p.q, a.relative_k, relative_row(a, p, i, j), 0, p.dk);
    sum *= p.scale;
    return {FORMS ? sum - p.slope * distance : sum, 0};
}

/* to[c] = to[c] * keep + sum over j < n of w[j] * m(row[j], col + c). Each lane computes its own
 * columns, so no synchronization is needed. */
static __device__ void add_rows(float *to, float keep, const float *w, const struct mat &m,
                                const int *row, int n, int col, int width, int lane)
{
    for (int c = lane; c < width; c += 32) {
        float sum = to[c] * keep;
        for (int j = 0; j < n; j++) sum = fmaf(w[j], element(m, row[j], col + c), sum);
        to[c] = sum;
    }
}

/* What one side of additive scores, a row of x, gets from n rows of the other side, y:
 * to[c] += sum over j < n of w[j] * additive[c] * (1 - t * t), where t = tanh(x[c] + y[j][c]). */
static __device__ void add_tanh_rows(float *to, const float *w, const struct attention &a,
                                     const struct work &p, const struct mat &x, int x_row,
                                     int x_col, const struct mat &y, const int *row, int y_col,
                                     int n, int lane)
{
    for (int c = lane; c < p.dk; c += 32) {
        float own = element(x, x_row, x_col + c), sum = 0;
        for (int j = 0; j < n; j++) {
            float t = tanh_any(own, element(y, row[j], y_col + c));
            sum = fmaf(w[j], 1 - t * t, sum);
        }
        to[c] = fmaf(sum, element(a.additive, p.head, c), to[c]);
    }
}

static __device__ void set_rows(const struct mat &m, int row, int col, const float *x, int width,
                                float scale, int lane)
{
    for (int c = lane; c < width; c += 32) set_element(m, row, col + c, x[c] * scale);
}

template <bool FORMS> static __global__ void forward(struct attention a, struct drop_site drop)
{
    __shared__ float sums[WARPS][HEAD_WIDTH_MAX], weight[WARPS][32];
    __shared__ int rows[WARPS][32], relative[WARPS][32];
    struct work p = work_here(a, a.heads, a.seqs.max_q);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (p.i >= p.s.nq) return;
    struct key_span sees = keys_seen<FORMS>(a, p.s, p.i);
    int row = p.s.q + p.i, keys = span_count(sees);
    uint2 mask = dropout_key(drop, (uint64_t)row * a.heads + p.head);
    float top = -INFINITY, total = 0, *o = sums[warp];
    for (int c = lane; c < p.dv; c += 32) o[c] = 0;
    for (int n0 = 0; n0 < keys; n0 += 32) {
        int n = n0 + lane, j = span_at(sees, min(n, keys - 1)), key = key_row(a, p.s, j);
        struct score s = {-INFINITY, 0};
        if (n < keys) s = pair_score<FORMS>(a, p, p.i, row, j, key);
        float before = top;
        top = fmaxf(top, warp_max(s.sum));
        float keep = expf(before - top), w = expf(score_above(s, top));
        total = total * keep + warp_sum(w);
        __syncwarp();
        rows[warp][lane] = key;
        if (FORMS) relative[warp][lane] = relative_row(a, p, p.i, j);
        weight[warp][lane] = w * factor(drop, mask, j);
        __syncwarp();
        int count = min(32, keys - n0);
        add_rows(o, keep, weight[warp], a.v, rows[warp], count, p.v, p.dv, lane);
        if (FORMS && a.relative_v.p)
            add_rows(o, 1, weight[warp], a.relative_v, relative[warp], count, 0, p.dv, lane);
    }
    set_rows(a.o, row, p.o, o, p.dv, keys ? 1 / total : 0, lane);
    if (a.lse.p && lane == 0) set_element(a.lse, row, p.head, keys ? top + logf(total) : -INFINITY);
}

template <bool FORMS> static __global__ void weights(struct attention a)
{
    struct work p = work_here(a, a.heads, a.seqs.max_q);
    if (p.i >= p.s.nq) return;
    struct key_span sees = keys_seen<FORMS>(a, p.s, p.i);
    int row = p.s.q + p.i;
    float lse = element(a.lse, row, p.head);
    float *to = (float *)a.weights.p + ((size_t)row * a.heads + p.head) * a.weights.ld;
    for (int j = threadIdx.x % 32; j < a.weights.cols; j += 32) {
        bool visible = j < sees.first || (j >= sees.from && j < sees.to);
        to[j] = 0;
        if (visible)
            to[j] =
                expf(score_above(pair_score<FORMS>(a, p, p.i, row, j, key_row(a, p.s, j)), lse));
    }
}

/* The weight of (query i, key j) before dropout, and the gradient of its score. */
template <bool FORMS>
static __device__ float2 weight_and_slope(const struct attention &a, const struct attention_grad &g,
                                          const struct work &p, int i, int j, float delta,
                                          float mask)
{
    int q = p.s.q + i, k = p.s.k + j;
    float w = expf(score_above(pair_score<FORMS>(a, p, i, q, j, k), element(a.lse, q, p.head)));
    float dw = dot(g.dout, q, p.o, a.v, k, p.v, p.dv);
    if (FORMS && a.relative_v.p)
        dw += dot(g.dout, q, p.o, a.relative_v, relative_row(a, p, i, j), 0, p.dv);
    return make_float2(w, w * (dw * mask - delta));
}

template <bool FORMS>
static __global__ void backward_queries(struct attention a, struct attention_grad g,
                                        struct drop_site drop)
{
    __shared__ float sums[WARPS][HEAD_WIDTH_MAX], slope[WARPS][32];
    __shared__ int rows[WARPS][32], relative[WARPS][32];
    struct work p = work_here(a, a.heads, a.seqs.max_q);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (p.i >= p.s.nq) return;
    struct key_span sees = keys_seen<FORMS>(a, p.s, p.i);
    int row = p.s.q + p.i, keys = span_count(sees);
    uint2 mask = dropout_key(drop, (uint64_t)row * a.heads + p.head);
    float delta = 0, *dq = sums[warp];
    for (int c = lane; c < p.dv; c += 32)
        delta += element(g.dout, row, p.o + c) * element(a.o, row, p.o + c);
    delta = warp_sum(delta);
    for (int c = lane; c < p.dk; c += 32) dq[c] = 0;
    for (int n0 = 0; n0 < keys; n0 += 32) {
        int j = span_at(sees, n0 + lane), count = min(32, keys - n0);
        __syncwarp();
        if (lane < count) {
            slope[warp][lane] =
                weight_and_slope<FORMS>(a, g, p, p.i, j, delta, factor(drop, mask, j)).y;
            rows[warp][lane] = p.s.k + j;
            if (FORMS) relative[warp][lane] = relative_row(a, p, p.i, j);
        }
        __syncwarp();
        if (FORMS && a.additive.p)
            add_tanh_rows(dq, slope[warp], a, p, a.q, row, p.q, a.k, rows[warp], p.k, count, lane);
        else
            add_rows(dq, 1, slope[warp], a.k, rows[warp], count, p.k, p.dk, lane);
        if (FORMS && a.relative_k.p)
            add_rows(dq, 1, slope[warp], a.relative_k, relative[warp], count, 0, p.dk, lane);
    }
    set_rows(g.dq, row, p.q, dq, p.dk, p.scale, lane);
}

template <bool FORMS>
static __global__ void backward_keys(struct attention a, struct attention_grad g,
                                     struct drop_site drop)
{
    __shared__ float dk_sums[WARPS][HEAD_WIDTH_MAX], dv_sums[WARPS][HEAD_WIDTH_MAX];
    __shared__ float weight[WARPS][32], slope[WARPS][32];
    __shared__ int rows[WARPS][32];
    struct work p = work_here(a, a.kv_heads, a.seqs.max_k);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, j = p.i;
    if (j >= p.s.nk) return;
    struct key_span seeing = {0, max(0, j - p.s.ahead), p.s.nq};
    if (FORMS) seeing = queries_seeing(a, j, p.s.nq, p.s.nk);
    int queries = span_count(seeing);
    float *dk = dk_sums[warp], *dv = dv_sums[warp];
    for (int c = lane; c < p.dk; c += 32) dk[c] = 0;
    for (int c = lane; c < p.dv; c += 32) dv[c] = 0;
    for (int h = 0, shared = a.heads / a.kv_heads; h < shared; h++) {
        if (h) work_head(p, a, p.head + 1);
        for (int n0 = 0; n0 < queries; n0 += 32) {
            int i = span_at(seeing, n0 + lane), row = p.s.q + i, count = min(32, queries - n0);
            __syncwarp();
            if (lane < count) {
                uint2 mask = dropout_key(drop, (uint64_t)row * a.heads + p.head);
                float m = factor(drop, mask, j);
                float delta = dot(g.dout, row, p.o, a.o, row, p.o, p.dv);
                float2 w = weight_and_slope<FORMS>(a, g, p, i, j, delta, m);
                weight[warp][lane] = w.x * m;
                slope[warp][lane] = w.y;
                rows[warp][lane] = row;
            }
            __syncwarp();
            if (FORMS && a.additive.p)
                add_tanh_rows(dk, slope[warp], a, p, a.k, p.s.k + j, p.k, a.q, rows[warp], p.q,
                              count, lane);
            else
                add_rows(dk, 1, slope[warp], a.q, rows[warp], count, p.q, p.dk, lane);
            add_rows(dv, 1, weight[warp], g.dout, rows[warp], count, p.o, p.dv, lane);
        }
    }
    set_rows(g.dk, p.s.k + j, p.k, dk, p.dk, p.scale, lane);
    set_rows(g.dv, p.s.k + j, p.v, dv, p.dv, 1, lane);
}

/* ---- gradients of the parameters of a form ---- */

/* The queries of a head are divided into parts: part n of `parts` has every parts-th group of 32
 * queries of a sentence. */
static __host__ __device__ int query_groups(const struct seqs &s)
{
    return s.n * ((s.max_q + 31) / 32);
}
static __device__ struct work work_group(const struct attention &a, int group, int head)
{
    int tiles = (a.seqs.max_q + 31) / 32;
    return work_of(a, group / tiles, group % tiles * 32, head);
}

/* What a warp sums. */
struct part {
    int part, head, row; /* row: of the tables; 0 where the form has none */
};

static __device__ struct part part_here(int heads, int rows)
{
    int n = blockIdx.x * WARPS + threadIdx.x / 32;
    return {n / rows / heads, n / rows % heads, n % rows};
}

/* The gradients of one row of relative_k and relative_v: partial_k [parts, H, R, dk] and
 * partial_v [parts, H, R, dv]. A lane sums the weights and slopes that one query has for the keys
 * of the row; then these are multiplied with the rows of q and dout. */
static __global__ void backward_relative(struct attention a, struct attention_grad g,
                                         struct drop_site drop, int parts, float *partial_k,
                                         float *partial_v)
{
    __shared__ float dk_sums[WARPS][HEAD_WIDTH_MAX], dv_sums[WARPS][HEAD_WIDTH_MAX];
    __shared__ float weight[WARPS][32], slope[WARPS][32];
    __shared__ int rows[WARPS][32];
    const int table_rows = a.relative_k.rows, clip = table_rows / 2;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    struct part part = part_here(a.heads, table_rows);
    if (part.part >= parts) return;
    struct work p = work_group(a, 0, part.head);
    float *dk = dk_sums[warp], *dv = dv_sums[warp];
    for (int c = lane; c < p.dk; c += 32) dk[c] = 0;
    for (int c = lane; c < p.dv; c += 32) dv[c] = 0;
    for (int group = part.part; group < query_groups(a.seqs); group += parts) {
        p = work_group(a, group, part.head);
        int i = p.i + lane, row = p.s.q + i, count = min(32, p.s.nq - p.i);
        __syncwarp();
        if (lane < count) {
            struct key_span sees = keys_seen<true>(a, p.s, i);
            uint2 mask = dropout_key(drop, (uint64_t)row * a.heads + p.head);
            float delta = dot(g.dout, row, p.o, a.o, row, p.o, p.dv);
            int at = p.s.behind + i + part.row - clip; /* the key, but of the outer rows */
            int low = part.row == 0 ? 0 : at, end = part.row == table_rows - 1 ? p.s.nk : at + 1;
            float w_sum = 0, slope_sum = 0;
            for (int near = 0; near < 2; near++) {
                int stop = min(end, near ? sees.to : sees.first);
                for (int j = max(low, near ? sees.from : 0); j < stop; j++) {
                    float m = factor(drop, mask, j);
                    float2 w = weight_and_slope<true>(a, g, p, i, j, delta, m);
                    w_sum += w.x * m, slope_sum += w.y;
                }
            }
            weight[warp][lane] = w_sum, slope[warp][lane] = slope_sum;
            rows[warp][lane] = row;
        }
        __syncwarp();
        add_rows(dk, 1, slope[warp], a.q, rows[warp], count, p.q, p.dk, lane);
        add_rows(dv, 1, weight[warp], g.dout, rows[warp], count, p.o, p.dv, lane);
    }
    size_t at = ((size_t)part.part * a.heads + part.head) * table_rows + part.row;
    for (int c = lane; c < p.dk; c += 32) partial_k[at * p.dk + c] = dk[c] * p.scale;
    for (int c = lane; c < p.dv; c += 32) partial_v[at * p.dv + c] = dv[c];
}

/* The gradient of one row of additive: partial [parts, H, dk]. */
static __global__ void backward_additive(struct attention a, struct attention_grad g,
                                         struct drop_site drop, int parts, float *partial)
{
    __shared__ float sums[WARPS][HEAD_WIDTH_MAX], slope[WARPS][32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    struct part part = part_here(a.heads, 1);
    if (part.part >= parts) return;
    struct work p = work_group(a, 0, part.head);
    float *sum = sums[warp];
    for (int c = lane; c < p.dk; c += 32) sum[c] = 0;
    for (int group = part.part; group < query_groups(a.seqs); group += parts) {
        p = work_group(a, group, part.head);
        for (int i = p.i; i < min(p.i + 32, p.s.nq); i++) {
            struct key_span sees = keys_seen<true>(a, p.s, i);
            int row = p.s.q + i, keys = span_count(sees);
            uint2 mask = dropout_key(drop, (uint64_t)row * a.heads + p.head);
            float delta = 0;
            for (int c = lane; c < p.dv; c += 32)
                delta += element(g.dout, row, p.o + c) * element(a.o, row, p.o + c);
            delta = warp_sum(delta);
            for (int n0 = 0; n0 < keys; n0 += 32) {
                int j = span_at(sees, n0 + lane), count = min(32, keys - n0);
                __syncwarp();
                if (lane < count)
                    slope[warp][lane] =
                        weight_and_slope<true>(a, g, p, i, j, delta, factor(drop, mask, j)).y;
                __syncwarp();
                for (int c = lane; c < p.dk; c += 32) {
                    float own = element(a.q, row, p.q + c), s = sum[c];
                    for (int n = 0; n < count; n++) {
                        int key = p.s.k + span_at(sees, n0 + n);
                        s = fmaf(slope[warp][n], tanh_any(own, element(a.k, key, p.k + c)), s);
                    }
                    sum[c] = s;
                }
            }
        }
    }
    size_t at = (size_t)part.part * a.heads + part.head;
    for (int c = lane; c < p.dk; c += 32) partial[at * p.dk + c] = sum[c];
}

/* Into how many parts the queries of a head are divided, where a part takes this many bytes of the
 * scratch block. */
static int parts_of(const struct attention *a, size_t bytes)
{
    enum { MOST = 1024 };
    size_t n = query_groups(a->seqs), fit = CUDA_SCRATCH / bytes;
    n = n < fit ? n : fit;
    return n < MOST ? (int)n : MOST;
}

static int part_blocks(int parts, int heads, int rows)
{
    return (parts * heads * rows + WARPS - 1) / WARPS;
}

static void relative_backward(struct gpu *c, const struct attention *a,
                              const struct attention_grad *g, struct drop_site drop)
{
    int rows = a->relative_k.rows, k = rows * a->relative_k.cols, v = rows * a->relative_v.cols;
    int parts = parts_of(a, sizeof(float) * a->heads * (k + v));
    float *partial_k = (float *)c->scratch, *partial_v = partial_k + (size_t)parts * a->heads * k;
    backward_relative<<<part_blocks(parts, a->heads, rows), WARPS * 32, 0, c->stream>>>(
        *a, *g, drop, parts, partial_k, partial_v);
    cuda_add_partials(c, {{(float *)g->drelative_k.p}, 1}, partial_k, parts * a->heads, k);
    cuda_add_partials(c, {{(float *)g->drelative_v.p}, 1}, partial_v, parts * a->heads, v);
}

static void additive_backward(struct gpu *c, const struct attention *a,
                              const struct attention_grad *g, struct drop_site drop)
{
    int width = a->additive.rows * a->additive.cols, parts = parts_of(a, sizeof(float) * width);
    float *partial = (float *)c->scratch;
    backward_additive<<<part_blocks(parts, a->heads, 1), WARPS * 32, 0, c->stream>>>(
        *a, *g, drop, parts, partial);
    cuda_add_partials(c, {{(float *)g->dadditive.p}, 1}, partial, parts, width);
}

/* ---- launches ---- */

static int grid(const struct attention *a, int heads, int longest)
{
    return a->seqs.n * ((longest + WARPS - 1) / WARPS) * heads;
}

void attention_plain_forward(const struct attention *a, cudaStream_t stream)
{
    auto kernel = attention_formed(a) ? forward<true> : forward<false>;
    kernel<<<grid(a, a->heads, a->seqs.max_q), WARPS * 32, 0, stream>>>(*a, drop_site(a->drop));
}

void attention_weights(const struct attention *a, cudaStream_t stream)
{
    auto kernel = attention_formed(a) ? weights<true> : weights<false>;
    kernel<<<grid(a, a->heads, a->seqs.max_q), WARPS * 32, 0, stream>>>(*a);
}

void attention_plain_backward(struct gpu *c, const struct attention *a,
                              const struct attention_grad *g)
{
    struct drop_site drop = drop_site(a->drop);
    bool formed = attention_formed(a);
    auto queries = formed ? backward_queries<true> : backward_queries<false>;
    auto keys = formed ? backward_keys<true> : backward_keys<false>;
    if (a->seqs.max_q)
        queries<<<grid(a, a->heads, a->seqs.max_q), WARPS * 32, 0, c->stream>>>(*a, *g, drop);
    if (a->seqs.max_k)
        keys<<<grid(a, a->kv_heads, a->seqs.max_k), WARPS * 32, 0, c->stream>>>(*a, *g, drop);
    if (a->seqs.max_q && a->relative_k.p) relative_backward(c, a, g, drop);
    if (a->seqs.max_q && a->additive.p) additive_backward(c, a, g, drop);
}
