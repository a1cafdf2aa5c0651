/*
 * attention_tiles_bwd.cu - gradients of attention in bf16 on the tensor cores, heads of up to 128.
 * No two blocks write the same memory, so two runs give the same bits.
 *
 * With w the weights, m their dropout factors and delta_i = dout_i . o_i:
 *     dv = (m w)T dout      ds = w (m (dout vT) - delta)
 *     dq = ds k / sqrt(dk)  dk = dsT q / sqrt(dk)
 *
 * backward_keys: a group of warps computes one head of some keys of a sentence, a warp 16 of them.
 * It goes over the queries with keys as rows, so that the fragments of wT and dsT are left operands
 * of the products of dv and dk. Where the sentence fits in shared memory (WHOLE) it also stores dsT
 * there, and at the end each warp computes dq of 16 queries: all inputs are read once. For longer
 * sentences backward_queries computes dq; it goes over the keys with queries as rows. Where several
 * heads share a key/value head, a group goes over the queries of one of them after the other, and
 * backward_queries computes dq for short sentences as well.
 *
 * With a window, longer sentences skip the queries, or keys, that nothing of the group has to do
 * with. With learned vectors for distances (attention_relative.h) backward_queries computes dq too,
 * and stores for every query and head the weights and slopes summed by rows of the tables; then
 * backward_tables multiplies these with dout and q.
 */
#include "ops/cuda/attention_device.h"
#include "ops/cuda/attention_parts.h"
#include "ops/cuda/attention_relative.h"

enum { MOST_WARPS = 8, PART_WARPS = 4, PART_ROWS = PART_WARPS * 16 };

struct cut {
    int warps;         /* of a group */
    int groups;        /* of a block, one per head */
    int tiles;         /* of keys (in backward_queries: of queries) of the longest sentence */
    int queries, keys; /* rows of queries and of keys in shared memory at a time */
    struct widths widths;
};

/* What backward needs of a query besides its rows of q and dout. */
struct __align__(16) query_facts
{
    float lse; /* to base 2 */
    float delta;
    uint2 mask;
};

/* The parts of the shared memory of one group. */
template <int D> struct room {
    char *q, *dout, *k, *v;
    struct query_facts *facts; /* [queries] */
    char *slopes;              /* dsT: one row per key, `pitch` bytes apart */
    int pitch;
};

/* 16 bytes more than a row needs: so ldmatrix and the stores have no bank conflicts. */
static __host__ __device__ int slope_pitch(const struct cut &c)
{
    return c.queries * 2 + 16;
}

template <int D> static __host__ __device__ int room_bytes(const struct cut &c, bool slopes)
{
    int bytes = 2 * (c.queries + c.keys) * D * 2 + c.queries * (int)sizeof(struct query_facts);
    bytes += slopes ? c.keys * slope_pitch(c) : 0;
    return (bytes + TILE_ALIGN - 1) / TILE_ALIGN * TILE_ALIGN;
}

template <int D>
static __device__ __forceinline__ struct room<D> room_at(char *p, const struct cut &c) {
    const int row_bytes = D * 2;
    struct room<D> r;
    r.q = p, r.dout = r.q + c.queries * row_bytes;
    r.k = r.dout + c.queries * row_bytes, r.v = r.k + c.keys * row_bytes;
    r.facts = (struct query_facts *)(r.v + c.keys * row_bytes);
    r.slopes = (char *)(r.facts + c.queries);
    r.pitch = slope_pitch(c);
    return r;
}

template <int D>
static __device__ __forceinline__ uint32_t row_address(const char *tile, int row)
{
    return shared_address(tile) + row * D * 2;
}

/* The first rows, in each matrix, of the sentence and head that a group computes. */
struct heads {
    const bf16 *q, *k, *v, *o, *dout;
    const float *lse;
    uint64_t row; /* of the first query, in the dropout mask */
};

static __device__ __forceinline__ struct heads heads_at(const struct attention &a,
                                                        const struct attention_grad &g,
                                                        const struct sentence &s, int head,
                                                        const struct widths &w)
{
    struct heads h;
    int kv_head = kv_head_of(a, head);
    h.q = (const bf16 *)a.q.p + (size_t)s.q * a.q.ld + head * w.dk;
    h.k = (const bf16 *)a.k.p + (size_t)s.k * a.k.ld + kv_head * w.dk;
    h.v = (const bf16 *)a.v.p + (size_t)s.k * a.v.ld + kv_head * w.dv;
    h.o = (const bf16 *)a.o.p + (size_t)s.q * a.o.ld + head * w.dv;
    h.dout = (const bf16 *)g.dout.p + (size_t)s.q * g.dout.ld + head * w.dv;
    h.lse = (const float *)a.lse.p + (size_t)s.q * a.lse.ld + head;
    h.row = (uint64_t)s.q * a.heads + head;
    return h;
}

/* Copies queries [first, first + rows), their dout and their facts to shared memory. It waits for
 * the copies of this thread; the caller must synchronize the group. rows is at most 16 per warp. */
