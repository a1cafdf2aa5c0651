/*
 * link_nccl.cu - links between GPUs by NCCL; see struct link_ops in ops.h.
 *
 * nccl.h gives the types; functions are looked up in libnccl.so.2 when the link is loaded, so a
 * process that needs no link starts as if there were no NCCL. What may fail on one rank alone is
 * done then, before any rank opens the link: NCCL would wait for that rank for ever.
 *
 * Transfers have a stream of their own. Events order it with the stream of the ops: a group of
 * transfers waits for the ops that were enqueued before it, and the stream of the ops waits for the
 * transfers where wait was called. NCCL's kernels run on that stream until all ranks have done
 * their part. So where a rank has died without an error that NCCL can see, the stream of the ops
 * never gets past a wait, and the host stays in link_sync or in another call of CUDA. The thread of
 * the cluster that exchanges signs of life (cluster/pulse.c) calls neither CUDA nor NCCL: it
 * notices the silence after 6 to 8 seconds and ends the process with _Exit, upon which the driver
 * removes the kernels.
 */
#include <dlfcn.h>
#include <nccl.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/cuda/cuda.h"

enum { WAITS = 8 }; /* waits between two syncs that are measured; a step has up to three */

struct nccl {
    decltype(&ncclGetVersion) version;
    decltype(&ncclGetErrorString) error_string;
    decltype(&ncclGetLastError) last_error;
    decltype(&ncclGetUniqueId) unique_id;
    decltype(&ncclCommInitRank) init;
    decltype(&ncclCommDestroy) destroy;
    decltype(&ncclCommAbort) abort;
    decltype(&ncclCommGetAsyncError) async_error;
    decltype(&ncclGroupStart) group_start;
    decltype(&ncclGroupEnd) group_end;
    decltype(&ncclSend) send;
    decltype(&ncclRecv) receive;
    decltype(&ncclReduce) reduce;
};

static const struct {
    const char *name;
    size_t at;
} symbols[] = {
    {"ncclGetVersion", offsetof(struct nccl, version)},
    {"ncclGetErrorString", offsetof(struct nccl, error_string)},
    {"ncclGetLastError", offsetof(struct nccl, last_error)},
    {"ncclGetUniqueId", offsetof(struct nccl, unique_id)},
    {"ncclCommInitRank", offsetof(struct nccl, init)},
    {"ncclCommDestroy", offsetof(struct nccl, destroy)},
    {"ncclCommAbort", offsetof(struct nccl, abort)},
    {"ncclCommGetAsyncError", offsetof(struct nccl, async_error)},
    {"ncclGroupStart", offsetof(struct nccl, group_start)},
    {"ncclGroupEnd", offsetof(struct nccl, group_end)},
    {"ncclSend", offsetof(struct nccl, send)},
    {"ncclRecv", offsetof(struct nccl, receive)},
    {"ncclReduce", offsetof(struct nccl, reduce)},
};

struct link {
    struct nccl nccl;
    ncclComm_t comm; /* NULL: the link is not open, or was closed after an error */
    cudaStream_t stream;
    cudaEvent_t ready, done; /* ops are done that transfers wait for; and the other way round */
    struct {
        cudaEvent_t from, to;
    } wait[WAITS]; /* on the stream of the ops, around a wait; since the last sync */
    int waits;
    double waited; /* seconds */
};

static_assert(sizeof(struct link_id) == sizeof(ncclUniqueId), "a link_id holds one of NCCL's");

/* ---- errors ---- */

/* What NCCL says of its last error, in one line; "" where it says nothing. */
static void detail(const struct link *l, char *out, size_t size)
{
    const char *text = l->nccl.last_error(NULL);
    snprintf(out, size, "%s%s", text && *text ? ": " : "", text ? text : "");
    for (char *p = out; *p; p++)
        if (*p == '\n') *p = ' ';
    size_t n = strlen(out);
    while (n && out[n - 1] == ' ') out[--n] = '\0';
}

/* Keeps the first error until sync returns it. */
static void link_check(struct gpu *c, ncclResult_t r)
{
    char more[256];
    if (r == ncclSuccess || r == ncclInProgress || c->failed.status) return;
    detail(c->link, more, sizeof more);
    error_set(&c->failed, HEED_EIO, "%s failed in or before a transfer by NCCL: %s%s", c->name,
              c->link->nccl.error_string(r), more);
}

