/*
 * chain.h - kernels that are on the device before the one ahead of them has ended: from Hopper on,
 * and what makes a step of a few rows fast, where launching takes longer than computing.
 *
 * A kernel of a chain calls chain_wait before it reads what others wrote or writes anything, in
 * every thread; so whatever came before has ended and is seen by the time it goes on.
 */
#ifndef HEED_OPS_CUDA_CHAIN_H
#define HEED_OPS_CUDA_CHAIN_H
#include <cuda_runtime.h>

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

template <class... P, class... A>
static void chain_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                         cudaStream_t stream, A... args)
{
    enum { HOPPER = 9 };
    int device = 0, major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t how = {};
    how.gridDim = grid;
    how.blockDim = block;
    how.dynamicSmemBytes = shared;
    how.stream = stream;
    how.attrs = &early;
    how.numAttrs = major >= HOPPER;
    cudaLaunchKernelEx(&how, kernel, static_cast<P>(args)...);
}

#endif
