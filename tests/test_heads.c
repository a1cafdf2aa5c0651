/*
 * test_heads.c - heed_heads_of: statistics of weights whose roles are known, masks against weights
 * that are zeroed by hand, and the same numbers on any number of threads.
 */
#include "small_model.h"

#include <jansson.h>
#include <math.h>

#include "store/directory.h"
#include "store/weights.h"
#include "study/heads.h"
#include "svg_check.h"

/* ---- statistics ---- */

enum { KEYS = 8 };

/* The head that the weights w[query][key] make in self-attention of the encoder. */
static struct heed_head head_with(float w[KEYS][KEYS])
{
    struct head_sums s = {0};
    struct heed_head h = {0};
    for (int i = 0; i < KEYS; i++) {
        const struct head_query q = {KEYS, i, i, i > 0, 1};
        head_sums_add(&s, w[i], &q);
    }
    head_means(&h, &s);
    return h;
}

static void near(double found, double want)
{
    if (fabs(found - want) > 1e-6) fail_msg("found %g, expected %g", found, want);
}

/* All weight of each query on the key `by` after it, where there is one, else on its own. */
static struct heed_head shifted(int by)
{
    float w[KEYS][KEYS] = {0};
    for (int i = 0; i < KEYS; i++) w[i][i + by >= 0 && i + by < KEYS ? i + by : i] = 1;
    return head_with(w);
}

static void test_positions_of_weight(void **state)
{
    (void)state;
    struct heed_head h = shifted(-1);
    assert_int_equal(h.role, HEED_ROLE_PREVIOUS);
    near(h.previous, 1);
    near(h.entropy, 0);
    near(h.distance, (KEYS - 1.0) / KEYS);
    near(h.diagonal, 1);
    h = shifted(0);
    assert_int_equal(h.role, HEED_ROLE_SAME);
    near(h.same, 1);
    near(h.distance, 0);
    h = shifted(1);
    assert_int_equal(h.role, HEED_ROLE_NEXT);
    near(h.next, 1);
    h = shifted(3);
    assert_int_equal(h.role, HEED_ROLE_SELECTIVE);
    near(h.diagonal, 3.0 / KEYS);
}

static void test_other_roles(void **state)
{
    (void)state;
    float equal[KEYS][KEYS], rest[KEYS][KEYS] = {0}, nearby[KEYS][KEYS] = {0};
    for (int i = 0; i < KEYS; i++) {
        for (int k = 0; k < KEYS; k++) equal[i][k] = 1.0f / KEYS;
        rest[i][0] = rest[i][KEYS - 1] = 0.5f;
        int before = i ? i - 1 : 2, after = i < KEYS - 1 ? i + 1 : KEYS - 3;
        nearby[i][before] = nearby[i][i] = nearby[i][after] = 1 / 3.0f;
    }
    struct heed_head h = head_with(equal);
    assert_int_equal(h.role, HEED_ROLE_BROAD);
    near(h.entropy, 3);
    near(h.relative, 1);
    near(h.first, 1.0 / KEYS);
    h = head_with(rest);
    assert_int_equal(h.role, HEED_ROLE_REST);
    near(h.first, 0.5);
    near(h.end, 0.5);
    near(h.entropy, 1);
    h = head_with(nearby);
    assert_int_equal(h.role, HEED_ROLE_NEARBY);
    near(h.previous, 1 / 3.0);
    assert_string_equal(heed_role_name(HEED_USE_CROSS, HEED_ROLE_SAME), "alignment");
    assert_string_equal(heed_role_name(HEED_USE_ENCODER, HEED_ROLE_SAME), "same");
    assert_string_equal(heed_role_name(HEED_USE_DECODER, HEED_ROLE_MIXED), "mixed");
    assert_string_equal(heed_role_name(HEED_USE_CROSS, HEED_ROLE_SELECTIVE), "selective");
}

static void test_cosines(void **state)
{
    (void)state;
    const float a[] = {1, 0, 0}, b[] = {0.5f, 0.5f, 0}, c[] = {0, 0, 1};
    const float *row[] = {a, b, c};
    double sum[9] = {0}, norm[3];
    head_cosines_add(sum, norm, row, 3, 3);
    head_cosines_add(sum, norm, row, 3, 3);
    near(sum[1], 2 * sqrt(0.5));
    near(sum[2], 0);
    near(sum[5], 0);
    near(sum[3], 0); /* pairs are added once */
}

/* ---- models ---- */

enum { LINES = 130 };
static char source[LINES][64], target[LINES][64];
static const char *src[LINES], *tgt[LINES];

