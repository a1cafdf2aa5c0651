/*
 * cmd_reproduce.c - `heed reproduce`: the paper's tables and claims, measured anew.
 *
 * --jobs N starts N - 1 more processes on the same directory, each of which takes rows that no
 * other is at; so several trainings share a GPU. The first process shows its progress, waits for
 * the others and writes the report of all.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/training.h"
#include "heed.h"

enum { JOBS_MAX = 64 };

struct reproduce {
    struct training common;
    struct heed_study_options o;
    struct text_files test;
    struct words name;
    const char *rows; /* "A1,B2" */
    char **row;       /* the same as words */
    float minutes;
    int jobs;
    bool list;
    /* while it runs */
    struct heed_study *study;
    struct progress progress;
    double start; /* seconds; when the first row began */
    int finished; /* rows by then; -1: none has begun */
    pid_t child[JOBS_MAX];
    int children;
    int go[2]; /* a pipe: what a process that was started waits for */
};

/* ---- options ---- */

static int split_rows(struct reproduce *c)
{
    if (!c->rows) return OPTIONS_GO_ON;
    char *copy = strdup(c->rows), *save = NULL;
    c->row = calloc(strlen(c->rows) + 2, sizeof *c->row);
    if (!copy || !c->row) {
        free(copy);
        return cli_failure("out of memory");
    }
    c->row[0] = copy; /* owns the bytes; the names follow it */
    for (char *name = strtok_r(copy, ",", &save); name; name = strtok_r(NULL, ",", &save))
        c->row[1 + c->o.rows_n++] = name;
    c->o.rows = (const char *const *)c->row + 1;
    if (c->o.rows_n) return OPTIONS_GO_ON;
    return cli_misuse("--rows is '%s', expected names of rows such as A1,B2", c->rows);
}

static int check(struct reproduce *c)
{
    if (c->name.n != 1) {
        return cli_misuse("reproduce takes one study, found %s and %s", c->name.v[0], c->name.v[1]);
    }
    int code = training_check(&c->common);
    if (code == OPTIONS_GO_ON) code = text_files_check(&c->test, "test-", &c->o.test);
    if (code == OPTIONS_GO_ON) code = split_rows(c);
    if (code != OPTIONS_GO_ON) return code;
    c->o.name = c->name.v[0];
    c->o.minutes = (double)c->minutes;
    c->o.seed = (uint64_t)c->common.seed;
    c->o.train = c->common.o;
    return OPTIONS_GO_ON;
}

static void add_study_options(struct option_table *table, struct reproduce *c)
{
    const struct option option[] = {
        {.help = "study"},
        {"out", "DIR", "where rows, report and pictures go", .string = &c->o.out, .required = true},
        {"list", NULL, "print the rows and how far they are", .flag = &c->list},
        {"rows", "NAMES", "compute these rows only, such as A1,B2", .string = &c->rows},
        {"minutes", "X", "stop after so long; the same command goes on. 0: no limit",
         .number = &c->minutes, .max = 1e6},
        {"longest", "N", "table1: most positions of a sentence", .integer = &c->o.longest,
         .min = 16, .max = 1 << 19},
        {"widest", "N", "table1: greatest width of a layer", .integer = &c->o.widest, .min = 64,
         .max = 8192},
        {"jobs", "N", "processes that compute rows at the same time", .integer = &c->jobs, .min = 1,
         .max = JOBS_MAX},
    };
    options_add(table, option, sizeof option);
}

static void add_text_options(struct option_table *table, struct reproduce *c)
{
    const struct option option[] = {
        {"test-pairs", "FILE", "pairs to score the models on; else those for validation",
         .words = &c->test.pairs},
        {"test-src", "FILE", "source side of these", .words = &c->test.src},
        {"test-tgt", "FILE", "target side of these", .words = &c->test.tgt},
        {"tokenize", NULL, "tokenizer of BLEU", .string = &c->common.o.valid_tokenize,
         .choices = "13a|zh|intl|char|none"},
        {"vocab", "FILE", "vocabulary made by heed vocab; else one is made of the training text",
         .string = &c->common.o.vocab},
        {"vocab-size", "N", "pieces of the vocabulary that is made", .integer = &c->o.vocab_size,
         .min = 1, .max = 1000000},
    };
    options_add(table, option, sizeof option);
}

