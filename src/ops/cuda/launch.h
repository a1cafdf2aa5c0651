/*
 * launch.h - how kernels are launched: early, and with much shared memory.
 *
 * From Hopper on a kernel can be on the device before the one ahead of it has ended, which makes a
 * step of a few rows fast, where launching takes longer than computing.
 *
 * A kernel of a chain calls chain_wait before it reads what others wrote or writes anything, in
 * every thread; so whatever came before has ended and is seen by the time it goes on.
 */
#ifndef HEED_OPS_CUDA_LAUNCH_H
#define HEED_OPS_CUDA_LAUNCH_H
#include <cuda_runtime.h>

/* ---- shared memory ---- */

/* Bytes that a block of the current device may have. */
static inline int shared_limit(void)
{
    int device = 0, bytes = 48 << 10;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return bytes;
}

/* Before a launch with so many bytes. The limit is a kernel's, whoever launches it: so all set the
 * same, whatever they need. */
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

/* ---- early ---- */

/* What came before has ended; what comes next may be brought. */
static __device__ __forceinline__ void chain_wait(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Asks for numbers that will be read; harmless wherever they are. */
static __device__ __forceinline__ void chain_expect(const void *p)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/* The order in which kernels are launched. */
struct chain {
    cudaStream_t stream;
    bool early; /* before the one ahead has ended */
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
