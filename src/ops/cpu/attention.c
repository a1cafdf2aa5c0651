/*
 * attention.c - attend and attend_bwd of the CPU backend: distributes sentences and heads over
 * threads.
 *
 * A task is one head of a span of a sentence's queries, in backward one key/value head of a whole
 * sentence, and one call of a kernel of attention.h. Tasks write disjoint memory and a task's bits
 * do not depend on the thread that runs it, so each thread that becomes free takes the next task.
 */
#include "ops/cpu/attention.h"

#include <assert.h>
#include <math.h>
#include <omp.h>

#include "ops/bf16.h"
#include "ops/cpu/cpu.h"

/* The work space of the calling thread, which is in an OpenMP team of this backend. */
static void *cpu_work(const struct cpu *cpu)
{
    return cpu->attend_work + (size_t)omp_get_thread_num() * ATTEND_WORK;
}

/* Queries of a task: enough to pack the keys of a sentence once for many queries, few enough that
 * one long sentence gives work to several threads. */
enum { SPAN = 128 };

/* Tasks that a thread takes at a time: many, so that the scheduler is called rarely; not too many,
 * so that the threads end at about the same time. */
static int batch_size(long tasks, int threads)
{
    long n = tasks / (threads * 16L);
    return n < 1 ? 1 : n > 64 ? 64 : (int)n;
}

static void check(const struct attention *a)
{
    assert(a->heads > 0 && attention_fits(a));
    assert(a->k.type == a->v.type && a->q.type == a->o.type);
    assert(!a->lse.p || a->lse.type == TYPE_F32);
    assert(!a->weights.p || (a->lse.p && a->weights.type == TYPE_F32));
    (void)a;
}

static float element(struct mat m, int row, int col)
{
    const void *x = mat_at(m, row, col);
    return m.type == TYPE_BF16 ? bf16_to_float(*(const uint16_t *)x) : *(const float *)x;
}

/* The attention weights of one query and head, computed from its scores and their log-sum-exp.
 * Only alignments and pictures ask for them, so this is plain C. */
static void weights_row(const struct attention *a, int b, int i, int head)
{
    const struct seqs *s = &a->seqs;
    int dk = attention_dk(a), q0 = head * dk, k0 = head / attention_shared(a) * dk;
    int nq = s->q[b + 1] - s->q[b], row = s->q[b] + i;
    int seen = s->causal ? s->klen[b] - nq + i + 1 : s->klen[b];
    float *to = mat_at(a->weights, row * a->heads + head, 0);
    float lse = *(float *)mat_at(a->lse, row, head), scale = 1.0f / sqrtf((float)dk);
    for (int j = 0; j < a->weights.cols; j++) {
        float sum = 0;
        int key = j < seen ? (s->at ? s->at[s->k[b] + j] : s->k[b] + j) : 0;
        for (int c = 0; c < dk && j < seen; c++)
            sum += element(a->q, row, q0 + c) * scale * element(a->k, key, k0 + c);
        to[j] = j < seen ? expf(sum - lse) : 0;
    }
}

static void weights_fill(const struct cpu *cpu, const struct attention *a)
{
    for (int b = 0; b < a->seqs.n; b++)
#pragma omp parallel for collapse(2) schedule(static) num_threads(cpu->threads)
        for (int i = 0; i < a->seqs.q[b + 1] - a->seqs.q[b]; i++)
            for (int head = 0; head < a->heads; head++) weights_row(a, b, i, head);
}

void cpu_attend(struct backend *be, const struct attention *a)
{
    const struct cpu *cpu = cpu_of(be);
    const struct seqs *s = &a->seqs;
    check(a);
    int spans = (s->max_q + SPAN - 1) / SPAN;
    long tasks = (long)s->n * spans * a->heads;
    int chunk = batch_size(tasks, cpu->threads);
#pragma omp parallel for schedule(dynamic, chunk) num_threads(cpu->threads)
    for (long t = 0; t < tasks; t++) {
        int head = (int)(t % a->heads), span = (int)(t / a->heads % spans);
        int b = (int)(t / a->heads / spans);
        int nq = s->q[b + 1] - s->q[b], first = span * SPAN;
        int last = nq < first + SPAN ? nq : first + SPAN;
        if (first < last) cpu->attend->forward(a, b, head, first, last, cpu_work(cpu));
    }
    if (a->weights.p) weights_fill(cpu, a);
}

void cpu_attend_bwd(struct backend *be, const struct attention *a, const struct attention_grad *g)
{
    const struct cpu *cpu = cpu_of(be);
    check(a);
    assert(g->dq.type == a->q.type && g->dq.type == a->k.type);
    assert(g->dk.type == g->dq.type && g->dv.type == g->dq.type);
    assert(g->dout.type == g->dq.type && a->lse.p);
    int kv_heads = attention_kv_heads(a);
    long tasks = (long)a->seqs.n * kv_heads;
    int chunk = batch_size(tasks, cpu->threads);
#pragma omp parallel for schedule(dynamic, chunk) num_threads(cpu->threads)
    for (long t = 0; t < tasks; t++)
        cpu->attend->backward(a, g, (int)(t / kv_heads), (int)(t % kv_heads), cpu_work(cpu));
}