template <int D>
static __device__ __forceinline__ void bring_queries(
    const struct room<D> &room, const struct attention &a, const struct attention_grad &g,
    const struct heads &h, const struct widths &w, int nq, int first, int rows,
    const struct drop_site &drop, int tid, int threads)
{
    const int chunks = D / 8;
    copy_tile<D>(shared_address(room.q), h.q, w.dk, a.q.ld, first, rows, nq, tid, threads);
    copy_tile<D>(shared_address(room.dout), h.dout, w.dv, g.dout.ld, first, rows, nq, tid, threads);
    copy_commit();
    uint4 o[D / 16];
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        int c = tid + i * threads, row = first + c / chunks;
        o[i] = make_uint4(0, 0, 0, 0);
        if (c < rows * chunks && row < nq && chunk_there<D>(c % chunks, w.dv))
            o[i] = *(const uint4 *)(h.o + (size_t)row * a.o.ld + c % chunks * 8);
    }
    if (tid < rows) {
        int row = first + tid;
        struct query_facts *f = room.facts + tid;
        f->lse = row < nq ? h.lse[(size_t)row * a.lse.ld] * LOG2_E : 0;
        f->mask = dropout_key(drop, h.row + (uint64_t)row * a.heads);
    }
    copy_wait<0>();
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        int c = tid + i * threads, row = c / chunks;
        float sum = 0;
        if (c < rows * chunks) { /* a chunk of dout that this thread copied */
            uint4 d = *(const uint4 *)(room.dout + chunk_at<D>(row, c % chunks));
            const uint32_t x[4] = {d.x, d.y, d.z, d.w}, y[4] = {o[i].x, o[i].y, o[i].z, o[i].w};
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float2 f = unpack(x[e]), u = unpack(y[e]);
                sum = fmaf(f.x, u.x, fmaf(f.y, u.y, sum));
            }
        }
#pragma unroll
        for (int e = 1; e < chunks; e *= 2) sum += __shfl_xor_sync(~0u, sum, e);
        if (c < rows * chunks && c % chunks == 0) room.facts[row].delta = sum;
    }
}

/* s = a bT and dw = c dT, where a, b, c and d are 16 rows of tiles each. */
template <int D>
static __device__ __forceinline__ void scores(float (&s)[2][4], float (&dw)[2][4], uint32_t a,
                                              uint32_t b, uint32_t c, uint32_t d,
                                              const struct lanes &l)
{
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
        uint32_t x[4], y[4];
        load_left(x, a, step, l);
        load_right(y, b, step, l);
        multiply(s[0], x, y[0], y[1]);
        multiply(s[1], x, y[2], y[3]);
        load_left(x, c, step, l);
        load_right(y, d, step, l);
        multiply(dw[0], x, y[0], y[1]);
        multiply(dw[1], x, y[2], y[3]);
    }
}

/* The products of the queries in shared memory with the tables: [queries, pitch]. */
struct products {
    float *k, *v;
};

/* Turns s and dw of the paper's form into those of another. distance: of the key from the query;
 * away: the same as a float; products: of the query with the rows of the tables */
template <enum form FORM>
static __device__ __forceinline__ void add_form(float &s, float &dw, float slope, int distance,
                                                float away, const struct relative &rel,
                                                const float *products_k, const float *products_v)
{
    if (FORM == FORM_RELATIVE) {
        int row = distance_row(rel, distance);
        s += products_k[row], dw += products_v[row];
    }
    s = fmaf(-slope, fabsf(away), s);
}

/* On entry s is the score of a query and a key, and dw is dout . v. On return s is the weight after
 * dropout without the factor 1 / (1 - p), and dw is ds, the gradient of the score. */
static __device__ __forceinline__ void weigh(float &s, float &dw, float scale, float lse,
                                             float delta, bool visible, bool drop_it,
                                             float drop_scale)
{
    float w = visible ? exp2_fast(s * scale - lse) : 0;
    dw = w * ((drop_it ? 0 : dw * drop_scale) - delta);
    s = drop_it ? 0 : w;
}

/* Adds to dk and dv of keys [j0, j0 + 16), which are at row `key` of the tiles, what queries
 * [i0, i0 + 16), at row `at`, contribute. */
