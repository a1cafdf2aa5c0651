/*
 * cuda.cu - the CUDA backend: opens a device and holds the op table.
 *
 * Each function of the table sets the name of the op for errors and the trace, calls the op's own
 * file, and checks that its kernels were launched.
 * Order: cuda_open, ops, sync, close. A backend serves one thread at a time.
 */
#include "ops/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/cuda/attention.h"
#include "ops/cuda/blas.h"
#include "ops/cuda/linear_attention.h"

/* ---- errors ---- */

/* The name of an op ends at the comma; the text after it is for the trace. */
static int op_length(const struct gpu *c)
{
    return (int)strcspn(c->op, ",");
}

void cuda_check(struct gpu *c, cudaError_t e)
{
    if (e != cudaSuccess && !c->failed.status)
        error_set(&c->failed, HEED_EIO, "%s failed in or before %.*s: %s", c->name, op_length(c),
                  c->op, cudaGetErrorString(e));
}

void cuda_refuse(struct gpu *c, const char *what)
{
    if (!c->failed.status)
        error_set(&c->failed, HEED_EUNSUPPORTED, "%s: %.*s does not support %s", c->name,
                  op_length(c), c->op, what);
}

/* ---- around every op ---- */

/* The current device is a setting of the calling thread, which may differ from call to call. */
static struct gpu *begin(struct backend *be, const char *op, double bytes)
{
    struct gpu *c = gpu_of(be);
    c->op = op;
    cudaSetDevice(c->device);
    cuda_mark(c, op, bytes, 0);
    return c;
}

static void end(struct gpu *c)
{
    cuda_check(c, cudaGetLastError());
    cuda_mark(c, "between ops", 0, 0);
}

/* ---- memory and order ---- */

static enum heed_status op_alloc(struct backend *be, void **p, size_t bytes, enum use,
                                 struct heed_error *err)
{
    cudaSetDevice(gpu_of(be)->device);
    return memory_alloc(gpu_of(be), p, bytes, err);
}

static void op_free(struct backend *be, void *p)
{
    struct gpu *c = gpu_of(be);
    cudaSetDevice(c->device);
    if (p) cudaStreamSynchronize(c->stream), cudaFree(p);
}

static void op_zero(struct backend *be, void *p, size_t bytes)
{
    struct gpu *c = begin(be, "zero", (double)bytes);
    if (bytes) cuda_check(c, cudaMemsetAsync(p, 0, bytes, c->stream));
    end(c);
}

static void op_upload(struct backend *be, void *dst, const void *src, size_t bytes)
{
    struct gpu *c = begin(be, "upload", (double)bytes);
    memory_upload(c, dst, src, bytes, c->stream);
    end(c);
}

static void op_upload_ahead(struct backend *be, void *dst, const void *src, size_t bytes)
{
    struct gpu *c = begin(be, "upload ahead", (double)bytes);
    memory_upload(c, dst, src, bytes, c->side);
    end(c);
}

static void op_download(struct backend *be, void *dst, const void *src, size_t bytes)
{
    struct gpu *c = begin(be, "download", (double)bytes);
    memory_download(c, dst, src, bytes);
    end(c);
}

static enum heed_status op_sync(struct backend *be, struct heed_error *err)
{
    struct gpu *c = gpu_of(be);
    cudaSetDevice(c->device);
    if (c->link)
        link_sync(c);
    else
        cuda_check(c, cudaStreamSynchronize(c->stream));
    memory_deliver(c);
    struct heed_error failed = c->failed;
    c->failed.status = HEED_OK;
    if (failed.status && err) *err = failed;
    return failed.status;
}

static void op_close(struct backend *be)
{
    struct gpu *c = gpu_of(be);
    cudaSetDevice(c->device);
    link_release(c);
    if (c->stream) cudaStreamSynchronize(c->stream);
    cuda_trace_close(c);
    blas_close(c->blas);
    memory_close(c);
    if (c->stream) cudaStreamDestroy(c->stream);
    if (c->side) cudaStreamDestroy(c->side);
    if (c->sent) cudaEventDestroy(c->sent);
    cudaGetLastError();
    free(c);
}

/* ---- compute ---- */

static void op_embed(struct backend *be, struct mat y, const int32_t *id, const int32_t *pos,
                     struct mat e, struct mat position, struct drop d)
{
    struct gpu *c = begin(be, "embed", 3 * mat_bytes(y));
    if (y.rows) cuda_embed(c, y, id, pos, e, position, d);
    end(c);
}

