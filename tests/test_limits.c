/*
 * test_limits.c - mistakes in heed_train_options: numbers out of range and NULL are errors with a
 * sentence, and no sum or product of options overflows (`make asan` runs this under UBSan).
 */
#include <float.h>
#include <limits.h>
#include <math.h>

#include "task.h"

static enum heed_status open_only(const struct heed_train_options *o, struct heed_error *err)
{
    struct heed_engine *e = heed_engine_open(device_or_cpu(), 1, err);
    assert_non_null(e);
    struct heed_trainer *t = heed_trainer_open(e, o, err);
    enum heed_status s = t ? HEED_OK : err->status;
    heed_trainer_free(t);
    heed_engine_free(e);
    return s;
}

static void refuses(const struct heed_train_options *o, const char *words)
{
    struct heed_error err = {0};
    assert_int_equal(open_only(o, &err), HEED_EARG);
    if (!strstr(err.text, words)) fail_msg("\"%s\" does not say \"%s\"", err.text, words);
}

static void test_whole_numbers(void **state)
{
    (void)state;
    static const int ints[] = {INT_MIN, -1, INT_MAX};
    static const int64_t longs[] = {INT64_MIN, -1, INT64_MAX};
    for (int i = 0; i < 3; i++) {
        struct heed_train_options o = options(in_place("limits"));
        o.batch_tokens = ints[i];
        refuses(&o, "batch_tokens is ");
        o = options(o.out), o.accumulate = ints[i];
        refuses(&o, "accumulate is ");
        o = options(o.out), o.warmup = ints[i];
        refuses(&o, "warmup is ");
        o = options(o.out), o.train_length = ints[i];
        refuses(&o, "train_length is ");
        o = options(o.out), o.schedule = (enum heed_schedule)ints[i];
        refuses(&o, "schedule is ");
        o = options(o.out), o.keep = ints[i];
        refuses(&o, "keep is ");
        o = options(o.out), o.patience = ints[i];
        refuses(&o, "patience is ");
        o = options(o.out), o.precision = (enum heed_precision)ints[i];
        refuses(&o, "precision is ");
        o = options(o.out), o.best_by = (enum heed_best)ints[i];
        refuses(&o, "best_by is ");
        o = options(o.out), o.steps = longs[i];
        refuses(&o, "steps is ");
        o = options(o.out), o.save_every = longs[i];
        refuses(&o, "save_every is ");
        o = options(o.out), o.valid_every = longs[i];
        refuses(&o, "valid_every is ");
    }
    struct heed_train_options o = options(in_place("limits"));
    o.keep = 0;
    refuses(&o, "keep is 0, expected 1 to ");
    assert_false(file_exists(o.out)); /* no file was created */
}

static void test_real_numbers(void **state)
{
    (void)state;
    static const float wrong[] = {-0.1f, -HUGE_VALF, HUGE_VALF, NAN};
    for (int i = 0; i < 4; i++) {
        struct heed_train_options o = options(in_place("limits"));
        float *const real[] = {
            &o.beta1,   &o.beta2, &o.label_smoothing, &o.subword_dropout, &o.peak_lr,
            &o.epsilon, &o.clip};
        static const char *const name[] = {
            "beta1", "beta2", "label_smoothing", "subword_dropout", "peak_lr", "epsilon", "clip"};
        for (int k = 0; k < 7; k++) {
            float right = *real[k];
            *real[k] = wrong[i];
            refuses(&o, name[k]);
            if (k < 4) {
                *real[k] = 1;
                refuses(&o, name[k]);
            }
            *real[k] = right;
        }
    }
}

/* Every field alone at its ends, and the largest together: some are refused, some need more memory
 * than there is, and none is computed with wrong sizes. */
static void test_shapes(void **state)
{
    (void)state;
    static const int extreme[] = {INT_MIN, -1, 0, INT_MAX};
    struct heed_train_options o = options(in_place("limits"));
    int *const field[] = {&o.config.d_model,        &o.config.d_ff,           &o.config.heads,
                          &o.config.encoder_layers, &o.config.decoder_layers, &o.config.max_length};
    for (int k = 0; k < 6; k++) {
        int right = *field[k];
        for (int i = 0; i < 4; i++) {
            *field[k] = extreme[i];
            refuses(&o, " is ");
        }
        *field[k] = right;
    }
    o.config.vocab_size = INT_MAX;
    refuses(&o, "275 pieces, expected 2147483647");
    o = options(o.out);
    o.config = (struct heed_config){0};
    refuses(&o, "d_model is '0'");
    o = options(o.out);
    o.config.d_model = 1 << 14, o.config.d_ff = 1 << 16, o.config.heads = 1 << 10;
    o.config.encoder_layers = o.config.decoder_layers = 128;
    refuses(&o, "the number of parameters");
    o = options(o.out);
    o.config.d_model = 1 << 12, o.config.max_length = 1 << 20, o.config.heads = 4;
    refuses(&o, "max_length times d_model");
    o = options(o.out);
    o.batch_tokens = 1 << 24, o.config.d_model = 1024, o.config.heads = 8;
    refuses(&o, "tokens at once");
    o = options(o.out);
    o.batch_tokens = 40000, o.config.d_ff = 49152; /* a gate is wider than d_ff */
    o.config.activation = HEED_ACTIVATION_SWIGLU;
    refuses(&o, "tokens at once with 65536 numbers each");
}

static void test_null(void **state)
{
    (void)state;
    struct heed_error err = {0};
    struct heed_engine *e = heed_engine_open("cpu", 1, &err);
    struct heed_train_options o = options(in_place("limits"));
    static const char *const holes[] = {NULL};
    assert_null(heed_trainer_open(NULL, &o, &err));
    assert_int_equal(err.status, HEED_EARG);
    assert_null(heed_trainer_open(e, NULL, &err));
    assert_int_equal(err.status, HEED_EARG);
    assert_null(heed_trainer_open(e, NULL, NULL));
    assert_int_equal(heed_trainer_run(NULL, &err), HEED_EARG);
    heed_trainer_free(NULL);
    heed_engine_free(e);
    o.vocab = NULL;
    refuses(&o, "no vocabulary");
    o.vocab = "";
    refuses(&o, "no vocabulary");
    o = options(NULL);
    refuses(&o, "no output directory");
    o = options("");
    refuses(&o, "no output directory");
    o = options(in_place("limits"));
    o.train = (struct heed_corpus){0};
    refuses(&o, "no training files");
    o.train.n = 1;
    refuses(&o, "train.src");
    o.train = (struct heed_corpus){.src = place.src_list, .n = -1};
    refuses(&o, "train.src");
    o.train = (struct heed_corpus){.src = holes, .tgt = place.tgt_list, .n = 1};
    refuses(&o, "train.src");
    o.train = (struct heed_corpus){.src = place.src_list, .tgt = holes, .n = 1};
    refuses(&o, "train.tgt");
    o = options(o.out);
    o.valid = (struct heed_corpus){.src = holes, .n = 1};
    refuses(&o, "valid.src");
    o.valid = o.train;
    o.valid_tokenize = NULL;
    refuses(&o, "valid_tokenize");
    o.valid_tokenize = "no such";
    refuses(&o, "no such");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_numbers),
        cmocka_unit_test(test_real_numbers),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_null),
    };
    device_or_skip();
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
