/*
 * test_device.c - what test_ops.c does not test: transfers to a device and back, packed weights,
 * products of many rows, gradients of frequent ids, and errors. On the CPU or on another device:
 * see device.h.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "device.h"
#include "ops/bf16.h"
#include "ops/quant.h"

static struct backend *be, *ref;

static void *must_alloc(struct backend *on, size_t bytes)
{
    struct heed_error err = {0};
    void *p = NULL;
    if (on->op->alloc(on, &p, bytes, USED_WHOLE, &err)) fail_msg("%s", err.text);
    return p;
}

static void must_sync(struct backend *on)
{
    struct heed_error err = {0};
    if (on->op->sync(on, &err)) fail_msg("%s", err.text);
}

static void *host(size_t bytes)
{
    void *p = calloc(1, bytes + 1);
    assert_non_null(p);
    return p;
}

static float *random_floats(size_t n, uint64_t seed)
{
    float *p = host(n * sizeof *p);
    for (size_t i = 0; i < n; i++) p[i] = (float)(random_unit(&seed) * 2 - 1);
    return p;
}

/* Allocates memory on a backend and uploads `bytes` bytes of the host to it. */
static void *put(struct backend *on, const void *from, size_t bytes)
{
    void *p = must_alloc(on, bytes);
    on->op->upload(on, p, from, bytes);
    return p;
}

/* ---- memory ---- */

/* One large upload, then many small ones; the source changes as soon as upload returns. */
static void test_there_and_back(void **state)
{
    (void)state;
    enum { BYTES = 50 * 1000 * 1000 + 7, PIECE = 1003, PIECES = 20000 };
    unsigned char *want = host(BYTES), *found = host(BYTES), piece[PIECE];
    uint64_t seed = 1;
    for (size_t i = 0; i < BYTES; i++) want[i] = (unsigned char)random_next(&seed);
    unsigned char *p = put(be, want, BYTES);
    be->op->download(be, found, p, BYTES);
    must_sync(be);
    assert_memory_equal(found, want, BYTES);
    be->op->zero(be, p, BYTES);
    for (size_t i = 0; i < PIECES; i++) {
        memcpy(piece, want + i * PIECE, PIECE);
        be->op->upload(be, p + i * PIECE, piece, PIECE);
        memset(piece, 0xee, PIECE);
    }
    memset(found, 1, BYTES);
    for (size_t i = 0; i < PIECES; i += 7)
        be->op->download(be, found + i * PIECE, p + i * PIECE, PIECE);
    must_sync(be);
    for (size_t i = 0; i < PIECES; i++)
        for (size_t j = 0; j < PIECE; j += 101) {
            unsigned char expected = i % 7 ? 1 : want[i * PIECE + j];
            assert_int_equal(found[i * PIECE + j], expected);
        }
    be->op->download(be, found, p, BYTES);
    must_sync(be);
    assert_memory_equal(found, want, (size_t)PIECE * PIECES);
    for (size_t i = (size_t)PIECE * PIECES; i < BYTES; i++) assert_int_equal(found[i], 0);
    be->op->free(be, p);
    free(want);
    free(found);
}

/* Two backends of one device see the same memory. */
static void test_two_backends(void **state)
{
    (void)state;
    struct heed_error err = {0};
    struct backend *other;
    int found = 0;
    if (backend_open(&other, device_or_cpu(), 1, &err)) fail_msg("%s", err.text);
    void *p = put(be, &(int){4711}, sizeof(int));
    must_sync(be);
    other->op->download(other, &found, p, sizeof found);
    must_sync(other);
    assert_int_equal(found, 4711);
    other->op->close(other);
    be->op->free(be, p);
}

/* ---- what is wrong is said ---- */

static void test_too_much_memory(void **state)
{
    (void)state;
    struct heed_error err = {0};
    void *p = NULL;
    if (!device_named()) skip(); /* sanitizers stop there */
    assert_int_equal(be->op->alloc(be, &p, (size_t)1 << 46, USED_WHOLE, &err), HEED_ENOMEM);
    assert_null(p);
    printf("says: %s\n", err.text);
    assert_non_null(strstr(err.text, "memory"));
    be->op->free(be, must_alloc(be, 100));
    must_sync(be);
}