static struct heed_heads *study(const char *dir, int threads, struct heed_heads_options o)
{
    struct heed_error err = {0};
    struct heed_heads *h = NULL;
    struct heed_engine *e = heed_engine_open(device_cpu(), threads, &err);
    o.src = src;
    o.tgt = tgt;
    if (!o.n) o.n = LINES;
    must(e ? heed_heads_of(e, dir, &o, &h, &err) : err.status, &err);
    heed_engine_free(e);
    return h;
}

static char *picture(const struct heed_heads *h, enum heed_picture kind)
{
    struct heed_error err = {0};
    char *text = NULL;
    must(heed_heads_picture(h, kind, &text, &err), &err);
    return text;
}

/* A copy of the model in which the columns of one head of a projection are zeros. */
static void zero_by_hand(const char *from, const char *out, bool cross, int head)
{
    struct heed_error err = {0};
    struct heed_config c;
    struct heed_tokenizer *t = NULL;
    struct backend *be = NULL;
    struct parameters *p = NULL;
    char path[FILE_PATH_MAX];
    must(backend_open(&be, device_cpu(), 1, &err), &err);
    must(directory_read(&c, &t, from, &err), &err);
    must(directory_weights(path, from, &err), &err);
    must(weights_open_plain(&p, be, &c, path, &err), &err);
    struct mat w = cross ? p->w.decoder[0].cross.out : p->w.encoder[0].self.out;
    int width = c.d_model / c.heads;
    for (int r = 0; r < w.rows; r++)
        for (int k = 0; k < width; k++) ((float *)w.p)[r * w.cols + head * width + k] = 0;
    must(directory_save(out, p, NULL, t, &err), &err);
    parameters_free(p);
    heed_tokenizer_free(t);
    be->op->close(be);
}

static const struct heed_head *find(const struct heed_heads *h, enum heed_attention_use use,
                                    int head)
{
    for (int i = 0; i < h->n; i++)
        if (h->head[i].use == use && h->head[i].head == head) return &h->head[i];
    fail_msg("there is no head %d", head);
    return NULL;
}

/* The model has one layer of each kind with two heads. */
static void test_masks(void **state)
{
    (void)state;
    struct heed_heads *h =
        study(at("model"), 1, (struct heed_heads_options){.mask = HEED_MASK_LOSS});
    assert_int_equal(h->n, 6);
    assert_int_equal(h->sentences, LINES);
    for (int cross = 0; cross < 2; cross++)
        for (int head = 0; head < 2; head++) {
            const struct heed_head *x = find(h, cross ? HEED_USE_CROSS : HEED_USE_ENCODER, head);
            zero_by_hand(at("model"), at("zeroed"), cross, head);
            struct heed_heads *z = study(at("zeroed"), 1, (struct heed_heads_options){0});
            assert_true(fabs(x->loss_lost) > 1e-6);
            if (fabs(z->loss - h->loss - x->loss_lost) > 1e-9)
                fail_msg("loss %.9g by hand, %.9g by a mask", z->loss, h->loss + x->loss_lost);
            assert_true(isnan(z->head[0].loss_lost));
            heed_heads_free(z);
        }
    heed_heads_free(h);
}

static void test_bleu(void **state)
{
    (void)state;
    const struct heed_heads_options o = {.mask = HEED_MASK_BLEU, .tokenize = "13a"};
    struct heed_heads *h = study(at("model"), 2, o);
    const struct heed_head *x = find(h, HEED_USE_CROSS, 1);
    zero_by_hand(at("model"), at("zeroed"), true, 1);
    struct heed_heads *z = study(at("zeroed"), 2, o);
    assert_true(h->bleu > 1);
    near(h->bleu - x->bleu_lost, z->bleu);
    heed_heads_free(z);
    heed_heads_free(h);
}

static void test_threads(void **state)
{
    (void)state;
    char *text[2];
    for (int i = 0; i < 2; i++) {
        struct heed_heads *h =
            study(at("model"), i + 1, (struct heed_heads_options){.mask = HEED_MASK_LOSS});
        text[i] = picture(h, HEED_PICTURE_JSON);
        heed_heads_free(h);
    }
    assert_string_equal(text[0], text[1]);
    free(text[0]);
    free(text[1]);
}

