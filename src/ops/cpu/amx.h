/*
 * amx.h - the kernels for Intel's AMX (Advanced Matrix Extensions): registers that hold tiles of 16
 * rows of 64 bytes, and instructions that multiply two tiles and add the product to a third.
 *
 * Place: isa.h says whether they are used; packed.c uses those for packed weights, gemm_amx.c those
 * for products of bf16 matrices.
 * amx_kernels.c fills a table with the real instructions, and for the tests one per ISA over an
 * emulation in plain C (amx_tiles.h).
 */
#ifndef HEED_OPS_CPU_AMX_H
#define HEED_OPS_CPU_AMX_H
#include "ops/cpu/gemm.h"
#include "ops/cpu/packed.h"

/* A tile of a factor has AMX_SIDE rows of the left or columns of the right factor by AMX_DEEP
 * numbers of the inner side, in bf16; a tile of sums has AMX_SIDE rows by AMX_SIDE columns, in f32.
 */
enum { AMX_SIDE = 16, AMX_DEEP = 32, AMX_TILE = 1024 /* bytes of either */ };

/* One of the two factors of a product */
struct amx_factor {
    struct mat m;
    bool along; /* numbers of the inner side are adjacent in m, not those of the other side */
    bool right; /* the right factor, whose tiles have another layout than those of the left */
};

/* A part of a product c = op(a) op(b): all rows, some columns and some of the inner side */
struct amx_task {
    const struct gemm_job *job;
    struct amx_factor left;
    int col, cols;     /* columns of c */
    int k, inner;      /* where this part of the inner side begins, and its length */
    int deep;          /* tiles along this part of the inner side */
    const char *right; /* packed tiles [cols / AMX_SIDE][deep] */
    char *packed[2];   /* one thread's memory for the packed tiles of a block's rows of the left
                        * factor, [2][deep], and those of the next rows; NULL: the tiles are loaded
                        * from the matrix itself */
    bool begins, ends; /* whether the part begins, and ends, the inner side */
    bool in_place;     /* the sums are kept in c itself, which must have full tiles of f32 and gets
                        * neither bias nor ReLU; */
    char *sums;        /* or else between two parts in tiles [rows / AMX_SIDE][cols / AMX_SIDE] */
};

struct amx_kernels {
    const struct packed_kernel *packed; /* [PACKED_KINDS]; without those whose run is NULL */
    /* Packs n <= 2 * AMX_SIDE rows or columns of a factor from `at` on, and k <= AMX_DEEP numbers
     * of the inner side from k0 on, into one or two tiles that are `next` bytes apart and are
     * filled up with zeros. */
    void (*pack)(char *to, size_t next, const struct amx_factor *f, int at, int n, int k0, int k);
    /* Computes blocks [first, last) of a task; it has amx_blocks. */
    void (*multiply)(const struct amx_task *t, int first, int last);
    /* One product of full tiles, for tests: sum [16][16] += a b as in amx_tiles.h */
    void (*product_i8)(int32_t *sum, const uint8_t *a, const int8_t *b);
    void (*product_bf16)(float *sum, const uint16_t *a, const uint16_t *b);
};

extern const struct amx_kernels amx_real; /* where HEED_AMX is defined */

/* Number of tiles that n rows or columns have */
static inline int amx_tiles(int n)
{
    return (n + AMX_SIDE - 1) / AMX_SIDE;
}
/* A block is two tiles of rows by two of columns; the blocks of the same rows are consecutive. */
static inline int amx_across(const struct amx_task *t)
{
    return (amx_tiles(t->cols) + 1) / 2;
}
static inline int amx_blocks(const struct amx_task *t)
{
    return (amx_tiles(t->job->c.rows) + 1) / 2 * amx_across(t);
}

/* gemm_amx.c: memory for packed factors and sums, which grows as needed */
struct gemm_amx {
    char *memory;
    size_t bytes;
};
/* Computes a product of bf16 matrices; fails only for lack of memory, and then c is untouched. */
enum heed_status gemm_amx_run(struct gemm_amx *g, const struct gemm_job *j,
                              const struct amx_kernels *amx, int threads, struct heed_error *err);
void gemm_amx_release(struct gemm_amx *g);

#endif
