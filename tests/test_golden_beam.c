/*
 * test_golden_beam.c - beam search compared with a plain one in Python: tests/golden/beam.py wrote
 * the file.
 *
 * The same ids in the same order on each backend, all sentences at once or one at a time. The
 * script computes in double, and no two candidates that it chooses between are closer than f32 can
 * tell apart.
 *
 * Tolerances. Token log-probabilities and scores are within 1e-5; ref is 2e-6 off in the worst,
 * cpu 6e-6. The sum of up to 64 of the former is within 1e-5 of its size where that is over 1; cpu
 * is 1.3e-5 off in one of -42. On a device (device.h) they are within 1e-4, and so is what is
 * computed twice in batches of different size.
 */
#include <math.h>

#include "decode/search.h"
#include "device.h"
#include "golden.h"

enum {
    MAX_LENGTH = 64 /* as in the script */,
    SOURCES_MAX = 16,
    NBEST_MAX = 4,
    SOURCE_TOKENS = 256
};
static double tolerance = 1e-5, again = 0; /* again: of what was computed before */

struct golden {
    struct safetensors *file;
    struct toy toy;
    struct heed_ids src[SOURCES_MAX];
    int32_t ids[SOURCE_TOKENS]; /* of every source, end to end */
    int sources;
};

/* The expected results of one setup, for each source, output and token in turn. */
struct want {
    struct beam_options beam;
    int longest;
    const float *count, *len, *score, *logp, *ids, *token_score;
    size_t outputs, tokens;
};

/* ---- files ---- */

static const float *numbers(const struct safetensors *file, const char *name, size_t *n)
{
    const struct tensor *t = golden_find(file, name);
    *n = t->bytes / sizeof(float);
    return t->data;
}

static const float *wanted(const struct golden *g, int setup, const char *what, size_t n)
{
    char name[64];
    size_t found;
    snprintf(name, sizeof name, "%d.%s", setup, what);
    const float *v = numbers(g->file, name, &found);
    if (found != n) fail_msg("%s has %zu values, expected %zu", name, found, n);
    return v;
}

static size_t total(const float *v, size_t n)
{
    size_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += (size_t)v[i];
    return sum;
}

static int setups(const struct golden *g)
{
    const struct tensor *t = golden_find(g->file, "options");
    assert_true(t->dims == 2 && t->shape[0] > 0 && t->shape[1] == 4);
    return (int)t->shape[0];
}

static void want_read(struct want *w, const struct golden *g, int setup)
{
    const float *o = (const float *)golden_find(g->file, "options")->data + 4 * setup;
    w->beam = (struct beam_options){.width = (int)o[0], .nbest = (int)o[1], .length_penalty = o[3]};
    w->longest = (int)o[2];
    assert_true(w->beam.nbest <= NBEST_MAX);
    w->count = wanted(g, setup, "count", g->sources);
    w->outputs = total(w->count, g->sources);
    w->len = wanted(g, setup, "len", w->outputs);
    w->score = wanted(g, setup, "score", w->outputs);
    w->logp = wanted(g, setup, "logp", w->outputs);
    w->tokens = total(w->len, w->outputs);
    w->ids = wanted(g, setup, "ids", w->tokens);
    w->token_score = wanted(g, setup, "token_score", w->tokens);
}

static void sources_read(struct golden *g)
{
    size_t n, tokens, at = 0;
    const float *len = numbers(g->file, "src_len", &n);
    const float *ids = numbers(g->file, "src", &tokens);
    assert_true(n > 0 && n <= SOURCES_MAX && tokens <= SOURCE_TOKENS);
    assert_int_equal(total(len, n), tokens);
    for (size_t i = 0; i < tokens; i++) g->ids[i] = (int32_t)ids[i];
    for (size_t i = 0; i < n; i++) {
        g->src[i] = (struct heed_ids){.v = g->ids + at, .n = (size_t)len[i]};
        at += g->src[i].n;
    }
    g->sources = (int)n;
}

