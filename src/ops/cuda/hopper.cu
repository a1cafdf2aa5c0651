/*
 * hopper.cu - the products of the feed-forward layer with ReLU on Hopper, fused with what cuBLASLt
 * cannot do in its epilogue: in forward dropout, in backward the derivative of ReLU and dropout and
 * the sum for the bias. That saves a pass over the widest matrices of the model.
 *
 * A block computes tiles of the result one after another. Its warps have different tasks: one
 * thread copies the operands of the next steps to shared memory; two groups of four warps multiply,
 * and finish half a tile each; one thread copies the inputs of finishing and stores the results;
 * and two warps sum the columns. So the tensor cores wait only while a group finishes its half.
 *
 * Backward reads from the output of forward which elements were kept: those above 0.
 */
#include "ops/cuda/hopper.h"

#include <dlfcn.h>

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
    box c[GROUPS][BOXES]; /* the result; in backward first the output of forward */
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

struct maps {
    CUtensorMap a, w, c, made;
};

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
            box_load(t.c[g][i], &maps.made, p.col + i * WIDE, p.row + g * HALF, &t.ready[g]);
    } else {
        int bytes = min(TILE_N, j.n - p.col) * (int)sizeof(float);
        barrier_expect(&t.ready[g], bytes);
        run_load(t.bias[g], j.bias + p.col, bytes, &t.ready[g]);
    }
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
            for (int i = 0; i < BOXES; i++)
                box_store(&maps.c, p.col + i * WIDE, p.row + g * HALF, t.c[g][i]);
            box_commit();
        }
        for (int g = 0; g < GROUPS; g++) {
            g == 0 ? box_wait_read<1>() : box_wait_read<0>();
            if (BACK && j.sums) barrier_wait(&t.summed[g], phase);
            if (tile + gridDim.x < j.tiles)
                bring_ends<BACK>(t, maps, j, place(j, tile + gridDim.x), g);
        }
    }
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

/* A bit for each number of this thread in a box: whether dropout keeps it */
static __device__ __forceinline__ uint32_t kept(const struct drop_row (&mask)[2], int col)
{
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < PARTS * 4; i++)
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

/* A pair of bf16 numbers, each set to 0 where the number of made is not above 0 */
static __device__ __forceinline__ uint32_t where_above_0(uint32_t x, uint32_t made)
{
    return x & ~__hle2_mask(*(__nv_bfloat162 *)&made, __nv_bfloat162{});
}

/* Computes the result of half a tile from its products d and stores it in c. keep: see kept. */
template <bool BACK>
static __device__ __forceinline__ void finish(box (&c)[BOXES], const float (&d)[128],
                                              const float *bias, const uint32_t (&keep)[BOXES],
                                              float scale, int warp, int lane)
{
    uint32_t row = shared_address(&c[0][warp * 16 + lane % 16]);
    int turn = lane / 16 ^ lane % 8; /* position of the first chunk that the lane addresses */
#pragma unroll
    for (int i = 0; i < BOXES; i++, row += sizeof(box)) {
        uint32_t x[PARTS / 2][4];
#pragma unroll
        for (int k = 0; k < PARTS / 2; k++)
            if (BACK) load_matrix(x[k], row + ((turn ^ 2 * k) << 4));
#pragma unroll
        for (int k = 0; k < PARTS / 2; k++) {
#pragma unroll
            for (int q = 0; q < 4; q++) {
                int part = i * PARTS + 2 * k + q / 2, at = part * 4 + q % 2 * 2, bit = at % 32;
                if (BACK) {
                    x[k][q] = where_above_0(pack(d[at] * scale, d[at + 1] * scale), x[k][q]);
                } else {
                    float2 b = *(const float2 *)(bias + part * 8 + lane % 4 * 2);
                    float lo = keep[i] >> bit & 1 ? (d[at] + b.x) * scale : 0;
                    float hi = keep[i] >> bit & 2 ? (d[at + 1] + b.y) * scale : 0;
                    x[k][q] = pack_relu(lo, hi);
                }
            }
            store_matrix(row + ((turn ^ 2 * k) << 4), x[k]);
        }
    }
}

