/*
 * test_session.c - sessions through heed.h: two threads with one model, requests of all kinds in
 * one call and one by one, empty texts, texts longer than the model takes, constraints, alignments.
 * On a device (device.h) those that do not compare batches of different sizes to the last bit.
 */
#include "small_model.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>

#include "decode/align.h"
#include "decode/join.h"
#include "decode/session.h"
#include "store/safetensors.h"
#include "tokens/tokenizer.h"

enum { TEXTS = 60, ROUNDS = 4, NBEST = 3 };

static struct heed_engine *engine;
static struct heed_model *model;
static char source[TEXTS][64];
static const char *text[TEXTS];

/* A small model, trained a little to read numbers out digit by digit. */
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
    struct heed_session *s = heed_session_open(model, NULL, &err);
    must(s ? HEED_OK : err.status, &err);
    return s;
}

/* The beam of the defaults, and NBEST translations. */
static const struct heed_translate_options several = {
    .beam = 4, .nbest = NBEST, .length_penalty = 0.6f};

/* Translates n texts with the same options, in one call. */
static const struct heed_answer *translate(struct heed_session *s, const char *const *src, int n,
                                           const struct heed_translate_options *o)
{
    struct heed_error err = {0};
    struct heed_request request[TEXTS];
    const struct heed_answer *out = NULL;
    assert_in_range(n, 0, TEXTS);
    for (int i = 0; i < n; i++) request[i] = (struct heed_request){.text = src[i], .options = o};
    must(heed_translate(s, request, n, &out, &err), &err);
    return out;
}

/* The answer to one request. */
static const struct heed_answer *ask(struct heed_session *s, struct heed_request request)
{
    struct heed_error err = {0};
    const struct heed_answer *out = NULL;
    must(heed_translate(s, &request, 1, &out, &err), &err);
    return out;
}

/* Whether two answers are the same to the last bit. No assertion: for any thread. */
static bool is_same(const struct heed_answer *a, const struct heed_answer *b)
{
    bool same = a->n == b->n && a->status == b->status && !a->why == !b->why &&
                (!a->why || !strcmp(a->why, b->why));
    for (int i = 0; i < a->n && same; i++) {
        const struct heed_result *x = &a->result[i], *y = &b->result[i];
        same = !strcmp(x->text, y->text) && x->len == y->len && x->tokens == y->tokens &&
               x->score == y->score && x->logp == y->logp && x->flags == y->flags &&
               x->copied_n == y->copied_n && x->left_out_n == y->left_out_n &&
               !x->alignment == !y->alignment;
        for (int k = 0; k < x->tokens && same; k++)
            same = x->id[k] == y->id[k] && x->token_logp[k] == y->token_logp[k];
        const struct heed_alignment *v = x->alignment, *w = y->alignment;
        same = same && (!v || (v->sources == w->sources && v->targets == w->targets));
        for (int k = 0; v && same && k < v->targets; k++) same = v->link[k] == w->link[k];
    }
    return same;
}

/* ---- two threads ---- */

struct worker {
    pthread_t thread;
    struct heed_session *s;
    const struct heed_answer *want;
    int step; /* texts per call */
    int wrong;
};

