/*
 * attention_rows.cu - attention of one query at a time, heads of up to 128: for decoding steps,
 * where each hypothesis has one query and finds its keys through a table, and for forward in f32.
 *
 * A block computes one head of one query. A row of a head is divided into pieces of 16 bytes, one
 * per lane, so a warp reads several keys at once; the loads of all keys and values of a part are
 * started before the first is used. The lanes that share a key compute an online softmax over the
 * keys they read; these are merged at the end, within a warp and then between warps, in an order
 * that depends on the number of keys alone.
 */
#include "ops/cuda/attention_additive.h"
#include "ops/cuda/attention_parts.h"

enum { WARPS = 4, AHEAD = 8 }; /* AHEAD: keys whose loads are in flight in each lane */

/* Widens a 16-byte piece to floats. */
static __device__ __forceinline__ void widen(float (&x)[8], uint4 p, bf16)
{
    float2 f[4] = {unpack(p.x), unpack(p.y), unpack(p.z), unpack(p.w)};
#pragma unroll
    for (int i = 0; i < 4; i++) x[2 * i] = f[i].x, x[2 * i + 1] = f[i].y;
}

static __device__ __forceinline__ void widen(float (&x)[4], uint4 p, float)
{
    x[0] = __uint_as_float(p.x), x[1] = __uint_as_float(p.y);
    x[2] = __uint_as_float(p.z), x[3] = __uint_as_float(p.w);
}

/* Load and store as many numbers as a piece of a key has; the query and the output may be float
 * where the keys are bf16. */
static __device__ __forceinline__ void load(float (&x)[8], const bf16 *p)
{
    widen(x, *(const uint4 *)p, bf16());
}

template <int N> static __device__ __forceinline__ void load(float (&x)[N], const float *p)
{
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        float4 f = *(const float4 *)(p + i);
        x[i] = f.x, x[i + 1] = f.y, x[i + 2] = f.z, x[i + 3] = f.w;
    }
}

static __device__ __forceinline__ void store(bf16 *p, const float (&x)[8], float scale)
{
    uint32_t h[4];
#pragma unroll
    for (int i = 0; i < 4; i++) h[i] = pack(x[2 * i] * scale, x[2 * i + 1] * scale);
    *(uint4 *)p = make_uint4(h[0], h[1], h[2], h[3]);
}

template <int N>
static __device__ __forceinline__ void store(float *p, const float (&x)[N], float scale)
{
#pragma unroll
    for (int i = 0; i < N; i += 4)
        *(float4 *)(p + i) =
            make_float4(x[i] * scale, x[i + 1] * scale, x[i + 2] * scale, x[i + 3] * scale);
}

/* Adds the piece of a vector for a distance to a piece of a key or a value. */
template <int N>
static __device__ __forceinline__ void add_relative(float (&x)[N], const struct mat &table, int row,
                                                    int column)
{
    float y[N];
    load(y, (const float *)table.p + (size_t)row * table.ld + column);
#pragma unroll
    for (int c = 0; c < N; c++) x[c] += y[c];
}

/* The online softmax over some of the keys. Scores are logarithms to base 2, those of additive
 * attention natural ones: `unit` times a score is a logarithm to base 2. */
template <int N> struct partial {
    float top, sum, o[N];
};

/* Merges the online softmax of other lanes or warps into a. */
template <int N>
static __device__ __forceinline__ void merge(struct partial<N> &a, const struct partial<N> &b,
                                             float unit)
{
    float top = fmaxf(a.top, b.top), from = top == -INFINITY ? 0 : top;
    float x = exp2f((a.top - from) * unit), y = exp2f((b.top - from) * unit);
    a.top = top;
    a.sum = a.sum * x + b.sum * y;
#pragma unroll
    for (int i = 0; i < N; i++) a.o[i] = a.o[i] * x + b.o[i] * y;
}

/* tanh(q + k) of a piece that has a far number. Not inlined: this is rare. */
template <int N> struct numbers {
    float x[N];
};
template <int N>
static __device__ __noinline__ struct numbers<N> tanh_far(struct numbers<N> q,
                                                          struct numbers<N> k) {
    for (int c = 0; c < N; c++) q.x[c] = tanh_any(q.x[c], k.x[c]);
    return q;
}

