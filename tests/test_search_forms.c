/*
 * test_search_forms.c - beam search and sampling with every form of the model (variants.h): the
 * log-probabilities of the tokens that a search found, with its caches, while hypotheses branched
 * and sentences left the batch, are those that the whole translation at once gives. On the CPU, or
 * on a device: see device.h.
 */
#include <math.h>

#include "decode/search.h"
#include "device.h"
#include "toy.h"
#include "variants.h"

enum { N = 5, WIDTH = 4, LONGEST = 12, V = 11 };
static const int src_len[N] = {4, 2, 7, 3, 5}; /* end marks included */

/* One sentence and a translation of it as a batch. Returns the number of its target rows. */
static int whole(struct toy_batch *one, const struct toy_batch *b, int i,
                 const struct translation *t)
{
    int n = (int)t->ids.n + t->ended;
    toy_single(one, b, i);
    for (int p = 0; p < n; p++) {
        one->tgt_in[p] = p ? t->ids.v[p - 1] : TOY_BOS;
        one->tgt_out[p] = p < (int)t->ids.n ? t->ids.v[p] : TOY_EOS;
    }
    one->packed.rows_tgt = one->packed.max_tgt = one->tgt_off[1] = one->tgt_len[0] = n;
    return n;
}

static double log_probability(const float *logits, int id)
{
    double sum = 0;
    for (int c = 0; c < V; c++) sum += exp((double)(logits[c] - logits[id]));
    return -log(sum);
}

/* Compares a translation of sentence i with what the model gives for it as a whole. */
static void check_translation(const char *name, struct toy *t, const struct toy_batch *b, int i,
                              const struct translation *found)
{
    struct heed_error err = {0};
    struct toy_batch one;
    float logits[LONGEST * V];
    int n = whole(&one, b, i, found);
    assert_true(n > 0 && n <= LONGEST);
    assert_int_equal(run_logits(t->run, &one.packed, logits, &err), HEED_OK);
    for (int p = 0; p < n; p++) {
        double want = log_probability(logits + p * V, one.tgt_out[p]);
        if (!(fabs((double)found->token_score[p] - want) <= 1e-4))
            fail_msg("%s: the score of token %d of sentence %d is %.7g, expected %.7g", name, p, i,
                     (double)found->token_score[p], want);
    }
}

/* temperature: 0: beam search; above: sampling */
static void check_search(const struct variant *v, float temperature)
{
    struct heed_config c = variant_config(v, &toy_config);
    struct heed_error err = {0};
    const struct search_options o = {.bos = TOY_BOS, .eos = TOY_EOS, .rows = 3 * WIDTH};
    const struct beam_options beam = {.width = WIDTH, .nbest = WIDTH, .temperature = temperature};
    static const int no_target[N];
    struct toy t;
    struct toy_batch b;
    struct search *search;
    struct sentence sentence[N] = {0};
    struct translation found[N][WIDTH] = {0};
    toy_open(&t, device_or_cpu(), &c, precision_f32, false);
    toy_batch(&b, N, src_len, no_target, V, 5);
    assert_int_equal(search_open(&search, t.be, t.p, &o, &err), HEED_OK);
    for (int i = 0; i < N; i++) {
        sentence[i] = (struct sentence){.beam = beam, .longest = LONGEST, .out = found[i]};
        sentence[i].src = (struct heed_ids){b.src + b.src_off[i], src_len[i] - 1, src_len[i] - 1};
    }
    assert_int_equal(search_run(search, sentence, N, &err), HEED_OK);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < WIDTH; k++) {
            check_translation(v->name, &t, &b, i, &found[i][k]);
            translation_release(&found[i][k]);
        }
    search_free(search);
    toy_close(&t);
}

static void test_form(void **state)
{
    check_search(*state, 0);
    check_search(*state, 1);
}

int main(void)
{
    device_or_skip();
    return variants_run("search forms", test_form);
}