static void test_no_such_device(void **state)
{
    (void)state;
    static const char *const names[] = {"cuda:99", "cuda:", "cuda:x", "cuda:-1", "gpu"};
    for (int i = 0; i < 5; i++) {
        struct heed_error err = {0};
        struct backend *none = NULL;
        assert_true(backend_open(&none, names[i], 0, &err) != HEED_OK);
        printf("says: %s\n", err.text);
        assert_true(!none && strstr(err.text, names[i]));
    }
}

/* f64 is the reference's alone. */
static void test_wrong_type(void **state)
{
    (void)state;
    struct heed_error err = {0};
    if (!device_named()) skip();
    void *p = must_alloc(be, 4096);
    struct mat m = mat_make(p, 4, 8, TYPE_F64), none = {0};
    be->op->linear(be, m, m, m, none, (struct activation){0});
    assert_int_equal(be->op->sync(be, &err), HEED_EUNSUPPORTED);
    printf("says: %s\n", err.text);
    must_sync(be);
    be->op->free(be, p);
}

/* ---- packed weights ---- */

static const char *const packed_name[] = {"f32", "bf16", "int8"};

/* w in the type that a file may have; for I8 the scales are in *scale. */
static struct stored store(enum type type, const float *w, int rows, int cols, float **scale)
{
    size_t n = (size_t)rows * cols;
    *scale = host(rows * sizeof **scale);
    if (type == TYPE_F32) return (struct stored){w, type, NULL};
    uint16_t *half = host(n * 2);
    for (size_t i = 0; i < n && type == TYPE_BF16; i++) half[i] = bf16_from_float(w[i]);
    for (int r = 0; r < rows && type == TYPE_I8; r++)
        (*scale)[r] = quant_row((int8_t *)half + (size_t)r * cols, w + (size_t)r * cols, cols);
    return (struct stored){half, type, type == TYPE_I8 ? *scale : NULL};
}

/* Packs two matrices one after the other, a part at a time, as when a file is read. */
static struct mat pack_two(struct backend *on, enum type type, struct stored from, int rows,
                           int cols)
{
    char *p = must_alloc(on, on->op->pack_bytes(type, 2 * rows, cols));
    for (int i = 0; i < 2; i++) {
        struct stored part = from;
        part.v = (const char *)from.v + (size_t)i * rows * cols * type_size(from.type);
        if (from.scale) part.scale = from.scale + (size_t)i * rows;
        on->op->pack(on, mat_make(p + on->op->pack_bytes(type, i * rows, cols), rows, cols, type),
                     part);
    }
    return mat_make(p, 2 * rows, cols, type);
}

/* A product with these weights, a bias and an activation, and embeddings from them. y [n, 2*rows],
 * e [n, cols], on the host. */
static void packed_use(struct backend *on, enum type type, struct stored from,
                       enum activation_kind kind, int n, int rows, int cols, const float *x,
                       const float *b, const int32_t *id, float *y, float *e)
{
    int padded = (n + ROW_PAD - 1) / ROW_PAD * ROW_PAD;
    struct mat w = pack_two(on, type, from, rows, cols);
    struct mat to = mat_make(must_alloc(on, (size_t)padded * 2 * rows * 4), n, 2 * rows, TYPE_F32);
    struct mat from_x = mat_make(must_alloc(on, (size_t)padded * cols * 4), n, cols, TYPE_F32);
    struct mat bias = mat_make(put(on, b, 2 * rows * sizeof *b), 1, 2 * rows, TYPE_F32);
    struct mat place = mat_make(put(on, x, (size_t)n * cols * 4), n, cols, TYPE_F32);
    int32_t *ids = put(on, id, n * sizeof *id);
    on->op->upload(on, from_x.p, x, (size_t)n * cols * sizeof *x);
    on->op->linear(on, to, from_x, w, bias, (struct activation){.kind = kind});
    on->op->download(on, y, to.p, (size_t)n * 2 * rows * sizeof *y);
    on->op->embed(on, from_x, ids, ids, w, place, (struct drop){0});
    on->op->download(on, e, from_x.p, (size_t)n * cols * sizeof *e);
    must_sync(on);
    void *blocks[] = {w.p, to.p, from_x.p, bias.p, place.p, ids};
    for (int i = 0; i < 6; i++) on->op->free(on, blocks[i]);
}