template <int D, bool WHOLE, enum form FORM>
static __device__ __forceinline__ void keys_step(
    float (&dk)[D / 8][4], float (&dv)[D / 8][4], const struct room<D> &room,
    const struct sentence &sentence, int key, int j0, int at, int i0, const struct drop_site &drop,
    int lane, const struct lanes &l, const struct attention &a, float scale, float slope,
    const struct relative &rel, const struct products &products)
{
    uint32_t q = row_address<D>(room.q, at), dout = row_address<D>(room.dout, at);
    uint32_t k = row_address<D>(room.k, key), v = row_address<D>(room.v, key);
    float s[2][4] = {}, dw[2][4] = {};
    scores<D>(s, dw, k, q, v, dout, l);
    /* In most tiles every query sees every key, so not each pair has to be checked. */
    bool inside =
        j0 + 16 <= sentence.nk && i0 + 16 <= sentence.nq && j0 + 15 <= i0 + sentence.ahead;
    int apart = FORM ? j0 - i0 - sentence.behind : 0; /* of the first key and query */
    if (FORM) inside = inside && (!a.window || abs(apart) + 15 <= a.window);
    float away = FORM ? (float)(apart + lane / 4 - lane % 4 * 2) : 0;
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int column = n * 8 + lane % 4 * 2 + e, i = i0 + column;
            struct query_facts f = room.facts[at + column];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int j = j0 + lane / 4 + 8 * r;
                bool visible =
                    inside || (j < sentence.nk && i < sentence.nq && j <= i + sentence.ahead);
                if (FORM) {
                    visible = inside || (visible && in_window(a, sentence.behind + i, j));
                    int product = (at + column) * rel.pitch;
                    add_form<FORM>(s[n][2 * r + e], dw[n][2 * r + e], slope,
                                   j - sentence.behind - i, away + (float)(8 * r - n * 8 - e), rel,
                                   products.k + product, products.v + product);
                }
                bool drop_it = drop.threshold && dropped(drop, f.mask, j);
                weigh(s[n][2 * r + e], dw[n][2 * r + e], scale, f.lse, f.delta, visible, drop_it,
                      drop.scale);
            }
        }
    uint32_t w[4], ds[4];
    as_left(w, s[0], s[1]);
    as_left(ds, dw[0], dw[1]);
    if (WHOLE) {
        char *to = room.slopes + (key + lane / 4) * room.pitch + (at + lane % 4 * 2) * 2;
        *(uint32_t *)to = ds[0];
        *(uint32_t *)(to + 8 * room.pitch) = ds[1];
        *(uint32_t *)(to + 16) = ds[2];
        *(uint32_t *)(to + 8 * room.pitch + 16) = ds[3];
    }
    add_product<D>(dv, w, dout, l);
    add_product<D>(dk, ds, q, l);
}

/* dq of the 16 queries from row `at` on, from dsT; they see the first `seen` keys. */
template <int D>
static __device__ __forceinline__ void whole_queries(float (&dq)[D / 8][4],
                                                     const struct room<D> &room, int at, int seen,
                                                     int lane, const struct lanes &l)
{
    uint32_t slopes = shared_address(room.slopes);
    for (int j = 0; j < seen; j += 16) {
        uint32_t x[4];
        int row = j + (lane & 7) + (lane >> 4) * 8, column = at + (lane >> 3 & 1) * 8;
        load_matrix_turned(x, slopes + row * room.pitch + column * 2);
        add_product<D>(dq, x, row_address<D>(room.k, j), l);
    }
}

/* Bytes of shared memory that a group of a kernel with vectors for distances has behind its room.
 */
template <int D>
static __host__ __device__ int more_bytes(const struct attention &a, const struct cut &c)
{
    return relative_bytes<D>(a) + 2 * product_bytes(a, c.queries);
}

/* Stores the tables in shared memory; the caller must synchronize the block. */
template <int D>
static __device__ __forceinline__ void bring_relative(struct relative &rel,
                                                      struct products &products,
                                                      const struct attention &a, char *shared,
                                                      const struct cut &cut)
{
    char *p = shared + room_bytes<D>(cut, false);
    rel = relative_at<D>(a, p);
    bring_tables<D>(rel, a);
    products.k = (float *)(p + relative_bytes<D>(a));
    products.v = products.k + cut.queries * rel.pitch;
}

/* The products of the 16 queries from row `at` on; the caller must synchronize those who read them.
 */
template <int D>
static __device__ __forceinline__ void query_products(const struct products &products,
                                                      const struct relative &rel,
                                                      const struct room<D> &room, int at, int lane,
                                                      const struct lanes &l)
{
    table_products<D>(products.k + at * rel.pitch, rel, row_address<D>(room.q, at), rel.k,
                      rel.k_rest, lane, l);
    table_products<D>(products.v + at * rel.pitch, rel, row_address<D>(room.dout, at), rel.v,
                      rel.v_rest, lane, l);
}

/* Launch bounds: the sums of dk and dv take so many registers that this many blocks fit at a time.
 */
template <int D, bool WHOLE> struct bounds {
    enum { THREADS = (WHOLE ? MOST_WARPS : PART_WARPS) * 32 };
    enum { BLOCKS = D == 128 ? 1 : (WHOLE ? 2 : 3) };
};