static void op_linear(struct backend *be, struct mat y, struct mat x, struct mat w, struct mat b,
                      struct activation f)
{
    struct gpu *c = begin(be, "linear, before", 0);
    if (y.rows) cuda_linear(c, y, x, w, b, f);
    end(c);
}

static void op_rotate(struct backend *be, struct mat x, const int32_t *pos, struct mat table,
                      bool opposite)
{
    struct gpu *c = begin(be, "rotate", 2 * mat_bytes(x));
    if (x.rows) cuda_rotate(c, x, pos, table, opposite);
    end(c);
}

static void op_gate(struct backend *be, struct mat h, struct mat z, struct drop d)
{
    struct gpu *c = begin(be, "gate", mat_bytes(h) + mat_bytes(z));
    if (h.rows) cuda_gate(c, h, z, d);
    end(c);
}

static void op_route(struct backend *be, const struct routing *r, struct mat x, struct mat w)
{
    struct gpu *c = begin(be, "route", mat_bytes(x));
    cuda_route(c, r, x, w);
    end(c);
}

static void op_dispatch(struct backend *be, struct mat y, struct mat x, const struct routing *r,
                        bool gated)
{
    struct gpu *c = begin(be, "dispatch", mat_bytes(x) * (1 + r->per_row));
    if (x.rows) cuda_dispatch(c, y, x, r, gated);
    end(c);
}

static void op_experts_linear(struct backend *be, struct mat y, struct mat x, struct mat w,
                              struct mat b, struct activation f, const struct routing *r)
{
    struct gpu *c = begin(be, "experts_linear, before", 0);
    if (x.rows) cuda_experts_linear(c, y, x, w, b, f, r);
    end(c);
}

static void op_combine(struct backend *be, struct mat y, struct mat x, const struct routing *r)
{
    struct gpu *c = begin(be, "combine", mat_bytes(y) * (1 + r->per_row));
    if (y.rows) cuda_combine(c, y, x, r);
    end(c);
}

static bool attention_taken(struct gpu *c, const struct attention *a)
{
    const struct seqs *s = &a->seqs;
    int64_t longest = s->max_q > s->max_k ? s->max_q : s->max_k;
    bool good = a->q.type == TYPE_F32 || a->q.type == TYPE_BF16;
    bool fits = s->n * longest * a->heads <= INT32_MAX; /* blocks of a launch */
    /* the gradient of the tables for one part of the queries, in every head */
    double tables = mat_bytes(a->relative_k) + mat_bytes(a->relative_v);
    bool tables_fit = tables * a->heads <= CUDA_SCRATCH;
    if (!good) cuda_refuse(c, "numbers other than f32 and bf16");
    if (!fits) cuda_refuse(c, "a batch of so many long sentences");
    if (!tables_fit) cuda_refuse(c, "so many vectors for distances");
    return good && fits && tables_fit && s->n > 0;
}

static void op_attend(struct backend *be, const struct attention *a)
{
    struct gpu *c = begin(be, "attend", 2 * mat_bytes(a->q) + 2 * mat_bytes(a->k));
    if (attention_taken(c, a)) attention_forward(a, c->chain);
    end(c);
}

static void op_attend_linear(struct backend *be, const struct attention *a)
{
    struct gpu *c = begin(be, "attend_linear", 2 * mat_bytes(a->q) + 2 * mat_bytes(a->k));
    if (attention_taken(c, a)) {
        linear_attention_forward(a, c->shared, c->chain);
        if (a->weights.p) linear_attention_weights(a, c->chain);
    }
    end(c);
}

static void op_add_norm(struct backend *be, struct mat y, struct mat xhat, struct mat rstd,
                        struct mat x, struct mat r, struct mat g, struct mat b, struct drop d)
{
    struct gpu *c = begin(be, "add_norm", 3 * mat_bytes(y) + mat_bytes(xhat) + mat_bytes(rstd));
    if (y.rows) cuda_add_norm(c, y, xhat, rstd, x, r, g, b, d);
    end(c);
}

static void op_add(struct backend *be, struct mat y, struct mat x, struct mat r, struct drop d)
{
    struct gpu *c = begin(be, "add", 3 * mat_bytes(y));
    if (y.rows) cuda_add(c, y, x, r, d);
    end(c);
}

