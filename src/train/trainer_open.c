/*
 * trainer_open.c - opens a training run: a new one, or one that is resumed.
 *
 * With a cluster, each part of the work ends with cluster_agree: a problem on one rank ends the
 * opening on all of them, with the same sentence.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "corpus/pairs.h"
#include "model/config.h"
#include "store/directory.h"
#include "tokens/tokenizer.h"
#include "train/options.h"
#include "train/trainer.h"

/* ---- text and model ---- */

static enum heed_status open_vocab(struct heed_trainer *t, struct heed_error *err)
{
    struct heed_config *c = &t->o.config;
    t->tokenizer = heed_tokenizer_load(t->o.vocab, err);
    if (!t->tokenizer) return HEED_EFORMAT;
    int size = heed_tokenizer_size(t->tokenizer);
    if (c->vocab_size && c->vocab_size != size)
        return error_set(err, HEED_EARG, "vocabulary %s has %d pieces, expected %d", t->o.vocab,
                         size, c->vocab_size);
    c->vocab_size = size;
    return config_check(c, err);
}

/* Reports a file that is missing or cannot be read before anything is created. */
static enum heed_status check_text(const struct heed_corpus *c, struct heed_error *err)
{
    struct pairs *pairs = NULL;
    enum heed_status s = c->n ? pairs_open(&pairs, c, err) : HEED_OK;
    pairs_free(pairs);
    return s;
}

int trainer_experts(const struct heed_trainer *t)
{
    const struct heed_config *c = &t->o.config;
    return config_experts(c) * (c->encoder_layers + c->decoder_layers);
}

static enum heed_status open_experts(struct heed_trainer *t, struct heed_error *err)
{
    size_t n = (size_t)trainer_experts(t);
    if (!n) return HEED_OK;
    t->load = calloc(n, sizeof *t->load);
    t->expert = calloc(n, sizeof *t->expert);
    if (t->load && t->expert) return HEED_OK;
    return error_memory(err, n * (sizeof *t->load + sizeof *t->expert), "the trainer");
}

/* What a run of several shards needs besides: sums over them, and reports of the ranks. */
static enum heed_status open_exchange(struct heed_trainer *t, struct heed_error *err)
{
    if (t->o.shards == 1) return HEED_OK;
    size_t report = trainer_report_size(t), all = report * (size_t)cluster_ranks(t->cluster);
    t->report = calloc(report, sizeof *t->report);
    t->reports = calloc(all, sizeof *t->reports);
    if (!t->report || !t->reports)
        return error_memory(err, (report + all) * sizeof *t->report, "the trainer");
    struct exchange_options o = {t->link.open, t->o.sum == HEED_SUM_FAST};
    return exchange_open(&t->exchange, t->cluster, &t->slices, t->run, &o, err);
}

static enum heed_status open_link(struct heed_trainer *t, struct heed_error *err)
{
    struct link_wish wish = {t->o.link, t->o.sum};
    return link_choose(&t->link, t->cluster, t->be, &wish, err);
}

/* Ranks that do not know of this rank's error may never do their part of a transfer. */
static void close_link(struct heed_trainer *t)
{
    bool alone = t->cluster && t->cluster->failed && !t->cluster->shared;
    if (t->link.open) t->be->op->link->close(t->be, alone);
}

static enum heed_status open_model(struct heed_trainer *t, struct heed_error *err)
{
    const struct heed_train_options *o = &t->o;
    struct precision precision = o->precision == HEED_BF16 ? precision_bf16 : precision_f32;
    int tokens = o->batch_tokens / o->shards;
    struct run_options run = {
        .rows_src = tokens, .rows_tgt = tokens, .sentences = tokens, .train = true};
    bool shared = cluster_ranks(t->cluster) > 1 && precision.matrix != precision.master;
    enum heed_status s = shared ? parameters_open_shared(&t->p, t->be, &o->config, precision, err)
                                : parameters_open(&t->p, t->be, &o->config, precision, err);
    if (!s) s = open_experts(t, err);
    if (!s) s = run_open(&t->run, t->be, t->p, &run, err);
    if (s) return s;
    slices_init(&t->slices, &o->config, o->shards, cluster_rank(t->cluster),
                cluster_ranks(t->cluster));
    s = optimizer_open(&t->opt, t->p, o->shards > 1 ? &t->slices : NULL, err);
    if (!s) s = open_exchange(t, err);
    return s;
}

struct checkpoint checkpoint_of(const struct heed_trainer *t)
{
    return (struct checkpoint){
        .p = t->p, .opt = t->opt, .tokenizer = t->tokenizer, .out = t->o.out};
}

