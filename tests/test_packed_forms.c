/*
 * test_packed_forms.c - every form of the model in variants.h with packed weights gives the logits
 * of its f32 weights, as near as the packed type allows. Among the forms are some whose queries,
 * keys and values are no whole panels and are multiplied one by one. Or on a device: see device.h.
 */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "device.h"
#include "golden.h"
#include "store/weights.h"
#include "variants.h"

static const int src_len[] = {4, 1, 7, 3}, tgt_len[] = {3, 5, 1, 6};
enum { N = 4, ROWS = 15, V = 50 };

/* Each type with the largest difference of a logit, relative to the largest logit. */
static const struct {
    enum type type;
    const char *name;
    double tolerance;
} packed_types[] = {
    {TYPE_PACKED_F32, "f32", 1e-5},
    {TYPE_PACKED_BF16, "bf16", 0.02},
    {TYPE_PACKED_I8, "int8", 0.05},
};
enum { TYPES = sizeof packed_types / sizeof *packed_types };

/* A model whose biases are not 0 and whose gains are not 1, so that each is seen to be used; path
 * becomes a file of its weights and logits what it gives. */
static void plain_model(const struct heed_config *c, const struct toy_batch *b, const char *path,
                        float *logits)
{
    struct heed_error err = {0};
    struct toy t;
    toy_open(&t, "cpu", c, precision_f32, false);
    float *p = t.p->master.p;
    uint64_t seed = 5;
    for (size_t i = 0; i < t.p->n; i++) p[i] += (float)(0.2 * random_unit(&seed) - 0.1);
    assert_int_equal(run_logits(t.run, &b->packed, logits, &err), HEED_OK);
    struct flat flat = {.prefix = "", .m = t.p->master};
    assert_int_equal(weights_save(t.p, &flat, 1, path, &err), HEED_OK);
    toy_close(&t);
}

static void packed_model(struct toy *t, const struct heed_config *c, enum type type,
                         const char *path)
{
    struct heed_error err = {0};
    struct run_options o = {.rows_src = TOY_ROWS,
                            .rows_tgt = TOY_ROWS,
                            .sentences = TOY_SENTENCES,
                            .candidates = 4,
                            .cached = TOY_ROWS * TOY_ROWS};
    assert_int_equal(backend_open(&t->be, device_or_cpu(), 2, &err), HEED_OK);
    if (weights_open_packed(&t->p, t->be, c, type, path, &err)) fail_msg("%s", err.text);
    assert_int_equal(run_open(&t->run, t->be, t->p, &o, &err), HEED_OK);
}

static void test_form(void **state)
{
    const struct variant *v = *state;
    struct heed_config c = variant_config(v, &golden_variant_config);
    struct heed_error err = {0};
    struct toy_batch b;
    char path[] = "/tmp/heed-forms-XXXXXX";
    float want[ROWS * V], found[ROWS * V];
    close(mkstemp(path));
    toy_batch(&b, N, src_len, tgt_len, V, 3);
    plain_model(&c, &b, path, want);
    for (int k = 0; k < TYPES; k++) {
        struct toy t;
        double largest = 0, off = 0;
        packed_model(&t, &c, packed_types[k].type, path);
        assert_int_equal(run_logits(t.run, &b.packed, found, &err), HEED_OK);
        for (int i = 0; i < ROWS * V; i++) {
            double d = fabs((double)found[i] - (double)want[i]);
            if (!(d <= off)) off = d;
            largest = fmax(largest, fabs((double)want[i]));
        }
        if (!(off <= packed_types[k].tolerance * largest))
            fail_msg("%s in %s: a logit is off by %g of the largest, expected at most %g", v->name,
                     packed_types[k].name, off / largest, packed_types[k].tolerance);
        toy_close(&t);
    }
    unlink(path);
}

int main(void)
{
    device_or_skip();
    return variants_run("packed forms", test_form);
}