template <int D, bool WHOLE, enum form FORM>
static __global__ void __launch_bounds__(bounds<D, WHOLE>::THREADS, bounds<D, WHOLE>::BLOCKS)
    backward_keys(struct attention a, struct attention_grad g, struct cut cut,
                  struct drop_site drop)
{
    extern __shared__ __align__(TILE_ALIGN) char shared[];
    int warp = threadIdx.x / 32 % cut.warps, group = threadIdx.x / 32 / cut.warps;
    int lane = threadIdx.x % 32, threads = cut.warps * 32, tid = warp * 32 + lane;
    struct place place = place_of(blockIdx.x, a.kv_heads / cut.groups, cut.tiles);
    int kv_head = place.head * cut.groups + group, first = place.tile * cut.keys;
    int sharing = WHOLE ? 1 : a.heads / a.kv_heads; /* heads of the key/value head */
    int head = kv_head * sharing, last_head = head + sharing - 1;
    chain_wait();
    struct sentence s = sentence_at(a.seqs, place.sentence);
    if (first >= s.nk && !(WHOLE && s.nq)) return;
    struct room<D> room = room_at<D>(shared + group * room_bytes<D>(cut, WHOLE), cut);
    const struct widths w = head_widths<D, FORM>(cut.widths);
    struct heads h = heads_at(a, g, s, head, w);
    struct relative rel = {};
    struct products products = {};
    if (FORM == FORM_RELATIVE) bring_relative<D>(rel, products, a, shared, cut);

    int rows = min(cut.keys, (s.nk - first + 15) / 16 * 16);
    copy_tile<D>(shared_address(room.k), h.k, w.dk, a.k.ld, first, rows, s.nk, tid, threads);
    copy_tile<D>(shared_address(room.v), h.v, w.dv, a.v.ld, first, rows, s.nk, tid, threads);

    const float scale = 1 / sqrtf((float)w.dk), base2_scale = LOG2_E / sqrtf((float)w.dk);
    const struct lanes l = lanes_make<D>(lane);
    float dk[D / 8][4] = {}, dv[D / 8][4] = {};
    int key = warp * 16, j0 = first + key;
    /* The first queries that see the block's and the warp's first key. */
    int start = WHOLE ? 0 : max(0, first - s.ahead) / cut.queries * cut.queries, stop = s.nq;
    struct key_span need = {}, needed = {}; /* the queries that the block and the warp read */
    if (FORM && !WHOLE) {
        need = span_both(queries_seeing(a, first, s.nq, s.nk),
                         queries_seeing(a, min(first + rows, s.nk) - 1, s.nq, s.nk));
        needed = span_both(queries_seeing(a, j0, s.nq, s.nk),
                           queries_seeing(a, min(j0 + 15, s.nk - 1), s.nq, s.nk));
        start = span_block(need, -1, cut.queries) * cut.queries, stop = need.to;
    }
    float slope = FORM ? slope_of(a, head, w.dk) : 0;
    int from = start, own = max(0, j0 - s.ahead) / 16 * 16;
    do {
        int n = max(0, min(cut.queries, (s.nq - from + 15) / 16 * 16));
        bring_queries(room, a, g, h, w, s.nq, from, n, drop, tid, threads);
        __syncthreads();
        if (FORM == FORM_RELATIVE) {
            if (key < n) query_products<D>(products, rel, room, key, lane, l);
            __syncthreads();
        }
        if (j0 < s.nk)
            for (int i = max(from, own); i < from + n; i += 16) {
                if (FORM && !WHOLE && (i >= needed.to || span_skips(needed, i, 16))) continue;
                keys_step<D, WHOLE, FORM>(dk, dv, room, s, key, j0, i - from, i, drop, lane, l, a,
                                          base2_scale, slope, rel, products);
            }
        if (FORM && !WHOLE)
            from = span_block(need, from / cut.queries, cut.queries) * cut.queries;
        else
            from += cut.queries;
        if (!WHOLE) __syncthreads();
        if (from >= stop && head < last_head) {
            h = heads_at(a, g, s, ++head, w), from = start;
            if (FORM) slope = slope_of(a, head, w.dk);
        }
    } while (!WHOLE && from < stop);

    if (j0 < s.nk) { /* no other warp reads the rows of v that this warp overwrites */
        bf16 *to = (bf16 *)g.dk.p + (size_t)s.k * g.dk.ld + kv_head * w.dk;
        store_rows<D>(dk, scale, scale, room.v, key, to, w.dk, g.dk.ld, j0, s.nk, lane);
        to = (bf16 *)g.dv.p + (size_t)s.k * g.dv.ld + kv_head * w.dv;
        store_rows<D>(dv, drop.scale, drop.scale, room.v, key, to, w.dv, g.dv.ld, j0, s.nk, lane);
    }
    if (!WHOLE) return;
    __syncthreads();
    int at = warp * 16;
    if (at >= s.nq) return;
    float dq[D / 8][4] = {};
    whole_queries<D>(dq, room, at, seen(s, at + 15), lane, l);
    bf16 *to = (bf16 *)g.dq.p + (size_t)s.q * g.dq.ld + head * w.dk;
    store_rows<D>(dq, scale, scale, room.q, at, to, w.dk, g.dq.ld, at, s.nq, lane);
}