static enum heed_status link_failed(const struct gpu *c, const char *what, ncclResult_t r,
                                    struct heed_error *err)
{
    char more[256];
    detail(c->link, more, sizeof more);
    return error_set(err, HEED_EIO, "%s cannot %s: NCCL says %s%s", c->name, what,
                     c->link->nccl.error_string(r), more);
}

/* ---- life ---- */

#define LIBRARY "libnccl.so.2"

/* The library is never unloaded: threads of its own may still run. */
static enum heed_status library_load(struct nccl *f, struct heed_error *err)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) { /* the reason is that of the first try */
        error_set(err, HEED_EUNSUPPORTED, "NCCL cannot be loaded: %s", dlerror());
        library = dlopen("/usr/local/cuda/lib64/" LIBRARY, RTLD_NOW | RTLD_LOCAL);
    }
    if (!library) return HEED_EUNSUPPORTED;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *found = dlsym(library, symbols[i].name);
        if (!found)
            return error_set(err, HEED_EUNSUPPORTED, "%s has no %s: it is too old", LIBRARY,
                             symbols[i].name);
        memcpy((char *)f + symbols[i].at, &found, sizeof found);
    }
    return HEED_OK;
}

static void link_free(struct link *l)
{
    if (l->stream) cudaStreamDestroy(l->stream);
    if (l->ready) cudaEventDestroy(l->ready);
    if (l->done) cudaEventDestroy(l->done);
    for (int i = 0; i < WAITS; i++) {
        if (l->wait[i].from) cudaEventDestroy(l->wait[i].from);
        if (l->wait[i].to) cudaEventDestroy(l->wait[i].to);
    }
    free(l);
}

static enum heed_status open_streams(const struct gpu *c, struct link *l, struct heed_error *err)
{
    int least = 0, greatest = 0;
    cudaSetDevice(c->device);
    cudaError_t e = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    /* The blocks of a transfer are few and take turns first, so that bytes move while ops run. */
    if (e == cudaSuccess)
        e = cudaStreamCreateWithPriority(&l->stream, cudaStreamNonBlocking, greatest);
    if (e == cudaSuccess) e = cudaEventCreateWithFlags(&l->ready, cudaEventDisableTiming);
    if (e == cudaSuccess) e = cudaEventCreateWithFlags(&l->done, cudaEventDisableTiming);
    for (int i = 0; i < WAITS && e == cudaSuccess; i++) {
        e = cudaEventCreate(&l->wait[i].from);
        if (e == cudaSuccess) e = cudaEventCreate(&l->wait[i].to);
    }
    if (e == cudaSuccess) return HEED_OK;
    return error_set(err, HEED_EIO, "%s cannot open a link: %s", c->name, cudaGetErrorString(e));
}

static enum heed_status link_load(struct backend *be, struct link_info *out, struct heed_error *err)
{
    struct gpu *c = gpu_of(be);
    struct cudaDeviceProp prop;
    int version = 0;
    cudaError_t e = cudaGetDeviceProperties(&prop, c->device);
    if (e != cudaSuccess)
        return error_set(err, HEED_EIO, "%s failed: %s", c->name, cudaGetErrorString(e));
    if (!c->link) {
        struct link *l = (struct link *)calloc(1, sizeof *l);
        if (!l) return error_memory(err, sizeof *l, "a link between devices");
        enum heed_status s = library_load(&l->nccl, err);
        if (!s) s = open_streams(c, l, err);
        if (s) {
            link_free(l);
            return s;
        }
        c->link = l;
    }
    c->link->nccl.version(&version);
    *out = {};
    static_assert(sizeof out->device.bytes == sizeof prop.uuid.bytes, "a UUID names a GPU");
    memcpy(out->device.bytes, prop.uuid.bytes, sizeof out->device.bytes);
    snprintf(out->library, sizeof out->library, "NCCL %d.%d.%d", version / 10000,
             version / 100 % 100, version % 100);
    return HEED_OK;
}

static enum heed_status link_make_id(struct backend *be, struct link_id *out,
                                     struct heed_error *err)
{
    struct gpu *c = gpu_of(be);
    ncclUniqueId id;
    cudaSetDevice(c->device);
    ncclResult_t r = c->link->nccl.unique_id(&id);
    if (r != ncclSuccess) return link_failed(c, "make the id of a link", r, err);
    memcpy(out->bytes, &id, sizeof id);
    return HEED_OK;
}

