/*
 * attention.c - attend and attend_bwd of the CPU backend: shares sentences and heads out to
 * threads.
 *
 * A task is one head of one sentence (in the forward pass, of a span of its queries), computed by
 * one kernel call of attention.h. Tasks write disjoint memory and their bits do not depend on who
 * runs them, so they are handed out as threads come free.
 */
#include "ops/cpu/attention.h"

#include <assert.h>

#include "ops/cpu/cpu.h"

/* Long enough to pack a sentence's keys once for many queries, short enough that one long sentence
 * keeps several threads busy. */
enum { SPAN = 128 };

/* Tasks taken at a time: few enough calls of the scheduler, enough of them to even out. */
static int batch_size(long tasks, int threads)
{
    long n = tasks / (threads * 16L);
    return n < 1 ? 1 : n > 64 ? 64 : (int)n;
}

static void check(const struct attention *a)
{
    assert(a->heads > 0 && a->q.cols % a->heads == 0 && a->v.cols % a->heads == 0);
    assert(a->k.cols == a->q.cols && a->o.cols == a->v.cols);
    assert(a->q.cols / a->heads <= HEAD_WIDTH_MAX && a->v.cols / a->heads <= HEAD_WIDTH_MAX);
    assert(a->q.type == a->k.type && a->q.type == a->v.type && a->q.type == a->o.type);
    assert(!a->lse.p || a->lse.type == TYPE_F32);
    (void)a;
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
        if (first < last) cpu->attend->forward(a, b, head, first, last);
    }
}

void cpu_attend_bwd(struct backend *be, const struct attention *a, struct mat dq, struct mat dk,
                    struct mat dv, struct mat dout)
{
    const struct cpu *cpu = cpu_of(be);
    const struct attend_grad g = {a, dq, dk, dv, dout};
    check(a);
    assert(dq.type == a->q.type && dk.type == dq.type && dv.type == dq.type);
    assert(dout.type == dq.type && a->lse.p);
    long tasks = (long)a->seqs.n * a->heads;
    int chunk = batch_size(tasks, cpu->threads);
#pragma omp parallel for schedule(dynamic, chunk) num_threads(cpu->threads)
    for (long t = 0; t < tasks; t++)
        cpu->attend->backward(&g, (int)(t / a->heads), (int)(t % a->heads));
}