/* The parameters of model.py, except those that beam.py changed. */
static void parameters_read(struct golden *g)
{
    struct parameters *p = g->toy.p;
    struct parameter list[GOLDEN_TENSORS];
    int tensors = parameters_list(&p->config, list, GOLDEN_TENSORS), changed = 0;
    struct safetensors *model = golden_file("tests/golden/model.safetensors");
    float *flat = golden_gather(p, model, "");
    for (int i = 0; i < tensors; i++) {
        const struct tensor *t = safetensors_find(g->file, list[i].name);
        if (!t) continue;
        assert_int_equal(t->bytes, (size_t)list[i].rows * list[i].cols * sizeof *flat);
        memcpy(flat + list[i].at, t->data, t->bytes);
        changed++;
    }
    assert_int_equal(changed, 3);
    golden_set(p, flat);
    free(flat);
    safetensors_free(model);
}

/* ---- comparison ---- */

static void check_near(const char *what, const char *where, double found, double want,
                       double within)
{
    if (!(fabs(found - want) <= within))
        fail_msg("%s: %s is %.9g, expected %.9g within %g", where, what, found, want, within);
}

/* Output number `output`, whose tokens begin at `token`. */
static void check_output(const struct translation *t, const struct want *w, size_t output,
                         size_t token, const char *where)
{
    size_t len = (size_t)w->len[output];
    bool ended = len && (int)w->ids[token + len - 1] == TOY_EOS;
    if (t->ids.n + t->ended != len || t->ended != ended)
        fail_msg("%s: has %zu tokens%s, expected %zu%s", where, t->ids.n + t->ended,
                 t->ended ? "" : ", cut", len, ended ? "" : ", cut");
    for (size_t i = 0; i < len; i++) {
        if (i < t->ids.n && t->ids.v[i] != (int)w->ids[token + i])
            fail_msg("%s: token %zu is %d, expected %d", where, i, t->ids.v[i],
                     (int)w->ids[token + i]);
        check_near("a token's log-probability", where, (double)t->token_score[i],
                   (double)w->token_score[token + i], tolerance);
    }
    double logp = (double)w->logp[output];
    check_near("log-probability", where, t->logp, logp, tolerance * fmax(1, fabs(logp)));
    check_near("score", where, t->score, (double)w->score[output], tolerance);
}

static void check_again(const float *found, const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++)
        check_near("a token's score", "given", (double)found[i], (double)want[i], again);
}

/* A translation is given whole once for each layer: their attentions are distributions over the
 * source, and not the same. */
static void check_attention(struct search *search, const struct golden *g, struct heed_ids ids,
                            int source)
{
    enum { LAYERS = 2 };
    struct heed_error err = {0};
    struct translation out[LAYERS] = {0};
    struct sentence x[LAYERS];
    size_t keys = g->src[source].n + 1, rows = ids.n * golden_config.heads;
    assert_int_equal(golden_config.decoder_layers, LAYERS);
    for (int i = 0; i < LAYERS; i++)
        x[i] = (struct sentence){.src = g->src[source],
                                 .beam = {.width = 1, .nbest = 1},
                                 .must = {.prefix = ids},
                                 .attention_layer = 1 + i,
                                 .out = &out[i]};
    if (search_run(search, x, LAYERS, &err)) fail_msg("%s", err.text);
    for (size_t i = 0; i < LAYERS * rows; i++) {
        double sum = 0;
        for (size_t k = 0; k < keys; k++)
            sum += (double)out[i / rows].attention[i % rows * keys + k];
        check_near("the attention of a token", "given", sum, 1, 1e-4);
    }
    assert_memory_not_equal(out[0].attention, out[1].attention, rows * keys * sizeof(float));
    for (int i = 0; i < LAYERS; i++) translation_release(&out[i]);
}

/* A translation that is given whole, or its first half, must have exactly the scores that the
 * search found. */
