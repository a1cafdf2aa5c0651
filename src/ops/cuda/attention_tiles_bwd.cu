/*
 * attention_tiles_bwd.cu - gradients of attention in bf16 on the tensor cores, heads of 32, 64 or
 * 128. No two blocks write the same memory, so two runs give the same bits.
 *
 * With w the weights, m their dropout factors and delta_i = dout_i . o_i:
 *     dv = (m w)T dout      ds = w (m (dout vT) - delta)
 *     dq = ds k / sqrt(D)   dk = dsT q / sqrt(D)
 *
 * backward_keys: a group of warps computes one head of some keys of a sentence, a warp 16 of them.
 * It goes over the queries with keys as rows, so that the fragments of wT and dsT are left operands
 * of the products of dv and dk. Where the sentence fits in shared memory (WHOLE) it also stores dsT
 * there, and at the end each warp computes dq of 16 queries: all inputs are read once. For longer
 * sentences backward_queries computes dq; it goes over the keys with queries as rows. Where several
 * heads share a key/value head, a group goes over the queries of one of them after the other, and
 * backward_queries computes dq for short sentences as well.
 */
#include "ops/cuda/attention_device.h"
#include "ops/cuda/attention_parts.h"

enum { MOST_WARPS = 8, PART_WARPS = 4, PART_ROWS = PART_WARPS * 16 };

struct cut {
    int warps;         /* of a group */
    int groups;        /* of a block, one per head */
    int tiles;         /* of keys (in backward_queries: of queries) of the longest sentence */
    int queries, keys; /* rows of queries and of keys in shared memory at a time */
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
                                                        int width)
{
    struct heads h;
    int col = head * width, kv_col = kv_head_of(a, head) * width;
    h.q = (const bf16 *)a.q.p + (size_t)s.q * a.q.ld + col;
    h.k = (const bf16 *)a.k.p + (size_t)s.k * a.k.ld + kv_col;
    h.v = (const bf16 *)a.v.p + (size_t)s.k * a.v.ld + kv_col;
    h.o = (const bf16 *)a.o.p + (size_t)s.q * a.o.ld + col;
    h.dout = (const bf16 *)g.dout.p + (size_t)s.q * g.dout.ld + col;
    h.lse = (const float *)a.lse.p + (size_t)s.q * a.lse.ld + head;
    h.row = (uint64_t)s.q * a.heads + head;
    return h;
}

/* Copies queries [first, first + rows), their dout and their facts to shared memory. It waits for
 * the copies of this thread; the caller must synchronize the group. rows is at most 16 per warp. */
