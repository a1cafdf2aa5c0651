/*
 * packed.c - packs weights and distributes products with them over threads; the arithmetic is in
 * packed_kernels.c. See packed.h.
 *
 * Every thread prepares some of the rows of x, waits for the others, and multiplies all rows with
 * its share of the panels: each column of y is computed by one thread.
 */
#include "ops/cpu/packed.h"

#include <assert.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ops/bf16.h"
#include "ops/cpu/amx.h"
#include "ops/cpu/isa.h"
#include "ops/panels.h"
#include "ops/quant.h"

enum { LANES = PACKED_LANES, LINE = PANEL_LINE };

static int ceiling(int n, int size)
{
    return (n + size - 1) / size;
}

/* ---- weights ---- */

/* Numbers of k in a group of 4 bytes */
static int group_of(enum packed_kind kind)
{
    return kind == PACKED_F32 ? 1 : kind == PACKED_BF16 ? 2 : 4;
}

/* Bytes of a panel without the lines of scales and sums, and with them */
static size_t body_of(enum packed_kind kind, int k)
{
    if (kind == PACKED_I8) return panel_body(k);
    int groups = ceiling(k, group_of(kind));
    if (kind == PACKED_F32) groups = ceiling(groups, PACKED_THREE) * PACKED_THREE;
    return (size_t)groups * LINE;
}
static size_t stride_of(enum packed_kind kind, int k)
{
    return kind == PACKED_I8 ? panel_bytes(k)
                             : body_of(kind, k) + (kind == PACKED_F32 ? 2 * LINE : 0);
}

size_t packed_bytes(enum packed_kind kind, int n, int k)
{
    return (size_t)ceiling(n, LANES) * stride_of(kind, k);
}

/* The scales of a panel, which follow its groups */
static float *scales_of(enum packed_kind kind, const void *panel, int k)
{
    return (float *)((char *)panel + body_of(kind, k));
}

/* A row of stored weights, read as f32 in pieces that fit the stack. */
enum { PIECE = 1024 };

struct row {
    struct stored from;
    size_t first;
    float scale; /* of int8 */
    int k;
    float piece[PIECE];
};

static void row_init(struct row *r, struct stored from, int row, int k)
{
    r->from = from;
    r->first = (size_t)row * k;
    r->scale = from.type == TYPE_I8 ? from.scale[row] : 1;
    r->k = k;
}

/* Numbers i to i + *n of the row */
static const float *row_piece(struct row *r, int i, int *n)
{
    size_t at = r->first + i;
    *n = r->k - i < PIECE ? r->k - i : PIECE;
    if (r->from.type == TYPE_F32) return (const float *)r->from.v + at;
    for (int j = 0; j < *n; j++)
        r->piece[j] = r->from.type == TYPE_BF16
                          ? bf16_to_float(((const uint16_t *)r->from.v)[at + j])
                          : r->scale * ((const int8_t *)r->from.v)[at + j];
    return r->piece;
}

/* The largest power of two that is not above the Euclidean norm of the row; 0: all are zero */
static float length_scale(struct row *r)
{
    double sum = 0;
    for (int i = 0, n; i < r->k; i += n) {
        const float *w = row_piece(r, i, &n);
        for (int j = 0; j < n; j++) sum += (double)w[j] * w[j];
    }
    if (!isfinite(sum)) return 1;
    return sum > 0 ? ldexpf(1, (int)fmin(fmax(floor(log2(sum) / 2), -126), 127)) : 0;
}

/* Fills a lane of a panel from a row of weights. */
static void fill_f32(void *panel, int lane, struct row *r)
{
    float *to = panel, *scales = scales_of(PACKED_F32, panel, r->k);
    float scale = length_scale(r), unit = scale > 0 ? 1 / scale : 0;
    double pairs = 0;
    for (int i = 0, n; i < r->k; i += n) {
        const float *w = row_piece(r, i, &n);
        for (int j = 0; j < n; j++) to[panel_at(lane, i + j, 1)] = w[j] * unit;
    }
    for (int i = 0; i + 1 < r->k; i += PACKED_THREE)
        pairs += (double)to[panel_at(lane, i, 1)] * to[panel_at(lane, i + 1, 1)];
    scales[lane] = scale;
    scales[LANES + lane] = (float)pairs;
}

