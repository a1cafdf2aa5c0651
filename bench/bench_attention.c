/*
 * bench_attention.c - time and rate of attention on the CPU over real batches.
 *
 *   bench_attention [BATCHES [baseline|avx2|avx512]]
 *
 * BATCHES has a batch a line, a sentence as source:target lengths: "14:16 14:17 ...". Each batch
 * is run as the encoder's self-attention, the decoder's and the cross-attention, of one layer;
 * times are sums over batches of the best of several runs. The rate counts two operations for each
 * multiplication of a query with a key that it sees: 4*D forward and 10*D backward per such pair.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "bench.h"
#include "ops/cpu/attention.h"
#include "ops/cpu/cpu.h"

enum { ROUNDS = 9, KINDS = 3, THREADS = 2 };

static const char *const kind_name[KINDS] = {"encoder", "decoder", "cross"};

struct model {
    const char *name;
    int heads, width;
};

/* Memory for the largest batch: q, k, v and their gradients are views of rows 3D wide. */
struct buffers {
    void *qkv, *dqkv, *kv, *dkv, *o, *dout, *lse;
};

static int longest(const int32_t *len, int n)
{
    int top = 0;
    for (int i = 0; i < n; i++) top = len[i] > top ? len[i] : top;
    return top;
}

static struct seqs batch_seqs(const struct bench_batch *b, int kind)
{
    const int32_t *q = kind == 0 ? b->src_off : b->tgt_off,
                  *k = kind == 1 ? b->tgt_off : b->src_off;
    const int32_t *klen = kind == 1 ? b->tgt : b->src;
    return (struct seqs){.n = b->n,
                         .q = q,
                         .k = k,
                         .klen = klen,
                         .max_q = longest(kind == 0 ? b->src : b->tgt, b->n),
                         .max_k = longest(klen, b->n),
                         .causal = kind == 1};
}

static double pairs(struct seqs s)
{
    double n = 0;
    for (int b = 0; b < s.n; b++) {
        double nq = s.q[b + 1] - s.q[b], nk = s.klen[b];
        n += s.causal ? nq * (nq + 1) / 2 : nq * nk;
    }
    return n;
}

static void *random_rows(int rows, int cols, enum type t)
{
    struct mat m = mat_make(NULL, rows, cols, t);
    uint64_t seed = 3;
    m.p = aligned_alloc(64, ((size_t)rows * cols * type_size(t) + 63) / 64 * 64);
    if (!m.p) abort();
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++) {
            float x = (float)(random_unit(&seed) - 0.5);
            char *at = mat_at(m, r, c);
            memcpy(at, (char *)&x + 4 - type_size(t), type_size(t));
        }
    return m.p;
}

static struct buffers buffers_new(int rows, int d, int heads, enum type t)
{
    return (struct buffers){random_rows(rows, 3 * d, t),       random_rows(rows, 3 * d, t),
                            random_rows(rows, 2 * d, t),       random_rows(rows, 2 * d, t),
                            random_rows(rows, d, t),           random_rows(rows, d, t),
                            random_rows(rows, heads, TYPE_F32)};
}

static void buffers_free(struct buffers *m)
{
    free(m->qkv), free(m->dqkv), free(m->kv), free(m->dkv), free(m->o), free(m->dout), free(m->lse);
}

