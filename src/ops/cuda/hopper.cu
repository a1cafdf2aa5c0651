/*
 * hopper.cu - the products of the feed-forward layer on Hopper, fused with what cuBLASLt cannot do
 * in its epilogue: in forward the activation and dropout, in backward the derivative of both and
 * the sum for the bias. That saves a pass over the widest matrices of the model.
 *
 * A block computes tiles of the result one after another. Its warps have different tasks: one
 * thread copies the operands of the next steps to shared memory; two groups of four warps multiply,
 * and finish half a tile each; one or two threads copy the inputs of finishing and store the
 * results; and two warps sum the columns. So the tensor cores wait only while a group finishes its
 * half.
 *
 * With ReLU, backward reads from the output of forward which elements were kept: those above 0.
 * With GELU and SiLU forward stores a second result, the slope, by which backward multiplies.
 */
#include "ops/cuda/hopper.h"

#include <dlfcn.h>

#include "ops/cuda/activation.h"
#include "ops/cuda/device.h"

enum {
    TILE_M = 128,
    TILE_N = 256,
    TILE_K = 64,
    STAGES = 3, /* steps of the sum whose operands are in shared memory or being copied */
    GROUPS = 2,
    GROUP = 4 * LANES,      /* threads */
    HALF = TILE_M / GROUPS, /* rows of a tile that a group computes */
    WIDE = 64,              /* width of a box: the bf16 numbers in 128 bytes */
    BOXES = TILE_N / WIDE,
    THREADS = GROUP * (1 + GROUPS)
};

typedef bf16 box[HALF][WIDE];

struct tiles {
    bf16 a[STAGES][TILE_M][TILE_K];
    bf16 b[STAGES][TILE_N * TILE_K];
    box c[GROUPS][BOXES]; /* the result; before it, in backward what backward reads. Of two results:
                           * pairs of boxes, see bring_and_store_both */
    float bias[GROUPS][TILE_N];
    uint64_t full[STAGES], empty[STAGES];
    uint64_t ready[GROUPS];  /* the inputs of finishing a half are in shared memory */
    uint64_t staged[GROUPS]; /* the finished half is in c */
    uint64_t summed[GROUPS]; /* its columns have been summed */
};

enum { ALIGN = 1024, SHARED = sizeof(struct tiles) + ALIGN };
static_assert(SHARED <= 227 << 10, "more than a block may have");

/* c [m,n] from a [m,k] and w, which is [n,k] in forward and [k,n] in backward. Consecutive tiles
 * have the same rows of a, which are then read from memory once. */
struct job {
    int n, tiles;
    int across; /* tiles in a row of tiles */
    int steps;  /* of TILE_K along the sum */
    const float *bias;
    float *sums; /* [half tiles along m, n] column sums of each half, or NULL */
    struct drop_site site;
};

/* seen: what backward reads. It is the slope, which forward stores, or for ReLU the output of
 * forward. */
struct maps {
    CUtensorMap a, w, c, seen;
};

/* The kernels have two template parameters: BACK and the kind of activation. In backward ACT_NONE
 * stands for any kind whose slope is stored. */

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

struct at {
    int row, col;
};

static __device__ __forceinline__ struct at place(const struct job &j, int tile)
{
    struct at p = {tile / j.across * TILE_M, tile % j.across * TILE_N};
    return p;
}

template <bool BACK>
static __device__ void bring_operands(struct tiles &t, const struct maps &maps, const struct job &j)
{
    uint32_t step = 0;
    for (int tile = blockIdx.x; tile < j.tiles; tile += gridDim.x) {
        struct at p = place(j, tile);
        for (int k = 0; k < j.steps; k++, step++) {
            int s = step % STAGES;
            barrier_wait(&t.empty[s], step / STAGES + 1);
            barrier_expect(&t.full[s], sizeof t.a[0] + sizeof t.b[0]);
            box_load(t.a[s], &maps.a, k * TILE_K, p.row, &t.full[s]);
            if (BACK)
                for (int i = 0; i < BOXES; i++)
                    box_load(t.b[s] + i * WIDE * TILE_K, &maps.w, p.col + i * WIDE, k * TILE_K,
                             &t.full[s]);
            else
                box_load(t.b[s], &maps.w, k * TILE_K, p.col, &t.full[s]);
        }
    }
}