static void op_norm(struct backend *be, struct mat y, struct mat xhat, struct mat rstd,
                    struct mat x, struct mat g, struct mat b)
{
    struct gpu *c = begin(be, "norm", 2 * mat_bytes(y) + mat_bytes(xhat) + mat_bytes(rstd));
    if (y.rows) cuda_add_norm(c, y, xhat, rstd, x, (struct mat){}, g, b, (struct drop){});
    end(c);
}

static void op_embed_bwd(struct backend *be, struct mat de, const int32_t *id, struct mat dy,
                         double scale, struct drop d)
{
    struct gpu *c = begin(be, "embed_bwd", mat_bytes(dy));
    if (dy.rows) cuda_embed_bwd(c, de, id, dy, scale, d);
    end(c);
}

static void op_linear_bwd(struct backend *be, struct mat dx, float beta, struct mat db,
                          struct mat dw, struct mat dy, struct mat x, struct mat w,
                          struct activation f)
{
    struct gpu *c = begin(be, "linear_bwd, before", 0);
    if (dy.rows) cuda_linear_bwd(c, dx, beta, db, dw, dy, x, w, f);
    end(c);
}

static void op_bias_bwd(struct backend *be, struct mat db, struct mat dy)
{
    struct gpu *c = begin(be, "bias_bwd", mat_bytes(dy));
    if (dy.rows) cuda_bias_bwd(c, db, dy);
    end(c);
}

static void op_gate_bwd(struct backend *be, struct mat dz, struct mat db, struct mat dh,
                        struct mat z, struct drop d)
{
    struct gpu *c = begin(be, "gate_bwd", mat_bytes(dz) + mat_bytes(dh) + mat_bytes(z));
    if (dh.rows) cuda_gate_bwd(c, dz, db, dh, z, d);
    end(c);
}

static void op_experts_linear_bwd(struct backend *be, struct mat dx, struct mat db, struct mat dw,
                                  struct mat dy, struct mat x, struct mat w, struct activation f,
                                  const struct routing *r)
{
    struct gpu *c = begin(be, "experts_linear_bwd, before", 0);
    if (dy.rows) cuda_experts_linear_bwd(c, dx, db, dw, dy, x, w, f, r);
    end(c);
}

static void op_route_bwd(struct backend *be, struct mat dx, float beta, struct mat dw,
                         struct mat dy, struct mat y, struct mat dtaken, struct mat x, struct mat w,
                         const struct routing *r, float balance)
{
    struct gpu *c = begin(be, "route_bwd", mat_bytes(x) * (3 + 2 * r->per_row));
    if (x.rows) cuda_route_bwd(c, dx, beta, dw, dy, y, dtaken, x, w, r, balance);
    end(c);
}

static void op_attend_bwd(struct backend *be, const struct attention *a,
                          const struct attention_grad *g)
{
    struct gpu *c = begin(be, "attend_bwd", 4 * mat_bytes(a->q) + 4 * mat_bytes(a->k));
    if (attention_taken(c, a)) attention_backward(c, a, g);
    end(c);
}

static void op_attend_linear_bwd(struct backend *be, const struct attention *a,
                                 const struct attention_grad *g)
{
    struct gpu *c = begin(be, "attend_linear_bwd", 4 * mat_bytes(a->q) + 4 * mat_bytes(a->k));
    if (attention_taken(c, a)) linear_attention_backward(a, g, c->shared, c->chain);
    end(c);
}

static void op_add_norm_bwd(struct backend *be, struct mat dx, struct mat dr, struct mat drb,
                            struct mat dg, struct mat db, struct mat dy, struct mat xhat,
                            struct mat rstd, struct mat g, struct drop d)
{
    struct gpu *c = begin(be, "add_norm_bwd", 4 * mat_bytes(dy) + mat_bytes(rstd));
    if (dy.rows) cuda_add_norm_bwd(c, dx, dr, drb, dg, db, dy, xhat, rstd, g, d);
    end(c);
}

static void op_add_bwd(struct backend *be, struct mat dr, struct mat drb, struct mat dy,
                       struct drop d)
{
    struct gpu *c = begin(be, "add_bwd", 2 * mat_bytes(dy));
    if (dy.rows) cuda_add_bwd(c, dr, drb, dy, d);
    end(c);
}

static void op_norm_bwd(struct backend *be, struct mat dx, float beta, struct mat dg, struct mat db,
                        struct mat dy, struct mat xhat, struct mat rstd, struct mat g)
{
    struct gpu *c = begin(be, "norm_bwd", 3 * mat_bytes(dy) + mat_bytes(rstd));
    if (dy.rows) cuda_norm_bwd(c, dx, beta, dg, db, dy, xhat, rstd, g);
    end(c);
}

