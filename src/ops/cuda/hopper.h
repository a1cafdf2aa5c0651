/*
 * hopper.h - instructions that only Hopper has: barriers in shared memory (mbarrier), the tensor
 * memory accelerator (TMA), and tensor core products of four warps (wgmma).
 *
 * TMA copies boxes of a matrix to shared memory and back; a barrier counts the bytes that have
 * arrived. In boxes with rows of 128 bytes it permutes the 16-byte chunks of 8 neighbouring rows in
 * the way that wgmma reads them (128-byte swizzle): chunk c of row r is at position c ^ r % 8.
 */
#ifndef HEED_OPS_CUDA_HOPPER_H
#define HEED_OPS_CUDA_HOPPER_H
#include <cuda.h>
#include <cuda_runtime.h>

#include "ops/cuda/fragment.h"

/* ---- barriers: a phase ends when all arrivals and all expected bytes have been counted ---- */

static __device__ __forceinline__ void barrier_init(uint64_t *b, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals));
}

/* Called by the thread that initialized the barriers, before other threads use them. */
static __device__ __forceinline__ void barrier_init_done(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Arrives, and adds to the bytes that the phase expects. */
static __device__ __forceinline__ void barrier_expect(uint64_t *b, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)),
                 "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint64_t *b)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}

static __device__ __forceinline__ void barrier_wait(uint64_t *b, uint32_t phase)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}" ::"r"(shared_address(b)),
                 "r"(phase & 1)
                 : "memory");
}

/* ---- TMA: x is the column and y the row at which a box begins ---- */

static __device__ __forceinline__ void box_load(void *to, const CUtensorMap *m, int x, int y,
                                                uint64_t *b)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(to)),
                 "l"(m), "r"(x), "r"(y), "r"(shared_address(b))
                 : "memory");
}

/* Copies contiguous bytes; from, to and bytes are multiples of 16. */
static __device__ __forceinline__ void run_load(void *to, const void *from, int bytes, uint64_t *b)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(b))
                 : "memory");
}

static __device__ __forceinline__ void box_store(const CUtensorMap *m, int x, int y,
                                                 const void *from)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(m),
        "r"(x), "r"(y), "r"(shared_address(from))
        : "memory");
}

static __device__ __forceinline__ void box_commit(void)
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Waits until all commits but the last N have read their shared memory. */
template <int N> static __device__ __forceinline__ void box_wait_read(void)
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

/* Orders this thread's reads and writes of shared memory before those of TMA copies that are
 * started after a later barrier. */
static __device__ __forceinline__ void shared_publish(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- registers: sets the number of registers per thread of these four warps ---- */

template <int N> static __device__ __forceinline__ void registers_more(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> static __device__ __forceinline__ void registers_fewer(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* ---- products ---- */

/* The wgmma descriptor of an operand in shared memory. next: for an operand whose rows are along
 * the sum, the distance in bytes between its parts of 64 columns; 0 for others. Groups of 8 rows of
 * 128 bytes are 1,024 bytes apart. */
static __device__ __forceinline__ uint64_t operand(const void *p, int next)
{
    return (uint64_t)(shared_address(p) >> 4 & 0x3fff) | (uint64_t)(next >> 4) << 16 |
           (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

static __device__ __forceinline__ void product_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void product_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until all committed products but the last N are done. */
template <int N> static __device__ __forceinline__ void product_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Waits until all products are done; the compiler does not read d before. */
template <int N> static __device__ __forceinline__ void product_end(float (&d)[N])
{
    product_wait<0>();
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

#define F8(d, i)                                                                                   \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),    \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define F32(d, i) F8(d, i), F8(d, i + 8), F8(d, i + 16), F8(d, i + 24)

/* d [64,128] = (add ? d : 0) + a [64,16] b; TURNED: the rows of b are along the sum. */
template <bool TURNED>
static __device__ __forceinline__ void product_64x128x16(float (&d)[64], uint64_t a, uint64_t b,
                                                         bool add)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
                 "}, %64, %65, p, 1, 1, 0, %67;\n"
                 "}"
                 : F32(d, 0), F32(d, 32)
                 : "l"(a), "l"(b), "r"((int)add), "n"(TURNED ? 1 : 0));
}

/* d [64,256] = (add ? d : 0) + a [64,16] b; TURNED: the rows of b are along the sum. */
template <bool TURNED>
static __device__ __forceinline__ void product_64x256x16(float (&d)[128], uint64_t a, uint64_t b,
                                                         bool add)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %130, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
                 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
                 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "
                 "%110, %111, "
                 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, "
                 "%125, %126, %127"
                 "}, %128, %129, p, 1, 1, 0, %131;\n"
                 "}"
                 : F32(d, 0), F32(d, 32), F32(d, 64), F32(d, 96)
                 : "l"(a), "l"(b), "r"((int)add), "n"(TURNED ? 1 : 0));
}

#endif
