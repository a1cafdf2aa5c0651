/*
 * attention_additive.cu - additive attention and its gradients in f32 arithmetic, heads of up to
 * 128 of any alignment and type.
 *
 * A block computes one head of TILE queries, or in backward_keys one key/value head of TILE keys:
 * these are its own rows. It goes over the keys, or queries, TILE at a time: the other rows. Both
 * are in shared memory as floats, q and k as e^(2q) and e^(2k): see attention_additive.h. A thread
 * first computes the scores of pairs of own and other rows, which it writes to shared memory as
 * weights or slopes, and then sums over the other rows in some columns of its own rows. Backward
 * evaluates tanh in both, since tanh of all pairs and columns does not fit in shared memory.
 *
 * Evaluating tanh takes nearly all of the time: one reciprocal each, of which an SM computes 16 a
 * clock. So groups of pairs that no query sees are skipped, and a thread has OWN times `others`
 * pairs, so that it loads little from shared memory.
 */
#include "ops/cuda/attention_additive.h"
#include "ops/cuda/attention_parts.h"

enum {
    TILE = 32,
    OWN = 4,           /* own rows of a thread: row, row + STEP, ... */
    STEP = TILE / OWN, /* rows between these */
    COLUMNS = 8,       /* columns of a thread: two groups of 4 */
    GROUPS = COLUMNS / 4,
};

/* How the D threads of a block share a tile. */
template <int D> struct layout {
    static const int lanes = D / COLUMNS;   /* threads that share their own rows */
    static const int others = TILE / lanes; /* other rows of a thread: lane, lane + lanes, ... */
    static const int group = D / GROUPS;    /* columns between the two groups of a thread */
    static const int pitch = D + 4;         /* floats between rows: no bank conflicts */
    static const int pair_pitch = TILE + 1;
    static const int tile_floats = TILE * pitch;
    static const int pair_floats = TILE * pair_pitch;
};

/* What a thread computes. */
struct thread {
    int row;  /* first of its own rows */
    int lane; /* first of its other rows; its columns are 4 * lane and the next 3 of each group */
};

template <int D> static __device__ __forceinline__ struct thread thread_here(void)
{
    return {(int)threadIdx.x / layout<D>::lanes, (int)threadIdx.x % layout<D>::lanes};
}

/* Sums over the threads that share their own rows; each gets the result. */
template <int D> static __device__ __forceinline__ float lanes_sum(float x)
{
#pragma unroll
    for (int e = 1; e < layout<D>::lanes; e *= 2) x += __shfl_xor_sync(~0u, x, e);
    return x;
}

template <int D> static __device__ __forceinline__ float lanes_max(float x)
{
#pragma unroll
    for (int e = 1; e < layout<D>::lanes; e *= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, e));
    return x;
}

/* ---- tiles ---- */

/* A thread writes one column. It starts AHEAD loads before it uses the first; those of rows and
 * columns that are not there read others instead. */
template <int D, bool EXP, typename T>
static __device__ __forceinline__ bool bring_as(float *to, const T *from, int ld, int n, int width)
{
    enum { AHEAD = 16 };
    const int c = threadIdx.x;
    bool far = false;
    from += min(c, width - 1);
    for (int r0 = 0; r0 < TILE; r0 += AHEAD) {
        T x[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) x[u] = from[(size_t)min(r0 + u, n - 1) * ld];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            bool there = r0 + u < n && c < width;
            float y = (float)x[u];
            far = far || (EXP && there && additive_far(y));
            to[(r0 + u) * layout<D>::pitch + c] = !there ? 0 : EXP ? additive_exp(y) : y;
        }
    }
    return far;
}

/* Writes n rows of a head, from this row and column of m on, to a tile, and zeros after these rows
 * and after `width` columns; EXP: e^(2x) instead of each number x. Returns whether one that this
 * thread has written is far. */
template <int D, bool EXP>
static __device__ __forceinline__ bool bring(float *to, const struct mat &m, int row, int n,
                                             int column, int width)
{
    size_t at = (size_t)row * m.ld + column;
    if (m.type == TYPE_BF16) return bring_as<D, EXP>(to, (const bf16 *)m.p + at, m.ld, n, width);
    return bring_as<D, EXP>(to, (const float *)m.p + at, m.ld, n, width);
}

