/*
 * training.c - rows that train a model; see training.h.
 *
 * A training is a function of its options, so a row that was stopped or killed and goes on from its
 * last checkpoint ends with the same numbers. All numbers are read back from the log that the
 * trainer wrote.
 */
#include "paper/training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/locale.h"
#include "model/config.h"
#include "model/parameters.h"
#include "train/checkpoint.h"
#include "train/fingerprint.h"

/* ---- options ---- */

enum heed_status training_check_text(const struct heed_study *s, struct heed_error *err)
{
    if (!s->o.train.train.n)
        return error_set(err, HEED_EARG,
                         "%s needs training text: --pairs FILE, or --src FILE and --tgt FILE",
                         s->x->name);
    if (!s->o.train.valid.n)
        return error_set(err, HEED_EARG,
                         "%s needs validation text: --valid-pairs FILE, or --valid-src FILE and "
                         "--valid-tgt FILE",
                         s->x->name);
    return HEED_OK;
}

/* A float with the fewest digits that read back as the same float. */
static void set_float(json_t *settings, const char *key, float x)
{
    char text[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)x);
        if (strtof(text, NULL) == x) break;
    }
    json_object_set_new(settings, key, json_string(text));
}

static void set_model(json_t *settings, const struct heed_config *c)
{
    const struct heed_config_field *f;
    char value[CONFIG_VALUE];
    for (int i = 0; (f = heed_config_field_at(i)); i++)
        if (f->option)
            json_object_set_new(settings, f->option, json_string(config_show(value, c, f)));
}

enum heed_status training_settings(struct heed_study *s, json_t *settings, struct heed_error *err)
{
    const struct heed_train_options *o = &s->o.train;
    char train[FINGERPRINT_MAX], valid[FINGERPRINT_MAX], test[FINGERPRINT_MAX];
    char vocab[FINGERPRINT_MAX];
    enum heed_status st = fingerprint_corpus(train, &o->train, err);
    if (!st) st = fingerprint_corpus(valid, &o->valid, err);
    if (!st) st = fingerprint_corpus(test, &s->o.test, err);
    snprintf(vocab, sizeof vocab, "made of the training text, %d pieces", s->o.vocab_size);
    if (!st && o->vocab) st = fingerprint_file(vocab, o->vocab, err);
    if (st) return st;
    json_object_set_new(settings, "training text", json_string(train));
    json_object_set_new(settings, "validation text", json_string(valid));
    json_object_set_new(settings, "test text", json_string(*test ? test : "the validation text"));
    json_object_set_new(settings, "vocabulary", json_string(vocab));
    json_object_set_new(settings, "steps", json_integer(o->steps));
    json_object_set_new(settings, "batch-tokens", json_integer(o->batch_tokens));
    json_object_set_new(settings, "accumulate", json_integer(o->accumulate));
    json_object_set_new(settings, "warmup", json_integer(o->warmup));
    set_float(settings, "lr", o->peak_lr);
    json_object_set_new(settings, "schedule",
                        json_string(o->schedule ? "constant" : "inverse-sqrt"));
    json_object_set_new(settings, "train-length", json_integer(o->train_length));
    set_float(settings, "beta1", o->beta1);
    set_float(settings, "beta2", o->beta2);
    set_float(settings, "epsilon", o->epsilon);
    set_float(settings, "label-smoothing", o->label_smoothing);
    set_float(settings, "subword-dropout", o->subword_dropout);
    set_float(settings, "clip", o->clip);
    json_object_set_new(settings, "precision", json_string(o->precision ? "bf16" : "f32"));
    json_object_set_new(settings, "tokenize", json_string(o->valid_tokenize));
    set_model(settings, &o->config);
    return HEED_OK;
}

/* Sets one option as `heed train` does. Rows use these and the options of the model. */
static enum heed_status set_option(struct heed_train_options *o, const char *name,
                                   const char *value, struct heed_error *err)
{
    if (strcmp(name, "label-smoothing") == 0)
        o->label_smoothing = strtof(value, NULL);
    else if (strcmp(name, "lr") == 0)
        o->peak_lr = strtof(value, NULL);
    else if (strcmp(name, "warmup") == 0)
        o->warmup = (int)strtol(value, NULL, 10);
    else if (strcmp(name, "train-length") == 0)
        o->train_length = (int)strtol(value, NULL, 10);
    else if (strcmp(name, "seed") == 0)
        o->seed = strtoull(value, NULL, 10);
    else if (strcmp(name, "schedule") == 0)
        o->schedule =
            strcmp(value, "constant") == 0 ? HEED_SCHEDULE_CONSTANT : HEED_SCHEDULE_INVERSE_SQRT;
    else
        return heed_config_set(&o->config, name, value, err);
    return HEED_OK;
}