/* What a lane has of the 16 queries of its warp, rows g and g + 8. */
struct query_pair {
    struct query_facts facts[2];
    int seen[2]; /* number of keys that each sees, or the end of the keys it sees */
    /* of the forms besides the paper's */
    int position; /* of row g */
    float slope;
    struct products products;     /* of row g */
    struct outer weights, slopes; /* summed over the keys of the outer rows of the tables */
};

/* Adds to dq of the 16 queries from row `at` on what keys [j0, j0 + 16), at row `key`, contribute.
 */
template <int D, enum form FORM>
static __device__ __forceinline__ void queries_step(
    float (&dq)[D / 8][4], const struct room<D> &room, struct query_pair &p, int at, int key,
    int j0, const struct drop_site &drop, int lane, const struct lanes &l,
    const struct attention &a, float scale, const struct relative &rel)
{
    uint32_t q = row_address<D>(room.q, at), dout = row_address<D>(room.dout, at);
    uint32_t k = row_address<D>(room.k, key), v = row_address<D>(room.v, key);
    float s[2][4] = {}, dw[2][4] = {};
    scores<D>(s, dw, q, k, dout, v, l);
    float away = FORM ? (float)(j0 + lane % 4 * 2 - p.position) : 0;
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int r = e / 2;
            int j = j0 + n * 8 + lane % 4 * 2 + e % 2, distance = j - p.position - 8 * r;
            bool drop_it = drop.threshold && dropped(drop, p.facts[r].mask, j);
            bool visible = j < p.seen[r];
            if (FORM) {
                visible = visible && !before_window(a, distance, j);
                add_form<FORM>(s[n][e], dw[n][e], p.slope, distance,
                               away + (float)(n * 8 + e % 2 - 8 * r), rel,
                               p.products.k + 8 * r * rel.pitch, p.products.v + 8 * r * rel.pitch);
            }
            weigh(s[n][e], dw[n][e], scale, p.facts[r].lse, p.facts[r].delta, visible, drop_it,
                  drop.scale);
            if (FORM == FORM_RELATIVE) {
                int row = distance_row(rel, distance);
                outer_add(p.weights, rel, row, r, s[n][e]);
                outer_add(p.slopes, rel, row, r, dw[n][e]);
                if (inner_row(rel, row)) {
                    p.products.k[8 * r * rel.pitch + row] = dw[n][e];
                    p.products.v[8 * r * rel.pitch + row] = s[n][e];
                }
            }
        }
    uint32_t ds[4];
    as_left(ds, dw[0], dw[1]);
    add_product<D>(dq, ds, k, l);
}

/* The weights and slopes of every query and head, summed by rows of the tables. A query and head
 * has `padded` numbers of each. */
struct buckets {
    bf16 *weights, *slopes;
};

/* Stores the numbers of rows [at, at + 16) of the tables for the queries of the warp, of which
 * `count` are there; to: those of row g of the first of its queries. */
static __device__ __forceinline__ void store_bucket(bf16 *to, size_t stride, const uint32_t (&x)[4],
                                                    int at, int count, int lane)
{
    bf16 *p = to + at + lane % 4 * 2;
    if (lane / 4 < count) *(uint32_t *)p = x[0], *(uint32_t *)(p + 8) = x[2];
    p += 8 * stride;
    if (lane / 4 + 8 < count) *(uint32_t *)p = x[1], *(uint32_t *)(p + 8) = x[3];
}

/* Adds the slopes of the rows of relative_k times these rows to dq, and stores the buckets of the
 * warp's queries, of which `count` are there. offset: of row g, stride: between rows */
template <int D>
static __device__ __forceinline__ void relative_queries(float (&dq)[D / 8][4], struct query_pair &p,
                                                        const struct buckets &buckets,
                                                        size_t offset, size_t stride, int count,
                                                        const struct attention &a,
                                                        const struct relative &rel, int lane,
                                                        const struct lanes &l)
{
    outer_settle(p.weights);
    outer_settle(p.slopes);
    __syncwarp();
    for (int at = 0; at < rel.padded; at += 16) {
        float w[2][4], ds[2][4];
        uint32_t left[4];
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int r = e / 2;
                int row = at + n * 8 + lane % 4 * 2 + e % 2;
                int j = p.position + 8 * r + row - rel.clip;
                bool visible = j >= 0 && j < p.seen[r] && !before_window(a, row - rel.clip, j);
                w[n][e] = ds[n][e] = 0;
                if (row == 0)
                    w[n][e] = p.weights.lower[r], ds[n][e] = p.slopes.lower[r];
                else if (row == rel.last)
                    w[n][e] = p.weights.upper[r], ds[n][e] = p.slopes.upper[r];
                else if (row < rel.last && visible)
                    w[n][e] = p.products.v[8 * r * rel.pitch + row],
                    ds[n][e] = p.products.k[8 * r * rel.pitch + row];
            }
        as_left(left, w[0], w[1]);
        store_bucket(buckets.weights + offset, stride, left, at, count, lane);
        as_left(left, ds[0], ds[1]);
        store_bucket(buckets.slopes + offset, stride, left, at, count, lane);
        add_product<D>(dq, left, shared_address(rel.k) + at * D * 2, l);
    }
}