/* Writes the row of a head of `additive`, and zeros after it. */
template <int D>
static __device__ __forceinline__ void bring_vector(float *to, const struct attention &a, int head,
                                                    int dk)
{
    int c = threadIdx.x;
    to[c] = c < dk ? element(a.additive, head, c) : 0;
}

/* What backward needs of a query besides its rows. */
struct facts {
    float lse, delta; /* delta = dout . o */
    uint2 mask;       /* of dropout */
};

/* The thread's part of the product of two rows of a head, of which it has every lanes-th column.
 * Loads come before sums, as in bring_as. */
template <int D, typename T>
static __device__ __forceinline__ float row_product(const T *x, const T *y, int width, int lane)
{
    T a[COLUMNS], b[COLUMNS];
    float sum = 0;
#pragma unroll
    for (int k = 0; k < COLUMNS; k++) {
        int c = min(lane + k * layout<D>::lanes, width - 1);
        a[k] = x[c], b[k] = y[c];
    }
#pragma unroll
    for (int k = 0; k < COLUMNS; k++)
        if (lane + k * layout<D>::lanes < width) sum = fmaf((float)a[k], (float)b[k], sum);
    return sum;
}

/* The facts of TILE queries from query i on; those after the last query are those of the last. */
template <int D>
static __device__ __forceinline__ void bring_facts(struct facts *to, const struct attention &a,
                                                   const struct attention_grad &g,
                                                   const struct drop_site &drop,
                                                   const struct sentence &s, int i, int head,
                                                   int dv)
{
    const struct thread me = thread_here<D>();
    for (int r = me.row; r < TILE; r += STEP) {
        int row = min(s.q + i + r, s.q + s.nq - 1);
        size_t dout = (size_t)row * g.dout.ld + head * dv, o = (size_t)row * a.o.ld + head * dv;
        float delta = a.o.type == TYPE_BF16 ? row_product<D>((const bf16 *)g.dout.p + dout,
                                                             (const bf16 *)a.o.p + o, dv, me.lane)
                                            : row_product<D>((const float *)g.dout.p + dout,
                                                             (const float *)a.o.p + o, dv, me.lane);
        delta = lanes_sum<D>(delta);
        if (me.lane) continue;
        to[r].lse = element(a.lse, row, head);
        to[r].delta = delta;
        to[r].mask = dropout_key(drop, (uint64_t)row * a.heads + head);
    }
}

/* ---- which pairs count ---- */

static __device__ __forceinline__ bool sees(const struct attention &a, const struct sentence &s,
                                            int i, int j)
{
    return i < s.nq && j < s.nk && j <= i + s.ahead && in_window(a, s.behind + i, j);
}

/* Whether some of ni queries from i on see some of nj keys from j on; also true in some cases where
 * none does. */
static __device__ __forceinline__ bool some_seen(const struct attention &a,
                                                 const struct sentence &s, int i, int ni, int j,
                                                 int nj)
{
    int last = min(i + ni, s.nq) - 1, position = s.behind + i;
    if (i >= s.nq || j >= s.nk || j > last + s.ahead) return false;
    if (!a.window || j < a.global || position < a.global) return true;
    return j + nj > position - a.window && j <= s.behind + last + a.window;
}

/* The pairs of a thread: bit i * others + o is set where pairs of number i of the own and number o
 * of the other rows of some thread count. `keys`: the own rows are keys. */
template <int D>
static __device__ __forceinline__ unsigned live_pairs(const struct attention &a,
                                                      const struct sentence &s, int own, int other,
                                                      bool keys)
{
    const int others = layout<D>::others, lanes = layout<D>::lanes;
    int n = threadIdx.x % 32;
    int x = own + n / others * STEP, y = other + n % others * lanes;
    bool live = n < OWN * others &&
                (keys ? some_seen(a, s, y, lanes, x, STEP) : some_seen(a, s, x, STEP, y, lanes));
    return __ballot_sync(~0u, live);
}

template <int D> static __device__ __forceinline__ bool is_live(unsigned live, int own, int other)
{
    return live >> (own * layout<D>::others + other) & 1;
}

/* ---- scores ---- */

static __device__ __forceinline__ void load4(float (&x)[4], const float *p)
{
    float4 f = *(const float4 *)p;
    x[0] = f.x, x[1] = f.y, x[2] = f.z, x[3] = f.w;
}