template <int D>
static __device__ __forceinline__ void bring_queries(const struct room<D> &room,
                                                     const struct attention &a,
                                                     const struct attention_grad &g,
                                                     const struct heads &h, int nq, int first,
                                                     int rows, const struct drop_site &drop,
                                                     int tid, int threads)
{
    const int chunks = D / 8;
    copy_tile<D>(shared_address(room.q), h.q, a.q.ld, first, rows, nq, tid, threads);
    copy_tile<D>(shared_address(room.dout), h.dout, g.dout.ld, first, rows, nq, tid, threads);
    copy_commit();
    uint4 o[D / 16];
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        int c = tid + i * threads, row = first + c / chunks;
        o[i] = make_uint4(0, 0, 0, 0);
        if (c < rows * chunks && row < nq)
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
template <int D, bool WHOLE>
static __device__ __forceinline__ void keys_step(float (&dk)[D / 8][4], float (&dv)[D / 8][4],
                                                 const struct room<D> &room,
                                                 const struct sentence &sentence, int key, int j0,
                                                 int at, int i0, const struct drop_site &drop,
                                                 int lane, const struct lanes &l)
{
    const float scale = LOG2_E / sqrtf((float)D);
    uint32_t q = row_address<D>(room.q, at), dout = row_address<D>(room.dout, at);
    uint32_t k = row_address<D>(room.k, key), v = row_address<D>(room.v, key);
    float s[2][4] = {}, dw[2][4] = {};
    scores<D>(s, dw, k, q, v, dout, l);
    /* In most tiles every query sees every key, so not each pair has to be checked. */
    bool inside =
        j0 + 16 <= sentence.nk && i0 + 16 <= sentence.nq && j0 + 15 <= i0 + sentence.ahead;
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

/* Launch bounds: the sums of dk and dv take so many registers that this many blocks fit at a time.
 */
template <int D, bool WHOLE> struct bounds {
    enum { THREADS = (WHOLE ? MOST_WARPS : PART_WARPS) * 32 };
    enum { BLOCKS = D == 128 ? 1 : (WHOLE ? 2 : 3) };
};

template <int D, bool WHOLE>
static __global__ void __launch_bounds__(bounds<D, WHOLE>::THREADS, bounds<D, WHOLE>::BLOCKS)
    backward_keys(struct attention a, struct attention_grad g, struct cut cut, struct drop_site drop)
{
    extern __shared__ __align__(TILE_ALIGN) char shared[];
    int warp = threadIdx.x / 32 % cut.warps, group = threadIdx.x / 32 / cut.warps;
    int lane = threadIdx.x % 32, threads = cut.warps * 32, tid = warp * 32 + lane;
    struct place place = place_of(blockIdx.x, a.kv_heads / cut.groups, cut.tiles);
    int kv_head = place.head * cut.groups + group, first = place.tile * cut.keys;
    int sharing = WHOLE ? 1 : a.heads / a.kv_heads; /* heads of the key/value head */
    int head = kv_head * sharing, last_head = head + sharing - 1;
    struct sentence s = sentence_at(a.seqs, place.sentence);
    if (first >= s.nk && !(WHOLE && s.nq)) return;
    struct room<D> room = room_at<D>(shared + group * room_bytes<D>(cut, WHOLE), cut);
    struct heads h = heads_at(a, g, s, head, D);

    int rows = min(cut.keys, (s.nk - first + 15) / 16 * 16);
    copy_tile<D>(shared_address(room.k), h.k, a.k.ld, first, rows, s.nk, tid, threads);
    copy_tile<D>(shared_address(room.v), h.v, a.v.ld, first, rows, s.nk, tid, threads);

    const float scale = 1 / sqrtf((float)D);
    const struct lanes l = lanes_make<D>(lane);
    float dk[D / 8][4] = {}, dv[D / 8][4] = {};
    int key = warp * 16, j0 = first + key;
    /* The first queries that see the block's and the warp's first key. */
    const int start = WHOLE ? 0 : max(0, first - s.ahead) / cut.queries * cut.queries;
    int from = start, own = max(0, j0 - s.ahead) / 16 * 16;
    do {
        int n = max(0, min(cut.queries, (s.nq - from + 15) / 16 * 16));
        bring_queries(room, a, g, h, s.nq, from, n, drop, tid, threads);
        __syncthreads();
        if (j0 < s.nk)
            for (int i = max(from, own); i < from + n; i += 16)
                keys_step<D, WHOLE>(dk, dv, room, s, key, j0, i - from, i, drop, lane, l);
        from += cut.queries;
        if (!WHOLE) __syncthreads();
        if (from >= s.nq && head < last_head) h = heads_at(a, g, s, ++head, D), from = start;
    } while (!WHOLE && from < s.nq);

    if (j0 < s.nk) { /* no other warp reads the rows of v that this warp overwrites */
        bf16 *to = (bf16 *)g.dk.p + (size_t)s.k * g.dk.ld + kv_head * D;
        store_rows<D>(dk, scale, scale, room.v, key, to, g.dk.ld, j0, s.nk, lane);
        to = (bf16 *)g.dv.p + (size_t)s.k * g.dv.ld + kv_head * D;
        store_rows<D>(dv, drop.scale, drop.scale, room.v, key, to, g.dv.ld, j0, s.nk, lane);
    }
    if (!WHOLE) return;
    __syncthreads();
    int at = warp * 16;
    if (at >= s.nq) return;
    float dq[D / 8][4] = {};
    whole_queries<D>(dq, room, at, seen(s, at + 15), lane, l);
    bf16 *to = (bf16 *)g.dq.p + (size_t)s.q * g.dq.ld + head * D;
    store_rows<D>(dq, scale, scale, room.q, at, to, g.dq.ld, at, s.nq, lane);
}

/* Adds to dq of the 16 queries from row `at` on what keys [j0, j0 + 16), at row `key`, contribute.
 */
template <int D>
static __device__ __forceinline__ void queries_step(float (&dq)[D / 8][4],
                                                    const struct room<D> &room,
                                                    const struct query_facts (&f)[2],
                                                    const int (&seen)[2], int at, int key, int j0,
                                                    const struct drop_site &drop, int lane,
                                                    const struct lanes &l)
{
    const float scale = LOG2_E / sqrtf((float)D);
    uint32_t q = row_address<D>(room.q, at), dout = row_address<D>(room.dout, at);
    uint32_t k = row_address<D>(room.k, key), v = row_address<D>(room.v, key);
    float s[2][4] = {}, dw[2][4] = {};
    scores<D>(s, dw, q, k, dout, v, l);
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int j = j0 + n * 8 + lane % 4 * 2 + e % 2;
            bool drop_it = drop.threshold && dropped(drop, f[e / 2].mask, j);
            weigh(s[n][e], dw[n][e], scale, f[e / 2].lse, f[e / 2].delta, j < seen[e / 2], drop_it,
                  drop.scale);
        }
    uint32_t ds[4];
    as_left(ds, dw[0], dw[1]);
    add_product<D>(dq, ds, k, l);
}

template <int D>
static __global__ void __launch_bounds__(PART_WARPS * 32)
    backward_queries(struct attention a, struct attention_grad g, struct cut cut, struct drop_site drop)
{
    extern __shared__ __align__(TILE_ALIGN) char shared[];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, tid = threadIdx.x;
    struct place place = place_of(blockIdx.x, a.heads, cut.tiles);
    int head = place.head, first = place.tile * cut.queries;
    struct sentence s = sentence_at(a.seqs, place.sentence);
    if (first >= s.nq) return;
    struct room<D> room = room_at<D>(shared, cut);
    struct heads h = heads_at(a, g, s, head, D);
    int rows = min(cut.queries, (s.nq - first + 15) / 16 * 16);
    bring_queries(room, a, g, h, s.nq, first, rows, drop, tid, PART_WARPS * 32);
    __syncthreads();

    const struct lanes l = lanes_make<D>(lane);
    float dq[D / 8][4] = {};
    int at = warp * 16, i0 = first + at;
    struct query_facts f[2] = {};
    int sees[2] = {}, last = 0;
    if (i0 < s.nq) {
        last = seen(s, min(i0 + 15, s.nq - 1));
        for (int r = 0; r < 2; r++) {
            f[r] = room.facts[at + lane / 4 + 8 * r];
            sees[r] = seen(s, i0 + lane / 4 + 8 * r);
        }
    }
    int end = seen(s, min(first + cut.queries, s.nq) - 1);
    for (int j0 = 0; j0 < end; j0 += cut.keys) {
        int n = min(cut.keys, (end - j0 + 15) / 16 * 16);
        copy_tile<D>(shared_address(room.k), h.k, a.k.ld, j0, n, s.nk, tid, PART_WARPS * 32);
        copy_tile<D>(shared_address(room.v), h.v, a.v.ld, j0, n, s.nk, tid, PART_WARPS * 32);
        copy_commit();
        copy_wait<0>();
        __syncthreads();
        for (int j = j0; j < min(j0 + n, last); j += 16)
            queries_step<D>(dq, room, f, sees, at, j - j0, j, drop, lane, l);
        __syncthreads();
    }
    if (i0 >= s.nq) return;
    const float scale = 1 / sqrtf((float)D);
    bf16 *to = (bf16 *)g.dq.p + (size_t)s.q * g.dq.ld + head * D;
    store_rows<D>(dq, scale, scale, room.q, at, to, g.dq.ld, i0, s.nq, lane);
}

static int round16(int n)
{
    return (n + 15) / 16 * 16;
}

template <int D>
static void launch(const struct attention *a, const struct attention_grad *g, cudaStream_t stream)
{
    const struct seqs *s = &a->seqs;
    struct drop_site drop = drop_site(a->drop);
    struct cut c;
    c.queries = round16(s->max_q), c.keys = round16(s->max_k);
    c.warps = (c.queries > c.keys ? c.queries : c.keys) / 16;
    c.groups = heads_of_block(a, c.warps);
    c.tiles = 1;
    if (c.warps == 0) return;
    int bytes = c.groups * room_bytes<D>(c, true);
    if (a->heads == a->kv_heads && c.warps <= MOST_WARPS && bytes <= shared_limit()) {
        allow_shared((const void *)backward_keys<D, true>, bytes);
        backward_keys<D, true>
            <<<s->n *(a->heads / c.groups), c.groups * c.warps * 32, bytes, stream>>>(*a, *g, c,
                                                                                      drop);
        return;
    }
    c.queries = c.keys = PART_ROWS;
    c.warps = PART_WARPS, c.groups = 1;
    bytes = room_bytes<D>(c, false);
    if (s->max_k) {
        c.tiles = (s->max_k + PART_ROWS - 1) / PART_ROWS;
        allow_shared((const void *)backward_keys<D, false>, bytes);
        backward_keys<D, false>
            <<<s->n * c.tiles * a->kv_heads, PART_WARPS * 32, bytes, stream>>>(*a, *g, c, drop);
    }
    if (s->max_q) {
        c.tiles = (s->max_q + PART_ROWS - 1) / PART_ROWS;
        allow_shared((const void *)backward_queries<D>, bytes);
        backward_queries<D>
            <<<s->n * c.tiles * a->heads, PART_WARPS * 32, bytes, stream>>>(*a, *g, c, drop);
    }
}

void attention_tiles_backward(const struct attention *a, const struct attention_grad *g,
                              cudaStream_t stream)
{
    int width = attention_dk(a);
    if (width == 32)
        launch<32>(a, g, stream);
    else if (width == 64)
        launch<64>(a, g, stream);
    else
        launch<128>(a, g, stream);
}
