/*
 * test_session.c - sessions through heed.h: two threads with one model, texts with nothing in them,
 * fewer translations than wanted, texts longer than the model takes, wishes, alignments. On a
 * device (device.h) those that do not compare batches of different sizes to the last bit.
 */
#include "small_model.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>

#include "decode/align.h"
#include "store/safetensors.h"

enum { TEXTS = 60, ROUNDS = 4, NBEST = 3 };

static struct heed_engine *engine;
static struct heed_model *model;
static char source[TEXTS][64];
static const char *text[TEXTS];

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
    small_model_train(path, &vocab);
    engine = heed_engine_open(device_or_cpu(), 2, &err);
    must(engine ? HEED_OK : err.status, &err);
    model = heed_model_load(engine, at("model"), HEED_WEIGHTS_AS_STORED, &err);
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
    heed_session_free(s);
}

static void refused(const struct heed_result *r, enum heed_status status, const char *why)
{
    assert_int_equal(r->status, status);
    if (!r->why || !strstr(r->why, why)) fail_msg("\"%s\" does not say \"%s\"", r->why, why);
    assert_string_equal(r->text, "");
    assert_int_equal(r->tokens, 0);
    assert_true(r->score == 0 && r->logp == 0 && r->flags == 0);
    assert_null(r->alignment);
}

/* What cannot be done for a text is said of that text; the others are translated as ever. */
static void test_refused(void **state)
{
    (void)state;
    if (device_named()) skip();
    enum { MANY = 17, WISHES = 13 };
    const char *many[257], *nothing = NULL, *empty = "", *zahl = "Zahl", *long_one = "geht geht";
    for (int i = 0; i < 257; i++) many[i] = "x";
    char far[400] = "", whole[400] = "";
    for (int i = 0; i < 40; i++) strcat(far, "kommt 7 ");
    for (int i = 0; i < 12; i++) strcat(whole, "Number 1 comes to me. ");
    const struct {
        struct heed_wish wish;
        const char *why;
    } wrong[WISHES] = {
        {{.required = many, .required_n = MANY}, "17 texts are required"},
        {{.banned = many, .banned_n = 257}, "257 banned"},
        {{.required = many, .required_n = -1}, "-1 texts are required"},
        {{.banned = many, .banned_n = INT_MIN}, "-2147483648 banned"},
        {{.required = NULL, .required_n = 1}, "required is NULL"},
        {{.banned = NULL, .banned_n = 1}, "banned is NULL"},
        {{.required = &nothing, .required_n = 1}, "required[0] is NULL"},
        {{.banned = &nothing, .banned_n = 1}, "banned[0] is NULL"},
        {{.banned = &empty, .banned_n = 1}, "empty"},
        {{.prefix = far}, "expected at most 40"},
        {{.prefix = "Die Zahl 4", .banned = &zahl, .banned_n = 1}, "but the prefix \"Die Zahl 4\""},
        {{.required = &zahl, .banned = &zahl, .required_n = 1, .banned_n = 1}, "but required"},
        {{.required = &long_one, .required_n = 1}, "pieces"},
    };
    const char *src[WISHES * 2];
    struct heed_wish wish[WISHES * 2] = {{0}};
    for (int i = 0; i < WISHES; i++) {
        src[2 * i] = i == WISHES - 1 ? whole : i == 10 ? "" : text[i];
        src[2 * i + 1] = text[i + 1];
        wish[2 * i] = wrong[i].wish;
    }
    struct heed_error err = {0};
    struct heed_translate_options o = heed_translate_defaults();
    o.nbest = NBEST;
    o.align = true;
    struct heed_session *s = heed_session_open(model, &o, &err), *alone = open_session();
    must(s ? HEED_OK : err.status, &err);
    const struct heed_result *out = NULL, *want = NULL;
    must(heed_translate_with(s, src, wish, WISHES * 2, &out, &err), &err);
    for (int i = 0; i < WISHES; i++) {
        const struct heed_result *r = &out[2 * i * NBEST];
        refused(r, HEED_EARG, wrong[i].why);
        assert_null(r[1].text);
        must(heed_translate(alone, src + 2 * i + 1, 1, &want, &err), &err);
        for (int k = 0; k < NBEST; k++) {
            assert_int_equal(r[NBEST + k].status, HEED_OK);
            assert_null(r[NBEST + k].why);
            assert_string_equal(r[NBEST + k].text, want[k].text);
            assert_true(r[NBEST + k].score == want[k].score);
        }
        assert_non_null(r[NBEST].alignment);
    }
    must(heed_rescore(s, (const char *[]){text[1], text[2]}, (const char *[]){far, "Zahl"}, 2, &out,
                      &err),
         &err);
    refused(&out[0], HEED_EARG, "expected at most 40");
    assert_true(out[NBEST].tokens > 0 && !out[NBEST].status);
    heed_session_free(s);
    heed_session_free(alone);
    /* what is required can only be searched for */
    o.temperature = 1;
    s = heed_session_open(model, &o, &err);
    must(s ? HEED_OK : err.status, &err);
    wish[0] = (struct heed_wish){.required = &zahl, .required_n = 1};
    must(heed_translate_with(s, src, wish, 2, &out, &err), &err);
    refused(&out[0], HEED_EARG, "temperature is 1");
    assert_true(out[NBEST].tokens > 0 && !out[NBEST].status);
    heed_session_free(s);
}