template <bool BACK>
static __device__ void bring_ends(struct tiles &t, const struct maps &maps, const struct job &j,
                                  struct at p, int g)
{
    if (BACK) {
        barrier_expect(&t.ready[g], sizeof t.c[g]);
        for (int i = 0; i < BOXES; i++)
            box_load(t.c[g][i], &maps.seen, p.col + i * WIDE, p.row + g * HALF, &t.ready[g]);
    } else {
        int bytes = min(TILE_N, j.n - p.col) * (int)sizeof(float);
        barrier_expect(&t.ready[g], bytes);
        run_load(t.bias[g], j.bias + p.col, bytes, &t.ready[g]);
    }
}

static __device__ __forceinline__ void store_half(struct tiles &t, const CUtensorMap *map,
                                                  struct at p, int g)
{
    for (int i = 0; i < BOXES; i++) box_store(map, p.col + i * WIDE, p.row + g * HALF, t.c[g][i]);
    box_commit();
}

/* Copies the inputs of a half when the half before it, which has the same place in c, has been
 * stored and summed. */
template <bool BACK>
static __device__ void bring_and_store(struct tiles &t, const struct maps &maps,
                                       const struct job &j)
{
    uint32_t phase = 0;
    for (int g = 0; g < GROUPS; g++) bring_ends<BACK>(t, maps, j, place(j, blockIdx.x), g);
    for (int tile = blockIdx.x; tile < j.tiles; tile += gridDim.x, phase++) {
        struct at p = place(j, tile);
        for (int g = 0; g < GROUPS; g++) {
            barrier_wait(&t.staged[g], phase);
            store_half(t, &maps.c, p, g);
        }
        for (int g = 0; g < GROUPS; g++) {
            g == 0 ? box_wait_read<1>() : box_wait_read<0>();
            if (BACK && j.sums) barrier_wait(&t.summed[g], phase);
            if (tile + gridDim.x < j.tiles)
                bring_ends<BACK>(t, maps, j, place(j, tile + gridDim.x), g);
        }
    }
}

/* For forward with slope, and half tiles g. A half is finished box by box, slope and result. Two
 * pairs of boxes in c take turns: while one is copied from there, the other is written. ready and
 * staged have a phase for each pair: ready when the pair before the last has been copied. */
static __device__ void bring_and_store_both(struct tiles &t, const struct maps &maps,
                                            const struct job &j, int g)
{
    uint32_t phase = 0;
    for (int tile = blockIdx.x; tile < j.tiles; tile += gridDim.x) {
        struct at p = place(j, tile);
        bring_ends<false>(t, maps, j, p, g);
        for (int i = 0; i < BOXES; i++, phase++) {
            int row = p.row + g * HALF, col = p.col + i * WIDE, pair = i % 2 * 2;
            if (i > 0) barrier_arrive(&t.ready[g]);
            barrier_wait(&t.staged[g], phase);
            box_store(&maps.seen, col, row, t.c[g][pair]);
            box_store(&maps.c, col, row, t.c[g][pair + 1]);
            box_commit();
            box_wait_read<1>();
        }
    }
    box_wait_read<0>();
}

/* Sums the columns of half tiles g; one warp, each lane has eight columns. */
static __device__ void add_columns(struct tiles &t, const struct job &j, int g, int lane)
{
    enum { V = 8 };
    uint32_t phase = 0;
    for (int tile = blockIdx.x; tile < j.tiles; tile += gridDim.x, phase++) {
        struct at p = place(j, tile);
        int chunk = lane % (WIDE / V), col = p.col + lane * V;
        float sum[V] = {};
        barrier_wait(&t.staged[g], phase);
#pragma unroll 4
        for (int r = 0; r < HALF; r++) {
            float x[V];
            load(x, &t.c[g][lane / (WIDE / V)][r][(chunk ^ r % 8) * V]);
#pragma unroll
            for (int i = 0; i < V; i++) sum[i] += x[i];
        }
        shared_publish();
        barrier_arrive(&t.summed[g]);
        if (col < j.n) store(j.sums + (size_t)(p.row / HALF + g) * j.n + col, sum);
    }
}

