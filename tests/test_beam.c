/*
 * test_beam.c - beam search for one sentence, compared with a list of all outputs.
 *
 * The model is a table: the next token's probabilities are drawn from a hash of the tokens so far.
 * There are so few tokens that every output can be listed, and a beam that is wide enough must find
 * the best of them, in order.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "decode/beam.h"

enum { V = 3, EOS = 0, LONGEST = 5, WIDE = 64, OUTPUTS = 256, WANTS = 2 };

/* The log-probabilities of the token after n tokens. */
static void model(uint64_t seed, const int32_t *id, int n, double logp[V])
{
    double sum = 0;
    for (int i = 0; i < n; i++) seed = random_at(seed, (uint64_t)i, (uint64_t)id[i]);
    for (int v = 0; v < V; v++) sum += logp[v] = 0.05 + random_unit(&seed);
    for (int v = 0; v < V; v++) logp[v] = (float)log(logp[v] / sum);
}

/* The best next tokens of one hypothesis, and the tokens that it asks for. */
static void fill_row(const struct beam *b, int row, uint64_t seed, int best, int wants, int32_t *id,
                     float *score)
{
    double logp[V];
    int32_t all[V];
    model(seed, b->alive[row].id, b->alive[row].n, logp);
    for (int v = 0; v < V; v++) {
        int at = v;
        for (; at > 0 && logp[v] > logp[all[at - 1]]; at--) all[at] = all[at - 1];
        all[at] = v;
    }
    memcpy(id, all, best * sizeof *id);
    beam_wanted(b, row, id + best, wants);
    for (int i = 0; i < best + wants; i++) score[i] = id[i] < 0 ? -INFINITY : (float)logp[id[i]];
}

/* Runs a beam to its end. Returns the number of steps. */
static int search(struct beam *b, const struct beam_options *o, const struct constraints *wish,
                  uint64_t seed)
{
    int steps = 0;
    assert_int_equal(beam_init(b, o, wish, EOS, LONGEST, NULL), HEED_OK);
    for (; b->live; steps++) {
        int32_t id[BEAM_MAX * (V + WANTS)];
        float score[BEAM_MAX * (V + WANTS)];
        int best = beam_candidates(b), wants = beam_wants(b);
        assert_true(best > o->width);
        if (best > V) best = V;
        for (int i = 0; i < b->live; i++)
            fill_row(b, i, seed, best, wants, id + i * (best + wants), score + i * (best + wants));
        beam_advance(b, id, score, best, wants);
    }
    return steps;
}

/* ---- all outputs ---- */

struct output {
    int32_t id[LONGEST];
    int n;
    double logp, score;
};

struct all {
    struct output v[OUTPUTS];
    int n;
};

static bool repeated(const struct output *o, int n)
{
    for (int i = 0; n && i + n < o->n; i++)
        if (!memcmp(o->id + i, o->id + o->n - n, n * sizeof *o->id)) return true;
    return false;
}

/* Whether a phrase is in the tokens, at their end, or anywhere. */
static bool has(const struct output *x, const struct heed_ids *phrase, bool at_end)
{
    int n = (int)phrase->n;
    for (int i = at_end ? x->n - n : 0; i >= 0 && i + n <= x->n; i++)
        if (!memcmp(x->id + i, phrase->v, n * sizeof *x->id)) return true;
    return false;
}

static bool has_all(const struct output *x, const struct constraints *w)
{
    for (int i = 0; i < w->required_n; i++)
        if (!has(x, &w->required[i], false)) return false;
    return true;
}

