/*
 * test_api.c - wrong calls of heed.h: NULL, negative counts and numbers at the ends of their types.
 * Every such call returns HEED_EARG, or NULL, with a sentence, and does not change its output
 * parameters.
 */
#include "small_model.h"

#include <limits.h>
#include <math.h>

/* Options of AddressSanitizer: an allocation that is too large returns NULL, as without a
 * sanitizer. The function is exported, because GCC's sanitizer is a shared library. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static struct heed_engine *engine;
static struct heed_model *model;
static struct heed_session *session;
static const char *const text[] = {"one two", "two", NULL};
static const char *pairs, *model_dir;

/* A model that was trained for one step. */
static int setup(void **state)
{
    if (folder_make(state)) return -1;
    char all[4096] = "";
    for (int i = 0; i < 20; i++)
        sprintf(all + strlen(all), "one two three %d\teins zwei drei %d\n", i * 7, i * 7);
    pairs = strdup(put_text("pairs", all));
    struct heed_error err = {0};
    struct heed_tokenizer_options vocab = {.vocab_size = 280};
    must(heed_tokenizer_train(&pairs, 1, &vocab, at("vocab"), &err), &err);
    model_dir = strdup(at("model"));
    struct heed_train_options o = small_options(&pairs, at("vocab"), model_dir);
    o.steps = 1;
    engine = heed_engine_open("cpu", 1, &err);
    struct heed_trainer *t = engine ? heed_trainer_open(engine, &o, &err) : NULL;
    must(t ? heed_trainer_run(t, &err) : err.status, &err);
    heed_trainer_free(t);
    model = heed_model_load(engine, o.out, HEED_WEIGHTS_AS_STORED, &err);
    session = model ? heed_session_open(model, NULL, &err) : NULL;
    must(session ? HEED_OK : err.status, &err);
    return 0;
}

static int teardown(void **state)
{
    heed_session_free(session);
    heed_model_free(model);
    heed_engine_free(engine);
    free((char *)pairs);
    free((char *)model_dir);
    return folder_remove(state);
}

/* Checks that the last call failed with HEED_EARG and a sentence that names what was wrong. */
static struct heed_error err;

static void refused(enum heed_status status, const char *names)
{
    assert_int_equal(status, HEED_EARG);
    assert_int_equal(err.status, HEED_EARG);
    if (!strstr(err.text, names)) fail_msg("\"%s\" does not name %s", err.text, names);
    err = (struct heed_error){0};
}

/* The same for a call that returns an object. */
static void refused_object(const void *object, const char *names)
{
    assert_null(object);
    refused(err.status, names);
}

static void test_engine(void **state)
{
    (void)state;
    refused_object(heed_engine_open(NULL, 0, &err), "device");
    refused_object(heed_engine_open("", 0, &err), "device");
    refused_object(heed_engine_open("cpu:1", 0, &err), "cpu:1");
    refused_object(heed_engine_open("cuda:99999999999999999999", 0, &err), "cuda:99");
    refused_object(heed_engine_open("cuda:000000000000000000000000000000001", 0, &err), "cuda:00");
    for (int i = 0; i < 2; i++) {
        refused_object(heed_engine_open(i ? "ref" : "cpu", -1, &err), "-1");
        refused_object(heed_engine_open(i ? "ref" : "cpu", INT_MIN, &err), "threads");
    }
    refused_object(heed_engine_open("cpu", INT_MAX, &err), "threads");
    assert_null(heed_engine_open(NULL, 0, NULL));
    assert_null(heed_engine_note(NULL, HEED_BF16));
    heed_engine_free(NULL);
}

static void test_lines(void **state)
{
    (void)state;
    const char *line = NULL;
    size_t len;
    bool ready;
    refused_object(heed_lines_open(NULL, &err), "path");
    refused_object(heed_lines_open_fd(0, NULL, &err), "name");
    refused_object(heed_lines_open_fd(-1, "no descriptor", &err), "no descriptor");
    struct heed_lines *l = heed_lines_open(pairs, &err);
    must(l ? HEED_OK : err.status, &err);
    refused(heed_lines_next(NULL, &line, &len, &err), "lines");
    refused(heed_lines_next(l, NULL, &len, &err), "line");
    refused(heed_lines_next(l, &line, NULL, &err), "len");
    refused(heed_lines_ready(NULL, &ready, &err), "lines");
    refused(heed_lines_ready(l, NULL, &err), "ready");
    must(heed_lines_next(l, &line, &len, &err), &err);
    assert_true(line && len > 0);
    heed_lines_free(l);
    heed_lines_free(NULL);
}

