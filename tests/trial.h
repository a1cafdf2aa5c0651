/*
 * trial.h - how test_ops.c tests one op.
 *
 * A trial is one op on one shape with one set of flags. All its matrices and index arrays are in
 * one block of bytes, the picture, which is uploaded as a whole; the reference computes in double
 * from the same numbers. The picture is laid out so that a fault shows:
 *   - everything that is not a number given to the op is a NaN: outputs, slack rows up to ROW_PAD,
 *     columns beside a view, guards around every matrix. Reading any of it spoils a result.
 *   - every byte has a fate: it must stay as it is (inputs, guards and neighbours), may become
 * anything (slack), or is a result.
 *   - gradients that add start from numbers.
 * With one thread the results are compared with the reference's, with more bit for bit with those
 * of one thread. On a device (device.h) every op runs twice and must give the same bits.
 *
 * Call order: fill in op, shape, flags and type, then trial_run: the op's plan adds the slots,
 * prepare may compute inputs from inputs, the op is called on each backend, the bytes are checked.
 */
#ifndef HEED_TESTS_TRIAL_H
#define HEED_TESTS_TRIAL_H
#include <math.h>
#include <stdio.h>

#include "device.h"
#include "emulated.h"
#include "ops/bf16.h"
#include "ops/cpu/cpu.h"
#include "toy.h"

/* ---- trials ---- */

enum flag {
    DROP = 1,    /* dropout on */
    VIEW = 2,    /* activations are columns of a wider matrix */
    ACTIVE = 4,  /* linear has an activation: ops with this flag are tried with every kind */
    BIAS = 8,    /* a bias in linear, and in backward its gradient */
    BETA = 16,   /* dx is added to; without: written over NaNs */
    NODX = 32,   /* linear_bwd without dx */
    KEEP = 64,   /* what backward needs is kept: xhat and rstd of add_norm, slope of linear */
    ALIAS = 128, /* add_norm's y is x */
    GRAD = 256,  /* xent turns logits into gradients */
    CAUSAL = 512,
    CROSS = 1024, /* keys of their own; without: the queries' rows */
    COPY = 2048,  /* adam writes a bf16 copy */
    CLIP = 4096,
    SKIP = 8192,       /* adam sees a norm beyond the limit; with CLIP: not a number */
    TIES = 16384,      /* topk on few distinct values */
    WANTED = 32768,    /* topk asked for given ids as well */
    PLACED = 65536,    /* embed adds positions, and embed_bwd is given their scale */
    GROUPED = 131072,  /* attention with fewer key/value heads than heads */
    OPPOSITE = 262144, /* rotate by the opposite angle */
    GATED = 524288,    /* dispatch multiplies with the gates */
    LIMITED = 1048576, /* experts have a capacity, which some reach */
    FORM = 2097152,    /* attention in another form than the paper's: tried with every form */
    LISTED = 4194304   /* attention finds its keys through a table, as in a decoding step */
};

enum fate { STAYS, SLACK, RESULT };
enum access { IN, OUT, ADD }; /* read; written; read and written */
enum { SLOTS = 15, INTS = 2048, GUARD = 64 };

struct slot {
    const char *name; /* NULL: an absent matrix */
    enum access role;
    bool ints;                 /* holds int32, compared exactly */
    bool coarse;               /* may be computed from numbers rounded to the activations' type */
    const struct slot *sum_of; /* this is the sum of its stored rows; NULL: it is no such sum */
    const struct slot *beside; /* this slot and that are functions of the same sums, whose rounding
                                * in f32 grows with the numbers of that; NULL: there is none */
    size_t at;                 /* offset of dev.p in the picture */
    struct mat dev;            /* its p points into the picture */
    struct mat ref;            /* f64 unless like_device */
};

/* The results of trials on a device. */
struct tally {
    int trials, failed;
    double worst;    /* largest difference, relative to the tolerance */
    char first[512]; /* first failure */
};