static void test_pictures(void **state)
{
    (void)state;
    json_error_t wrong;
    struct heed_heads *h =
        study(at("model"), 1, (struct heed_heads_options){.mask = HEED_MASK_LOSS});
    char *text = picture(h, HEED_PICTURE_SVG);
    assert_int_equal(svg_faults(text), 0);
    free(text);
    text = picture(h, HEED_PICTURE_JSON);
    json_t *root = json_loads(text, 0, &wrong);
    if (!root) fail_msg("line %d: %s", wrong.line, wrong.text);
    assert_int_equal(json_array_size(json_object_get(root, "heads")), 6);
    assert_int_equal(json_array_size(json_object_get(root, "examples")), h->examples);
    assert_true(h->examples > 0);
    json_decref(root);
    free(text);
    text = picture(h, HEED_PICTURE_TERMINAL);
    assert_null(strstr(text, "STOPPED"));
    free(text);
    heed_heads_free(h);
}

/* The shares of a corpus of one sentence are those of the picture of its attention. */
static void test_one_sentence(void **state)
{
    (void)state;
    struct heed_error err = {0};
    struct heed_attention *a = NULL;
    struct heed_heads *h = study(at("model"), 1, (struct heed_heads_options){.n = 1});
    struct heed_engine *e = heed_engine_open(device_cpu(), 1, &err);
    struct heed_model *m = heed_model_load(e, at("model"), HEED_WEIGHTS_F32, &err);
    struct heed_session *s = heed_session_open(m, NULL, &err);
    const struct heed_request r = {.text = src[0], .given = tgt[0]};
    must(heed_attention_of(s, &r, &a, &err), &err);
    for (int i = 0; i < h->n; i++) {
        const struct heed_head *x = &h->head[i];
        const struct heed_attention_map *map = &a->map[x->use];
        size_t size = (size_t)map->queries * map->keys;
        const float *w = map->weight + (size_t)x->head * size;
        double entropy = 0, first = 0, queries = 0, firsts = 0;
        for (int q = x->use == HEED_USE_DECODER; q < map->queries; q++, queries++) {
            for (int k = 0; k < map->keys; k++) {
                double p = (double)w[q * map->keys + k];
                if (p > 0) entropy -= p * log2(p);
            }
            if (q || x->use == HEED_USE_CROSS) first += (double)w[q * map->keys], firsts++;
        }
        if (fabs(x->entropy - entropy / queries) > 1e-4 || fabs(x->first - first / firsts) > 1e-4)
            fail_msg("head %d: entropy %g and first %g, expected %g and %g", i, x->entropy,
                     x->first, entropy / queries, first / firsts);
    }
    heed_attention_free(a);
    heed_session_free(s);
    heed_model_free(m);
    heed_engine_free(e);
    heed_heads_free(h);
}

/* ---- stopping ---- */

static bool stop_after_half(void *user, const char *what, double done)
{
    (void)user, (void)what;
    return done < 0.5;
}

/* What was measured until then is that of a corpus with these sentences alone. */
static void test_stop(void **state)
{
    (void)state;
    struct heed_heads *h =
        study(at("model"), 1,
              (struct heed_heads_options){.mask = HEED_MASK_LOSS, .event = stop_after_half});
    assert_int_equal(h->sentences_all, LINES);
    assert_true(h->sentences > 0 && h->sentences < LINES);
    char *text = picture(h, HEED_PICTURE_TERMINAL);
    char want[64];
    snprintf(want, sizeof want, "STOPPED after %d of %d sentences", (int)h->sentences, LINES);
    assert_non_null(strstr(text, want));
    free(text);
    struct heed_heads *few =
        study(at("model"), 1,
              (struct heed_heads_options){.mask = HEED_MASK_LOSS, .n = (int)h->sentences});
    for (int i = 0; i < h->n; i++) {
        assert_true(h->head[i].loss_lost == few->head[i].loss_lost);
        assert_true(h->head[i].entropy == few->head[i].entropy);
    }
    heed_heads_free(few);
    heed_heads_free(h);
}

/* ---- other weights, other forms ---- */

static void test_smaller_weights(void **state)
{
    (void)state;
    struct heed_error err = {0};
    struct heed_heads *h = study(at("model"), 1, (struct heed_heads_options){0});
    const enum heed_weights weights[] = {HEED_WEIGHTS_BF16, HEED_WEIGHTS_INT8};
    for (int i = 0; i < 2; i++) {
        must(heed_quantize(at("model"), weights[i], at("small"), &err), &err);
        struct heed_heads *q = study(at("small"), 1, (struct heed_heads_options){0});
        if (fabs(q->loss - h->loss) > 0.05)
            fail_msg("loss %g, expected about %g", q->loss, h->loss);
        assert_true(q->loss != h->loss);
        heed_heads_free(q);
    }
    heed_heads_free(h);
}

