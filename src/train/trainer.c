/*
 * trainer.c - the training loop: batches, loss and gradients, update, validation, checkpoints.
 *
 * A run is a function of its options and data: dropout masks are a function of (seed, step, batch),
 * and the order of the data is one of the seed and the cursor. So a run that is interrupted and
 * resumed ends with the same weights as one in one piece.
 */
#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "corpus/batch.h"
#include "corpus/pairs.h"
#include "model/config.h"
#include "model/flops.h"
#include "model/run.h"
#include "ops/engine.h"
#include "store/directory.h"
#include "tokens/tokenizer.h"
#include "train/checkpoint.h"
#include "train/log.h"
#include "train/optimizer.h"
#include "train/options.h"
#include "train/validate.h"

/* After SKIPS_IN_A_ROW unusable gradients in a row, weights are rolled back to the last checkpoint.
 * After ROLLBACKS_MAX rollbacks with fewer than ROLLBACK_APART steps between them, the run ends. */
enum { SKIPS_IN_A_ROW = 5, ROLLBACKS_MAX = 3, ROLLBACK_APART = 100 };

/* What a batch or a step takes. */
struct work {
    int64_t source_tokens, target_tokens;
    double flops;
};

struct heed_trainer {
    struct heed_train_options o;
    int lock;           /* descriptor that locks the output directory; -1: none */
    struct backend *be; /* not shared with others */
    int threads;        /* that tokenize; 0: all cores */
    struct heed_tokenizer *tokenizer;
    struct parameters *p;
    struct run *run;
    struct optimizer *opt;
    struct expert_load *load;   /* [layers * experts] of the step; NULL: there are no experts */
    struct heed_expert *expert; /* the same for events */
    struct batches *batches;
    struct heed_read *read;      /* [train.n] for events */
    struct validator *validator; /* NULL: none */
    struct log *log;
    struct schedule schedule;
    struct progress at; /* where the run is */
    struct work ahead;  /* the batch that is on the device already; no tokens: none is */
    struct batch_cursor after_ahead; /* cursor of the batch after that one */
    int64_t saved;                   /* step of the newest checkpoint; 0: none */
    double start, rate;              /* seconds; target tokens per second, smoothed */
    char trouble[768];               /* why the newest checkpoint could not be used; "": it was */
    int64_t first_step;              /* step at which this process began; for the time left */
    atomic_bool stop;                /* set by heed_trainer_stop, in any thread or signal handler */
};
_Static_assert(ATOMIC_BOOL_LOCK_FREE == 2, "a signal handler may set it");

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- open ---- */

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

/* Experts of all layers together. */
static int experts_of(const struct heed_trainer *t)
{
    const struct heed_config *c = &t->o.config;
    return config_experts(c) * (c->encoder_layers + c->decoder_layers);
}

static enum heed_status open_experts(struct heed_trainer *t, struct heed_error *err)
{
    size_t n = (size_t)experts_of(t);
    if (!n) return HEED_OK;
    t->load = calloc(n, sizeof *t->load);
    t->expert = calloc(n, sizeof *t->expert);
    if (t->load && t->expert) return HEED_OK;
    return error_memory(err, n * (sizeof *t->load + sizeof *t->expert), "the trainer");
}

static enum heed_status open_model(struct heed_trainer *t, struct heed_error *err)
{
    const struct heed_train_options *o = &t->o;
    struct precision precision = o->precision == HEED_BF16 ? precision_bf16 : precision_f32;
    struct run_options run = {.rows_src = o->batch_tokens,
                              .rows_tgt = o->batch_tokens,
                              .sentences = o->batch_tokens,
                              .train = true};
    enum heed_status s = parameters_open(&t->p, t->be, &o->config, precision, err);
    if (!s) s = open_experts(t, err);
    if (!s) s = run_open(&t->run, t->be, t->p, &run, err);
    if (!s) s = optimizer_open(&t->opt, t->p, err);
    return s;
}

static struct checkpoint checkpoint_of(const struct heed_trainer *t)
{
    return (struct checkpoint){t->p, t->opt, t->tokenizer, t->o.out};
}

/* ---- open: a new run, or one that is resumed ---- */

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

/* Sets the state to the beginning of a run, or to that of the newest usable checkpoint. */
static enum heed_status open_state(struct heed_trainer *t, struct heed_error *err)
{
    const struct heed_train_options *o = &t->o;
    struct recipe given;
    int64_t *step = NULL;
    int n = 0;
    enum heed_status s = train_options_recipe(&given, o, err);
    if (!s) s = checkpoint_list(o->out, &step, &n, err);
    if (s) return s;
    if (!n) {
        t->at = (struct progress){.recipe = given};
        s = directory_check_new_run(o->out, t->tokenizer, o->vocab, err);
        if (!s) s = parameters_init(t->p, o->seed, err);
    } else if (o->resume) {
        s = resume(t, &given, step, n, err);
    } else {
        s = error_set(err, HEED_EARG,
                      "%s holds a run at step %lld already: add --resume to go on, or choose "
                      "another directory",
                      o->out, (long long)step[0]);
    }
    free(step);
    return s;
}