static void test_tokenizer(void **state)
{
    (void)state;
    const struct heed_tokenizer *t = heed_model_tokenizer(model);
    struct heed_tokenizer_options o = {.vocab_size = 280};
    const char *out = at("never");
    refused(heed_tokenizer_train(NULL, 1, &o, out, &err), "paths");
    refused(heed_tokenizer_train((const char *[]){pairs, NULL}, 2, &o, out, &err), "paths[1]");
    refused(heed_tokenizer_train(&pairs, 0, &o, out, &err), "no file");
    refused(heed_tokenizer_train(&pairs, -1, &o, out, &err), "-1");
    refused(heed_tokenizer_train(&pairs, 1, NULL, out, &err), "options");
    refused(heed_tokenizer_train(&pairs, 1, &o, NULL, &err), "out_path");
    o.tags_n = 1;
    refused(heed_tokenizer_train(&pairs, 1, &o, out, &err), "tags");
    o.tags = &(const char *){NULL};
    refused(heed_tokenizer_train(&pairs, 1, &o, out, &err), "tags[0]");
    for (int i = 0; i < 3; i++) {
        o.tags_n = (int[]){-1, INT_MIN, INT_MAX}[i];
        refused(heed_tokenizer_train(&pairs, 1, &o, out, &err), "tags");
    }
    o.tags_n = 0;
    for (int i = 0; i < 4; i++) {
        o.vocab_size = (int[]){0, -1, INT_MIN, INT_MAX}[i];
        refused(heed_tokenizer_train(&pairs, 1, &o, out, &err), "vocabulary");
    }
    assert_int_not_equal(access(out, F_OK), 0);

    refused_object(heed_tokenizer_load(NULL, &err), "path");
    assert_int_equal(heed_tokenizer_size(NULL), 0);
    assert_null(heed_tokenizer_piece(NULL, 0));
    assert_null(heed_tokenizer_piece(t, -1));
    assert_null(heed_tokenizer_piece(t, INT32_MIN));
    assert_null(heed_tokenizer_piece(t, INT32_MAX));
    heed_tokenizer_free(NULL);

    struct heed_ids ids = {0};
    char *decoded = NULL;
    size_t len = 0;
    refused(heed_encode(NULL, "a", 1, &ids, &err), "tokenizer");
    refused(heed_encode(t, NULL, 1, &ids, &err), "text");
    refused(heed_encode(t, "a", 1, NULL, &err), "out");
    must(heed_encode(t, NULL, 0, &ids, &err), &err);
    assert_int_equal(ids.n, 0);
    refused(heed_decode(NULL, NULL, 0, &decoded, &len, &err), "tokenizer");
    refused(heed_decode(t, NULL, 1, &decoded, &len, &err), "id");
    refused(heed_decode(t, (int32_t[]){5}, 1, NULL, &len, &err), "text");
    refused(heed_decode(t, (int32_t[]){5}, 1, &decoded, NULL, &err), "len");
    refused(heed_decode(t, (int32_t[]){INT32_MIN}, 1, &decoded, &len, &err), "id");
    refused(heed_decode(t, (int32_t[]){INT32_MAX}, 1, &decoded, &len, &err), "id");
    assert_null(decoded);
    must(heed_decode(t, NULL, 0, &decoded, &len, &err), &err);
    assert_string_equal(decoded, "");
    free(decoded);
    free(ids.v);
}

static void test_config(void **state)
{
    (void)state;
    struct heed_config c;
    refused(heed_config_preset(NULL, "tiny", &err), "config");
    refused(heed_config_preset(&c, NULL, &err), "name");
    refused(heed_config_preset(&c, "huge", &err), "huge");
    refused(heed_config_check(NULL, &err), "config");
    refused(heed_config_set(NULL, "heads", "8", &err), "config");
    refused(heed_config_set(&c, NULL, "8", &err), "name");
    refused(heed_config_set(&c, "heads", NULL, &err), "text");
}

