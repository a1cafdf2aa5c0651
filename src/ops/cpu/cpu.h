/*
 * cpu.h - private to the CPU backend. OpenMP drivers are in cpu.c, linear.c, experts.c and
 * attention.c; kernels in kernels.c, which is compiled once per ISA; matrix products in gemm.h.
 *
 * Determinism: work is divided into pieces by the shapes alone, never by the number of threads, and
 * each piece is computed by one thread in a fixed order.
 */
#ifndef HEED_OPS_CPU_H
#define HEED_OPS_CPU_H
#include "ops/cpu/isa.h"
#include "ops/cpu/packed.h"
#include "ops/ops.h"

struct attend_kernels; /* attention.h */
struct linear_kernels; /* linear_attention.h */
struct expert_kernels; /* experts.h */
struct kernels;        /* kernels.h */

struct cpu {
    struct backend base;
    struct ops ops; /* base.op; a table of its own, since sizes in it depend on the processor */
    int threads;
    const struct kernels *k;
    const struct attend_kernels *attend;
    const struct linear_kernels *linear;
    const struct expert_kernels *experts;
    char *attend_work; /* [threads][ATTEND_WORK] for either kind of attention */
    float *tables;     /* copies of attention's parameters and partial sums of their gradients */
    size_t table_floats;
    struct gemm *gemm;
    struct packed_work packed;
    char *topk_work; /* what linear_topk keeps of its rows; grows as needed */
    size_t topk_bytes;
    struct heed_error failed; /* first error of a packed product; kept until sync returns it */
    double *partial;          /* [CPU_PARTIALS] partial sums of sqnorm */
};

enum {
    CPU_THREADS = 1024, /* beyond this the runtime may not be able to start them */
    CPU_PARTIALS = 4096,
    CPU_STRIP = 64,   /* columns that one thread sums over all rows */
    CPU_SMALL = 16384 /* elements below which starting threads costs more than it saves */
};

static inline struct cpu *cpu_of(struct backend *be)
{
    return (struct cpu *)be;
}

static inline size_t mat_count(struct mat m)
{
    return (size_t)m.rows * (size_t)m.cols;
}

/* Threads for an op over this many elements. */
static inline int cpu_team(const struct cpu *cpu, size_t elements)
{
    return elements < CPU_SMALL ? 1 : cpu->threads;
}

/* Like cpu_open with the instructions that isa names, which the machine must have. For tests. */
enum heed_status cpu_open_isa(struct backend **out, int threads, const struct isa *isa,
                              struct heed_error *err);

/* A matrix of a packed type as packed.h wants it. */
static inline struct packed_weights cpu_packed(struct mat w)
{
    return (struct packed_weights){(enum packed_kind)(w.type - TYPE_PACKED_F32), w.rows, w.cols,
                                   w.p};
}

/* linear.c */
void cpu_linear(struct backend *be, struct mat y, struct mat x, struct mat w, struct mat b,
                struct activation f);
void cpu_linear_bwd(struct backend *be, struct mat dx, float beta, struct mat db, struct mat dw,
                    struct mat dy, struct mat x, struct mat w, struct activation f);
void cpu_bias_bwd(struct backend *be, struct mat db, struct mat dy);
void cpu_gate(struct backend *be, struct mat h, struct mat z, struct drop d);
void cpu_gate_bwd(struct backend *be, struct mat dz, struct mat db, struct mat dh, struct mat z,
                  struct drop d);
void cpu_experts_linear(struct backend *be, struct mat y, struct mat x, struct mat w, struct mat b,
                        struct activation f, const struct routing *r);
void cpu_experts_linear_bwd(struct backend *be, struct mat dx, struct mat db, struct mat dw,
                            struct mat dy, struct mat x, struct mat w, struct activation f,
                            const struct routing *r);
/* experts.c */
void cpu_route(struct backend *be, const struct routing *r, struct mat x, struct mat w);
void cpu_dispatch(struct backend *be, struct mat y, struct mat x, const struct routing *r,
                  bool gated);
void cpu_combine(struct backend *be, struct mat y, struct mat x, const struct routing *r);
void cpu_route_bwd(struct backend *be, struct mat dx, float beta, struct mat dw, struct mat dy,
                   struct mat y, struct mat dtaken, struct mat x, struct mat w,
                   const struct routing *r, float balance);
/* attention.c */
void cpu_attend(struct backend *be, const struct attention *a);
void cpu_attend_bwd(struct backend *be, const struct attention *a, const struct attention_grad *g);
/* linear_attention.c */
void cpu_attend_linear(struct backend *be, const struct attention *a);
void cpu_attend_linear_bwd(struct backend *be, const struct attention *a,
                           const struct attention_grad *g);
void cpu_linear_state(struct backend *be, struct mat states, const struct attention *a);
void cpu_attend_state(struct backend *be, struct mat states, const struct attention *a);
/* topk.c */
void cpu_topk(struct backend *be, struct mat logits, int k, const int32_t *want, int wants,
              float *score, int32_t *id);
void cpu_linear_topk(struct backend *be, struct mat x, struct mat w, int k, const int32_t *want,
                     int wants, float *score, int32_t *id);

#endif