struct trial {
    const struct op_case *op;
    struct tally *tally; /* NULL: the first failure ends the test */
    int rows, cols, out; /* shape; the op decides what cols and out mean */
    int values;          /* width of a head's values, for attention; 0: as the rows say */
    unsigned flags;
    enum activation_kind activation; /* with ACTIVE; else ACT_NONE */
    int form;                        /* with FORM: which */
    enum type act;                   /* activations, and matrices of products */
    struct drop drop;
    uint64_t random;
    struct seqs seqs; /* without its pointers */
    struct slot slot[SLOTS];
    int slots;
    int32_t ints[INTS];
    size_t ints_at;
    char *picture; /* [bytes] */
    uint8_t *fate; /* [bytes] */
    size_t bytes;
    char what[160]; /* description of the trial, for messages */
    bool failed;
};

struct op_case {
    const char *name;
    void (*plan)(struct trial *t);
    /* m: the slots in the order of the plan; ints: t->ints on the device */
    void (*call)(struct backend *be, const struct trial *t, const struct mat *m,
                 const int32_t *ints);
    const int (*shape)[3]; /* ends with rows < 0 */
    const int (*large)[3]; /* for devices: tried with all flags but VIEW, and with none */
    unsigned flags;        /* every subset is tried */
    void (*prepare)(struct backend *ref, const struct trial *t, const struct mat *m);
};

static double number(struct mat m, int row, int col)
{
    const void *p = mat_at(m, row, col);
    if (m.type == TYPE_F64) return *(const double *)p;
    return (double)(m.type == TYPE_F32 ? *(const float *)p : bf16_to_float(*(const uint16_t *)p));
}

static void number_set(struct mat m, int row, int col, double x)
{
    void *p = mat_at(m, row, col);
    if (m.type == TYPE_F64) *(double *)p = x;
    if (m.type == TYPE_F32) *(float *)p = (float)x;
    if (m.type == TYPE_BF16) *(uint16_t *)p = bf16_from_float((float)x);
}

static double uniform(struct trial *t, double low, double high)
{
    return low + (high - low) * random_unit(&t->random);
}

/* ---- the picture ---- */

/* NaNs in f32 and in bf16, no two neighbours alike. */
static void fill_nan(char *p, size_t bytes)
{
    for (size_t i = 0; i < bytes / 4; i++) {
        uint32_t word = 0x7fc07fc0u | (i & 0x3f) | (i >> 6 & 0x3f) << 16;
        memcpy(p + 4 * i, &word, 4);
    }
}

/* Makes room for `bytes` bytes behind a guard; returns their offset. */
static size_t picture_grow(struct trial *t, size_t bytes)
{
    size_t at = t->bytes + GUARD, end = at + (bytes + 63) / 64 * 64;
    t->picture = realloc(t->picture, end);
    t->fate = realloc(t->fate, end);
    assert_true(t->picture && t->fate);
    fill_nan(t->picture + t->bytes, end - t->bytes);
    memset(t->fate + t->bytes, STAYS, end - t->bytes);
    t->bytes = end;
    return at;
}

static void set_fate(struct trial *t, struct slot *s, int padded)
{
    size_t size = type_size(s->dev.type), ld = s->dev.ld;
    for (int i = 0; i < s->dev.rows && s->role != IN; i++)
        memset(t->fate + s->at + i * ld * size, RESULT, s->dev.cols * size);
    if (padded > s->dev.rows)
        memset(t->fate + s->at + (s->dev.rows * ld) * size, SLACK,
               ((padded - s->dev.rows) * ld - (ld - s->dev.cols)) * size);
}

static void slot_add(struct trial *t, enum access role, const char *name, int rows, int cols,
                     enum type type, bool activation, double low, double high)
{
    assert_true(t->slots < SLOTS);
    struct slot *s = &t->slot[t->slots++];
    bool view = activation && t->flags & VIEW;
    int padded = activation ? (rows + ROW_PAD - 1) / ROW_PAD * ROW_PAD : rows;
    int apart = cols % 16 ? 3 : 8; /* so that some views have aligned rows */
    int left = view ? apart : 0, ld = cols + (view ? 2 * apart : 0);
    *s = (struct slot){.name = name, .role = role};
    s->dev = (struct mat){NULL, rows, cols, ld, type};
    s->at = picture_grow(t, (size_t)padded * ld * type_size(type)) + left * type_size(type);
    set_fate(t, s, padded);
    s->ref = mat_make(malloc((size_t)rows * cols * 8 + 1), rows, cols, TYPE_F64);
    assert_non_null(s->ref.p);
    for (int i = 0; i < rows; i++)
        for (int c = 0; c < cols; c++)
            number_set(s->ref, i, c, role == OUT ? (double)NAN : uniform(t, low, high));
}