/* What the columns of a piece add to an additive score. exp_q: e^(2q) */
template <int N>
static __device__ __forceinline__ struct score additive_piece(const float (&row)[N],
                                                              const struct numbers<N> &q,
                                                              const float (&exp_q)[N],
                                                              const float (&k)[N])
{
    struct numbers<N> t;
    bool far = false;
#pragma unroll
    for (int c = 0; c < N; c++) {
        t.x[c] = k[c];
        far = far || additive_far(q.x[c]) || additive_far(k[c]);
    }
    if (far) {
        t = tanh_far(q, t);
    } else {
#pragma unroll
        for (int c = 0; c < N; c++) t.x[c] = tanh_near(exp_q[c], additive_exp(k[c]));
    }
    struct score s = {};
#pragma unroll
    for (int c = 0; c < N; c += 4) {
        float sum = 0;
#pragma unroll
        for (int e = c; e < c + 4; e++) sum = fmaf(row[e], t.x[e], sum);
        score_add(s, sum);
    }
    return s;
}

/* FORMS: reads the members of struct attention from `window` on, and heads have the widths `given`;
 * otherwise both are D. The launch bounds give it no more registers than the kernel without forms
 * takes. */
template <typename Q, typename K, int D, bool FORMS>
static __global__ void __launch_bounds__(WARPS * 32, FORMS ? 4 : 1)
    forward(struct attention a, struct drop_site drop, struct widths given)
{
    const int dk = FORMS ? given.dk : D, dv = FORMS ? given.dv : D;
    const int N = 16 / sizeof(K), LANES = D / N, KEYS = 32 / LANES, PART = KEYS * AHEAD;
    __shared__ struct partial<N> others[WARPS][LANES];
    struct place place = place_of(blockIdx.x, a.heads, a.seqs.max_q);
    int head = place.head, warp = threadIdx.x / 32, lane = threadIdx.x % 32, i = place.tile;
    chain_wait();
    struct sentence s = sentence_at(a.seqs, place.sentence);
    if (i >= s.nq) return;
    struct key_span sees = keys_seen<FORMS>(a, s, i);
    int keys = span_count(sees), piece = lane % LANES, kv_head = kv_head_of(a, head);
    const bool in_k = !FORMS || piece * N < dk, in_v = !FORMS || piece * N < dv;
    if (warp && warp * PART >= keys) return; /* the barrier below counts the other warps alone */
    uint2 mask = dropout_key(drop, (uint64_t)(s.q + i) * a.heads + head);
    const K *k = (const K *)a.k.p + kv_head * dk + piece * N;
    const K *v = (const K *)a.v.p + kv_head * dv + piece * N;
    const Q *from = (const Q *)a.q.p + (size_t)(s.q + i) * a.q.ld + head * dk + piece * N;
    const bool additive = FORMS && a.additive.p, relative = FORMS && a.relative_k.p;
    const float unit = additive ? LOG2_E : 1;
    const float slope = FORMS ? (float)attention_slope(&a, head) * (LOG2_E / unit) : 0;
    const int position = s.behind + i;
    float q[N] = {}, additive_row[N] = {};
    struct numbers<N> additive_q = {
    };
    if (in_k) load(q, from);
    if (additive) {
        const float *row = (const float *)a.additive.p + (size_t)head * a.additive.ld;
        if (in_k) load(additive_row, row + piece * N);
#pragma unroll
        for (int c = 0; c < N; c++) additive_q.x[c] = q[c], q[c] = additive_exp(q[c]);
    } else {
#pragma unroll
        for (int c = 0; c < N; c++) q[c] *= LOG2_E / sqrtf((float)dk);
    }

    struct partial<N> own = {
        - INFINITY
    };
    /* n numbers the keys that the query sees */
    for (int n0 = warp * PART + lane / LANES; n0 - lane / LANES < keys; n0 += WARPS * PART) {
        uint4 kp[AHEAD], vp[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            int n = n0 + u * KEYS, j = span_at(sees, n);
            kp[u] = vp[u] = make_uint4(0, 0, 0, 0);
            if (n >= keys) continue;
            size_t row = a.seqs.at ? a.seqs.at[s.k + j] : s.k + j;
            if (in_k) kp[u] = *(const uint4 *)(k + row * a.k.ld);
            if (in_v) vp[u] = *(const uint4 *)(v + row * a.v.ld);
        }
        struct score score[AHEAD];
        float top = own.top;
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            float x[N], sum = 0, lost = 0;
            int n = n0 + u * KEYS, distance = span_at(sees, n) - position;
            widen(x, kp[u], K());
            if (relative && in_k)
                add_relative(x, a.relative_k, attention_relative_row(&a, distance), piece * N);
            if (additive) {
                struct score whole = additive_piece(additive_row, additive_q, q, x), other;
#pragma unroll
                for (int e = 1; e < LANES; e *= 2) {
                    other.sum = __shfl_xor_sync(~0u, whole.sum, e);
                    other.lost = __shfl_xor_sync(~0u, whole.lost, e);
                    score_merge(whole, other);
                }
                score_add(whole, -slope * abs(distance));
                sum = whole.sum, lost = whole.lost;
            } else {
#pragma unroll
                for (int c = 0; c < N; c++) sum = fmaf(q[c], x[c], sum);
#pragma unroll
                for (int e = 1; e < LANES; e *= 2) sum += __shfl_xor_sync(~0u, sum, e);
                if (FORMS) sum -= slope * abs(distance);
            }
            score[u] = {n < keys ? sum : -INFINITY, n < keys ? lost : 0};
            top = fmaxf(top, score[u].sum);
        }
        float base = top == -INFINITY ? 0 : top, keep = exp2f((own.top - base) * unit);
        own.top = top, own.sum *= keep;
#pragma unroll
        for (int c = 0; c < N; c++) own.o[c] *= keep;
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            int j = span_at(sees, n0 + u * KEYS);
            float x[N], w = exp2f(score_above(score[u], base) * unit);
            own.sum += w;
            if (drop.threshold) w = dropped(drop, mask, j) ? 0 : w * drop.scale;
            widen(x, vp[u], K());
            if (relative && in_v)
                add_relative(x, a.relative_v, attention_relative_row(&a, j - position), piece * N);
#pragma unroll
            for (int c = 0; c < N; c++) own.o[c] = fmaf(w, x[c], own.o[c]);
        }
    }
