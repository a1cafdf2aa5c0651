/*
 * training.c - options that commands which train have in common; see training.h.
 *
 * The options of the model come from the library's table of the fields of struct heed_config; most
 * of the others are fields of struct heed_train_options.
 */
#include "cli/training.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

void training_init(struct training *t)
{
    *t = (struct training){.o = heed_train_defaults(),
                           .preset = "base",
                           .precision = "f32",
                           .schedule = "inverse-sqrt",
                           .device = cli_device()};
    t->seed = (int64_t)t->o.seed;
}

void text_files_release(struct text_files *f)
{
    words_release(&f->pairs);
    words_release(&f->src);
    words_release(&f->tgt);
    for (int i = 0; f->name && f->name[i]; i++) free(f->name[i]);
    free(f->name);
    free(f->weight);
}

void training_release(struct training *t)
{
    text_files_release(&t->text);
    text_files_release(&t->valid);
}

/* A corpus is files of pairs, or files of sources with as many files of targets, but not both. */
int text_files_check(const struct text_files *f, const char *prefix, struct heed_corpus *out)
{
    const struct words *pairs = &f->pairs, *src = &f->src, *tgt = &f->tgt;
    if (pairs->n && (src->n || tgt->n)) {
        return cli_misuse("--%spairs and --%s%s exclude each other", prefix, prefix,
                          src->n ? "src" : "tgt");
    }
    if (src->n != tgt->n) {
        return cli_misuse("--%ssrc is given %d times and --%stgt %d times; they go in pairs",
                          prefix, src->n, prefix, tgt->n);
    }
    if (pairs->n) {
        *out = (struct heed_corpus){.src = pairs->v, .n = pairs->n};
    } else if (src->n) {
        *out = (struct heed_corpus){.src = src->v, .tgt = tgt->v, .n = src->n};
    }
    return OPTIONS_GO_ON;
}

/* ---- weights ---- */

/* Where FILE:WEIGHT has its colon; NULL where no number is behind the last colon, or where there is
 * a file that has the whole name. */
static const char *weight_behind(const char *word, double *weight)
{
    const char *colon = strrchr(word, ':');
    char *end;
    if (!colon || colon == word || strspn(colon + 1, "0123456789.eE+-") != strlen(colon + 1))
        return NULL;
    *weight = strtod(colon + 1, &end);
    if (end == colon + 1 || *end || access(word, F_OK) == 0) return NULL;
    return colon;
}

/* Takes the weights off the names of the files. */
static int weights_read(struct text_files *f, struct heed_corpus *out)
{
    int n = out->n, weights = 0;
    f->name = calloc((size_t)n + 1, sizeof *f->name);
    f->weight = calloc((size_t)n + 1, sizeof *f->weight);
    if (!f->name || !f->weight) return cli_failure("out of memory");
    for (int i = 0; i < n; i++) {
        const char *word = out->src[i], *colon = weight_behind(word, &f->weight[i]);
        if (!colon) f->weight[i] = 1;
        weights += colon != NULL;
        f->name[i] = strndup(word, colon ? (size_t)(colon - word) : strlen(word));
        if (!f->name[i]) return cli_failure("out of memory");
    }
    if (weights && f->temperature > 0)
        return cli_misuse("--temperature and the weights of files exclude each other");
    if (f->temperature > 0 && n < 2)
        return cli_misuse("--temperature has no effect on %d file%s: it mixes several", n,
                          n == 1 ? "" : "s");
    out->src = (const char *const *)f->name;
    if (weights) out->weight = f->weight;
    out->temperature = (double)f->temperature;
    return OPTIONS_GO_ON;
}

/* The preset with what was given on top of it. */
static enum heed_status set_config(struct training *t, struct heed_error *err)
{
    struct heed_config *c = &t->o.config;
    const struct heed_config_field *f;
    enum heed_status status = heed_config_preset(c, t->preset, err);
    for (int i = 0; status == HEED_OK && (f = heed_config_field_at(i)); i++) {
        if (t->field[i]) status = heed_config_set(c, f->name, t->field[i], err);
    }
    return status == HEED_OK ? heed_config_check(c, err) : status;
}

int training_check(struct training *t)
{
    struct heed_error err = {0};
    int code = text_files_check(&t->text, "", &t->o.train);
    if (code == OPTIONS_GO_ON) code = weights_read(&t->text, &t->o.train);
    if (code == OPTIONS_GO_ON) code = text_files_check(&t->valid, "valid-", &t->o.valid);
    if (code != OPTIONS_GO_ON) return code;
    if (set_config(t, &err) != HEED_OK) return cli_misuse("%s", err.text);
    t->o.precision = strcmp(t->precision, "bf16") == 0 ? HEED_BF16 : HEED_F32;
    t->o.schedule =
        strcmp(t->schedule, "constant") == 0 ? HEED_SCHEDULE_CONSTANT : HEED_SCHEDULE_INVERSE_SQRT;
    t->o.seed = (uint64_t)t->seed;
    return OPTIONS_GO_ON;
}

