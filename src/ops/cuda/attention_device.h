/*
 * attention_device.h - what the attention kernels share: dropout and masking on the device, tiles
 * of bf16 in shared memory with the instructions that move and multiply them, and launches.
 *
 * A tile is some rows of D bf16 numbers in shared memory. A row is divided into chunks of 16 bytes,
 * and the chunks of neighbouring rows are permuted so that ldmatrix, which reads one chunk of each
 * of 8 rows, has no bank conflicts. Tiles start at multiples of TILE_ALIGN.
 *
 * Fragments of mma m16n8k16, with g = lane / 4 and t = lane % 4: the result c[4] holds elements
 * (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1). Two adjacent results, rounded to bf16, are the left
 * operand of a product over their columns, so weights are used where the scores were computed.
 */
#ifndef HEED_OPS_CUDA_ATTENTION_DEVICE_H
#define HEED_OPS_CUDA_ATTENTION_DEVICE_H
#include <cuda_runtime.h>

#include "ops/cuda/fragment.h"
#include "ops/cuda/launch.h"
#include "ops/drop.h"

/* ---- dropout: a thread keeps only the key of each of its rows ---- */

static __device__ __forceinline__ uint2 dropout_key(const struct drop_site &d, uint64_t row)
{
    struct drop_row r = drop_site_row(d, row);
    return make_uint2(r.key0, r.key1);
}

static __device__ __forceinline__ bool dropped(const struct drop_site &d, uint2 key, uint32_t col)
{
    struct drop_row r = {key.x, key.y, d.threshold, d.scale};
    return drop_word(r, col) < r.threshold;
}

/* ---- numbers of a matrix of either type ---- */

static __device__ __forceinline__ float element(const struct mat &m, int row, int col)
{
    size_t at = (size_t)row * m.ld + col;
    return m.type == TYPE_BF16 ? __bfloat162float(((const bf16 *)m.p)[at]) : ((float *)m.p)[at];
}

static __device__ __forceinline__ void set_element(const struct mat &m, int row, int col, float x)
{
    size_t at = (size_t)row * m.ld + col;
    if (m.type == TYPE_BF16)
        ((bf16 *)m.p)[at] = __float2bfloat16_rn(x);
    else
        ((float *)m.p)[at] = x;
}

/* ---- sentences ---- */

/* The part of the work that a block computes. Consecutive blocks compute the heads of the same
 * rows, which are adjacent in memory. */
struct place {
    int head, tile, sentence;
};

static __device__ __forceinline__ struct place place_of(int block, int heads, int tiles)
{
    struct place p;
    p.head = block % heads, block /= heads;
    p.tile = block % tiles, p.sentence = block / tiles;
    return p;
}

/* The key/value head that a head uses. */
static __device__ __forceinline__ int kv_head_of(const struct attention &a, int head)
{
    return a.heads == a.kv_heads ? head : head / (a.heads / a.kv_heads);
}

struct sentence {
    int q, nq, k, nk; /* first row and number of rows of the queries and of the keys */
    int ahead;        /* in the paper's form query i sees key j where j <= i + ahead and j < nk */
    int behind;       /* query i is at position behind + i of the keys */
};

static __device__ __forceinline__ struct sentence sentence_at(const struct seqs &s, int b)
{
    struct sentence r;
    r.q = s.q[b], r.nq = s.q[b + 1] - r.q;
    r.k = s.k[b], r.nk = s.klen[b];
    r.behind = r.nk - r.nq;
    r.ahead = s.causal ? r.behind : 1 << 30;
    return r;
}

/* Number of keys that query i sees in the paper's form. */
static __device__ __forceinline__ int seen(const struct sentence &s, int i)
{
    return max(0, min(s.nk, i + s.ahead + 1));
}

/* ---- the forms of attention besides the paper's ---- */

static inline bool attention_formed(const struct attention *a)
{
    return a->window || a->alibi || a->relative_k.p || a->additive.p;
}