/* The result [64,256] of wgmma consists of 32 parts of 8 columns. Of each part a thread has four
 * numbers: columns lane % 4 * 2 and the next of row lane / 4 of the 16 rows of its warp, and of the
 * row 8 below. A box has PARTS parts. */
enum { PARTS = WIDE / 8 };

/* A bit for each of the next BITS numbers of this thread: whether dropout keeps it */
template <int BITS>
static __device__ __forceinline__ uint32_t kept(const struct drop_row (&mask)[2], int col)
{
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < BITS; i++)
        if (drop_word(mask[i / 2 % 2], col + i / 4 * 8 + i % 2) >= mask[0].threshold)
            bits |= 1u << i;
    return bits;
}

static __device__ __forceinline__ uint32_t pack_relu(float lo, float hi)
{
    uint32_t x;
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(hi), "f"(lo));
    return x;
}

/* A pair of bf16 numbers, each set to 0 where the number of seen is not above 0 */
static __device__ __forceinline__ uint32_t where_above_0(uint32_t x, uint32_t seen)
{
    return x & ~__hle2_mask(*(__nv_bfloat162 *)&seen, __nv_bfloat162{});
}

/* Where a lane stores or loads the four 8x8 matrices that are columns [16k, 16k+16) of the 16 rows
 * of its warp in box i */
struct lane_chunks {
    uint32_t row;
    int turn; /* position of the first chunk that the lane addresses */
    __device__ __forceinline__ lane_chunks(box (&c)[BOXES], int warp, int lane)
        : row(shared_address(&c[0][warp * 16 + lane % 16])), turn(lane / 16 ^ lane % 8)
    {
    }
    __device__ __forceinline__ uint32_t at(int i, int k) const
    {
        return row + i * (int)sizeof(box) + ((turn ^ 2 * k) << 4);
    }
};

/* The numbers of this thread in a box: [k] are the pairs in the chunks at(i, k). */
typedef uint32_t box_pairs[PARTS / 2][4];

/* The place in d of the first number of pair q in the chunks at(i, k) */
static __device__ __forceinline__ constexpr int place_in_d(int i, int k, int q)
{
    return (i * PARTS + 2 * k + q / 2) * 4 + q % 2 * 2;
}

/* ReLU: computes the result of half a tile from its products d and stores it in c. keep: a word of
 * kept for each box. */
template <bool BACK>
static __device__ __forceinline__ void finish(struct lane_chunks chunks, const float (&d)[128],
                                              const float *bias, const uint32_t (&keep)[BOXES],
                                              float scale, int lane)
{
#pragma unroll
    for (int i = 0; i < BOXES; i++) {
        box_pairs x;
#pragma unroll
        for (int k = 0; k < PARTS / 2; k++)
            if (BACK) load_matrix(x[k], chunks.at(i, k));
#pragma unroll
        for (int k = 0; k < PARTS / 2; k++) {
#pragma unroll
            for (int q = 0; q < 4; q++) {
                int at = place_in_d(i, k, q), part = at / 4, bit = at % 32;
                if (BACK) {
                    x[k][q] = where_above_0(pack(d[at] * scale, d[at + 1] * scale), x[k][q]);
                } else {
                    float2 b = *(const float2 *)(bias + part * 8 + lane % 4 * 2);
                    float lo = keep[i] >> bit & 1 ? (d[at] + b.x) * scale : 0;
                    float hi = keep[i] >> bit & 2 ? (d[at + 1] + b.y) * scale : 0;
                    x[k][q] = pack_relu(lo, hi);
                }
            }
            store_matrix(chunks.at(i, k), x[k]);
        }
    }
}