static void test_forms(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum heed_attention_kind attention;
        enum heed_position position;
        int kv_heads, d_k, d_v;
        enum heed_ff ff;
    } form[] = {{"linear", HEED_ATTENTION_LINEAR, HEED_POSITION_ROPE, 0, 0, 0, 0},
                {"window", HEED_ATTENTION_WINDOW, HEED_POSITION_RELATIVE, 0, 0, 0, 0},
                {"additive", HEED_ATTENTION_ADDITIVE, HEED_POSITION_LEARNED, 0, 0, 0, 0},
                {"shared", HEED_ATTENTION_FULL, HEED_POSITION_ALIBI, 1, 8, 24, HEED_FF_MOE}};
    struct heed_error err = {0};
    struct heed_engine *e = heed_engine_open(device_cpu(), 1, &err);
    for (size_t i = 0; i < sizeof form / sizeof form[0]; i++) {
        const char *pairs = at("pairs"), *out = at(form[i].name);
        struct heed_train_options o = small_options(&pairs, at("vocab"), out);
        o.config.attention = form[i].attention;
        o.config.position = form[i].position;
        if (form[i].attention == HEED_ATTENTION_WINDOW) o.config.window = 4;
        o.config.kv_heads = form[i].kv_heads;
        o.config.d_k = form[i].d_k;
        o.config.d_v = form[i].d_v;
        o.config.ff = form[i].ff;
        o.steps = 5;
        struct heed_trainer *t = heed_trainer_open(e, &o, &err);
        must(t ? heed_trainer_run(t, &err) : err.status, &err);
        heed_trainer_free(t);
        struct heed_heads *h =
            study(out, 1, (struct heed_heads_options){.mask = HEED_MASK_LOSS, .n = 10});
        for (int k = 0; k < h->n; k++) {
            const struct heed_head *x = &h->head[k];
            if (!(x->relative >= 0 && x->relative <= 1 + 1e-6 && isfinite(x->loss_lost) &&
                  x->loss_lost != 0))
                fail_msg("%s: head %d has entropy %g and loses %g", form[i].name, k, x->relative,
                         x->loss_lost);
        }
        heed_heads_free(h);
    }
    heed_engine_free(e);
}

static void test_bad_arguments(void **state)
{
    (void)state;
    struct heed_error err = {0};
    struct heed_heads *h = NULL;
    const char *blank[] = {""};
    struct heed_engine *e = heed_engine_open(device_cpu(), 1, &err);
    struct heed_heads_options o = {.src = blank, .tgt = blank, .n = 1};
    assert_int_equal(heed_heads_of(e, at("model"), &o, &h, &err), HEED_EARG);
    assert_non_null(strstr(err.text, "none of 1 pairs can be measured"));
    o = (struct heed_heads_options){.src = src, .n = 1};
    assert_int_equal(heed_heads_of(e, at("model"), &o, &h, &err), HEED_EARG);
    assert_non_null(strstr(err.text, "options->tgt"));
    o = (struct heed_heads_options){
        .src = src, .tgt = tgt, .n = 1, .mask = HEED_MASK_BLEU, .tokenize = "none such"};
    assert_int_equal(heed_heads_of(e, at("model"), &o, &h, &err), HEED_EARG);
    assert_non_null(strstr(err.text, "none such"));
    o = (struct heed_heads_options){.src = src, .tgt = tgt, .n = 1, .to = "xx"};
    assert_int_equal(heed_heads_of(e, at("model"), &o, &h, &err), HEED_EARG);
    assert_int_not_equal(heed_heads_of(e, at("nowhere"), &o, &h, &err), HEED_OK);
    assert_null(h);
    heed_heads_free(NULL);
    heed_engine_free(e);
}

static int set_up(void **state)
{
    static const char *const word[] = {"dog",  "cat", "house", "runs",
                                       "sits", "red", "blue",  "tree"};
    if (folder_make(state)) return -1;
    FILE *f = fopen(at("pairs"), "w");
    for (int i = 0; i < LINES; i++) {
        const char *a = word[i % 8], *b = word[i / 3 % 8], *c = word[i / 7 % 8];
        snprintf(source[i], sizeof source[i], "%s %s the %s and %s", a, b, c, a);
        snprintf(target[i], sizeof target[i], "%s and %s the %s %s", a, c, b, a);
        src[i] = source[i];
        tgt[i] = target[i];
        fprintf(f, "%s\t%s\n", source[i], target[i]);
    }
    fclose(f);
    struct heed_tokenizer_options v = {.vocab_size = 300};
    small_model_train(at("pairs"), &v);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_positions_of_weight),
        cmocka_unit_test(test_other_roles),
        cmocka_unit_test(test_cosines),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_bleu),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_pictures),
        cmocka_unit_test(test_one_sentence),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_smaller_weights),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_bad_arguments),
    };
    return cmocka_run_group_tests(tests, set_up, folder_remove);
}
