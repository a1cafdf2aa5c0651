/*
 * resident.cu - products of many rows with weights of at most DEPTH terms on Hopper. A block keeps
 * the weights of SLICE columns in shared memory for its whole life, and the rows of the other
 * operand stream past them. Two groups of four warps take turns: while one multiplies, the other
 * stores its tile, so that the tensor cores do not wait for that. The results are those of
 * cuBLASLt, to the last bit, which takes 5 to 20% longer for such shapes.
 */
#include "ops/cuda/device.h"
#include "ops/cuda/hopper.h"

enum {
    HEIGHT = 64, /* rows of a tile */
    SLICE = 128, /* columns of a tile */
    DEPTH = 512,
    STEP = 64, /* terms of the sum that are copied at a time */
    STEPS = DEPTH / STEP,
    STAGES = 8, /* steps whose rows are in shared memory or being copied */
    WIDE = 64,  /* width of a box: the bf16 numbers in 128 bytes */
    BOXES = SLICE / WIDE,
    GROUPS = 2,
    GROUP = 4 * LANES, /* threads */
    THREADS = GROUP * (1 + GROUPS)
};

typedef bf16 box[HEIGHT][WIDE];

struct tiles {
    bf16 w[STEPS][SLICE * STEP];
    bf16 a[STAGES][HEIGHT][STEP];
    box c[GROUPS][BOXES]; /* the result of each group */
    float bias[SLICE];
    uint64_t weights; /* w and bias are in shared memory */
    uint64_t full[STAGES], empty[STAGES];
    uint64_t turn[GROUPS];   /* the tensor cores are free for this group */
    uint64_t staged[GROUPS]; /* its result is in c */
    uint64_t stored[GROUPS]; /* ... and has been read from there */
};

enum { ALIGN = 1024, SHARED = sizeof(struct tiles) + ALIGN };
static_assert(SHARED <= 227 << 10, "more than a block may have");

/* c [m,n] from a [m,k] and w, which is [n,k] or, turned, [k,n]; bias [n] or NULL */
struct job {
    const float *bias;
    int n;
    int slices; /* of columns */
    int rows;   /* of tiles */
    int steps;  /* of STEP along the sum */
};

struct maps {
    CUtensorMap a, w, c;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* The tiles of a block, counted from 0: one slice of columns, every so many-th row of tiles. Group
 * tile % GROUPS computes a tile. */
struct walk {
    int col, first, stride, tiles;
    __device__ __forceinline__ walk(const struct job &j)
        : col((int)blockIdx.x % j.slices * SLICE), first((int)blockIdx.x / j.slices),
          stride((int)gridDim.x / j.slices), tiles((j.rows - first + stride - 1) / stride)
    {
    }
    __device__ __forceinline__ int row(int tile) const
    {
        return (first + tile * stride) * HEIGHT;
    }
};

template <bool TURNED>
static __device__ void bring_operands(struct tiles &t, const struct maps &maps, const struct job &j)
{
    struct walk walk(j);
    uint32_t step = 0;
    int bias = j.bias ? min(SLICE, j.n - walk.col) * (int)sizeof(float) : 0;
    barrier_expect(&t.weights, j.steps * (int)sizeof t.w[0] + bias);
    if (bias) run_load(t.bias, j.bias + walk.col, bias, &t.weights);
    for (int k = 0; k < j.steps; k++)
        if (TURNED)
            for (int i = 0; i < BOXES; i++)
                box_load(t.w[k] + i * WIDE * STEP, &maps.w, walk.col + i * WIDE, k * STEP,
                         &t.weights);
        else
            box_load(t.w[k], &maps.w, k * STEP, walk.col, &t.weights);
    for (int tile = 0; tile < walk.tiles; tile++)
        for (int k = 0; k < j.steps; k++, step++) {
            int s = step % STAGES;
            barrier_wait(&t.empty[s], step / STAGES + 1);
            barrier_expect(&t.full[s], sizeof t.a[0]);
            box_load(t.a[s], &maps.a, k * STEP, walk.row(tile), &t.full[s]);
        }
}

static __device__ void store_tiles(struct tiles &t, const struct maps &maps, const struct job &j,
                                   int g)
{
    struct walk walk(j);
    for (int tile = g; tile < walk.tiles; tile += GROUPS) {
        barrier_wait(&t.staged[g], tile / GROUPS);
        for (int i = 0; i < BOXES; i++)
            box_store(&maps.c, walk.col + i * WIDE, walk.row(tile), t.c[g][i]);
        box_commit();
        box_wait_read<0>();
        barrier_arrive(&t.stored[g]);
    }
}

/* d = the products of a tile. The group waits for its turn, and passes it on when all products are
 * issued. */
template <bool TURNED>
static __device__ __forceinline__ void multiply(struct tiles &t, float (&d)[64], int steps, int g,
                                                int tile, bool speaker)
{
    uint32_t step = (uint32_t)(tile * steps);
    barrier_wait(&t.turn[g], tile / GROUPS + (g == 0 ? 1 : 0));
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
        if (k >= steps) break;
        int s = (step + k) % STAGES;
        barrier_wait(&t.full[s], (step + k) / STAGES);
        product_begin();
#pragma unroll
        for (int i = 0; i < STEP; i += 16)
            product_64x128x16<TURNED>(d, operand(&t.a[s][0][i], 0),
                                      TURNED ? operand(t.w[k] + i * WIDE, WIDE * STEP * 2)
                                             : operand(t.w[k] + i, 0),
                                      k > 0 || i > 0);
        product_commit();
        if (k == 0) continue;
        product_wait<1>();
        if (speaker) barrier_arrive(&t.empty[(step + k - 1) % STAGES]);
    }
    if (speaker) barrier_arrive(&t.turn[1 - g]);
    product_end(d);
    if (speaker) barrier_arrive(&t.empty[(step + steps - 1) % STAGES]);
}

