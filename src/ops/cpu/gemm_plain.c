/*
 * gemm_plain.c - matrix products in plain C: any type, any shape, any machine.
 *
 * Place: under gemm.c, for builds without oneDNN and for products that oneDNN does not compute.
 *
 * The result is divided into blocks, each computed by one thread. The parts of both inputs that a
 * block needs are copied, widened to f32, into slivers: some rows or columns interleaved, which the
 * innermost function reads sequentially. Every element of the result is one sum in the order of the
 * inner side, whatever the blocks, so its bits depend only on its row of a and its column of b.
 */
#include <omp.h>
#include <string.h>

#include "base/minmax.h"
#include "ops/bf16.h"
#include "ops/cpu/gemm.h"

enum { STEP_M = GEMM_STEP_M, STEP_N = GEMM_STEP_N, STEP = STEP_M * STEP_N };
/* BLOCK_M and BLOCK_N are multiples of the steps. A product of fewer than ENOUGH blocks is divided
 * into narrower ones, of LEAST_N columns at least, to give work to more threads. */
enum { BLOCK_M = 192, BLOCK_N = 256, BLOCK_K = 256, LEAST_N = 64, ENOUGH = 16 };

/* Work space of one thread: about 400 KiB, so that it stays in the second-level cache. */
struct work {
    float a[BLOCK_M * BLOCK_K];   /* [rows/STEP_M][k][STEP_M] */
    float b[STEP_N * BLOCK_K];    /* [k][STEP_N] */
    float sum[BLOCK_M * BLOCK_N]; /* [cols/STEP_N][rows/STEP_M][STEP_M][STEP_N] */
};
const size_t gemm_plain_work = sizeof(struct work);

static int parts(int n, int size)
{
    return (n + size - 1) / size;
}

static float get(const void *row, int i, enum type t)
{
    return t == TYPE_BF16 ? bf16_to_float(((const uint16_t *)row)[i]) : ((const float *)row)[i];
}

/* A sliver: to[p][i] = m(at + i, k0 + p) for i in [0, n), 0 for the rest up to width. With t, m is
 * read transposed. */
static void pack(float *to, struct mat m, bool t, int at, int n, int width, int k0, int k)
{
    if (n < width) memset(to, 0, sizeof *to * (size_t)(width * k));
    for (int i = 0; i < n && !t; i++) {
        const void *row = mat_at(m, at + i, k0);
        for (int p = 0; p < k; p++) to[p * width + i] = get(row, p, m.type);
    }
    for (int p = 0; p < k && t; p++) {
        const void *row = mat_at(m, k0 + p, at);
        for (int i = 0; i < n; i++) to[p * width + i] = get(row, i, m.type);
    }
}

/* Stores one row of the sums of a step in c, with bias, beta and ReLU. */
static void finish(const struct gemm_job *j, int r, int c, int n, const float *sum)
{
    void *row = mat_at(j->c, r, c);
    const float *bias = j->bias.p ? mat_at(j->bias, 0, c) : NULL;
    for (int i = 0; i < n; i++) {
        float x = sum[i];
        if (j->beta != 0) x += get(row, i, j->c.type);
        if (bias) x += bias[i];
        if (j->relu && x < 0) x = 0;
        if (j->c.type == TYPE_BF16)
            ((uint16_t *)row)[i] = bf16_from_float(x);
        else
            ((float *)row)[i] = x;
    }
}

/* The rows x cols block of c at (r, c). */
static void block(const struct gemm_job *j, gemm_step *step, struct work *w, int r, int c, int rows,
                  int cols)
{
    int steps_m = parts(rows, STEP_M), inner = gemm_inner(j);
    memset(w->sum, 0, sizeof *w->sum * (size_t)(STEP * steps_m * parts(cols, STEP_N)));
    for (int k0 = 0; k0 < inner; k0 += BLOCK_K) {
        int k = int_min(BLOCK_K, inner - k0);
        for (int m = 0; m < steps_m; m++)
            pack(w->a + m * STEP_M * k, j->a, j->ta, r + m * STEP_M,
                 int_min(STEP_M, rows - m * STEP_M), STEP_M, k0, k);
        for (int n = 0; n * STEP_N < cols; n++) {
            pack(w->b, j->b, !j->tb, c + n * STEP_N, int_min(STEP_N, cols - n * STEP_N), STEP_N, k0,
                 k);
            for (int m = 0; m < steps_m; m++)
                step(w->sum + (n * steps_m + m) * STEP, w->a + m * STEP_M * k, w->b, k);
        }
    }
    for (int n = 0; n * STEP_N < cols; n++)
        for (int i = 0; i < rows; i++)
            finish(j, r + i, c + n * STEP_N, int_min(STEP_N, cols - n * STEP_N),
                   w->sum + n * steps_m * STEP + i * STEP_N);
}

void gemm_plain_run(const struct gemm_job *j, gemm_step *step, void *work, int threads)
{
    int rows = j->c.rows, cols = j->c.cols, down = parts(rows, BLOCK_M), width = BLOCK_N;
    while (width > LEAST_N && down * parts(cols, width) < ENOUGH) width /= 2;
    int across = parts(cols, width);
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (down * across > 1)
    for (int i = 0; i < down * across; i++) {
        int r = i / across * BLOCK_M, c = i % across * width;
        block(j, step, (struct work *)work + omp_get_thread_num(), r, c, int_min(BLOCK_M, rows - r),
              int_min(width, cols - c));
    }
}
