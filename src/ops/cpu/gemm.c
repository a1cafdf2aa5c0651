/*
 * gemm.c - a matrix product cut into tiles, each computed by one thread.
 *
 * Place: between linear.c and the two ways to compute a tile, gemm_dnnl.c and gemm_plain.c.
 * Order: gemm_open, gemm_run many times, gemm_status at sync, gemm_free.
 *
 * oneDNN could spread a product over threads itself, and as fast; but where the inner side is long
 * and the rest is small, as in weight gradients, it splits the sums among the threads, and their
 * bits come to depend on how many there are.
 */
#include "ops/cpu/gemm.h"

#include <assert.h>
#include <omp.h>
#include <stdlib.h>

#include "base/error.h"

struct gemm {
    int threads;
    struct gemm_dnnl *dnnl;
    char *scratch; /* [threads][scratch_size] */
    size_t scratch_size;
    struct heed_error failed; /* the first failure not yet told */
};

/* ---- tiles ---- */

/* Tiles have this many rows and columns, except at the right and the bottom. */
struct cut {
    int rows, cols;
};

static int parts(int n, int size)
{
    return (n + size - 1) / size;
}

static int cut_count(struct cut t, const struct mat *c)
{
    return parts(c->rows, t.rows) * parts(c->cols, t.cols);
}

/* Large tiles waste less on copying their inputs, but a small product must still give work to many
 * threads. The width must not depend on the number of rows: oneDNN's order of adding does depend on
 * the width. */
static struct cut cut_make(const struct mat *c)
{
    enum { ROWS = 256, ROWS_LEAST = 64, COLS = 256, ENOUGH = 16 };
    struct cut t = {ROWS, COLS};
    while (cut_count(t, c) < ENOUGH && t.rows > ROWS_LEAST) t.rows /= 2;
    return t;
}

/* The tile at row r and column c of the product. */
static struct gemm_job cut_tile(struct cut t, const struct gemm_job *j, int r, int c)
{
    int m = j->c.rows - r < t.rows ? j->c.rows - r : t.rows;
    int n = j->c.cols - c < t.cols ? j->c.cols - c : t.cols;
    struct gemm_job tile = *j;
    tile.c = mat_cols(mat_rows(j->c, r, m), c, n);
    tile.a = j->ta ? mat_cols(j->a, r, m) : mat_rows(j->a, r, m);
    tile.b = j->tb ? mat_rows(j->b, c, n) : mat_cols(j->b, c, n);
    tile.bias = mat_cols(j->bias, c, n);
    return tile;
}

/* ---- running them ---- */

static bool gemm_reserve(struct gemm *g, size_t bytes)
{
    const size_t page = 4096;
    if (bytes <= g->scratch_size) return true;
    bytes = (bytes + page - 1) / page * page;
    free(g->scratch);
    g->scratch = aligned_alloc(page, bytes * (size_t)g->threads);
    g->scratch_size = g->scratch ? bytes : 0;
    return g->scratch != NULL;
}

/* A product has at most four kinds of tiles: those in the middle, at the right, at the bottom and
 * in the corner. All of them go to oneDNN or none. */
static bool gemm_prepare(struct gemm *g, const struct gemm_job *j, struct cut t, size_t *scratch)
{
    int r = (parts(j->c.rows, t.rows) - 1) * t.rows, c = (parts(j->c.cols, t.cols) - 1) * t.cols;
    struct gemm_job kind[4] = {cut_tile(t, j, 0, 0), cut_tile(t, j, 0, c), cut_tile(t, j, r, 0),
                               cut_tile(t, j, r, c)};
    struct heed_error err;
    enum heed_status status = gemm_dnnl_prepare(g->dnnl, kind, 4, scratch, &err);
    if (status == HEED_EUNSUPPORTED)
        *scratch = gemm_plain_scratch;
    else if (status != HEED_OK)
        g->failed = err;
    return status == HEED_OK;
}

static void gemm_tile(struct gemm *g, const struct gemm_job *tile, bool dnnl)
{
    int thread = omp_get_thread_num();
    void *scratch = g->scratch + (size_t)thread * g->scratch_size;
    struct heed_error err;
    if (!dnnl) {
        gemm_plain_tile(tile, scratch);
    } else if (gemm_dnnl_tile(g->dnnl, tile, thread, scratch, &err) != HEED_OK) {
#pragma omp critical(gemm_failed)
        g->failed = err;
    }
}

void gemm_run(struct gemm *g, const struct gemm_job *j)
{
    int k = gemm_inner(j);
    assert(k > 0 && k == (j->tb ? j->b.cols : j->b.rows));
    assert(j->c.rows == (j->ta ? j->a.cols : j->a.rows));
    assert(j->c.cols == (j->tb ? j->b.rows : j->b.cols));
    if (j->c.rows == 0 || j->c.cols == 0 || g->failed.status != HEED_OK) return;

    struct cut t = cut_make(&j->c);
    size_t scratch = 0;
    bool dnnl = gemm_prepare(g, j, t, &scratch);
    if (g->failed.status != HEED_OK) return;
    if (!gemm_reserve(g, scratch)) {
        error_memory(&g->failed, scratch * (size_t)g->threads, "the scratch memory of products");
        return;
    }
    int across = parts(j->c.cols, t.cols), count = cut_count(t, &j->c);
#pragma omp parallel for schedule(dynamic) num_threads(g->threads) if (count > 1)
    for (int i = 0; i < count; i++) {
        struct gemm_job tile = cut_tile(t, j, i / across * t.rows, i % across * t.cols);
        gemm_tile(g, &tile, dnnl);
    }
}

enum heed_status gemm_status(struct gemm *g, struct heed_error *err)
{
    enum heed_status status = g->failed.status;
    if (status != HEED_OK && err) *err = g->failed;
    g->failed = (struct heed_error){0};
    return status;
}

enum heed_status gemm_open(struct gemm **out, int threads, struct heed_error *err)
{
    assert(threads >= 1);
    struct gemm *g = calloc(1, sizeof *g);
    if (!g) return error_memory(err, sizeof *g, "matrix products");
    g->threads = threads;
    enum heed_status status = gemm_dnnl_open(&g->dnnl, threads, err);
    if (status == HEED_OK)
        *out = g;
    else
        gemm_free(g);
    return status;
}

void gemm_free(struct gemm *g)
{
    if (!g) return;
    gemm_dnnl_free(g->dnnl);
    free(g->scratch);
    free(g);
}