/* An activation: rows padded, perhaps a view. */
static void act(struct trial *t, enum access role, const char *name, int rows, int cols,
                enum type type)
{
    slot_add(t, role, name, rows, cols, type, true, -1, 1);
}

/* A parameter, a gradient of one, or anything else with exactly its rows. */
static void par(struct trial *t, enum access role, const char *name, int rows, int cols,
                enum type type)
{
    slot_add(t, role, name, rows, cols, type, false, -1, 1);
}

/* The reference has the last slot in the device's type too: the op takes a plain pointer to it. */
static void like_device(struct trial *t)
{
    struct slot *s = &t->slot[t->slots - 1];
    struct mat wide = s->ref;
    s->ref.type = s->dev.type;
    for (int i = 0; i < wide.rows; i++)
        for (int c = 0; c < wide.cols; c++) number_set(s->ref, i, c, number(wide, i, c));
}

/* The last slot gets the sum of this one's rows. */
static void sums_rows(struct trial *t, int of)
{
    t->slot[t->slots - 1].sum_of = &t->slot[of];
}

/* The last slot is a function of the same sums as this one, which is about as large as they are. */
static void stands_beside(struct trial *t, int other)
{
    t->slot[t->slots - 1].beside = &t->slot[other];
}

/* The last slot is a sum of products with weights, which kernels may round to the type of the
 * activations. */
static void sums_weights(struct trial *t)
{
    t->slot[t->slots - 1].coarse = true;
}

static void absent(struct trial *t)
{
    t->slot[t->slots++] = (struct slot){0};
}

static void bind(const struct trial *t, struct mat *m, char *base)
{
    for (int i = 0; i < t->slots; i++) {
        m[i] = t->slot[i].dev;
        if (t->slot[i].name) m[i].p = base + t->slot[i].at;
    }
}

static void bind_ref(const struct trial *t, struct mat *m)
{
    for (int i = 0; i < t->slots; i++) m[i] = t->slot[i].ref;
}

/* Rounds the reference's numbers to the device's types, so that both sides see the same. */
static void settle(struct trial *t)
{
    struct mat m[SLOTS];
    bind(t, m, t->picture);
    for (int k = 0; k < t->slots; k++)
        for (int i = 0; i < m[k].rows && t->slot[k].role != OUT; i++)
            for (int c = 0; c < m[k].cols; c++) {
                number_set(m[k], i, c, number(t->slot[k].ref, i, c));
                number_set(t->slot[k].ref, i, c, number(m[k], i, c));
            }
    t->ints_at = picture_grow(t, sizeof t->ints);
    memcpy(t->picture + t->ints_at, t->ints, sizeof t->ints);
}

static void trial_free(struct trial *t)
{
    for (int i = 0; i < t->slots; i++) free(t->slot[i].ref.p);
    free(t->picture);
    free(t->fate);
}

/* ---- running and comparing ---- */

/* The levels; the best of this machine with products of bf16 in f32, and with the kernels for AMX,
 * emulated; AVX2 with VNNI, and AMX for real, where the machine has them */
enum { IN_F32 = ISA_LEVELS, BY_EMULATION, BY_AVX_VNNI, BY_AMX, ISAS, COUNTS = 3 };
static const int thread_count[COUNTS] = {1, 2, 5};

struct backends {
    struct backend *ref;
    struct backend *cpu[ISAS][COUNTS]; /* NULL: not on this machine */
    struct backend *device;            /* if there is one, it alone is tested */
};

static const char *isa_text(int i)
{
    static const char *const others[] = {"bf16 in f32", "AMX, emulated", "avxvnni", "amx"};
    return i < ISA_LEVELS ? isa_name((enum isa_level)i) : others[i - ISA_LEVELS];
}

static enum heed_status isa_open(struct backend **out, int i, int threads, struct heed_error *err)
{
    struct cpuid c = isa_read();
    struct isa isa = isa_best(&c);
    if (i != IN_F32 && i != BY_EMULATION) return cpu_open(out, isa_text(i), threads, err);
    isa.bf16_products = false;
    isa.amx = i == BY_EMULATION ? amx_emulated(isa.level) : NULL;
    return cpu_open_isa(out, threads, &isa, err);
}