/* The keys that query i sees. FORMS: in any form; otherwise in the paper's. */
template <bool FORMS>
static __device__ __forceinline__ struct key_span keys_seen(const struct attention &a,
                                                            const struct sentence &s, int i)
{
    if (FORMS) return attention_sees(&a, s.behind + i, s.nk);
    return {0, 0, seen(s, i)};
}

/* The queries [0, first) and [from, to) that see key j: the other direction of attention_sees. */
static __device__ __host__ __forceinline__ struct key_span queries_seeing(const struct attention &a,
                                                                          int j, int nq, int nk)
{
    int from = a.seqs.causal ? j : 0, to = nk, first = 0, behind = nk - nq;
    if (a.window && j >= a.global) {
        from = from > j - a.window ? from : j - a.window;
        to = to < j + a.window + 1 ? to : j + a.window + 1;
        if (!a.seqs.causal) first = a.global < from ? a.global : from;
    }
    /* Positions become numbers of queries, of which the first is at position `behind`. Where that
     * is below 0, queries before position 0 see no key with a causal mask, otherwise all. */
    first = !a.seqs.causal && first > behind ? first - behind : 0;
    from = from > behind ? from - behind : 0;
    to = to - behind > from ? to - behind : from;
    return {first, from, to};
}

/* How many keys or queries a span has, and number n of them. */
static __device__ __host__ __forceinline__ int span_count(const struct key_span &s)
{
    return s.first + (s.to > s.from ? s.to - s.from : 0);
}
static __device__ __host__ __forceinline__ int span_at(const struct key_span &s, int n)
{
    return n < s.first ? n : n - s.first + s.from;
}

/* The least span that has all of two spans, where the first of them belongs to an earlier query or
 * key, and all that those between them see. */
static __device__ __host__ __forceinline__ struct key_span span_both(const struct key_span &x,
                                                                     const struct key_span &y)
{
    struct key_span s = {y.first, x.from, x.to > y.to ? x.to : y.to};
    if (s.first >= s.from) s.first = s.from = 0;
    return s;
}

/* Whether a span has nothing of [at, at + n) before its end. */
static __device__ __host__ __forceinline__ bool span_skips(const struct key_span &s, int at, int n)
{
    return at >= s.first && at + n <= s.from;
}

/* The block of `size` keys or queries after this one (-1: the first) that has some of the span; one
 * after the end of the span where there is none. */
static __device__ __host__ __forceinline__ int span_block(const struct key_span &s, int block,
                                                          int size)
{
    block++;
    return span_skips(s, block * size, size) ? s.from / size : block;
}

/* Widths of a head in q and k, and in v and o. */
struct widths {
    int dk, dv;
};

/* The kernels are compiled for heads of D = 32, 64 or 128; narrower ones are filled up with zeros
 * in shared memory or in registers. Heads of other widths than D must be multiples of 8, so that
 * every head starts at a multiple of 16 bytes. */
static inline struct widths widths_of(const struct attention *a)
{
    return {attention_dk(a), attention_dv(a)};
}
static inline int compiled_width(const struct attention *a)
{
    int widest = attention_dk(a) > attention_dv(a) ? attention_dk(a) : attention_dv(a);
    return widest <= 32 ? 32 : widest <= 64 ? 64 : 128;
}
static inline bool fills_compiled_width(const struct attention *a)
{
    int width = compiled_width(a);
    return attention_dk(a) == width && attention_dv(a) == width;
}

/* The forms of attention that the kernels on tensor cores are compiled for. */
enum form {
    FORM_PAPER,
    FORM_DISTANCE, /* window and alibi, and heads of other widths than D */
    FORM_RELATIVE  /* learned vectors for distances, and window and alibi */
};

