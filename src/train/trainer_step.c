/*
 * trainer_step.c - one step of training: the gradients of its shards, their sum, the update.
 *
 * A step of one shard computes loss and gradient of its batches and updates all parameters. A step
 * of several computes them shard by shard, each rank its own; the ranks sum the gradients
 * (exchange.h), tell each other what the step needs to know of all shards (a report), update
 * their slices of the parameters and gather them. What is summed over shards is summed in their
 * order, so that no result depends on the number of ranks.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "model/config.h"
#include "model/flops.h"
#include "train/trainer.h"

/* After SKIPS_IN_A_ROW unusable gradients in a row, weights are rolled back to the last checkpoint.
 * After ROLLBACKS_MAX rollbacks with fewer than ROLLBACK_APART steps between them, the run ends. */
enum { SKIPS_IN_A_ROW = 5, ROLLBACKS_MAX = 3, ROLLBACK_APART = 100 };

/* ---- gradients ---- */

/* Sends the next batch, which is one of a shard of this rank, to the device while that may still
 * compute, unless one was sent already. */
static enum heed_status fetch(struct heed_trainer *t, int shard, struct heed_error *err)
{
    const struct packed *b;
    if (t->ahead.target_tokens) return HEED_OK;
    enum heed_status s = batch_next(t->shard[shard].batches, &b, &t->after_ahead, err);
    if (s) return s;
    run_ahead(t->run, b);
    t->ahead = (struct work){b->rows_src, b->rows_tgt, model_flops(&t->o.config, b)};
    return HEED_OK;
}

static void work_add(struct work *a, const struct work *b)
{
    a->source_tokens += b->source_tokens;
    a->target_tokens += b->target_tokens;
    a->flops += b->flops;
}

/* Adds up the gradients of the batches of a shard of this rank. When this returns, the device is
 * still computing the last of them, so its loss is not in the shard's loss yet. */
static enum heed_status gradients(struct heed_trainer *t, int shard, struct heed_error *err)
{
    const struct heed_train_options *o = &t->o;
    struct shard *x = &t->shard[shard];
    bool last_shard = shard == t->shards - 1;
    int number = cluster_rank(t->cluster) * t->shards + shard;
    x->loss = (struct loss){.load = t->load};
    x->work = (struct work){0};
    for (int i = 0; i < o->accumulate; i++) {
        uint64_t place = (uint64_t)i * (uint64_t)o->shards + (uint64_t)number;
        bool last = last_shard && i == o->accumulate - 1;
        struct loss_options l = {.label_smoothing = o->label_smoothing,
                                 .backward = true,
                                 .dropout = true,
                                 .seed = random_at(o->seed, (uint64_t)t->at.step, place),
                                 .experts = expert_training,
                                 .watch = last && t->exchange ? exchange_watch(t->exchange) : NULL};
        enum heed_status s = fetch(t, shard, err);
        if (!s && i) s = run_loss_take(t->run, &x->loss, err);
        if (s) return s;
        run_loss_begin(t->run, &l);
        work_add(&x->work, &t->ahead);
        *trainer_cursor(t, shard) = t->after_ahead;
        t->ahead = (struct work){0};
    }
    return HEED_OK;
}

/* What a step came to. */
struct outcome {
    double smoothed; /* loss, summed over the target tokens */
    struct work work;
    struct update update;
};

static struct adam adam_of(const struct heed_trainer *t, int64_t target_tokens)
{
    const struct heed_train_options *o = &t->o;
    return (struct adam){.lr = schedule_lr(&t->schedule, t->at.step),
                         .beta1 = (double)o->beta1,
                         .beta2 = (double)o->beta2,
                         .epsilon = (double)o->epsilon,
                         .step = t->at.step,
                         .scale = 1 / (double)target_tokens,
                         .clip = (double)o->clip};
}

static enum heed_status step_of_one(struct heed_trainer *t, struct outcome *out,
                                    struct heed_error *err)
{
    struct shard *x = &t->shard[0];
    t->be->op->zero(t->be, t->run->grad.p, t->p->n * type_size(t->run->grad.type));
    enum heed_status s = gradients(t, 0, err);
    if (s) return s;
    optimizer_begin(t->opt, t->run->grad, adam_of(t, x->work.target_tokens));
    if (t->at.step < t->o.steps) s = fetch(t, 0, err); /* while the device works */
    if (!s) s = optimizer_done(t->opt, &out->update, err);
    if (!s) s = run_loss_take(t->run, &x->loss, err);
    out->smoothed = x->loss.smoothed;
    out->work = x->work;
    return s;
}

/* ---- a step of several shards ---- */

/* A rank's report on a step is an array of doubles: what it was asked (to stop, or not), what each
 * of its shards took and came to, the squared norms of its units of the gradient, and the loads of
 * the experts in its batches. Counts are whole numbers, which a double holds exactly. */
