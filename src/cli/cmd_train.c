/*
 * cmd_train.c - `heed train`: parallel text in, a model directory out.
 *
 * Ctrl-C, SIGTERM or SIGHUP asks the trainer to save and return; one more, a second later or after,
 * ends the program at once.
 */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/launch.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/training.h"
#include "heed.h"
#include "serve/serve.h"

struct train {
    struct training common;
    const char *best_by, *link, *sum;
    bool valid_every_given, valid_tokenize_given, best_by_given;
    int dashboard; /* port of the page that shows the training; -1: none */
    /* while it runs */
    struct progress progress;
    struct heed_trainer *trainer;
};

/* The trainer calls this at least once a step, so a signal is answered within a step. */
static void on_event(void *user, const struct heed_event *e)
{
    struct train *t = user;
    bool stop = interrupt_number() != 0;
    if (stop) heed_trainer_stop(t->trainer);
    progress_event(&t->progress, e, stop);
}

/* An option that has no effect is refused, because whoever gives it expects one. */
static int check_validation(const struct train *t)
{
    const struct heed_train_options *o = &t->common.o;
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
    struct heed_train_options *o = &t->common.o;
    int code = training_check(&t->common);
    if (code != OPTIONS_GO_ON) return code;
    if (o->train.n == 0) {
        return cli_misuse("train needs --pairs FILE, or --src FILE and --tgt FILE; "
                          "see heed train --help");
    }
    o->link = strcmp(t->link, "host") == 0   ? HEED_LINK_HOST
              : strcmp(t->link, "nccl") == 0 ? HEED_LINK_NCCL
                                             : HEED_LINK_AUTO;
    o->sum = strcmp(t->sum, "fast") == 0 ? HEED_SUM_FAST : HEED_SUM_EXACT;
    if (o->link == HEED_LINK_HOST && o->sum == HEED_SUM_FAST) {
        return cli_misuse("--link host and --sum fast exclude each other: the fast sum is NCCL's");
    }
    o->best_by = strcmp(t->best_by, "bleu") == 0   ? HEED_BEST_BLEU
                 : strcmp(t->best_by, "chrf") == 0 ? HEED_BEST_CHRF
                                                   : HEED_BEST_NLL;
    return check_validation(t);
}

/* Serves the page, which watches the output directory, by threads of its own: the training never
 * waits for it. NULL after a sentence. */
static struct server *dashboard_open(const struct train *t)
{
    struct heed_error err = {0};
    struct serve_options o = serve_defaults();
    o.port = t->dashboard;
    o.watch = &t->common.o.out;
    o.watches = 1;
    struct server *s = serve_open(&o, &err);
    if (!s) {
        cli_failure("%s", err.text);
    } else if (!t->common.quiet) {
        fprintf(stderr, "the training can be watched at %s#training\n", serve_url(s));
    }
    return s;
}

/* Each file of a large corpus stays open; a shell often allows 1,024 of them and more on request.
 */
static void allow_open_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* NULL after a sentence, which one rank prints. */
static struct heed_engine *engine_open(const struct train *t)
{
    char device[LAUNCH_DEVICE_MAX];
    struct heed_error err = {0};
    struct heed_cluster *cluster = t->common.o.cluster;
    if (!cluster) return cli_engine_open(t->common.device, t->common.threads);
    struct heed_engine *e =
        heed_engine_open(launch_device(cluster, t->common.device, device), t->common.threads, &err);
    if (heed_cluster_agree(cluster, e ? HEED_OK : err.status, &err) == HEED_OK) return e;
    launch_failure(cluster, &err);
    heed_engine_free(e);
    return NULL;
}

static int train(struct train *t, int argc, char **argv)
{
    struct heed_train_options *o = &t->common.o;
    bool quiet = t->common.quiet || heed_cluster_rank(o->cluster) > 0;
    progress_init(&t->progress, o->steps, quiet);
    o->event = on_event;
    o->user = t;
    interrupt_catch();
    allow_open_files();

    struct heed_error err = {0};
    struct heed_engine *engine = engine_open(t);
    if (!engine) return CLI_FAILURE;
    const char *note = heed_engine_note(engine, o->precision);
    if (note && !quiet) fprintf(stderr, "%s\n", note);
    t->trainer = heed_trainer_open(engine, o, &err);
    bool good = t->trainer && heed_trainer_run(t->trainer, &err) == HEED_OK;
    heed_trainer_free(t->trainer);
    heed_engine_free(engine);

    progress_clear(&t->progress);
    if (!good) return launch_failure(o->cluster, &err);
    if (interrupt_number() && !quiet)
        interrupt_say_how_to_go_on(argc, argv, o->resume ? NULL : "--resume");
    return CLI_DONE;
}

