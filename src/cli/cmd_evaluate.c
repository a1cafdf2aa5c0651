/*
 * cmd_evaluate.c - `heed evaluate`: translates a test set and scores the translation.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/handout.h"
#include "cli/launch.h"
#include "cli/lines.h"
#include "cli/options.h"
#include "cli/out_file.h"
#include "cli/scores.h"
#include "cli/text.h"
#include "cli/translator.h"

struct evaluate {
    struct translator t;
    const char *src_path, *ref_path, *tokenize, *out_path;
    struct out_file out;
    bool json;
    struct lines src, ref;
    char **hyp;           /* [src.n], each malloced */
    int read, translated; /* lines of src so far, handed out to ranks and translated */
};

static int read_text(struct evaluate *c)
{
    if (!lines_read_file(&c->src, c->src_path) || !lines_read_file(&c->ref, c->ref_path) ||
        !lines_match(&c->src, c->src_path, &c->ref, c->ref_path)) {
        return CLI_FAILURE;
    }
    if (c->src.n == 0) return cli_failure("nothing to translate: %s has no lines", c->src_path);
    return CLI_DONE;
}

static int keep_block(void *user, const char *const *text, const char *const *given,
                      const struct heed_answer *answer, int n)
{
    (void)text, (void)given;
    struct evaluate *c = user;
    for (int k = 0; k < n; k++) {
        char *copy = strdup(answer[k].result->text);
        if (!copy) return cli_failure("out of memory after %d lines", c->translated);
        c->hyp[c->translated++] = copy;
    }
    return CLI_DONE;
}

static int translate(struct evaluate *c)
{
    const struct heed_answer *out = NULL;
    int code = CLI_DONE;
    for (int i = 0, n; i < c->src.n && code == CLI_DONE; i += n) {
        n = c->src.n - i < TRANSLATOR_BLOCK ? c->src.n - i : TRANSLATOR_BLOCK;
        code = translator_run(&c->t, (const char *const *)c->src.v + i, NULL, n, &out);
        if (code == CLI_DONE) code = keep_block(c, NULL, NULL, out, n);
    }
    return code;
}

/* Rank 0 hands out lines of the test set. */
static int next_block(void *user, struct lines *text, struct lines *given, int max)
{
    (void)given;
    struct evaluate *c = user;
    for (; text->n < max && c->read < c->src.n; c->read++) {
        if (!lines_add_text(text, c->src.v[c->read])) {
            return cli_failure("out of memory after %d lines", c->read);
        }
    }
    return CLI_DONE;
}

static int write_out(struct evaluate *c)
{
    for (int i = 0; i < c->src.n; i++) {
        text_print(c->out.to, c->hyp[i], strlen(c->hyp[i]));
        putc('\n', c->out.to);
    }
    return out_file_finish(&c->out);
}

static void print(const struct evaluate *c, const struct scores *s, double seconds)
{
    double speed = (double)c->t.tokens / seconds;
    if (c->json) {
        putchar('{');
        scores_print_json(s);
        printf(",\n \"sentences\": %d, \"seconds\": %.3f, \"tokens\": %lld, "
               "\"tokens_per_second\": %.1f}\n",
               c->src.n, seconds, (long long)c->t.tokens, speed);
    } else {
        char n[CLI_NUMBER_MAX], rate[CLI_NUMBER_MAX];
        scores_print(s);
        printf("%s sentences  %.2f seconds  %s output tokens/s\n", cli_count(n, c->src.n), seconds,
               cli_count(rate, (int64_t)speed));
    }
}

/* All but the translation, before it and after. */
static int prepare(struct evaluate *c)
{
    int code = read_text(c);
    if (code != CLI_DONE) return code;
    c->hyp = calloc((size_t)c->src.n, sizeof *c->hyp);
    if (!c->hyp) return cli_failure("out of memory: %d lines", c->src.n);
    code = translator_open(&c->t);
    if (code == CLI_DONE && c->out_path) code = out_file_open(&c->out, c->out_path);
    return code;
}

static int finish(struct evaluate *c)
{
    double seconds = translator_seconds(&c->t);
    int code = c->out_path ? write_out(c) : CLI_DONE;
    if (code != CLI_DONE) return code;
    struct scores s;
    code = scores_compute(&s, (const char *const *)c->hyp, (const char *const *)c->ref.v, c->src.n,
                          c->tokenize);
    if (code != CLI_DONE) return code;
    print(c, &s, seconds);
    code = cli_flush();
    return code == CLI_DONE ? translator_verdict(&c->t) : code;
}

static int run(struct evaluate *c)
{
    struct heed_cluster *cluster = NULL;
    int code = launch_open(&cluster);
    if (code != CLI_DONE) return code;
    bool first = heed_cluster_rank(cluster) == 0, several = heed_cluster_ranks(cluster) > 1;
    char device[LAUNCH_DEVICE_MAX];
    c->t.device = launch_device(cluster, c->t.device, device);
    struct handout h = {&c->t, cluster, next_block, keep_block, c, .code = CLI_DONE};
    if (first) code = prepare(c);
    if (code != CLI_DONE && several) heed_cluster_abort(cluster);
    if (code == CLI_DONE) code = several ? handout_run(&h) : translate(c);
    if (first) translator_progress_end(&c->t);
    if (first && code == CLI_DONE) code = finish(c);
    return launch_close(cluster, code);
}

static void release(struct evaluate *c)
{
    translator_close(&c->t);
    out_file_drop(&c->out);
    for (int i = 0; c->hyp && i < c->src.n; i++) free(c->hyp[i]);
    free(c->hyp);
    lines_release(&c->src);
    lines_release(&c->ref);
}

int cmd_evaluate(int argc, char **argv)
{
    struct evaluate c = {.tokenize = "13a"};
    translator_init(&c.t);
    struct option option[TRANSLATOR_OPTIONS + TRANSLATOR_LINE_OPTIONS + 5] = {
        [TRANSLATOR_OPTIONS +
         TRANSLATOR_LINE_OPTIONS] = {"src", "FILE",
                                     "text to translate, a sentence a line; plain, .gz or .xz",
                                     .string = &c.src_path, .required = true},
        {"ref", "FILE", "reference translation of --src, line by line", .string = &c.ref_path,
         .required = true},
        scores_option(&c.tokenize),
        {"out", "FILE", "write the translations to this file, line by line", .string = &c.out_path},
        {"json", NULL, "print JSON", .flag = &c.json},
    };
    translator_options(&c.t, option);
    translator_line_options(&c.t, option + TRANSLATOR_OPTIONS);
    const struct usage usage = {
        .command = "evaluate",
        .summary = "translate a test set and score the translation",
        .synopsis = "[--model DIR] --src FILE --ref FILE [options]",
        .about =
            "Translates --src, scores the translation against --ref and prints BLEU, chrF and the\n"
            "speed; loading the model is not counted. --out keeps the translation. Give\n"
            "--tokenize zh where the reference is Chinese.",
        .example = "  heed evaluate --model model --src test.en --ref test.de\n"
                   "  heed evaluate --model model --src test.en --ref test.zh --tokenize zh --json",
        .option = option,
        .n = sizeof option / sizeof option[0],
    };
    int code = options_parse(&usage, argc, argv);
    if (code == OPTIONS_GO_ON) {
        code = translator_check_options(&c.t, NULL);
        if (code == CLI_DONE) code = out_file_check(c.out_path, "--src", c.src_path);
        if (code == CLI_DONE) code = out_file_check(c.out_path, "--ref", c.ref_path);
        if (code == CLI_DONE) code = run(&c);
    }
    release(&c);
    return code;
}
