/*
 * topk.c - see topk.h; the ops topk and linear_topk of ops.h.
 *
 * linear_topk: a thread computes blocks of columns of all rows (packed_read) and keeps the k best
 * of its columns for each row, and the largest logit and the sum of exp of each block. When all
 * threads are done, they divide the rows and merge what was found. The k best do not depend on who
 * found them, and the sums of the blocks are added in their order, so the number of threads changes
 * no bit.
 */
#include "ops/cpu/topk.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/minmax.h"
#include "ops/bf16.h"
#include "ops/cpu/cpu.h"

/* ---- the sum of a row ---- */

/* The sum of exp of the blocks so far: sum times exp(top) */
struct exp_sum {
    float top;
    double sum;
};

/* A block of -inf has a sum near 0; the NaN of a block with a NaN remains. */
static void exp_sum_add(struct exp_sum *s, float top, float sum)
{
    if (top > s->top) {
        s->sum = s->sum * (double)expf(s->top - top) + (double)sum;
        s->top = top;
    } else {
        s->sum += (double)sum * (top > -INFINITY ? (double)expf(top - s->top) : 1);
    }
}

/* n logits become log-probabilities; NaNs where the row has a NaN or its largest is infinite. */
static void exp_sum_end(const struct exp_sum *s, float *score, const int32_t *id, int n)
{
    float log_sum = (float)log(s->sum);
    for (int i = 0; i < n; i++) score[i] = id[i] < 0 ? -INFINITY : score[i] - s->top - log_sum;
}

/* ---- rows of logits ---- */

void topk_row(const struct kernels *kernels, const void *x, int n, enum type t, int k, float *score,
              int32_t *id, int wants)
{
    struct exp_sum s = {-INFINITY, 0};
    assert(k >= 1 && k <= n);
    for (int i = 0; i < n; i += PACKED_BLOCK) {
        const void *block = (const char *)x + (size_t)i * type_size(t);
        float top, sum;
        kernels->topk(block, int_min(PACKED_BLOCK, n - i), t, i, i, k, score, id, &top, &sum);
        exp_sum_add(&s, top, sum);
    }
    for (int j = k; j < k + wants; j++)
        if (id[j] >= 0)
            score[j] =
                t == TYPE_BF16 ? bf16_to_float(((const uint16_t *)x)[id[j]]) : ((float *)x)[id[j]];
    exp_sum_end(&s, score, id, k + wants);
}

void cpu_topk(struct backend *be, struct mat logits, int k, const int32_t *want, int wants,
              float *score, int32_t *id)
{
    struct cpu *cpu = cpu_of(be);
#pragma omp parallel for schedule(static) num_threads(cpu_team(cpu, mat_count(logits)))
    for (int i = 0; i < logits.rows; i++) {
        size_t at = (size_t)i * (k + wants);
        for (int j = 0; j < wants; j++) id[at + k + j] = want[(size_t)i * wants + j];
        topk_row(cpu->k, mat_at(logits, i, 0), logits.cols, logits.type, k, score + at, id + at,
                 wants);
    }
}

/* ---- linear_topk ---- */

/* What the threads have found so far. A list of a thread has the k best of its columns for a row,
 * or all where these are fewer, as logits. */
struct finding {
    const struct kernels *kernels;
    int rows, cols, k, wants;
    const int32_t *want;
    float *score; /* [rows][k + wants] */
    int32_t *id;
    float *top, *sum; /* [rows][blocks] */
    /* [threads][rows][k]: a thread has `lists` numbers of each array, whole cache lines, since
     * threads that write to the same line wait for each other */
    float *list_score;
    int32_t *list_id;
    size_t lists;
};

static int blocks_of(const struct finding *f)
{
    return (f->cols + PACKED_BLOCK - 1) / PACKED_BLOCK;
}

static size_t list_at(const struct finding *f, int thread, int row)
{
    return thread * f->lists + (size_t)row * f->k;
}

/* Takes the logits of wanted ids out of a part of a row. */
static void take_wanted(const struct finding *f, int row, const float *x, int col, int cols)
{
    const int32_t *want = f->want + (size_t)row * f->wants;
    float *score = f->score + (size_t)row * (f->k + f->wants) + f->k;
    for (int j = 0; j < f->wants; j++)
        if (want[j] >= col && want[j] < col + cols) score[j] = x[want[j] - col];
}

