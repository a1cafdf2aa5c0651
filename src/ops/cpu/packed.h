/*
 * packed.h - linear layers whose weights were packed once, for translation: y = x wT + b.
 *
 * Place: beside gemm.h, which multiplies matrices as they lie in memory. Packing pays where the
 * same weights meet a few rows again and again, as in every step of a search. Order: packed_fill
 * once per matrix; packed_open, packed_run many times, packed_close.
 *
 * What a caller may rely on: the bits of a row of y depend on that row of x and on w alone; not on
 * the rows beside it, on their number or on the number of threads. Machines with other instructions
 * may give other bits.
 */
#ifndef HEED_OPS_CPU_PACKED_H
#define HEED_OPS_CPU_PACKED_H
#include "ops/ops.h"

/* Sums are f32 for the first two kinds, in the order of k. Where f32 goes in pairs (F32_PAIRS in
 * packed_kernels.c) the error is small against the lengths of the rows of x and w, though not
 * against each term. With bf16 x is rounded to bf16 too. With int8 a row of w has one scale and so
 * has a row of x, the largest magnitude over 127; x is rounded to nearest even and the sum is
 * exact. A row of x below QUANT_TINY everywhere counts as zero. */
enum packed_kind { PACKED_F32, PACKED_BF16, PACKED_I8, PACKED_KINDS };

/* w [n,k] in panels of PACKED_LANES rows: 4 bytes of k (1, 2 or 4 numbers) of each row in turn,
 * then the next 4 bytes of each. For f32 and int8 two lines follow: the rows' scales, [LANES]
 * float, and for int8 their sums (ops/panels.h has all of int8), for f32 the sums of the products
 * of their pairs, [LANES] float: of every three numbers the first two are one. n and k, for f32 to
 * a multiple of three, are filled up with zeros. An f32 row is kept over its scale, a power of two
 * that makes its length 1 to 2. So matrices with n a multiple of PACKED_LANES that lie one after
 * another are one matrix. Panels start at multiples of 64 bytes, where the memory given does. */
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
/* to[k] = one row of w as the products see it: an embedding, where w is tied */
void packed_row(float *to, const struct packed_weights *w, int row);

/* ---- products ---- */

/* Of one thread at a time. */
struct packed_work {
    const struct packed_kernel *kernel[PACKED_KINDS];
    char *rows; /* x as the kernels want it; grows as needed */
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

/* ---- inside: what one thread does; packed_kernels.c fills a table per ISA ---- */

/* A prepared row: PACKED_HEAD bytes that begin with a packed_head, then its numbers. */
enum { PACKED_HEAD = 64 };

struct packed_head {
    float scale, pairs; /* where the kernel uses them */
};

struct packed_task {
    float *y;
    size_t ldy;
    int m, n, groups; /* groups: of 4 bytes along k */
    const char *rows; /* prepared, pitch bytes apart */
    size_t pitch;
    const char *panels; /* stride bytes apart */
    size_t stride;
    const float *bias;
    bool relu;
};

struct packed_kernel {
    int width; /* bytes a number of a prepared row takes */
    void (*prepare)(char *row, const float *x, int k);
    /* columns of y from panel first to before panel last, all rows */
    void (*run)(const struct packed_task *t, int first, int last);
};

extern const struct packed_kernel packed_baseline[PACKED_KINDS], packed_avx2[PACKED_KINDS],
    packed_avx512[PACKED_KINDS], packed_dot[PACKED_KINDS];

#endif