static void fill_bf16(void *panel, int lane, struct row *r)
{
    for (int i = 0, n; i < r->k; i += n) {
        const float *w = row_piece(r, i, &n);
        for (int j = 0; j < n; j++)
            ((uint16_t *)panel)[panel_at(lane, i + j, 2)] = bf16_from_float(w[j]);
    }
}

static void fill_i8(void *panel, int lane, struct row *r)
{
    int8_t q[PIECE];
    float most = 0;
    int32_t sum = 0;
    for (int i = 0, n; i < r->k; i += n) {
        const float *w = row_piece(r, i, &n);
        most = fmaxf(most, quant_most(w, n));
    }
    for (int i = 0, n; i < r->k; i += n) {
        const float *w = row_piece(r, i, &n);
        quant_numbers(q, w, n, most);
        sum += panel_part(panel, lane, i, q, n);
    }
    panel_end(panel, lane, quant_scale(most), sum, r->k);
}

static void fill_row(enum packed_kind kind, void *panel, struct stored from, int row, int k)
{
    int lane = row % LANES;
    struct row r;
    row_init(&r, from, row, k);
    if (kind == PACKED_I8 && from.type == TYPE_I8)
        panel_put(panel, lane, (const int8_t *)from.v + r.first, r.scale, k);
    else if (kind == PACKED_I8)
        fill_i8(panel, lane, &r);
    else if (kind == PACKED_BF16)
        fill_bf16(panel, lane, &r);
    else
        fill_f32(panel, lane, &r);
}

/* Fills a whole panel from weights stored in bf16, a pair of numbers at a time: most of the time of
 * loading a model is spent here. */
static void fill_pairs(void *panel, const uint16_t *w, int k)
{
    char *to = panel;
    for (int i = 0; i < k; i += 2)
        for (int lane = 0; lane < LANES; lane++, to += 4) memcpy(to, w + (size_t)lane * k + i, 4);
}

void packed_fill(enum packed_kind kind, void *panels, struct stored from, int n, int k, int threads)
{
    assert(k <= PACKED_K_MAX);
    size_t size = stride_of(kind, k);
    bool as_stored = kind == PACKED_BF16 && from.type == TYPE_BF16 && k % 2 == 0;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int p = 0; p < ceiling(n, LANES); p++) {
        void *panel = (char *)panels + p * size;
        int row = p * LANES;
        if (as_stored && row + LANES <= n) {
            fill_pairs(panel, (const uint16_t *)from.v + (size_t)row * k, k);
            continue;
        }
        memset(panel, 0, size);
        for (; row < n && row < (p + 1) * LANES; row++) fill_row(kind, panel, from, row, k);
    }
}

void packed_row(float *to, const struct packed_weights *w, int row)
{
    const void *panel = (const char *)w->panels + row / LANES * stride_of(w->kind, w->k);
    int lane = row % LANES;
    float scale = w->kind == PACKED_BF16 ? 1 : scales_of(w->kind, panel, w->k)[lane];
    for (int i = 0; i < w->k; i++) {
        if (w->kind == PACKED_F32)
            to[i] = scale * ((const float *)panel)[panel_at(lane, i, 1)];
        else if (w->kind == PACKED_BF16)
            to[i] = bf16_to_float(((const uint16_t *)panel)[panel_at(lane, i, 2)]);
        else
            to[i] = scale * ((const int8_t *)panel)[panel_at(lane, i, 4)];
    }
}

/* ---- choice of kernels ---- */