static void backends_open(struct backends *b)
{
    struct heed_error err = {0};
    memset(b, 0, sizeof *b);
    if (ref_open(&b->ref, &err)) abort();
    if (device_named()) {
        if (backend_open(&b->device, device_named(), 0, &err)) abort();
        return;
    }
    for (int i = 0; i < ISAS; i++)
        for (int k = 0; k < COUNTS; k++) {
            enum heed_status s = isa_open(&b->cpu[i][k], i, thread_count[k], &err);
            if (!s || (s == HEED_EUNSUPPORTED && i)) continue; /* the baseline must be there */
            fprintf(stderr, "%s\n", err.text);
            abort();
        }
}

static void backends_close(struct backends *b)
{
    b->ref->op->close(b->ref);
    if (b->device) b->device->op->close(b->device);
    for (int i = 0; i < ISAS; i++)
        for (int k = 0; k < COUNTS; k++)
            if (b->cpu[i][k]) b->cpu[i][k]->op->close(b->cpu[i][k]);
}

static void describe(struct trial *t, const char *isa, int threads)
{
    snprintf(t->what, sizeof t->what,
             "%s [%d, %d, %d] %s, flags %#x, activation %d, form %d, %s, %d threads", t->op->name,
             t->rows, t->cols, t->out, t->act == TYPE_BF16 ? "bf16" : "f32", t->flags,
             t->activation, t->form, isa, threads);
}

/* Ends the test, or on a device the trial. */
__attribute__((format(printf, 2, 3))) static void complain(struct trial *t, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!t->tally) fail_msg("%s: %s", t->what, text);
    if (!t->tally->failed && !t->failed)
        snprintf(t->tally->first, sizeof t->tally->first, "flags %#x: %s", t->flags, text);
    t->failed = true;
}

/* Runs the op on the picture's bytes and brings them back. */
static void run_on(struct backend *be, struct trial *t, char *bytes)
{
    struct heed_error err = {0};
    struct mat m[SLOTS];
    void *block = NULL;
    if (be->op->alloc(be, &block, t->bytes, USED_WHOLE, &err)) {
        complain(t, "%s", err.text);
        return;
    }
    be->op->upload(be, block, t->picture, t->bytes);
    bind(t, m, block);
    t->op->call(be, t, m, (int32_t *)((char *)block + t->ints_at));
    be->op->download(be, bytes, block, t->bytes);
    if (be->op->sync(be, &err)) complain(t, "%s", err.text);
    be->op->free(be, block);
}

static void check_stays(struct trial *t, const char *bytes)
{
    for (size_t i = 0; i < t->bytes && !t->failed; i++) {
        if (t->fate[i] != STAYS || bytes[i] == t->picture[i]) continue;
        const char *near = "nothing";
        for (int k = 0; k < t->slots; k++)
            if (t->slot[k].name && t->slot[k].at <= i) near = t->slot[k].name;
        complain(t, "wrote where it must not, in or after %s", near);
    }
}

/* How far an element may be off: by a part of itself and a part of the largest of its matrix or of
 * 1, the size of the inputs. f32 sums of some hundred terms stay within these; a bf16 result is
 * rounded at most twice, by 2^-8 each time. */
struct tolerance {
    double self, largest;
};

static struct tolerance tolerance_of(enum type type)
{
    if (type == TYPE_F64) return (struct tolerance){1e-9, 0};
    if (type == TYPE_BF16) return (struct tolerance){0x1p-7, 0x1p-8};
    return (struct tolerance){1e-5, 2e-6};
}

/* What an element must be, given the results m. A sum is compared with the sum of the stored rows,
 * which are compared with the reference themselves, so that their rounding does not count twice. */
static double expected(const struct trial *t, const struct slot *s, const struct mat *m, int row,
                       int col)
{
    double x = number(s->ref, row, col);
    for (int i = 0; s->sum_of && i < s->sum_of->ref.rows; i++)
        x += number(m[s->sum_of - t->slot], i, col) - number(s->sum_of->ref, i, col);
    return x;
}

/* The largest finite number of the reference, or 1. */
static double largest_of(const struct slot *s)
{
    double largest = 1;
    for (int i = 0; i < s->ref.rows; i++)
        for (int c = 0; c < s->ref.cols; c++) {
            double x = fabs(number(s->ref, i, c));
            if (isfinite(x) && x > largest) largest = x;
        }
    return largest;
}

