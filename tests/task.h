/*
 * task.h - a small task to train on, and runs of the trainer over it: a line of letters, the same
 * line reversed.
 *
 * Call order: set_up, any number of runs, tear_down.
 */
#ifndef HEED_TESTS_TASK_H
#define HEED_TESTS_TASK_H
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/random.h"
#include "device.h"
#include "heed.h"

/* The directory with the text and its vocabulary. */
struct place {
    char dir[64], src[96], tgt[96], vocab[96];
    const char *src_list[1], *tgt_list[1];
};

static struct place place;

static inline const char *in_place(const char *name)
{
    static char path[32][192];
    static int next;
    char *p = path[next++ % 32];
    snprintf(p, sizeof path[0], "%s/%s", place.dir, name);
    return p;
}

/* Lines of letters from `first` on, and the same reversed. */
static inline void write_task(const char *src, const char *tgt, char first)
{
    FILE *s = fopen(src, "w"), *t = fopen(tgt, "w");
    uint64_t random = 5;
    for (int i = 0; i < 400; i++) {
        int n = 2 + (int)random_below(&random, 7);
        char word[32] = "";
        for (int j = 0; j < n; j++) {
            word[2 * j] = first + (int)random_below(&random, 10);
            word[2 * j + 1] = ' ';
        }
        fprintf(s, "%.*s\n", 2 * n - 1, word);
        for (int j = n - 1; j >= 0; j--) fprintf(t, "%c%s", word[2 * j], j ? " " : "\n");
    }
    fclose(s);
    fclose(t);
}

static inline void make_vocab(const char *src, const char *tgt, const char *vocab)
{
    struct heed_error err = {0};
    struct heed_tokenizer_options o = {.vocab_size = 275};
    if (heed_tokenizer_train((const char *[]){src, tgt}, 2, &o, vocab, &err))
        fail_msg("%s", err.text);
}

static inline int set_up(void **state)
{
    (void)state;
    strcpy(place.dir, "/tmp/heed-train-XXXXXX");
    assert_non_null(mkdtemp(place.dir));
    strcpy(place.src, in_place("a.src"));
    strcpy(place.tgt, in_place("a.tgt"));
    strcpy(place.vocab, in_place("vocab.model"));
    write_task(place.src, place.tgt, 'a');
    place.src_list[0] = place.src;
    place.tgt_list[0] = place.tgt;
    make_vocab(place.src, place.tgt, place.vocab);
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", place.dir);
    return system(command);
}

static inline struct heed_train_options options(const char *out)
{
    struct heed_train_options o = heed_train_defaults();
    o.train = (struct heed_corpus){.src = place.src_list, .tgt = place.tgt_list, .n = 1};
    o.vocab = place.vocab;
    o.out = out;
    o.config = (struct heed_config){.d_model = 16,
                                    .d_ff = 32,
                                    .heads = 2,
                                    .encoder_layers = 1,
                                    .decoder_layers = 1,
                                    .max_length = 64,
                                    .dropout = 0.1f,
                                    .attention_dropout = 0.1f,
                                    .ff_dropout = 0.1f};
    o.steps = 12;
    o.batch_tokens = 128;
    o.warmup = 10;
    o.save_every = 0;
    return o;
}

static inline enum heed_status train_on(const char *device, const struct heed_train_options *o,
                                        int threads, struct heed_error *err)
{
    struct heed_engine *e = heed_engine_open(device, threads, err);
    struct heed_trainer *t = e ? heed_trainer_open(e, o, err) : NULL;
    enum heed_status s = t ? heed_trainer_run(t, err) : err->status;
    heed_trainer_free(t);
    heed_engine_free(e);
    return s;
}

static inline enum heed_status train(const struct heed_train_options *o, int threads,
                                     struct heed_error *err)
{
    return train_on(device_or_cpu(), o, threads, err);
}

static inline void must_train(const struct heed_train_options *o, int threads)
{
    struct heed_error err = {0};
    if (train(o, threads, &err)) fail_msg("%s", err.text);
}

static inline void assert_same_file(const char *a, const char *b)
{
    char *x = NULL, *y = NULL;
    size_t n = 0, m = 0;
    struct heed_error err = {0};
    if (file_read(a, 1 << 26, &x, &n, &err) || file_read(b, 1 << 26, &y, &m, &err))
        fail_msg("%s", err.text);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

static inline void assert_fails(const struct heed_train_options *o, enum heed_status status,
                                const char *words)
{
    struct heed_error err = {0};
    assert_int_equal(train(o, 1, &err), status);
    if (!strstr(err.text, words)) fail_msg("\"%s\" does not say \"%s\"", err.text, words);
}

#endif
