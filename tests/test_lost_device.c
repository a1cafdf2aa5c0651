/*
 * test_lost_device.c - a device that fails in the middle of a run: one sentence, and the newest
 * checkpoint is whole. On the CPU the run ends well instead. See device.h; a program of its own,
 * since nothing works on a device that is lost.
 */
#include "small_model.h"

#include "ops/engine.h"

enum { SAVED = 4, LOST = 6, STEPS = 12 };

static struct heed_engine *engine;

/* After step LOST a kernel writes to an invalid address. */
static void lose(void *user, const struct heed_event *e)
{
    struct backend *be = engine->be;
    (void)user;
    if (!device_named() || e->kind != HEED_EVENT_STEP || e->step != LOST) return;
    struct mat nowhere = mat_make((void *)4096, 1, 1024, TYPE_F32);
    be->op->cast(be, nowhere, nowhere);
}

static void train(struct heed_train_options *o, struct heed_error *err)
{
    struct heed_trainer *t = heed_trainer_open(engine, o, err);
    must(t ? HEED_OK : err->status, err);
    enum heed_status status = heed_trainer_run(t, err);
    heed_trainer_free(t);
    if (!device_named()) {
        must(status, err);
        return;
    }
    assert_int_equal(status, HEED_EIO);
    printf("says: %s\n", err->text);
    assert_non_null(strstr(err->text, device_named()));
}

static void test_checkpoint_stays(void **state)
{
    (void)state;
    struct heed_error err = {0};
    char *pairs = NULL;
    size_t n;
    FILE *f = open_memstream(&pairs, &n);
    for (int i = 0; i < 200; i++) fprintf(f, "number %d\tZahl %d\n", i * 7, i * 7);
    fclose(f);
    const char *path = put_text("pairs", pairs);
    free(pairs);
    struct heed_tokenizer_options vocab = {.vocab_size = 280};
    must(heed_tokenizer_train(&path, 1, &vocab, at("vocab"), &err), &err);
    struct heed_train_options o = heed_train_defaults();
    o.train = (struct heed_corpus){.src = &path, .n = 1};
    o.vocab = at("vocab");
    o.out = at("model");
    must(heed_config_preset(&o.config, "tiny", &err), &err);
    o.batch_tokens = 256;
    o.steps = STEPS;
    o.save_every = SAVED;
    o.event = lose;
    engine = heed_engine_open(device_or_cpu(), 1, &err);
    must(engine ? HEED_OK : err.status, &err);
    train(&o, &err);
    heed_engine_free(engine);
    /* the run is resumed on another device */
    engine = heed_engine_open("cpu", 1, &err);
    o.resume = true;
    o.event = NULL;
    struct heed_trainer *t = heed_trainer_open(engine, &o, &err);
    must(t ? HEED_OK : err.status, &err);
    must(heed_trainer_run(t, &err), &err);
    heed_trainer_free(t);
    heed_engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_checkpoint_stays)};
    device_or_skip();
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
