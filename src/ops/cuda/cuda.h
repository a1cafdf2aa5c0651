/*
 * cuda.h - inside the CUDA backend: one device, one stream, what the ops share.
 *
 * cuda.cu holds the table, memory.cu what moves between host and device, blas.cu the products that
 * cuBLASLt does, few.cu those of a few rows, hopper.cu some that end in more; linear.cu, norm.cu,
 * embed.cu, loss.cu, adam.cu, decode.cu and attention.cu, with the kernels it chooses from, the
 * ops.
 *
 * Every op puts its work on the stream and returns. It needs no memory but its operands and the
 * scratch block, which was there before the first op and belongs to one op at a time, as the
 * stream has them in order. So whatever is between two uploads can be captured as a graph.
 *
 * Determinism: sums over rows are cut by the shapes alone and added in a fixed order; no sum of
 * floats uses atomics. A product's algorithm is chosen by its shape alone (blas.cu).
 */
#ifndef HEED_OPS_CUDA_H
#define HEED_OPS_CUDA_H
#include <cuda.h>
#include <cuda_runtime.h>

#include "base/error.h"
#include "ops/cuda/launch.h"
#include "ops/ops.h"

enum {
    CUDA_SCRATCH = 64 << 20, /* bytes */
    CUDA_SLOTS = 4,          /* parts of the ring that uploads go through, ... */
    CUDA_SLOT = 4 << 20,     /* ... bytes each */
    CUDA_BACK = 1 << 20,     /* bytes that downloads collect until sync */
    CUDA_PENDING = 64        /* downloads that do */
};

struct blas;  /* blas.h */
struct trace; /* cuda.cu */

/* Uploads pass through pinned memory, so that the caller's may change at once. A part is filled
 * again when the device has read it. */
struct ring {
    char *p; /* [SLOTS * SLOT] */
    int slot;
    size_t used; /* of this slot */
    cudaEvent_t read[CUDA_SLOTS];
};

struct pending {
    void *dst;
    const void *src;
    size_t bytes;
};

struct gpu {
    struct backend base;
    int device;
    int shared; /* bytes of shared memory that a block may have */
    int processors;
    decltype(&cuTensorMapEncodeTiled) box_map; /* of the driver; NULL: hopper.cu takes nothing */
    char name[80];
    struct chain chain;        /* the stream, for kernels that may start early */
    bool plain;                /* they may not, and nothing is recorded: see docs/reliability.md */
    cudaStream_t stream, side; /* side: uploads ahead, which the stream waits for by this event */
    cudaEvent_t sent;
    char *scratch;
    struct ring up;
    char *back; /* pinned [CUDA_BACK] */
    size_t back_used;
    struct pending pending[CUDA_PENDING];
    int pendings;
    struct blas *blas;
    const char *op; /* that was begun last */
    struct heed_error failed;
    struct trace *trace; /* NULL: not measuring */
};

static inline struct gpu *gpu_of(struct backend *be)
{
    return (struct gpu *)be;
}

/* The first error sticks until sync. */
void cuda_check(struct gpu *c, cudaError_t e);
/* An operand that no kernel takes. */
void cuda_refuse(struct gpu *c, const char *what);
/* What comes next counts as `name`; bytes and flops are the fewest it can do with. */
void cuda_mark(struct gpu *c, const char *name, double bytes, double flops);

static inline double mat_bytes(struct mat m)
{
    return m.p ? (double)m.rows * m.cols * type_size(m.type) : 0;
}

/* memory.cu */
enum heed_status memory_open(struct gpu *c, struct heed_error *err);
void memory_close(struct gpu *c);
enum heed_status memory_alloc(struct gpu *c, void **p, size_t bytes, struct heed_error *err);
void memory_upload(struct gpu *c, void *dst, const void *src, size_t bytes, cudaStream_t stream);
void memory_download(struct gpu *c, void *dst, const void *src, size_t bytes);
/* Brings what was downloaded to where it belongs; the stream is done. */
void memory_deliver(struct gpu *c);

/* linear.cu */

/* n vectors of one length that sums over rows are added to */
struct sums {
    float *to[3];
    int n;
};
/* to[i][c] += the sum over r of partial[r][i][c]; partial is [rows, s.n, cols] */
void cuda_add_partials(struct gpu *c, struct sums s, const float *partial, int rows, int cols);
void cuda_linear(struct gpu *c, struct mat y, struct mat x, struct mat w, struct mat b,
                 struct activation f);
void cuda_linear_bwd(struct gpu *c, struct mat dx, float beta, struct mat db, struct mat dw,
                     struct mat dy, struct mat x, struct mat w, struct activation f);
void cuda_bias_bwd(struct gpu *c, struct mat db, struct mat dy);
/* few.cu: whether it took the product */
bool cuda_linear_few(struct gpu *c, struct mat y, struct mat x, struct mat w, struct mat b,
                     bool relu);
/* hopper.cu: whether it took linear, or of linear_bwd what gives dx and db. For Hopper alone: no
 * other GPU, newer ones included, has its instructions. */
void hopper_open(struct gpu *c);
bool hopper_linear(struct gpu *c, struct mat y, struct mat x, struct mat w, struct mat b,
                   struct activation f);
bool hopper_linear_dx(struct gpu *c, struct mat dx, struct mat db, struct mat dy, struct mat x,
                      struct mat w, struct activation f);
/* norm.cu */
void cuda_add_norm(struct gpu *c, struct mat y, struct mat xhat, struct mat rstd, struct mat x,
                   struct mat r, struct mat g, struct mat b, struct drop d);
void cuda_add_norm_bwd(struct gpu *c, struct mat dx, struct mat dr, struct mat drb, struct mat dg,
                       struct mat db, struct mat dy, struct mat xhat, struct mat rstd, struct mat g,
                       struct drop d);
/* embed.cu */
void cuda_embed(struct gpu *c, struct mat y, const int32_t *id, const int32_t *pos, struct mat e,
                struct mat position, struct drop d);
void cuda_embed_bwd(struct gpu *c, struct mat de, const int32_t *id, struct mat dy, struct drop d);
/* loss.cu */
void cuda_xent(struct gpu *c, struct mat logits, const int32_t *target, float eps, bool grad,
               struct mat loss);
/* adam.cu */
void cuda_sqnorm(struct gpu *c, double *out, struct mat g);
void cuda_adam(struct gpu *c, struct mat p, struct mat m, struct mat v, struct mat copy,
               struct mat g, const double *sq, const struct adam *h);
void cuda_cast(struct gpu *c, struct mat dst, struct mat src);
/* decode.cu */
size_t cuda_pack_bytes(enum type type, int rows, int cols);
void cuda_pack(struct gpu *c, struct mat w, struct stored from);
void cuda_cache_put(struct gpu *c, struct mat cache, struct mat rows, const int32_t *at);
void cuda_topk(struct gpu *c, struct mat logits, int k, const int32_t *want, int wants,
               float *score, int32_t *id);

/* A packed matrix as a plain one. F32 and BF16 lie as they would unpacked. I8: a row holds its
 * numbers, whole ones that bf16 has exactly, and behind them their unit: see packed_unit. */
enum { PACKED_UNIT = 8 }; /* bf16 elements that the unit takes, so that rows stay 16-byte aligned */

static inline struct mat mat_unpacked(struct mat w)
{
    if (!type_packed(w.type)) return w;
    if (w.type == TYPE_PACKED_I8) w.ld = (w.cols + 7) / 8 * 8 + PACKED_UNIT;
    w.type = w.type == TYPE_PACKED_F32 ? TYPE_F32 : TYPE_BF16;
    return w;
}

#endif