/* The largest difference over the largest value. */
static double farthest(const float *found, const float *want, size_t n)
{
    double off = 0, most = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)found[i] - (double)want[i]);
        if (!(d <= off)) off = d;
        most = fmax(most, fabs((double)want[i]));
    }
    return off / fmax(most, 1e-30);
}

static void packed_check(enum type stored_as, enum type type, enum activation_kind kind, int n,
                         int rows, int cols)
{
    float *w = random_floats((size_t)2 * rows * cols, 1), *x = random_floats((size_t)n * cols, 2);
    float *b = random_floats(2 * (size_t)rows, 3), *scale;
    size_t ny = (size_t)n * 2 * rows, ne = (size_t)n * cols;
    float *y[2] = {host(ny * 4), host(ny * 4)}, *e[2] = {host(ne * 4), host(ne * 4)};
    int32_t *id = host(n * sizeof *id);
    uint64_t seed = 4;
    int most = n < 2 * rows ? n : 2 * rows;
    for (int i = 0; i < n; i++) id[i] = (int32_t)random_below(&seed, most);
    struct stored from = store(stored_as, w, 2 * rows, cols, &scale);
    packed_use(ref, type, from, kind, n, rows, cols, x, b, id, y[0], e[0]);
    packed_use(be, type, from, kind, n, rows, cols, x, b, id, y[1], e[1]);
    double off_y = farthest(y[1], y[0], ny), off_e = farthest(e[1], e[0], ne);
    printf("packed %s from %s, activation %d, [%d, %d, %d]: linear off by %.2g, embed by %.2g\n",
           packed_name[type - TYPE_PACKED_F32],
           stored_as == TYPE_F32    ? "f32"
           : stored_as == TYPE_BF16 ? "bf16"
                                    : "int8",
           kind, n, cols, 2 * rows, off_y, off_e);
    assert_true(off_y <= 1e-5 && off_e <= 1e-6);
    if (stored_as != TYPE_F32) free((void *)from.v);
    free(scale), free(w), free(x), free(b), free(id);
    for (int i = 0; i < 2; i++) free(y[i]), free(e[i]);
}

static void test_packed(void **state)
{
    (void)state;
    static const enum type stored_as[] = {TYPE_F32, TYPE_BF16, TYPE_I8};
    static const int shape[][3] = {{1, 16, 16},   {5, 32, 48},     {37, 64, 128},
                                   {3, 1024, 64}, {15, 1200, 128}, {130, 256, 512}};
    for (enum type type = TYPE_PACKED_F32; type <= TYPE_PACKED_I8; type++)
        for (int k = 0; k < 3; k++)
            for (int s = 0; s < 6; s++)
                for (int kind = 0; kind < ACT_KINDS; kind++)
                    packed_check(stored_as[k], type, (enum activation_kind)kind, shape[s][0],
                                 shape[s][1], shape[s][2]);
}

/* ---- products of many rows ---- */

/* Allocated with the slack rows that a product may write. */
static struct mat random_bf16(int rows, int cols, uint64_t seed)
{
    size_t n = ((size_t)rows + ROW_PAD) * (size_t)cols;
    float *x = random_floats(n, seed);
    uint16_t *narrow = host(n * sizeof *narrow);
    for (size_t i = 0; i < n; i++) narrow[i] = bf16_from_float(x[i]);
    struct mat m = mat_make(put(be, narrow, n * sizeof *narrow), rows, cols, TYPE_BF16);
    must_sync(be);
    free(x), free(narrow);
    return m;
}

static void assert_near(struct mat found, struct mat expected)
{
    size_t n = (size_t)found.rows * (size_t)found.cols;
    uint16_t *a = host(n * sizeof *a), *b = host(n * sizeof *b);
    be->op->download(be, a, found.p, n * sizeof *a);
    be->op->download(be, b, expected.p, n * sizeof *b);
    must_sync(be);
    for (size_t i = 0; i < n; i++) {
        float x = bf16_to_float(a[i]), y = bf16_to_float(b[i]);
        if (!(fabsf(x - y) <= 0.02f + 0.01f * fabsf(y)))
            fail_msg("row %zu, column %zu: found %g, expected %g", i / (size_t)found.cols,
                     i % (size_t)found.cols, (double)x, (double)y);
    }
    free(a), free(b);
}