/* Forward with slope: computes box i of both results from the products d. keep: two words of kept
 * for each box. */
template <enum activation_kind KIND>
static __device__ __forceinline__ void activate(box_pairs &slope, box_pairs &h,
                                                const float (&d)[128], const float *bias,
                                                const uint32_t (&keep)[2 * BOXES], float scale,
                                                int i, int lane)
{
#pragma unroll
    for (int k = 0; k < PARTS / 2; k++)
#pragma unroll
        for (int q = 0; q < 4; q++) {
            int at = place_in_d(i, k, q);
            uint32_t bits = keep[at / 16] >> at % 16;
            float2 b = *(const float2 *)(bias + at / 4 * 8 + lane % 4 * 2);
            float mask_lo = bits & 1 ? scale : 0, mask_hi = bits & 2 ? scale : 0;
            float slope_lo, lo = fast_activation<KIND>(d[at] + b.x, &slope_lo);
            float slope_hi, hi = fast_activation<KIND>(d[at + 1] + b.y, &slope_hi);
            slope[k][q] = pack(slope_lo * mask_lo, slope_hi * mask_hi);
            h[k][q] = pack(lo * mask_lo, hi * mask_hi);
        }
}

static __device__ __forceinline__ void stage_box(struct lane_chunks chunks, const box_pairs &x,
                                                 int i)
{
#pragma unroll
    for (int k = 0; k < PARTS / 2; k++) store_matrix(chunks.at(i, k), x[k]);
}

/* Forward with slope: the phase-th half of group g. A pair of boxes is computed before the wait for
 * its place in c; the first wait is for the bias, too. */
template <enum activation_kind KIND>
static __device__ __forceinline__ void finish_both(struct tiles &t, struct lane_chunks chunks,
                                                   const float (&d)[128],
                                                   const uint32_t (&keep)[2 * BOXES], float scale,
                                                   int g, uint32_t phase, int lane)
{
#pragma unroll
    for (int i = 0; i < BOXES; i++) {
        box_pairs slope, h;
        if (i == 0) barrier_wait(&t.ready[g], phase * BOXES);
        activate<KIND>(slope, h, d, t.bias[g], keep, scale, i, lane);
        if (i > 0) barrier_wait(&t.ready[g], phase * BOXES + i);
        stage_box(chunks, slope, i % 2 * 2);
        stage_box(chunks, h, i % 2 * 2 + 1);
        shared_publish();
        barrier_arrive(&t.staged[g]);
    }
}

/* Backward with slope: the slope in c becomes the result. */
static __device__ __forceinline__ void finish_by_slope(struct lane_chunks chunks,
                                                       const float (&d)[128])
{
#pragma unroll
    for (int i = 0; i < BOXES; i++) {
        box_pairs x;
#pragma unroll
        for (int k = 0; k < PARTS / 2; k++) load_matrix(x[k], chunks.at(i, k));
#pragma unroll
        for (int k = 0; k < PARTS / 2; k++) {
#pragma unroll
            for (int q = 0; q < 4; q++) {
                int at = place_in_d(i, k, q);
                float2 slope = unpack(x[k][q]);
                x[k][q] = pack(d[at] * slope.x, d[at + 1] * slope.y);
            }
            store_matrix(chunks.at(i, k), x[k]);
        }
    }
}

/* While the tensor cores are busy, each of the first steps computes a share of the dropout mask,
 * which forward needs. Shares of 16 bits take less time than the products of a step. */