/* Reports a file that is missing or cannot be read before anything is created. */
static enum heed_status check_text(const struct heed_corpus *c, struct heed_error *err)
{
    struct pairs *pairs = NULL;
    enum heed_status s = c->n ? pairs_open(&pairs, c, err) : HEED_OK;
    pairs_free(pairs);
    return s;
}

static enum heed_status open_data(struct heed_trainer *t, struct heed_error *err)
{
    const struct heed_train_options *o = &t->o;
    char index[FILE_PATH_MAX];
    enum heed_status s = file_join(index, sizeof index, o->out, "index", err);
    if (s) return s;
    struct batch_options b = {.corpus = o->train,
                              .tokenizer = t->tokenizer,
                              .batch_tokens = o->batch_tokens,
                              .max_length =
                                  o->train_length ? o->train_length : o->config.max_length,
                              .threads = t->threads,
                              .seed = o->seed,
                              .subword_dropout = o->subword_dropout,
                              .shuffle = true,
                              .index = index,
                              .start = t->at.cursor};
    struct validator_options v = {.corpus = o->valid,
                                  .tokenizer = t->tokenizer,
                                  .batch_tokens = o->batch_tokens,
                                  .threads = t->threads,
                                  .dir = o->out,
                                  .step = t->at.step};
    if (train_options_translate(o)) v.tokenize = o->valid_tokenize;
    t->read = calloc((size_t)o->train.n, sizeof *t->read);
    if (!t->read) return error_memory(err, (size_t)o->train.n * sizeof *t->read, "the trainer");
    s = batch_open(&t->batches, &b, err);
    if (!s && o->valid.n) s = validator_open(&t->validator, t->p, &v, err);
    return s;
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
    t->lock = -1;
    t->start = now();
    atomic_init(&t->stop, false);
    enum heed_status s = train_options_check(o, err);
    if (!s) s = engine_fork(e, &t->be, err);
    if (!s) s = open_vocab(t, err);
    if (!s) s = check_text(&o->train, err);
    if (!s) s = check_text(&o->valid, err);
    if (!s) s = file_mkdir(o->out, err);
    if (!s) s = file_lock_dir(o->out, &t->lock, err);
    if (!s) s = open_model(t, err);
    if (!s) s = open_state(t, err);
    if (!s) s = open_data(t, err);
    if (!s) s = log_open(&t->log, o->out, t->at.step, err);
    if (s) {
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
    /* Downloads that are under way write to memory that is freed below. */
    if (t->run) t->be->op->sync(t->be, NULL);
    batch_free(t->batches);
    validator_free(t->validator);
    log_free(t->log);
    optimizer_free(t->opt);
    free(t->load);
    free(t->expert);
    free(t->read);
    run_free(t->run);
    parameters_free(t->p);
    heed_tokenizer_free(t->tokenizer);
    if (t->be) t->be->op->close(t->be);
    if (t->lock >= 0) close(t->lock);
    free(t);
}

/* ---- events ---- */

static struct heed_event event_of(const struct heed_trainer *t, enum heed_event_kind kind)
{
    double seconds = now() - t->start;
    int64_t done = t->at.step - t->first_step, left = t->o.steps - t->at.step;
    return (struct heed_event){.kind = kind,
                               .step = t->at.step,
                               .steps = t->o.steps,
                               .epoch = t->at.cursor.epoch + 1,
                               .lr = schedule_lr(&t->schedule, t->at.step > 0 ? t->at.step : 1),
                               .tokens_s = t->rate,
                               .seconds = seconds,
                               .seconds_to_go = done ? seconds / (double)done * (double)left : 0,
                               .bleu = -1,
                               .chrf = -1};
}

static enum heed_status tell(struct heed_trainer *t, const struct heed_event *e,
                             struct heed_error *err)
{
    if (t->o.event) t->o.event(t->o.user, e);
    return log_event(t->log, e, err);
}

static enum heed_status tell_text(struct heed_trainer *t, enum heed_event_kind kind,
                                  const char *text, struct heed_error *err)
{
    struct heed_event e = event_of(t, kind);
    e.text = text;
    return tell(t, &e, err);
}

/* Tells, at the start and the end, what was read of the files as well. */
static enum heed_status tell_read(struct heed_trainer *t, enum heed_event_kind kind,
                                  const char *text, struct heed_error *err)
{
    struct heed_event e = event_of(t, kind);
    e.text = text;
    e.read = t->read;
    e.reads = t->o.train.n;
    for (int i = 0; i < e.reads; i++) {
        struct batch_file f = batch_file(t->batches, i);
        t->read[i] = (struct heed_read){t->o.train.src[i], f.pairs, f.weight, f.times};
    }
    return tell(t, &e, err);
}

static int64_t pairs_of_text(const struct heed_trainer *t)
{
    int64_t pairs = 0;
    for (int i = 0; i < t->o.train.n; i++) pairs += batch_file(t->batches, i).pairs;
    return pairs;
}

static enum heed_status tell_start(struct heed_trainer *t, struct heed_error *err)
{
    char text[1024];
    struct batch_counts n = batch_counted(t->batches);
    int len = snprintf(text, sizeof text, "%zu parameters; ", t->p->n);
    if (!n.all)
        len += snprintf(text + len, sizeof text - len, "%lld pairs, of which ",
                        (long long)pairs_of_text(t));
    len += snprintf(text + len, sizeof text - len, "%lld pairs read%s", (long long)n.pairs,
                    n.all ? "" : " so far");
    if (n.empty || n.longer || n.invalid)
        len += snprintf(text + len, sizeof text - len,
                        " (%lld with an empty side and %lld too long left out, %lld with invalid "
                        "UTF-8 mended)",
                        (long long)n.empty, (long long)n.longer, (long long)n.invalid);
    if (t->at.step)
        snprintf(text + len, sizeof text - len, "; going on from step %lld%s",
                 (long long)t->at.step, t->trouble);
    return tell_read(t, HEED_EVENT_START, text, err);
}

/* Tells of the experts what is in t->load. */
static void event_experts(const struct heed_trainer *t, struct heed_event *e)
{
    int experts = config_experts(&t->o.config), all = experts_of(t);
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

/* ---- one step ---- */

/* Sends the next batch to the device while that may still compute, unless one was sent already. */
static enum heed_status fetch(struct heed_trainer *t, struct heed_error *err)
{
    const struct packed *b;
    if (t->ahead.target_tokens) return HEED_OK;
    enum heed_status s = batch_next(t->batches, &b, &t->after_ahead, err);
    if (s) return s;
    run_ahead(t->run, b);
    t->ahead = (struct work){b->rows_src, b->rows_tgt, model_flops(&t->o.config, b)};
    return HEED_OK;
}

/* Adds up the gradients of the batches of a step. When this returns, the device is still computing
 * the last of them, so its loss is not in *loss yet. */
static enum heed_status gradients(struct heed_trainer *t, struct loss *loss, struct work *done,
                                  struct heed_error *err)
{
    const struct heed_train_options *o = &t->o;
    t->be->op->zero(t->be, t->run->grad.p, t->p->n * type_size(t->run->grad.type));
    for (int i = 0; i < o->accumulate; i++) {
        struct loss_options l = {.label_smoothing = o->label_smoothing,
                                 .backward = true,
                                 .dropout = true,
                                 .seed = random_at(o->seed, (uint64_t)t->at.step, (uint64_t)i),
                                 .experts = expert_training};
        enum heed_status s = fetch(t, err);
        if (!s && i) s = run_loss_take(t->run, loss, err);
        if (s) return s;
        run_loss_begin(t->run, &l);
        done->source_tokens += t->ahead.source_tokens;
        done->target_tokens += t->ahead.target_tokens;
        done->flops += t->ahead.flops;
        t->at.cursor = t->after_ahead;
        t->ahead = (struct work){0};
    }
    return HEED_OK;
}

/* Restores weights and moments from the last regular checkpoint. The data does not go back, so that
 * the batches that did the harm do not come again at once. */
static enum heed_status roll_back(struct heed_trainer *t, struct heed_error *err)
{
    char text[256];
    if (t->at.step > t->at.rollback_step + ROLLBACK_APART) t->at.rollbacks = 0;
    t->at.rollback_step = t->at.step;
    if (!t->at.regular || ++t->at.rollbacks > ROLLBACKS_MAX)
        return error_set(err, HEED_ENUMERIC,
                         "training diverged: %d gradients in a row are not usable at step %lld and "
                         "%s; a lower learning rate or a longer warm-up may help",
                         SKIPS_IN_A_ROW, (long long)t->at.step,
                         t->at.regular ? "going back did not help"
                                       : "there is no checkpoint to go back to");
    struct checkpoint c = checkpoint_of(t);
    struct progress then;
    enum heed_status s = checkpoint_read(&c, t->at.regular, &t->at.recipe, &then, err);
    if (!s) s = checkpoint_load(&c, t->at.regular, err);
    if (s) return s;
    t->opt->guard = then.guard;
    t->at.skips = 0;
    snprintf(text, sizeof text,
             "%d gradients in a row are not usable: weights go back to the checkpoint of step %lld",
             SKIPS_IN_A_ROW, (long long)t->at.regular);
    return tell_text(t, HEED_EVENT_ROLLBACK, text, err);
}

static enum heed_status after_update(struct heed_trainer *t, struct heed_event *e,
                                     const struct update *u, struct heed_error *err)
{
    char text[128];
    if (!u->skipped) {
        t->at.skips = 0;
        return tell(t, e, err);
    }
    t->at.skips++;
    t->at.skipped++;
    snprintf(text, sizeof text, "skipped: gradient norm %g, usually %.3g", u->norm,
             t->opt->guard.norm);
    e->kind = HEED_EVENT_SKIP;
    e->text = text;
    enum heed_status s = tell(t, e, err);
    /* With nothing to go back to, large gradients are left to the guard, which accepts them in
     * time; gradients that are not finite would never end. */
    bool can_wait = !t->at.regular && isfinite(u->norm);
    if (!s && t->at.skips >= SKIPS_IN_A_ROW && !can_wait) s = roll_back(t, err);
    return s;
}

static enum heed_status train_step(struct heed_trainer *t, struct heed_error *err)
{
    const struct heed_train_options *o = &t->o;
    double began = now();
    struct loss loss = {.load = t->load};
    struct update u;
    struct work work = {0};
    t->at.step++;
    if (t->load) memset(t->load, 0, (size_t)experts_of(t) * sizeof *t->load);
    enum heed_status s = gradients(t, &loss, &work, err);
    if (s) return s;
    struct adam h = {.lr = schedule_lr(&t->schedule, t->at.step),
                     .beta1 = (double)o->beta1,
                     .beta2 = (double)o->beta2,
                     .epsilon = (double)o->epsilon,
                     .step = t->at.step,
                     .scale = 1 / (double)work.target_tokens,
                     .clip = (double)o->clip};
    optimizer_begin(t->opt, t->run->grad, h);
    if (t->at.step < o->steps) s = fetch(t, err); /* while the device works */
    if (!s) s = optimizer_done(t->opt, &u, err);
    if (!s) s = run_loss_take(t->run, &loss, err);
    if (s) return s;
    double rate = (double)loss.tokens / (now() - began);
    t->rate = t->rate > 0 ? 0.9 * t->rate + 0.1 * rate : rate;
    struct heed_event e = event_of(t, HEED_EVENT_STEP);
    e.loss = loss.smoothed / (double)loss.tokens;
    e.norm = u.norm;
    e.source_tokens = work.source_tokens;
    e.target_tokens = work.target_tokens;
    e.flops = work.flops;
    event_experts(t, &e);
    return after_update(t, &e, &u, err);
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
    return t->at.step >= t->o.steps || out_of_patience(t) || atomic_load(&t->stop);
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
    struct heed_event e = event_of(t, HEED_EVENT_VALID);
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
        struct checkpoint c = checkpoint_of(t);
        t->at.best = value;
        t->at.best_step = t->at.step;
        t->at.stale = 0;
        s = checkpoint_best(&c, err);
    }
    return s ? s : tell(t, &e, err);
}

static enum heed_status validate_if_due(struct heed_trainer *t, struct heed_error *err)
{
    bool regular = due(t->at.validated, t->at.step, t->o.valid_every);
    if (!t->validator || t->at.skips || !(regular || t->at.step >= t->o.steps)) return HEED_OK;
    return validate_now(t, regular, err);
}

static enum heed_status check_weights(struct heed_trainer *t, struct heed_error *err)
{
    bool sound;
    enum heed_status s = optimizer_check(t->opt, &sound, err);
    if (s || sound) return s;
    return error_set(err, HEED_ENUMERIC,
                     "training diverged: at step %lld the weights are not numbers any more, and "
                     "they are not saved; the newest checkpoint is that of step %lld",
                     (long long)t->at.step, (long long)t->saved);
}

/* A checkpoint is regular if the weights in it have given a usable gradient; rollbacks go to such a
 * one. Weights that are not finite are not saved, because they could not be loaded. */
static enum heed_status save_if_due(struct heed_trainer *t, bool end, struct heed_error *err)
{
    struct checkpoint c = checkpoint_of(t);
    bool regular = !t->at.skips && due(t->at.regular, t->at.step, t->o.save_every);
    if (!regular && !end) return HEED_OK;
    enum heed_status s = check_weights(t, err);
    if (regular) t->at.regular = t->at.step;
    t->at.guard = t->opt->guard;
    if (!s) s = checkpoint_save(&c, &t->at, t->o.keep, err);
    if (s) return s;
    t->saved = t->at.step;
    return tell_text(t, HEED_EVENT_SAVE, NULL, err);
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
        s = train_step(t, err);
        if (!s) s = validate_if_due(t, err);
        end = at_end(t);
        if (!s) s = save_if_due(t, end, err);
    }
    return s ? s : tell_done(t, err);
}