static void check_given(struct search *search, const struct golden *g, const struct want *w,
                        const struct translation *t, int source)
{
    struct heed_error err = {0};
    struct translation out[2 * NBEST_MAX] = {0}, *half = out + NBEST_MAX;
    int32_t ids[MAX_LENGTH + 1];
    size_t n = t->ids.n;
    if (!t->ended) return;
    memcpy(ids, t->ids.v, n * sizeof *ids);
    ids[n] = TOY_EOS;
    struct sentence x[2];
    for (int i = 0; i < 2; i++)
        x[i] = (struct sentence){.src = g->src[source],
                                 .beam = w->beam,
                                 .longest = w->longest,
                                 .must = {.prefix = {ids, i ? n / 2 : n + 1, 0}},
                                 .out = i ? half : out};
    if (search_run(search, x, 2, &err)) fail_msg("%s", err.text);
    assert_true(out[0].ids.n == n);
    check_near("log-probability", "given", out[0].logp, t->logp, again * fmax(1, fabs(t->logp)));
    check_near("score", "given", out[0].score, t->score, again);
    check_again(out[0].token_score, t->token_score, n + 1);
    assert_true(half[0].ids.n >= n / 2);
    assert_memory_equal(half[0].ids.v, ids, n / 2 * sizeof *ids);
    check_again(half[0].token_score, t->token_score, n / 2);
    for (int i = 0; i < 2 * NBEST_MAX; i++) translation_release(&out[i]);
    check_attention(search, g, x[0].must.prefix, source);
}

/* together: all sources in one batch, or each in its own */
static void check_search(struct golden *g, int setup, bool together)
{
    struct heed_error err = {0};
    struct search *search = NULL;
    struct translation out[SOURCES_MAX * NBEST_MAX] = {0};
    struct want w;
    want_read(&w, g, setup);
    int width = w.beam.width, nbest = w.beam.nbest;
    struct search_options so = {
        .bos = TOY_BOS, .eos = TOY_EOS, .rows = together ? g->sources * width : width};
    struct sentence x[SOURCES_MAX];
    for (int i = 0; i < g->sources; i++)
        x[i] = (struct sentence){
            .src = g->src[i], .beam = w.beam, .longest = w.longest, .out = &out[i * nbest]};
    if (search_open(&search, g->toy.be, g->toy.p, &so, &err) ||
        search_run(search, x, g->sources, &err))
        fail_msg("%s", err.text);
    size_t output = 0, token = 0;
    for (int i = 0; i < g->sources * nbest; i++) {
        int source = i / nbest, rank = i % nbest;
        char where[96];
        snprintf(where, sizeof where, "setup %d, beam %d, source %d, output %d of %d", setup, width,
                 source, rank + 1, nbest);
        bool expected = rank < (int)w.count[source];
        if (!out[i].ids.v == expected)
            fail_msg("%s: is %sthere, expected %sto be", where, expected ? "not " : "",
                     expected ? "" : "not ");
        if (!expected) continue;
        check_output(&out[i], &w, output, token, where);
        if (few(true, i == 0)) check_given(search, g, &w, &out[i], source);
        token += (size_t)w.len[output++];
    }
    for (int i = 0; i < g->sources * nbest; i++) translation_release(&out[i]);
    search_free(search);
}

static void test_search(void **state)
{
    struct golden g = {0};
    struct heed_config c = golden_config;
    c.max_length = MAX_LENGTH;
    g.file = golden_file("tests/golden/beam.safetensors");
    toy_open(&g.toy, *state, &c, precision_f32, false);
    parameters_read(&g);
    sources_read(&g);
    for (int i = few(0, 4); i < few(setups(&g), 5); i++) /* the one of few has a beam of 8 */
        for (int together = few(false, true); together <= true; together++)
            check_search(&g, i, together);
    toy_close(&g.toy);
    safetensors_free(g.file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"ref: test_search", test_search, NULL, NULL, "ref"},
        {"cpu: test_search", test_search, NULL, NULL, (void *)device_cpu()},
    };
    const struct CMUnitTest device_tests[] = {
        {"device: test_search", test_search, NULL, NULL, (void *)device_named()},
    };
    device_or_skip();
    if (!device_named()) return cmocka_run_group_tests(tests, NULL, NULL);
    tolerance = again = 1e-4;
    return cmocka_run_group_tests(device_tests, NULL, NULL);
}