/* ---- numbers that are not finite ---- */

/* A copy of the model with every weight multiplied. */
static const char *model_scaled(float by)
{
    struct heed_error err = {0};
    struct safetensors *f = NULL;
    char command[400];
    snprintf(command, sizeof command, "rm -rf %s && cp -r %s %s", at("scaled"), at("model"),
             at("scaled"));
    assert_int_equal(system(command), 0);
    must(safetensors_open(&f, at("model/model.safetensors"), &err), &err);
    int n = safetensors_count(f);
    struct tensor *t = malloc((size_t)n * sizeof *t);
    for (int i = 0; i < n; i++) {
        t[i] = *safetensors_at(f, i);
        float *v = malloc(t[i].bytes);
        for (size_t k = 0; k < t[i].bytes / sizeof *v; k++)
            v[k] = fmaxf(-3e38f, fminf(((const float *)t[i].data)[k] * by, 3e38f));
        t[i].data = v;
    }
    must(safetensors_write(at("scaled/model.safetensors"), t, n, &err), &err);
    for (int i = 0; i < n; i++) free((float *)t[i].data);
    free(t);
    safetensors_free(f);
    return at("scaled");
}

/* Finite weights so large that sums of their products are not: no translation has such scores. */
static void test_huge_weights(void **state)
{
    (void)state;
    if (device_named()) skip();
    const float by[] = {1e6f, 1e20f, 1e30f, 3e38f};
    for (int i = 0; i < 4 * 3; i++) {
        struct heed_error err = {0};
        struct heed_translate_options o = heed_translate_defaults();
        o.align = true;
        o.temperature = i % 3 == 2 ? 1 : 0;
        struct heed_model *m = heed_model_load(engine, model_scaled(by[i / 3]),
                                               i % 3 ? HEED_WEIGHTS_F32 : HEED_WEIGHTS_BF16, &err);
        struct heed_session *s = m ? heed_session_open(m, &o, &err) : NULL;
        must(s ? HEED_OK : err.status, &err);
        const struct heed_result *out = NULL;
        for (int scored = 0; scored < 2; scored++) {
            const char *src[] = {text[1], text[2], ""}, *tgt[] = {text[3], text[4], text[5]};
            must(scored ? heed_rescore(s, src, tgt, 3, &out, &err)
                        : heed_translate(s, src, 3, &out, &err),
                 &err);
            for (int k = 0; k < 3; k++) {
                assert_true(isfinite(out[k].score) && isfinite(out[k].logp));
                for (int j = 0; j < out[k].tokens; j++) assert_true(isfinite(out[k].token_logp[j]));
                if (i / 3 && (k < 2 || scored)) refused(&out[k], HEED_ENUMERIC, "finite");
            }
        }
        struct heed_attention *a = NULL;
        if (i / 3) assert_int_equal(heed_attention_of(s, text[1], NULL, &a, &err), HEED_ENUMERIC);
        heed_attention_free(a);
        heed_session_free(s);
        heed_model_free(m);
    }
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
    must(align_text(&a, &p, t, 0, 0, &attention, &r, &err), &err);
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
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_huge_weights),
        cmocka_unit_test(test_lengths),   cmocka_unit_test(test_language),
        cmocka_unit_test(test_alignment), cmocka_unit_test(test_links),
        cmocka_unit_test(test_attention),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