enum heed_status training_options(const struct heed_study *s, const struct row *r,
                                  struct heed_train_options *o, struct heed_error *err)
{
    char words[ROW_TEXT], *save = NULL;
    enum heed_status st = HEED_OK;
    struct c_locale locale = c_locale_enter();
    *o = s->o.train;
    o->seed = s->o.seed;
    snprintf(words, sizeof words, "%s", r->options);
    for (char *name = strtok_r(words, " ", &save); name && !st; name = strtok_r(NULL, " ", &save)) {
        const char *value = strtok_r(NULL, " ", &save);
        st = set_option(o, name + 2, value ? value : "", err);
    }
    c_locale_leave(locale);
    return st ? st : heed_config_check(&o->config, err);
}

/* ---- training ---- */

/* The vocabulary that was given, or one that is made of the training text once, in DIR. */
static enum heed_status vocabulary(struct heed_study *s, char path[FILE_PATH_MAX],
                                   struct heed_error *err)
{
    const struct heed_corpus *c = &s->o.train.train;
    if (s->o.train.vocab) {
        snprintf(path, FILE_PATH_MAX, "%s", s->o.train.vocab);
        return HEED_OK;
    }
    int lock;
    enum heed_status st = file_join(path, FILE_PATH_MAX, s->o.out, "vocab.model", err);
    if (!st) st = study_lock(s, &lock, err);
    if (st) return st;
    if (!file_exists(path)) {
        const char **file = malloc(2 * (size_t)c->n * sizeof *file);
        int n = 0;
        for (int i = 0; file && i < c->n; i++) file[n++] = c->src[i];
        for (int i = 0; file && c->tgt && i < c->n; i++) file[n++] = c->tgt[i];
        struct heed_tokenizer_options o = {.vocab_size = s->o.vocab_size};
        study_tell(s, NULL, NULL, "making a vocabulary of the training text");
        st = file ? heed_tokenizer_train(file, n, &o, path, err)
                  : error_memory(err, 2 * (size_t)c->n * sizeof *file, "the names of files");
        free(file);
    }
    close(lock);
    return st;
}

enum heed_status training_model_dir(const struct heed_study *s, const struct row *r,
                                    char path[FILE_PATH_MAX], struct heed_error *err)
{
    char dir[FILE_PATH_MAX];
    enum heed_status st = study_run_dir(s, r, dir, err);
    return st ? st : file_join(path, FILE_PATH_MAX, dir, "model", err);
}

struct listener {
    struct heed_study *s;
    const struct row *r;
    struct heed_trainer *trainer;
    int64_t step;
};

static void on_event(void *user, const struct heed_event *e)
{
    struct listener *l = user;
    l->step = e->step;
    study_tell(l->s, l->r, e, NULL);
    if (study_stopping(l->s)) heed_trainer_stop(l->trainer);
}

/* Trains to the last step. *step: how far it came. */
static enum heed_status train(struct heed_study *s, const struct row *r,
                              struct heed_train_options o, int64_t *step, struct heed_error *err)
{
    struct listener l = {.s = s, .r = r};
    o.event = on_event;
    o.user = &l;
    l.trainer = heed_trainer_open(s->engine, &o, err);
    if (!l.trainer) return err->status;
    enum heed_status st = heed_trainer_run(l.trainer, err);
    heed_trainer_free(l.trainer);
    *step = l.step;
    return st;
}

/* ---- the log ---- */

enum { CURVE = 200 }; /* points of a loss curve, at most */

/* What the log says of all steps. */
struct summary {
    double source_tokens, target_tokens, flops, nll, seconds;
    int64_t skipped, rollbacks;
    json_t *loss;    /* [step, mean] */
    double sum;      /* of the losses since the last point */
    int n, interval; /* how many these are; steps of a point */
};

static void add_step(struct summary *x, const json_t *event)
{
    double loss = result_number(event, "loss");
    x->source_tokens += result_number(event, "source_tokens");
    x->target_tokens += result_number(event, "target_tokens");
    x->flops += result_number(event, "flops");
    x->sum += loss;
    if (++x->n < x->interval) return;
    double mean = x->sum / x->n;
    json_array_append_new(x->loss,
                          json_pack("[I,o]", json_integer_value(json_object_get(event, "step")),
                                    isfinite(mean) ? json_real(mean) : json_null()));
    x->sum = 0;
    x->n = 0;
}

static void add_event(struct summary *x, const json_t *event)
{
    const char *kind = json_string_value(json_object_get(event, "event"));
    if (!kind) return;
    if (strcmp(kind, "step") == 0 || strcmp(kind, "skip") == 0) add_step(x, event);
    x->skipped += strcmp(kind, "skip") == 0;
    x->rollbacks += strcmp(kind, "rollback") == 0;
    if (strcmp(kind, "valid") == 0) x->nll = result_number(event, "nll");
    if (strcmp(kind, "done") == 0) x->seconds += result_number(event, "seconds");
}