static void take(void *context, const struct packed_part *p)
{
    const struct finding *f = context;
    int blocks = blocks_of(f), seen = p->col - packed_first(f->cols, p->me, p->all);
    for (int r = 0; r < p->rows; r++) {
        const float *x = p->y + (size_t)r * p->ldy;
        size_t list = list_at(f, p->me, p->row + r);
        size_t block = (size_t)(p->row + r) * blocks + p->col / PACKED_BLOCK;
        f->kernels->topk(x, p->cols, TYPE_F32, p->col, seen, f->k, f->list_score + list,
                         f->list_id + list, f->top + block, f->sum + block);
        take_wanted(f, p->row + r, x, p->col, p->cols);
    }
}

/* Merges the lists of the threads, which have `length` entries. They follow each other in the order
 * of their columns: so of equals that of the first thread has the lower id. */
static void merge(const struct finding *f, int row, const int *length, int all, float *score,
                  int32_t *id)
{
    int used[CPU_THREADS];
    memset(used, 0, (size_t)all * sizeof *used);
    for (int i = 0; i < f->k; i++) {
        int best = 0;
        while (used[best] == length[best]) best++;
        size_t at = list_at(f, best, row) + used[best];
        for (int t = best + 1; t < all; t++) {
            size_t other = list_at(f, t, row) + used[t];
            if (used[t] == length[t] || !(f->list_score[other] > f->list_score[at])) continue;
            best = t;
            at = other;
        }
        score[i] = f->list_score[at];
        id[i] = f->list_id[at];
        used[best]++;
    }
}

static void end(void *context, int me, int all)
{
    const struct finding *f = context;
    int blocks = blocks_of(f), length[CPU_THREADS];
    for (int t = 0; t < all; t++)
        length[t] =
            int_min(f->k, packed_first(f->cols, t + 1, all) - packed_first(f->cols, t, all));
    for (int r = (int)((long)f->rows * me / all); r < (long)f->rows * (me + 1) / all; r++) {
        size_t at = (size_t)r * (f->k + f->wants);
        struct exp_sum s = {-INFINITY, 0};
        for (int b = 0; b < blocks; b++)
            exp_sum_add(&s, f->top[(size_t)r * blocks + b], f->sum[(size_t)r * blocks + b]);
        merge(f, r, length, all, f->score + at, f->id + at);
        for (int j = 0; j < f->wants; j++) f->id[at + f->k + j] = f->want[(size_t)r * f->wants + j];
        exp_sum_end(&s, f->score + at, f->id + at, f->k + f->wants);
    }
}

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* Sets the arrays of f; false where there is no memory. */
static bool finding_bind(struct finding *f, struct cpu *cpu)
{
    enum { LINE = 64 / sizeof(float), ARRAYS = 2 };
    size_t sums = round_up((size_t)f->rows * blocks_of(f), LINE);
    f->lists = round_up((size_t)f->rows * f->k, LINE);
    size_t lists = cpu->threads * f->lists, bytes = (sums + lists) * ARRAYS * sizeof(float);
    if (bytes > cpu->topk_bytes) {
        char *work = aligned_alloc(64, bytes);
        if (!work) {
            error_memory(&cpu->failed, bytes, "the best of logits");
            return false;
        }
        free(cpu->topk_work);
        cpu->topk_work = work;
        cpu->topk_bytes = bytes;
    }
    f->top = (float *)cpu->topk_work;
    f->sum = f->top + sums;
    f->list_score = f->sum + sums;
    f->list_id = (int32_t *)(f->list_score + lists);
    return true;
}

void cpu_linear_topk(struct backend *be, struct mat x, struct mat w, int k, const int32_t *want,
                     int wants, float *score, int32_t *id)
{
    struct cpu *cpu = cpu_of(be);
    struct packed_weights p = cpu_packed(w);
    struct finding f = {.kernels = cpu->k,
                        .rows = x.rows,
                        .cols = w.rows,
                        .k = k,
                        .wants = wants,
                        .want = want,
                        .score = score,
                        .id = id};
    assert(type_packed(w.type) && x.type == TYPE_F32 && k >= 1 && k <= w.rows);
    if (cpu->failed.status || !finding_bind(&f, cpu)) return;
    packed_read(&cpu->packed, &(struct packed_reader){take, end, &f}, x.p, x.ld, x.rows, &p,
                cpu->threads, &cpu->failed);
}
