/*
 * cmd_train.c - `heed train`: parallel text in, a model directory out.
 *
 * The options of the model come from the library's table of the fields of struct heed_config; most
 * of the others are fields of struct heed_train_options. Ctrl-C, SIGTERM or SIGHUP asks the trainer
 * to save and return; one more, a second later or after, ends the program at once.
 */
#include <assert.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "heed.h"

enum { FIELDS_MAX = 64, OPTIONS_MAX = 128 }; /* of the configuration and of the command, at most */

struct train {
    struct heed_train_options o;
    const char *field[FIELDS_MAX]; /* value given for each field of the configuration, or NULL */
    struct words pairs, src, tgt, valid_pairs, valid_src, valid_tgt;
    const char *preset, *precision, *best_by, *device;
    int64_t seed;
    int threads;
    bool quiet;
    bool valid_every_given, valid_tokenize_given, best_by_given;
    /* while it runs */
    struct progress progress;
    struct heed_trainer *trainer;
};

/* Number of the signal that asked for a stop; 0: none. A signal handler takes no argument of ours,
 * hence the global, and it may run in any thread, hence the atomic. The handler does not call the
 * trainer, which may be freed by then; on_event does. */
static atomic_int stop_signal;

/* timeout(1) and other programs send one signal twice, to the process and to its process group. So
 * only a signal that comes a second or more after the first ends the program at once. */
static void on_signal(int number)
{
    static _Atomic int64_t asked; /* time of the first signal in milliseconds; 0: not set yet */
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t now = t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
    if (!stop_signal) {
        asked = now;
        stop_signal = number;
    } else if (asked && now - asked >= 1000) {
        signal(number, SIG_DFL);
        raise(number);
    }
}

/* A signal that was ignored when the program started stays ignored: a shell starts background jobs
 * like that, because Ctrl-C is meant for the job in the foreground. */
static void catch_signal(int number)
{
    struct sigaction before, a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&a.sa_mask);
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler == SIG_IGN) return;
    sigaction(number, &a, NULL);
}

/* The trainer calls this at least once a step, so a signal is answered within a step. */
static void on_event(void *user, const struct heed_event *e)
{
    struct train *t = user;
    bool stop = stop_signal != 0;
    if (stop) heed_trainer_stop(t->trainer);
    progress_event(&t->progress, e, stop);
}

/* Prints a word of the command line, quoted where a shell would not read it back as one word. */
static void print_quoted(const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./=:,+@%";
    if (*word && word[strspn(word, plain)] == '\0') {
        fputs(word, stderr);
        return;
    }
    fputc('\'', stderr);
    for (; *word; word++) {
        if (*word == '\'') {
            fputs("'\\''", stderr);
        } else {
            fputc(*word, stderr);
        }
    }
    fputc('\'', stderr);
}

static void print_how_to_go_on(const struct train *t, int argc, char **argv)
{
    fputs("to go on:\n ", stderr);
    for (int i = 0; i < argc; i++) {
        fputc(' ', stderr);
        print_quoted(argv[i]);
        if (i == 1 && !t->o.resume) fputs(" --resume", stderr); /* behind "train" */
    }
    fputc('\n', stderr);
}

/* A corpus is files of pairs, or files of sources with as many files of targets, but not both. */
static int set_corpus(struct heed_corpus *c, const char *prefix, const struct words *pairs,
                      const struct words *src, const struct words *tgt)
{
    if (pairs->n && (src->n || tgt->n)) {
        return cli_misuse("--%spairs and --%s%s exclude each other", prefix, prefix,
                          src->n ? "src" : "tgt");
    }
    if (src->n != tgt->n) {
        return cli_misuse("--%ssrc is given %d times and --%stgt %d times; they go in pairs",
                          prefix, src->n, prefix, tgt->n);
    }
    if (pairs->n) {
        *c = (struct heed_corpus){.src = pairs->v, .n = pairs->n};
    } else if (src->n) {
        *c = (struct heed_corpus){.src = src->v, .tgt = tgt->v, .n = src->n};
    }
    return OPTIONS_GO_ON;
}

/* The preset with what was given on top of it. */
static enum heed_status set_config(struct train *t, struct heed_error *err)
{
    struct heed_config *c = &t->o.config;
    const struct heed_config_field *f;
    enum heed_status status = heed_config_preset(c, t->preset, err);
    for (int i = 0; status == HEED_OK && (f = heed_config_field_at(i)); i++) {
        if (t->field[i]) status = heed_config_set(c, f->name, t->field[i], err);
    }
    return status == HEED_OK ? heed_config_check(c, err) : status;
}