static void list(struct all *all, const struct beam_options *o, const struct constraints *w,
                 uint64_t seed, struct output x)
{
    double logp[V];
    model(seed, x.id, x.n, logp);
    for (int32_t v = 0; v < V; v++) {
        struct output y = x;
        y.id[y.n++] = v;
        y.logp += logp[v];
        y.score = y.logp / pow((5.0 + y.n) / 6, (double)o->length_penalty);
        if (v == EOS && (x.n < o->min_length || !has_all(&x, w))) continue;
        if (v != EOS && ((w->banned_n && has(&y, w->banned, true)) || repeated(&y, o->no_repeat)))
            continue;
        if (v == EOS)
            all->v[all->n++] = y;
        else if (y.n < LONGEST)
            list(all, o, w, seed, y);
    }
}

static int by_score(const void *x, const void *y)
{
    const struct output *a = x, *b = y;
    return a->score > b->score ? -1 : a->score < b->score;
}

static void test_finds_the_best(void **state)
{
    (void)state;
    static struct all all;
    static int32_t word[] = {1, 2, 1};
    static const struct heed_ids phrase[] = {{word, 2, 0}, {word + 2, 1, 0}, {word + 1, 2, 0}};
    for (uint64_t seed = 0; seed < 2000; seed++) {
        struct beam_options o = {.width = WIDE,
                                 .nbest = 1 + (int)(seed % 4),
                                 .length_penalty = (float[]){0, 0.6f, 1, 2}[seed / 4 % 4],
                                 .min_length = (int)(seed / 16 % 3),
                                 .no_repeat = seed / 48 % 3 ? 0 : 2};
        struct constraints wish = {.banned = &phrase[seed % 2],
                                   .banned_n = seed % 5 == 0,
                                   .required = phrase + seed % 2,
                                   .required_n = seed % 7 ? 0 : 1 + (int)(seed % 2)};
        if (wish.banned_n) wish.required_n = 0;
        struct beam b;
        search(&b, &o, &wish, seed);
        all.n = 0;
        list(&all, &o, &wish, seed, (struct output){.n = 0});
        qsort(all.v, all.n, sizeof *all.v, by_score);
        int n = o.nbest < all.n ? o.nbest : all.n;
        assert_true(b.done_n >= n);
        for (int i = 0; i < n; i++) {
            const struct hypothesis *h = &b.done[i];
            assert_true(fabs(h->score - all.v[i].score) < 1e-9);
            assert_int_equal(h->n, all.v[i].n);
            assert_memory_equal(h->id, all.v[i].id, h->n * sizeof *h->id);
            double sum = 0;
            for (int k = 0; k < h->n; k++) sum += (double)h->token_score[k];
            assert_true(fabs(sum - h->logp) < 1e-9);
        }
        beam_release(&b);
    }
}

/* Required phrases are in the output even with a narrow beam and if they are unlikely. */
static void test_required(void **state)
{
    (void)state;
    /* both phrases begin with the same token */
    static int32_t word[] = {1, 2, 2, 1, 1};
    static const struct heed_ids pair[][2] = {{{word, 2, 0}, {word + 1, 2, 0}},
                                              {{word, 2, 0}, {word + 3, 2, 0}}};
    for (uint64_t seed = 0; seed < 1000; seed++) {
        struct beam_options o = {.width = 1 + (int)(seed % 3),
                                 .nbest = 1,
                                 .length_penalty = 0.6f,
                                 .no_repeat = seed / 12 % 2 ? 1 : 0};
        struct constraints wish = {.required = pair[seed / 6 % 2],
                                   .required_n = 1 + (int)(seed / 3 % 2)};
        struct beam b;
        search(&b, &o, &wish, seed);
        assert_true(b.done_n > 0);
        struct output x = {.n = b.done[0].n};
        memcpy(x.id, b.done[0].id, x.n * sizeof *x.id);
        assert_true(has_all(&x, &wish));
        beam_release(&b);
    }
}

