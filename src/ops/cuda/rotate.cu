/*
 * rotate.cu - rotary positions: queries and keys are rotated in place, pair by pair.
 */
#include "ops/cuda/device.h"

enum { WARPS = 4 };

/* V numbers, which are pairs. V is 8, or 2 where rows are not aligned: then one number at a time.
 */
template <int V, class T> static __device__ inline void load_pairs(float (&x)[V], const T *p)
{
    constexpr int STEP = V == 8 ? 8 : 1;
    float part[STEP];
#pragma unroll
    for (int i = 0; i < V; i++) {
        if (i % STEP == 0) load(part, p + i);
        x[i] = part[i % STEP];
    }
}

template <int V, class T> static __device__ inline void store_pairs(T *p, const float (&x)[V])
{
    constexpr int STEP = V == 8 ? 8 : 1;
    float part[STEP];
#pragma unroll
    for (int i = 0; i < V; i++) {
        part[i % STEP] = x[i];
        if ((i + 1) % STEP == 0) store(p + i + 1 - STEP, part);
    }
}

/* sign: 1, or -1 for the opposite angle */
template <class T, int V>
static __global__ void rotate_rows(rows<T> x, const int32_t *pos, rows<const float> table, int n,
                                   int cols, int width, float sign)
{
    int row = blockIdx.x * WARPS + threadIdx.y;
    chain_wait();
    if (row >= n) return;
    const float *turn = table.at(pos[row], 0);
    for (int col = threadIdx.x * V; col < cols; col += LANES * V) {
        float v[V], t[V];
        load_pairs(v, x.at(row, col));
        load_pairs(t, turn + col % width);
#pragma unroll
        for (int i = 0; i < V; i += 2) {
            float even = v[i], odd = v[i + 1], cosine = t[i], sine = sign * t[i + 1];
            v[i] = even * cosine - odd * sine;
            v[i + 1] = even * sine + odd * cosine;
        }
        store_pairs(x.at(row, col), v);
    }
}

template <class T, int V>
static void rotate_run(struct gpu *c, struct mat x, const int32_t *pos, struct mat table,
                       bool opposite)
{
    chain_launch(rotate_rows<T, V>, ceiling(x.rows, WARPS), dim3(LANES, WARPS), 0, c->chain,
                 rows_of<T>(x), pos, rows_of<const float>(table), x.rows, x.cols, table.cols,
                 opposite ? -1.0f : 1.0f);
}

template <class T>
static void rotate_wide(struct gpu *c, struct mat x, const int32_t *pos, struct mat table,
                        bool opposite)
{
    if (mat_wide(x) && mat_wide(table))
        rotate_run<T, 8>(c, x, pos, table, opposite);
    else
        rotate_run<T, 2>(c, x, pos, table, opposite);
}

void cuda_rotate(struct gpu *c, struct mat x, const int32_t *pos, struct mat table, bool opposite)
{
    if (x.type == TYPE_F32)
        rotate_wide<float>(c, x, pos, table, opposite);
    else if (x.type == TYPE_BF16)
        rotate_wide<bf16>(c, x, pos, table, opposite);
    else
        cuda_refuse(c, "matrices of this type");
}