/* The scores of the thread's pairs, from e^(2x) of own and other rows that have no far number. */
template <int D>
static __device__ __forceinline__ void near_scores(struct score (&s)[OWN][layout<D>::others],
                                                   const float *own, const float *other,
                                                   const float *vector, int dk, unsigned live)
{
    const int others = layout<D>::others;
    const struct thread me = thread_here<D>();
    own += me.row * layout<D>::pitch, other += me.lane * layout<D>::pitch;
    for (int c = 0; c < dk; c += 4) {
        float v[4], x[OWN][4], y[others][4];
        load4(v, vector + c);
#pragma unroll
        for (int i = 0; i < OWN; i++) load4(x[i], own + i * STEP * layout<D>::pitch + c);
#pragma unroll
        for (int o = 0; o < others; o++)
            load4(y[o], other + o * layout<D>::lanes * layout<D>::pitch + c);
#pragma unroll
        for (int i = 0; i < OWN; i++)
#pragma unroll
            for (int o = 0; o < others; o++) {
                if (!is_live<D>(live, i, o)) continue;
                float sum = 0;
#pragma unroll
                for (int e = 0; e < 4; e++) sum = fmaf(v[e], tanh_near(x[i][e], y[o][e]), sum);
                score_add(s[i][o], sum);
            }
    }
}

/* The same for any numbers, which it reads from the matrices. Own and other rows begin with query
 * or key number `own` and `other` of the sentence. */
template <int D>
static __device__ __noinline__ void far_scores(struct score (&s)[OWN][layout<D>::others],
                                               const struct attention &a,
                                               const struct sentence &sentence, int head, int dk,
                                               int own, int other, bool keys)
{
    const struct thread me = thread_here<D>();
    for (int i = 0; i < OWN; i++)
        for (int o = 0; o < layout<D>::others; o++) {
            int x = own + me.row + i * STEP, y = other + me.lane + o * layout<D>::lanes;
            int query = keys ? y : x, key = keys ? x : y;
            if (sees(a, sentence, query, key))
                s[i][o] = additive_score(a, head, dk, sentence.q + query, sentence.k + key);
        }
}

/* The scores of the thread's pairs. far: a row has a far number. A call by reference would keep the
 * scores in memory, so the rare one has a copy. */
template <int D>
static __device__ __forceinline__ void pair_scores(struct score (&s)[OWN][layout<D>::others],
                                                   const struct attention &a,
                                                   const struct sentence &sentence, int head,
                                                   int dk, const float *own_tile,
                                                   const float *other_tile, const float *vector,
                                                   int own, int other, bool keys, unsigned live,
                                                   bool far)
{
    if (!far) {
        near_scores<D>(s, own_tile, other_tile, vector, dk, live);
        return;
    }
    struct score found[OWN][layout<D>::others] = {
    };
    far_scores<D>(found, a, sentence, head, dk, own, other, keys);
#pragma unroll
    for (int i = 0; i < OWN; i++)
#pragma unroll
        for (int o = 0; o < layout<D>::others; o++) s[i][o] = found[i][o];
}

/* dot[i][o] = own row i . other row o */
template <int D>
static __device__ __forceinline__ void dots(float (&dot)[OWN][layout<D>::others], const float *own,
                                            const float *other, int width, unsigned live)
{
    const int others = layout<D>::others;
    const struct thread me = thread_here<D>();
    own += me.row * layout<D>::pitch, other += me.lane * layout<D>::pitch;
    for (int c = 0; c < width; c += 4) {
        float x[OWN][4], y[others][4];
#pragma unroll
        for (int i = 0; i < OWN; i++) load4(x[i], own + i * STEP * layout<D>::pitch + c);
#pragma unroll
        for (int o = 0; o < others; o++)
            load4(y[o], other + o * layout<D>::lanes * layout<D>::pitch + c);
#pragma unroll
        for (int i = 0; i < OWN; i++)
#pragma unroll
            for (int o = 0; o < others; o++) {
                if (!is_live<D>(live, i, o)) continue;
#pragma unroll
                for (int e = 0; e < 4; e++) dot[i][o] = fmaf(x[i][e], y[o][e], dot[i][o]);
            }
    }
}

/* What alibi adds to the score of query i and key j. */
static __device__ __forceinline__ float alibi_of(float slope, const struct sentence &s, int i,
                                                 int j)
{
    return -slope * (float)abs(j - (s.behind + i));
}

/* ---- sums over the other rows ---- */

/* to += the sum over n other rows of pairs[own row][other row] times the other row. Of a group of
 * columns beyond `width`, nothing is computed. */
