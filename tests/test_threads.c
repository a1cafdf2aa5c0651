/*
 * test_threads.c - one engine used by many threads at once: models are loaded and freed, sessions
 * opened, texts translated, a model trained. Under ThreadSanitizer it finds data races.
 */
#include "small_model.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 3, TEXTS = 8 };

static struct heed_engine *engine;
static const char *pairs, *vocab_path, *first_dir;
static char source[TEXTS][64], want[TEXTS][256];

static enum heed_status train(const char *out, struct heed_error *err)
{
    struct heed_train_options o = small_options(&pairs, vocab_path, out);
    o.steps = 10;
    struct heed_trainer *t = heed_trainer_open(engine, &o, err);
    enum heed_status status = t ? heed_trainer_run(t, err) : err->status;
    heed_trainer_free(t);
    return status;
}

/* Loads the model and translates; returns what went wrong, or HEED_OK. */
static enum heed_status translate(char found[TEXTS][256], struct heed_error *err)
{
    struct heed_model *m = heed_model_load(engine, first_dir, HEED_WEIGHTS_AS_STORED, err);
    struct heed_session *s = m ? heed_session_open(m, NULL, err) : NULL;
    const struct heed_answer *out = NULL;
    struct heed_request request[TEXTS] = {{0}};
    for (int i = 0; i < TEXTS; i++) request[i].text = source[i];
    enum heed_status status = s ? heed_translate(s, request, TEXTS, &out, err) : err->status;
    for (int i = 0; i < TEXTS && !status; i++)
        snprintf(found[i], sizeof found[i], "%s %.9g", out[i].result->text,
                 (double)out[i].result->score);
    heed_session_free(s);
    heed_model_free(m);
    return status;
}

static int setup(void **state)
{
    if (folder_make(state)) return -1;
    char all[8192] = "";
    for (int i = 0; i < 60; i++)
        sprintf(all + strlen(all), "one two three %d\teins zwei drei %d\n", i * 7, i * 7);
    pairs = strdup(put_text("pairs", all));
    vocab_path = strdup(at("vocab"));
    first_dir = strdup(at("first"));
    struct heed_error err = {0};
    struct heed_tokenizer_options vocab = {.vocab_size = 280};
    must(heed_tokenizer_train(&pairs, 1, &vocab, vocab_path, &err), &err);
    for (int i = 0; i < TEXTS; i++) {
        snprintf(source[i], sizeof source[i], "one two %d", i * 11);
    }
    engine = heed_engine_open("cpu", 1, &err);
    must(engine ? HEED_OK : err.status, &err);
    must(train(first_dir, &err), &err);
    must(translate(want, &err), &err);
    return 0;
}

static int teardown(void **state)
{
    heed_engine_free(engine);
    free((char *)pairs);
    free((char *)vocab_path);
    free((char *)first_dir);
    return folder_remove(state);
}

struct worker {
    pthread_t thread;
    char out[128]; /* where to train; empty: translate */
    struct heed_error err;
    int wrong;
};

/* No assertions here: cmocka's jump out of the main thread only. */
static void *work(void *arg)
{
    struct worker *w = arg;
    if (w->out[0]) return train(w->out, &w->err), NULL;
    for (int round = 0; round < ROUNDS && !w->err.status; round++) {
        char found[TEXTS][256];
        if (translate(found, &w->err)) break;
        for (int i = 0; i < TEXTS; i++) w->wrong += strcmp(found[i], want[i]) != 0;
    }
    return NULL;
}

/* All but two translate; the two train, each its own model. */
static void test_one_engine(void **state)
{
    (void)state;
    struct worker w[THREADS + 2] = {{0}};
    for (int i = THREADS; i < THREADS + 2; i++)
        snprintf(w[i].out, sizeof w[i].out, "%s-%d", first_dir, i);
    for (int i = 0; i < THREADS + 2; i++)
        assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    for (int i = 0; i < THREADS + 2; i++) pthread_join(w[i].thread, NULL);
    for (int i = 0; i < THREADS + 2; i++) {
        must(w[i].err.status, &w[i].err);
        assert_int_equal(w[i].wrong, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_engine)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