static inline enum form form_of(const struct attention *a)
{
    if (a->relative_k.p) return FORM_RELATIVE;
    return a->window || a->alibi || !fills_compiled_width(a) ? FORM_DISTANCE : FORM_PAPER;
}

/* The widths of a head in a kernel: known to the compiler but for FORM_DISTANCE. */
template <int D, enum form FORM>
static __device__ __forceinline__ struct widths head_widths(const struct widths &given)
{
    if (FORM == FORM_DISTANCE) return given;
    return {D, D};
}

/* Whether a window lets a query at this position see key j. */
static __device__ __forceinline__ bool in_window(const struct attention &a, int position, int j)
{
    return !a.window || abs(j - position) <= a.window || j < a.global || position < a.global;
}

/* Whether key j, at this distance from a query, is before its window and not among the first
 * `global`. (Of a query that is among these itself, no key is.) */
static __device__ __forceinline__ bool before_window(const struct attention &a, int distance, int j)
{
    return a.window && distance < -a.window && j >= a.global;
}

/* What alibi subtracts for each position of distance from a score before it is scaled. */
static __device__ __forceinline__ float slope_of(const struct attention &a, int head, int dk)
{
    return (float)attention_slope(&a, head) * sqrtf((float)dk);
}

/* ---- numbers ---- */

#define LOG2_E 1.4426950408889634f
#define LN_2   0.6931471805599453f

static __device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* ---- tiles ---- */

enum { TILE_ALIGN = 256 };

/* Byte offset of a chunk. */
template <int D> static __device__ __forceinline__ int chunk_at(int row, int chunk)
{
    int turn = D == 32 ? row >> 1 & 3 : row & 7;
    return row * D * 2 + ((chunk ^ turn) << 4);
}

/* Starts a copy of 16 bytes; writes zeros where `there` is false. */
static __device__ __forceinline__ void copy_chunk(uint32_t to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
}

static __device__ __forceinline__ void copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most N groups of copies of this thread are unfinished. */
template <int N> static __device__ __forceinline__ void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Whether a chunk of a row of D numbers has some of the first `width`, a multiple of 8. */
template <int D> static __device__ __forceinline__ bool chunk_there(int chunk, int width)
{
    return width == D || chunk * 8 < width;
}

/* Starts to copy rows [first, first + rows) of a head to a tile, zeros from row `end` and from
 * column `width` on. The thread is number tid of n; n is a multiple of the number of chunks of a
 * row. */
template <int D>
static __device__ __forceinline__ void copy_tile(uint32_t to, const bf16 *head, int width, int ld,
                                                 int first, int rows, int end, int tid, int n)
{
    const int chunks = D / 8, chunk = tid % chunks, step = n / chunks;
    const bf16 *from = head + (size_t)(first + tid / chunks) * ld + chunk * 8;
    size_t stride = (size_t)step * ld;
#pragma unroll 4
    for (int row = tid / chunks; row < rows; row += step, from += stride) {
        bool there = first + row < end && chunk_there<D>(chunk, width);
        copy_chunk(to + chunk_at<D>(row, chunk), there ? from : head, there);
    }
}

/* Offset in a tile of the row that a lane addresses for ldmatrix, in the first 16 columns. The
 * offsets of other columns differ in bits that are 0 in the address of every 16th row of a tile, so
 * they are computed by an exclusive or. */
struct lanes {
    uint32_t down;   /* order of the four 8x8 matrices: down the rows first, then across */
    uint32_t across; /* across the columns first, then down */
};

template <int D> static __device__ __forceinline__ struct lanes lanes_make(int lane)
{
    struct lanes l;
    l.down = chunk_at<D>(lane & 15, lane >> 4);
    l.across = chunk_at<D>((lane & 7) + (lane >> 4) * 8, lane >> 3 & 1);
    return l;
}

/* Below, `rows` is the address of 16 rows of a tile, and `step` or `pair` is the number of a group
 * of 16 columns. */

