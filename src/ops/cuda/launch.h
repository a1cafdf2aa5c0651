/*
 * launch.h - launching kernels: early, and with much shared memory.
 *
 * From Hopper on, programmatic dependent launch starts a kernel before the kernel ahead of it in
 * the stream has ended. This makes decoding steps of a few rows fast, where launching a kernel
 * takes longer than running it; a training step gains half a percent.
 *
 * Such a kernel, one of a chain, calls chain_wait in every thread before it reads what other
 * kernels wrote or writes anything. When chain_wait returns, all kernels before it have ended and
 * their results are visible.
 */
#ifndef HEED_OPS_CUDA_LAUNCH_H
#define HEED_OPS_CUDA_LAUNCH_H
#include <cuda_runtime.h>

/* ---- shared memory ---- */

/* Largest number of bytes of shared memory of a block on the current device. */
static inline int shared_limit(void)
{
    int device = 0, bytes = 48 << 10;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return bytes;
}

/* To be called before a launch with this much dynamic shared memory. The limit belongs to the
 * kernel, whichever thread launches it, so every call sets the same limit, the largest possible. */
static inline cudaError_t shared_allow(const void *kernel, size_t bytes)
{
    enum { WITHOUT_ASKING = 40 << 10 };
    struct cudaFuncAttributes a;
    if (bytes <= WITHOUT_ASKING) return cudaSuccess;
    cudaError_t e = cudaFuncGetAttributes(&a, kernel);
    if (e != cudaSuccess) return e;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                shared_limit() - (int)a.sharedSizeBytes);
}

/* ---- programmatic dependent launch ---- */

/* Waits until the kernels before have ended, and lets the next kernel start. */
static __device__ __forceinline__ void chain_wait(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Prefetches the cache line at p; harmless for any address. */
static __device__ __forceinline__ void chain_expect(const void *p)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/* A stream, and whether its kernels start early. */
struct chain {
    cudaStream_t stream;
    bool early; /* kernels start before the kernel ahead has ended */
};

template <class... P, class... A>
static void chain_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                         struct chain chain, A... args)
{
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t how = {};
    how.gridDim = grid;
    how.blockDim = block;
    how.dynamicSmemBytes = shared;
    how.stream = chain.stream;
    how.attrs = &early;
    how.numAttrs = chain.early;
    cudaLaunchKernelEx(&how, kernel, static_cast<P>(args)...);
}

#endif