template <int D>
static __device__ __forceinline__ void add_rows(float (&to)[OWN][COLUMNS], const float *pairs,
                                                const float *other, int n, int width)
{
    const struct thread me = thread_here<D>();
    pairs += me.row * layout<D>::pair_pitch, other += 4 * me.lane;
    for (int o = 0; o < n; o++)
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            if (g * layout<D>::group >= width) continue;
            float y[4];
            load4(y, other + o * layout<D>::pitch + g * layout<D>::group);
#pragma unroll
            for (int i = 0; i < OWN; i++) {
                float w = pairs[i * STEP * layout<D>::pair_pitch + o];
#pragma unroll
                for (int e = 0; e < 4; e++) to[i][g * 4 + e] = fmaf(w, y[e], to[i][g * 4 + e]);
            }
        }
}

/* to += vector times the sum over n other rows of slope (1 - t t), where t = tanh(own + other) and
 * slopes[own row][other row] is the gradient of a score. VECTOR: dvector += the sum over the
 * thread's own rows and the other rows of slope t. own, other: e^(2x) */
template <int D, bool VECTOR>
static __device__ __forceinline__ void near_gradient(float (&to)[OWN][COLUMNS],
                                                     float (&dvector)[COLUMNS], const float *own,
                                                     const float *other, const float *slopes,
                                                     const float *vector, int n, int dk,
                                                     unsigned live)
{
    const struct thread me = thread_here<D>();
    own += me.row * layout<D>::pitch + 4 * me.lane, other += 4 * me.lane, vector += 4 * me.lane;
    slopes += me.row * layout<D>::pair_pitch;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        const int column = g * layout<D>::group;
        if (column >= dk) continue;
        float x[OWN][4], sum[OWN][4] = {}, v[4];
        load4(v, vector + column);
#pragma unroll
        for (int i = 0; i < OWN; i++) load4(x[i], own + i * STEP * layout<D>::pitch + column);
        /* Two at a time, to hide the latency of reciprocals. After the last row slopes are 0. */
        for (int o = 0; o < n; o += 2) {
            float y[2][4];
            load4(y[0], other + o * layout<D>::pitch + column);
            load4(y[1], other + (o + 1) * layout<D>::pitch + column);
#pragma unroll
            for (int i = 0; i < OWN; i++) {
                if (!is_live<D>(live, i, o / layout<D>::lanes)) continue;
                const float *slope = slopes + i * STEP * layout<D>::pair_pitch + o;
#pragma unroll
                for (int e = 0; e < 8; e++) {
                    float t = tanh_near(x[i][e % 4], y[e / 4][e % 4]);
                    sum[i][e % 4] = fmaf(slope[e / 4], fmaf(-t, t, 1), sum[i][e % 4]);
                    float &dv = dvector[g * 4 + e % 4];
                    if (VECTOR) dv = fmaf(slope[e / 4], t, dv);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < OWN; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) to[i][g * 4 + e] = fmaf(sum[i][e], v[e], to[i][g * 4 + e]);
    }
}

/* The same for any numbers, which it reads from x, the matrix of the own rows, and y. The rows
 * begin with x_row and y_row, and the head with x_col and y_col. */
template <int D>
static __device__ __noinline__ void far_gradient(float (&to)[OWN][COLUMNS],
                                                 float (&dvector)[COLUMNS], const struct mat &x,
                                                 int x_row, int x_col, const struct mat &y,
                                                 int y_row, int y_col, const float *slopes,
                                                 const float *vector, int n, int dk)
{
    const struct thread me = thread_here<D>();
    for (int c = 0; c < COLUMNS; c++) {
        int column = c / 4 * layout<D>::group + 4 * me.lane + c % 4;
        for (int i = 0; i < OWN && column < dk; i++) {
            int row = me.row + i * STEP;
            float sum = 0;
            for (int o = 0; o < n; o++) {
                float slope = slopes[row * layout<D>::pair_pitch + o];
                if (slope == 0) continue; /* rows that are not there among them */
                float t = tanh_any(element(x, x_row + row, x_col + column),
                                   element(y, y_row + o, y_col + column));
                sum = fmaf(slope, fmaf(-t, t, 1), sum);
                dvector[c] = fmaf(slope, t, dvector[c]);
            }
            to[i][c] = fmaf(sum, vector[column], to[i][c]);
        }
    }
}

/* One side of a tile of pairs: its matrix, the tile with e^(2x), and where its rows begin. */
struct side {
    const struct mat &m;
    const float *tile;
    int row, column;
};

/* Adds to sums over the other rows, and to the gradient of `additive`. far: a row has a far number.
 */
template <int D, bool VECTOR>
static __device__ __forceinline__ void gradient(float (&to)[OWN][COLUMNS],
                                                float (&dvector)[COLUMNS], const struct side &own,
                                                const struct side &other, const float *slopes,
                                                const float *vector, int n, int dk, unsigned live,
                                                bool far)
{
    if (!far) {
        near_gradient<D, VECTOR>(to, dvector, own.tile, other.tile, slopes, vector, n, dk, live);
        return;
    }
    float more[OWN][COLUMNS] = {}, dmore[COLUMNS] = {}; /* not kept in memory but for this call */
    far_gradient<D>(more, dmore, own.m, own.row, own.column, other.m, other.row, other.column,
                    slopes, vector, n, dk);
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        if (VECTOR) dvector[c] += dmore[c];
#pragma unroll
        for (int i = 0; i < OWN; i++) to[i][c] += more[i][c];
    }
}