/* ---- shards ---- */

/* The default of a new run under a launcher: a multiple of the number of ranks of one machine or
 * a few, so that the run can go on with more or fewer of them. */
enum { CLUSTER_SHARDS = 8, SHARD_TOKENS_LEAST = 16 };

/* Sets the number of shards where it is not given: that of the run in the output directory, or the
 * default. */
static enum heed_status choose_shards(struct heed_trainer *t, struct heed_error *err)
{
    struct heed_train_options *o = &t->o;
    int ranks = cluster_ranks(t->cluster);
    enum heed_status s = HEED_OK;
    if (!o->shards && o->resume && trainer_writes(t))
        s = checkpoint_shards(o->out, &o->shards, err);
    if (!o->shards && !t->cluster) o->shards = 1;
    if (!o->shards) o->shards = ranks > CLUSTER_SHARDS ? ranks : CLUSTER_SHARDS;
    s = cluster_agree(t->cluster, s, err);
    if (!s) s = cluster_from_first(t->cluster, &o->shards, sizeof o->shards, err);
    return s;
}

static enum heed_status open_shards(struct heed_trainer *t, struct heed_error *err)
{
    struct heed_train_options *o = &t->o;
    int ranks = cluster_ranks(t->cluster);
    enum heed_status s = choose_shards(t, err);
    if (s) return s;
    if (o->shards % ranks)
        return error_set(err, HEED_EARG,
                         "%d shards cannot be divided among %d ranks: the number of ranks must be "
                         "a power of two and at most that of the shards (--shards)",
                         o->shards, ranks);
    if (o->batch_tokens / o->shards < SHARD_TOKENS_LEAST)
        return error_set(err, HEED_EARG,
                         "batch_tokens is %d, expected at least %d for each of %d shards",
                         o->batch_tokens, SHARD_TOKENS_LEAST, o->shards);
    t->shards = o->shards / ranks;
    t->shard = calloc((size_t)t->shards, sizeof *t->shard);
    return t->shard ? HEED_OK
                    : error_memory(err, (size_t)t->shards * sizeof *t->shard, "the trainer");
}

/* ---- a new run, or one that is resumed ---- */

/* Loads the state of the run from the checkpoint of a step. *damaged: this checkpoint cannot be
 * used, but an older one may be. */
static enum heed_status resume_from(struct heed_trainer *t, const struct recipe *given,
                                    int64_t step, bool *damaged, struct heed_error *err)
{
    struct checkpoint c = checkpoint_of(t);
    enum heed_status s = checkpoint_read(&c, step, given, &t->at, err);
    if (!s) {
        *damaged = false;
        s = record_same_run(&t->at.recipe, given, t->o.out, err);
        if (!s) s = checkpoint_check(&c, step, err);
        if (s) return s;
        s = checkpoint_load(&c, step, err);
    }
    *damaged = s == HEED_EFORMAT || s == HEED_EIO;
    return s;
}

/* Resumes from the newest usable one of n checkpoints. Newer ones, which are damaged, are renamed,
 * because the run will write checkpoints of the same steps again. */
static enum heed_status resume(struct heed_trainer *t, const struct recipe *given,
                               const int64_t *step, int n, struct heed_error *err)
{
    struct heed_error why = {0}, first = {0};
    struct checkpoint c = checkpoint_of(t);
    bool damaged = false;
    int i = 0;
    enum heed_status s = resume_from(t, given, step[0], &damaged, &first);
    why = first;
    while (s && damaged && ++i < n) s = resume_from(t, given, step[i], &damaged, &why);
    if (s) return error_set(err, s, "%s", damaged ? first.text : why.text);
    for (int k = 0; k < i && !s; k++) s = checkpoint_set_aside(t->o.out, step[k], err);
    if (i)
        snprintf(t->trouble, sizeof t->trouble,
                 "; checkpoint %lld is not usable and is now called damaged-step-%08lld: %s",
                 (long long)step[0], (long long)step[0], first.text);
    t->saved = step[i];
    t->opt->guard = t->at.guard;
    if (!t->at.recipe.valid[0]) { /* the run had no validation text before */
        memcpy(t->at.recipe.valid, given->valid, sizeof given->valid);
        memcpy(t->at.recipe.valid_tokenize, given->valid_tokenize, sizeof given->valid_tokenize);
        t->at.recipe.best_by = given->best_by;
    }
    /* The run may have been killed after it saved the checkpoint and before it published it. */
    if (!s) s = checkpoint_publish(&c, t->saved, err);
    return s;
}