void packed_open(struct packed_work *work, const struct isa *isa)
{
    const struct packed_kernel *level = isa_kernels(isa->level)->packed;
    *work = (struct packed_work){0};
    for (int kind = 0; kind < PACKED_KINDS; kind++) work->kernel[kind] = level + kind;
#if defined(__x86_64__)
    const struct packed_kernel *dot =
        isa->level == ISA_AVX512 ? packed_dot_avx512 : packed_dot_avx2;
    if (isa->f32_pairs) work->kernel[PACKED_F32] = dot + PACKED_F32;
    if (isa->bf16_dot) work->kernel[PACKED_BF16] = dot + PACKED_BF16;
    if (isa->i8_dot) work->kernel[PACKED_I8] = dot + PACKED_I8;
#endif
    for (int kind = 0; kind < PACKED_KINDS && isa->amx; kind++)
        if (isa->amx->packed[kind].run) work->kernel[kind] = isa->amx->packed + kind;
}

void packed_close(struct packed_work *work)
{
    free(work->memory);
    *work = (struct packed_work){0};
}

/* ---- products ---- */

static enum heed_status work_reserve(struct packed_work *work, size_t bytes, struct heed_error *err)
{
    if (bytes <= work->bytes) return HEED_OK;
    char *memory = aligned_alloc(64, bytes);
    if (!memory) return error_memory(err, bytes, "the rows of a product");
    free(work->memory);
    work->memory = memory;
    work->bytes = bytes;
    return HEED_OK;
}

/* Starting threads costs more than it saves below SMALL cycles, where a line of weights takes
 * MEMORY cycles to load and one for each row. */
enum { SMALL = 8192, MEMORY = 6 };

static int team_of(const struct packed_task *t, int panels, int threads)
{
    return (size_t)panels * t->groups * (t->m + MEMORY) < SMALL ? 1 : threads;
}

/* Up to this many rows each thread prepares all rows for itself, which is faster than waiting for
 * the others. */
enum { FEW = 8 };

/* The rows of x that a product prepares for its kernel */
struct source {
    const struct packed_kernel *kernel;
    const float *x;
    int ldx, m, k;
    int copies; /* one for each thread, or 1 */
    size_t pitch;
};

/* A product but for its results. */
static struct packed_task task_of(const struct packed_weights *w, const struct source *s)
{
    return (struct packed_task){.m = s->m,
                                .n = w->n,
                                .groups = ceiling(w->k, group_of(w->kind)),
                                .pitch = s->pitch,
                                .panels = w->panels,
                                .stride = stride_of(w->kind, w->k)};
}

static struct source source_of(const struct packed_work *work, const float *x, int ldx, int m,
                               const struct packed_weights *w)
{
    const struct packed_kernel *kernel = work->kernel[w->kind];
    size_t line = (size_t)ceiling(w->k + PACKED_THREE - 1, LINE) * LINE;
    return (struct source){kernel, x, ldx, m, w->k, 1, PACKED_HEAD + line * kernel->width};
}

static size_t source_bytes(const struct source *s)
{
    return (size_t)s->copies * s->m * s->pitch;
}

/* Prepares the rows of x, or this thread's share of them; returns all of them. */
static const char *source_prepare(const struct source *s, char *memory, long me, long all)
{
    bool own = s->copies > 1;
    char *rows = memory + (own ? me * s->m * s->pitch : 0);
    long first = own ? 0 : s->m * me / all, last = own ? s->m : s->m * (me + 1) / all;
    for (long r = first; r < last; r++)
        s->kernel->prepare(rows + r * s->pitch, s->x + r * s->ldx, s->k);
    if (!own) {
#pragma omp barrier
    }
    return rows;
}

enum heed_status packed_run(struct packed_work *work, float *y, int ldy, const float *x, int ldx,
                            int m, const struct packed_weights *w, const float *bias, bool relu,
                            int threads, struct heed_error *err)
{
    if (m == 0) return HEED_OK;
    struct source s = source_of(work, x, ldx, m, w);
    struct packed_task t = task_of(w, &s);
    int panels = ceiling(w->n, LANES), team = team_of(&t, panels, threads);
    s.copies = m <= FEW ? team : 1;
    t.y = y;
    t.ldy = (size_t)ldy;
    t.bias = bias;
    t.relu = relu;
    size_t source = source_bytes(&s);
    enum heed_status status = work_reserve(work, source + team * t.stride, err);
    if (status != HEED_OK) return status;
#pragma omp parallel num_threads(team) if (team > 1) firstprivate(t)
    {
        long me = omp_get_thread_num(), all = omp_get_num_threads();
        t.rows = source_prepare(&s, work->memory, me, all);
        t.spare = work->memory + source + me * t.stride;
        s.kernel->run(&t, (int)(panels * me / all), (int)(panels * (me + 1) / all));
    }
    return HEED_OK;
}