/* Stores the thread's sums times scale[i] in n rows of a head, from this row and column of m on. */
template <int D>
static __device__ __forceinline__ void store(const struct mat &m, int row, int n, int column,
                                             int width, const float (&x)[OWN][COLUMNS],
                                             const float (&scale)[OWN])
{
    const struct thread me = thread_here<D>();
#pragma unroll
    for (int i = 0; i < OWN; i++)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            int r = me.row + i * STEP, at = c / 4 * layout<D>::group + 4 * me.lane + c % 4;
            if (r < n && at < width) set_element(m, row + r, column + at, x[i][c] * scale[i]);
        }
}

/* ---- forward ---- */

/* Blocks that have room in the shared memory of an SM, 228 KiB on Hopper, of which each takes 1 KiB
 * more than it asks for. This limits their registers. */
static constexpr int blocks_that_fit(int floats)
{
    return (228 << 10) / (floats * 4 + 1024);
}

template <int D> static constexpr int forward_floats(void)
{
    return 3 * layout<D>::tile_floats + layout<D>::pair_floats + D;
}

template <int D>
static __global__ void __launch_bounds__(D, blocks_that_fit(forward_floats<D>()))
    forward(const __grid_constant__ struct attention a, struct drop_site drop, int tiles)
{
    extern __shared__ __align__(16) float shared[];
    float *q = shared, *k = q + layout<D>::tile_floats, *v = k + layout<D>::tile_floats;
    float *weights = v + layout<D>::tile_floats, *vector = weights + layout<D>::pair_floats;
    const int others = layout<D>::others, dk = a.q.cols / a.heads, dv = a.o.cols / a.heads;
    const struct thread me = thread_here<D>();
    struct place place = place_of(blockIdx.x, a.heads, tiles);
    int head = place.head, kv_head = kv_head_of(a, head), first = place.tile * TILE;
    struct sentence s = sentence_at(a.seqs, place.sentence);
    if (first >= s.nq) return;
    int n = min(TILE, s.nq - first);
    bool own_far = bring<D, true>(q, a.q, s.q + first, n, head * dk, dk);
    bring_vector<D>(vector, a, head, dk);
    struct key_span need =
        span_both(keys_seen<true>(a, s, first), keys_seen<true>(a, s, first + n - 1));
    const float slope = (float)attention_slope(&a, head);
    uint2 mask[OWN];
    float o[OWN][COLUMNS] = {}, top[OWN], sum[OWN] = {};
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        top[i] = -INFINITY;
        mask[i] = dropout_key(drop, (uint64_t)(s.q + first + me.row + i * STEP) * a.heads + head);
    }

    for (int block = span_block(need, -1, TILE); block * TILE < need.to;
         block = span_block(need, block, TILE)) {
        int j0 = block * TILE, keys = min(TILE, s.nk - j0);
        __syncthreads();
        bool far = bring<D, true>(k, a.k, s.k + j0, keys, kv_head * dk, dk);
        bring<D, false>(v, a.v, s.k + j0, keys, kv_head * dv, dv);
        far = __syncthreads_or(far || own_far);
        unsigned live = live_pairs<D>(a, s, first, j0, false);
        struct score score[OWN][others] = {};
        pair_scores<D>(score, a, s, head, dk, q, k, vector, first, j0, false, live, far);
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            int row = me.row + i * STEP;
            float best = top[i], part = 0;
#pragma unroll
            for (int e = 0; e < others; e++) {
                int j = j0 + me.lane + e * layout<D>::lanes;
                if (sees(a, s, first + row, j))
                    score_add(score[i][e], alibi_of(slope, s, first + row, j));
                else
                    score[i][e] = {-INFINITY, 0};
                best = fmaxf(best, score[i][e].sum);
            }
            best = lanes_max<D>(best);
            float base = best == -INFINITY ? 0 : best, keep = exp2_fast((top[i] - base) * LOG2_E);
            top[i] = best;
#pragma unroll
            for (int e = 0; e < others; e++) {
                int column = me.lane + e * layout<D>::lanes;
                float w = exp2_fast(score_above(score[i][e], base) * LOG2_E);
                part += w;
                if (drop.threshold && dropped(drop, mask[i], j0 + column)) w = 0;
                weights[row * layout<D>::pair_pitch + column] = w;
            }
            sum[i] = sum[i] * keep + lanes_sum<D>(part);
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) o[i][c] *= keep;
        }
        __syncwarp(); /* a row of weights belongs to lanes of one warp */
        add_rows<D>(o, weights, v, keys, dv);
    }

    float scale[OWN];
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        int row = me.row + i * STEP;
        scale[i] = sum[i] == 0 ? 0 : drop.scale / sum[i]; /* 0: it sees no key */
        if (a.lse.p && me.lane == 0 && row < n)
            set_element(a.lse, s.q + first + row, head,
                        sum[i] == 0 ? -INFINITY : top[i] + logf(sum[i]));
    }
    store<D>(a.o, s.q + first, n, head * dv, dv, o, scale);
}

