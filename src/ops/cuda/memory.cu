/*
 * memory.cu - device memory, and copies between host and device in the order of the stream; see
 * cuda.h.
 */
#include <string.h>

#include "ops/cuda/cuda.h"

enum { ALIGN = 256 }; /* of the copies that share a block of page-locked memory */

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* ---- life ---- */

static enum heed_status out_of_memory(struct gpu *c, size_t bytes, struct heed_error *err)
{
    size_t left = 0, total = 0;
    double mib = 1 << 20;
    cudaGetLastError();
    cudaMemGetInfo(&left, &total);
    return error_set(err, HEED_ENOMEM,
                     "%s is out of memory: %.0f MiB asked for, %.0f of %.0f MiB are free", c->name,
                     (double)bytes / mib, (double)left / mib, (double)total / mib);
}

enum heed_status memory_alloc(struct gpu *c, void **p, size_t bytes, struct heed_error *err)
{
    void *block = NULL;
    cudaError_t e = cudaMalloc(&block, bytes ? bytes : 1);
    if (e == cudaErrorMemoryAllocation) return out_of_memory(c, bytes, err);
    if (e != cudaSuccess)
        return error_set(err, HEED_EIO, "%s failed: %s", c->name, cudaGetErrorString(e));
    *p = block;
    return HEED_OK;
}

enum heed_status memory_open(struct gpu *c, struct heed_error *err)
{
    size_t pinned = (size_t)CUDA_SLOTS * CUDA_SLOT + CUDA_BACK;
    enum heed_status s = memory_alloc(c, (void **)&c->scratch, CUDA_SCRATCH, err);
    if (s) return s;
    cudaError_t e = cudaMallocHost((void **)&c->up.p, pinned);
    for (int i = 0; i < CUDA_SLOTS && e == cudaSuccess; i++)
        e = cudaEventCreateWithFlags(&c->up.read[i], cudaEventDisableTiming);
    if (e != cudaSuccess)
        return error_set(err, HEED_ENOMEM, "%s cannot have %zu bytes of page-locked memory: %s",
                         c->name, pinned, cudaGetErrorString(e));
    c->back = c->up.p + (size_t)CUDA_SLOTS * CUDA_SLOT;
    return HEED_OK;
}

void memory_close(struct gpu *c)
{
    for (int i = 0; i < CUDA_SLOTS; i++)
        if (c->up.read[i]) cudaEventDestroy(c->up.read[i]);
    cudaFreeHost(c->up.p);
    cudaFree(c->scratch);
}

/* ---- to the device ---- */

/* Page-locked memory for up to *bytes; *bytes becomes the size available. The host waits only where
 * the device has not yet read the slot from the last round of the ring. */
static char *ring_take(struct gpu *c, size_t *bytes)
{
    struct ring *r = &c->up;
    if (r->used == CUDA_SLOT) {
        cuda_check(c, cudaEventRecord(r->read[r->slot], c->stream));
        r->slot = (r->slot + 1) % CUDA_SLOTS;
        r->used = 0;
        cuda_check(c, cudaEventSynchronize(r->read[r->slot]));
    }
    size_t at = r->used, left = CUDA_SLOT - at;
    if (*bytes > left) *bytes = left;
    r->used = at + aligned(*bytes);
    return r->p + (size_t)r->slot * CUDA_SLOT + at;
}

/* The event that a slot has been read is recorded on c->stream, which therefore waits for uploads
 * on the side stream. */
void memory_upload(struct gpu *c, void *dst, const void *src, size_t bytes, cudaStream_t stream)
{
    for (size_t done = 0, n; done < bytes; done += n) {
        n = bytes - done;
        char *part = ring_take(c, &n);
        memcpy(part, (const char *)src + done, n);
        cuda_check(c, cudaMemcpyAsync((char *)dst + done, part, n, cudaMemcpyHostToDevice, stream));
        if (stream == c->stream) continue;
        cuda_check(c, cudaEventRecord(c->sent, stream));
        cuda_check(c, cudaStreamWaitEvent(c->stream, c->sent, 0));
    }
}

/* ---- to the host ---- */

void memory_deliver(struct gpu *c)
{
    for (int i = 0; i < c->pendings && !c->failed.status; i++)
        memcpy(c->pending[i].dst, c->pending[i].src, c->pending[i].bytes);
    c->pendings = 0;
    c->back_used = 0;
}

/* Small downloads are copied to page-locked memory and delivered at sync; for large ones the host
 * waits. */
void memory_download(struct gpu *c, void *dst, const void *src, size_t bytes)
{
    if (bytes > CUDA_BACK) {
        cuda_check(c, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, c->stream));
        return;
    }
    if (c->pendings == CUDA_PENDING || aligned(bytes) > CUDA_BACK - c->back_used) {
        cuda_check(c, cudaStreamSynchronize(c->stream));
        memory_deliver(c);
    }
    char *part = c->back + c->back_used;
    cuda_check(c, cudaMemcpyAsync(part, src, bytes, cudaMemcpyDeviceToHost, c->stream));
    c->back_used += aligned(bytes);
    c->pending[c->pendings++] = {dst, part, bytes};
}