static enum heed_status init_weights(struct heed_trainer *t, struct heed_error *err)
{
    if (!t->opt->master.p) return parameters_init(t->p, t->o.seed, err);
    void *values = parameters_initial(t->p, t->o.seed, err);
    enum heed_status s = values ? optimizer_start(t->opt, values, err) : HEED_ENOMEM;
    free(values);
    return s;
}

/* Sets the state to the beginning of a run, or to that of the newest usable checkpoint. */
static enum heed_status begin_or_resume(struct heed_trainer *t, const struct recipe *given,
                                        struct heed_error *err)
{
    const struct heed_train_options *o = &t->o;
    int64_t *step = NULL;
    int n = 0;
    enum heed_status s = checkpoint_list(o->out, &step, &n, err);
    if (s) return s;
    if (!n) {
        t->at = (struct progress){.recipe = *given};
        s = directory_check_new_run(o->out, t->tokenizer, o->vocab, err);
        if (!s) s = init_weights(t, err);
    } else if (o->resume) {
        s = resume(t, given, step, n, err);
    } else {
        s = error_set(err, HEED_EARG,
                      "%s holds a run at step %lld already: add --resume to go on, or choose "
                      "another directory",
                      o->out, (long long)step[0]);
    }
    free(step);
    return s;
}

/* The other ranks follow rank 0, which has seen to it that the checkpoint is sound. */
static enum heed_status follow(struct heed_trainer *t, struct heed_error *err)
{
    struct checkpoint c = checkpoint_of(t);
    if (!t->saved) return init_weights(t, err);
    t->opt->guard = t->at.guard;
    return checkpoint_load(&c, t->saved, err);
}

enum heed_status trainer_share_weights(struct heed_trainer *t, struct heed_error *err)
{
    if (!t->opt->master.p) return HEED_OK;
    optimizer_refresh(t->opt);
    enum heed_status s = t->be->op->sync(t->be, err);
    return s ? s : exchange_gather(t->exchange, err);
}

static enum heed_status open_state(struct heed_trainer *t, const struct recipe *given,
                                   struct heed_error *err)
{
    enum heed_status s = trainer_writes(t) ? begin_or_resume(t, given, err) : HEED_OK;
    s = cluster_agree(t->cluster, s, err);
    if (!s) s = cluster_from_first(t->cluster, &t->at, sizeof t->at, err);
    if (!s) s = cluster_from_first(t->cluster, &t->saved, sizeof t->saved, err);
    if (!s && !trainer_writes(t)) s = follow(t, err);
    s = cluster_agree(t->cluster, s, err);
    return s ? s : trainer_share_weights(t, err);
}

/* ---- data ---- */

static void on_indexed(void *user, double part)
{
    struct heed_trainer *t = user;
    struct heed_event e = trainer_event(t, HEED_EVENT_INDEX);
    e.indexed = part;
    if (t->o.event) t->o.event(t->o.user, &e);
}

/* Rank 0 opens the text before the others, so that its index is made once. */
static enum heed_status open_text(struct heed_trainer *t, const struct batch_options *b,
                                  struct heed_error *err)
{
    size_t bytes = (size_t)t->o.train.n * sizeof *t->read;
    t->read = calloc(1, bytes);
    enum heed_status s = t->read ? HEED_OK : error_memory(err, bytes, "the trainer");
    if (!s && trainer_writes(t)) s = batch_share(&t->text, b, err);
    s = cluster_agree(t->cluster, s, err);
    return s || trainer_writes(t) ? s : batch_share(&t->text, b, err);
}

static enum heed_status open_batches(struct heed_trainer *t, struct heed_error *err)
{
    const struct heed_train_options *o = &t->o;
    char index[FILE_PATH_MAX];
    enum heed_status s = file_join(index, sizeof index, o->out, "index", err);
    if (s) return s;
    struct batch_options b = {.corpus = o->train,
                              .tokenizer = t->tokenizer,
                              .batch_tokens = o->batch_tokens / o->shards,
                              .max_length =
                                  o->train_length ? o->train_length : o->config.max_length,
                              .threads = t->threads,
                              .shards = o->shards,
                              .seed = o->seed,
                              .subword_dropout = o->subword_dropout,
                              .shuffle = true,
                              .index = index,
                              .watch = {on_indexed, t}};
    s = open_text(t, &b, err);
    b.shared = t->text;
    for (int i = 0; i < t->shards && !s; i++) {
        b.shard = cluster_rank(t->cluster) * t->shards + i;
        b.start = *trainer_cursor(t, i);
        s = batch_open(&t->shard[i].batches, &b, err);
    }
    return s;
}