/* ---- backward ---- */

template <int D> static constexpr int backward_floats(void)
{
    return 4 * layout<D>::tile_floats + 2 * layout<D>::pair_floats + D +
           TILE * (int)(sizeof(struct facts) / sizeof(float));
}

/* The shared memory of a block. */
template <int D> struct room {
    float *q, *k, *v, *dout;
    float *weights, *slopes; /* after dropout; the gradients of scores: [own row][other row] */
    float *vector;
    struct facts *facts;
};

template <int D> static __device__ __forceinline__ struct room<D> room_at(float *p) {
    struct room<D> r;
    r.q = p, r.k = r.q + layout<D>::tile_floats;
    r.v = r.k + layout<D>::tile_floats, r.dout = r.v + layout<D>::tile_floats;
    r.weights = r.dout + layout<D>::tile_floats, r.slopes = r.weights + layout<D>::pair_floats;
    r.vector = r.slopes + layout<D>::pair_floats, r.facts = (struct facts *)(r.vector + D);
    return r;
}

/* Writes the weights and slopes of the pairs of own and other rows, which begin with query or key
 * number `own` and `other` of the sentence. */
template <int D, bool KEYS>
static __device__ __forceinline__ void weigh_pairs(
    const struct room<D> &room, const struct attention &a, const struct drop_site &drop,
    const struct sentence &s, int head, int dk, int dv, int own, int other, unsigned live, bool far)
{
    const int others = layout<D>::others;
    const struct thread me = thread_here<D>();
    const float slope = (float)attention_slope(&a, head);
    struct score score[OWN][others] = {};
    float dw[OWN][others] = {};
    pair_scores<D>(score, a, s, head, dk, KEYS ? room.k : room.q, KEYS ? room.q : room.k,
                   room.vector, own, other, KEYS, live, far);
    dots<D>(dw, KEYS ? room.v : room.dout, KEYS ? room.dout : room.v, dv, live);
#pragma unroll
    for (int i = 0; i < OWN; i++)
#pragma unroll
        for (int e = 0; e < others; e++) {
            int x = me.row + i * STEP, y = me.lane + e * layout<D>::lanes;
            int query = KEYS ? other + y : own + x, key = KEYS ? own + x : other + y;
            float w = 0, ds = 0;
            if (sees(a, s, query, key)) {
                struct facts f = room.facts[KEYS ? y : x];
                score_add(score[i][e], alibi_of(slope, s, query, key));
                w = exp2_fast(score_above(score[i][e], f.lse) * LOG2_E);
                float factor = drop.threshold && dropped(drop, f.mask, key) ? 0 : drop.scale;
                ds = w * (dw[i][e] * factor - f.delta);
                w *= factor;
            }
            room.slopes[x * layout<D>::pair_pitch + y] = ds;
            if (KEYS) room.weights[x * layout<D>::pair_pitch + y] = w;
        }
    __syncwarp(); /* a row of pairs belongs to lanes of one warp */
}