static void op_xent(struct backend *be, struct mat logits, const int32_t *target, float eps,
                    bool grad, struct mat loss)
{
    struct gpu *c = begin(be, "xent", (grad ? 2 : 1) * mat_bytes(logits));
    if (logits.rows) cuda_xent(c, logits, target, eps, grad, loss);
    end(c);
}

static void op_sqnorm(struct backend *be, double *out, struct mat g)
{
    struct gpu *c = begin(be, "sqnorm", mat_bytes(g));
    cuda_sqnorm(c, out, g);
    end(c);
}

static void op_adam(struct backend *be, struct mat p, struct mat m, struct mat v, struct mat copy,
                    struct mat g, const double *sq, const struct adam *h)
{
    struct gpu *c = begin(be, "adam", 7 * mat_bytes(p) + mat_bytes(copy));
    cuda_adam(c, p, m, v, copy, g, sq, h);
    end(c);
}

static void op_accumulate(struct backend *be, struct mat x, struct mat y)
{
    struct gpu *c = begin(be, "accumulate", 3 * mat_bytes(x));
    if (x.cols) cuda_accumulate(c, x, y);
    end(c);
}

static void op_cast(struct backend *be, struct mat dst, struct mat src)
{
    struct gpu *c = begin(be, "cast", mat_bytes(dst) + mat_bytes(src));
    if (dst.rows && dst.cols) cuda_cast(c, dst, src);
    end(c);
}

static void op_pack(struct backend *be, struct mat w, struct stored from)
{
    struct gpu *c = begin(be, "pack", 0);
    cuda_pack(c, w, from);
    end(c);
}

static void op_cache_put(struct backend *be, struct mat cache, struct mat rows, const int32_t *at)
{
    struct gpu *c = begin(be, "cache_put", 2 * mat_bytes(rows));
    if (rows.rows) cuda_cache_put(c, cache, rows, at);
    end(c);
}

static void op_linear_state(struct backend *be, struct mat states, const struct attention *a)
{
    struct gpu *c = begin(be, "linear_state", 2 * mat_bytes(a->k) + mat_bytes(states));
    if (a->seqs.n) linear_attention_sum(states, a, c->shared, c->chain);
    end(c);
}

static void op_attend_state(struct backend *be, struct mat states, const struct attention *a)
{
    double state = (double)a->seqs.n * states.cols * sizeof(float);
    struct gpu *c = begin(be, "attend_state", 2 * mat_bytes(a->q) + state * (a->seqs.to ? 2 : 1));
    if (attention_taken(c, a)) {
        linear_attention_step(states, a, c->chain);
        if (a->weights.p) linear_attention_weights(a, c->chain);
    }
    end(c);
}

static void op_topk(struct backend *be, struct mat logits, int k, const int32_t *want, int wants,
                    float *score, int32_t *id)
{
    struct gpu *c = begin(be, "topk", mat_bytes(logits));
    if (logits.rows && k) cuda_topk(c, logits, k, want, wants, score, id);
    end(c);
}

static size_t op_memory_used(struct backend *be)
{
    size_t free_bytes = 0, total = 0;
    cudaSetDevice(gpu_of(be)->device);
    cudaMemGetInfo(&free_bytes, &total);
    return total - free_bytes;
}

/* ---- the table ---- */

/* Logits in bf16 then take 400 MB, which is 5,000 rows of the paper's vocabulary: enough for
 * products to reach their full speed and for few passes over the gradient of the embedding. */
enum { CHUNK = 200 << 20, CHUNK_ROWS = 32768 };