static enum heed_status open_validation(struct heed_trainer *t, struct heed_error *err)
{
    const struct heed_train_options *o = &t->o;
    struct validator_options v = {.corpus = o->valid,
                                  .tokenizer = t->tokenizer,
                                  .cluster = t->cluster,
                                  .batch_tokens = o->batch_tokens / o->shards,
                                  .threads = t->threads,
                                  .dir = o->out,
                                  .step = t->at.step};
    if (train_options_translate(o)) v.tokenize = o->valid_tokenize;
    return o->valid.n ? validator_open(&t->validator, t->p, &v, err) : HEED_OK;
}

/* ---- life ---- */

/* What can be checked before anything is created. */
static enum heed_status open_given(struct heed_trainer *t, struct heed_engine *e,
                                   struct recipe *given, struct heed_error *err)
{
    const struct heed_train_options *o = &t->o;
    enum heed_status s = train_options_check(o, err);
    if (!s) s = engine_fork(e, &t->be, err);
    if (!s) s = open_vocab(t, err);
    if (!s) s = check_text(&o->train, err);
    if (!s) s = check_text(&o->valid, err);
    if (!s && t->cluster) s = train_options_recipe(given, o, err);
    return s;
}

static enum heed_status open_directory(struct heed_trainer *t, struct heed_error *err)
{
    if (!trainer_writes(t)) return HEED_OK;
    enum heed_status s = file_mkdir(t->o.out, err);
    if (!s) s = file_lock_dir(t->o.out, &t->lock, err);
    return s;
}

static enum heed_status open_all(struct heed_trainer *t, struct heed_engine *e,
                                 struct heed_error *err)
{
    struct heed_cluster *c = t->cluster;
    struct recipe given;
    enum heed_status s = cluster_agree(c, open_given(t, e, &given, err), err);
    if (!s) s = cluster_agree(c, open_directory(t, err), err);
    if (!s && cluster_ranks(c) > 1) s = trainer_same_run(t, &given, err);
    if (!s) s = cluster_agree(c, open_shards(t, err), err);
    if (!s) s = cluster_agree(c, open_link(t, err), err);
    if (!s) s = cluster_agree(c, open_model(t, err), err);
    if (!s) s = train_options_recipe(&given, &t->o, err);
    s = cluster_agree(c, s, err);
    if (!s) s = cluster_agree(c, open_state(t, &given, err), err);
    if (!s) s = open_batches(t, err);
    if (!s) s = open_validation(t, err);
    if (!s && trainer_writes(t)) s = log_open(&t->log, t->o.out, t->at.step, err);
    return cluster_agree(c, s, err);
}

struct heed_trainer *heed_trainer_open(struct heed_engine *e, const struct heed_train_options *o,
                                       struct heed_error *err)
{
    if (!e || !o) {
        error_null(err, e ? "options" : "engine");
        return NULL;
    }
    struct heed_trainer *t = calloc(1, sizeof *t);
    if (!t) {
        error_memory(err, sizeof *t, "the trainer");
        return NULL;
    }
    t->threads = e->threads;
    t->o = *o;
    t->cluster = o->cluster;
    t->lock = -1;
    t->start = clock_now();
    atomic_init(&t->stop, false);
    if (open_all(t, e, err)) {
        heed_trainer_free(t);
        return NULL;
    }
    double paper = schedule_paper_peak(o->config.d_model, o->warmup);
    t->schedule =
        (struct schedule){o->peak_lr > 0 ? (double)o->peak_lr : paper, o->warmup, o->schedule};
    t->first_step = t->at.step;
    return t;
}

void heed_trainer_free(struct heed_trainer *t)
{
    if (!t) return;
    close_link(t);
    /* Downloads that are under way write to memory that is freed below. */
    if (t->run) t->be->op->sync(t->be, NULL);
    for (int i = 0; i < t->shards && t->shard; i++) batch_free(t->shard[i].batches);
    batch_unshare(t->text);
    free(t->shard);
    free(t->read);
    validator_free(t->validator);
    log_free(t->log);
    optimizer_free(t->opt);
    exchange_free(t->exchange);
    free(t->report);
    free(t->reports);
    free(t->load);
    free(t->expert);
    run_free(t->run);
    parameters_free(t->p);
    heed_tokenizer_free(t->tokenizer);
    if (t->be) t->be->op->close(t->be);
    if (t->lock >= 0) close(t->lock);
    free(t);
}
