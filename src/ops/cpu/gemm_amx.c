/*
 * gemm_amx.c - products of bf16 matrices by the kernels for AMX: divides them into parts, and the
 * parts among threads.
 *
 * Place: under gemm.c, for products of bf16 where the processor has AMX.
 *
 * A part is some rows and columns of c and some of the inner side. All threads pack the parts of
 * both factors into tiles, wait for each other, and each computes its share of the part's blocks.
 * Between parts along the inner side the sums are kept in f32. Every element of c is one sum in the
 * order of the inner side, AMX_DEEP numbers at a time, whatever the parts and the threads; so its
 * bits depend only on its row of a and its column of b.
 */
#include <omp.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/minmax.h"
#include "ops/cpu/amx.h"

/* Largest part. The tiles of its rows take 1 MiB, half of a second-level cache of the processors
 * with AMX; those of two tiles of columns take 32 KiB of the first-level cache. */
enum { PART_ROWS = 1024, PART_COLS = 1024, PART_DEEP = 512 };

/* Below this many multiplications, starting threads costs more than it saves. */
enum { SMALL = 4 << 20 };

/* What all threads of a product share */
struct plan {
    const struct amx_kernels *amx;
    const struct gemm_job *job;
    struct amx_factor left, right;
    int rows, cols, inner;
    char *tiles_left, *tiles_right, *sums;
};

static size_t bytes_of(int lanes, int inner)
{
    int deep = (inner + AMX_DEEP - 1) / AMX_DEEP;
    return (size_t)amx_tiles(lanes) * deep * AMX_TILE;
}

/* Divides the memory, which grows as needed. */
static enum heed_status reserve(struct gemm_amx *g, struct plan *p, struct heed_error *err)
{
    int rows = int_min(p->rows, PART_ROWS), cols = int_min(p->cols, PART_COLS);
    int deep = int_min(p->inner, PART_DEEP);
    size_t left = bytes_of(rows, deep), right = bytes_of(cols, deep);
    size_t sums = p->inner > PART_DEEP ? (size_t)amx_tiles(rows) * amx_tiles(cols) * AMX_TILE : 0;
    size_t bytes = left + right + sums;
    if (bytes > g->bytes) {
        char *memory = aligned_alloc(64, bytes);
        if (!memory) return error_memory(err, bytes, "matrix products");
        gemm_amx_release(g);
        g->memory = memory;
        g->bytes = bytes;
    }
    p->tiles_left = g->memory;
    p->tiles_right = g->memory + left;
    p->sums = g->memory + left + right;
    return HEED_OK;
}

/* Thread `me` of `all` packs its share of n rows or columns from `at` on, two tiles at a time. */
static void pack_share(const struct plan *p, const struct amx_factor *f, char *to, int at, int n,
                       int k0, int k, long me, long all)
{
    enum { TWO = 2 * AMX_SIDE };
    long twos = (n + TWO - 1) / TWO;
    for (int i = (int)(twos * me / all); i < (int)(twos * (me + 1) / all); i++)
        p->amx->pack(to + i * bytes_of(TWO, k), f, at + i * TWO, int_min(TWO, n - i * TWO), k0, k);
}

/* What one thread does for the part of c at (row, col) and of the inner side at k; all threads call
 * this for the same parts in the same order. Tiles that the part before has packed already are not
 * packed again. */
static void run_part(const struct plan *p, int row, int col, int k, long me, long all)
{
    struct amx_task t = {
        .job = p->job,
        .row = row,
        .rows = int_min(PART_ROWS, p->rows - row),
        .col = col,
        .cols = int_min(PART_COLS, p->cols - col),
        .left = p->tiles_left,
        .right = p->tiles_right,
        .begins = k == 0,
        .ends = k + PART_DEEP >= p->inner,
        .sums = p->sums,
    };
    int deep = int_min(PART_DEEP, p->inner - k);
    bool whole = t.begins && t.ends;
    t.deep = (deep + AMX_DEEP - 1) / AMX_DEEP;
    if (!whole || t.rows < p->rows || col == 0)
        pack_share(p, &p->left, p->tiles_left, row, t.rows, k, deep, me, all);
    if (!whole || row == 0) pack_share(p, &p->right, p->tiles_right, col, t.cols, k, deep, me, all);
#pragma omp barrier
    long blocks = amx_blocks(&t);
    p->amx->multiply(&t, (int)(blocks * me / all), (int)(blocks * (me + 1) / all));
#pragma omp barrier
}

enum heed_status gemm_amx_run(struct gemm_amx *g, const struct gemm_job *j,
                              const struct amx_kernels *amx, int threads, struct heed_error *err)
{
    struct plan p = {
        .amx = amx,
        .job = j,
        .left = {j->a, !j->ta, false},
        .right = {j->b, j->tb, true},
        .rows = j->c.rows,
        .cols = j->c.cols,
        .inner = gemm_inner(j),
    };
    enum heed_status status = reserve(g, &p, err);
    if (status != HEED_OK) return status;
    int team = (double)p.rows * p.cols * p.inner < SMALL ? 1 : threads;
#pragma omp parallel num_threads(team)
    for (int col = 0; col < p.cols; col += PART_COLS)
        for (int row = 0; row < p.rows; row += PART_ROWS)
            for (int k = 0; k < p.inner; k += PART_DEEP)
                run_part(&p, row, col, k, omp_get_thread_num(), omp_get_num_threads());
    return HEED_OK;
}

void gemm_amx_release(struct gemm_amx *g)
{
    free(g->memory);
    *g = (struct gemm_amx){0};
}
