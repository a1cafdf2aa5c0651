/*
 * test_session.c - sessions through heed.h: two threads with one model, texts with nothing in them,
 * fewer translations than wanted, texts longer than the model takes, wishes, alignments. On a
 * device (device.h) those that do not compare batches of different sizes to the last bit.
 */
#include "text_files.h"

#include <math.h>
#include <pthread.h>

#include "decode/align.h"
#include "device.h"
#include "heed.h"

enum { TEXTS = 60, ROUNDS = 4, NBEST = 3 };

static struct heed_engine *engine;
static struct heed_model *model;
static char source[TEXTS][64];
static const char *text[TEXTS];

static void must(enum heed_status status, const struct heed_error *err)
{
    if (status) fail_msg("%s", err->text);
}

/* A small model that has seen a little of: read out a number, digit by digit. */
static int setup(void **state)
{
    if (folder_make(state)) return -1;
    char *pairs = NULL;
    size_t n;
    FILE *f = open_memstream(&pairs, &n);
    for (int i = 0; i < 400; i++)
        fprintf(f, "Number %d comes. It goes.\tDie Zahl %d kommt. Sie geht.\n", i * 7, i * 7);
    fclose(f);
    const char *path = put_text("pairs", pairs);
    free(pairs);
    struct heed_error err = {0};
    struct heed_tokenizer_options vocab = {
        .vocab_size = 300, .tags = (const char *[]){">>de<<", ">>zh<<"}, .tags_n = 2};
    must(heed_tokenizer_train(&path, 1, &vocab, at("vocab"), &err), &err);
    struct heed_train_options o = heed_train_defaults();
    o.train = (struct heed_corpus){.src = &path, .n = 1};
    o.vocab = at("vocab");
    o.out = at("model");
    must(heed_config_preset(&o.config, "tiny", &err), &err);
    o.config.d_model = o.config.d_ff = 32;
    o.config.heads = 2;
    o.config.encoder_layers = o.config.decoder_layers = 1;
    o.config.max_length = 40;
    o.batch_tokens = 512;
    o.steps = 60;
    o.warmup = 20;
    o.peak_lr = 0.005f;
    struct heed_engine *cpu = heed_engine_open("cpu", 2, &err);
    struct heed_trainer *t = cpu ? heed_trainer_open(cpu, &o, &err) : NULL;
    must(t ? heed_trainer_run(t, &err) : HEED_EIO, &err);
    heed_trainer_free(t);
    heed_engine_free(cpu);
    engine = heed_engine_open(device_or_cpu(), 2, &err);
    must(engine ? HEED_OK : err.status, &err);
    model = heed_model_load(engine, o.out, HEED_WEIGHTS_AS_STORED, &err);
    must(model ? HEED_OK : err.status, &err);
    for (int i = 0; i < TEXTS; i++) {
        snprintf(source[i], sizeof source[i], "Number %d comes. It goes%s", i * i * 5,
                 i % 3 ? "." : " and goes and goes.");
        text[i] = source[i];
    }
    return 0;
}

static int teardown(void **state)
{
    heed_model_free(model);
    heed_engine_free(engine);
    return folder_remove(state);
}

static struct heed_session *open_session(void)
{
    struct heed_error err = {0};
    struct heed_translate_options o = heed_translate_defaults();
    o.nbest = NBEST;
    struct heed_session *s = heed_session_open(model, &o, &err);
    must(s ? HEED_OK : err.status, &err);
    return s;
}

/* ---- two threads ---- */

struct worker {
    pthread_t thread;
    struct heed_session *s;
    const struct heed_result *want;
    int step; /* texts of a call */
    int wrong;
};