static int parse(struct reproduce *c, int argc, char **argv)
{
    struct option_table table = {.n = 0};
    add_study_options(&table, c);
    training_text_options(&table, &c->common);
    add_text_options(&table, c);
    training_model_options(&table, &c->common);
    training_optimization_options(&table, &c->common);
    training_machine_options(&table, &c->common);
    const struct usage usage = {
        .command = "reproduce",
        .summary = "measure a table or a claim of the paper anew",
        .synopsis = "STUDY --out DIR [options]",
        .about =
            "studies:\n"
            "  table1    time, memory and path length of one layer: self-attention, recurrent,\n"
            "            convolutional, restricted self-attention\n"
            "  table2    BLEU and training operations of the base and the big model\n"
            "  table3    the variations of the base model in the paper's rows A to E\n"
            "  scaling   the softmax of dot products with and without 1/sqrt(d_k)\n"
            "  length    loss and BLEU beyond the trained length, for each kind of position\n"
            "  schedule  training with warm-up, with a constant learning rate, and with neither\n"
            "\n"
            "Rows are computed one by one; DIR/rows keeps what is finished, and DIR/report.md is\n"
            "written from it. Ctrl-C or the end of --minutes saves a training that is under way;\n"
            "the same command goes on with it. Several commands may share DIR. table2, table3,\n"
            "length and schedule train models on the text that you name; the options of the model\n"
            "are those of the row that the others are compared with.",
        .example = "  heed reproduce scaling --out scaling\n"
                   "  heed reproduce table3 --out table3 --src train.en --tgt train.de \\\n"
                   "      --valid-src dev.en --valid-tgt dev.de --preset small --steps 5000",
        .option = table.option,
        .n = table.n,
        .rest = &c->name,
        .rest_name = "STUDY",
        .rest_min = 1,
    };
    return options_parse(&usage, argc, argv);
}

/* ---- running ---- */

/* "A1 (3 of 20 rows are finished, 12m 40s left): what it changes". The time is that of the rows
 * since the first one here, taken as the time of each that is left. */
static void say_row(struct reproduce *c, const struct heed_study_event *e)
{
    char left[CLI_NUMBER_MAX] = "", time[CLI_NUMBER_MAX + 16] = "";
    if (c->finished < 0) {
        c->start = cli_now();
        c->finished = e->finished;
    }
    int done = e->finished - c->finished;
    if (done > 0) {
        cli_duration(left, (cli_now() - c->start) / done * (e->rows - e->finished));
        snprintf(time, sizeof time, ", %s left", left);
    }
    fprintf(stderr, "%s (%d of %d rows are finished%s): %s\n", e->row, e->finished, e->rows, time,
            e->text);
}

static void on_event(void *user, const struct heed_study_event *e)
{
    struct reproduce *c = user;
    bool stop = interrupt_number() != 0;
    if (stop) heed_study_stop(c->study);
    if (c->common.quiet) return;
    if (e->training) {
        progress_event(&c->progress, e->training, stop);
        return;
    }
    progress_clear(&c->progress);
    if (!e->row) {
        if (e->text) fprintf(stderr, "%s\n", e->text);
    } else if (e->text) {
        progress_init(&c->progress, c->o.train.steps, false);
        say_row(c, e);
    }
}

static int list(struct reproduce *c)
{
    static const char *const state[] = {"waiting", "begun", "running", "finished"};
    struct heed_row r;
    for (int i = 0; heed_study_row(c->study, i, &r); i++)
        printf("%-16s%-10s%s\n", r.name, state[r.state], r.about);
    return cli_flush();
}

/* Starts the other processes, before anything is opened that processes cannot share. Returns true
 * in a process that was started, once let_go was called; where let_go
 * says so it ends at once, so that what is wrong is said by one process. */
static bool start_jobs(struct reproduce *c)
{
    if (c->jobs < 2 || pipe(c->go) != 0) return false;
    for (int i = 1; i < c->jobs; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            char byte;
            close(c->go[1]);
            if (read(c->go[0], &byte, 1) != 1) _exit(CLI_DONE);
            c->children = 0;
            c->common.quiet = true;
            return true;
        }
        if (pid > 0) c->child[c->children++] = pid;
    }
    return false;
}