/* ---- options, in the order in which a person needs them ---- */

/* Limits of numbers that need none: no run reaches them, and the help leaves them out. */
static const double LARGEST = 1e9, LARGEST_64 = 1e15;

void options_add(struct option_table *table, const struct option *option, size_t size)
{
    size_t n = size / sizeof *option;
    assert((size_t)table->n + n <= OPTIONS_MAX);
    memcpy(table->option + table->n, option, size);
    table->n += (int)n;
}

void training_text_options(struct option_table *table, struct training *t)
{
    const struct option option[] = {
        {.help = "data"},
        {"pairs", "FILE[:WEIGHT]", "tab-separated pairs, plain, .gz or .xz",
         .words = &t->text.pairs},
        {"src", "FILE[:WEIGHT]", "source side, with --tgt line by line", .words = &t->text.src},
        {"tgt", "FILE", "target side", .words = &t->text.tgt},
        {"temperature", "T", "mix files by their number of pairs to the power of 1/T; 0: by weight",
         .number = &t->text.temperature, .max = 1e6},
        {"valid-pairs", "FILE", "pairs for validation", .words = &t->valid.pairs},
        {"valid-src", "FILE", "source side for validation", .words = &t->valid.src},
        {"valid-tgt", "FILE", "target side for validation", .words = &t->valid.tgt},
    };
    options_add(table, option, sizeof option);
}

/* The preset, and an option for each field of the configuration that has one. */
void training_model_options(struct option_table *table, struct training *t)
{
    const struct option option[] = {
        {.help = "model (what is not given comes from the preset)"},
        {"preset", NULL, "size of the model; base and big are the paper's", .string = &t->preset,
         .choices = "tiny|small|base|big"},
    };
    options_add(table, option, sizeof option);
    const struct heed_config_field *f;
    for (int i = 0; (f = heed_config_field_at(i)); i++) {
        assert(i < TRAINING_FIELDS);
        struct option one = {
            .name = f->option, .help = f->help, .string = &t->field[i], .field = f};
        if (f->option) options_add(table, &one, sizeof one);
    }
}

void training_optimization_options(struct option_table *table, struct training *t)
{
    struct heed_train_options *o = &t->o;
    const struct option option[] = {
        {.help = "optimization"},
        {"train-length", "N",
         "leave training pairs with a sentence of more tokens out; 0: max-length",
         .integer = &o->train_length, .max = LARGEST},
        {"steps", "N", "optimizer steps in all", .integer64 = &o->steps, .min = 1,
         .max = LARGEST_64},
        {"batch-tokens", "N", "tokens on each side of a batch, at most",
         .integer = &o->batch_tokens, .min = 16, .max = 1 << 24},
        {"accumulate", "N", "batches per step", .integer = &o->accumulate, .min = 1,
         .max = 1000000},
        {"shards", "N",
         "parts of a batch that mpirun's ranks share, a power of two; 0: 1, with mpirun 8",
         .integer = &o->shards, .max = 256},
        {"lr", "RATE", "peak learning rate; 0: (d-model * warmup)^-0.5", .number = &o->peak_lr,
         .max = 100},
        {"warmup", "N", "steps until the learning rate is at its peak", .integer = &o->warmup,
         .min = 1, .max = LARGEST},
        {"schedule", NULL, "what the learning rate does after its peak", .string = &t->schedule,
         .choices = "inverse-sqrt|constant"},
        {"beta1", "X", "Adam: decay of the mean gradient", .number = &o->beta1, .max = 0.999999},
        {"beta2", "X", "Adam: decay of the mean squared gradient", .number = &o->beta2,
         .max = 0.999999},
        {"epsilon", "X", "Adam: added to the denominator", .number = &o->epsilon, .max = 1},
        {"label-smoothing", "X", "weight of the uniform part of the target",
         .number = &o->label_smoothing, .max = 0.99},
        {"subword-dropout", "RATE",
         "BPE-dropout: probability that a merge is left out, in training text",
         .number = &o->subword_dropout, .max = 0.99},
        {"clip", "NORM", "largest gradient norm; 0: no limit", .number = &o->clip, .max = 1e9},
        {"seed", "N", "the same seed and data give the same model", .integer64 = &t->seed,
         .max = LARGEST_64},
    };
    options_add(table, option, sizeof option);
}

void training_machine_options(struct option_table *table, struct training *t)
{
    const struct option option[] = {
        {.help = "machine"},
        {"device", "DEVICE", "cpu, cpu:avx2 (see heed --version), cuda:N or ref (slow, for checks)",
         .string = &t->device},
        {"threads", "N", "threads that compute; 0: all cores", .integer = &t->threads, .max = 4096},
        {"precision", NULL, "precision of the arithmetic", .string = &t->precision,
         .choices = "f32|bf16"},
        {"quiet", NULL, "print errors only", .flag = &t->quiet},
    };
    options_add(table, option, sizeof option);
}