static const char *guess(const char *word)
{
    static const char *const name[] = {"translate", NULL,   "train",  "average", "zh",   "pre",
                                       "gelu",      "relu", "swiglu", "rope",    "none", "linear"};
    const char *best = NULL;
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) best = heed_nearer(word, best, name[i]);
    return best;
}

static void test_nearer(void **state)
{
    (void)state;
    assert_string_equal(guess("trian"), "train");
    assert_string_equal(guess("trainslate"), "translate");
    assert_string_equal(guess("aver"), "average");
    assert_string_equal(guess("zn"), "zh");
    assert_string_equal(guess("per"), "pre");
    assert_string_equal(guess("gleu"), "gelu");
    assert_string_equal(guess("swigul"), "swiglu");
    assert_string_equal(guess("rop"), "rope");
    assert_string_equal(guess("non"), "none");
    assert_string_equal(guess("liniar"), "linear");
    assert_null(guess("xyzzy"));
    assert_null(guess("sine"));
    assert_null(guess("tanh"));
    assert_null(guess("post"));
    assert_null(guess("ff"));
    assert_null(guess(""));
    assert_null(guess(NULL));
    assert_null(guess("a word that is far too long to be one that anybody mistyped, truly"));
}

static void test_model_files(void **state)
{
    (void)state;
    const char *out = at("never");
    refused(heed_average(NULL, 1, out, &err), "dirs");
    refused(heed_average((const char *[]){model_dir, NULL}, 2, out, &err), "dirs[1]");
    refused(heed_average(&model_dir, 0, out, &err), "no model");
    refused(heed_average(&model_dir, -1, out, &err), "-1");
    refused(heed_average(&model_dir, INT_MIN, out, &err), "dirs");
    refused(heed_average(&model_dir, 1, NULL, &err), "out");
    refused(heed_quantize(NULL, HEED_WEIGHTS_INT8, out, &err), "dir");
    refused(heed_quantize(model_dir, HEED_WEIGHTS_INT8, NULL, &err), "out");
    refused(heed_quantize(model_dir, (enum heed_weights)77, out, &err), "weights");
    refused(heed_quantize(model_dir, HEED_WEIGHTS_F32, out, &err), "weights");
    assert_int_not_equal(access(out, F_OK), 0);

    refused_object(heed_model_load(NULL, model_dir, HEED_WEIGHTS_F32, &err), "engine");
    refused_object(heed_model_load(engine, NULL, HEED_WEIGHTS_F32, &err), "dir");
    refused_object(heed_model_load(engine, model_dir, (enum heed_weights)77, &err), "weights");
    refused_object(heed_model_load(engine, model_dir, (enum heed_weights) - 1, &err), "weights");
    assert_null(heed_model_config(NULL));
    assert_null(heed_model_tokenizer(NULL));
    heed_model_free(NULL);
}

/* The answer to a request for "one" with these options, which must name what was wrong. */
static void refused_options(struct heed_translate_options o, const char *names)
{
    const struct heed_answer *out = NULL;
    struct heed_request request = {.text = "one", .options = &o};
    must(heed_translate(session, &request, 1, &out, &err), &err);
    assert_int_equal(out->n, 1);
    assert_string_equal(out->result->text, "");
    snprintf(err.text, sizeof err.text, "%s", out->why);
    err.status = out->status;
    refused(out->status, names);
}

static void test_translate_options(void **state)
{
    (void)state;
    const int extreme[] = {INT_MIN, -1, INT_MAX};
    const float wrong[] = {NAN, -1, INFINITY};
    for (int i = 0; i < 3; i++) {
        struct heed_translate_options o[7];
        for (int k = 0; k < 7; k++) o[k] = heed_translate_defaults();
        o[0].beam = o[1].nbest = o[2].min_length = o[3].top_k = extreme[i];
        o[4].length_penalty = o[5].temperature = o[6].top_p = wrong[i];
        static const char *const name[] = {"beam",           "nbest",       "min length", "top-k",
                                           "length penalty", "temperature", "top-p"};
        for (int k = 0; k < 7; k++) refused_options(o[k], name[k]);
        struct heed_session_options so = {.batch_tokens = extreme[i]};
        refused_object(heed_session_open(model, &so, &err), "batch tokens");
    }
    struct heed_translate_options o = heed_translate_defaults();
    o.max_length = -1;
    refused_options(o, "max length");
    o.max_length = 0;
    o.no_repeat_ngram = -1;
    refused_options(o, "no-repeat");
    o.no_repeat_ngram = 0;
    o.to = "";
    refused_options(o, ">><<");
    refused_object(heed_session_open(NULL, NULL, &err), "model");
    heed_session_free(NULL);
}