template <bool BACK, enum activation_kind KIND>
static __device__ void multiply(struct tiles &t, const struct job &j, int g, int warp, int lane)
{
    const bool SLOPE = KIND != ACT_RELU;
    enum { SHARES = SLOPE ? 2 * BOXES : BOXES, BITS = 128 / SHARES };
    uint32_t step = 0, phase = 0;
    bool speaker = warp == 0 && lane == 0; /* arrives at barriers for the group */
    struct lane_chunks chunks(t.c[g], warp, lane);
    for (int tile = blockIdx.x; tile < j.tiles; tile += gridDim.x, phase++) {
        struct at p = place(j, tile);
        int row = p.row + g * HALF + warp * 16 + lane / 4, col = p.col + lane % 4 * 2;
        struct drop_row mask[2] = {mask_of(j.site, row), mask_of(j.site, row + 8)};
        uint32_t keep[SHARES] = {};
        float d[128];
        for (int k = 0; k < j.steps; k++, step++) {
            int s = step % STAGES;
            barrier_wait(&t.full[s], step / STAGES);
            product_begin();
#pragma unroll
            for (int i = 0; i < TILE_K; i += 16)
                product_64x256x16<BACK>(d, operand(&t.a[s][g * HALF][i], 0),
                                        BACK ? operand(t.b[s] + i * WIDE, WIDE * TILE_K * 2)
                                             : operand(t.b[s] + i, 0),
                                        k > 0 || i > 0);
            product_commit();
            if (!BACK && k < SHARES) {
                uint32_t bits = kept<BITS>(mask, col + k * (TILE_N / SHARES));
                asm volatile("" : "+r"(bits)); /* computed here, not where it is used */
#pragma unroll
                for (int i = 0; i < SHARES; i++)
                    if (i == k) keep[i] = bits;
            }
            product_wait<1>();
            if (k > 0 && speaker) barrier_arrive(&t.empty[(step - 1) % STAGES]);
        }
        product_end(d);
        if (speaker) barrier_arrive(&t.empty[(step - 1) % STAGES]);
#pragma unroll
        for (int i = 0; i < SHARES; i++)
            if (!BACK && i >= j.steps) keep[i] = kept<BITS>(mask, col + i * (TILE_N / SHARES));
        if constexpr (SLOPE && !BACK) {
            finish_both<KIND>(t, chunks, d, keep, j.site.scale, g, phase, lane);
            continue;
        }
        barrier_wait(&t.ready[g], phase);
        if constexpr (SLOPE)
            finish_by_slope(chunks, d);
        else
            finish<BACK>(chunks, d, t.bias[g], keep, j.site.scale, lane);
        shared_publish();
        barrier_arrive(&t.staged[g]);
    }
}

#endif

template <bool BACK, enum activation_kind KIND>
static __global__ void __launch_bounds__(THREADS, 1)
    feed_forward(const __grid_constant__ struct maps maps, const __grid_constant__ struct job j)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ char raw[];
    struct tiles &t = *(struct tiles *)(raw + -shared_address(raw) % ALIGN);
    int group = threadIdx.x / GROUP, warp = threadIdx.x % GROUP / LANES, lane = threadIdx.x % LANES;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(&t.full[i], 1);
            barrier_init(&t.empty[i], GROUPS);
        }
        for (int g = 0; g < GROUPS; g++) {
            barrier_init(&t.ready[g], 1);
            barrier_init(&t.staged[g], GROUP);
            barrier_init(&t.summed[g], LANES);
        }
        barrier_init_done();
    }
    __syncthreads();
    if (group < GROUPS) {
        registers_more<232>();
        multiply<BACK, KIND>(t, j, group, warp, lane);
    } else {
        const bool BOTH = !BACK && KIND != ACT_RELU;
        registers_fewer<40>();
        if (warp == 0 && lane == 0) bring_operands<BACK>(t, maps, j);
        if (!BOTH && warp == 1 && lane == 0) bring_and_store<BACK>(t, maps, j);
        if (BOTH && (warp == 1 || warp == 2) && lane == 0)
            bring_and_store_both(t, maps, j, warp - 1);
        if (BACK && warp >= 2 && j.sums) add_columns(t, j, warp - 2, lane);
    }
#else
    (void)maps, (void)j;
    __trap(); /* the machine code for Hopper is missing */
#endif
}

/* ---- launch ---- */

/* The driver library is never unloaded; the CUDA runtime uses it anyway. */
void hopper_open(struct gpu *c)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver) c->box_map = (decltype(c->box_map))dlsym(driver, "cuTensorMapEncodeTiled");
}