/* The seconds of one forward and one backward call. */
static void run(struct cpu *cpu, const struct buffers *m, const struct bench_batch *b, int kind,
                const struct model *c, enum type t, float drop, double seconds[2])
{
    int d = c->heads * c->width;
    struct seqs s = batch_seqs(b, kind);
    int nq = s.q[b->n], nk = (kind == 1 ? b->tgt_off : b->src_off)[b->n];
    struct mat qkv = mat_make(m->qkv, nq, kind == 2 ? d : 3 * d, t), dqkv = qkv;
    struct mat kv = mat_make(m->kv, nk, 2 * d, t), dkv = kv;
    dqkv.p = m->dqkv, dkv.p = m->dkv;
    if (kind != 2) kv = mat_cols(qkv, d, 2 * d), dkv = mat_cols(dqkv, d, 2 * d);
    struct attention a = {.q = mat_cols(qkv, 0, d),
                          .k = mat_cols(kv, 0, d),
                          .v = mat_cols(kv, d, d),
                          .o = mat_make(m->o, nq, d, t),
                          .lse = mat_make(m->lse, nq, c->heads, TYPE_F32),
                          .heads = c->heads,
                          .seqs = s,
                          .drop = {drop, 1, 2}};
    double start = bench_now();
    cpu_attend(&cpu->base, &a);
    double middle = bench_now();
    struct attention_grad g = {.dout = mat_make(m->dout, nq, d, t),
                               .dq = mat_cols(dqkv, 0, d),
                               .dk = mat_cols(dkv, 0, d),
                               .dv = mat_cols(dkv, d, d)};
    cpu_attend_bwd(&cpu->base, &a, &g);
    seconds[0] = middle - start;
    seconds[1] = bench_now() - middle;
}

/* One line: milliseconds for all batches and GFLOP/s, each kind forward and backward. */
static void measure(struct cpu *cpu, const struct bench_batch *list, int count, int rows,
                    const struct model *c, enum type t, float drop)
{
    double sum[KINDS][2] = {0}, flop[KINDS] = {0}, total = 0, work = 0;
    struct buffers m = buffers_new(rows, c->heads * c->width, c->heads, t);
    for (int i = 0; i < count; i++)
        for (int kind = 0; kind < KINDS; kind++) {
            double best[2] = {INFINITY, INFINITY};
            for (int round = 0; round < ROUNDS; round++) {
                double s[2];
                run(cpu, &m, &list[i], kind, c, t, drop, s);
                for (int p = 0; p < 2; p++)
                    if (s[p] < best[p]) best[p] = s[p];
            }
            sum[kind][0] += best[0], sum[kind][1] += best[1];
        }
    printf("%-5s %-4s %d %3.1f", c->name, t == TYPE_F32 ? "f32" : "bf16", cpu->threads, drop);
    for (int kind = 0; kind < KINDS; kind++) {
        for (int i = 0; i < count; i++)
            flop[kind] += pairs(batch_seqs(&list[i], kind)) * c->heads * c->width;
        for (int p = 0; p < 2; p++) {
            double f = flop[kind] * (p ? 10 : 4);
            printf(" %7.2f %5.1f", sum[kind][p] * 1e3, f / sum[kind][p] * 1e-9);
            total += sum[kind][p], work += f;
        }
    }
    printf(" %7.2f %5.1f\n", total * 1e3, work / total * 1e-9);
    buffers_free(&m);
}

int main(int argc, char **argv)
{
    static struct bench_batch list[BENCH_BATCHES];
    const struct model models[] = {{"base", 8, 64}, {"small", 4, 64}};
    struct backend *be[THREADS];
    struct heed_error err;
    int count = bench_read(list, argc > 1 ? argv[1] : NULL), rows = 0;
    for (int i = 0; i < THREADS; i++)
        if (cpu_open(&be[i], argc > 2 ? argv[2] : NULL, i + 1, &err)) bench_die("%s", err.text);
    for (int i = 0; i < count; i++) {
        int s = list[i].src_off[list[i].n], t = list[i].tgt_off[list[i].n];
        rows = s > rows ? s : rows;
        rows = t > rows ? t : rows;
    }
    printf("%d batches, %s; ms and GFLOP/s, forward and backward\nmodel type n drop", count,
           cpu_of(be[0])->attend->isa);
    for (int kind = 0; kind < KINDS; kind++) printf(" %13s %13s", kind_name[kind], "backward");
    printf(" %13s\n", "all");
    for (int m = 0; m < 2; m++)
        for (int t = 0; t < 2; t++)
            for (int i = 0; i < THREADS; i++)
                for (int drop = 0; drop < 2; drop++)
                    measure(cpu_of(be[i]), list, count, rows, &models[m], t ? TYPE_BF16 : TYPE_F32,
                            drop ? 0.1f : 0.0f);
    for (int i = 0; i < THREADS; i++) be[i]->op->close(be[i]);
    return 0;
}