/* A beam of one takes the best token at every step. */
static void test_one_is_greedy(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 500; seed++) {
        struct beam_options o = {.width = 1, .nbest = 1, .length_penalty = 0.6f};
        struct beam b;
        struct output want = {.n = 0};
        for (bool end = false; !end && want.n < LONGEST;) {
            double logp[V];
            int32_t best = 0;
            model(seed, want.id, want.n, logp);
            for (int32_t v = 1; v < V; v++)
                if (logp[v] > logp[best]) best = v;
            want.id[want.n++] = best;
            want.logp += logp[best];
            end = best == EOS;
        }
        search(&b, &o, NULL, seed);
        assert_int_equal(b.done_n, 1);
        assert_int_equal(b.done[0].n, want.n);
        assert_memory_equal(b.done[0].id, want.id, want.n * sizeof *want.id);
        assert_true(fabs(b.done[0].logp - want.logp) < 1e-9);
        beam_release(&b);
    }
}

/* The search ends as soon as no better output is possible, and never before the best is found. */
static void test_stops_early(void **state)
{
    (void)state;
    int early = 0;
    for (uint64_t seed = 0; seed < 500; seed++) {
        struct beam_options o = {.width = WIDE, .nbest = 1, .length_penalty = 0.6f};
        struct beam b;
        early += search(&b, &o, NULL, seed) < LONGEST;
        beam_release(&b);
    }
    assert_in_range(early, 50, 499);
}

/* Sampling draws outputs with the probabilities of the model, changed by temperature, top_k and
 * top_p. */
static void test_draws(void **state)
{
    (void)state;
    enum { RUNS = 300 };
    for (int trial = 0; trial < 3; trial++) {
        double count[V] = {0}, want[V], sum = 0, most = 0;
        float temperature = (float[]){1, 0.5f, 1}[trial];
        model(3, NULL, 0, want);
        for (int v = 0; v < V; v++) {
            want[v] = exp(want[v] / (double)temperature);
            most = fmax(most, want[v]);
        }
        for (int v = 0; v < V; v++) sum += want[v] = trial == 2 && want[v] < most ? 0 : want[v];
        for (uint64_t seed = 0; seed < RUNS; seed++) {
            struct beam_options o = {.width = WIDE,
                                     .nbest = WIDE,
                                     .temperature = temperature,
                                     .top_p = trial == 2 ? 0.05f : 1,
                                     .seed = seed};
            struct beam b;
            search(&b, &o, NULL, 3);
            assert_int_equal(b.done_n, WIDE);
            for (int i = 0; i < WIDE; i++) count[b.done[i].id[0]]++;
            beam_release(&b);
        }
        for (int v = 0; v < V; v++) {
            double p = want[v] / sum, n = RUNS * WIDE;
            assert_true(fabs(count[v] - n * p) <= 5 * sqrt(n * p * (1 - p)) + 1e-9);
        }
    }
}

/* The same seed draws the same outputs, another seed others; with top_k 1 there is no choice. */
static void test_draws_again(void **state)
{
    (void)state;
    struct beam b[4];
    for (int i = 0; i < 4; i++) {
        struct beam_options o = {.width = i < 3 ? 8 : 1,
                                 .nbest = 1,
                                 .temperature = 1,
                                 .top_k = i < 3 ? 0 : 1,
                                 .seed = i == 2 ? 8 : 7};
        search(&b[i], &o, NULL, 3);
    }
    bool same = true;
    for (int k = 0; k < 8; k++) {
        assert_true(b[0].done[k].logp == b[1].done[k].logp);
        same &= b[0].done[k].logp == b[2].done[k].logp;
    }
    assert_false(same);
    struct beam greedy;
    search(&greedy, &(struct beam_options){.width = 1, .nbest = 1}, NULL, 3);
    assert_true(greedy.done[0].logp == b[3].done[0].logp);
    beam_release(&greedy);
    for (int i = 0; i < 4; i++) beam_release(&b[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_the_best), cmocka_unit_test(test_required),
        cmocka_unit_test(test_one_is_greedy),  cmocka_unit_test(test_stops_early),
        cmocka_unit_test(test_draws),          cmocka_unit_test(test_draws_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