/* The difference of one element, relative to the tolerance, which is self * the element + slack;
 * NaN where one is finite and the other is not */
static double part_off(const struct slot *s, struct mat found, int row, int col, double want,
                       double self, double slack)
{
    double a = number(found, row, col);
    if (s->ints) return memcmp(mat_at(found, row, col), mat_at(s->ref, row, col), 4) ? NAN : 0;
    if (a == want || (isnan(a) && isnan(want))) return 0;
    return fabs(a - want) / (self * fabs(want) + slack);
}

/* Whether a row is a result; the padding between the rows of experts is not. */
static bool compared(const struct trial *t, const struct slot *s, int row)
{
    return t->fate[s->at + (size_t)row * s->dev.ld * type_size(s->dev.type)] == RESULT;
}

static void check_slot(struct trial *t, const struct slot *s, const struct mat *m)
{
    struct mat found = m[s - t->slot];
    struct tolerance tol = tolerance_of(s->coarse ? t->act : s->dev.type);
    double slack = tol.largest * largest_of(s);
    if (s->beside) slack += tolerance_of(TYPE_F32).largest * largest_of(s->beside);
    for (int i = 0; i < found.rows && !t->failed; i++)
        for (int c = 0; c < found.cols && !t->failed && compared(t, s, i); c++) {
            double want = expected(t, s, m, i, c);
            double off = part_off(s, found, i, c, want, tol.self, slack);
            if (t->tally && off > t->tally->worst) t->tally->worst = off;
            if (off <= 1) continue;
            if (s->ints)
                complain(t, "%s[%d,%d] is %d, expected %d", s->name, i, c,
                         *(int32_t *)mat_at(found, i, c), *(int32_t *)mat_at(s->ref, i, c));
            else
                complain(t, "%s[%d,%d] is %.9g, expected %.9g", s->name, i, c, number(found, i, c),
                         want);
        }
}

static void check_results(struct trial *t, char *bytes)
{
    struct mat m[SLOTS];
    bind(t, m, bytes);
    check_stays(t, bytes);
    for (int i = 0; i < t->slots; i++)
        if (t->slot[i].name && t->slot[i].role != IN) check_slot(t, &t->slot[i], m);
}

static void check_same(struct trial *t, const char *a, const char *b, const char *than)
{
    for (size_t i = 0; i < t->bytes && !t->failed; i++)
        if (t->fate[i] == RESULT && a[i] != b[i]) complain(t, "other bytes than %s", than);
}

static void trial_on_cpu(const struct backends *b, struct trial *t, char *bytes, char *first)
{
    for (int i = 0; i < ISAS; i++) {
        if (!b->cpu[i][0]) continue;
        describe(t, isa_text(i), 1);
        run_on(b->cpu[i][0], t, first);
        check_results(t, first);
        for (int k = 1; k < COUNTS; k++) {
            describe(t, isa_text(i), thread_count[k]);
            run_on(b->cpu[i][k], t, bytes);
            check_stays(t, bytes);
            check_same(t, bytes, first, "with one thread");
        }
    }
}

static void trial_on_device(const struct backends *b, struct trial *t, char *bytes, char *first)
{
    run_on(b->device, t, first);
    if (!t->failed) check_results(t, first);
    if (!t->failed) run_on(b->device, t, bytes);
    if (!t->failed) check_same(t, bytes, first, "the first time");
    t->tally->trials++;
    t->tally->failed += t->failed;
}

static void trial_run(const struct backends *b, struct trial *t)
{
    struct mat m[SLOTS];
    t->random = random_at(t->flags, t->rows, t->cols);
    t->drop = (struct drop){t->flags & DROP ? 0.3f : 0, 77, 5};
    t->op->plan(t);
    bind_ref(t, m);
    if (t->op->prepare) t->op->prepare(b->ref, t, m);
    settle(t);
    t->op->call(b->ref, t, m, t->ints);
    char *bytes = malloc(t->bytes), *first = malloc(t->bytes);
    assert_true(bytes && first);
    b->device ? trial_on_device(b, t, bytes, first) : trial_on_cpu(b, t, bytes, first);
    free(bytes);
    free(first);
    trial_free(t);
}

#endif
