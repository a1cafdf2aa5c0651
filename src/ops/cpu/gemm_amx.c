/*
 * gemm_amx.c - products of bf16 matrices by the kernels for AMX: divides them into parts, and the
 * parts among threads.
 *
 * Place: under gemm.c, for products of bf16 where the processor has AMX.
 *
 * A part is some columns of c and some of the inner side. All threads pack the right factor of a
 * part into tiles and wait for each other; then each computes its share of the part's blocks, for
 * which it reads the left factor from the matrix or packs a block's rows of it. While one part is
 * multiplied, the threads that are done pack the next one into other memory. Between parts along
 * the inner side the sums are kept in f32. Every element of c is one sum in the order of the inner
 * side, AMX_DEEP numbers at a time, whatever the parts and the threads; so its bits depend only on
 * its row of a and its column of b.
 */
#include <omp.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/minmax.h"
#include "ops/cpu/amx.h"

/* Largest part: so many numbers of the inner side, and as many columns as make PART_TILES tiles.
 * These take 1 MiB, half of a second-level cache of the processors with AMX. */
enum { PART_DEEP = 1024, PART_TILES = 1024 };

/* Below this many multiplications, starting threads costs more than it saves. */
enum { SMALL = 4 << 20 };

/* What all threads of a product share */
struct plan {
    const struct amx_kernels *amx;
    const struct gemm_job *job;
    struct amx_factor left, right;
    int inner, part_cols; /* columns of a part */
    char *tiles[2];       /* of the right factor of two parts that follow each other */
    char *packed;         /* of the left factor, twice for each thread */
    size_t packed_bytes;
    bool in_place; /* sums are kept in c */
    char *sums;    /* or else here, from part to part */
};

static int deep_of(int inner)
{
    return (inner + AMX_DEEP - 1) / AMX_DEEP;
}

/* Whether a part of the left factor can be loaded from the matrix, tile by tile */
static bool has_tiles(const struct plan *p, int inner)
{
    return p->left.along && p->job->c.rows % AMX_SIDE == 0 && inner % AMX_DEEP == 0;
}

/* Whether sums can be kept in c, from the first part to the last */
static bool fits_in_place(const struct gemm_job *j)
{
    return j->c.type == TYPE_F32 && !j->bias.p && !j->relu && j->c.rows % AMX_SIDE == 0 &&
           j->c.cols % AMX_SIDE == 0;
}

/* Divides the memory, which grows as needed. */
static enum heed_status reserve(struct gemm_amx *g, struct plan *p, int team,
                                struct heed_error *err)
{
    int deep = deep_of(int_min(p->inner, PART_DEEP));
    p->part_cols = int_min(PART_TILES / deep * AMX_SIDE, p->job->c.cols);
    size_t across = (size_t)amx_tiles(p->part_cols);
    size_t right = across * deep * AMX_TILE;
    size_t sums = across * amx_tiles(p->job->c.rows) * AMX_TILE;
    if (p->in_place || p->inner <= PART_DEEP) sums = 0;
    p->packed_bytes = has_tiles(p, p->inner) ? 0 : (size_t)2 * deep * AMX_TILE;
    size_t bytes = 2 * right + 2 * team * p->packed_bytes + sums;
    if (bytes > g->bytes) {
        char *memory = aligned_alloc(64, bytes);
        if (!memory) return error_memory(err, bytes, "matrix products");
        gemm_amx_release(g);
        g->memory = memory;
        g->bytes = bytes;
    }
    p->tiles[0] = g->memory;
    p->tiles[1] = g->memory + right;
    p->packed = g->memory + 2 * right;
    p->sums = p->packed + 2 * team * p->packed_bytes;
    return HEED_OK;
}

/* Thread `me` of `all` packs its share of the right factor of a part, in the order in which it lies
 * in memory. */
static void pack_share(const struct plan *p, const struct amx_task *t, char *to, long me, long all)
{
    enum { TWO = 2 * AMX_SIDE };
    const struct amx_factor *f = &p->right;
    long twos = amx_across(t), n = twos * t->deep;
    size_t next = (size_t)t->deep * AMX_TILE;
    for (long i = n * me / all; i < n * (me + 1) / all; i++) {
        int at = (int)(f->along ? i / t->deep : i % twos) * TWO;
        int step = (int)(f->along ? i % t->deep : i / twos), k = step * AMX_DEEP;
        p->amx->pack(to + at / AMX_SIDE * next + (size_t)step * AMX_TILE, next, f, t->col + at,
                     int_min(TWO, t->cols - at), t->k + k, int_min(AMX_DEEP, t->inner - k));
    }
}

/* What one thread does for the n-th part, at column `col` and at k of the inner side; all threads
 * call this for the same parts in the same order. Where all have packed part n, all have multiplied
 * part n - 1, so that its memory serves part n + 1. */
static void run_part(const struct plan *p, int n, int col, int k, long me, long all)
{
    int inner = int_min(PART_DEEP, p->inner - k);
    struct amx_task t = {
        .job = p->job,
        .left = p->left,
        .col = col,
        .cols = int_min(p->part_cols, p->job->c.cols - col),
        .k = k,
        .inner = inner,
        .deep = deep_of(inner),
        .right = p->tiles[n % 2],
        .begins = k == 0,
        .ends = k + inner == p->inner,
        .in_place = p->in_place,
        .sums = p->sums,
    };
    for (int i = 0; i < 2 && !has_tiles(p, inner); i++)
        t.packed[i] = p->packed + (2 * me + i) * p->packed_bytes;
    pack_share(p, &t, p->tiles[n % 2], me, all);
#pragma omp barrier
    long blocks = amx_blocks(&t);
    p->amx->multiply(&t, (int)(blocks * me / all), (int)(blocks * (me + 1) / all));
}

enum heed_status gemm_amx_run(struct gemm_amx *g, const struct gemm_job *j,
                              const struct amx_kernels *amx, int threads, struct heed_error *err)
{
    struct plan p = {
        .amx = amx,
        .job = j,
        .left = {j->a, !j->ta, false},
        .right = {j->b, j->tb, true},
        .inner = gemm_inner(j),
        .in_place = fits_in_place(j),
    };
    int team = (double)j->c.rows * j->c.cols * p.inner < SMALL ? 1 : threads;
    enum heed_status status = reserve(g, &p, team, err);
    if (status != HEED_OK) return status;
#pragma omp parallel num_threads(team)
    {
        int n = 0;
        for (int col = 0; col < j->c.cols; col += p.part_cols)
            for (int k = 0; k < p.inner; k += PART_DEEP)
                run_part(&p, n++, col, k, omp_get_thread_num(), omp_get_num_threads());
    }
    return HEED_OK;
}

void gemm_amx_release(struct gemm_amx *g)
{
    free(g->memory);
    *g = (struct gemm_amx){0};
}