static const struct ops table = {
    .name = "cuda",
    .chunk = CHUNK,
    .chunk_rows = CHUNK_ROWS,
    .chunk_bf16 = CHUNK,
    .step_rows = 512,
    .attend_forms = true,
    .activations = ACT_KINDS,
    .alloc = op_alloc,
    .free = op_free,
    .zero = op_zero,
    .upload = op_upload,
    .upload_ahead = op_upload_ahead,
    .download = op_download,
    .sync = op_sync,
    .close = op_close,
    .embed = op_embed,
    .linear = op_linear,
    .gate = op_gate,
    .attend = op_attend,
    .attend_linear = op_attend_linear,
    .add_norm = op_add_norm,
    .add = op_add,
    .norm = op_norm,
    .rotate = op_rotate,
    .route = op_route,
    .dispatch = op_dispatch,
    .experts_linear = op_experts_linear,
    .combine = op_combine,
    .embed_bwd = op_embed_bwd,
    .linear_bwd = op_linear_bwd,
    .bias_bwd = op_bias_bwd,
    .gate_bwd = op_gate_bwd,
    .experts_linear_bwd = op_experts_linear_bwd,
    .route_bwd = op_route_bwd,
    .attend_bwd = op_attend_bwd,
    .attend_linear_bwd = op_attend_linear_bwd,
    .add_norm_bwd = op_add_norm_bwd,
    .add_bwd = op_add_bwd,
    .norm_bwd = op_norm_bwd,
    .xent = op_xent,
    .sqnorm = op_sqnorm,
    .adam = op_adam,
    .accumulate = op_accumulate,
    .cast = op_cast,
    .pack_bytes = cuda_pack_bytes,
    .pack = op_pack,
    .cache_put = op_cache_put,
    .linear_state = op_linear_state,
    .attend_state = op_attend_state,
    .topk = op_topk,
    .capture_begin = cuda_capture_begin,
    .capture_end = cuda_capture_end,
    .graph_launch = cuda_graph_launch,
    .graph_free = cuda_graph_free,
    .link = &cuda_links,
    .memory_used = op_memory_used,
    .trace = cuda_trace,
};

/* ---- open ---- */

enum { OLDEST = 8, HOPPER = 9 }; /* compute capability */

static enum heed_status device_check(int device, struct heed_error *err)
{
    int count = 0, major = 0;
    cudaError_t e = cudaGetDeviceCount(&count);
    if (e != cudaSuccess || count == 0)
        return error_set(err, HEED_EUNSUPPORTED,
                         "device is 'cuda:%d', but this machine has no NVIDIA GPU that can be "
                         "used: %s",
                         device,
                         e == cudaErrorInsufficientDriver ? "its driver is missing or too old"
                         : e == cudaSuccess               ? "none was found"
                                                          : cudaGetErrorString(e));
    if (device >= count)
        return error_set(
            err, HEED_EARG,
            "device is 'cuda:%d', expected a number below %d, the number of GPUs of this machine",
            device, count);
    e = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (e == cudaSuccess && major < OLDEST)
        return error_set(err, HEED_EUNSUPPORTED,
                         "cuda:%d has compute capability %d, expected at least %d.0", device, major,
                         OLDEST);
    return HEED_OK;
}

static enum heed_status open_failed(int device, cudaError_t e, struct heed_error *err)
{
    return error_set(err, e == cudaErrorMemoryAllocation ? HEED_ENOMEM : HEED_EUNSUPPORTED,
                     "cuda:%d cannot be used: %s", device, cudaGetErrorString(e));
}

static enum heed_status device_open(struct gpu *c, struct heed_error *err)
{
    struct cudaDeviceProp prop;
    cudaError_t e = cudaSetDevice(c->device);
    if (e == cudaSuccess) e = cudaGetDeviceProperties(&prop, c->device);
    if (e == cudaSuccess) e = cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking);
    if (e == cudaSuccess) e = cudaStreamCreateWithFlags(&c->side, cudaStreamNonBlocking);
    if (e == cudaSuccess) e = cudaEventCreateWithFlags(&c->sent, cudaEventDisableTiming);
    if (e != cudaSuccess) return open_failed(c->device, e, err);
    c->shared = (int)prop.sharedMemPerBlockOptin;
    c->processors = prop.multiProcessorCount;
    if (prop.major == HOPPER && prop.minor == 0) hopper_open(c);
    c->plain = getenv("HEED_CUDA_PLAIN") != NULL;
    c->chain = {c->stream, prop.major >= HOPPER && !c->plain};
    snprintf(c->name, sizeof c->name, "cuda:%d (%.60s)", c->device, prop.name);
    return HEED_OK;
}

enum heed_status cuda_open(struct backend **out, int device, struct heed_error *err)
{
    enum heed_status s = device_check(device, err);
    if (s) return s;
    struct gpu *c = (struct gpu *)calloc(1, sizeof *c);
    if (!c) return error_memory(err, sizeof *c, "the CUDA backend");
    c->base.op = &table;
    c->device = device;
    c->op = "open";
    s = device_open(c, err);
    if (!s) s = memory_open(c, err);
    if (!s) s = blas_open(&c->blas, c, err);
    if (s)
        op_close(&c->base);
    else
        *out = &c->base;
    return s;
}
