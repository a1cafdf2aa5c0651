/*
 * test_parameters.c - what a new model starts from, and what packed weights are read from a file.
 *
 * The spread of the first weights decides whether a post-norm model learns at all: with a Xavier
 * bound of their own for q, k and v, the rows of the encoder's output grow alike, attention over
 * them stays uniform, and no learning rate helps. A wrong spread breaks no other test.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "model/parameters.h"
#include "ops/panels.h"
#include "ops/quant.h"
#include "store/weights.h"

enum { D = 64, F = 96, TENSORS = 64 };

static const struct heed_config config = {.d_model = D,
                                          .d_ff = F,
                                          .heads = 4,
                                          .encoder_layers = 2,
                                          .decoder_layers = 2,
                                          .vocab_size = 500,
                                          .max_length = 16};

static struct parameters *make(uint64_t seed)
{
    struct heed_error err;
    struct backend *be;
    struct parameters *p;
    assert_int_equal(backend_open(&be, "ref", 1, &err), HEED_OK);
    assert_int_equal(parameters_open(&p, be, &config, precision_f32, &err), HEED_OK);
    assert_int_equal(parameters_init(p, seed, &err), HEED_OK);
    return p;
}

static void discard(struct parameters *p)
{
    struct backend *be = p->be;
    parameters_free(p);
    be->op->close(be);
}

static float *initial(uint64_t seed, struct parameter *list, int *n)
{
    struct heed_error err;
    struct parameters *p = make(seed);
    struct backend *be = p->be;
    *n = parameters_list(&p->config, list, TENSORS);
    assert_in_range(*n, 1, TENSORS);
    float *values = malloc(p->n * sizeof *values);
    be->op->download(be, values, p->master.p, p->n * sizeof *values);
    be->op->sync(be, &err);
    discard(p);
    return values;
}

static bool named(const struct parameter *p, const char *end)
{
    size_t n = strlen(p->name), m = strlen(end);
    return n >= m && strcmp(p->name + n - m, end) == 0;
}

/* The variance a tensor must have, and its mean. */
static void expected(const struct parameter *p, double *mean, double *variance)
{
    bool qkv = named(p, "q_proj.weight") || named(p, "k_proj.weight") || named(p, "v_proj.weight");
    *mean = named(p, "norm.weight");
    *variance = p->dims == 1               ? 0
                : named(p, "embed.weight") ? 1.0 / D
                : qkv                      ? 2.0 / (3 * D + D) /* one matrix [3D,D] */
                                           : 2.0 / (p->rows + p->cols);
}

static void test_spread(void **state)
{
    (void)state;
    struct parameter list[TENSORS];
    int tensors;
    float *values = initial(1, list, &tensors);
    for (int i = 0; i < tensors; i++) {
        const struct parameter *p = &list[i];
        int n = p->rows * p->cols;
        double want_mean, want, mean = 0, variance = 0, top = 0;
        expected(p, &want_mean, &want);
        for (int j = 0; j < n; j++) {
            double x = values[p->at + j] - want_mean;
            mean += x / n;
            variance += x * x / n;
            top = fmax(top, fabs(x));
        }
        bool uniform = p->dims == 2 && !named(p, "embed.weight");
        double bound = sqrt(3 * want);
        if (fabs(mean) > 5 * sqrt(want / n) || fabs(variance - want) > 0.1 * want ||
            (uniform && (top > bound * 1.0001 || top < bound * 0.99)))
            fail_msg("%s: mean %g, variance %g, largest %g; expected %g, %g, %g", p->name,
                     mean + want_mean, variance, top, want_mean, want, bound);
    }
    free(values);
}

static void test_seed(void **state)
{
    (void)state;
    struct parameter list[TENSORS];
    int tensors;
    float *one = initial(1, list, &tensors), *again = initial(1, list, &tensors),
          *other = initial(2, list, &tensors);
    const struct parameter *last = &list[tensors - 1];
    size_t bytes = (last->at + (size_t)last->rows * last->cols) * sizeof *one;
    assert_memory_equal(one, again, bytes);
    for (int i = 0; i < tensors; i++)
        if (list[i].dims == 2) assert_true(one[list[i].at] != other[list[i].at]);
    free(one), free(again), free(other);
}