/* Kernels for many rows compute what those for few rows do: x wT, and x turned. */
static void test_many_rows(void **state)
{
    (void)state;
    enum { ROWS = 6203, COLS = 1000, TERMS = 200, FEW = 5 * ROW_PAD };
    struct mat x = random_bf16(ROWS, TERMS, 1), w = random_bf16(COLS, TERMS, 2);
    struct mat turned = random_bf16(TERMS, COLS, 3), none = {0}, y[2];
    struct mat seen = random_bf16(ROWS, COLS, 4);
    struct mat dw = mat_make(must_alloc(be, sizeof(float) * TERMS * COLS), TERMS, COLS, TYPE_F32);
    for (int back = 0; back < 2; back++) {
        for (int i = 0; i < 2; i++) y[i] = random_bf16(ROWS, COLS, 5 + (uint64_t)i);
        for (int few = 0; few < 2; few++)
            for (int row = 0, n; row < ROWS; row += n) {
                n = few && FEW < ROWS - row ? FEW : ROWS - row;
                struct mat from = mat_rows(x, row, n), to = mat_rows(y[few], row, n);
                if (back)
                    be->op->linear_bwd(be, to, 0, none, dw, from, mat_rows(seen, row, n), turned,
                                       (struct activation){0});
                else
                    be->op->linear(be, to, from, w, none, (struct activation){0});
            }
        assert_near(y[0], y[1]);
        for (int i = 0; i < 2; i++) be->op->free(be, y[i].p);
    }
    be->op->free(be, x.p), be->op->free(be, w.p), be->op->free(be, turned.p);
    be->op->free(be, seen.p), be->op->free(be, dw.p);
}

/* ---- frequent ids ---- */

/* Every second row has the same id, of the others some are frequent. */
static void test_frequent_ids(void **state)
{
    (void)state;
    enum { ROWS = 5000, IDS = 1000, COLS = 264 };
    static int32_t id[ROWS];
    uint64_t seed = 9;
    struct drop d = {0.1f, 3, 4};
    for (int i = 0; i < ROWS; i++) {
        double u = random_unit(&seed);
        id[i] = i % 2 ? 77 : (int32_t)(u * u * u * IDS);
    }
    size_t n = (size_t)IDS * COLS;
    float *dy = random_floats((size_t)ROWS * COLS, 5), *start = random_floats(n, 6);
    float *found[3] = {host(n * 4), host(n * 4), host(n * 4)};
    for (int i = 0; i < 3; i++) {
        struct backend *on = i ? be : ref;
        struct mat de = mat_make(put(on, start, n * 4), IDS, COLS, TYPE_F32);
        struct mat from = mat_make(put(on, dy, (size_t)ROWS * COLS * 4), ROWS, COLS, TYPE_F32);
        int32_t *ids = put(on, id, sizeof id);
        on->op->embed_bwd(on, de, ids, from, sqrt(COLS), d);
        on->op->download(on, found[i], de.p, n * 4);
        must_sync(on);
        on->op->free(on, de.p), on->op->free(on, from.p), on->op->free(on, ids);
    }
    double off = farthest(found[1], found[0], n);
    printf("%d rows, half of them with one id: off by %.2g\n", ROWS, off);
    assert_true(off <= 1e-5);
    assert_memory_equal(found[1], found[2], n * 4);
    for (int i = 0; i < 3; i++) free(found[i]);
    free(dy), free(start);
}

int main(void)
{
    struct heed_error err = {0};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back),  cmocka_unit_test(test_two_backends),
        cmocka_unit_test(test_too_much_memory), cmocka_unit_test(test_no_such_device),
        cmocka_unit_test(test_wrong_type),      cmocka_unit_test(test_packed),
        cmocka_unit_test(test_many_rows),       cmocka_unit_test(test_frequent_ids),
    };
    device_or_skip();
    if (ref_open(&ref, &err) || backend_open(&be, device_or_cpu(), 2, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    be->op->close(be);
    ref->op->close(ref);
    return failed;
}