#pragma unroll
    for (int e = LANES; e < 32; e *= 2) {
        struct partial<N> other;
        other.top = __shfl_xor_sync(~0u, own.top, e);
        other.sum = __shfl_xor_sync(~0u, own.sum, e);
#pragma unroll
        for (int c = 0; c < N; c++) other.o[c] = __shfl_xor_sync(~0u, own.o[c], e);
        merge(own, other, unit);
    }
    if (keys > PART) {
        if (warp && lane < LANES) others[warp][lane] = own;
        int warps = min(WARPS, (keys + PART - 1) / PART);
        asm volatile("bar.sync 1, %0;" ::"r"(warps * 32) : "memory");
        if (warp) return;
        for (int w = 1; w < warps; w++) merge(own, others[w][piece], unit);
    }
    if (lane >= LANES || !in_v) return;
    Q *o = (Q *)a.o.p + (size_t)(s.q + i) * a.o.ld + head * dv + piece * N;
    store(o, own.o, own.sum == 0 ? 0 : 1 / own.sum);
    if (a.lse.p && lane == 0) {
        float lse = additive ? own.top + logf(own.sum) : (own.top + log2f(own.sum)) * LN_2;
        ((float *)a.lse.p)[(size_t)(s.q + i) * a.lse.ld + head] = own.sum == 0 ? -INFINITY : lse;
    }
}

template <typename Q, typename K, bool FORMS>
static void launch(const struct attention *a, struct chain chain)
{
    int width = compiled_width(a);
    auto kernel = width == 32   ? forward<Q, K, 32, FORMS>
                  : width == 64 ? forward<Q, K, 64, FORMS>
                                : forward<Q, K, 128, FORMS>;
    int grid = a->seqs.n * a->seqs.max_q * a->heads;
    chain_launch(kernel, grid, WARPS * 32, 0, chain, *a, drop_site(a->drop), widths_of(a));
}

template <bool FORMS> static void launch(const struct attention *a, struct chain chain)
{
    if (a->q.type == TYPE_BF16)
        launch<bf16, bf16, FORMS>(a, chain);
    else if (a->k.type == TYPE_BF16)
        launch<float, bf16, FORMS>(a, chain);
    else
        launch<float, float, FORMS>(a, chain);
}

void attention_rows_forward(const struct attention *a, struct chain chain)
{
    bool forms = attention_formed(a) || !fills_compiled_width(a);
    forms ? launch<true>(a, chain) : launch<false>(a, chain);
}
