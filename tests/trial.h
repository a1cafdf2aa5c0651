/*
 * trial.h - how test_ops.c puts one op to the test.
 *
 * A trial is one op on one shape with one set of flags. Its matrices, with index arrays, lie in one
 * block of bytes (the picture) that is uploaded as it is; the reference works in double on the same
 * numbers. The picture is laid out so that a fault shows:
 *   - everything that is not a number given to the op is a NaN: outputs, slack rows up to ROW_PAD,
 *     columns beside a view, guards around every matrix. Reading any of it spoils a result.
 *   - every byte has a fate: it stays, may become anything (slack), or is a result. Inputs, guards
 *     and neighbours stay, bit for bit.
 *   - gradients that add start from numbers.
 * With one thread the results are compared with the reference's, with more bit for bit with those
 * of one thread.
 *
 * Call order: fill in op, shape, flags and type, then trial_run: the op's plan adds the slots,
 * prepare may compute inputs from inputs, the op is called on each backend, the bytes are checked.
 */
#ifndef HEED_TESTS_TRIAL_H
#define HEED_TESTS_TRIAL_H
#include <math.h>
#include <stdio.h>

#include "ops/bf16.h"
#include "ops/cpu/cpu.h"
#include "toy.h"

/* ---- trials ---- */

enum flag {
    DROP = 1,    /* dropout on */
    VIEW = 2,    /* activations are columns of a wider matrix */
    RELU = 4,    /* an activation in linear */
    BIAS = 8,    /* a bias in linear, and its gradient */
    BETA = 16,   /* dx is added to; without: written over NaNs */
    NODX = 32,   /* linear_bwd without dx */
    KEEP = 64,   /* add_norm keeps xhat and rstd */
    ALIAS = 128, /* add_norm's y is x */
    GRAD = 256,  /* xent turns logits into gradients */
    CAUSAL = 512,
    CROSS = 1024, /* keys of their own; without: the queries' rows */
    COPY = 2048,  /* adam writes a bf16 copy */
    CLIP = 4096,
    SKIP = 8192,   /* adam sees a norm beyond the limit; with CLIP: not a number */
    TIES = 16384,  /* topk on few distinct values */
    WANTED = 32768 /* topk asked for given ids as well */
};

enum fate { STAYS, SLACK, RESULT };
enum role { IN, OUT, ADD }; /* read; written; read and written */
enum { SLOTS = 12, INTS = 2048, GUARD = 64 };

struct slot {
    const char *name; /* NULL: an absent matrix */
    enum role role;
    bool ints;      /* int32 in truth: equal or not */
    size_t at;      /* of dev in the picture */
    struct mat dev; /* p: in the picture */
    struct mat ref; /* f64 unless like_device */
};

struct trial {
    const struct op_case *op;
    int rows, cols, out; /* shape; what the last two are is the op's business */
    unsigned flags;
    enum type act; /* activations, and matrices of products */
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
    char what[160]; /* is being done, for messages */
};

