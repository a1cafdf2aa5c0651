/*
 * attention.c - attend and attend_bwd of the CPU backend: distributes sentences and heads over
 * threads.
 *
 * A task is some heads of a span of a sentence's queries, in backward one key/value head of a whole
 * sentence, and one call of a kernel of attention.h. Tasks write disjoint memory and a task's bits
 * do not depend on the thread that runs it, so each thread that becomes free takes the next task.
 *
 * Forms of attention with parameters: before the tasks these are copied to tables. A task of
 * backward is then several sentences and has gradients of the parameters of its own, which are
 * added up in order after all tasks.
 */
#include "ops/cpu/attention.h"

#include <assert.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/minmax.h"
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

/* Multiplications below which starting threads costs more than it saves. */
enum { SMALL = 128 << 10 };

static int team_of(const struct cpu *cpu, const struct attention *a)
{
    const struct seqs *s = &a->seqs;
    size_t each = (size_t)a->heads * (attention_dk(a) + attention_dv(a)), pairs = 0;
    for (int b = 0; b < s->n && pairs * each < SMALL; b++)
        pairs += (size_t)(s->q[b + 1] - s->q[b]) * s->klen[b];
    return pairs * each < SMALL ? 1 : cpu->threads;
}

/* Heads of a task. A sentence of a few queries, as in decoding, has little work for each head, and
 * the kernel is faster on several at once; but a few sentences still give work to several threads.
 */
enum { MOST_TOGETHER = 8, FEW_QUERIES = 8, LEAST_TASKS = 16 };

static int heads_together(const struct attention *a, int team)
{
    int n = a->seqs.max_q <= FEW_QUERIES ? MOST_TOGETHER : 1;
    while (n > 1 && team > 1 && (long)a->seqs.n * a->heads < (long)LEAST_TASKS * n) n /= 2;
    return n;
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

/* The score of a query and a key at this distance from it, in row `key` of the keys. */
static float score(const struct attention *a, int row, int head, int key, int distance)
{
    int dk = attention_dk(a), q0 = head * dk, k0 = head / attention_shared(a) * dk;
    bool additive = a->additive.p;
    int r = a->relative_k.p ? attention_relative_row(a, distance) : 0;
    float sum = 0, scale = additive ? 1.0f : 1.0f / sqrtf((float)dk);
    for (int c = 0; c < dk; c++) {
        float x = element(a->q, row, q0 + c) * scale, y = element(a->k, key, k0 + c);
        if (a->relative_k.p) y += element(a->relative_k, r, c);
        sum += additive ? element(a->additive, head, c) * tanhf(x + y) : x * y;
    }
    return sum - (float)attention_slope(a, head) * (float)abs(distance);
}

/* The attention weights of one query and head, computed from its scores and their log-sum-exp.
 * Only alignments and pictures ask for them, so this is plain C. */
static void weights_row(const struct attention *a, int b, int i, int head)
{
    const struct seqs *s = &a->seqs;
    int row = s->q[b] + i, position = s->klen[b] - (s->q[b + 1] - s->q[b]) + i;
    struct key_span sees = attention_sees(a, position, s->klen[b]);
    float *to = mat_at(a->weights, row * a->heads + head, 0);
    float lse = *(float *)mat_at(a->lse, row, head);
    for (int j = 0; j < a->weights.cols; j++) {
        to[j] = 0;
        if (j >= sees.to || (j >= sees.first && j < sees.from)) continue;
        int key = s->at ? s->at[s->k[b] + j] : s->k[b] + j;
        to[j] = expf(score(a, row, head, key, j - position) - lse);
    }
}

static void weights_fill(const struct cpu *cpu, const struct attention *a)
{
    for (int b = 0; b < a->seqs.n; b++)
#pragma omp parallel for collapse(2) schedule(static) num_threads(cpu->threads)
        for (int i = 0; i < a->seqs.q[b + 1] - a->seqs.q[b]; i++)
            for (int head = 0; head < a->heads; head++) weights_row(a, b, i, head);
}

/* ---- parameters of the forms of attention ---- */

static int padded(int n)
{
    return (n + TABLE_PAD - 1) / TABLE_PAD * TABLE_PAD;
}

/* Floats of tables or of gradients that are like the parameters of an attention, and of the
 * transposes. */
static size_t parameter_floats(const struct attention *a)
{
    size_t dk = (size_t)padded(attention_dk(a)), dv = (size_t)padded(attention_dv(a));
    return a->relative_k.rows * (dk + dv) + a->additive.rows * dk;
}
static size_t transpose_floats(const struct attention *a)
{
    size_t n = (size_t)(a->relative_k.cols + a->relative_v.cols) * padded(a->relative_k.rows);
    return n ? n + TABLE_PAD : 0; /* a vector may begin at any number of the last row */
}

/* Makes memory for so many floats; false where there is none, and then sync returns an error. */
static bool tables_reserve(struct cpu *cpu, size_t floats)
{
    size_t bytes = floats * sizeof *cpu->tables;
    if (floats <= cpu->table_floats) return true;
    float *tables = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!tables) {
        if (!cpu->failed.status) error_memory(&cpu->failed, bytes, "the tables of attention");
        return false;
    }
    free(cpu->tables);
    cpu->tables = tables;
    cpu->table_floats = floats;
    return true;
}

/* A matrix like m, or its transpose, with padded rows in the memory at *p, which moves on. */
static struct mat table_like(float **p, struct mat m, bool transposed)
{
    int rows = transposed ? m.cols : m.rows, cols = transposed ? m.rows : m.cols;
    if (!m.p) return (struct mat){0};
    struct mat t = {*p, rows, cols, padded(cols), TYPE_F32};
    *p += (size_t)rows * t.ld;
    return t;
}