/* An option that has no effect is refused, because whoever gives it expects one. */
static int check_validation(const struct train *t)
{
    const struct heed_train_options *o = &t->o;
    const char *idle = t->valid_every_given      ? "valid-every"
                       : t->valid_tokenize_given ? "valid-tokenize"
                       : t->best_by_given        ? "best-by"
                       : o->patience > 0         ? "patience"
                       : !o->valid_bleu          ? "no-bleu"
                                                 : NULL;
    if (!o->valid.n && idle) {
        return cli_misuse("--%s has no effect without validation text: add --valid-pairs FILE, or "
                          "--valid-src FILE and --valid-tgt FILE",
                          idle);
    }
    if (o->best_by != HEED_BEST_NLL && !o->valid_bleu) {
        return cli_misuse("--no-bleu and --best-by %s exclude each other: without a translation "
                          "there is no such score",
                          t->best_by);
    }
    if (t->valid_tokenize_given && !o->valid_bleu) {
        return cli_misuse("--valid-tokenize has no effect with --no-bleu");
    }
    if (o->patience > 0 && o->valid_every == 0) {
        return cli_misuse("--patience has no effect with --valid-every 0: there is one validation, "
                          "at the end");
    }
    return OPTIONS_GO_ON;
}

static int check(struct train *t)
{
    int code = set_corpus(&t->o.train, "", &t->pairs, &t->src, &t->tgt);
    if (code != OPTIONS_GO_ON) return code;
    if (t->o.train.n == 0) {
        return cli_misuse("train needs --pairs FILE, or --src FILE and --tgt FILE; "
                          "see heed train --help");
    }
    code = set_corpus(&t->o.valid, "valid-", &t->valid_pairs, &t->valid_src, &t->valid_tgt);
    if (code != OPTIONS_GO_ON) return code;
    struct heed_error err = {0};
    if (set_config(t, &err) != HEED_OK) return cli_misuse("%s", err.text);
    t->o.precision = strcmp(t->precision, "bf16") == 0 ? HEED_BF16 : HEED_F32;
    t->o.best_by = strcmp(t->best_by, "bleu") == 0   ? HEED_BEST_BLEU
                   : strcmp(t->best_by, "chrf") == 0 ? HEED_BEST_CHRF
                                                     : HEED_BEST_NLL;
    t->o.seed = (uint64_t)t->seed;
    return check_validation(t);
}

static int run(struct train *t, int argc, char **argv)
{
    progress_init(&t->progress, t->o.steps, t->quiet);
    t->o.event = on_event;
    t->o.user = t;
    catch_signal(SIGINT);
    catch_signal(SIGTERM);
    catch_signal(SIGHUP);

    struct heed_error err = {0};
    struct heed_engine *engine = cli_engine_open(t->device, t->threads);
    if (!engine) return CLI_FAILURE;
    const char *note = heed_engine_note(engine, t->o.precision);
    if (note && !t->quiet) fprintf(stderr, "%s\n", note);
    t->trainer = heed_trainer_open(engine, &t->o, &err);
    bool good = t->trainer && heed_trainer_run(t->trainer, &err) == HEED_OK;
    heed_trainer_free(t->trainer);
    heed_engine_free(engine);

    progress_clear(&t->progress);
    if (!good) return cli_failure("%s", err.text);
    int number = stop_signal;
    if (!number) return CLI_DONE;
    if (!t->quiet) print_how_to_go_on(t, argc, argv);
    /* end as the signal ends a program, so that a script that runs this one stops as well */
    signal(number, SIG_DFL);
    raise(number);
    return CLI_FAILURE;
}

/* ---- options, in the order in which a person needs them ---- */

/* Limits of numbers that need none: no run reaches them, and the help leaves them out. */
static const double LARGEST = 1e9, LARGEST_64 = 1e15;

struct option_table {
    struct option option[OPTIONS_MAX];
    int n;
};

static void add(struct option_table *table, const struct option *option, size_t size)
{
    size_t n = size / sizeof *option;
    assert((size_t)table->n + n <= OPTIONS_MAX);
    memcpy(table->option + table->n, option, size);
    table->n += (int)n;
}

static void add_data_options(struct option_table *table, struct train *t)
{
    struct heed_train_options *o = &t->o;
    const struct option option[] = {
        {.help = "data"},
        {"pairs", "FILE", "tab-separated pairs, plain, .gz or .xz", .words = &t->pairs},
        {"src", "FILE", "source side, with --tgt line by line", .words = &t->src},
        {"tgt", "FILE", "target side", .words = &t->tgt},
        {"valid-pairs", "FILE", "pairs for validation", .words = &t->valid_pairs},
        {"valid-src", "FILE", "source side for validation", .words = &t->valid_src},
        {"valid-tgt", "FILE", "target side for validation", .words = &t->valid_tgt},
        {"vocab", "FILE", "vocabulary made by heed vocab", .string = &o->vocab, .required = true},
        {"out", "DIR", "where the model and its checkpoints go", .string = &o->out,
         .required = true},
    };
    add(table, option, sizeof option);
}

/* The preset, and an option for each field of the configuration that has one. */
static void add_model_options(struct option_table *table, struct train *t)
{
    const struct option option[] = {
        {.help = "model (what is not given comes from the preset)"},
        {"preset", NULL, "size of the model; base and big are the paper's", .string = &t->preset,
         .choices = "tiny|small|base|big"},
    };
    add(table, option, sizeof option);
    const struct heed_config_field *f;
    for (int i = 0; (f = heed_config_field_at(i)); i++) {
        assert(i < FIELDS_MAX);
        struct option one = {
            .name = f->option, .help = f->help, .string = &t->field[i], .field = f};
        if (f->option) add(table, &one, sizeof one);
    }
}