/* Adds the bias to d, rounds it and puts it into the boxes of a group. Of each 8 columns a thread
 * has four numbers: columns lane % 4 * 2 and the next of row lane / 4 of the 16 rows of its warp,
 * and of the row 8 below. */
template <bool BIASED>
static __device__ __forceinline__ void stage(box (&c)[BOXES], const float (&d)[64],
                                             const float *bias, int warp, int lane)
{
    uint32_t row = shared_address(&c[0][warp * 16 + lane % 16]);
#pragma unroll
    for (int i = 0; i < SLICE / 16; i++) {
        uint32_t x[4];
        int chunk = i % (WIDE / 16) * 2 + lane / 16;
#pragma unroll
        for (int q = 0; q < 4; q++) {
            float2 b = {};
            if (BIASED) b = *(const float2 *)(bias + i * 16 + q / 2 * 8 + lane % 4 * 2);
            x[q] = BIASED ? pack(d[i * 8 + q * 2] + b.x, d[i * 8 + q * 2 + 1] + b.y)
                          : pack(d[i * 8 + q * 2], d[i * 8 + q * 2 + 1]);
        }
        store_matrix(row + i / (WIDE / 16) * (int)sizeof(box) + ((chunk ^ lane % 8) << 4), x);
    }
}

template <bool TURNED, bool BIASED>
static __device__ void compute_tiles(struct tiles &t, const struct job &j, int g, int warp,
                                     int lane)
{
    struct walk walk(j);
    bool speaker = warp == 0 && lane == 0; /* arrives at barriers for the group */
    barrier_wait(&t.weights, 0);
    for (int tile = g; tile < walk.tiles; tile += GROUPS) {
        float d[64];
        multiply<TURNED>(t, d, j.steps, g, tile, speaker);
        barrier_wait(&t.stored[g], tile / GROUPS + 1);
        stage<BIASED>(t.c[g], d, t.bias, warp, lane);
        shared_publish();
        barrier_arrive(&t.staged[g]);
    }
}

#endif

template <bool TURNED, bool BIASED>
static __global__ void __launch_bounds__(THREADS, 1)
    resident(const __grid_constant__ struct maps maps, const __grid_constant__ struct job j)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ char raw[];
    struct tiles &t = *(struct tiles *)(raw + -shared_address(raw) % ALIGN);
    int group = threadIdx.x / GROUP, warp = threadIdx.x % GROUP / LANES, lane = threadIdx.x % LANES;
    if (threadIdx.x == 0) {
        barrier_init(&t.weights, 1);
        for (int i = 0; i < STAGES; i++) {
            barrier_init(&t.full[i], 1);
            barrier_init(&t.empty[i], 1);
        }
        for (int i = 0; i < GROUPS; i++) {
            barrier_init(&t.turn[i], 1);
            barrier_init(&t.staged[i], GROUP);
            barrier_init(&t.stored[i], 1);
        }
        barrier_init_done();
    }
    __syncthreads();
    chain_wait();
    if (group < GROUPS) {
        registers_more<208>();
        compute_tiles<TURNED, BIASED>(t, j, group, warp, lane);
    } else {
        registers_fewer<40>();
        if (warp == 0 && lane == 0) bring_operands<TURNED>(t, maps, j);
        if ((warp == 1 || warp == 2) && lane == 0) store_tiles(t, maps, j, warp - 1);
    }
#else
    (void)maps, (void)j;
    __trap(); /* the machine code for Hopper is missing */
#endif
}

bool resident_product(struct gpu *c, const char *name, struct mat y, struct mat x, struct mat w,
                      struct mat b, bool turned)
{
    auto straight = b.p ? resident<false, true> : resident<false, false>;
    auto kernel = turned ? resident<true, false> : straight;
    struct maps maps;
    struct job j = {(const float *)b.p, y.cols, ceiling(y.cols, SLICE), ceiling(y.rows, HEIGHT),
                    ceiling(x.cols, STEP)};
    int blocks = c->processors / j.slices; /* of each slice */
    if (b.p && (turned || b.type != TYPE_F32 || !mat_wide(b))) return false;
    /* With few tiles for a block, reading the weights takes longer than it saves. */
    if (!c->box_map || x.cols > DEPTH || !blocks || j.rows < 6 * blocks) return false;
    if (!box_map_of(c, &maps.a, x, HEIGHT) || !box_map_of(c, &maps.c, y, HEIGHT) ||
        !box_map_of(c, &maps.w, w, turned ? STEP : SLICE))
        return false;
    cuda_mark(c, name, mat_bytes(y) + mat_bytes(x) + mat_bytes(w), 2.0 * x.rows * x.cols * y.cols);
    cuda_check(c, shared_allow((const void *)kernel, SHARED));
    chain_launch(kernel, j.slices * blocks, THREADS, SHARED, c->chain, maps, j);
    return true;
}