template <int D>
static __global__ void __launch_bounds__(D, blocks_that_fit(backward_floats<D>()))
    backward_keys(const __grid_constant__ struct attention a,
                  const __grid_constant__ struct attention_grad g, struct drop_site drop, int tiles)
{
    extern __shared__ __align__(16) float shared[];
    const struct room<D> room = room_at<D>(shared);
    const int dk = a.q.cols / a.heads, dv = a.o.cols / a.heads, sharing = a.heads / a.kv_heads;
    struct place place = place_of(blockIdx.x, a.kv_heads, tiles);
    int kv_head = place.head, first = place.tile * TILE;
    struct sentence s = sentence_at(a.seqs, place.sentence);
    if (first >= s.nk) return;
    int n = min(TILE, s.nk - first);
    bool own_far = bring<D, true>(room.k, a.k, s.k + first, n, kv_head * dk, dk);
    bring<D, false>(room.v, a.v, s.k + first, n, kv_head * dv, dv);
    struct key_span need = span_both(queries_seeing(a, first, s.nq, s.nk),
                                     queries_seeing(a, first + n - 1, s.nq, s.nk));
    float sum_k[OWN][COLUMNS] = {}, sum_v[OWN][COLUMNS] = {}, dvector[COLUMNS] = {};
    for (int head = kv_head * sharing; head < (kv_head + 1) * sharing; head++)
        for (int block = span_block(need, -1, TILE); block * TILE < need.to;
             block = span_block(need, block, TILE)) {
            int i0 = block * TILE, queries = min(TILE, s.nq - i0);
            __syncthreads();
            bool far = bring<D, true>(room.q, a.q, s.q + i0, queries, head * dk, dk);
            bring<D, false>(room.dout, g.dout, s.q + i0, queries, head * dv, dv);
            bring_vector<D>(room.vector, a, head, dk);
            bring_facts<D>(room.facts, a, g, drop, s, i0, head, dv);
            far = __syncthreads_or(far || own_far);
            unsigned live = live_pairs<D>(a, s, first, i0, true);
            weigh_pairs<D, true>(room, a, drop, s, head, dk, dv, first, i0, live, far);
            add_rows<D>(sum_v, room.weights, room.dout, queries, dv);
            gradient<D, false>(sum_k, dvector, {a.k, room.k, s.k + first, kv_head * dk},
                               {a.q, room.q, s.q + i0, head * dk}, room.slopes, room.vector,
                               queries, dk, live, far);
        }
    const float one[OWN] = {1, 1, 1, 1};
    store<D>(g.dk, s.k + first, n, kv_head * dk, dk, sum_k, one);
    store<D>(g.dv, s.k + first, n, kv_head * dv, dv, sum_v, one);
}

/* The tiles of queries of all sentences are divided into parts, of which a block computes one in
 * one head: every parts-th tile. partial: [parts, H, dk], the gradient of `additive` of each. */