/* No assertions in threads: cmocka's can only leave the main thread. */
static void *work(void *arg)
{
    struct worker *w = arg;
    struct heed_request request[TEXTS];
    for (int i = 0; i < TEXTS; i++)
        request[i] = (struct heed_request){.text = text[i], .options = &several};
    for (int round = 0; round < few(ROUNDS, 1); round++)
        for (int i = 0; i < TEXTS; i += w->step) {
            const struct heed_answer *out = NULL;
            int n = TEXTS - i < w->step ? TEXTS - i : w->step;
            if (heed_translate(w->s, request + i, n, &out, NULL)) return w->wrong++, NULL;
            for (int k = 0; k < n; k++) w->wrong += !is_same(&out[k], &w->want[i + k]);
        }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct heed_session *alone = open_session();
    const struct heed_answer *want = translate(alone, text, TEXTS, &several);
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

/* ---- different requests in one call ---- */

/* Requests that have as little in common as possible; text i of every kind. */
static struct heed_request mixed(int i)
{
    enum { KINDS = 14 };
    static const char *const required[] = {"geht. 77", "kommt"}, *const banned[] = {"Zahl"};
    static char whole[2048];
    static const struct heed_translate_options option[] = {
        {.beam = 1, .nbest = 1},
        {.beam = 16, .nbest = 16, .length_penalty = 1},
        {.beam = 8, .nbest = 2, .length_penalty = 0.6f, .align = true},
        {.beam = 3, .nbest = 3, .temperature = 1, .seed = 5},
        {.beam = 1, .nbest = 1, .temperature = 2, .top_k = 7, .seed = 5, .align = true},
        {.beam = 5, .nbest = 5, .temperature = 1, .top_p = 0.5f},
        {.beam = 4, .nbest = 1, .length_penalty = 0.6f, .to = "de", .align = true},
        {.beam = 2, .nbest = 2, .length_penalty = 0.6f, .to = "zh"},
        {.beam = 4, .nbest = 4, .length_penalty = 0.6f, .no_repeat_ngram = 2},
        {.beam = 4, .nbest = 1, .min_length = 20, .max_length = 30},
        {.beam = 4, .nbest = 1, .max_length = 3},
        {.beam = 0, .nbest = 1},             /* wrong */
        {.beam = 4, .nbest = 1, .to = "fr"}, /* wrong */
    };
    struct heed_request r = {.text = text[i]};
    if (!whole[0])
        for (int k = 0; k < 12; k++) strcat(whole, k ? " It goes and goes." : "Number 1 comes.");
    if (i % KINDS) r.options = &option[i % KINDS - 1];
    if (i % 5 == 1) r.prefix = "Sie geht";
    if (i % 7 == 2) r.required = required, r.required_n = 2;
    if (i % 4 == 3) r.banned = banned, r.banned_n = 1;
    if (i % 6 == 4)
        r = (struct heed_request){.text = text[i], .options = r.options, .given = text[0]};
    if (i % 11 == 0) r.text = whole;
    if (i % 17 == 5) r.text = "";
    return r;
}

/* Each answer is the one that the request has alone, whatever shares its batch. */
static void test_mixed(void **state)
{
    (void)state;
    if (device_named()) skip();
    struct heed_error err = {0};
    struct heed_session *s = open_session(), *alone = open_session();
    struct heed_request request[TEXTS];
    const struct heed_answer *out = NULL;
    int refused = 0, linked = 0, found = 0;
    for (int i = 0; i < TEXTS; i++) request[i] = mixed(i);
    must(heed_translate(s, request, TEXTS, &out, &err), &err);
    for (int i = 0; i < TEXTS; i++) {
        if (!is_same(&out[i], ask(alone, request[i]))) fail_msg("request %d is not as alone", i);
        refused += out[i].status != HEED_OK;
        linked += out[i].result->alignment != NULL;
        found += out[i].n;
        assert_non_null(out[i].result->text);
    }
    assert_in_range(refused, 8, TEXTS / 2);
    assert_in_range(linked, 8, TEXTS);
    assert_in_range(found, 2 * TEXTS, 4 * TEXTS);
    heed_session_free(s);
    heed_session_free(alone);
}

/* ---- the hypotheses of a search ---- */

/* The nodes from a result's last token to its first are its tokens. */
static void check_path(const struct heed_answer *a, int rank)
{
    const struct heed_result *r = &a->result[rank];
    double sum = 0;
    int n = r->tokens, last = 0;
    while (last < a->beams && a->beam[last].result != rank) last++;
    assert_true(last < a->beams);
    assert_true(a->beam[last].score == r->score);
    for (int i = last; i >= 0; i = a->beam[i].parent) {
        assert_true(n > 0);
        assert_int_equal(a->beam[i].id, r->id[--n]);
        assert_true(a->beam[i].logp == r->token_logp[n] && a->beam[i].kept);
        sum += (double)a->beam[i].logp;
    }
    assert_int_equal(n, 0);
    assert_true(fabs(sum - (double)r->logp) < 1e-5 * fmax(1, -sum));
}

/* Every step has at most `beam` hypotheses that live on and `beam` that do not, best first unless
 * `turns`: they are sampled, or required phrases have an order of their own. */
static void check_steps_of(const struct heed_answer *a, int beam, bool turns, int32_t eos)
{
    int *depth = calloc((size_t)a->beams + 1, sizeof *depth), kept = 0, fell = 0, results = 0;
    for (int i = 0; i < a->beams; i++) {
        const struct heed_beam_node *x = &a->beam[i],
                                    *parent = x->parent < 0 ? NULL : x + x->parent - i;
        assert_in_range(x->parent + 1, 0, i);
        depth[i] = parent ? depth[x->parent] + 1 : 0;
        bool same = i && depth[i] == depth[i - 1];
        assert_true(!i || same || depth[i] == depth[i - 1] + 1);
        if (!same) kept = fell = 0;
        if (same && !turns) assert_true(x->score <= x[-1].score && x->kept <= x[-1].kept);
        assert_true(!parent || (parent->kept && !parent->finished));
        assert_true(x->finished == (x->id == eos));
        kept += x->kept && !x->finished;
        fell += !x->kept;
        results += x->result >= 0;
        assert_true(kept <= beam && fell <= beam);
    }
    assert_int_equal(results, a->n);
    free(depth);
}

/* The trace of a search shows how its results came about, and changes none of them. */
static void test_trace(void **state)
{
    (void)state;
    if (device_named()) skip();
    struct heed_session *s = open_session(), *plain = open_session();
    int32_t eos = tokenizer_eos(heed_model_tokenizer(model));
    int traced = 0, fell = 0;
    for (int i = 0; i < TEXTS; i++) {
        struct heed_request r = mixed(i);
        const struct heed_answer *without = ask(plain, r);
        assert_null(without->beam);
        assert_int_equal(without->beams, 0);
        struct heed_translate_options o = r.options ? *r.options : heed_translate_defaults();
        o.trace = true;
        r.options = &o;
        const struct heed_answer *a = ask(s, r);
        assert_true(is_same(a, without));
        if (!a->beam) continue; /* nothing was searched for, or several sentences */
        for (int k = 0; k < a->n; k++) check_path(a, k);
        check_steps_of(a, r.given ? 1 : o.beam, r.required_n || o.temperature > 0, eos);
        for (int k = 0; k < a->beams; k++) fell += !a->beam[k].kept;
        traced++;
    }
    assert_in_range(traced, TEXTS / 2, TEXTS);
    assert_true(fell > traced);
    heed_session_free(s);
    heed_session_free(plain);
}

/* ---- requests that come one by one ---- */

/* Takes the answers that are there; returns how many. */
static int take_answers(struct heed_session *s, struct heed_session *alone,
                        const struct heed_request *request, bool *answered)
{
    const void *user;
    const struct heed_answer *a;
    int n = 0;
    for (; (a = heed_finished(s, &user)); n++) {
        const struct heed_request *r = user;
        assert_false(answered[r - request]);
        answered[r - request] = true;
        if (!is_same(a, ask(alone, *r))) fail_msg("request %d is not as alone", (int)(r - request));
    }
    return n;
}

/* Requests of all kinds come while others are under way, and every tenth is cancelled; one call of
 * heed_translate comes between them. */
static void test_submitted(void **state)
{
    (void)state;
    if (device_named()) skip();
    struct heed_error err = {0};
    struct heed_session *s = open_session(), *alone = open_session();
    struct heed_request request[TEXTS];
    bool answered[TEXTS] = {0};
    int cancelled = 0, found = 0;
    for (int i = 0; i < TEXTS; i++) {
        request[i] = mixed(i);
        must(heed_submit(s, &request[i], &request[i], &err), &err);
        for (int k = 0; k < i % 4; k++) must(heed_advance(s, &err), &err);
        if (i % 10 == 9 && !answered[i - 2]) {
            heed_cancel(s, &request[i - 2]);
            answered[i - 2] = true;
            cancelled++;
        }
        if (i == TEXTS / 2) assert_true(is_same(ask(s, request[3]), ask(alone, request[3])));
        found += take_answers(s, alone, request, answered);
    }
    for (int i = 0; i < 1000 && found + cancelled < TEXTS; i++) {
        must(heed_advance(s, &err), &err);
        found += take_answers(s, alone, request, answered);
    }
    assert_int_equal(found + cancelled, TEXTS);
    assert_in_range(cancelled, 1, TEXTS / 10);
    assert_int_equal(heed_submit(s, &(struct heed_request){0}, NULL, &err), HEED_EARG);
    heed_session_free(s);
    heed_session_free(alone);
}

/* A short sentence that comes while one of 60 tokens is under way is answered before it, by the
 * default model, because the small one takes 40 tokens. */
static void test_overtaking(void **state)
{
    (void)state;
    if (device_named()) skip();
    struct heed_error err = {0};
    struct heed_engine *cpu = heed_engine_open(device_cpu(), 2, &err);
    must(cpu ? HEED_OK : err.status, &err);
    struct heed_model *m = heed_model_load(cpu, "models/default", HEED_WEIGHTS_AS_STORED, &err);
    must(m ? HEED_OK : err.status, &err);
    struct heed_session *s = heed_session_open(m, NULL, &err);
    must(s ? HEED_OK : err.status, &err);
    struct heed_translate_options quick = heed_translate_defaults(), slow = quick;
    slow.to = quick.to = "de";
    slow.min_length = 60;
    struct heed_request first = {.text = "A dog runs through the city.", .options = &slow};
    struct heed_request second = {.text = "Good morning!", .options = &quick};
    const struct heed_answer *answer = NULL;
    const void *user = NULL;
    must(heed_submit(s, &first, &first, &err), &err);
    for (int i = 0; i < 5; i++) must(heed_advance(s, &err), &err);
    must(heed_submit(s, &second, &second, &err), &err);
    for (const void *expected = &second; expected; expected = expected == &second ? &first : NULL) {
        do {
            must(heed_advance(s, &err), &err);
        } while (!(answer = heed_finished(s, &user)));
        assert_ptr_equal(user, expected);
    }
    assert_true(answer->result[0].tokens >= 60);
    heed_session_free(s);
    heed_model_free(m);
    heed_engine_free(cpu);
}

/* A sentence that comes while a long text is under way waits for room, not for the text. */
static void test_long_text_gives_way(void **state)
{
    (void)state;
    enum { SENTENCES = 60, LONGEST = 40 };
    struct heed_error err = {0};
    const struct heed_session_options two = {.batch_tokens = 64}; /* beams of 4 at once */
    struct heed_session *s = heed_session_open(model, &two, &err);
    must(s ? HEED_OK : err.status, &err);
    static char whole[SENTENCES * 32];
    for (int i = 0; i < SENTENCES; i++) strcat(whole, i ? " It goes and goes." : "Number 1 comes.");
    struct heed_request first = {.text = whole}, second = {.text = text[1]};
    const void *user = NULL;
    int steps = 0, all;
    must(heed_submit(s, &first, &first, &err), &err);
    for (int i = 0; i < 3; i++) must(heed_advance(s, &err), &err);
    must(heed_submit(s, &second, &second, &err), &err);
    for (; !user; steps++) {
        must(heed_advance(s, &err), &err);
        heed_finished(s, &user);
    }
    assert_ptr_equal(user, &second);
    for (user = NULL, all = steps; !user; all++) {
        must(heed_advance(s, &err), &err);
        heed_finished(s, &user);
    }
    assert_ptr_equal(user, &first);
    assert_true(steps <= 2 * LONGEST && all > 4 * steps);
    heed_session_free(s);
}

/* ---- translations that are not finished ---- */

/* A greedy search never takes back a token, so every partial text is the beginning of the next, and
 * the last one that of the translation; of one sentence, all of it. */
static void check_growing(struct heed_session *s, const char *src, bool one)
{
    static const struct heed_translate_options greedy = {
        .beam = 1, .nbest = 1, .no_repeat_ngram = 3};
    struct heed_error err = {0};
    struct heed_request request = {.text = src, .options = &greedy};
    const struct heed_answer *a = NULL;
    const void *user;
    char before[4096] = "";
    int grown = 0;
    must(heed_submit(s, &request, &request, &err), &err);
    for (const char *partial; (partial = heed_partial(s, &request));) {
        size_t len = strlen(before);
        assert_int_equal(strncmp(partial, before, len), 0);
        grown += strlen(partial) > len;
        snprintf(before, sizeof before, "%s", partial);
        must(heed_advance(s, &err), &err);
    }
    while ((a = heed_finished(s, &user)) && user != &request) continue;
    assert_non_null(a);
    assert_true(grown > 3);
    assert_int_equal(strncmp(a->result->text, before, strlen(before)), 0);
    if (one) assert_string_equal(a->result->text, before);
}

static void test_partial(void **state)
{
    (void)state;
    struct heed_error err = {0};
    struct heed_session *s = open_session();
    char whole[2048] = "";
    for (int i = 0; i < 12; i++) strcat(strcat(whole, i ? " " : ""), text[i]);
    check_growing(s, text[1], true);
    check_growing(s, whole, false); /* sentence by sentence */
    /* others are under way, and are not mixed up */
    struct heed_request request[2] = {{.text = text[0]}, {.text = whole}};
    for (int i = 0; i < 2; i++) must(heed_submit(s, &request[i], &request[i], &err), &err);
    assert_string_equal(heed_partial(s, &request[0]), "");
    for (int i = 0; i < 6; i++) must(heed_advance(s, &err), &err);
    assert_true(strlen(heed_partial(s, &request[0])) > 0);
    check_growing(s, text[2], true);
    heed_cancel(s, &request[1]);
    assert_null(heed_partial(s, &request[1]));
    assert_null(heed_partial(s, s));
    assert_null(heed_partial(NULL, s));
    heed_session_free(s);
}

/* ---- odd texts ---- */

static void test_nothing(void **state)
{
    (void)state;
    struct heed_session *s = open_session();
    translate(s, NULL, 0, NULL);
    const char *const src[] = {"", text[1], " \t\u3000"};
    const struct heed_answer *out = translate(s, src, 3, &several);
    for (int i = 0; i < 3; i += 2) {
        assert_int_equal(out[i].n, 1);
        assert_string_equal(out[i].result->text, "");
        assert_int_equal(out[i].result->tokens, 0);
        assert_int_equal(out[i].status, HEED_OK);
    }
    assert_true(out[1].n > 1 && out[1].result->tokens > 1);
    heed_session_free(s);
}

/* A long text is translated sentence by sentence, with the white space between them; its scores are
 * sums. */
static void test_long_text(void **state)
{
    (void)state;
    if (device_named()) skip();
    struct heed_session *s = open_session();
    const char *one[] = {"Number 123 comes to me.", "Number 4567 goes with me.",
                         "Number 89 comes and goes."};
    char whole[4096] = "", want[4096] = "";
    const struct heed_answer *out = translate(s, one, 3, &several);
    float score = 0;
    for (int i = 0; i < 12; i++) {
        const char *gap = i == 0 ? "" : i == 5 ? "  " : " ";
        strcat(strcat(whole, gap), one[i % 3]);
        strcat(strcat(want, gap), out[i % 3].result->text);
        score += out[i % 3].result->score;
    }
    out = ask(s, (struct heed_request){.text = whole, .options = &several});
    assert_string_equal(out->result->text, want);
    assert_true(out->result->score == score);
    /* one sentence, longer than the model takes, is cut */
    memset(whole, 'x', 2000);
    whole[2000] = '\0';
    out = ask(s, (struct heed_request){.text = whole});
    assert_true(out->result->len > 0);
    heed_session_free(s);
}

/* ---- constraints ---- */

static void test_constraints(void **state)
{
    (void)state;
    if (device_named()) skip();
    struct heed_error err = {0};
    struct heed_session *s = open_session(), *alone = open_session();
    const struct heed_answer *out = NULL;
    struct heed_request request[3] = {
        {.prefix = "Sie geht"},
        {.required = (const char *[]){"geht. 77", "kommt"}, .required_n = 2},
        {.banned = (const char *[]){"Zahl"}, .banned_n = 1},
    };
    for (int i = 0; i < 3; i++) request[i].text = text[1], request[i].options = &several;
    must(heed_translate(s, request, 3, &out, &err), &err);
    assert_int_equal(strncmp(out[0].result->text, "Sie geht", strlen("Sie geht")), 0);
    assert_non_null(strstr(out[1].result->text, "geht. 77"));
    assert_non_null(strstr(out[1].result->text, "kommt"));
    for (int k = 0; k < out[2].n; k++) assert_null(strstr(out[2].result[k].text, "Zahl"));
    for (int i = 0; i < 3; i++) assert_true(is_same(&out[i], ask(alone, request[i])));
    heed_session_free(s);
    heed_session_free(alone);
}

static void refused(const struct heed_answer *a, enum heed_status status, const char *why)
{
    assert_int_equal(a->status, status);
    if (!a->why || !strstr(a->why, why)) fail_msg("\"%s\" does not say \"%s\"", a->why, why);
    assert_int_equal(a->n, 1);
    assert_string_equal(a->result->text, "");
    assert_int_equal(a->result->tokens, 0);
    assert_null(a->result->alignment);
}

/* A text that cannot be translated as asked does not stop the others, nor change them. */
static void test_refused(void **state)
{
    (void)state;
    if (device_named()) skip();
    enum { MANY = 17, WRONG = 17 };
    static const struct heed_translate_options drawn = {.beam = 1, .nbest = 1, .temperature = 1};
    static const struct heed_translate_options wide = {.beam = 65, .nbest = 1};
    struct heed_translate_options linked = several;
    linked.align = true;
    const char *many[257], *nothing = NULL, *empty = "", *zahl = "Zahl", *long_one = "geht geht";
    for (int i = 0; i < 257; i++) many[i] = "x";
    char far[400] = "", whole[400] = "";
    for (int i = 0; i < 40; i++) strcat(far, "kommt 7 ");
    for (int i = 0; i < 12; i++) strcat(whole, "Number 1 comes to me. ");
    const struct {
        struct heed_request request;
        const char *why;
    } wrong[WRONG] = {
        {{.required = many, .required_n = MANY}, "17 phrases are required"},
        {{.banned = many, .banned_n = 257}, "257 banned"},
        {{.required = many, .required_n = -1}, "-1 phrases are required"},
        {{.banned = many, .banned_n = INT_MIN}, "-2147483648 banned"},
        {{.required = NULL, .required_n = 1}, "required is NULL"},
        {{.banned = NULL, .banned_n = 1}, "banned is NULL"},
        {{.required = &nothing, .required_n = 1}, "required[0] is NULL"},
        {{.banned = &nothing, .banned_n = 1}, "banned[0] is NULL"},
        {{.banned = &empty, .banned_n = 1}, "empty"},
        {{.prefix = far}, "expected at most 40"},
        {{.text = "", .prefix = "Die Zahl 4", .banned = &zahl, .banned_n = 1},
         "but the prefix \"Die Zahl 4\""},
        {{.required = &zahl, .banned = &zahl, .required_n = 1, .banned_n = 1}, "but required"},
        {{.text = whole, .required = &long_one, .required_n = 1}, "pieces"},
        {{.given = far}, "expected at most 40"},
        {{.given = "Zahl", .banned = &zahl, .banned_n = 1}, "a translation is given"},
        {{.required = &zahl, .required_n = 1, .options = &drawn}, "temperature is 1"},
        {{.options = &wide}, "beam is 65, expected 1 to 64"},
    };
    struct heed_request request[WRONG * 2] = {{0}};
    for (int i = 0; i < WRONG; i++) {
        request[2 * i] = wrong[i].request;
        if (!request[2 * i].text) request[2 * i].text = text[i];
        if (!request[2 * i].options) request[2 * i].options = &linked;
        request[2 * i + 1] = (struct heed_request){.text = text[i + 1], .options = &linked};
    }
    struct heed_error err = {0};
    struct heed_session *s = open_session(), *alone = open_session();
    const struct heed_answer *out = NULL;
    must(heed_translate(s, request, WRONG * 2, &out, &err), &err);
    for (int i = 0; i < WRONG; i++) {
        refused(&out[2 * i], HEED_EARG, wrong[i].why);
        assert_non_null(out[2 * i + 1].result->alignment);
        assert_true(is_same(&out[2 * i + 1], ask(alone, request[2 * i + 1])));
    }
    heed_session_free(s);
    heed_session_free(alone);
}

/* What a search found has the same scores when it is given. */
static void test_given(void **state)
{
    (void)state;
    if (device_named()) skip();
    struct heed_session *s = open_session(), *again = open_session();
    const struct heed_answer *out = translate(s, text, TEXTS, &several);
    int same = 0;
    for (int i = 0; i < TEXTS; i++) {
        const struct heed_result *r = out[i].result;
        const struct heed_answer *a = ask(
            again, (struct heed_request){.text = text[i], .options = &several, .given = r->text});
        assert_int_equal(a->n, 1);
        assert_string_equal(a->result->text, r->text);
        if (a->result->tokens != r->tokens) continue; /* the vocabulary spells it otherwise */
        if (memcmp(a->result->id, r->id, r->tokens * sizeof *r->id)) continue;
        assert_true(a->result->score == r->score && a->result->logp == r->logp);
        same++;
    }
    assert_in_range(same, TEXTS / 2, TEXTS);
    heed_session_free(s);
    heed_session_free(again);
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

/* Weights are finite but so large that scores are not: such texts get an error, not a translation.
 */
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
        struct heed_session *s = m ? heed_session_open(m, NULL, &err) : NULL;
        must(s ? HEED_OK : err.status, &err);
        const struct heed_answer *out = NULL;
        struct heed_request request[6] = {{.text = text[1]},
                                          {.text = text[2]},
                                          {.text = ""},
                                          {.text = text[1], .given = text[3]},
                                          {.text = text[2], .given = text[4]},
                                          {.text = "", .given = text[5]}};
        for (int k = 0; k < 6; k++) request[k].options = &o;
        must(heed_translate(s, request, 6, &out, &err), &err);
        for (int k = 0; k < 6; k++) {
            const struct heed_result *r = out[k].result;
            assert_true(isfinite(r->score) && isfinite(r->logp));
            for (int j = 0; j < r->tokens; j++) assert_true(isfinite(r->token_logp[j]));
            if (i / 3 && k != 2) refused(&out[k], HEED_ENUMERIC, "finite");
        }
        struct heed_attention *a = NULL;
        if (i / 3) assert_int_equal(heed_attention_of(s, request, &a, &err), HEED_ENUMERIC);
        heed_attention_free(a);
        heed_session_free(s);
        heed_model_free(m);
    }
}

