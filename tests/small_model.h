/*
 * small_model.h - for tests through heed.h: a model so small that it is trained in a second, on a
 * file of pairs in the folder of text_files.h.
 */
#ifndef HEED_TESTS_SMALL_MODEL_H
#define HEED_TESTS_SMALL_MODEL_H
#include "text_files.h"

#include "device.h"
#include "heed.h"

static inline void must(enum heed_status status, const struct heed_error *err)
{
    if (status) fail_msg("%s", err->text);
}

/* pairs: one file, which must live as long as the options. */
static inline struct heed_train_options small_options(const char *const *pairs, const char *vocab,
                                                      const char *out)
{
    struct heed_train_options o = heed_train_defaults();
    o.train = (struct heed_corpus){.src = pairs, .n = 1};
    o.vocab = vocab;
    o.out = out;
    o.config = (struct heed_config){.d_model = 32,
                                    .d_ff = 32,
                                    .heads = 2,
                                    .encoder_layers = 1,
                                    .decoder_layers = 1,
                                    .max_length = 40};
    o.batch_tokens = 256;
    return o;
}

/* A vocabulary in at("vocab") and a model in at("model") that has learned a little of the pairs. */
static inline void small_model_train(const char *pairs, const struct heed_tokenizer_options *v)
{
    struct heed_error err = {0};
    must(heed_tokenizer_train(&pairs, 1, v, at("vocab"), &err), &err);
    struct heed_train_options o = small_options(&pairs, at("vocab"), at("model"));
    o.batch_tokens = 512;
    o.steps = 60;
    o.warmup = 20;
    o.peak_lr = 0.005f;
    struct heed_engine *cpu = heed_engine_open(device_cpu(), 2, &err);
    struct heed_trainer *t = cpu ? heed_trainer_open(cpu, &o, &err) : NULL;
    must(t ? heed_trainer_run(t, &err) : err.status, &err);
    heed_trainer_free(t);
    heed_engine_free(cpu);
}

#endif