enum { REPORT_STOP, REPORT_SHARDS };
enum { SHARD_SMOOTHED, SHARD_SOURCE, SHARD_TARGET, SHARD_FLOPS, SHARD_NUMBERS };

static size_t report_norms(const struct heed_trainer *t)
{
    return REPORT_SHARDS + (size_t)t->shards * SHARD_NUMBERS;
}

static size_t report_loads(const struct heed_trainer *t)
{
    return report_norms(t) + (size_t)(t->slices.spans * t->slices.units);
}

size_t trainer_report_size(const struct heed_trainer *t)
{
    return report_loads(t) + 2 * (size_t)trainer_experts(t);
}

static void report_fill(struct heed_trainer *t)
{
    double *r = t->report;
    r[REPORT_STOP] = atomic_load(&t->stop);
    for (int i = 0; i < t->shards; i++) {
        const struct shard *x = &t->shard[i];
        double *to = r + REPORT_SHARDS + i * SHARD_NUMBERS;
        to[SHARD_SMOOTHED] = x->loss.smoothed;
        to[SHARD_SOURCE] = (double)x->work.source_tokens;
        to[SHARD_TARGET] = (double)x->work.target_tokens;
        to[SHARD_FLOPS] = x->work.flops;
    }
    for (int i = 0; i < trainer_experts(t); i++) {
        r[report_loads(t) + 2 * (size_t)i] = t->load[i].asked;
        r[report_loads(t) + 2 * (size_t)i + 1] = t->load[i].taken;
    }
}

/* Sums over the reports of all ranks, in the order of the shards. *sq: the squared norm of the
 * gradient, span by span and unit by unit. */
static void reports_sum(struct heed_trainer *t, struct outcome *out, double *sq)
{
    size_t size = trainer_report_size(t);
    int ranks = cluster_ranks(t->cluster), experts = trainer_experts(t);
    *sq = 0;
    if (t->load) memset(t->load, 0, (size_t)experts * sizeof *t->load);
    for (int r = 0; r < ranks; r++) {
        const double *report = t->reports + (size_t)r * size, *load = report + report_loads(t);
        t->stopping |= report[REPORT_STOP] != 0;
        for (int i = 0; i < t->shards; i++) {
            const double *x = report + REPORT_SHARDS + i * SHARD_NUMBERS;
            struct work work = {(int64_t)x[SHARD_SOURCE], (int64_t)x[SHARD_TARGET], x[SHARD_FLOPS]};
            out->smoothed += x[SHARD_SMOOTHED];
            work_add(&out->work, &work);
        }
        for (int i = 0; i < experts; i++) {
            t->load[i].asked += load[2 * i];
            t->load[i].taken += load[2 * i + 1];
        }
    }
    for (int span = 0; span < t->slices.spans; span++)
        for (int unit = 0; unit < t->o.shards; unit++) {
            int rank = unit / t->slices.units, k = unit % t->slices.units;
            *sq += t->reports[(size_t)rank * size + report_norms(t) +
                              (size_t)(span * t->slices.units + k)];
        }
}

/* Takes the loss of the last batch of a shard, while the batch after it is on its way already. */
static enum heed_status take_and_fetch(struct heed_trainer *t, int shard, struct heed_error *err)
{
    bool goes_on = shard + 1 < t->shards || t->at.step < t->o.steps;
    enum heed_status s = goes_on ? fetch(t, (shard + 1) % t->shards, err) : HEED_OK;
    return s ? s : run_loss_take(t->run, &t->shard[shard].loss, err);
}

static enum heed_status step_of_shards(struct heed_trainer *t, struct outcome *out,
                                       struct heed_error *err)
{
    const struct mat *sum = NULL;
    enum heed_status s = HEED_OK;
    double sq;
    for (int i = 0; i < t->shards && !s; i++) {
        s = exchange_begin(t->exchange, i, err);
        if (!s) s = gradients(t, i, err);
        if (!s) s = exchange_end(t->exchange, i, err);
        if (!s) s = take_and_fetch(t, i, err);
    }
    if (!s) s = exchange_sum(t->exchange, &sum, err);
    if (!s) s = optimizer_norms(t->opt, sum, t->report + report_norms(t), err);
    if (s) return s;
    report_fill(t);
    s = cluster_all(t->cluster, t->reports, t->report, trainer_report_size(t) * sizeof *t->report,
                    err);
    if (s) return s;
    reports_sum(t, out, &sq);
    optimizer_begin_slices(t->opt, sum, sq, adam_of(t, out->work.target_tokens));
    s = optimizer_done(t->opt, &out->update, err);
    if (!s && !out->update.skipped) s = exchange_gather(t->exchange, err);
    return s;
}

/* ---- after the update ---- */

