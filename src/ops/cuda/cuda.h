/*
 * cuda.h - private to the CUDA backend: the device, its stream, and what the ops share.
 *
 * cuda.cu has the op table; memory.cu copies between host and device; blas.cu computes products
 * with cuBLASLt, few.cu products of a few rows, resident.cu products of many rows with few terms,
 * and hopper.cu two products fused with activation and dropout; linear.cu, gate.cu, norm.cu,
 * embed.cu, rotate.cu, experts.cu, experts_linear.cu, loss.cu, adam.cu, decode.cu,
 * linear_attention.cu, linear_state.cu and attention.cu have the ops, the last with the kernels of
 * attention_*.cu; link_nccl.cu has the links to other devices.
 *
 * Every op enqueues its work on the stream and returns. Its only memory are its operands and the
 * scratch block, which is allocated when the device is opened. The stream runs ops in order, so one
 * op at a time uses the scratch block. So any ops between uploads can be captured as a CUDA graph.
 *
 * Determinism: sums over rows are divided by the shapes alone and added in a fixed order; no sum of
 * floats uses atomics. The algorithm of a product is chosen by its shape alone (blas.cu).
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
    CUDA_SLOTS = 4,          /* slots of the ring of upload buffers */
    CUDA_SLOT = 4 << 20,     /* bytes of a slot */
    CUDA_BACK = 1 << 20,     /* bytes of the buffer in which downloads wait for sync */
    CUDA_PENDING = 64        /* largest number of downloads that wait for sync */
};

struct blas;  /* blas.h */
struct link;  /* link_nccl.cu */
struct trace; /* trace.cu */

/* Uploads are copied to page-locked memory first, so that the caller may change its own at once. A
 * slot is filled again after the device has read it. */
struct ring {
    char *p; /* [SLOTS * SLOT] */
    int slot;
    size_t used;                  /* bytes of the current slot */
    cudaEvent_t read[CUDA_SLOTS]; /* the device has read the slot */
};

struct pending {
    void *dst;
    const void *src;
    size_t bytes;
};

struct gpu {
    struct backend base;
    int device;
    int shared; /* largest number of bytes of shared memory of a block */
    int processors;
    decltype(&cuTensorMapEncodeTiled) box_map; /* driver function; NULL: hopper.cu is not used */
    char name[80];
    struct chain chain;        /* the stream with programmatic dependent launch: see launch.h */
    bool plain;                /* no early starts and no graph capture: see docs/reliability.md */
    cudaStream_t stream, side; /* side: for upload_ahead */
    cudaEvent_t sent;          /* the last upload_ahead is done; the stream waits for it */
    char *scratch;
    struct ring up;
    char *back; /* [CUDA_BACK], page-locked */
    size_t back_used;
    struct pending pending[CUDA_PENDING];
    int pendings;
    struct blas *blas;
    struct link *link; /* NULL: its library was not loaded */
    const char *op;    /* name of the op that was called last, for errors */
    struct heed_error failed;
    struct trace *trace; /* NULL: not measuring */
};

static inline struct gpu *gpu_of(struct backend *be)
{
    return (struct gpu *)be;
}

/* Keeps the first error until sync returns it. */
void cuda_check(struct gpu *c, cudaError_t e);
/* Keeps an error: the op does not support an operand, which `what` describes. */
void cuda_refuse(struct gpu *c, const char *what);

static inline double mat_bytes(struct mat m)
{
    return m.p ? (double)m.rows * m.cols * type_size(m.type) : 0;
}

/* trace.cu */
/* The work enqueued from here on counts as `name`. bytes and flops: the least it needs. */
void cuda_mark(struct gpu *c, const char *name, double bytes, double flops);
int cuda_trace(struct backend *be, struct op_time *out, int max); /* as ops.trace */
void cuda_trace_close(struct gpu *c);
/* link_nccl.cu, or link_none.cu in a build without NCCL */
extern const struct link_ops cuda_links;
/* Waits for the stream, as cudaStreamSynchronize does, but not for transfers that have failed. To
 * be called where c->link is not NULL. */
void link_sync(struct gpu *c);
/* Closes the link without waiting for other ranks; c->link may be NULL. */
void link_release(struct gpu *c);
/* graph.cu: as in struct ops */
bool cuda_capture_begin(struct backend *be);
struct graph *cuda_capture_end(struct backend *be);
void cuda_graph_launch(struct backend *be, struct graph *g);
void cuda_graph_free(struct backend *be, struct graph *g);
/* memory.cu */
enum heed_status memory_open(struct gpu *c, struct heed_error *err);
void memory_close(struct gpu *c);
enum heed_status memory_alloc(struct gpu *c, void **p, size_t bytes, struct heed_error *err);
void memory_upload(struct gpu *c, void *dst, const void *src, size_t bytes, cudaStream_t stream);
void memory_download(struct gpu *c, void *dst, const void *src, size_t bytes);
/* Copies waiting downloads to the caller's memory; the stream has been synchronized. */
void memory_deliver(struct gpu *c);

/* linear.cu */

/* n vectors of one length to which column sums are added */
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
void cuda_add_bwd(struct gpu *c, struct mat dr, struct mat drb, struct mat dy, struct drop d);
/* rotate.cu */
void cuda_rotate(struct gpu *c, struct mat x, const int32_t *pos, struct mat table, bool opposite);

