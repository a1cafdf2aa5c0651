/*
 * test_beam.c - the search for one sentence against all there is to find.
 *
 * The model is a table: the next token's probabilities are drawn from a hash of the tokens so far.
 * With so few tokens every output can be listed, and a beam that is wide enough must find the best
 * of them, in order.
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

enum { V = 3, EOS = 0, LONGEST = 5, WIDE = 64, OUTPUTS = 256 };

/* The log-probabilities behind n tokens. */
static void model(uint64_t seed, const int32_t *id, int n, double logp[V])
{
    double sum = 0;
    for (int i = 0; i < n; i++) seed = random_at(seed, (uint64_t)i, (uint64_t)id[i]);
    for (int v = 0; v < V; v++) sum += logp[v] = 0.05 + random_unit(&seed);
    for (int v = 0; v < V; v++) logp[v] = (float)log(logp[v] / sum);
}

/* Runs a beam to its end. Returns the steps. */
static int search(struct beam *b, const struct beam_options *o, uint64_t seed)
{
    int steps = 0;
    assert_int_equal(beam_init(b, o, LONGEST, NULL, 0, NULL), HEED_OK);
    for (; b->live; steps++) {
        int32_t id[BEAM_MAX][V];
        float score[BEAM_MAX][V];
        for (int i = 0; i < b->live; i++) {
            double logp[V];
            model(seed, b->alive[i].id, b->alive[i].n, logp);
            for (int v = 0; v < V; v++) {
                int at = v;
                for (; at > 0 && logp[v] > (double)score[i][at - 1]; at--)
                    score[i][at] = score[i][at - 1], id[i][at] = id[i][at - 1];
                score[i][at] = (float)logp[v], id[i][at] = v;
            }
        }
        assert_true(beam_candidates(b) > o->width);
        beam_advance(b, id[0], score[0], V, V);
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

static void list(struct all *all, const struct beam_options *o, uint64_t seed, struct output x)
{
    double logp[V];
    model(seed, x.id, x.n, logp);
    for (int32_t v = 0; v < V; v++) {
        struct output y = x;
        y.id[y.n++] = v;
        y.logp += logp[v];
        y.score = y.logp / pow((5.0 + y.n) / 6, (double)o->length_penalty);
        if (v == EOS && x.n < o->min_length) continue;
        if (v != EOS && ((o->banned_n && v == o->banned[0]) || repeated(&y, o->no_repeat)))
            continue;
        if (v == EOS)
            all->v[all->n++] = y;
        else if (y.n < LONGEST)
            list(all, o, seed, y);
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
    static const int32_t one = 1;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        struct beam_options o = {.width = WIDE,
                                 .nbest = 1 + (int)(seed % 4),
                                 .length_penalty = (float[]){0, 0.6f, 1, 2}[seed / 4 % 4],
                                 .min_length = (int)(seed / 16 % 3),
                                 .no_repeat = seed / 48 % 3 ? 0 : 2,
                                 .banned = &one,
                                 .banned_n = seed % 5 == 0,
                                 .eos = EOS};
        struct beam b;
        search(&b, &o, seed);
        all.n = 0;
        list(&all, &o, seed, (struct output){.n = 0});
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

/* A beam of one takes the best token at every step. */
static void test_one_is_greedy(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 500; seed++) {
        struct beam_options o = {.width = 1, .nbest = 1, .length_penalty = 0.6f, .eos = EOS};
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
        search(&b, &o, seed);
        assert_int_equal(b.done_n, 1);
        assert_int_equal(b.done[0].n, want.n);
        assert_memory_equal(b.done[0].id, want.id, want.n * sizeof *want.id);
        assert_true(fabs(b.done[0].logp - want.logp) < 1e-9);
        beam_release(&b);
    }
}

/* The search ends as soon as nothing better can come, and never before the best is found. */
static void test_stops_early(void **state)
{
    (void)state;
    int early = 0;
    for (uint64_t seed = 0; seed < 500; seed++) {
        struct beam_options o = {.width = WIDE, .nbest = 1, .length_penalty = 0.6f, .eos = EOS};
        struct beam b;
        early += search(&b, &o, seed) < LONGEST;
        beam_release(&b);
    }
    assert_in_range(early, 50, 499);
}

/* Outputs come as often as the model says, changed by temperature, top_k and top_p. */
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
                                     .seed = seed,
                                     .eos = EOS};
            struct beam b;
            search(&b, &o, 3);
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

/* The same seed draws the same, another one something else; of one token there is no choice. */
static void test_draws_again(void **state)
{
    (void)state;
    struct beam b[4];
    for (int i = 0; i < 4; i++) {
        struct beam_options o = {.width = i < 3 ? 8 : 1,
                                 .nbest = 1,
                                 .temperature = 1,
                                 .top_k = i < 3 ? 0 : 1,
                                 .seed = i == 2 ? 8 : 7,
                                 .eos = EOS};
        search(&b[i], &o, 3);
    }
    bool same = true;
    for (int k = 0; k < 8; k++) {
        assert_true(b[0].done[k].logp == b[1].done[k].logp);
        same &= b[0].done[k].logp == b[2].done[k].logp;
    }
    assert_false(same);
    struct beam greedy;
    search(&greedy, &(struct beam_options){.width = 1, .nbest = 1, .eos = EOS}, 3);
    assert_true(greedy.done[0].logp == b[3].done[0].logp);
    beam_release(&greedy);
    for (int i = 0; i < 4; i++) beam_release(&b[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_the_best), cmocka_unit_test(test_one_is_greedy),
        cmocka_unit_test(test_stops_early),    cmocka_unit_test(test_draws),
        cmocka_unit_test(test_draws_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