/* The dropout mask is computed while the tensor cores are busy, one box in each step. */
template <bool BACK>
static __device__ void multiply(struct tiles &t, const struct job &j, int g, int warp, int lane)
{
    uint32_t step = 0, phase = 0;
    bool speaker = warp == 0 && lane == 0; /* arrives at barriers for the group */
    for (int tile = blockIdx.x; tile < j.tiles; tile += gridDim.x, phase++) {
        struct at p = place(j, tile);
        int row = p.row + g * HALF + warp * 16 + lane / 4, col = p.col + lane % 4 * 2;
        struct drop_row mask[2] = {mask_of(j.site, row), mask_of(j.site, row + 8)};
        uint32_t keep[BOXES] = {};
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
            if (!BACK && k < BOXES) {
                uint32_t bits = kept(mask, col + k * WIDE);
                asm volatile("" : "+r"(bits)); /* computed here, not where it is used */
#pragma unroll
                for (int i = 0; i < BOXES; i++)
                    if (i == k) keep[i] = bits;
            }
            product_wait<1>();
            if (k > 0 && speaker) barrier_arrive(&t.empty[(step - 1) % STAGES]);
        }
        product_end(d);
        if (speaker) barrier_arrive(&t.empty[(step - 1) % STAGES]);
#pragma unroll
        for (int i = 0; i < BOXES; i++)
            if (!BACK && i >= j.steps) keep[i] = kept(mask, col + i * WIDE);
        barrier_wait(&t.ready[g], phase);
        finish<BACK>(t.c[g], d, t.bias[g], keep, j.site.scale, warp, lane);
        shared_publish();
        barrier_arrive(&t.staged[g]);
    }
}

#endif

template <bool BACK>
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
        multiply<BACK>(t, j, group, warp, lane);
    } else {
        registers_fewer<40>();
        if (warp == 0 && lane == 0) bring_operands<BACK>(t, maps, j);
        if (warp == 1 && lane == 0) bring_and_store<BACK>(t, maps, j);
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

/* The TMA descriptor of m for boxes of so many rows. Where a box extends beyond m, TMA reads zeros
 * and stores nothing. */
static bool map_of(struct gpu *c, CUtensorMap *map, struct mat m, int rows)
{
    cuuint64_t size[2] = {(cuuint64_t)m.cols, (cuuint64_t)m.rows};
    cuuint64_t row_bytes[1] = {(cuuint64_t)m.ld * sizeof(bf16)};
    cuuint32_t box[2] = {WIDE, (cuuint32_t)rows}, every[2] = {1, 1};
    return c->box_map(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, m.p, size, row_bytes, box, every,
                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                      CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

static bool takes(struct mat m)
{
    return m.type == TYPE_BF16 && mat_wide(m);
}

template <bool BACK>
static bool run(struct gpu *c, const char *name, struct mat out, struct mat a, struct mat w,
                struct mat made, struct job j)
{
    struct maps maps;
    if (!map_of(c, &maps.a, a, TILE_M) || !map_of(c, &maps.w, w, BACK ? TILE_K : TILE_N) ||
        !map_of(c, &maps.c, out, HALF) || !map_of(c, &maps.made, made, HALF))
        return false;
    double bytes = mat_bytes(out) * (BACK ? 2 : 1) + mat_bytes(a) + mat_bytes(w);
    cuda_mark(c, name, bytes, 2.0 * a.rows * a.cols * out.cols);
    j.n = out.cols;
    j.across = ceiling(out.cols, TILE_N);
    j.tiles = j.across * ceiling(out.rows, TILE_M);
    j.steps = ceiling(a.cols, TILE_K);
    cuda_check(c, shared_allow((const void *)feed_forward<BACK>, SHARED));
    feed_forward<BACK><<<min(j.tiles, c->processors), THREADS, SHARED, c->stream>>>(maps, j);
    return true;
}

bool hopper_linear(struct gpu *c, struct mat y, struct mat x, struct mat w, struct mat b,
                   struct activation f)
{
    if (!c->box_map || f.kind != ACT_RELU || f.slope.p || f.drop.p == 0 || !takes(y) || !takes(x) ||
        !takes(w) || !b.p || b.type != TYPE_F32 || !mat_wide(b))
        return false;
    return run<false>(c, "linear, with dropout", y, x, w, y,
                      (struct job){.bias = (float *)b.p, .site = drop_site(f.drop)});
}

bool hopper_linear_dx(struct gpu *c, struct mat dx, struct mat db, struct mat dy, struct mat x,
                      struct mat w, struct activation f)
{
    int rows = ceiling(dx.rows, TILE_M) * GROUPS;
    float *sums = db.p ? (float *)c->scratch : NULL;
    if (!c->box_map || f.kind != ACT_RELU || f.slope.p || !takes(dx) || !takes(dy) || !takes(x) ||
        !takes(w) || (sums && sizeof(float) * rows * dx.cols > CUDA_SCRATCH))
        return false;
    if (!run<true>(c, "linear_bwd, dx to ReLU", dx, dy, w, x,
                   (struct job){.sums = sums, .site = drop_site(f.drop)}))
        return false;
    if (db.p) cuda_add_partials(c, (struct sums){{(float *)db.p}, 1}, sums, rows, dx.cols);
    return true;
}