struct op_case {
    const char *name;
    void (*plan)(struct trial *t);
    /* m: the slots in the order of the plan; ints: t->ints on the device */
    void (*call)(struct backend *be, const struct trial *t, const struct mat *m,
                 const int32_t *ints);
    const int (*shape)[3]; /* ends with rows < 0 */
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

/* Room for `bytes` bytes behind a guard; returns where. */
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

static void slot_add(struct trial *t, enum role role, const char *name, int rows, int cols,
                     enum type type, bool activation, double low, double high)
{
    assert_true(t->slots < SLOTS);
    struct slot *s = &t->slot[t->slots++];
    bool view = activation && t->flags & VIEW;
    int padded = activation ? (rows + ROW_PAD - 1) / ROW_PAD * ROW_PAD : rows;
    int left = view ? 3 : 0, ld = cols + (view ? 5 : 0);
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
static void act(struct trial *t, enum role role, const char *name, int rows, int cols,
                enum type type)
{
    slot_add(t, role, name, rows, cols, type, true, -1, 1);
}

/* A parameter, a gradient of one, or anything else with exactly its rows. */
static void par(struct trial *t, enum role role, const char *name, int rows, int cols,
                enum type type)
{
    slot_add(t, role, name, rows, cols, type, false, -1, 1);
}

/* The reference keeps the last slot in the device's type too: the op itself reads again what it has
 * stored there, rounded. */
static void like_device(struct trial *t)
{
    struct slot *s = &t->slot[t->slots - 1];
    struct mat wide = s->ref;
    s->ref.type = s->dev.type;
    for (int i = 0; i < wide.rows; i++)
        for (int c = 0; c < wide.cols; c++) number_set(s->ref, i, c, number(wide, i, c));
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

enum { ISAS = 3, COUNTS = 3 };
static const char *const isa_name[ISAS] = {"baseline", "avx2", "avx512"};
static const int thread_count[COUNTS] = {1, 2, 5};

struct backends {
    struct backend *ref;
    struct backend *cpu[ISAS][COUNTS]; /* NULL: not on this machine */
};

static void backends_open(struct backends *b)
{
    struct heed_error err = {0};
    memset(b, 0, sizeof *b);
    if (ref_open(&b->ref, &err)) abort();
    for (int i = 0; i < ISAS; i++)
        for (int k = 0; k < COUNTS; k++) {
            enum heed_status s = cpu_open_isa(&b->cpu[i][k], thread_count[k], isa_name[i], &err);
            if (!s || (s == HEED_EUNSUPPORTED && i)) continue; /* the baseline must be there */
            fprintf(stderr, "%s\n", err.text);
            abort();
        }
}

static void backends_close(struct backends *b)
{
    b->ref->op->close(b->ref);
    for (int i = 0; i < ISAS; i++)
        for (int k = 0; k < COUNTS; k++)
            if (b->cpu[i][k]) b->cpu[i][k]->op->close(b->cpu[i][k]);
}

static const char *describe(struct trial *t, const char *isa, int threads)
{
    snprintf(t->what, sizeof t->what, "%s [%d, %d, %d] %s, flags %#x, %s, %d threads", t->op->name,
             t->rows, t->cols, t->out, t->act == TYPE_BF16 ? "bf16" : "f32", t->flags, isa,
             threads);
    return t->what;
}

/* Runs the op on the picture's bytes and brings them back. */
static void run_on(struct backend *be, const struct trial *t, char *bytes)
{
    struct heed_error err = {0};
    struct mat m[SLOTS];
    void *block;
    assert_int_equal(be->op->alloc(be, &block, t->bytes, &err), HEED_OK);
    be->op->upload(be, block, t->picture, t->bytes);
    bind(t, m, block);
    t->op->call(be, t, m, (int32_t *)((char *)block + t->ints_at));
    be->op->download(be, bytes, block, t->bytes);
    if (be->op->sync(be, &err)) fail_msg("%s", err.text);
    be->op->free(be, block);
}

static void check_stays(const struct trial *t, const char *bytes, const char *what)
{
    for (size_t i = 0; i < t->bytes; i++) {
        if (t->fate[i] != STAYS || bytes[i] == t->picture[i]) continue;
        const char *near = "nothing";
        for (int k = 0; k < t->slots; k++)
            if (t->slot[k].name && t->slot[k].at <= i) near = t->slot[k].name;
        fail_msg("%s: wrote where it must not, in or after %s", what, near);
    }
}

/* How far an element may be off: by a part of itself and a part of the largest of its matrix or of
 * 1, the size of the inputs. f32 sums of some hundred terms stay within these; a bf16 result is
 * rounded at most twice, by 2^-9 each time. */
struct tolerance {
    double self, largest;
};

static struct tolerance tolerance_of(enum type type)
{
    if (type == TYPE_F64) return (struct tolerance){1e-9, 0};
    if (type == TYPE_BF16) return (struct tolerance){0x1p-7, 0x1p-8};
    return (struct tolerance){1e-5, 2e-6};
}

static void check_slot(const struct slot *s, struct mat found, const char *what)
{
    struct tolerance tol = tolerance_of(s->dev.type);
    double largest = 1;
    for (int i = 0; i < found.rows; i++)
        for (int c = 0; c < found.cols; c++) {
            double x = fabs(number(s->ref, i, c));
            if (isfinite(x) && x > largest) largest = x;
        }
    for (int i = 0; i < found.rows; i++)
        for (int c = 0; c < found.cols; c++) {
            double a = number(found, i, c), b = number(s->ref, i, c);
            if (s->ints) a = *(int32_t *)mat_at(found, i, c), b = *(int32_t *)mat_at(s->ref, i, c);
            bool near = fabs(a - b) <= tol.self * fabs(b) + tol.largest * largest;
            bool good = near || a == b || (isnan(a) && isnan(b));
            if (s->ints) good = !memcmp(mat_at(found, i, c), mat_at(s->ref, i, c), 4);
            if (!good) fail_msg("%s: %s[%d,%d] is %.9g, expected %.9g", what, s->name, i, c, a, b);
        }
}

static void check_results(const struct trial *t, char *bytes, const char *what)
{
    struct mat m[SLOTS];
    bind(t, m, bytes);
    check_stays(t, bytes, what);
    for (int i = 0; i < t->slots; i++)
        if (t->slot[i].name && t->slot[i].role != IN) check_slot(&t->slot[i], m[i], what);
}

static void check_same(const struct trial *t, const char *a, const char *b, const char *what)
{
    for (size_t i = 0; i < t->bytes; i++)
        if (t->fate[i] == RESULT && a[i] != b[i])
            fail_msg("%s: other bytes than with one thread", what);
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
    for (int i = 0; i < ISAS; i++) {
        if (!b->cpu[i][0]) continue;
        run_on(b->cpu[i][0], t, first);
        check_results(t, first, describe(t, isa_name[i], 1));
        for (int k = 1; k < COUNTS; k++) {
            const char *what = describe(t, isa_name[i], thread_count[k]);
            run_on(b->cpu[i][k], t, bytes);
            check_stays(t, bytes, what);
            check_same(t, bytes, first, what);
        }
    }
    free(bytes);
    free(first);
    trial_free(t);
}

#endif