static void test_lengths(void **state)
{
    (void)state;
    struct heed_translate_options o = heed_translate_defaults();
    struct heed_session *s = open_session();
    o.max_length = 3;
    const struct heed_answer *out = translate(s, text, TEXTS, &o);
    for (int i = 0; i < TEXTS; i++) assert_in_range(out[i].result->tokens, 1, 3);
    o.min_length = 20;
    refused(translate(s, text, 1, &o), HEED_EARG, "min length is 20");
    o.max_length = 0;
    out = translate(s, text, TEXTS, &o);
    for (int i = 0; i < TEXTS; i++) assert_in_range(out[i].result->tokens, 21, 60);
    heed_session_free(s);
}

/* Whether a translation has the same three tokens in a row twice. */
static bool repeats(const struct heed_result *r)
{
    for (int i = 0; i + 3 <= r->tokens; i++)
        for (int k = i + 1; k + 3 <= r->tokens; k++)
            if (!memcmp(r->id + i, r->id + k, 3 * sizeof *r->id)) return true;
    return false;
}

/* A translation that repeats itself is searched for once more, without repeats. */
static void test_second_search(void **state)
{
    (void)state;
    struct heed_translate_options o = heed_translate_defaults();
    struct heed_session *s = open_session();
    o.min_length = 34; /* longer than any translation without repeats */
    const struct heed_answer *out = translate(s, text, TEXTS, &o);
    int mended = 0;
    for (int i = 0; i < TEXTS; i++) {
        const struct heed_result *r = out[i].result;
        if (!(r->flags & HEED_FLAG_RETRIED) || (r->flags & (HEED_FLAG_LOOP | HEED_FLAG_CUT)))
            continue;
        mended++;
        assert_false(repeats(r));
    }
    assert_in_range(mended, 1, TEXTS);
    heed_session_free(s);
}