/* Restores weights and moments from the last regular checkpoint. The data does not go back, so that
 * the batches that did the harm do not come again at once. */
static enum heed_status roll_back(struct heed_trainer *t, struct heed_error *err)
{
    char text[256];
    if (t->at.step > t->at.rollback_step + ROLLBACK_APART) t->at.rollbacks = 0;
    t->at.rollback_step = t->at.step;
    if (!t->at.regular || ++t->at.rollbacks > ROLLBACKS_MAX) {
        cluster_same_error(t->cluster);
        return error_set(err, HEED_ENUMERIC,
                         "training diverged: %d gradients in a row are not usable at step %lld and "
                         "%s; a lower learning rate or a longer warm-up may help",
                         SKIPS_IN_A_ROW, (long long)t->at.step,
                         t->at.regular ? "going back did not help"
                                       : "there is no checkpoint to go back to");
    }
    struct checkpoint c = checkpoint_of(t);
    struct progress then;
    enum heed_status s = checkpoint_read(&c, t->at.regular, &t->at.recipe, &then, err);
    if (!s) s = checkpoint_load(&c, t->at.regular, err);
    if (!s) s = trainer_share_weights(t, err);
    if (s) return s;
    t->opt->guard = then.guard;
    t->at.skips = 0;
    snprintf(text, sizeof text,
             "%d gradients in a row are not usable: weights go back to the checkpoint of step %lld",
             SKIPS_IN_A_ROW, (long long)t->at.regular);
    return trainer_tell_text(t, HEED_EVENT_ROLLBACK, text, err);
}

static enum heed_status after_update(struct heed_trainer *t, struct heed_event *e,
                                     const struct update *u, struct heed_error *err)
{
    char text[128];
    if (!u->skipped) {
        t->at.skips = 0;
        return trainer_tell(t, e, err);
    }
    t->at.skips++;
    t->at.skipped++;
    snprintf(text, sizeof text, "skipped: gradient norm %g, usually %.3g", u->norm,
             t->opt->guard.norm);
    e->kind = HEED_EVENT_SKIP;
    e->text = text;
    enum heed_status s = trainer_tell(t, e, err);
    /* With nothing to go back to, large gradients are left to the guard, which accepts them in
     * time; gradients that are not finite would never end. */
    bool can_wait = !t->at.regular && isfinite(u->norm);
    if (!s && t->at.skips >= SKIPS_IN_A_ROW && !can_wait) s = roll_back(t, err);
    return s;
}

/* Tells of the experts what is in t->load. */
static void event_experts(const struct heed_trainer *t, struct heed_event *e)
{
    int experts = config_experts(&t->o.config), all = trainer_experts(t);
    if (!experts) return;
    for (int first = 0; first < all; first += experts) {
        double asked = 0;
        for (int i = first; i < first + experts; i++) asked += t->load[i].asked;
        for (int i = first; i < first + experts; i++) {
            const struct expert_load *l = &t->load[i];
            t->expert[i].share = asked > 0 ? l->asked / asked : 0;
            t->expert[i].dropped = l->asked > 0 ? 1 - l->taken / l->asked : 0;
        }
    }
    e->expert = t->expert;
    e->experts = experts;
    e->layers = all / experts;
}

/* Seconds of the run so far in which this rank waited for messages of others, and its device for
 * transfers. */
static double waited(const struct heed_trainer *t)
{
    return (t->cluster ? t->cluster->waited : 0) +
           (t->link.open ? t->be->op->link->waited(t->be) : 0);
}

/* ... in which it waited for text */
static double text_waited(const struct heed_trainer *t)
{
    double seconds = 0;
    for (int i = 0; i < t->shards; i++) seconds += batch_waited(t->shard[i].batches);
    return seconds;
}

enum heed_status trainer_step(struct heed_trainer *t, struct heed_error *err)
{
    double began = clock_now(), waited_before = waited(t), text_before = text_waited(t);
    struct outcome out = {0};
    t->at.step++;
    if (t->load) memset(t->load, 0, (size_t)trainer_experts(t) * sizeof *t->load);
    enum heed_status s = t->exchange ? step_of_shards(t, &out, err) : step_of_one(t, &out, err);
    if (s) return s;
    double rate = (double)out.work.target_tokens / (clock_now() - began);
    t->rate = t->rate > 0 ? 0.9 * t->rate + 0.1 * rate : rate;
    struct heed_event e = trainer_event(t, HEED_EVENT_STEP);
    e.loss = out.smoothed / (double)out.work.target_tokens;
    e.norm = out.update.norm;
    e.source_tokens = out.work.source_tokens;
    e.target_tokens = out.work.target_tokens;
    e.flops = out.work.flops;
    e.waited = waited(t) - waited_before;
    e.text_waited = text_waited(t) - text_before;
    event_experts(t, &e);
    return after_update(t, &e, &out.update, err);
}