template <int D>
static __global__ void __launch_bounds__(D, blocks_that_fit(backward_floats<D>()))
    backward_queries(const __grid_constant__ struct attention a,
                     const __grid_constant__ struct attention_grad g, struct drop_site drop,
                     int tiles, int parts, float *partial)
{
    extern __shared__ __align__(16) float shared[];
    const struct room<D> room = room_at<D>(shared);
    const int dk = a.q.cols / a.heads, dv = a.o.cols / a.heads;
    const struct thread me = thread_here<D>();
    const float one[OWN] = {1, 1, 1, 1};
    int head = blockIdx.x % a.heads, part = blockIdx.x / a.heads, kv_head = kv_head_of(a, head);
    float dvector[COLUMNS] = {};
    bring_vector<D>(room.vector, a, head, dk);
    for (int tile = part; tile < a.seqs.n * tiles; tile += parts) {
        int first = tile % tiles * TILE;
        struct sentence s = sentence_at(a.seqs, tile / tiles);
        if (first >= s.nq) continue;
        int n = min(TILE, s.nq - first);
        __syncthreads();
        bool own_far = bring<D, true>(room.q, a.q, s.q + first, n, head * dk, dk);
        bring<D, false>(room.dout, g.dout, s.q + first, n, head * dv, dv);
        bring_facts<D>(room.facts, a, g, drop, s, first, head, dv);
        struct key_span need =
            span_both(keys_seen<true>(a, s, first), keys_seen<true>(a, s, first + n - 1));
        float sum_q[OWN][COLUMNS] = {};
        for (int block = span_block(need, -1, TILE); block * TILE < need.to;
             block = span_block(need, block, TILE)) {
            int j0 = block * TILE, keys = min(TILE, s.nk - j0);
            __syncthreads();
            bool far = bring<D, true>(room.k, a.k, s.k + j0, keys, kv_head * dk, dk);
            bring<D, false>(room.v, a.v, s.k + j0, keys, kv_head * dv, dv);
            far = __syncthreads_or(far || own_far);
            unsigned live = live_pairs<D>(a, s, first, j0, false);
            weigh_pairs<D, false>(room, a, drop, s, head, dk, dv, first, j0, live, far);
            gradient<D, true>(sum_q, dvector, {a.q, room.q, s.q + first, head * dk},
                              {a.k, room.k, s.k + j0, kv_head * dk}, room.slopes, room.vector, keys,
                              dk, live, far);
        }
        store<D>(g.dq, s.q + first, n, head * dk, dk, sum_q, one);
    }

    /* The sums of a warp, then those of all warps. */
    const int warp = threadIdx.x / 32;
    __syncthreads();
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        for (int e = layout<D>::lanes; e < 32; e *= 2)
            dvector[c] += __shfl_xor_sync(~0u, dvector[c], e);
        if (threadIdx.x % 32 < layout<D>::lanes)
            room.slopes[warp * D + c / 4 * layout<D>::group + 4 * me.lane + c % 4] = dvector[c];
    }
    __syncthreads();
    int column = threadIdx.x;
    if (column >= dk) return;
    float sum = 0;
    for (int w = 0; w < D / 32; w++) sum += room.slopes[w * D + column];
    partial[((size_t)part * a.heads + head) * dk + column] = sum;
}

/* ---- launches ---- */

static int tiles_of(int rows)
{
    return (rows + TILE - 1) / TILE;
}

template <int D> static void launch_forward(const struct attention *a, cudaStream_t stream)
{
    int tiles = tiles_of(a->seqs.max_q), bytes = forward_floats<D>() * (int)sizeof(float);
    allow_shared((const void *)forward<D>, bytes);
    forward<D><<<a->seqs.n * tiles * a->heads, D, bytes, stream>>>(*a, drop_site(a->drop), tiles);
}

template <int D>
static void launch_backward(struct gpu *c, const struct attention *a,
                            const struct attention_grad *g)
{
    const size_t most = 4096;
    const struct seqs *s = &a->seqs;
    const struct drop_site drop = drop_site(a->drop);
    int bytes = backward_floats<D>() * (int)sizeof(float),
        width = a->additive.rows * attention_dk(a);
    allow_shared((const void *)backward_keys<D>, bytes);
    allow_shared((const void *)backward_queries<D>, bytes);
    if (s->max_k)
        backward_keys<D><<<s->n * tiles_of(s->max_k) * a->kv_heads, D, bytes, c->stream>>>(
            *a, *g, drop, tiles_of(s->max_k));
    if (!s->max_q) return;
    size_t parts = (size_t)s->n * tiles_of(s->max_q), fit = CUDA_SCRATCH / (sizeof(float) * width);
    parts = parts < fit ? parts : fit;
    parts = parts < most ? parts : most;
    float *partial = (float *)c->scratch;
    backward_queries<D><<<(int)parts * a->heads, D, bytes, c->stream>>>(
        *a, *g, drop, tiles_of(s->max_q), (int)parts, partial);
    cuda_add_partials(c, {{(float *)g->dadditive.p}, 1}, partial, (int)parts, width);
}

bool attention_additive_take(const struct attention *a)
{
    return a->additive.p && !a->seqs.at && attention_dk(a) <= 128 && attention_dv(a) <= 128;
}

void attention_additive_forward(const struct attention *a, cudaStream_t stream)
{
    compiled_width(a) <= 64 ? launch_forward<64>(a, stream) : launch_forward<128>(a, stream);
}

void attention_additive_backward(struct gpu *c, const struct attention *a,
                                 const struct attention_grad *g)
{
    compiled_width(a) <= 64 ? launch_backward<64>(c, a, g) : launch_backward<128>(c, a, g);
}