static void test_languages(void **state)
{
    (void)state;
    const char *const *language = NULL;
    assert_int_equal(heed_model_languages(model, &language), 2);
    assert_string_equal(language[0], "de");
    assert_string_equal(language[1], "zh");
    assert_int_equal(heed_model_languages(NULL, &language), 0);
    assert_int_equal(heed_model_languages(model, NULL), 0);
}

/* A tag is part of the source: it changes the translation, and must be one that the vocabulary has.
 */
static void test_language(void **state)
{
    (void)state;
    if (device_named()) skip();
    struct heed_translate_options o = heed_translate_defaults();
    char whole[2048] = "", by_hand[128];
    for (int i = 0; i < 12; i++) strcat(whole, i ? " It goes and goes." : "Number 1 comes.");
    struct heed_session *a = open_session(), *b = open_session();
    o.to = "de";
    const struct heed_answer *tagged = translate(b, (const char *[]){text[1], whole}, 2, &o);
    assert_int_equal(tagged[1].status, HEED_OK);
    snprintf(by_hand, sizeof by_hand, ">>de<< %s", text[1]);
    const struct heed_answer *typed = translate(a, (const char *[]){by_hand, text[1]}, 2, NULL);
    assert_true(is_same(&typed[0], &tagged[0]));
    assert_true(typed[1].result->score != tagged[0].result->score);
    o.to = "fr";
    refused(translate(a, text, 1, &o), HEED_EARG, ">>fr<<");
    refused(translate(a, text, 1, &o), HEED_EARG, ">>de<< >>zh<<");
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
    struct heed_translate_options o = heed_translate_defaults();
    char whole[2048] = "";
    const char *some[] = {text[1], "", whole, "broken \xff text"};
    o.align = true;
    o.to = "de";
    for (int i = 0; i < 12; i++) strcat(whole, i ? " It goes and goes." : "Number 1 comes.");
    struct heed_session *s = open_session();
    const struct heed_answer *out = translate(s, some, 4, &o);
    for (int i = 0; i < 3; i++) {
        const struct heed_result *r = out[i].result;
        const struct heed_alignment *a = r->alignment;
        assert_non_null(a);
        check_words(a->source, a->sources, some[i]);
        check_words(a->target, a->targets, r->text);
        for (int k = 0; k < a->targets; k++) assert_in_range(a->link[k], 0, a->sources - 1);
        double sum = 0;
        for (int k = 0; k < r->tokens; k++) sum += (double)r->token_logp[k];
        assert_true(fabs(sum - (double)r->logp) < 1e-4 * fmax(1, -sum));
    }
    const struct heed_result *first = out->result;
    assert_int_equal(first->alignment->sources, 7);
    assert_string_equal(
        heed_tokenizer_piece(heed_model_tokenizer(model), first->id[first->tokens - 1]), "</s>");
    assert_null(out[3].result->alignment);
    heed_session_free(s);
}