static void add_optimization_options(struct option_table *table, struct train *t)
{
    struct heed_train_options *o = &t->o;
    const struct option option[] = {
        {.help = "optimization"},
        {"steps", "N", "optimizer steps in all", .integer64 = &o->steps, .min = 1,
         .max = LARGEST_64},
        {"batch-tokens", "N", "tokens on each side of a batch, at most",
         .integer = &o->batch_tokens, .min = 16, .max = 1 << 24},
        {"accumulate", "N", "batches per step", .integer = &o->accumulate, .min = 1,
         .max = 1000000},
        {"lr", "RATE", "peak learning rate; 0: (d-model * warmup)^-0.5", .number = &o->peak_lr,
         .max = 100},
        {"warmup", "N", "steps until the learning rate is at its peak", .integer = &o->warmup,
         .min = 1, .max = LARGEST},
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
    add(table, option, sizeof option);
}

static void add_validation_options(struct option_table *table, struct train *t)
{
    struct heed_train_options *o = &t->o;
    const struct option option[] = {
        {.help = "validation and checkpoints"},
        {"valid-every", "N", "validate every N steps; 0: only at the end",
         .integer64 = &o->valid_every, .given = &t->valid_every_given, .max = LARGEST_64},
        {"no-bleu", NULL, "do not translate the validation source", .flag = &o->valid_bleu,
         .clears = true},
        {"valid-tokenize", NULL, "tokenizer of the BLEU of a validation",
         .string = &o->valid_tokenize, .given = &t->valid_tokenize_given,
         .choices = "13a|zh|intl|char|none"},
        {"best-by", NULL, "what makes a validation the best, for DIR/best and --patience",
         .string = &t->best_by, .given = &t->best_by_given, .choices = "nll|bleu|chrf"},
        {"patience", "N", "stop after N validations without a better one; 0: never",
         .integer = &o->patience, .max = LARGEST},
        {"save-every", "N", "save a checkpoint every N steps; 0: only at the end",
         .integer64 = &o->save_every, .max = LARGEST_64},
        {"keep", "N", "newest checkpoints kept, besides the best", .integer = &o->keep, .min = 1,
         .max = LARGEST},
        {"resume", NULL, "go on from the newest usable checkpoint in --out", .flag = &o->resume},
    };
    add(table, option, sizeof option);
}

static void add_machine_options(struct option_table *table, struct train *t)
{
    const struct option option[] = {
        {.help = "machine"},
        {"device", "DEVICE", "cpu[:avx512|:avx2|:baseline], cuda:N or ref (slow, for checks)",
         .string = &t->device},
        {"threads", "N", "threads that compute; 0: all cores", .integer = &t->threads, .max = 4096},
        {"precision", NULL, "precision of the arithmetic", .string = &t->precision,
         .choices = "f32|bf16"},
        {"quiet", NULL, "print errors only", .flag = &t->quiet},
    };
    add(table, option, sizeof option);
}

static int parse(struct train *t, int argc, char **argv)
{
    struct option_table table = {.n = 0};
    add_data_options(&table, t);
    add_model_options(&table, t);
    add_optimization_options(&table, t);
    add_validation_options(&table, t);
    add_machine_options(&table, t);
    const struct usage usage = {
        .command = "train",
        .summary = "train a translation model on parallel text",
        .synopsis = "--pairs FILE --vocab FILE --out DIR [options]",
        .about =
            "Text is shuffled within blocks of 64 MB. Shuffle a larger corpus that is made of\n"
            "several sources beforehand, for example with shuf. Ctrl-C, SIGTERM and SIGHUP save a\n"
            "checkpoint, print the command to go on with, and end the training; a second Ctrl-C,\n"
            "at least a second later, ends it at once.",
        .example =
            "  heed train --pairs train.tsv.gz --valid-pairs dev.tsv --vocab vocab.model \\\n"
            "      --preset small --steps 20000 --valid-every 1000 --out model",
        .option = table.option,
        .n = table.n,
    };
    return options_parse(&usage, argc, argv);
}

int cmd_train(int argc, char **argv)
{
    struct train t = {
        .o = heed_train_defaults(),
        .preset = "base",
        .precision = "f32",
        .best_by = "nll",
        .device = cli_device(),
    };
    t.seed = (int64_t)t.o.seed;
    int code = parse(&t, argc, argv);
    if (code == OPTIONS_GO_ON) code = check(&t);
    if (code == OPTIONS_GO_ON) code = run(&t, argc, argv);
    words_release(&t.pairs);
    words_release(&t.src);
    words_release(&t.tgt);
    words_release(&t.valid_pairs);
    words_release(&t.valid_src);
    words_release(&t.valid_tgt);
    return code;
}