/* ---- products that are read block by block ---- */

/* Up to READ_ROWS rows of a block of columns stay in the second-level cache, or fewer rows of more
 * blocks. The rows are not a power of two apart, which would put them in few sets of the
 * first-level cache. */
enum { READ_ROWS = 128, READ_PAD = LANES };

/* How a product is cut: parts of up to `rows` rows by `blocks` blocks of columns */
struct cut {
    int rows, blocks, ld;
};

static struct cut cut_of(int m)
{
    int rows = ceiling(m, ceiling(m, READ_ROWS)), blocks = READ_ROWS / rows;
    return (struct cut){rows, blocks, blocks * PACKED_BLOCK + READ_PAD};
}

/* Passes on columns [col, col + cols) of a part, of which t.y has those from t's first on. */
static void pass_on(const struct packed_reader *reader, const struct packed_task *t,
                    struct packed_part part)
{
    for (int i = 0; i < t->n; i += PACKED_BLOCK) {
        struct packed_part block = part;
        block.col += i;
        block.cols = t->n - i < PACKED_BLOCK ? t->n - i : PACKED_BLOCK;
        block.y = t->y + i;
        reader->take(reader->context, &block);
    }
}

/* Computes a thread's columns, from part.col to `end`. */
static void read_columns(const struct packed_task *all, const struct packed_kernel *kernel,
                         const struct packed_reader *reader, struct cut cut,
                         struct packed_part part, int end)
{
    struct packed_task t = *all;
    int width = cut.blocks * PACKED_BLOCK;
    for (; part.col < end; part.col += width) {
        t.n = end - part.col < width ? end - part.col : width;
        t.panels = all->panels + part.col / LANES * t.stride;
        for (part.row = 0; part.row < all->m; part.row += cut.rows) {
            part.rows = all->m - part.row < cut.rows ? all->m - part.row : cut.rows;
            t.m = part.rows;
            t.rows = all->rows + part.row * t.pitch;
            kernel->run(&t, 0, ceiling(t.n, LANES));
            pass_on(reader, &t, part);
        }
    }
}

enum heed_status packed_read(struct packed_work *work, const struct packed_reader *reader,
                             const float *x, int ldx, int m, const struct packed_weights *w,
                             int threads, struct heed_error *err)
{
    if (m == 0) return HEED_OK;
    struct source s = source_of(work, x, ldx, m, w);
    struct packed_task t = task_of(w, &s);
    struct cut cut = cut_of(m);
    int team = team_of(&t, ceiling(w->n, LANES), threads);
    s.copies = m <= FEW ? team : 1;
    t.ldy = (size_t)cut.ld;
    size_t source = source_bytes(&s), part = cut.rows * t.ldy * sizeof(float);
    enum heed_status status = work_reserve(work, source + team * (t.stride + part), err);
    if (status != HEED_OK) return status;
#pragma omp parallel num_threads(team) if (team > 1) firstprivate(t)
    {
        int me = omp_get_thread_num(), all = omp_get_num_threads();
        struct packed_part mine = {
            .me = me, .all = all, .col = packed_first(w->n, me, all), .ldy = cut.ld};
        t.rows = source_prepare(&s, work->memory, me, all);
        t.spare = work->memory + source + me * (t.stride + part);
        t.y = (float *)(t.spare + t.stride);
        read_columns(&t, s.kernel, reader, cut, mine, packed_first(w->n, me + 1, all));
#pragma omp barrier
        reader->end(reader->context, me, all);
    }
    return HEED_OK;
}