template <int D, enum form FORM>
static __global__ void __launch_bounds__(PART_WARPS * 32)
    backward_queries(struct attention a, struct attention_grad g, struct cut cut,
                     struct drop_site drop, struct buckets buckets)
{
    extern __shared__ __align__(TILE_ALIGN) char shared[];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, tid = threadIdx.x;
    const int threads = FORM == FORM_RELATIVE ? cut.warps * 32 : PART_WARPS * 32;
    struct place place = place_of(blockIdx.x, a.heads, cut.tiles);
    int head = place.head, first = place.tile * cut.queries;
    struct sentence s = sentence_at(a.seqs, place.sentence);
    if (first >= s.nq) return;
    struct room<D> room = room_at<D>(shared, cut);
    const struct widths w = head_widths<D, FORM>(cut.widths);
    struct heads h = heads_at(a, g, s, head, w);
    struct relative rel = {};
    struct products products = {};
    if (FORM == FORM_RELATIVE) bring_relative<D>(rel, products, a, shared, cut);
    int rows = min(cut.queries, (s.nq - first + 15) / 16 * 16);
    bring_queries(room, a, g, h, w, s.nq, first, rows, drop, tid, threads);
    __syncthreads();

    const float scale = 1 / sqrtf((float)w.dk), base2_scale = LOG2_E / sqrtf((float)w.dk);
    const struct lanes l = lanes_make<D>(lane);
    float dq[D / 8][4] = {};
    int at = warp * 16, i0 = first + at;
    struct query_pair p = {};
    int last = 0;
    struct key_span need = {}, needed = {}; /* the keys that the block and the warp read */
    if (i0 < s.nq) {
        last = seen(s, min(i0 + 15, s.nq - 1));
        for (int r = 0; r < 2; r++) {
            p.facts[r] = room.facts[at + lane / 4 + 8 * r];
            p.seen[r] = seen(s, i0 + lane / 4 + 8 * r);
            if (FORM) p.seen[r] = keys_seen<true>(a, s, i0 + lane / 4 + 8 * r).to;
        }
    }
    int last_query = min(first + cut.queries, s.nq) - 1, start = 0;
    int end = seen(s, last_query);
    if (FORM) {
        need = span_both(keys_seen<true>(a, s, first), keys_seen<true>(a, s, last_query));
        needed =
            span_both(keys_seen<true>(a, s, i0), keys_seen<true>(a, s, min(i0 + 15, s.nq - 1)));
        end = need.to, start = span_block(need, -1, cut.keys) * cut.keys;
        last = i0 < s.nq ? needed.to : 0;
        p.position = s.behind + i0 + lane / 4, p.slope = slope_of(a, head, w.dk);
    }
    if (FORM == FORM_RELATIVE) {
        if (i0 < s.nq) query_products<D>(products, rel, room, at, lane, l);
        __syncwarp();
        p.products.k = products.k + (at + lane / 4) * rel.pitch;
        p.products.v = products.v + (at + lane / 4) * rel.pitch;
    }
    for (int j0 = start; j0 < end;) {
        int n = min(cut.keys, (end - j0 + 15) / 16 * 16);
        copy_tile<D>(shared_address(room.k), h.k, w.dk, a.k.ld, j0, n, s.nk, tid, threads);
        copy_tile<D>(shared_address(room.v), h.v, w.dv, a.v.ld, j0, n, s.nk, tid, threads);
        copy_commit();
        copy_wait<0>();
        __syncthreads();
        for (int j = j0; j < min(j0 + n, last); j += 16) {
            if (FORM && span_skips(needed, j, 16)) continue;
            queries_step<D, FORM>(dq, room, p, at, j - j0, j, drop, lane, l, a, base2_scale, rel);
        }
        __syncthreads();
        if (FORM)
            j0 = span_block(need, j0 / cut.keys, cut.keys) * cut.keys;
        else
            j0 += cut.keys;
    }
    if (i0 >= s.nq) return;
    if (FORM == FORM_RELATIVE) {
        size_t stride = (size_t)a.heads * rel.padded;
        size_t offset = (s.q - a.seqs.q[0] + i0 + lane / 4) * stride + head * rel.padded;
        relative_queries<D>(dq, p, buckets, offset, stride, s.nq - i0, a, rel, lane, l);
    }
    bf16 *to = (bf16 *)g.dq.p + (size_t)s.q * g.dq.ld + head * w.dk;
    store_rows<D>(dq, scale, scale, room.q, at, to, w.dk, g.dq.ld, i0, s.nq, lane);
}

/* ---- gradients of the vectors for distances ---- */

