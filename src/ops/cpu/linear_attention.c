/*
 * linear_attention.c - linear attention of the CPU backend: distributes sentences and heads over
 * threads.
 *
 * A task is one key/value head of a sentence, in backward one gradient of it, and one call of a
 * kernel of linear_attention.h. Tasks write disjoint memory and a task's bits do not depend on the
 * thread that runs it.
 */
#include "ops/cpu/linear_attention.h"

#include <assert.h>
#include <math.h>
#include <omp.h>

#include "ops/bf16.h"
#include "ops/cpu/attention.h"
#include "ops/cpu/cpu.h"

/* The work space of the calling thread, which is in an OpenMP team of this backend. */
static void *work_of(const struct cpu *cpu)
{
    return cpu->attend_work + (size_t)omp_get_thread_num() * ATTEND_WORK;
}

/* Whether the matrices are as the kernels take them. */
static bool fits(const struct attention *a)
{
    return a->heads > 0 && attention_fits(a) && a->k.type == a->v.type && a->q.type == a->o.type &&
           a->lse.type == TYPE_F32 && (!a->weights.p || a->weights.type == TYPE_F32);
}

/* ---- weights: only alignments and pictures ask for them, so this is plain C ---- */

static float phi_at(struct mat m, int row, int col)
{
    const void *p = mat_at(m, row, col);
    float x = m.type == TYPE_BF16 ? bf16_to_float(*(const uint16_t *)p) : *(const float *)p;
    return x > 0 ? x + 1 : expf(x);
}

static void weights_row(const struct attention *a, int b, int i, int head)
{
    const struct seqs *s = &a->seqs;
    int dk = attention_dk(a), q0 = head * dk, k0 = head / attention_shared(a) * dk;
    int row = s->q[b] + i, seen = s->causal ? i + 1 : s->klen[b];
    float *to = mat_at(a->weights, row * a->heads + head, 0), sum = 0;
    for (int j = 0; j < a->weights.cols; j++) {
        float x = 0;
        for (int c = 0; c < dk && j < seen; c++)
            x += phi_at(a->q, row, q0 + c) * phi_at(a->k, s->k[b] + j, k0 + c);
        sum += to[j] = x;
    }
    float scale = sum >= (float)LINEAR_SUM_MIN ? 1 / sum : 0;
    for (int j = 0; j < seen; j++) to[j] *= scale;
}

static void weights_fill(const struct cpu *cpu, const struct attention *a)
{
    for (int b = 0; b < a->seqs.n; b++)
#pragma omp parallel for collapse(2) schedule(static) num_threads(cpu->threads)
        for (int i = 0; i < a->seqs.q[b + 1] - a->seqs.q[b]; i++)
            for (int head = 0; head < a->heads; head++) weights_row(a, b, i, head);
}

/* ---- the ops ---- */

void cpu_attend_linear(struct backend *be, const struct attention *a)
{
    const struct cpu *cpu = cpu_of(be);
    int kv_heads = attention_kv_heads(a);
    long tasks = (long)a->seqs.n * kv_heads;
    assert(fits(a));
#pragma omp parallel for schedule(dynamic) num_threads(cpu->threads)
    for (long t = 0; t < tasks; t++)
        cpu->linear->forward(a, (int)(t / kv_heads), (int)(t % kv_heads), work_of(cpu));
    if (a->weights.p) weights_fill(cpu, a);
}

void cpu_attend_linear_bwd(struct backend *be, const struct attention *a,
                           const struct attention_grad *g)
{
    const struct cpu *cpu = cpu_of(be);
    int kv_heads = attention_kv_heads(a);
    long tasks = (long)a->seqs.n * kv_heads * LINEAR_GRADIENTS;
    assert(fits(a) && g->dq.type == a->q.type && g->dq.type == a->k.type);
    assert(g->dk.type == a->k.type && g->dv.type == a->v.type && g->dout.type == a->o.type);
#pragma omp parallel for schedule(dynamic) num_threads(cpu->threads)
    for (long t = 0; t < tasks; t++) {
        long head = t / LINEAR_GRADIENTS;
        cpu->linear->backward(a, g, (enum linear_gradient)(t % LINEAR_GRADIENTS),
                              (int)(head / kv_heads), (int)(head % kv_heads), work_of(cpu));
    }
}

void cpu_linear_state(struct backend *be, struct mat states, const struct attention *a)
{
    const struct cpu *cpu = cpu_of(be);
    int kv_heads = attention_kv_heads(a);
    long tasks = (long)a->seqs.n * kv_heads;
    assert(states.type == TYPE_F32 && states.cols == attention_state_width(a));
#pragma omp parallel for schedule(dynamic) num_threads(cpu->threads)
    for (long t = 0; t < tasks; t++)
        cpu->linear->sum(states, a, (int)(t / kv_heads), (int)(t % kv_heads), work_of(cpu));
}

void cpu_attend_state(struct backend *be, struct mat states, const struct attention *a)
{
    const struct cpu *cpu = cpu_of(be);
    int kv_heads = attention_kv_heads(a);
    long tasks = (long)a->seqs.n * kv_heads;
    assert(fits(a) && states.type == TYPE_F32 && states.cols == attention_state_width(a));
#pragma omp parallel for schedule(dynamic) num_threads(cpu->threads)
    for (long t = 0; t < tasks; t++)
        cpu->linear->step(states, a, (int)(t / kv_heads), (int)(t % kv_heads), work_of(cpu));
    if (a->weights.p) weights_fill(cpu, a);
}
