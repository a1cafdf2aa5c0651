/*
 * test_gradients.c - the hand-written backward pass, in double on the reference backend.
 *
 * Four invariants; each catches a fault that the others miss:
 *   finite differences, with dropout on      a wrong derivative
 *   backward twice adds exactly twice        a gradient that is cleared instead of added to
 *   packed equals the sum of singles         a sentence that sees its neighbour
 *   later tokens change no earlier logit     a mask that lets the future in, in both passes
 * And positions matter: the same words in another order are another sentence. Each test goes
 * through every form of the model in variants.h.
 */
#include <math.h>

#include "device.h"
#include "toy.h"
#include "variants.h"

static const int src_len[] = {4, 1, 7, 3}, tgt_len[] = {3, 5, 1, 6};
enum { N = 4 };

static const struct loss_options with_dropout = {.label_smoothing = 0.1f,
                                                 .backward = true,
                                                 .dropout = true,
                                                 .seed = 42,
                                                 .experts = {.balance = 0.02f}};

static double loss_of(struct toy *t, const struct toy_batch *b, struct loss_options o)
{
    struct heed_error err = {0};
    struct loss l = {0};
    assert_int_equal(run_loss(t->run, &b->packed, &o, &l, &err), HEED_OK);
    return l.smoothed + l.balance;
}

/* The larger of two, or the NaN, which fmax would drop. */
static double worse(double worst, double off)
{
    return off > worst || isnan(off) ? off : worst;
}

static void zero_grad(struct toy *t)
{
    memset(t->run->grad.p, 0, t->p->n * sizeof(double));
}

static void finite_differences(const struct heed_config *config, const struct loss_options *options)
{
    struct toy t;
    struct toy_batch b;
    toy_open(&t, "ref", config, precision_f64, true);
    toy_batch(&b, N, src_len, tgt_len, toy_config.vocab_size, 3);
    zero_grad(&t);
    loss_of(&t, &b, *options);
    struct loss_options forward = *options;
    forward.backward = false;
    double *p = t.p->master.p, *g = t.run->grad.p, worst = 0, eps = 1e-6;
    for (size_t i = 0; i < t.p->n; i += (size_t)few(1, 11)) {
        double at = p[i];
        p[i] = at + eps;
        double up = loss_of(&t, &b, forward);
        p[i] = at - eps;
        double down = loss_of(&t, &b, forward);
        p[i] = at;
        double want = (up - down) / (2 * eps);
        worst = worse(worst, fabs(want - g[i]) / fmax(1, fabs(want)));
    }
    if (!(worst < 1e-6)) fail_msg("worst gradient error %g over %zu parameters", worst, t.p->n);
    toy_close(&t);
}

static void check_finite_differences(const struct heed_config *config)
{
    finite_differences(config, &with_dropout);
}

/* Experts that take only some of the tokens that chose them. */
static void test_capacity(void **state)
{
    (void)state;
    enum { LAYERS = 4, EXPERTS = 3 };
    static const struct variant form = {"moe", "ff=moe experts=3 activation=silu"};
    struct heed_config c = variant_config(&form, &toy_config);
    struct loss_options limited = with_dropout;
    limited.experts.capacity = 0.5f;
    limited.experts.least = 1;
    finite_differences(&c, &limited);

    struct heed_error err = {0};
    struct toy t;
    struct toy_batch b;
    struct expert_load load[LAYERS * EXPERTS] = {{0}};
    struct loss loss = {.load = load};
    toy_open(&t, "ref", &c, precision_f64, true);
    toy_batch(&b, N, src_len, tgt_len, toy_config.vocab_size, 3);
    assert_int_equal(run_loss(t.run, &b.packed, &limited, &loss, &err), HEED_OK);
    for (int l = 0; l < LAYERS; l++) {
        double asked = 0, most = 0.5 * 2 * 15 / EXPERTS; /* both sides have 15 tokens */
        for (int e = 0; e < EXPERTS; e++) {
            asked += load[l * EXPERTS + e].asked;
            double want = fmin(load[l * EXPERTS + e].asked, most);
            assert_true(load[l * EXPERTS + e].taken == want);
        }
        assert_true(asked == 2 * 15);
    }
    toy_close(&t);
}