/* No assertions here: cmocka's jump out of the main thread only. */
static void *work(void *arg)
{
    struct worker *w = arg;
    for (int round = 0; round < few(ROUNDS, 1); round++)
        for (int i = 0; i < TEXTS; i += w->step) {
            const struct heed_result *out = NULL;
            int n = TEXTS - i < w->step ? TEXTS - i : w->step;
            if (heed_translate(w->s, text + i, n, &out, NULL)) return w->wrong++, NULL;
            for (int k = 0; k < n * NBEST; k++) {
                const struct heed_result *a = &out[k], *b = &w->want[i * NBEST + k];
                w->wrong += !a->text != !b->text || a->score != b->score || a->logp != b->logp ||
                            (a->text && strcmp(a->text, b->text) != 0);
            }
        }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct heed_error err = {0};
    struct heed_session *alone = open_session();
    const struct heed_result *want = NULL;
    must(heed_translate(alone, text, TEXTS, &want, &err), &err);
    struct worker w[2] = {{.step = device_named() ? TEXTS : 7}, {.step = TEXTS}};
    for (int i = 0; i < 2; i++) {
        w[i].s = open_session();
        w[i].want = want;
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(w[i].thread, NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(w[i].wrong, 0);
        heed_session_free(w[i].s);
    }
    heed_session_free(alone);
}

/* ---- odd texts ---- */

static void test_nothing(void **state)
{
    (void)state;
    struct heed_error err = {0};
    struct heed_session *s = open_session();
    const struct heed_result *out = NULL;
    must(heed_translate(s, NULL, 0, &out, &err), &err);
    must(heed_translate(s, (const char *[]){"", text[1], " \t\u3000"}, 3, &out, &err), &err);
    assert_string_equal(out[0].text, "");
    assert_int_equal(out[0].tokens, 0);
    assert_null(out[1].text);
    assert_non_null(out[NBEST].text);
    assert_true(out[NBEST].tokens > 1);
    assert_string_equal(out[2 * NBEST].text, "");
    heed_session_free(s);
}

/* A long text is its sentences, with the white space between them; the scores are sums. */
static void test_long_text(void **state)
{
    (void)state;
    if (device_named()) skip();
    struct heed_error err = {0};
    struct heed_session *s = open_session();
    const char *one[] = {"Number 123 comes to me.", "Number 4567 goes with me.",
                         "Number 89 comes and goes."};
    char whole[4096] = "", want[4096] = "";
    const struct heed_result *out = NULL;
    must(heed_translate(s, one, 3, &out, &err), &err);
    float score = 0;
    for (int i = 0; i < 12; i++) {
        const char *gap = i == 0 ? "" : i == 5 ? "  " : " ";
        strcat(strcat(whole, gap), one[i % 3]);
        strcat(strcat(want, gap), out[i % 3 * NBEST].text);
        score += out[i % 3 * NBEST].score;
    }
    must(heed_translate(s, (const char *[]){whole}, 1, &out, &err), &err);
    assert_string_equal(out[0].text, want);
    assert_true(out[0].score == score);
    /* one sentence, longer than the model takes: cut */
    memset(whole, 'x', 2000);
    whole[2000] = '\0';
    must(heed_translate(s, (const char *[]){whole}, 1, &out, &err), &err);
    assert_non_null(out[0].text);
    heed_session_free(s);
}

/* ---- wishes ---- */

static void test_wishes(void **state)
{
    (void)state;
    if (device_named()) skip();
    struct heed_error err = {0};
    struct heed_session *s = open_session();
    const struct heed_result *out = NULL;
    struct heed_wish wish[3] = {
        {.prefix = "Sie geht"},
        {.required = (const char *[]){"geht. 77", "kommt"}, .required_n = 2},
        {.banned = (const char *[]){"Zahl"}, .banned_n = 1},
    };
    const char *same[3] = {text[1], text[1], text[1]};
    must(heed_translate_with(s, same, wish, 3, &out, &err), &err);
    assert_int_equal(strncmp(out[0].text, "Sie geht", strlen("Sie geht")), 0);
    assert_non_null(strstr(out[NBEST].text, "geht. 77"));
    assert_non_null(strstr(out[NBEST].text, "kommt"));
    for (int k = 0; k < NBEST && out[2 * NBEST + k].text; k++)
        assert_null(strstr(out[2 * NBEST + k].text, "Zahl"));
    char alone[256];
    snprintf(alone, sizeof alone, "%s", out[NBEST].text);
    float score = out[NBEST].score;
    must(heed_translate_with(s, same, wish + 1, 1, &out, &err), &err);
    assert_string_equal(out[0].text, alone);
    assert_true(out[0].score == score);
    const char *many[17];
    for (int i = 0; i < 17; i++) many[i] = "x";
    wish[0] = (struct heed_wish){.required = many, .required_n = 17};
    assert_int_equal(heed_translate_with(s, same, wish, 1, &out, &err), HEED_EARG);
    assert_non_null(strstr(err.text, "17"));
    wish[0] = (struct heed_wish){.banned = (const char *[]){""}, .banned_n = 1};
    assert_int_equal(heed_translate_with(s, same, wish, 1, &out, &err), HEED_EARG);
    heed_session_free(s);
}

static void test_lengths(void **state)
{
    (void)state;
    struct heed_error err = {0};
    struct heed_translate_options o = heed_translate_defaults();
    const struct heed_result *out = NULL;
    o.max_length = 3;
    struct heed_session *s = heed_session_open(model, &o, &err);
    must(s ? HEED_OK : err.status, &err);
    must(heed_translate(s, text, TEXTS, &out, &err), &err);
    for (int i = 0; i < TEXTS; i++) assert_in_range(out[i].tokens, 1, 3);
    heed_session_free(s);
    o.min_length = 20;
    assert_null(heed_session_open(model, &o, &err));
    assert_non_null(strstr(err.text, "20"));
    o.max_length = 0;
    s = heed_session_open(model, &o, &err);
    must(s ? HEED_OK : err.status, &err);
    must(heed_translate(s, text, TEXTS, &out, &err), &err);
    for (int i = 0; i < TEXTS; i++) assert_in_range(out[i].tokens, 21, 60);
    heed_session_free(s);
}

/* A tag is part of the source: it changes what comes out, and must be known. */
static void test_language(void **state)
{
    (void)state;
    if (device_named()) skip();
    struct heed_error err = {0};
    struct heed_translate_options o = heed_translate_defaults();
    const struct heed_result *plain = NULL, *tagged = NULL, *typed = NULL;
    char whole[2048] = "", by_hand[128];
    for (int i = 0; i < 12; i++) strcat(whole, i ? " It goes and goes." : "Number 1 comes.");
    struct heed_session *a = heed_session_open(model, &o, &err);
    o.to = "de";
    struct heed_session *b = heed_session_open(model, &o, &err);
    must(a && b ? HEED_OK : err.status, &err);
    must(heed_translate(b, (const char *[]){text[1], whole}, 2, &tagged, &err), &err);
    assert_non_null(tagged[1].text);
    snprintf(by_hand, sizeof by_hand, ">>de<< %s", text[1]);
    must(heed_translate(a, (const char *[]){by_hand, text[1]}, 2, &typed, &err), &err);
    plain = &typed[1];
    assert_string_equal(typed[0].text, tagged[0].text);
    assert_true(typed[0].score == tagged[0].score && plain->score != tagged[0].score);
    o.to = "fr";
    assert_null(heed_session_open(model, &o, &err));
    assert_non_null(strstr(err.text, ">>fr<<"));
    assert_non_null(strstr(err.text, ">>de<< >>zh<<"));
    heed_session_free(a);
    heed_session_free(b);
}

/* ---- tokens and words ---- */

static void check_words(const struct heed_span *word, int n, const char *all)
{
    size_t at = 0, len = strlen(all);
    for (int i = 0; i < n; i++) {
        assert_true(word[i].at >= at && word[i].len > 0 && word[i].at + word[i].len <= len);
        for (; at < word[i].at; at++) assert_int_equal(all[at], ' ');
        at += word[i].len;
    }
    assert_int_equal(at, len);
}

static void test_alignment(void **state)
{
    (void)state;
    struct heed_error err = {0};
    struct heed_translate_options o = heed_translate_defaults();
    char whole[2048] = "";
    const char *some[] = {text[1], "", whole, "broken \xff text"};
    o.align = true;
    o.to = "de";
    for (int i = 0; i < 12; i++) strcat(whole, i ? " It goes and goes." : "Number 1 comes.");
    struct heed_session *s = heed_session_open(model, &o, &err);
    must(s ? HEED_OK : err.status, &err);
    const struct heed_result *out = NULL;
    must(heed_translate(s, some, 4, &out, &err), &err);
    for (int i = 0; i < 3; i++) {
        const struct heed_alignment *a = out[i].alignment;
        assert_non_null(a);
        check_words(a->source, a->sources, some[i]);
        check_words(a->target, a->targets, out[i].text);
        for (int k = 0; k < a->targets; k++) assert_in_range(a->link[k], 0, a->sources - 1);
        double sum = 0;
        for (int k = 0; k < out[i].tokens; k++) sum += (double)out[i].token_logp[k];
        assert_true(fabs(sum - (double)out[i].logp) < 1e-4 * fmax(1, -sum));
    }
    assert_int_equal(out[0].alignment->sources, 7);
    assert_string_equal(
        heed_tokenizer_piece(heed_model_tokenizer(model), out[0].id[out[0].tokens - 1]), "</s>");
    assert_null(out[3].alignment);
    heed_session_free(s);
}

/* Words of which each looks at another one are linked to that one, whatever tokens they are. */
static void test_links(void **state)
{
    (void)state;
    enum { WORDS = 3, TAG = 2 };
    static const char *const word[] = {"Number", "comes", "Zahl"};
    static const char *const whole = "Number comes Zahl";
    static const int map[WORDS] = {2, 0, 1};
    const struct heed_tokenizer *t = heed_model_tokenizer(model);
    struct heed_error err = {0};
    size_t start[WORDS + 1];
    struct heed_ids ids = {0};
    for (int i = 0; i < WORDS; i++) {
        start[i] = ids.n;
        must(heed_encode(t, word[i], strlen(word[i]), &ids, &err), &err);
    }
    size_t n = start[WORDS] = ids.n, stride = n + TAG;
    assert_true(n > WORDS); /* some are of several tokens */
    struct pieces p = {0};
    int32_t tag[TAG] = {4, 5};
    struct pieces_options o = {.longest = 39, .nbest = 1, .tag = {tag, TAG, 0}};
    must(pieces_fill(&p, t, &o, &whole, 1, &err), &err);
    assert_int_equal(p.src[0].n, stride);
    p.out[0] = (struct translation){.ids = {malloc(n * sizeof *ids.v), n, 0},
                                    .token_score = calloc(n, sizeof(float))};
    memcpy(p.out[0].ids.v, ids.v, n * sizeof *ids.v);
    float *attention = calloc(n * stride, sizeof *attention);
    for (int w = 0; w < WORDS; w++)
        for (size_t j = start[w]; j < start[w + 1]; j++)
            attention[j * stride + TAG + start[map[w] + 1] - 1] = 1; /* the last of its tokens */
    struct heed_result r = {0};
    struct heed_alignment *a = NULL;
    must(pieces_join(&p, t, 0, 0, &r, &err), &err);
    assert_string_equal(r.text, whole);
    must(align_text(&a, &p, t, 0, &attention, &r, &err), &err);
    assert_int_equal(a->targets, WORDS);
    for (int w = 0; w < WORDS; w++) assert_int_equal(a->link[w], map[w]);
    free(a);
    free((char *)r.text);
    free((int32_t *)r.id);
    free((float *)r.token_logp);
    free(attention);
    free(ids.v);
    pieces_release(&p);
}

/* ---- attention ---- */

/* Every row is a distribution over the source; a picture names the tokens. */
static void test_attention(void **state)
{
    (void)state;
    struct heed_error err = {0};
    struct heed_translate_options o = heed_translate_defaults();
    o.align = true;
    struct heed_session *s = heed_session_open(model, &o, &err), *plain = open_session();
    struct heed_attention *a = NULL, *same = NULL;
    const struct heed_result *r = NULL;
    must(heed_attention_of(s, text[1], NULL, &a, &err), &err);
    must(heed_translate(s, text + 1, 1, &r, &err), &err);
    assert_int_equal(a->targets, r->tokens);
    assert_string_equal(a->source[a->sources - 1], "</s>");
    assert_string_equal(a->target[a->targets - 1], "</s>");
    for (int i = 0; i < a->layers * a->heads * a->targets; i++) {
        double sum = 0;
        for (int k = 0; k < a->sources; k++) sum += (double)a->weight[i * a->sources + k];
        assert_true(fabs(sum - 1) < 1e-4);
    }
    char found[256], *picture = NULL;
    snprintf(found, sizeof found, "%s", r->text);
    must(heed_attention_of(s, text[1], found, &same, &err), &err);
    if (same->targets == a->targets) /* unless the vocabulary spells it otherwise */
        assert_memory_equal(same->weight, a->weight,
                            (size_t)a->layers * a->heads * a->targets * a->sources * sizeof(float));
    for (int kind = HEED_PICTURE_SVG; kind <= HEED_PICTURE_TERMINAL; kind++) {
        must(heed_attention_picture(a, (enum heed_picture)kind, 0, kind - 1, &picture, &err), &err);
        bool svg = kind == HEED_PICTURE_SVG;
        assert_non_null(strstr(picture, svg ? "&lt;/s&gt;" : "</s>"));
        assert_int_equal(strncmp(picture, "<svg", 4) == 0, svg);
        free(picture);
    }
    assert_int_equal(heed_attention_picture(a, HEED_PICTURE_SVG, a->layers, 0, &picture, &err),
                     HEED_EARG);
    assert_int_equal(heed_attention_picture(a, HEED_PICTURE_SVG, 0, a->heads, &picture, &err),
                     HEED_EARG);
    assert_int_equal(heed_attention_of(plain, text[1], NULL, &same, &err), HEED_EARG);
    heed_attention_free(a);
    heed_attention_free(same);
    heed_session_free(s);
    heed_session_free(plain);
}

int main(int argc, char **argv)
{
    device_or_skip();
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),   cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_long_text), cmocka_unit_test(test_wishes),
        cmocka_unit_test(test_lengths),   cmocka_unit_test(test_language),
        cmocka_unit_test(test_alignment), cmocka_unit_test(test_links),
        cmocka_unit_test(test_attention),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