enum {
    TABLE_PARTS = 264, /* into which the queries and heads are divided, whatever the GPU, so that
                        * the sums have the same bits on all */
    TABLE_ROWS = 64    /* queries and heads in shared memory at a time */
};

/* 16 bytes more than a row needs: so ldmatrix has no bank conflicts. */
static __host__ __device__ int bucket_pitch(int padded)
{
    return padded * 2 + 16;
}

/* partial[part][0] = slopesT q / sqrt(D), partial[part][1] = weightsT dout, over some queries and
 * heads: partial is [TABLE_PARTS, 2, R, D]. A warp computes 16 rows of one of the tables. */
template <int D>
static __global__ void backward_tables(struct attention a, struct attention_grad g,
                                       struct buckets buckets, int padded, float drop_scale,
                                       float *partial)
{
    extern __shared__ __align__(TILE_ALIGN) char shared[];
    const int chunks = D / 8, bucket_chunks = padded / 8, pitch = bucket_pitch(padded);
    const bool values = blockIdx.y;
    const struct mat &m = values ? g.dout : a.q;
    const bf16 *x = (const bf16 *)m.p, *bucket = values ? buckets.weights : buckets.slopes;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, tid = threadIdx.x, threads = blockDim.x;
    int first = a.seqs.q[0], total = (a.seqs.q[a.seqs.n] - first) * a.heads;
    uint32_t tile = shared_address(shared), left = tile + TABLE_ROWS * D * 2;
    const struct lanes l = lanes_make<D>(lane);
    float c[D / 8][4] = {};
    for (int n0 = blockIdx.x * TABLE_ROWS; n0 < total; n0 += TABLE_PARTS * TABLE_ROWS) {
        __syncthreads();
        for (int i = tid; i < TABLE_ROWS * chunks; i += threads) {
            int row = i / chunks, chunk = i % chunks, n = n0 + row;
            bool there = n < total;
            const bf16 *from = x + (size_t)(first + n / a.heads) * m.ld + n % a.heads * D;
            copy_chunk(tile + chunk_at<D>(row, chunk), there ? from + chunk * 8 : x, there);
        }
        for (int i = tid; i < TABLE_ROWS * bucket_chunks; i += threads) {
            int row = i / bucket_chunks, chunk = i % bucket_chunks, n = n0 + row;
            bool there = n < total;
            const bf16 *from = bucket + (size_t)n * padded + chunk * 8;
            copy_chunk(left + row * pitch + chunk * 16, there ? from : bucket, there);
        }
        copy_commit();
        copy_wait<0>();
        __syncthreads();
#pragma unroll
        for (int n = 0; n < TABLE_ROWS; n += 16) {
            uint32_t turned[4];
            int row = n + (lane & 7) + (lane >> 4) * 8, column = warp * 16 + (lane >> 3 & 1) * 8;
            load_matrix_turned(turned, left + row * pitch + column * 2);
            add_product<D>(c, turned, tile + n * D * 2, l);
        }
    }
    const float scale = values ? drop_scale : 1 / sqrtf((float)D);
    const int rows = a.relative_k.rows;
    float *to = partial + ((size_t)blockIdx.x * 2 + values) * rows * D;
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int row = warp * 16 + lane / 4 + e / 2 * 8;
            if (row < rows) to[row * D + n * 8 + lane % 4 * 2 + e % 2] = c[n][e] * scale;
        }
}

/* ---- launches ---- */

static int round16(int n)
{
    return (n + 15) / 16 * 16;
}

/* Keys of all sentences, and dq where they fit in shared memory; returns whether they do. */
template <int D, enum form FORM>
static bool launch_whole(const struct attention *a, const struct attention_grad *g,
                         struct chain chain)
{
    const struct seqs *s = &a->seqs;
    struct cut c;
    c.queries = round16(s->max_q), c.keys = round16(s->max_k);
    c.warps = (c.queries > c.keys ? c.queries : c.keys) / 16;
    c.groups = heads_of_block(a, c.warps);
    c.tiles = 1;
    c.widths = widths_of(a);
    if (c.warps == 0) return true;
    int bytes = c.groups * room_bytes<D>(c, true);
    if (a->heads != a->kv_heads || c.warps > MOST_WARPS || bytes > shared_limit()) return false;
    allow_shared((const void *)backward_keys<D, true, FORM>, bytes);
    chain_launch(backward_keys<D, true, FORM>, s->n * (a->heads / c.groups),
                 c.groups * c.warps * 32, bytes, chain, *a, *g, c, drop_site(a->drop));
    return true;
}

template <int D, enum form FORM>
static void launch_keys(const struct attention *a, const struct attention_grad *g, struct cut c,
                        int bytes, cudaStream_t stream)
{
    if (!a->seqs.max_k) return;
    c.tiles = (a->seqs.max_k + c.keys - 1) / c.keys;
    allow_shared((const void *)backward_keys<D, false, FORM>, bytes);
    backward_keys<D, false, FORM>
        <<<a->seqs.n * c.tiles * a->kv_heads, c.warps * 32, bytes, stream>>>(*a, *g, c,
                                                                             drop_site(a->drop));
}