static int run(struct train *t, int argc, char **argv)
{
    struct heed_cluster **cluster = &t->common.o.cluster;
    int code = launch_open(cluster);
    if (code != CLI_DONE) return code;
    bool shows = t->dashboard >= 0 && heed_cluster_rank(*cluster) == 0;
    struct server *dashboard = shows ? dashboard_open(t) : NULL;
    if (shows && !dashboard && *cluster) heed_cluster_abort(*cluster);
    if (shows && !dashboard) return CLI_FAILURE;
    code = train(t, argc, argv);
    serve_free(dashboard);
    code = launch_close(*cluster, code);
    return code == CLI_DONE && interrupt_number() ? interrupt_end() : code;
}

/* ---- options, in the order in which a person needs them ---- */

/* Limits of numbers that need none: no run reaches them, and the help leaves them out. */
static const double LARGEST = 1e9, LARGEST_64 = 1e15;

static void add_output_options(struct option_table *table, struct train *t)
{
    struct heed_train_options *o = &t->common.o;
    const struct option option[] = {
        {"vocab", "FILE", "vocabulary made by heed vocab", .string = &o->vocab, .required = true},
        {"out", "DIR", "where the model and its checkpoints go", .string = &o->out,
         .required = true},
    };
    options_add(table, option, sizeof option);
}

static void add_validation_options(struct option_table *table, struct train *t)
{
    struct heed_train_options *o = &t->common.o;
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
        {"dashboard", "PORT", "show the training on a page at this port; 0: any that is free",
         .integer = &t->dashboard, .max = 65535},
        {"resume", NULL, "go on from the newest usable checkpoint in --out", .flag = &o->resume},
    };
    options_add(table, option, sizeof option);
}

static void add_rank_options(struct option_table *table, struct train *t)
{
    const struct option option[] = {
        {.help = "several processes on GPUs (mpirun, srun)"},
        {"link", NULL, "how gradients are exchanged; nccl: GPU to GPU, host: through host memory",
         .string = &t->link, .choices = "auto|host|nccl"},
        {"sum", NULL, "exact: any number of processes gives the same model; fast: NCCL's order",
         .string = &t->sum, .choices = "exact|fast"},
    };
    options_add(table, option, sizeof option);
}

static int parse(struct train *t, int argc, char **argv)
{
    struct option_table table = {.n = 0};
    training_text_options(&table, &t->common);
    add_output_options(&table, t);
    training_model_options(&table, &t->common);
    training_optimization_options(&table, &t->common);
    add_validation_options(&table, t);
    training_machine_options(&table, &t->common);
    add_rank_options(&table, t);
    const struct usage usage = {
        .command = "train",
        .summary = "train a translation model on parallel text",
        .synopsis = "--pairs FILE --vocab FILE --out DIR [options]",
        .about =
            "Every epoch reads all pairs in another order, whatever their number. Of several "
            "files,\n"
            "WEIGHT says how often an epoch reads each pair of one: news.tsv:2 twice, web.tsv:0.5\n"
            "every other time. With --src and --tgt it follows the source file. For text of more\n"
            "than 64 MB an index of its lines is kept in DIR/index.\n"
            "Processes that mpirun or srun starts train one model together. Where each of them has "
            "a\n"
            "GPU of its own, --link auto is nccl, otherwise host; --link nccl lets them share a "
            "GPU,\n"
            "which NCCL accepts with NCCL_MULTI_RANK_GPU_ENABLE=1 in the environment.\n"
            "Ctrl-C, SIGTERM and SIGHUP save a checkpoint, print the command to go on with, and "
            "end\n"
            "the training; a second Ctrl-C, at least a second later, ends it at once.",
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
    struct train t = {.best_by = "nll", .link = "auto", .sum = "exact", .dashboard = -1};
    training_init(&t.common);
    int code = parse(&t, argc, argv);
    if (code == OPTIONS_GO_ON) code = check(&t);
    if (code == OPTIONS_GO_ON) code = run(&t, argc, argv);
    training_release(&t.common);
    return code;
}