static enum heed_status summarize(const char *dir, int64_t steps, struct summary *x,
                                  struct heed_error *err)
{
    char path[FILE_PATH_MAX], *line = NULL;
    size_t cap = 0;
    enum heed_status st = file_join(path, sizeof path, dir, "log.jsonl", err);
    if (st) return st;
    FILE *f = fopen(path, "re");
    if (!f) return error_errno(err, "cannot read %s", path);
    *x = (struct summary){.nll = NAN, .loss = json_array()};
    x->interval = steps > CURVE ? (int)((steps + CURVE - 1) / CURVE) : 1;
    while (getline(&line, &cap, f) > 0) {
        json_t *event = json_loads(line, 0, NULL);
        add_event(x, event);
        json_decref(event);
    }
    if (ferror(f)) st = error_errno(err, "cannot read %s", path);
    free(line);
    fclose(f);
    return st;
}

static void set_summary(json_t *result, const struct summary *x)
{
    result_set(result, "source_tokens", x->source_tokens);
    result_set(result, "target_tokens", x->target_tokens);
    result_set(result, "flops", x->flops);
    result_set(result, "seconds", x->seconds);
    json_object_set_new(result, "skipped", json_integer(x->skipped));
    json_object_set_new(result, "rollbacks", json_integer(x->rollbacks));
    json_object_set(result, "loss", x->loss);
    result_set(result, "nll", x->nll);
    result_set(result, "perplexity", exp(x->nll));
}

/* ---- a row ---- */

enum { SAVES = 10 }; /* checkpoints of a training, so that one that is killed goes on */

enum heed_status training_run(struct heed_study *s, const struct row *r,
                              struct training_saves saves, json_t *result, bool *done,
                              struct heed_error *err)
{
    char vocab[FILE_PATH_MAX], dir[FILE_PATH_MAX];
    struct heed_train_options o;
    struct heed_error why = {0};
    struct summary x = {0};
    int64_t step = 0;
    enum heed_status st = training_options(s, r, &o, err);
    if (!st) st = vocabulary(s, vocab, err);
    if (!st) st = training_model_dir(s, r, dir, err);
    if (st) return st;
    o.vocab = vocab;
    o.out = dir;
    o.resume = true;
    o.valid_every = 0;
    o.valid_bleu = false;
    o.save_every = saves.every ? saves.every : (o.steps + SAVES - 1) / SAVES;
    o.keep = saves.keep ? saves.keep : 1;
    st = train(s, r, o, &step, &why);
    bool diverged = st == HEED_ENUMERIC;
    *done = diverged || (!st && step >= o.steps);
    if (st && !diverged) return error_set(err, st, "%s", why.text);
    if (!*done) return HEED_OK;
    struct heed_tokenizer *t = heed_tokenizer_load(vocab, err);
    if (!t) return HEED_EFORMAT;
    o.config.vocab_size = heed_tokenizer_size(t);
    heed_tokenizer_free(t);
    st = summarize(dir, o.steps, &x, err);
    if (!st) {
        json_object_set_new(result, "options", json_string(r->options));
        json_object_set_new(result, "parameters",
                            json_integer((json_int_t)parameters_count(&o.config)));
        json_object_set_new(result, "steps", json_integer(step));
        json_object_set_new(result, "diverged", diverged ? json_string(why.text) : json_null());
        set_summary(result, &x);
    }
    json_decref(x.loss);
    return st;
}

enum heed_status training_checkpoint_dir(const struct heed_study *s, const struct row *r,
                                         int64_t step, char path[FILE_PATH_MAX],
                                         struct heed_error *err)
{
    char dir[FILE_PATH_MAX], name[64];
    snprintf(name, sizeof name, "checkpoints/step-%08lld", (long long)step);
    enum heed_status st = training_model_dir(s, r, dir, err);
    return st ? st : file_join(path, FILE_PATH_MAX, dir, name, err);
}

enum heed_status training_finish(struct heed_study *s, const struct row *r, struct heed_error *err)
{
    char dir[FILE_PATH_MAX], path[FILE_PATH_MAX];
    int64_t *step = NULL;
    int n = 0;
    enum heed_status st = training_model_dir(s, r, dir, err);
    if (!st) st = checkpoint_list(dir, &step, &n, err);
    for (int i = 0; i < n && !st; i++) {
        st = training_checkpoint_dir(s, r, step[i], path, err);
        if (!st) st = file_remove_dir(path, err);
    }
    free(step);
    if (!st) st = file_join(path, sizeof path, dir, "checkpoints", err);
    if (!st) st = file_remove_dir(path, err);
    if (!st) st = file_join(path, sizeof path, dir, "best", err);
    if (!st) st = file_remove_dir(path, err);
    return st;
}
