/*
 * options.c - the options of a training run: defaults, checks, and the recipe that a resumed run
 * must share with the run it goes on with.
 */
#include "train/options.h"

#include <float.h>
#include <stdio.h>

#include "base/error.h"

struct heed_train_options heed_train_defaults(void)
{
    struct heed_train_options o = {.precision = HEED_F32,
                                   .seed = 1,
                                   .steps = 100000,
                                   .batch_tokens = 4096,
                                   .accumulate = 1,
                                   .warmup = 4000,
                                   .beta1 = 0.9f,
                                   .beta2 = 0.98f,
                                   .epsilon = 1e-9f,
                                   .label_smoothing = 0.1f,
                                   .valid_every = 1000,
                                   .valid_bleu = true,
                                   .valid_tokenize = "13a",
                                   .save_every = 1000,
                                   .keep = 5};
    heed_config_preset(&o.config, "base", NULL);
    return o;
}

/* Limits far beyond any use. They keep sums and products of the options within their types. */
static const int64_t STEPS_MOST = INT64_C(1000000000000000);
enum { BATCH_TOKENS_MOST = 1 << 24, ACCUMULATE_MOST = 1000000, COUNT_MOST = 1000000000 };

static enum heed_status check_whole(const struct heed_train_options *o, struct heed_error *err)
{
    const struct {
        const char *name;
        int64_t found, least, most;
    } whole[] = {
        {"steps", o->steps, 1, STEPS_MOST},
        {"batch_tokens", o->batch_tokens, 16, BATCH_TOKENS_MOST},
        {"accumulate", o->accumulate, 1, ACCUMULATE_MOST},
        {"shards", o->shards, 0, SHARDS_MAX},
        {"warmup", o->warmup, 1, COUNT_MOST},
        {"valid_every", o->valid_every, 0, STEPS_MOST},
        {"patience", o->patience, 0, COUNT_MOST},
        {"save_every", o->save_every, 0, STEPS_MOST},
        {"keep", o->keep, 1, COUNT_MOST},
        {"train_length", o->train_length, 0, o->config.max_length},
        {"schedule", (int64_t)o->schedule, HEED_SCHEDULE_INVERSE_SQRT, HEED_SCHEDULE_CONSTANT},
        {"precision", (int64_t)o->precision, HEED_F32, HEED_BF16},
        {"link", (int64_t)o->link, HEED_LINK_AUTO, HEED_LINK_NCCL},
        {"sum", (int64_t)o->sum, HEED_SUM_EXACT, HEED_SUM_FAST},
        {"best_by", (int64_t)o->best_by, HEED_BEST_NLL, HEED_BEST_CHRF},
    };
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (whole[i].found < whole[i].least || whole[i].found > whole[i].most)
            return error_set(err, HEED_EARG, "%s is %lld, expected %lld to %lld", whole[i].name,
                             (long long)whole[i].found, (long long)whole[i].least,
                             (long long)whole[i].most);
    return HEED_OK;
}

/* A comparison with NaN is false, so NaN fails these checks. */
static enum heed_status check_reals(const struct heed_train_options *o, struct heed_error *err)
{
    const struct {
        const char *name;
        float found;
        bool part; /* must be less than 1; false: must be finite */
    } real[] = {
        {"beta1", o->beta1, true},
        {"beta2", o->beta2, true},
        {"label_smoothing", o->label_smoothing, true},
        {"subword_dropout", o->subword_dropout, true},
        {"peak_lr", o->peak_lr, false},
        {"epsilon", o->epsilon, false},
        {"clip", o->clip, false},
    };
    for (size_t i = 0; i < sizeof real / sizeof *real; i++) {
        float x = real[i].found;
        if (!(x >= 0 && (real[i].part ? x < 1 : x <= FLT_MAX)))
            return error_set(err, HEED_EARG, "%s is %g, expected at least 0 and %s", real[i].name,
                             (double)x, real[i].part ? "less than 1" : "finite");
    }
    return HEED_OK;
}

/* Limits of weights and temperatures: beyond them an epoch could not be counted. */
static const double MIX_LEAST = 1e-6, MIX_MOST = 1e6;

static enum heed_status check_mix(const struct heed_corpus *c, struct heed_error *err)
{
    double t = c->temperature;
    if (t != 0 && !(t >= MIX_LEAST && t <= MIX_MOST))
        return error_set(err, HEED_EARG, "the temperature is %g, expected 0 or %g to %g", t,
                         MIX_LEAST, MIX_MOST);
    if (t != 0 && c->weight)
        return error_set(err, HEED_EARG,
                         "weights and a temperature of the training text exclude "
                         "each other");
    for (int i = 0; c->weight && i < c->n; i++)
        if (!(c->weight[i] >= MIX_LEAST && c->weight[i] <= MIX_MOST))
            return error_set(err, HEED_EARG, "the weight of %s is %g, expected %g to %g", c->src[i],
                             c->weight[i], MIX_LEAST, MIX_MOST);
    return HEED_OK;
}

bool train_options_translate(const struct heed_train_options *o)
{
    return o->valid.n && (o->valid_bleu || o->best_by != HEED_BEST_NLL);
}

enum heed_status train_options_check(const struct heed_train_options *o, struct heed_error *err)
{
    const struct heed_corpus *train = &o->train, *valid = &o->valid;
    enum heed_status s = error_strings(err, "train.src", train->src, train->n);
    if (!s && train->tgt) s = error_strings(err, "train.tgt", train->tgt, train->n);
    if (!s) s = error_strings(err, "valid.src", valid->src, valid->n);
    if (!s && valid->tgt) s = error_strings(err, "valid.tgt", valid->tgt, valid->n);
    if (s) return s;
    if (!o->train.n) return error_set(err, HEED_EARG, "no training files were given");
    if (!o->vocab || !*o->vocab) return error_set(err, HEED_EARG, "no vocabulary was given");
    if (!o->out || !*o->out) return error_set(err, HEED_EARG, "no output directory was given");
    if (train_options_translate(o) && !o->valid_tokenize) return error_null(err, "valid_tokenize");
    s = check_mix(train, err);
    if (!s) s = check_whole(o, err);
    if (!s) s = check_reals(o, err);
    if (!s && o->shards && !shards_valid(o->shards))
        s = error_set(err, HEED_EARG, "shards is %d, expected a power of two", o->shards);
    return s;
}

enum heed_status train_options_recipe(struct recipe *r, const struct heed_train_options *o,
                                      struct heed_error *err)
{
    *r = (struct recipe){.seed = o->seed,
                         .batch_tokens = o->batch_tokens,
                         .accumulate = o->accumulate,
                         .shards = o->shards,
                         .warmup = o->warmup,
                         .schedule = o->schedule,
                         .train_length = o->train_length,
                         .peak_lr = o->peak_lr,
                         .beta1 = o->beta1,
                         .beta2 = o->beta2,
                         .epsilon = o->epsilon,
                         .label_smoothing = o->label_smoothing,
                         .subword_dropout = o->subword_dropout,
                         .clip = o->clip,
                         .precision = o->precision,
                         .best_by = o->best_by};
    if (o->valid.n && o->best_by == HEED_BEST_BLEU)
        snprintf(r->valid_tokenize, sizeof r->valid_tokenize, "%s", o->valid_tokenize);
    fingerprint_mix(r->mix, &o->train);
    enum heed_status s = fingerprint_corpus(r->data, &o->train, err);
    if (!s) s = fingerprint_corpus(r->valid, &o->valid, err);
    return s;
}
