/*
 * test_search_join.c - sentences that join and leave a running search: with every form of the model
 * (variants.h), each gets the same translations, to the last bit, as if it were the only one.
 */
#include "decode/search.h"
#include "toy.h"
#include "variants.h"

enum { N = 30, WIDEST = 9, LONGEST_SOURCE = 15, ROWS = 7, V = 11 };

struct task {
    struct sentence sentence;
    int32_t src[LONGEST_SOURCE];
    struct translation alone[WIDEST], joined[WIDEST];
    bool added, gone; /* gone: finished or dropped */
};

struct crowd {
    struct toy toy;
    struct search *search;
    struct task task[N];
    uint64_t random;
};

static int draw(struct crowd *c, int n)
{
    return (int)random_below(&c->random, n);
}

static void search_begin(struct crowd *c, int rows)
{
    struct heed_error err = {0};
    const struct search_options o = {.bos = TOY_BOS, .eos = TOY_EOS, .rows = rows};
    assert_int_equal(search_open(&c->search, c->toy.be, c->toy.p, &o, &err), HEED_OK);
}

/* Sentences of any length, one of none, with all kinds of beams, some wider than a step is. */
static void make_tasks(struct crowd *c)
{
    for (int i = 0; i < N; i++) {
        struct task *t = &c->task[i];
        int n = i ? draw(c, LONGEST_SOURCE) : 0, width = 1 + draw(c, WIDEST);
        for (int k = 0; k < n; k++) t->src[k] = 3 + draw(c, V - 3);
        t->sentence = (struct sentence){.src = {t->src, n, n},
                                        .beam = {.width = width,
                                                 .nbest = 1 + draw(c, width),
                                                 .length_penalty = 0.6f,
                                                 .temperature = i % 3 ? 0 : 1,
                                                 .seed = i}};
    }
}

static void translate_alone(struct crowd *c)
{
    struct heed_error err = {0};
    search_begin(c, 64);
    for (int i = 0; i < N; i++) {
        struct sentence *x = &c->task[i].sentence;
        x->out = c->task[i].alone;
        assert_int_equal(search_run(c->search, x, 1, &err), HEED_OK);
        x->out = c->task[i].joined;
    }
    search_free(c->search);
}

static void compare(const char *name, int i, const struct translation *x,
                    const struct translation *y)
{
    size_t n = x->ids.n + x->ended;
    if (x->ids.n != y->ids.n || x->ended != y->ended || x->logp != y->logp ||
        !x->ids.v != !y->ids.v)
        fail_msg("%s: sentence %d has another translation among others: %zu and %zu tokens, "
                 "log-probability %.17g and %.17g",
                 name, i, x->ids.n, y->ids.n, x->logp, y->logp);
    if (!x->ids.v) return;
    assert_memory_equal(x->ids.v, y->ids.v, x->ids.n * sizeof *x->ids.v);
    assert_memory_equal(x->token_score, y->token_score, n * sizeof *x->token_score);
}

/* Takes the finished sentences; returns how many there were. */
static int take_finished(struct crowd *c, const char *name)
{
    int n = 0;
    for (struct sentence *x; (x = search_finished(c->search)); n++) {
        struct task *t = (struct task *)x; /* its first member */
        assert_true(t->added && !t->gone);
        t->gone = true;
        for (int k = 0; k < x->beam.nbest; k++)
            compare(name, (int)(t - c->task), &t->alone[k], &t->joined[k]);
    }
    return n;
}

/* Adds and drops sentences at random between steps. */
static void run_crowd(struct crowd *c, const char *name)
{
    struct heed_error err = {0};
    int added = 0, gone = 0;
    while (gone < N) {
        for (int n = draw(c, 4); n && added < N; n--, added++) {
            c->task[added].added = true;
            search_add(c->search, &c->task[added].sentence);
        }
        struct task *t = &c->task[draw(c, N)];
        if (draw(c, 4) == 0 && t->added && !t->gone) {
            search_drop(c->search, &t->sentence);
            t->gone = true;
            gone++;
        }
        assert_int_equal(search_advance(c->search, &err), HEED_OK);
        gone += take_finished(c, name);
    }
    assert_true(search_idle(c->search));
}

static void test_form(void **state)
{
    const struct variant *v = *state;
    struct heed_config config = variant_config(v, &toy_config);
    struct crowd *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->random = 11;
    toy_open(&c->toy, "cpu", &config, precision_f32, false);
    make_tasks(c);
    translate_alone(c);
    search_begin(c, ROWS);
    run_crowd(c, v->name);
    search_free(c->search);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < WIDEST; k++) {
            translation_release(&c->task[i].alone[k]);
            translation_release(&c->task[i].joined[k]);
        }
    toy_close(&c->toy);
    free(c);
}

/* A search that is freed while sentences wait and are open frees all it has. */
static void test_freed_early(void **state)
{
    (void)state;
    struct heed_error err = {0};
    struct crowd *c = calloc(1, sizeof *c);
    assert_non_null(c);
    toy_open(&c->toy, "cpu", &toy_config, precision_f32, false);
    make_tasks(c);
    search_begin(c, ROWS);
    for (int i = 0; i < N; i++) {
        c->task[i].sentence.out = c->task[i].joined;
        search_add(c->search, &c->task[i].sentence);
    }
    assert_int_equal(search_advance(c->search, &err), HEED_OK);
    assert_false(search_idle(c->search));
    search_free(c->search);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < WIDEST; k++) translation_release(&c->task[i].joined[k]);
    toy_close(&c->toy);
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_freed_early)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + variants_run("search join", test_form);
}
