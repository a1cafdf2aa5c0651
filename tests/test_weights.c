/*
 * test_weights.c - weights in files: what is read is what was written, for every type on every
 * backend, and a file that does not fit is refused with a sentence.
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
#include "ops/panels.h"
#include "ops/quant.h"
#include "store/weights.h"

enum { D = 64, F = 96 };

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
    snprintf(f->f32, sizeof f->f32, "/tmp/heed-weights-f32-XXXXXX");
    snprintf(f->i8, sizeof f->i8, "/tmp/heed-weights-int8-XXXXXX");
    close(mkstemp(f->f32));
    close(mkstemp(f->i8));
    assert_int_equal(backend_open(&f->cpu, "cpu", 2, &err), HEED_OK);
    assert_int_equal(backend_open(&f->ref, "ref", 1, &err), HEED_OK);
    assert_int_equal(parameters_open(&f->p, f->cpu, &wide, precision_f32, &err), HEED_OK);
    assert_int_equal(parameters_init(f->p, 1, &err), HEED_OK);
    struct flat flat = {.prefix = "", .m = f->p->master};
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
    check_packed(got->be, w->embed.target.table, want->embed.target.table);
    /* Queries, keys and values are multiplied as one matrix. */
    struct mat qkv = w->encoder[0].self.q, want_qkv = want->encoder[0].self.q;
    qkv.rows = want_qkv.rows = 3 * D;
    check_packed(got->be, qkv, want_qkv);
    check_packed(got->be, w->decoder[0].cross.out, want->decoder[0].cross.out);
    check_packed(got->be, w->decoder[0].ff.w1, want->decoder[0].ff.w1);
    check_packed(got->be, w->decoder[0].ff.w2, want->decoder[0].ff.w2);
    assert_memory_equal(w->decoder[0].ff.norm.gain.p, want->decoder[0].ff.norm.gain.p,
                        D * sizeof(float));
}

