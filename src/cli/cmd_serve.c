/*
 * cmd_serve.c - `heed serve`: the library behind HTTP, until a signal ends it.
 *
 * The server has threads of its own; the main thread waits for signals, which are blocked in all
 * others: SIGHUP loads the models anew and opens the access log again, SIGINT and SIGTERM finish
 * what was accepted, and a second one ends it at once.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/default_model.h"
#include "cli/options.h"
#include "heed.h"
#include "serve/serve.h"

struct serve {
    struct serve_options o;
    struct words models, watched;
    bool quiet;
    char default_dir[CLI_PATH_MAX];
    const char *default_model[1];
};

static void say(void *user, const char *sentence)
{
    const struct serve *c = user;
    if (!c->quiet) fprintf(stderr, "heed serve: %s\n", sentence);
}

static int check(struct serve *c)
{
    c->o.model = c->models.v;
    c->o.models = c->models.n;
    c->o.watch = c->watched.v;
    c->o.watches = c->watched.n;
    for (int i = 0; i < c->models.n; i++) {
        if (!*c->models.v[i]) return cli_misuse("--model is '', expected a directory");
    }
    if (c->models.n) return CLI_DONE;
    c->default_model[0] = default_model(c->default_dir);
    if (c->default_model[0]) {
        c->o.model = c->default_model;
        c->o.models = 1;
    } else if (c->watched.n == 0) {
        return cli_misuse("--model is missing, and no model came with heed: there is none in %s",
                          c->default_dir);
    }
    return CLI_DONE;
}

/* Waits for signals until the server has stopped. timeout(1) and other programs send one signal
 * twice, to the process and to its process group, so only one that comes a second or more after the
 * first ends what is under way. */
static void wait_for_signals(struct server *s, const sigset_t *signals)
{
    const struct timespec tick = {.tv_nsec = 50 * 1000 * 1000};
    double asked = 0;
    while (!serve_stopped(s)) {
        int number = sigtimedwait(signals, NULL, &tick);
        if (number == SIGHUP) serve_reload(s);
        if (number != SIGINT && number != SIGTERM) continue;
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
        serve_stop(s, asked > 0 && seconds - asked >= 1);
        if (asked == 0) asked = seconds;
    }
}

static int run(struct serve *c)
{
    struct heed_error err = {0};
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    struct server *s = serve_open(&c->o, &err);
    if (!s) return cli_failure("%s", err.text);
    if (!c->quiet) {
        printf("heed serve: %s with %d model%s; Ctrl-C ends it\n", serve_url(s), c->o.models,
               c->o.models == 1 ? "" : "s");
    }
    int code = cli_flush();
    if (code == CLI_DONE) wait_for_signals(s, &signals);
    serve_free(s);
    return code;
}

int cmd_serve(int argc, char **argv)
{
    struct serve c = {.o = serve_defaults()};
    struct serve_options *o = &c.o;
    o->device = cli_device();
    o->say = say;
    o->user = &c;
    const double no_limit = 1e9;
    const struct option option[] = {
        {"model", "[NAME=]DIR", "a model, by the name of its directory or by NAME",
         .words = &c.models},
        {"watch", "DIR", "a training run to watch, or a directory of runs", .words = &c.watched},
        {"host", "ADDRESS", "where to listen; 0.0.0.0: at all addresses", .string = &o->host},
        {"port", "N", "0: any that is free", .integer = &o->port, .max = 65535},
        {.help = "limits"},
        {"max-body", "BYTES", "of a request", .integer = &o->max_body, .min = 1024,
         .max = no_limit},
        {"max-text", "N", "characters of a text", .integer = &o->max_text, .min = 1,
         .max = no_limit},
        {"max-texts", "N", "texts of a request", .integer = &o->max_texts, .min = 1, .max = 1e6},
        {"max-queue", "N", "requests that wait, or are being translated", .integer = &o->max_queue,
         .min = 1, .max = 1e6},
        {"max-connections", "N", "open at once", .integer = &o->max_connections, .min = 1,
         .max = 1e6},
        {"max-per-client", "N", "requests of one address at once; 0: no limit",
         .integer = &o->max_per_client, .max = 1e6},
        {"timeout", "SECONDS", "for a translation; 0: no limit", .integer = &o->timeout,
         .max = 1e6},
        {.help = "who may use it, and what is written down"},
        {"api-keys", "FILE", "a key a line; requests need one of them", .string = &o->api_keys},
        {"cors", "ORIGIN", "pages of this origin may use the server; '*': all", .string = &o->cors},
        {"access-log", "FILE", "a line for each request; -: on standard output",
         .string = &o->access_log},
        {"quiet", NULL, "print errors only", .flag = &c.quiet},
        {.help = "machine"},
        {"device", "DEVICE", "cpu, cpu:avx2 (see heed --version), cuda:N or ref, the slow oracle",
         .string = &o->device},
        {"threads", "N", "of each model; 0: all cores", .integer = &o->threads, .max = 4096},
        {"sessions", "N", "of each model, which share its threads: see docs/serving.md",
         .integer = &o->sessions, .min = 1, .max = 256},
    };
    const struct usage usage = {
        .command = "serve",
        .summary = "translate over HTTP, with a page to translate and look inside",
        .synopsis = "[--model [NAME=]DIR]... [options]",
        .about =
            "Answers at http://127.0.0.1:8080/ with a page, with LibreTranslate's API and with "
            "one\n"
            "of its own, which tells scores, alignments and attention; docs/api.md describes "
            "them.\n"
            "Requests share the decoding steps of their model. A model without language tags says\n"
            "its languages by its name: --model en-de=DIR.\n\n"
            "SIGTERM and Ctrl-C finish what was accepted, a second one ends it at once. SIGHUP, "
            "or\n"
            "a changed directory, loads a model anew while requests go on. SIGHUP opens the "
            "access\n"
            "log again.",
        .example = "  heed serve\n"
                   "  heed serve --model default=models/default --model en-fr=my-model\n"
                   "  heed serve --watch runs --port 8081\n"
                   "  curl -d q='A dog runs.' -d source=en -d target=de localhost:8080/translate",
        .option = option,
        .n = sizeof option / sizeof option[0],
    };
    int code = options_parse(&usage, argc, argv);
    if (code == OPTIONS_GO_ON) {
        code = check(&c);
        if (code == CLI_DONE) code = run(&c);
    }
    words_release(&c.models);
    words_release(&c.watched);
    return code;
}