/* Left operand: the 16 rows. */
static __device__ __forceinline__ void load_left(uint32_t (&r)[4], uint32_t rows, int step,
                                                 const struct lanes &l)
{
    load_matrix(r, (rows + l.down) ^ step * 32);
}

/* Right operands of a product over the columns: r[0..1] for 8 rows, r[2..3] for the next 8. */
static __device__ __forceinline__ void load_right(uint32_t (&r)[4], uint32_t rows, int step,
                                                  const struct lanes &l)
{
    load_matrix(r, (rows + l.across) ^ step * 32);
}

/* Right operands of a product over the rows: r[0..1] for 8 columns, r[2..3] for the next 8. */
static __device__ __forceinline__ void load_right_turned(uint32_t (&r)[4], uint32_t rows, int pair,
                                                         const struct lanes &l)
{
    load_matrix_turned(r, (rows + l.down) ^ pair * 32);
}

/* c += a b */
static __device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                                uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Two adjacent results, rounded to bf16, as the left operand of a product over their columns. */
static __device__ __forceinline__ void as_left(uint32_t (&to)[4], const float (&c)[4],
                                               const float (&next)[4])
{
    to[0] = pack(c[0], c[1]), to[1] = pack(c[2], c[3]);
    to[2] = pack(next[0], next[1]), to[3] = pack(next[2], next[3]);
}

/* c += left times 16 tile rows */
template <int D>
static __device__ __forceinline__ void add_product(float (&c)[D / 8][4], const uint32_t (&left)[4],
                                                   uint32_t rows, const struct lanes &l)
{
#pragma unroll
    for (int pair = 0; pair < D / 16; pair++) {
        uint32_t r[4];
        load_right_turned(r, rows, pair, l);
        multiply(c[2 * pair], left, r[0], r[1]);
        multiply(c[2 * pair + 1], left, r[2], r[3]);
    }
}

/* Stores the 16 rows of results of a warp, times up for rows g and times down for rows g + 8, in
 * rows [first, first + 16) of a head of `width` columns, but not beyond row `end`. The 16 rows of
 * the tile from `row` on are overwritten on the way. */
template <int D>
static __device__ __forceinline__ void store_rows(const float (&c)[D / 8][4], float up, float down,
                                                  char *tile, int row, bf16 *head, int width,
                                                  int ld, int first, int end, int lane)
{
    const int chunks = D / 8;
    __syncwarp();
#pragma unroll
    for (int n = 0; n < chunks; n++) {
        int r = row + lane / 4;
        *(uint32_t *)(tile + chunk_at<D>(r, n) + lane % 4 * 4) = pack(c[n][0] * up, c[n][1] * up);
        *(uint32_t *)(tile + chunk_at<D>(r + 8, n) + lane % 4 * 4) =
            pack(c[n][2] * down, c[n][3] * down);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < chunks / 2; i++) {
        int c16 = lane + 32 * i, r = c16 / chunks, chunk = c16 % chunks;
        if (first + r < end && chunk_there<D>(chunk, width))
            *(uint4 *)(head + (size_t)(first + r) * ld + chunk * 8) =
                *(const uint4 *)(tile + chunk_at<D>(row + r, chunk));
    }
    __syncwarp();
}

/* ---- launches ---- */

/* Number of heads of a block. Starting many blocks of few warps is slow, so where there are plenty
 * of blocks each computes several heads. */
static inline int heads_of_block(const struct attention *a, int warps)
{
    int n = 1;
    while (n * warps <= 2 && a->heads % (n * 2) == 0 &&
           (long)a->seqs.n * a->heads / (n * 2) >= 2048)
        n *= 2;
    return n;
}

/* These kernels gain more from shared memory than from the L1 cache, which shares its memory. */
static inline void allow_shared(const void *kernel, int bytes)
{
    cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                         cudaSharedmemCarveoutMaxShared);
    shared_allow(kernel, bytes);
}

#endif
