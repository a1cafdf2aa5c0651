/*
 * trainer.c - the training loop: steps, validation, checkpoints, events.
 *
 * A run is a function of its options and data: dropout masks are a function of (seed, step, batch),
 * and the order of the data is one of the seed and the cursor. So a run that is interrupted and
 * resumed ends with the same weights as one in one piece.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "train/trainer.h"

/* ---- events ---- */

struct heed_event trainer_event(const struct heed_trainer *t, enum heed_event_kind kind)
{
    double seconds = clock_now() - t->start;
    int64_t done = t->at.step - t->first_step, left = t->o.steps - t->at.step;
    return (struct heed_event){.kind = kind,
                               .step = t->at.step,
                               .steps = t->o.steps,
                               .epoch = t->at.cursor[0].epoch + 1,
                               .lr = schedule_lr(&t->schedule, t->at.step > 0 ? t->at.step : 1),
                               .tokens_s = t->rate,
                               .seconds = seconds,
                               .seconds_to_go = done ? seconds / (double)done * (double)left : 0,
                               .bleu = -1,
                               .chrf = -1};
}

enum heed_status trainer_tell(struct heed_trainer *t, const struct heed_event *e,
                              struct heed_error *err)
{
    if (t->o.event) t->o.event(t->o.user, e);
    return t->log ? log_event(t->log, e, err) : HEED_OK;
}

enum heed_status trainer_tell_text(struct heed_trainer *t, enum heed_event_kind kind,
                                   const char *text, struct heed_error *err)
{
    struct heed_event e = trainer_event(t, kind);
    e.text = text;
    return trainer_tell(t, &e, err);
}

static void counts_add(struct batch_counts *a, const struct batch_counts *b)
{
    a->pairs += b->pairs;
    a->empty += b->empty;
    a->longer += b->longer;
    a->invalid += b->invalid;
    a->all &= b->all;
}

/* Counts of all shards. */
static enum heed_status pairs_read(struct heed_trainer *t, struct batch_counts *sum,
                                   struct heed_error *err)
{
    int ranks = cluster_ranks(t->cluster);
    struct batch_counts mine = {.all = true}, *all = calloc((size_t)ranks, sizeof *all);
    if (!all) return error_memory(err, (size_t)ranks * sizeof *all, "the trainer");
    for (int i = 0; i < t->shards; i++) {
        struct batch_counts n = batch_counted(t->shard[i].batches);
        counts_add(&mine, &n);
    }
    *sum = (struct batch_counts){.all = true};
    enum heed_status s = cluster_all(t->cluster, all, &mine, sizeof mine, err);
    for (int i = 0; i < ranks && !s; i++) counts_add(sum, &all[i]);
    free(all);
    return s;
}

/* How often the pairs of each file were read, on average: the mean over all shards, in their order.
 */
static enum heed_status files_read(struct heed_trainer *t, struct heed_error *err)
{
    int files = t->o.train.n, ranks = cluster_ranks(t->cluster);
    size_t mine = (size_t)t->shards * files, bytes = mine * sizeof(double);
    double *all = malloc((size_t)(ranks + 1) * bytes);
    if (!all) return error_memory(err, (size_t)(ranks + 1) * bytes, "the trainer");
    double *times = all + (size_t)ranks * mine; /* of the shards of this rank */
    for (size_t i = 0; i < mine; i++)
        times[i] = batch_file(t->shard[i / files].batches, (int)(i % files)).times;
    enum heed_status s = cluster_all(t->cluster, all, times, bytes, err);
    for (int f = 0; f < files && !s; f++) {
        struct batch_file file = batch_file(t->shard[0].batches, f);
        double sum = 0;
        for (int k = 0; k < t->o.shards; k++) sum += all[(size_t)k * files + f];
        t->read[f] =
            (struct heed_read){t->o.train.src[f], file.pairs, file.weight, sum / t->o.shards};
    }
    free(all);
    return s;
}

/* Tells, at the start and the end, what was read of the files as well. */
static enum heed_status tell_read(struct heed_trainer *t, enum heed_event_kind kind,
                                  const char *text, struct heed_error *err)
{
    struct heed_event e = trainer_event(t, kind);
    e.text = text;
    e.read = t->read;
    e.reads = t->o.train.n;
    enum heed_status s = files_read(t, err);
    return s ? s : trainer_tell(t, &e, err);
}