/* oneDNN's ReLU turns a NaN into 0, so a bad weight could go unseen for long. */
static void test_load_refuses_nan(void **state)
{
    (void)state;
    struct heed_error err = {0};
    struct parameters *p = make(1);
    struct flat flat = {"", p->master};
    char path[] = "/tmp/heed-parameters-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (int i = 0; i < 3; i++) {
        ((float *)p->w.encoder[1].ff.w1.p)[7] = (float[]){1, NAN, -INFINITY}[i];
        assert_int_equal(weights_save(p, &flat, 1, path, &err), HEED_OK);
        assert_int_equal(weights_load(p, &flat, 1, path, &err), i ? HEED_EFORMAT : HEED_OK);
    }
    assert_non_null(strstr(err.text, "encoder.layers.1.ff.fc1.weight holds a value that is not"));
    unlink(path);
    discard(p);
}

/* ---- packed weights ---- */

/* More rows than are packed at a time, the last panel not full */
static const struct heed_config wide = {.d_model = D,
                                        .d_ff = F,
                                        .heads = 4,
                                        .encoder_layers = 1,
                                        .decoder_layers = 1,
                                        .vocab_size = 4100,
                                        .max_length = 16};

/* A model in f32, and files of it in f32 and int8. */
struct files {
    struct backend *cpu, *ref;
    struct parameters *p;
    char f32[40], i8[40];
};

static struct parameters *open_packed(struct backend *be, enum type type, const char *path)
{
    struct heed_error err = {0};
    struct parameters *p = NULL;
    if (weights_open_packed(&p, be, &wide, type, path, &err)) fail_msg("%s", err.text);
    return p;
}

static void files_open(struct files *f)
{
    struct heed_error err;
    struct parameters *packed;
    snprintf(f->f32, sizeof f->f32, "/tmp/heed-parameters-f32-XXXXXX");
    snprintf(f->i8, sizeof f->i8, "/tmp/heed-parameters-int8-XXXXXX");
    close(mkstemp(f->f32));
    close(mkstemp(f->i8));
    assert_int_equal(backend_open(&f->cpu, "cpu", 2, &err), HEED_OK);
    assert_int_equal(backend_open(&f->ref, "ref", 1, &err), HEED_OK);
    assert_int_equal(parameters_open(&f->p, f->cpu, &wide, precision_f32, &err), HEED_OK);
    assert_int_equal(parameters_init(f->p, 1, &err), HEED_OK);
    struct flat flat = {"", f->p->master};
    assert_int_equal(weights_save(f->p, &flat, 1, f->f32, &err), HEED_OK);
    packed = open_packed(f->cpu, TYPE_PACKED_I8, f->f32);
    assert_int_equal(weights_save_packed(packed, f->i8, &err), HEED_OK);
    parameters_free(packed);
}

static void files_close(struct files *f)
{
    unlink(f->f32);
    unlink(f->i8);
    parameters_free(f->p);
    f->cpu->op->close(f->cpu);
    f->ref->op->close(f->ref);
}

/* got is what its backend makes of the rows of want, which is f32, in int8. */
static void check_packed(struct backend *be, struct mat got, struct mat want)
{
    size_t bytes = be->op->pack_bytes(got.type, got.rows, got.cols);
    int8_t *q = malloc((size_t)want.rows * want.cols);
    float *scale = malloc(want.rows * sizeof *scale);
    void *packed = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_true(q && scale && packed);
    for (int r = 0; r < want.rows; r++)
        scale[r] = quant_row(q + (size_t)r * want.cols, mat_at(want, r, 0), want.cols);
    be->op->pack(be, mat_make(packed, got.rows, got.cols, got.type),
                 (struct stored){q, TYPE_I8, scale});
    assert_memory_equal(got.p, packed, bytes);
    free(q), free(scale), free(packed);
}

static void check_weights(const struct parameters *got, const struct weights *want)
{
    const struct weights *w = &got->w;
    check_packed(got->be, w->embed.table, want->embed.table);
    check_packed(got->be, mat_stack(w->encoder[0].self.q, 3),
                 mat_stack(want->encoder[0].self.q, 3));
    check_packed(got->be, w->decoder[0].cross.out, want->decoder[0].cross.out);
    check_packed(got->be, w->decoder[0].ff.w1, want->decoder[0].ff.w1);
    check_packed(got->be, w->decoder[0].ff.w2, want->decoder[0].ff.w2);
    assert_memory_equal(w->decoder[0].ff.norm.gain.p, want->decoder[0].ff.norm.gain.p,
                        D * sizeof(float));
}

/* Every type on every backend; int8 on a CPU is read where it lies in the file. */
static void test_int8_file(void **state)
{
    (void)state;
    struct files f;
    files_open(&f);
    for (int i = 0; i < 8; i++) {
        static const enum type types[] = {TYPE_F32, TYPE_PACKED_F32, TYPE_PACKED_BF16,
                                          TYPE_PACKED_I8};
        enum type type = types[i / 2], got = type == TYPE_F32 ? TYPE_PACKED_I8 : type;
        struct parameters *p = open_packed(i % 2 ? f.ref : f.cpu, type, f.i8);
        assert_int_equal(p->w.embed.table.type, got);
        assert_int_equal(p->file != NULL, p->be == f.cpu && got == TYPE_PACKED_I8);
        check_weights(p, &f.p->w);
        parameters_free(p);
    }
    files_close(&f);
}

