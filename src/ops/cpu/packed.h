/*
 * packed.h - linear layers with packed weights, for translation: y = x wT + b.
 *
 * Place: beside gemm.h, which multiplies row-major matrices. Packing pays where the same weights
 * are multiplied with a few rows many times, as in every decoding step. Order: packed_fill once per
 * matrix; packed_open, packed_run many times, packed_close.
 *
 * Promise: the bits of a row of y depend on that row of x and on w alone; not on the other rows, on
 * their number or on the number of threads. Machines with other instructions may give other bits.
 */
#ifndef HEED_OPS_CPU_PACKED_H
#define HEED_OPS_CPU_PACKED_H
#include "ops/ops.h"

/* PACKED_F32 and PACKED_BF16 sum in f32, in the order of k. Where f32 is multiplied in pairs
 * (F32_PAIRS in packed_kernels.c) the error is small relative to the product of the Euclidean norms
 * of the rows of x and w, but not relative to each term. PACKED_BF16 rounds x to bf16 too.
 * PACKED_I8 has one scale for each row of w and of x, the largest magnitude over 127; x is rounded
 * to nearest even and the sum is exact. A row of x whose magnitudes are all below QUANT_TINY counts
 * as zero. */
enum packed_kind { PACKED_F32, PACKED_BF16, PACKED_I8, PACKED_KINDS };

/* Layout of w [n,k]: panels of PACKED_LANES rows. A panel holds a group of 4 bytes along k (1, 2 or
 * 4 numbers) of each of its rows, then the next group of each, and so on. In f32 and int8 two lines
 * follow. The first has the scales of the rows, [LANES] float. The second has for int8 the sums of
 * the rows (ops/panels.h describes all of int8), and for f32, [LANES] float, the sums of the
 * products of their pairs: of every three numbers along k the first two are a pair. n is padded
 * with zero rows, and k with zeros, for f32 to a multiple of three. An f32 row is divided by its
 * scale, a power of two that makes its Euclidean norm 1 to 2. Contiguous matrices whose n is a
 * multiple of PACKED_LANES are thus one matrix. Panels start at multiples of 64 bytes if the memory
 * does. */
enum { PACKED_LANES = PACK_ROWS, PACKED_THREE = 3, PACKED_K_MAX = 65536 };

struct packed_weights {
    enum packed_kind kind;
    int n, k;
    const void *panels;
};

size_t packed_bytes(enum packed_kind kind, int n, int k);
/* panels: packed_bytes of memory; from [n,k] */
void packed_fill(enum packed_kind kind, void *panels, struct stored from, int n, int k,
                 int threads);
/* to[k] = one row of w, rounded as in products: an embedding, where w is tied. */
void packed_row(float *to, const struct packed_weights *w, int row);

/* ---- products ---- */

/* Kernels and work space of products; only one thread at a time may use it. */
struct packed_work {
    const struct packed_kernel *kernel[PACKED_KINDS];
    /* rows of x prepared for the kernels, memory for each thread's kernel, and blocks of y; grows
     * as needed */
    char *memory;
    size_t bytes;
};

struct isa; /* isa.h */
void packed_open(struct packed_work *work, const struct isa *isa);
void packed_close(struct packed_work *work);

/* y [m,n] = x [m,k] wT + bias, then ReLU when relu is set; bias [n] or NULL; ldy and ldx are the
 * distances between rows. y does not overlap x. Fails only where more memory is needed than before,
 * for longer or more rows, and there is none; then y is untouched. */
enum heed_status packed_run(struct packed_work *work, float *y, int ldy, const float *x, int ldx,
                            int m, const struct packed_weights *w, const float *bias, bool relu,
                            int threads, struct heed_error *err);

/* The first column of thread `me` of `all`, where n columns are divided in blocks. The blocks
 * depend on n alone. */
enum { PACKED_BLOCK = 256 };
static inline int packed_first(int n, int me, int all)
{
    long blocks = ((long)n + PACKED_BLOCK - 1) / PACKED_BLOCK, first = blocks * me / all;
    return me < all ? (int)(first * PACKED_BLOCK) : n;
}

/* Part of a product: columns [col, col + cols) of some rows. */
struct packed_part {
    int me, all; /* the thread that has computed it, and the number of threads */
    int row, rows, col, cols;
    const float *y; /* [rows,cols], ldy apart */
    int ldy;
};

/* Who takes the parts of y, at the same time on several threads */
struct packed_reader {
    /* Reads a block of columns of some of the rows. A thread comes to its blocks in the order of
     * columns, and reads all rows of a block before the next. */
    void (*take)(void *context, const struct packed_part *part);
    /* Called by each thread once all parts have been taken */
    void (*end)(void *context, int me, int all);
    void *context;
};

/* Computes the bits of y that packed_run computes without a bias, block by block in memory of its
 * own, and passes them on; the weights are read once. Fails as packed_run does, without a call. */
enum heed_status packed_read(struct packed_work *work, const struct packed_reader *reader,
                             const float *x, int ldx, int m, const struct packed_weights *w,
                             int threads, struct heed_error *err);

/* ---- private: the kernels; packed_kernels.c fills a table per ISA ---- */

/* A prepared row: PACKED_HEAD bytes that begin with a packed_head, then its numbers. */
enum { PACKED_HEAD = 64 };

struct packed_head {
    float scale, pairs; /* set by the kernels that use them */
    int32_t extras;     /* number of extra blocks (packed_split.h) */
};

struct packed_task {
    float *y;
    size_t ldy;
    int m, n, groups; /* groups: number of groups of 4 bytes along k */
    const char *rows; /* prepared rows, pitch bytes apart */
    size_t pitch;
    const char *panels; /* stride bytes apart */
    size_t stride;
    const float *bias;
    bool relu;
    char *spare; /* stride bytes of memory for this thread's kernel (packed_split.h) */
};

struct packed_kernel {
    int width; /* bytes a number of a prepared row takes */
    void (*prepare)(char *row, const float *x, int k);
    /* Computes all rows of the columns of y that belong to panels [first, last). */
    void (*run)(const struct packed_task *t, int first, int last);
};

extern const struct packed_kernel packed_baseline[PACKED_KINDS], packed_avx2[PACKED_KINDS],
    packed_avx512[PACKED_KINDS], packed_dotprod[PACKED_KINDS], packed_i8mm[PACKED_KINDS];
/* Kernels that need more than their level; without those whose run is NULL */
extern const struct packed_kernel packed_dot_avx2[PACKED_KINDS], packed_dot_avx512[PACKED_KINDS];

#endif