static int64_t pairs_of_text(const struct heed_trainer *t)
{
    int64_t pairs = 0;
    for (int i = 0; i < t->o.train.n; i++) pairs += batch_file(t->shard[0].batches, i).pairs;
    return pairs;
}

static enum heed_status tell_start(struct heed_trainer *t, struct heed_error *err)
{
    char text[2048];
    struct batch_counts n;
    enum heed_status s = pairs_read(t, &n, err);
    if (s) return s;
    int len = snprintf(text, sizeof text, "%zu parameters; ", t->p->n);
    if (n.all)
        len += snprintf(text + len, sizeof text - len, "%lld pairs read", (long long)n.pairs);
    else
        len += snprintf(text + len, sizeof text - len, "%lld pairs, %lld drawn so far",
                        (long long)pairs_of_text(t), (long long)n.pairs);
    if (n.empty || n.longer || n.invalid)
        len += snprintf(text + len, sizeof text - len,
                        " (%lld with an empty side and %lld too long left out, %lld with invalid "
                        "UTF-8 mended)",
                        (long long)n.empty, (long long)n.longer, (long long)n.invalid);
    if (*t->link.text) len += snprintf(text + len, sizeof text - len, "; %s", t->link.text);
    if (t->at.step)
        snprintf(text + len, sizeof text - len, "; going on from step %lld%s",
                 (long long)t->at.step, t->trouble);
    return tell_read(t, HEED_EVENT_START, text, err);
}

/* ---- between steps ---- */

/* Whether there is a multiple of `every` above `last` and up to `step`. So what was due at a
 * skipped step is done at the next step that is not skipped. */
static bool due(int64_t last, int64_t step, int64_t every)
{
    return every > 0 && step / every > last / every;
}

void heed_trainer_stop(struct heed_trainer *t)
{
    if (t) atomic_store(&t->stop, true);
}

static bool out_of_patience(const struct heed_trainer *t)
{
    return t->o.patience > 0 && t->at.stale >= t->o.patience;
}

static bool at_end(const struct heed_trainer *t)
{
    /* Ranks stop together, at the end of a step in which all of them were told. */
    bool stop = cluster_ranks(t->cluster) > 1 ? t->stopping : atomic_load(&t->stop);
    return t->at.step >= t->o.steps || out_of_patience(t) || stop;
}

/* Whether the weights of all ranks are finite. */
static enum heed_status check_sound(struct heed_trainer *t, bool *sound, struct heed_error *err)
{
    int ranks = cluster_ranks(t->cluster);
    bool mine = false, *all = calloc((size_t)ranks, sizeof *all);
    if (!all) return error_memory(err, (size_t)ranks * sizeof *all, "the trainer");
    enum heed_status s = optimizer_check(t->opt, &mine, err);
    if (!s) s = cluster_all(t->cluster, all, &mine, sizeof mine, err);
    *sound = true;
    for (int i = 0; i < ranks && !s; i++) *sound &= all[i];
    free(all);
    return s;
}

static enum heed_status check_weights(struct heed_trainer *t, struct heed_error *err)
{
    bool sound = false;
    enum heed_status s = check_sound(t, &sound, err);
    if (s || sound) return s;
    cluster_same_error(t->cluster);
    return error_set(err, HEED_ENUMERIC,
                     "training diverged: at step %lld the weights are not numbers any more, and "
                     "they are not saved; the newest checkpoint is that of step %lld",
                     (long long)t->at.step, (long long)t->saved);
}

/* ---- checkpoints ---- */

/* Collects an array of which each rank has its slices: *all is malloced on rank 0. */
static enum heed_status collect(struct heed_trainer *t, struct mat own, void **all,
                                struct heed_error *err)
{
    size_t bytes = t->p->n * type_size(own.type);
    if (trainer_writes(t) && !(*all = malloc(bytes)))
        return error_memory(err, bytes, "a checkpoint");
    return exchange_collect(t->exchange, own, *all, err);
}

static enum heed_status save_best(struct heed_trainer *t, struct heed_error *err)
{
    struct checkpoint c = checkpoint_of(t);
    void *master = NULL;
    enum heed_status s = t->opt->master.p ? collect(t, t->opt->master, &master, err) : HEED_OK;
    c.master = master;
    if (!s && trainer_writes(t)) s = checkpoint_best(&c, err);
    free(master);
    return s;
}