template <int D, enum form FORM>
static void launch_queries(const struct attention *a, const struct attention_grad *g, struct cut c,
                           int bytes, struct buckets buckets, cudaStream_t stream)
{
    if (!a->seqs.max_q) return;
    c.tiles = (a->seqs.max_q + c.queries - 1) / c.queries;
    allow_shared((const void *)backward_queries<D, FORM>, bytes);
    backward_queries<D, FORM><<<a->seqs.n * c.tiles * a->heads, c.warps * 32, bytes, stream>>>(
        *a, *g, c, drop_site(a->drop), buckets);
}

template <int D, enum form FORM>
static bool launch(struct gpu *c, const struct attention *a, const struct attention_grad *g)
{
    struct cut cut;
    if (launch_whole<D, FORM>(a, g, c->chain)) return true;
    cut.queries = cut.keys = PART_ROWS;
    cut.warps = PART_WARPS, cut.groups = 1;
    cut.widths = widths_of(a);
    int bytes = room_bytes<D>(cut, false);
    launch_keys<D, FORM>(a, g, cut, bytes, c->stream);
    launch_queries<D, FORM>(a, g, cut, bytes, {}, c->stream);
    return true;
}

/* The gradients of the tables of the sentences, whose buckets backward_queries has stored. */
template <int D>
static void launch_tables(struct gpu *c, const struct attention *a, const struct attention_grad *g,
                          struct buckets buckets, float *partial)
{
    int padded = relative_padded(*a), rows = a->relative_k.rows;
    int bytes = TABLE_ROWS * (D * 2 + bucket_pitch(padded));
    allow_shared((const void *)backward_tables<D>, bytes);
    backward_tables<D><<<dim3(TABLE_PARTS, 2), padded * 2, bytes, c->stream>>>(
        *a, *g, buckets, padded, drop_site(a->drop).scale, partial);
    struct sums sums = {{(float *)g->drelative_k.p, (float *)g->drelative_v.p}, 2};
    cuda_add_partials(c, sums, partial, TABLE_PARTS, rows * D);
}

/* The scratch block has the partial sums of the tables and the buckets of as many sentences as fit.
 * Returns false where one sentence does not fit. */
template <int D>
static bool launch_relative(struct gpu *c, const struct attention *a,
                            const struct attention_grad *g)
{
    const struct seqs *s = &a->seqs;
    size_t partial = sizeof(float) * TABLE_PARTS * 2 * a->relative_k.rows * D;
    partial = (partial + TILE_ALIGN - 1) / TILE_ALIGN * TILE_ALIGN;
    size_t query = (size_t)a->heads * relative_padded(*a); /* numbers of a query in a bucket */
    size_t queries = (CUDA_SCRATCH - partial) / (2 * query * sizeof(bf16));
    if ((size_t)s->max_q > queries) return false;
    if (!s->max_q && !s->max_k) return true;
    struct buckets buckets;
    buckets.weights = (bf16 *)(c->scratch + partial),
    buckets.slopes = buckets.weights + queries * query;

    struct cut cut;
    int warps = round16(s->max_q > s->max_k ? s->max_q : s->max_k) / 16;
    cut.warps = warps < PART_WARPS ? warps : PART_WARPS, cut.groups = 1;
    cut.queries = cut.keys = cut.warps * 16;
    cut.widths = widths_of(a);
    int bytes = room_bytes<D>(cut, false) + more_bytes<D>(*a, cut);
    launch_keys<D, FORM_RELATIVE>(a, g, cut, bytes, c->stream);
    int step = (size_t)a->q.rows <= queries || !s->max_q ? s->n : (int)(queries / s->max_q);
    for (int first = 0; s->max_q && first < s->n; first += step) {
        struct attention some = *a;
        some.seqs.q += first, some.seqs.k += first, some.seqs.klen += first;
        some.seqs.n = s->n - first < step ? s->n - first : step;
        launch_queries<D, FORM_RELATIVE>(&some, g, cut, bytes, buckets, c->stream);
        launch_tables<D>(c, &some, g, buckets, (float *)c->scratch);
    }
    return true;
}

template <int D>
static bool launch(struct gpu *c, const struct attention *a, const struct attention_grad *g)
{
    enum form form = form_of(a);
    return form == FORM_PAPER      ? launch<D, FORM_PAPER>(c, a, g)
           : form == FORM_DISTANCE ? launch<D, FORM_DISTANCE>(c, a, g)
                                   : launch_relative<D>(c, a, g);
}

bool attention_tiles_backward(struct gpu *c, const struct attention *a,
                              const struct attention_grad *g)
{
    int width = compiled_width(a);
    return width == 32   ? launch<32>(c, a, g)
           : width == 64 ? launch<64>(c, a, g)
                         : launch<128>(c, a, g);
}