static void check_backward_twice(const struct heed_config *config)
{
    struct toy t;
    struct toy_batch b;
    toy_open(&t, "ref", config, precision_f64, true);
    toy_batch(&b, N, src_len, tgt_len, toy_config.vocab_size, 3);
    zero_grad(&t);
    loss_of(&t, &b, with_dropout);
    double *g = t.run->grad.p, *once = malloc(t.p->n * sizeof *once), worst = 0;
    assert_non_null(once);
    memcpy(once, g, t.p->n * sizeof *once);
    loss_of(&t, &b, with_dropout);
    for (size_t i = 0; i < t.p->n; i++)
        worst = worse(worst, fabs(g[i] - 2 * once[i]) / fmax(1, fabs(once[i])));
    if (!(worst < 1e-12)) fail_msg("worst |g2 - 2 g1| %g", worst);
    free(once);
    toy_close(&t);
}

static void check_packed_is_sum_of_singles(const struct heed_config *config)
{
    struct toy t;
    struct toy_batch b, one;
    struct loss_options o = with_dropout;
    o.dropout = false;
    o.experts.balance = 0; /* the sentences of a batch share this loss */
    toy_open(&t, "ref", config, precision_f64, true);
    toy_batch(&b, N, src_len, tgt_len, toy_config.vocab_size, 3);
    zero_grad(&t);
    double packed = loss_of(&t, &b, o), singles = 0, worst = 0;
    double *g = t.run->grad.p, *want = malloc(t.p->n * sizeof *want);
    assert_non_null(want);
    memcpy(want, g, t.p->n * sizeof *want);
    zero_grad(&t);
    for (int i = 0; i < N; i++) {
        toy_single(&one, &b, i);
        singles += loss_of(&t, &one, o);
    }
    for (size_t i = 0; i < t.p->n; i++) worst = worse(worst, fabs(g[i] - want[i]));
    if (!(fabs(packed - singles) < 1e-10)) fail_msg("packed %.15g, singles %.15g", packed, singles);
    if (!(worst < 1e-10)) fail_msg("worst gradient difference %g", worst);
    free(want);
    toy_close(&t);
}

static void check_no_future(const struct heed_config *config)
{
    struct toy t;
    struct toy_batch b;
    struct heed_error err = {0};
    int s = 5, n = 6, vocab = toy_config.vocab_size;
    double base[6 * 11], other[6 * 11];
    toy_open(&t, "ref", config, precision_f64, true);
    toy_batch(&b, 1, &s, &n, vocab, 3);
    assert_int_equal(run_logits(t.run, &b.packed, base, &err), HEED_OK);
    for (int changed = 1; changed < n; changed++) {
        int32_t keep = b.tgt_in[changed];
        b.tgt_in[changed] = keep == 5 ? 6 : 5;
        assert_int_equal(run_logits(t.run, &b.packed, other, &err), HEED_OK);
        b.tgt_in[changed] = keep;
        assert_memory_equal(base, other, changed * vocab * sizeof *base);
        assert_memory_not_equal(base + changed * vocab, other + changed * vocab,
                                vocab * sizeof *base);
    }
    toy_close(&t);
}

/* The encodings of the words of a sentence and its end mark, and the logits after it. */
struct reading {
    double encoding[4][8], logits[11];
};

static void read_words(struct toy *t, struct reading *r, int first, int second, int third)
{
    struct toy_batch b;
    struct heed_error err = {0};
    int s = 4, n = 1;
    toy_batch(&b, 1, &s, &n, toy_config.vocab_size, 3);
    b.src[0] = first, b.src[1] = second, b.src[2] = third;
    assert_int_equal(run_logits(t->run, &b.packed, r->logits, &err), HEED_OK);
    assert_int_equal(t->run->a.memory.rows, 4);
    memcpy(r->encoding, t->run->a.memory.p, sizeof r->encoding);
}