/* The numbers of a row are found where panels.h says. */
static void test_panels(void **state)
{
    (void)state;
    enum { ROWS = 18, COLS = 6, STRIDE = 2 * PANEL_LINE + 2 * PANEL_LINE };
    _Alignas(64) char panels[2 * STRIDE] = {0};
    int8_t q[COLS], back[COLS];
    assert_int_equal(panels_bytes(ROWS, COLS), sizeof panels);
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLS; c++) q[c] = (int8_t)(7 * r - 50 * c);
        panel_put(panels + r / PACK_ROWS * STRIDE, r % PACK_ROWS, q, ldexpf(1, r), COLS);
    }
    for (int r = 0; r < ROWS; r++) {
        const char *panel = panels + r / PACK_ROWS * STRIDE;
        int lane = r % PACK_ROWS, sum = 0;
        assert_true(panel_get(back, panel, lane, COLS) == ldexpf(1, r));
        for (int c = 0; c < COLS; c++) {
            assert_int_equal(back[c], (int8_t)(7 * r - 50 * c));
            assert_int_equal(back[c], (int8_t)panel[c / 4 * PANEL_LINE + 4 * lane + c % 4]);
            sum += back[c];
        }
        assert_int_equal(((const int32_t *)(panel + 3 * PANEL_LINE))[lane], sum);
    }
}

/* A header one byte longer, as others may write it: the panels are aligned nevertheless. */
static void test_int8_unaligned(void **state)
{
    (void)state;
    struct heed_error err;
    struct files f;
    char *data;
    size_t len, head = 0;
    files_open(&f);
    assert_int_equal(file_read(f.i8, 1 << 30, &data, &len, &err), HEED_OK);
    memcpy(&head, data, 8);
    head++;
    struct file_part parts[] = {{&head, 8}, {data + 8, head - 1}, {" ", 1}, {data + 7 + head, 0}};
    parts[3].len = len - 7 - head;
    assert_int_equal(file_write(f.i8, parts, 4, &err), HEED_OK);
    free(data);
    struct parameters *p = open_packed(f.cpu, TYPE_PACKED_I8, f.i8);
    assert_int_equal((uintptr_t)p->w.embed.table.p % 64, 0);
    check_weights(p, &f.p->w);
    parameters_free(p);
    files_close(&f);
}

static void refuses(struct files *f, const struct heed_config *c, const char *sentence)
{
    struct heed_error err = {0};
    struct parameters *p = NULL;
    assert_int_equal(weights_open_packed(&p, f->cpu, c, TYPE_F32, f->i8, &err), HEED_EFORMAT);
    assert_null(p);
    if (!strstr(err.text, f->i8) || !strstr(err.text, sentence))
        fail_msg("'%s', expected '%s'", err.text, sentence);
}

static void test_int8_refused(void **state)
{
    (void)state;
    struct heed_error err;
    struct files f;
    struct heed_config other = wide;
    files_open(&f);
    other.vocab_size -= PACK_ROWS;
    refuses(&f, &other, "tensor panels has 378496 bytes, expected 377344 of I8 by config.json");
    struct parameters *p = open_packed(f.cpu, TYPE_PACKED_I8, f.f32);
    void *panel = p->w.decoder[0].ff.w2.p;
    int32_t *sum = &panel_sums(panel, F)[15];
    for (int i = 0; i < 2; i++) {
        panel_scales(panel, F)[3] = i ? 1 : NAN;
        *sum = i ? -128 * F - 1 : 0;
        assert_int_equal(weights_save_packed(p, f.i8, &err), HEED_OK);
        refuses(&f, &wide, "panels holds a scale of decoder.layers.0.ff.fc2.weight that is not a");
    }
    parameters_free(p);
    struct tensor wrong = {"panels", TYPE_F32, 1, {0}, "", 0};
    assert_int_equal(safetensors_write(f.i8, &wrong, 1, &err), HEED_OK);
    refuses(&f, &wide, "of another type");
    files_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spread),           cmocka_unit_test(test_seed),
        cmocka_unit_test(test_load_refuses_nan), cmocka_unit_test(test_panels),
        cmocka_unit_test(test_int8_file),        cmocka_unit_test(test_int8_unaligned),
        cmocka_unit_test(test_int8_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