/* Rank 0 writes; the others go on and wait for it in the next exchange. */
static enum heed_status save(struct heed_trainer *t, struct heed_error *err)
{
    struct checkpoint c = checkpoint_of(t);
    struct batch_cursor *mine = trainer_cursor(t, 0);
    void *m = NULL, *v = NULL, *master = NULL;
    enum heed_status s =
        cluster_all(t->cluster, t->at.cursor, mine, (size_t)t->shards * sizeof *mine, err);
    bool several = cluster_ranks(t->cluster) > 1;
    if (!s && several) s = collect(t, t->opt->m, &m, err);
    if (!s && several) s = collect(t, t->opt->v, &v, err);
    if (!s && t->opt->master.p) s = collect(t, t->opt->master, &master, err);
    c.m = m;
    c.v = v;
    c.master = master;
    if (!s && trainer_writes(t)) s = checkpoint_save(&c, &t->at, t->o.keep, err);
    free(m);
    free(v);
    free(master);
    return s;
}

/* Only a regular validation counts for patience, not the one at the last step, so that where a run
 * ends does not depend on the pieces (--steps) it was run in. */
static enum heed_status validate_now(struct heed_trainer *t, bool regular, struct heed_error *err)
{
    struct validation v;
    enum heed_status s = validate(t->validator, t->run, t->at.step, &v, err);
    if (s) return s;
    double value = t->o.best_by == HEED_BEST_BLEU   ? v.bleu
                   : t->o.best_by == HEED_BEST_CHRF ? v.chrf
                                                    : -v.nll;
    struct heed_event e = trainer_event(t, HEED_EVENT_VALID);
    e.nll = v.nll;
    e.perplexity = exp(v.nll);
    e.bleu = v.bleu;
    e.chrf = v.chrf;
    e.best = isfinite(value) && (!t->at.best_step || value > t->at.best);
    if (regular) {
        t->at.validated = t->at.step;
        t->at.stale++;
    }
    if (e.best) {
        t->at.best = value;
        t->at.best_step = t->at.step;
        t->at.stale = 0;
        s = save_best(t, err);
    }
    return s ? s : trainer_tell(t, &e, err);
}

static enum heed_status validate_if_due(struct heed_trainer *t, struct heed_error *err)
{
    bool regular = due(t->at.validated, t->at.step, t->o.valid_every);
    if (!t->validator || t->at.skips || !(regular || t->at.step >= t->o.steps)) return HEED_OK;
    return validate_now(t, regular, err);
}

/* A checkpoint is regular if the weights in it have given a usable gradient; rollbacks go to such a
 * one. Weights that are not finite are not saved, because they could not be loaded. */
static enum heed_status save_if_due(struct heed_trainer *t, bool end, struct heed_error *err)
{
    bool regular = !t->at.skips && due(t->at.regular, t->at.step, t->o.save_every);
    if (!regular && !end) return HEED_OK;
    enum heed_status s = check_weights(t, err);
    if (regular) t->at.regular = t->at.step;
    t->at.guard = t->opt->guard;
    if (!s) s = save(t, err);
    if (s) return s;
    t->saved = t->at.step;
    return trainer_tell_text(t, HEED_EVENT_SAVE, NULL, err);
}

static enum heed_status tell_done(struct heed_trainer *t, struct heed_error *err)
{
    char text[128];
    const char *why = NULL;
    if (out_of_patience(t)) {
        snprintf(text, sizeof text, "no better validation since step %lld",
                 (long long)t->at.best_step);
        why = text;
    } else if (t->at.step < t->o.steps) {
        why = "interrupted";
    }
    return tell_read(t, HEED_EVENT_DONE, why, err);
}

enum heed_status heed_trainer_run(struct heed_trainer *t, struct heed_error *err)
{
    if (!t) return error_null(err, "trainer");
    enum heed_status s = tell_start(t, err);
    bool end = at_end(t); /* asked once per step, because `stop` may be set at any time */
    while (!s && !end) {
        s = trainer_step(t, err);
        if (!s) s = validate_if_due(t, err);
        end = at_end(t);
        if (!s) s = save_if_due(t, end, err);
    }
    if (!s) s = tell_done(t, err);
    return cluster_failed(t->cluster, s, err);
}