/* gate.cu */
void cuda_gate(struct gpu *c, struct mat h, struct mat z, struct drop d);
void cuda_gate_bwd(struct gpu *c, struct mat dz, struct mat db, struct mat dh, struct mat z,
                   struct drop d);
/* experts.cu */
void cuda_route(struct gpu *c, const struct routing *r, struct mat x, struct mat w);
void cuda_dispatch(struct gpu *c, struct mat y, struct mat x, const struct routing *r, bool gated);
void cuda_combine(struct gpu *c, struct mat y, struct mat x, const struct routing *r);
void cuda_route_bwd(struct gpu *c, struct mat dx, float beta, struct mat dw, struct mat dy,
                    struct mat y, struct mat dtaken, struct mat x, struct mat w,
                    const struct routing *r, float balance);
/* experts_linear.cu */
void cuda_experts_linear(struct gpu *c, struct mat y, struct mat x, struct mat w, struct mat b,
                         struct activation f, const struct routing *r);
void cuda_experts_linear_bwd(struct gpu *c, struct mat dx, struct mat db, struct mat dw,
                             struct mat dy, struct mat x, struct mat w, struct activation f,
                             const struct routing *r);
/* few.cu: returns whether it computed the product */
bool cuda_linear_few(struct gpu *c, struct mat y, struct mat x, struct mat w, struct mat b,
                     bool relu);
/* hopper.cu: both return whether they computed linear, or dx and db of linear_bwd. Only for Hopper:
 * other GPUs, newer ones included, do not have its instructions. */
void hopper_open(struct gpu *c);
/* The TMA descriptor of m for boxes of so many rows and 64 columns. Where a box extends beyond m,
 * TMA reads zeros and stores nothing. Returns false for a matrix that TMA cannot copy. */
bool box_map_of(struct gpu *c, CUtensorMap *map, struct mat m, int rows);
bool hopper_linear(struct gpu *c, struct mat y, struct mat x, struct mat w, struct mat b,
                   struct activation f);
bool hopper_linear_dx(struct gpu *c, struct mat dx, struct mat db, struct mat dy, struct mat x,
                      struct mat w, struct activation f);
/* resident.cu: y = x wT + b or, turned and without b, x w; b is f32 or absent, all others are bf16.
 * name: for the trace. Returns whether it computed it, which it does on Hopper where that is faster
 * than cuBLASLt. */
bool resident_product(struct gpu *c, const char *name, struct mat y, struct mat x, struct mat w,
                      struct mat b, bool turned);
/* norm.cu */
void cuda_add_norm(struct gpu *c, struct mat y, struct mat xhat, struct mat rstd, struct mat x,
                   struct mat r, struct mat g, struct mat b, struct drop d);
/* y = x + drop(r), or drop(r) where x is absent */
void cuda_add(struct gpu *c, struct mat y, struct mat x, struct mat r, struct drop d);
void cuda_norm_bwd(struct gpu *c, struct mat dx, float beta, struct mat dg, struct mat db,
                   struct mat dy, struct mat xhat, struct mat rstd, struct mat g);
void cuda_add_norm_bwd(struct gpu *c, struct mat dx, struct mat dr, struct mat drb, struct mat dg,
                       struct mat db, struct mat dy, struct mat xhat, struct mat rstd, struct mat g,
                       struct drop d);
/* embed.cu */
void cuda_embed(struct gpu *c, struct mat y, const int32_t *id, const int32_t *pos, struct mat e,
                struct mat position, struct drop d);
void cuda_embed_bwd(struct gpu *c, struct mat de, const int32_t *id, struct mat dy, double scale,
                    struct drop d);
/* loss.cu */
void cuda_xent(struct gpu *c, struct mat logits, const int32_t *target, float eps, bool grad,
               struct mat loss);
/* adam.cu */
void cuda_sqnorm(struct gpu *c, double *out, struct mat g);
void cuda_adam(struct gpu *c, struct mat p, struct mat m, struct mat v, struct mat copy,
               struct mat g, const double *sq, const struct adam *h);
void cuda_accumulate(struct gpu *c, struct mat x, struct mat y);
void cuda_cast(struct gpu *c, struct mat dst, struct mat src);
/* decode.cu */
size_t cuda_pack_bytes(enum type type, int rows, int cols);
void cuda_pack(struct gpu *c, struct mat w, struct stored from);
void cuda_cache_put(struct gpu *c, struct mat cache, struct mat rows, const int32_t *at);
void cuda_topk(struct gpu *c, struct mat logits, int k, const int32_t *want, int wants,
               float *score, int32_t *id);

/* A packed matrix as a row-major one. F32 and BF16 have the same layout packed and unpacked. I8: a
 * row has its numbers, integers that bf16 represents exactly, then the scale of the row: see
 * packed_unit. */
enum {
    PACKED_UNIT = 8
}; /* bf16 elements reserved for the scale, so that rows stay 16-byte aligned */

static inline struct mat mat_unpacked(struct mat w)
{
    if (!type_packed(w.type)) return w;
    if (w.type == TYPE_PACKED_I8) w.ld = (w.cols + 7) / 8 * 8 + PACKED_UNIT;
    w.type = w.type == TYPE_PACKED_F32 ? TYPE_F32 : TYPE_BF16;
    return w;
}

#endif