/* The largest that is allowed of everything, and what has no upper end. A session with room for
 * little grows for a beam that needs more. */
static void test_extremes_that_work(void **state)
{
    (void)state;
    struct heed_translate_options o = heed_translate_defaults();
    o.beam = o.nbest = 64;
    o.max_length = o.no_repeat_ngram = INT_MAX;
    o.min_length = 38;
    o.length_penalty = 10;
    o.align = true;
    char whole[256] = "";
    for (int i = 0; i < 12; i++) strcat(whole, "one two three. ");
    const struct heed_request request[] = {
        {.text = whole, .options = &o}, {.text = "one", .options = &o}, {.text = "one"}};
    for (int i = 0; i < 4; i++) {
        const struct heed_answer *out = NULL;
        struct heed_session_options so = {.batch_tokens = i % 2 ? 1 : 1000000};
        o.temperature = i == 2 ? 100 : i == 3 ? 1e-45f : 0;
        o.top_k = i > 1 ? 256 : 0;
        o.seed = UINT64_MAX;
        struct heed_session *s = heed_session_open(model, &so, &err);
        must(s ? HEED_OK : err.status, &err);
        must(heed_translate(s, request + 2, 1, &out, &err), &err);
        must(heed_translate(s, request, 3, &out, &err), &err);
        for (int k = 0; k < out[1].n; k++) assert_in_range(out[1].result[k].tokens, 39, 40);
        assert_int_equal(out[2].n, 1);
        heed_session_free(s);
    }
}

static void test_translate(void **state)
{
    (void)state;
    const struct heed_answer *out = NULL;
    const struct heed_request request[] = {{.text = "one two"}, {.text = "two"}, {.prefix = "one"}};
    refused(heed_translate(session, request, -1, &out, &err), "-1 requests");
    refused(heed_translate(session, request, INT_MIN, &out, &err), "-2147483648 requests");
    refused(heed_translate(NULL, request, 1, &out, &err), "session");
    refused(heed_translate(session, NULL, 1, &out, &err), "request");
    refused(heed_translate(session, request, 3, &out, &err), "request[2].text");
    refused(heed_translate(session, request, 1, NULL, &err), "out");
    assert_null(out);
    must(heed_translate(session, NULL, 0, &out, &err), &err);
    must(heed_translate(session, request, 2, &out, &err), &err);
    assert_true(out[1].result->tokens > 0);
}

static void test_attention(void **state)
{
    (void)state;
    struct heed_attention *a = NULL;
    char *picture = NULL;
    const struct heed_request none = {0}, request = {.text = "one"};
    refused(heed_attention_of(NULL, &request, &a, &err), "session");
    refused(heed_attention_of(session, NULL, &a, &err), "request");
    refused(heed_attention_of(session, &none, &a, &err), "request->text");
    refused(heed_attention_of(session, &request, NULL, &err), "out");
    assert_null(a);
    must(heed_attention_of(session, &request, &a, &err), &err);
    const struct heed_attention_view good = {.use = HEED_USE_CROSS};
    for (int i = 0; i < 3; i++) {
        int x = (int[]){INT_MIN, -2, INT_MAX}[i];
        const struct heed_attention_view bad[] = {{.layer = x},
                                                  {.head = x},
                                                  {.use = (enum heed_attention_use)x},
                                                  {.drawing = (enum heed_drawing)x}};
        static const char *const what[] = {"layer", "head", "use", "drawing"};
        for (int k = 0; k < 4; k++)
            refused(heed_attention_picture(a, HEED_PICTURE_SVG, &bad[k], &picture, &err), what[k]);
        refused(heed_attention_picture(a, (enum heed_picture)x, &good, &picture, &err), "kind");
    }
    const struct heed_attention_view lines = {.drawing = HEED_DRAW_LINES}, all = {.use = HEED_USES};
    refused(heed_attention_picture(a, HEED_PICTURE_TERMINAL, &lines, &picture, &err), "lines");
    refused(heed_attention_picture(a, HEED_PICTURE_SVG, &all, &picture, &err), "use");
    refused(heed_attention_picture(a, HEED_PICTURE_MARKDOWN, &good, &picture, &err), "kind");
    refused(heed_attention_picture(NULL, HEED_PICTURE_SVG, &good, &picture, &err), "attention");
    refused(heed_attention_picture(a, HEED_PICTURE_SVG, NULL, &picture, &err), "view");
    refused(heed_attention_picture(a, HEED_PICTURE_SVG, &good, NULL, &err), "out");
    assert_null(picture);
    heed_attention_free(a);
    heed_attention_free(NULL);
}