/* How far the farthest encoding of a is from the nearest of b. */
static double bag_distance(const struct reading *a, const struct reading *b)
{
    double farthest = 0;
    for (int i = 0; i < 4; i++) {
        double nearest = INFINITY;
        for (int j = 0; j < 4; j++) {
            double off = 0;
            for (int c = 0; c < 8; c++)
                off = worse(off, fabs(a->encoding[i][c] - b->encoding[j][c]));
            nearest = fmin(nearest, off);
        }
        farthest = worse(farthest, nearest);
    }
    return farthest;
}

/* "I love you" and "you love I": with positions of any kind the encodings are others. Without, they
 * are the same bag, as attention cannot tell the two sentences apart. */
static void check_positions_matter(const char *position)
{
    enum { I = 3, LOVE = 4, YOU = 5 };
    bool bag = strcmp(position, "none") == 0;
    struct reading i_love_you, you_love_i;
    struct heed_config c = toy_config;
    struct heed_error err = {0};
    struct toy t;
    double logits = 0;
    if (heed_config_set(&c, "position", position, &err)) fail_msg("%s", err.text);
    toy_open(&t, "ref", &c, precision_f64, true);
    read_words(&t, &i_love_you, I, LOVE, YOU);
    read_words(&t, &you_love_i, YOU, LOVE, I);
    toy_close(&t);
    for (int i = 0; i < 11; i++)
        logits = worse(logits, fabs(i_love_you.logits[i] - you_love_i.logits[i]));
    double there = bag_distance(&i_love_you, &you_love_i);
    double back = bag_distance(&you_love_i, &i_love_you);
    if (bag ? !(there < 1e-12 && back < 1e-12 && logits < 1e-12)
            : !(there > 1e-3 && back > 1e-3 && logits > 1e-6))
        fail_msg("position %s: encodings are %g and %g apart, logits %g", position, there, back,
                 logits);
}

static void test_positions_matter(void **state)
{
    (void)state;
    const struct heed_config_field *f = NULL;
    for (int i = 0; !f; i++)
        if (strcmp(heed_config_field_at(i)->name, "position") == 0) f = heed_config_field_at(i);
    for (const char *const *kind = f->kinds; *kind; kind++) check_positions_matter(*kind);
}

/* A check and the form of the model that it is made for. */
struct invariant {
    void (*check)(const struct heed_config *config);
    const struct variant *variant;
};

static void test_invariant(void **state)
{
    const struct invariant *i = *state;
    struct heed_config c = variant_config(i->variant, &toy_config);
    i->check(&c);
}

int main(void)
{
    static const struct {
        const char *name;
        void (*check)(const struct heed_config *config);
    } checks[] = {
        {"finite differences", check_finite_differences},
        {"backward twice", check_backward_twice},
        {"packed is the sum of singles", check_packed_is_sum_of_singles},
        {"no future", check_no_future},
    };
    enum { CHECKS = sizeof checks / sizeof *checks };
    struct invariant invariants[VARIANTS * CHECKS];
    char names[VARIANTS * CHECKS][64];
    struct CMUnitTest tests[VARIANTS * CHECKS + 2];
    int n = 0;
    for (int v = 0; v < VARIANTS; v++)
        for (int i = 0; i < CHECKS; i++, n++) {
            snprintf(names[n], sizeof names[n], "%s: %s", variants[v].name, checks[i].name);
            invariants[n] = (struct invariant){checks[i].check, &variants[v]};
            tests[n] = (struct CMUnitTest){names[n], test_invariant, NULL, NULL, &invariants[n]};
        }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_positions_matter);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_capacity);
    return _cmocka_run_group_tests("gradients", tests, (size_t)n, NULL, NULL);
}