/* oneDNN's ReLU turns a NaN into 0, so a bad weight could go unseen for long. */
static void test_load_refuses_nan(void **state)
{
    (void)state;
    struct heed_error err = {0};
    struct files f;
    files_open(&f);
    struct flat flat = {.prefix = "", .m = f.p->master};
    for (int i = 0; i < 3; i++) {
        ((float *)f.p->w.encoder[0].ff.w1.p)[7] = (float[]){1, NAN, -INFINITY}[i];
        assert_int_equal(weights_save(f.p, &flat, 1, f.f32, &err), HEED_OK);
        assert_int_equal(weights_load(f.p, &flat, 1, f.f32, &err), i ? HEED_EFORMAT : HEED_OK);
    }
    assert_non_null(strstr(err.text, "encoder.layers.0.ff.fc1.weight holds a value that is not"));
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

/* ---- files in int8 that were written otherwise ---- */

enum { TENSORS = 64 };

/* The tensors of a file, to be changed and written again. */
struct tensors {
    struct tensor t[TENSORS];
    int n;
};

static struct tensor *named(struct tensors *all, const char *name)
{
    for (int i = 0; i < all->n; i++)
        if (strcmp(all->t[i].name, name) == 0) return &all->t[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static void rewrite(struct files *f, void (*change)(struct tensors *))
{
    struct heed_error err = {0};
    struct safetensors *file;
    struct tensors all = {.n = 0};
    if (safetensors_open(&file, f->i8, &err)) fail_msg("%s", err.text);
    assert_in_range(safetensors_count(file), 1, TENSORS - 1);
    for (; all.n < safetensors_count(file); all.n++) all.t[all.n] = *safetensors_at(file, all.n);
    change(&all);
    if (safetensors_write(f->i8, all.t, all.n, &err)) fail_msg("%s", err.text);
    safetensors_free(file);
}

/* One tensor has all matrices, in the order of the walk, as older versions wrote it. */
static void to_older_form(struct tensors *all)
{
    int matrices = 0;
    struct tensor panels = {.name = "panels", .type = TYPE_I8, .dims = 1, .data = all->t[0].data};
    for (; all->t[matrices].type == TYPE_I8; matrices++) panels.bytes += all->t[matrices].bytes;
    panels.shape[0] = (int64_t)panels.bytes;
    all->n -= matrices - 1;
    memmove(all->t + 1, all->t + matrices, (all->n - 1) * sizeof *all->t);
    all->t[0] = panels;
}

/* Every type on every backend; int8 on a CPU is read where it lies in the file. */
static void loads_everywhere(struct files *f, bool in_place)
{
    for (int i = 0; i < 8; i++) {
        static const enum type types[] = {TYPE_F32, TYPE_PACKED_F32, TYPE_PACKED_BF16,
                                          TYPE_PACKED_I8};
        enum type type = types[i / 2], got = type == TYPE_F32 ? TYPE_PACKED_I8 : type;
        struct parameters *p = open_packed(i % 2 ? f->ref : f->cpu, type, f->i8);
        assert_int_equal(p->w.embed.target.table.type, got);
        assert_int_equal(p->file != NULL, in_place && p->be == f->cpu && got == TYPE_PACKED_I8);
        check_weights(p, &f->p->w);
        parameters_free(p);
    }
}

static void test_int8_file(void **state)
{
    (void)state;
    struct files f;
    files_open(&f);
    loads_everywhere(&f, true);
    rewrite(&f, to_older_form);
    loads_everywhere(&f, true);
    files_close(&f);
}

static void reverse(struct tensors *all)
{
    for (int i = 0, k = all->n - 1; i < k; i++, k--) {
        struct tensor t = all->t[i];
        all->t[i] = all->t[k];
        all->t[k] = t;
    }
}

/* Keys before queries: the stack of queries, keys and values would be another matrix. */
static void swap_queries_keys(struct tensors *all)
{
    struct tensor *q = named(all, "encoder.layers.0.self_attn.q_proj.weight"), first = *q;
    q[0] = q[1];
    q[1] = first;
}

/* Matrices in another order are not used in place, but give the same weights. */
static void test_int8_order(void **state)
{
    (void)state;
    static void (*const order[])(struct tensors *) = {reverse, swap_queries_keys};
    for (int i = 0; i < 2; i++) {
        struct files f;
        files_open(&f);
        rewrite(&f, order[i]);
        loads_everywhere(&f, false);
        files_close(&f);
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
    assert_int_equal((uintptr_t)p->w.embed.target.table.p % 64, 0);
    check_weights(p, &f.p->w);
    parameters_free(p);
    files_close(&f);
}

/* ---- files in int8 that are refused ---- */

static void refuses(struct files *f, const struct heed_config *c, const char *sentence)
{
    struct heed_error err = {0};
    struct parameters *p = NULL;
    assert_int_equal(weights_open_packed(&p, f->cpu, c, TYPE_F32, f->i8, &err), HEED_EFORMAT);
    assert_null(p);
    if (!strstr(err.text, f->i8) || !strstr(err.text, sentence))
        fail_msg("'%s', expected '%s'", err.text, sentence);
}

static void drop_matrix(struct tensors *all)
{
    struct tensor *t = named(all, "decoder.layers.0.cross_attn.out_proj.weight");
    int after = (int)(all->t + all->n - t) - 1;
    memmove(t, t + 1, after * sizeof *t);
    all->n--;
}

static void add_tensor(struct tensors *all)
{
    all->t[all->n] = all->t[all->n - 1];
    all->t[all->n++].name = "another";
}

static void flatten(struct tensors *all)
{
    struct tensor *t = named(all, "encoder.layers.0.ff.fc2.weight");
    t->dims = 1;
    t->shape[0] = (int64_t)t->bytes;
}

static void cut_panel(struct tensors *all)
{
    struct tensor *t = named(all, "encoder.layers.0.ff.fc2.weight");
    t->bytes -= t->bytes / t->shape[0];
    t->shape[0]--;
}

static void widen(struct tensors *all)
{
    struct tensor *t = named(all, "encoder.layers.0.ff.fc2.weight");
    t->shape[0] /= 2;
    t->shape[1] *= 2;
}

static void matrix_of_doubles(struct tensors *all)
{
    struct tensor *t = named(all, "embed.weight");
    t->type = TYPE_F64;
    t->shape[1] /= 8;
}

static void bias_of_bytes(struct tensors *all)
{
    struct tensor *t = named(all, "encoder.layers.0.ff.fc2.bias");
    t->type = TYPE_I8;
    t->shape[0] *= 4;
}

static void older_and_short(struct tensors *all)
{
    to_older_form(all);
    all->t[0].bytes -= 64;
    all->t[0].shape[0] -= 64;
}

static void older_and_long(struct tensors *all)
{
    struct tensor extra = all->t[0];
    to_older_form(all);
    all->t[all->n++] = extra;
}

static void older_of_floats(struct tensors *all)
{
    to_older_form(all);
    all->t[0].type = TYPE_F32;
    all->t[0].shape[0] /= 4;
}

static void test_int8_refused(void **state)
{
    (void)state;
    static const struct {
        void (*change)(struct tensors *);
        const char *sentence;
    } bad[] = {
        {drop_matrix, "tensor decoder.layers.0.cross_attn.out_proj.weight is missing"},
        {add_tensor, "holds 32 tensors, expected 31 by config.json"},
        {flatten, "fc2.weight has shape [6656], expected [4, 1664] by config.json"},
        {cut_panel, "fc2.weight has shape [3, 1664], expected [4, 1664] by config.json"},
        {widen, "fc2.weight has shape [2, 3328], expected [4, 1664] by config.json"},
        {matrix_of_doubles, "tensor embed.weight is F64, expected F32"},
        {bias_of_bytes, "tensor encoder.layers.0.ff.fc2.bias is I8, expected F32"},
        {older_and_short, "tensor panels is 378432 bytes of I8, expected 378496 of I8"},
        {older_and_long, "holds 16 tensors, expected 15 by config.json"},
        {older_of_floats, "tensor panels is 378496 bytes of F32, expected 378496 of I8"},
    };
    struct heed_config other = wide;
    struct files f;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        files_open(&f);
        rewrite(&f, bad[i].change);
        refuses(&f, &wide, bad[i].sentence);
        files_close(&f);
    }
    files_open(&f);
    other.vocab_size -= PACK_ROWS;
    refuses(&f, &other, "tensor embed.weight has shape [257, 1152], expected [256, 1152] by");
    rewrite(&f, to_older_form);
    refuses(&f, &other, "tensor panels is 378496 bytes of I8, expected 377344 of I8 by");
    files_close(&f);
}

static void test_int8_unsound(void **state)
{
    (void)state;
    struct heed_error err;
    struct files f;
    files_open(&f);
    struct parameters *p = open_packed(f.cpu, TYPE_PACKED_I8, f.f32);
    char *panel = (char *)p->w.decoder[0].ff.w2.p + panel_bytes(F);
    panel_sums(panel, F)[15] = -128 * F - 1;
    assert_int_equal(weights_save_packed(p, f.i8, &err), HEED_OK);
    refuses(&f, &wide, "row 31 of tensor decoder.layers.0.ff.fc2.weight has scale 0.0");
    refuses(&f, &wide, " and sum -12289, expected a finite scale and a sum from -12288 to 12288");
    panel_scales(panel, F)[3] = NAN;
    assert_int_equal(weights_save_packed(p, f.i8, &err), HEED_OK);
    refuses(&f, &wide, "row 19 of tensor decoder.layers.0.ff.fc2.weight has scale nan and sum ");
    rewrite(&f, to_older_form);
    refuses(&f, &wide, "row 19 of tensor decoder.layers.0.ff.fc2.weight has scale nan and sum ");
    parameters_free(p);
    files_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load_refuses_nan), cmocka_unit_test(test_panels),
        cmocka_unit_test(test_int8_file),        cmocka_unit_test(test_int8_order),
        cmocka_unit_test(test_int8_unaligned),   cmocka_unit_test(test_int8_refused),
        cmocka_unit_test(test_int8_unsound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