static void test_score(void **state)
{
    (void)state;
    struct heed_score score;
    const int wrong[] = {0, -1, INT_MIN};
    for (int i = 0; i < 3; i++) {
        refused(heed_bleu(text, text, wrong[i], "13a", &score, &err), "at least one");
        refused(heed_chrf(text, text, wrong[i], &score, &err), "at least one");
    }
    refused(heed_bleu(NULL, text, 1, "13a", &score, &err), "hyp");
    refused(heed_bleu(text, NULL, 1, "13a", &score, &err), "ref");
    refused(heed_bleu(text, text, 3, "13a", &score, &err), "hyp[2]");
    refused(heed_bleu((const char *[]){"a", "b", "c"}, text, 3, "13a", &score, &err), "ref[2]");
    refused(heed_bleu(text, text, 1, NULL, &score, &err), "tokenizer");
    refused(heed_bleu(text, text, 1, "klingon", &score, &err), "klingon");
    refused(heed_bleu(text, text, 1, "13a", NULL, &err), "out");
    refused(heed_chrf(NULL, text, 1, &score, &err), "hyp");
    refused(heed_chrf(text, NULL, 1, &score, &err), "ref");
    refused(heed_chrf(text, text, 3, &score, &err), "hyp[2]");
    refused(heed_chrf(text, text, 1, NULL, &err), "out");

    const char *const *texts[] = {text, NULL};
    struct heed_scoring how = {.metric = HEED_METRIC_TER};
    struct heed_comparison of[2];
    refused(heed_score_corpus(NULL, text, texts, 1, 1, &score, &err), "how");
    refused(heed_score_corpus(&how, text, NULL, 1, 1, &score, &err), "ref");
    refused(heed_score_corpus(&how, text, texts, 0, 1, &score, &err), "0 references");
    refused(heed_score_corpus(&how, text, texts, 2, 1, &score, &err), "ref");
    refused(heed_score_sentences(&how, NULL, texts, 1, 1, &score, &err), "hyp");
    refused(heed_score_sentences(&how, text, texts, 1, 1, NULL, &err), "out");
    refused(heed_score_systems(&how, NULL, 1, texts, 1, 1, 10, 0, of, &err), "hyp");
    refused(heed_score_systems(&how, texts, 2, texts, 1, 1, 10, 0, of, &err), "hyp");
    refused(heed_score_systems(&how, texts, 0, texts, 1, 1, 10, 0, of, &err), "0 systems");
    refused(heed_score_systems(&how, texts, 1, texts, 1, 1, 0, 0, of, &err), "0 samples");
    refused(heed_score_systems(&how, texts, 1, texts, 1, 1, 10, 0, NULL, &err), "out");
    how.metric = (enum heed_metric)99;
    refused(heed_score_corpus(&how, text, texts, 1, 1, &score, &err), "no metric 99");
    assert_null(heed_metric_name(how.metric));
    assert_null(heed_metric_title((enum heed_metric) - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_tokenizer),
        cmocka_unit_test(test_config),
        cmocka_unit_test(test_nearer),
        cmocka_unit_test(test_model_files),
        cmocka_unit_test(test_translate_options),
        cmocka_unit_test(test_extremes_that_work),
        cmocka_unit_test(test_translate),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_score),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