/* Lets the processes begin, or end where nothing is to be done. */
static void let_go(struct reproduce *c, bool begin)
{
    if (!c->children) return;
    for (int i = 0; begin && i < c->children; i++)
        if (write(c->go[1], "g", 1) != 1) break;
    close(c->go[1]);
}

/* Ctrl-C in a terminal reaches all processes; other signals are for the first one alone, which
 * passes them on. */
static void pass_on_signal(const struct reproduce *c)
{
    int number = interrupt_number();
    for (int i = 0; number && number != SIGINT && i < c->children; i++) kill(c->child[i], number);
}

/* Waits for the other processes; how many failed. */
static int wait_for_jobs(const struct reproduce *c)
{
    const struct timespec pause = {.tv_nsec = 50000000};
    bool passed_on = false;
    int failed = 0;
    for (int i = 0; i < c->children; i++) {
        int status = 0;
        while (waitpid(c->child[i], &status, WNOHANG) == 0) {
            if (interrupt_number() && !passed_on) {
                pass_on_signal(c);
                passed_on = true;
            }
            nanosleep(&pause, NULL);
        }
        failed += !WIFEXITED(status) || WEXITSTATUS(status) != CLI_DONE;
    }
    return failed;
}

static int finish(struct reproduce *c, int argc, char **argv)
{
    struct heed_row r;
    int left = 0;
    for (int i = 0; heed_study_row(c->study, i, &r); i++) left += r.state != HEED_ROW_FINISHED;
    if (!c->common.quiet) {
        fprintf(stderr, "%s/report.md is written%s\n", c->o.out,
                left ? "; rows are left, and the same command goes on with them" : "");
    }
    if (!interrupt_number() || !left) return CLI_DONE;
    if (!c->common.quiet) interrupt_say_how_to_go_on(argc, argv, NULL);
    return interrupt_end();
}

static int run(struct reproduce *c, int argc, char **argv)
{
    struct heed_error err = {0};
    c->o.event = on_event;
    c->o.user = c;
    interrupt_catch();
    bool helper = !c->list && start_jobs(c);
    progress_init(&c->progress, c->o.train.steps, c->common.quiet);
    struct heed_engine *engine = cli_engine_open(c->common.device, c->common.threads);
    if (engine) c->study = heed_study_open(engine, &c->o, &err);
    let_go(c, c->study);
    if (!engine) return CLI_FAILURE;
    int code = CLI_DONE;
    if (!c->study) {
        code = err.status == HEED_EARG ? cli_misuse("%s", err.text) : cli_failure("%s", err.text);
    } else if (c->list) {
        code = list(c);
    } else {
        bool good = heed_study_run(c->study, &err) == HEED_OK;
        progress_clear(&c->progress);
        int failed = wait_for_jobs(c);
        if (good && c->children) good = heed_study_report(c->study, &err) == HEED_OK;
        if (!good) {
            code = cli_failure("%s", err.text);
        } else if (failed && !interrupt_number()) {
            code = cli_failure("%d of %d processes failed", failed, c->jobs);
        } else {
            code = helper ? CLI_DONE : finish(c, argc, argv);
        }
    }
    heed_study_free(c->study);
    heed_engine_free(engine);
    return code;
}

/* The command line as the report shows it. */
static char *command_line(int argc, char **argv)
{
    size_t n = 1;
    for (int i = 1; i < argc; i++) n += strlen(argv[i]) + 1;
    char *line = malloc(n + strlen("heed"));
    if (!line) return NULL;
    char *at = stpcpy(line, "heed");
    for (int i = 1; i < argc; i++) {
        *at++ = ' ';
        at = stpcpy(at, argv[i]);
    }
    return line;
}

int cmd_reproduce(int argc, char **argv)
{
    struct reproduce c = {.o = heed_study_defaults(), .jobs = 1, .finished = -1};
    training_init(&c.common);
    char *command = command_line(argc, argv);
    c.o.command = command;
    int code = parse(&c, argc, argv);
    if (code == OPTIONS_GO_ON) code = check(&c);
    if (code == OPTIONS_GO_ON) code = run(&c, argc, argv);
    if (c.row) free(c.row[0]);
    free(c.row);
    free(command);
    words_release(&c.name);
    text_files_release(&c.test);
    training_release(&c.common);
    return code;
}