static bool takes(struct mat m)
{
    return m.type == TYPE_BF16 && mat_wide(m);
}

bool box_map_of(struct gpu *c, CUtensorMap *map, struct mat m, int rows)
{
    if (!takes(m)) return false;
    cuuint64_t size[2] = {(cuuint64_t)m.cols, (cuuint64_t)m.rows};
    cuuint64_t row_bytes[1] = {(cuuint64_t)m.ld * sizeof(bf16)};
    cuuint32_t box[2] = {WIDE, (cuuint32_t)rows}, every[2] = {1, 1};
    return c->box_map(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, m.p, size, row_bytes, box, every,
                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                      CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

template <bool BACK, enum activation_kind KIND>
static bool run(struct gpu *c, const char *name, struct mat out, struct mat a, struct mat w,
                struct mat seen, struct job j)
{
    auto kernel = feed_forward<BACK, KIND>;
    struct maps maps;
    if (!box_map_of(c, &maps.a, a, TILE_M) || !box_map_of(c, &maps.w, w, BACK ? TILE_K : TILE_N) ||
        !box_map_of(c, &maps.c, out, HALF) || !box_map_of(c, &maps.seen, seen, HALF))
        return false;
    bool both = BACK || KIND != ACT_RELU;
    double bytes = mat_bytes(out) * (both ? 2 : 1) + mat_bytes(a) + mat_bytes(w);
    cuda_mark(c, name, bytes, 2.0 * a.rows * a.cols * out.cols);
    j.n = out.cols;
    j.across = ceiling(out.cols, TILE_N);
    j.tiles = j.across * ceiling(out.rows, TILE_M);
    j.steps = ceiling(a.cols, TILE_K);
    cuda_check(c, shared_allow((const void *)kernel, SHARED));
    kernel<<<min(j.tiles, c->processors), THREADS, SHARED, c->stream>>>(maps, j);
    return true;
}

bool hopper_linear(struct gpu *c, struct mat y, struct mat x, struct mat w, struct mat b,
                   struct activation f)
{
    struct job j = {.bias = (float *)b.p, .site = drop_site(f.drop)};
    bool slope = f.slope.p && takes(f.slope);
    if (!c->box_map || !takes(y) || !takes(x) || !takes(w) || !b.p || b.type != TYPE_F32 ||
        !mat_wide(b))
        return false;
    if (f.kind == ACT_GELU && slope)
        return run<false, ACT_GELU>(c, "linear, with GELU", y, x, w, f.slope, j);
    if (f.kind == ACT_SILU && slope)
        return run<false, ACT_SILU>(c, "linear, with SiLU", y, x, w, f.slope, j);
    /* without dropout cuBLASLt is faster */
    return f.kind == ACT_RELU && f.drop.p > 0 &&
           run<false, ACT_RELU>(c, "linear, with dropout", y, x, w, y, j);
}

bool hopper_linear_dx(struct gpu *c, struct mat dx, struct mat db, struct mat dy, struct mat x,
                      struct mat w, struct activation f)
{
    int rows = ceiling(dx.rows, TILE_M) * GROUPS;
    float *sums = db.p ? (float *)c->scratch : NULL;
    struct job j = {.sums = sums, .site = drop_site(f.drop)};
    struct mat seen = f.slope.p ? f.slope : x;
    if (!c->box_map || f.kind == ACT_NONE || !takes(dx) || !takes(dy) || !takes(seen) ||
        !takes(w) || (sums && sizeof(float) * rows * dx.cols > CUDA_SCRATCH))
        return false;
    if (f.slope.p ? !run<true, ACT_NONE>(c, "linear_bwd, dx by slope", dx, dy, w, seen, j)
                  : !run<true, ACT_RELU>(c, "linear_bwd, dx to ReLU", dx, dy, w, seen, j))
        return false;
    if (db.p) cuda_add_partials(c, (struct sums){{(float *)db.p}, 1}, sums, rows, dx.cols);
    return true;
}