static enum heed_status link_open(struct backend *be, const struct link_id *id, int rank, int ranks,
                                  struct heed_error *err)
{
    struct gpu *c = gpu_of(be);
    ncclUniqueId given;
    memcpy(&given, id->bytes, sizeof given);
    cudaSetDevice(c->device);
    c->link->waits = 0;
    c->link->waited = 0;
    ncclResult_t r = c->link->nccl.init(&c->link->comm, ranks, given, rank);
    if (r == ncclSuccess) return HEED_OK;
    c->link->comm = NULL;
    return link_failed(c, "open a link", r, err);
}

static void link_close(struct backend *be, bool abandon)
{
    struct gpu *c = gpu_of(be);
    struct link *l = c->link;
    cudaSetDevice(c->device);
    if (l && l->comm && abandon) {
        l->nccl.abort(l->comm);
    } else if (l && l->comm) {
        cudaStreamSynchronize(l->stream);
        l->nccl.destroy(l->comm);
    }
    if (l) l->comm = NULL;
}

void link_release(struct gpu *c)
{
    if (!c->link) return;
    link_close(&c->base, true);
    link_free(c->link);
    c->link = NULL;
}

/* ---- transfers ---- */

static ncclResult_t part_begin(struct link *l, const struct link_part *part)
{
    const struct mat *x = &part->x;
    size_t n = (size_t)x->cols, bytes = n * type_size(x->type);
    switch (part->kind) {
    case LINK_SEND:
        return l->nccl.send(x->p, bytes, ncclUint8, part->rank, l->comm, l->stream);
    case LINK_RECEIVE:
        return l->nccl.receive(x->p, bytes, ncclUint8, part->rank, l->comm, l->stream);
    default:
        return l->nccl.reduce(x->p, x->p, n, ncclFloat32, ncclSum, part->rank, l->comm, l->stream);
    }
}

static void link_move(struct backend *be, const struct link_part *part, int n)
{
    struct gpu *c = gpu_of(be);
    struct link *l = c->link;
    c->op = "link";
    cudaSetDevice(c->device);
    if (!l->comm) return cuda_refuse(c, "a transfer after one has failed");
    cuda_check(c, cudaEventRecord(l->ready, c->stream));
    cuda_check(c, cudaStreamWaitEvent(l->stream, l->ready, 0));
    link_check(c, l->nccl.group_start());
    for (int i = 0; i < n; i++) link_check(c, part_begin(l, &part[i]));
    link_check(c, l->nccl.group_end());
}

static void link_wait(struct backend *be)
{
    struct gpu *c = gpu_of(be);
    struct link *l = c->link;
    bool measured = l->waits < WAITS;
    c->op = "link";
    cudaSetDevice(c->device);
    cuda_check(c, cudaEventRecord(l->done, l->stream));
    if (measured) cuda_check(c, cudaEventRecord(l->wait[l->waits].from, c->stream));
    cuda_check(c, cudaStreamWaitEvent(c->stream, l->done, 0));
    if (measured) cuda_check(c, cudaEventRecord(l->wait[l->waits++].to, c->stream));
}

static double link_waited(struct backend *be)
{
    return gpu_of(be)->link->waited;
}

/* Keeps an error that NCCL found after the call, such as a connection that was lost. The transfers
 * would never end then, so they are abandoned. */
static void notice_failure(struct gpu *c)
{
    struct link *l = c->link;
    ncclResult_t r = ncclSuccess;
    if (!l->comm || l->nccl.async_error(l->comm, &r) != ncclSuccess) return;
    if (r == ncclSuccess || r == ncclInProgress) return;
    link_check(c, r);
    link_close(&c->base, true);
}

void link_sync(struct gpu *c)
{
    struct link *l = c->link;
    cudaError_t e;
    while ((e = cudaStreamQuery(c->stream)) == cudaErrorNotReady) {
        notice_failure(c);
        sched_yield();
    }
    cudaGetLastError(); /* "not ready" counts as an error of the thread */
    cuda_check(c, e);
    for (int i = 0; i < l->waits && e == cudaSuccess; i++) {
        float ms = 0;
        if (cudaEventElapsedTime(&ms, l->wait[i].from, l->wait[i].to) == cudaSuccess)
            l->waited += (double)ms / 1000;
    }
    l->waits = 0;
}

const struct link_ops cuda_links = {
    .load = link_load,
    .make_id = link_make_id,
    .open = link_open,
    .close = link_close,
    .move = link_move,
    .wait = link_wait,
    .waited = link_waited,
};