/* A word is linked to the word that its tokens attend to, however many tokens both have. */
static void test_links(void **state)
{
    (void)state;
    enum { WORDS = 3 };
    static const char *const word[] = {"Number", "comes", "Zahl"};
    static const int map[WORDS] = {2, 0, 1};
    const struct heed_translate_options o = {.beam = 1, .nbest = 1, .to = "de"};
    const struct heed_request request = {.text = "Number comes Zahl", .options = &o};
    const struct heed_tokenizer *t = heed_model_tokenizer(model);
    struct heed_error err = {0};
    size_t start[WORDS + 1];
    struct heed_ids ids = {0};
    for (int i = 0; i < WORDS; i++) {
        start[i] = ids.n;
        must(heed_encode(t, word[i], strlen(word[i]), &ids, &err), &err);
    }
    size_t n = start[WORDS] = ids.n;
    assert_true(n > WORDS); /* some are of several tokens */
    struct pieces p = {0};
    must(pieces_fill(&p, t, 40, &request, &err), &err);
    size_t tag = p.tag.n, stride = n + tag;
    assert_true(tag > 0);
    assert_int_equal(p.sentence[0].src.n, stride);
    p.out[0] = (struct translation){.ids = {malloc(n * sizeof *ids.v), n, 0},
                                    .token_score = calloc(n, sizeof(float))};
    memcpy(p.out[0].ids.v, ids.v, n * sizeof *ids.v);
    float *attention = calloc(n * stride, sizeof *attention);
    for (int w = 0; w < WORDS; w++)
        for (size_t j = start[w]; j < start[w + 1]; j++)
            attention[j * stride + tag + start[map[w] + 1] - 1] = 1; /* the last of its tokens */
    struct heed_result r = {0};
    struct heed_alignment *a = NULL;
    int found;
    must(text_join(&p, t, &r, &found, &err), &err);
    assert_int_equal(found, 1);
    assert_string_equal(r.text, request.text);
    must(align_text(&a, &p, t, &r, 0, &attention, &err), &err);
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

static float weight_at(const struct heed_attention_map *m, int layer, int head, int query, int key)
{
    return m->weight[(((size_t)layer * m->heads + head) * m->queries + query) * m->keys + key];
}

/* Every row is a distribution over the tokens that its query may see. */
static void check_rows(const struct heed_attention_map *m, bool causal)
{
    for (int l = 0; l < m->layers; l++)
        for (int h = 0; h < m->heads; h++)
            for (int q = 0; q < m->queries; q++) {
                double sum = 0;
                for (int k = 0; k < m->keys; k++) {
                    float w = weight_at(m, l, h, q, k);
                    if (causal && k > q) assert_true(w == 0);
                    sum += (double)w;
                }
                assert_true(fabs(sum - 1) < 1e-4);
            }
}

/* The search, given the translation as a whole, sees the same cross-attention step by step. */
static void check_steps(struct heed_session *s, const struct heed_attention_map *m,
                        struct heed_ids src, struct heed_ids tgt)
{
    struct heed_error err = {0};
    double tolerance = device_named() ? 1e-2 : 1e-5;
    for (int l = 0; l < m->layers; l++) {
        struct translation out = {0};
        struct sentence x = {.src = src,
                             .beam = {.width = 1, .nbest = 1},
                             .must = {.prefix = tgt},
                             .attention_layer = 1 + l,
                             .out = &out};
        must(search_run(s->search, &x, 1, &err), &err);
        const float *want = out.attention;
        assert_non_null(want);
        for (int q = 0; q < m->queries; q++)
            for (int h = 0; h < m->heads; h++)
                for (int k = 0; k < m->keys; k++, want++)
                    assert_true(fabs((double)weight_at(m, l, h, q, k) - (double)*want) < tolerance);
        translation_release(&out);
    }
}

static void test_attention(void **state)
{
    (void)state;
    struct heed_error err = {0};
    struct heed_session *s = open_session();
    struct heed_attention *a = NULL, *same = NULL;
    struct heed_request request = {.text = text[1]};
    struct heed_ids src = {0};
    must(heed_attention_of(s, &request, &a, &err), &err);
    const struct heed_result *r = ask(s, request)->result;
    const struct heed_attention_map *encoder = &a->map[HEED_USE_ENCODER],
                                    *decoder = &a->map[HEED_USE_DECODER],
                                    *cross = &a->map[HEED_USE_CROSS];
    assert_int_equal(cross->queries, r->tokens);
    assert_int_equal(decoder->queries, r->tokens);
    assert_int_equal(encoder->keys, cross->keys);
    assert_string_equal(encoder->query[cross->keys - 1], "</s>");
    assert_string_equal(cross->query[r->tokens - 1], "</s>");
    assert_string_equal(decoder->query[0], "<s>"); /* fed in: begin mark, then the translation */
    assert_string_equal(decoder->key[1], cross->query[0]);
    check_rows(encoder, false);
    check_rows(decoder, true);
    check_rows(cross, false);
    must(heed_encode(heed_model_tokenizer(model), text[1], strlen(text[1]), &src, &err), &err);
    assert_int_equal(cross->keys, src.n + 1);
    check_steps(s, cross, src, (struct heed_ids){(int32_t *)r->id, (size_t)r->tokens, 0});
    free(src.v);
    char found[256];
    snprintf(found, sizeof found, "%s", ask(s, request)->result->text);
    request.given = found;
    must(heed_attention_of(s, &request, &same, &err), &err);
    if (same->map[HEED_USE_CROSS].queries == cross->queries) /* unless it is spelled otherwise */
        assert_memory_equal(same->map[HEED_USE_CROSS].weight, cross->weight,
                            (size_t)cross->layers * cross->heads * cross->queries * cross->keys *
                                sizeof(float));
    heed_attention_free(a);
    heed_attention_free(same);
    heed_session_free(s);
}

int main(int argc, char **argv)
{
    device_or_skip();
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),       cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_long_text),     cmocka_unit_test(test_constraints),
        cmocka_unit_test(test_mixed),         cmocka_unit_test(test_submitted),
        cmocka_unit_test(test_overtaking),    cmocka_unit_test(test_given),
        cmocka_unit_test(test_second_search), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_huge_weights),  cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_language),      cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_links),         cmocka_unit_test(test_attention),
        cmocka_unit_test(test_partial),       cmocka_unit_test(test_languages),
        cmocka_unit_test(test_trace),         cmocka_unit_test(test_long_text_gives_way),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
