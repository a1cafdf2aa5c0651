/*
 * toy.h - a small model and packed batches made by hand, for tests of the model.
 */
#ifndef HEED_TESTS_TOY_H
#define HEED_TESTS_TOY_H
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/packed.h"
#include "base/random.h"
#include "model/run.h"

static const struct heed_config toy_config = {.d_model = 8,
                                              .d_ff = 12,
                                              .heads = 2,
                                              .encoder_layers = 2,
                                              .decoder_layers = 2,
                                              .vocab_size = 11,
                                              .max_length = 16,
                                              .dropout = 0.2f,
                                              .attention_dropout = 0.1f,
                                              .ff_dropout = 0.15f};

enum { TOY_ROWS = 64, TOY_SENTENCES = 16, TOY_BOS = 1, TOY_EOS = 2 };

/* A batch with its arrays, into which `packed` points. */
struct toy_batch {
    struct packed packed;
    int32_t src[TOY_ROWS], src_pos[TOY_ROWS], tgt_in[TOY_ROWS], tgt_out[TOY_ROWS],
        tgt_pos[TOY_ROWS];
    int32_t src_off[TOY_SENTENCES + 1], tgt_off[TOY_SENTENCES + 1];
    int32_t src_len[TOY_SENTENCES], tgt_len[TOY_SENTENCES];
};

static inline void toy_bind(struct toy_batch *b)
{
    b->packed.src = b->src, b->packed.src_pos = b->src_pos;
    b->packed.tgt_in = b->tgt_in, b->packed.tgt_out = b->tgt_out, b->packed.tgt_pos = b->tgt_pos;
    b->packed.src_off = b->src_off, b->packed.tgt_off = b->tgt_off;
    b->packed.src_len = b->src_len, b->packed.tgt_len = b->tgt_len;
}

/* Sentences of the given lengths (marks included) with ids drawn from the seed. */
static inline void toy_batch(struct toy_batch *b, int n, const int *src_len, const int *tgt_len,
                             int vocab, uint64_t seed)
{
    memset(b, 0, sizeof *b);
    toy_bind(b);
    struct packed *p = &b->packed;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < src_len[i]; j++, p->rows_src++) {
            b->src[p->rows_src] =
                j == src_len[i] - 1 ? TOY_EOS : 3 + (int)random_below(&seed, vocab - 3);
            b->src_pos[p->rows_src] = j;
        }
        for (int j = 0; j < tgt_len[i]; j++, p->rows_tgt++) {
            b->tgt_in[p->rows_tgt] = j ? b->tgt_out[p->rows_tgt - 1] : TOY_BOS;
            b->tgt_out[p->rows_tgt] =
                j == tgt_len[i] - 1 ? TOY_EOS : 3 + (int)random_below(&seed, vocab - 3);
            b->tgt_pos[p->rows_tgt] = j;
        }
        b->src_len[i] = src_len[i], b->tgt_len[i] = tgt_len[i];
        b->src_off[i + 1] = p->rows_src, b->tgt_off[i + 1] = p->rows_tgt;
        if (src_len[i] > p->max_src) p->max_src = src_len[i];
        if (tgt_len[i] > p->max_tgt) p->max_tgt = tgt_len[i];
    }
    p->n = n;
}

/* Sentence i of a batch as a batch of its own. */
static inline void toy_single(struct toy_batch *one, const struct toy_batch *b, int i)
{
    memset(one, 0, sizeof *one);
    toy_bind(one);
    struct packed *p = &one->packed;
    p->n = 1;
    p->rows_src = p->max_src = one->src_off[1] = one->src_len[0] = b->src_len[i];
    p->rows_tgt = p->max_tgt = one->tgt_off[1] = one->tgt_len[0] = b->tgt_len[i];
    memcpy(one->src, b->src + b->src_off[i], b->src_len[i] * sizeof *one->src);
    memcpy(one->tgt_in, b->tgt_in + b->tgt_off[i], b->tgt_len[i] * sizeof *one->src);
    memcpy(one->tgt_out, b->tgt_out + b->tgt_off[i], b->tgt_len[i] * sizeof *one->src);
    for (int j = 0; j < TOY_ROWS; j++) one->src_pos[j] = one->tgt_pos[j] = j;
}

/* A backend, parameters drawn from a seed, and a run for toy batches. */
struct toy {
    struct backend *be;
    struct parameters *p;
    struct run *run;
};

static inline void toy_open(struct toy *t, const char *device, const struct heed_config *c,
                            struct precision precision, bool train)
{
    struct heed_error err = {0};
    struct run_options o = {.rows_src = TOY_ROWS,
                            .rows_tgt = TOY_ROWS,
                            .sentences = TOY_SENTENCES,
                            .candidates = 4,
                            .cached = TOY_ROWS * TOY_ROWS,
                            .train = train};
    assert_int_equal(backend_open(&t->be, device, 2, &err), HEED_OK);
    assert_int_equal(parameters_open(&t->p, t->be, c, precision, &err), HEED_OK);
    assert_int_equal(parameters_init(t->p, 7, &err), HEED_OK);
    assert_int_equal(run_open(&t->run, t->be, t->p, &o, &err), HEED_OK);
}

static inline void toy_close(struct toy *t)
{
    run_free(t->run);
    parameters_free(t->p);
    t->be->op->close(t->be);
}

#endif