static struct mat table_copy(float **p, struct mat m, bool transposed)
{
    struct mat t = table_like(p, m, transposed);
    if (t.p) memset(t.p, 0, (size_t)t.rows * t.ld * sizeof(float));
    for (int r = 0; r < m.rows; r++)
        for (int c = 0; c < m.cols; c++)
            *(float *)mat_at(t, transposed ? c : r, transposed ? r : c) = element(m, r, c);
    return t;
}

/* The tables, in the first parameter_floats + transpose_floats of the memory. */
static struct attend_tables tables_make(const struct cpu *cpu, const struct attention *a)
{
    float *p = cpu->tables;
    struct attend_tables t;
    t.relative_k = table_copy(&p, a->relative_k, false);
    t.relative_v = table_copy(&p, a->relative_v, false);
    t.relative_kt = table_copy(&p, a->relative_k, true);
    t.relative_vt = table_copy(&p, a->relative_v, true);
    t.additive = table_copy(&p, a->additive, false);
    return t;
}

/* The gradients of a task: those of the parameters are in memory of its own. */
static struct attention_grad task_grad(const struct attention_grad *g, float *p)
{
    struct attention_grad own = *g;
    own.drelative_k = table_like(&p, g->drelative_k, false);
    own.drelative_v = table_like(&p, g->drelative_v, false);
    own.dadditive = table_like(&p, g->dadditive, false);
    return own;
}

/* to += the same table of each task, in order. from: that of the first task, `step` floats before
 * that of the next */
static void add_tables(const struct cpu *cpu, struct mat to, struct mat from, size_t step,
                       long tasks)
{
#pragma omp parallel for schedule(static) num_threads(cpu_team(cpu, mat_count(to) * tasks))
    for (int r = 0; r < to.rows; r++)
        for (long t = 0; t < tasks; t++) {
            float *y = mat_at(to, r, 0);
            const float *x = (const float *)mat_at(from, r, 0) + t * step;
            for (int c = 0; c < to.cols; c++) y[c] += x[c];
        }
}

/* ---- distributing the work ---- */

void cpu_attend(struct backend *be, const struct attention *a)
{
    struct cpu *cpu = cpu_of(be);
    const struct seqs *s = &a->seqs;
    check(a);
    if (!tables_reserve(cpu, parameter_floats(a) + transpose_floats(a))) return;
    struct attend_tables tables = tables_make(cpu, a);
    int spans = (s->max_q + SPAN - 1) / SPAN, team = team_of(cpu, a);
    int width = heads_together(a, team), groups = (a->heads + width - 1) / width;
    long tasks = (long)s->n * spans * groups;
    int chunk = batch_size(tasks, team);
#pragma omp parallel for schedule(dynamic, chunk) num_threads(team)
    for (long t = 0; t < tasks; t++) {
        int head = (int)(t % groups) * width, span = (int)(t / groups % spans);
        int heads = int_min(width, a->heads - head), b = (int)(t / groups / spans);
        int nq = s->q[b + 1] - s->q[b], first = span * SPAN;
        int last = nq < first + SPAN ? nq : first + SPAN;
        if (first < last)
            cpu->attend->forward(a, &tables, b, head, heads, first, last, cpu_work(cpu));
    }
    if (a->weights.p) weights_fill(cpu, a);
}

/* Most tasks of backward that have gradients of their own; this bounds their memory. */
enum { OWN_GRADS = 128 };

void cpu_attend_bwd(struct backend *be, const struct attention *a, const struct attention_grad *g)
{
    struct cpu *cpu = cpu_of(be);
    check(a);
    assert(g->dq.type == a->q.type && g->dq.type == a->k.type);
    assert(g->dk.type == g->dq.type && g->dv.type == g->dq.type);
    assert(g->dout.type == g->dq.type && a->lse.p);
    int kv_heads = attention_kv_heads(a), groups = a->seqs.n;
    size_t own = parameter_floats(a), copies = own + transpose_floats(a);
    if (own) groups = int_min(groups, int_max(1, OWN_GRADS / kv_heads));
    long tasks = (long)groups * kv_heads;
    if (!tables_reserve(cpu, copies + tasks * own)) return;
    struct attend_tables tables = tables_make(cpu, a);
    float *grads = own ? cpu->tables + copies : NULL;
    int chunk = batch_size(tasks, cpu->threads);
#pragma omp parallel for schedule(dynamic, chunk) num_threads(cpu->threads)
    for (long t = 0; t < tasks; t++) {
        int group = (int)(t / kv_heads), kv_head = (int)(t % kv_heads);
        int first = (int)((long)a->seqs.n * group / groups);
        int last = (int)((long)a->seqs.n * (group + 1) / groups);
        struct attention_grad mine = own ? task_grad(g, grads + t * own) : *g;
        if (own) memset(grads + t * own, 0, own * sizeof *grads);
        for (int b = first; b < last; b++)
            cpu->attend->backward(a, &tables, &mine, b, kv_head, cpu_work(cpu));
    }
    if (!own || !tasks) return;
    struct attention_grad first = task_grad(g, grads);
    add_tables(cpu, g->drelative_k, first.drelative_k, own, tasks);
    add_tables(cpu, g->drelative_v, first.drelative_v, own, tasks);
    add_tables(cpu, g->dadditive, first.dadditive, own, tasks);
}
