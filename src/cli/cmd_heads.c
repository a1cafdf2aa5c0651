/*
 * cmd_heads.c - `heed heads`: what every head of a model does on a corpus, and what is lost without
 * it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/lines.h"
#include "cli/out_file.h"
#include "cli/picture.h"
#include "cli/scores.h"
#include "cli/translator.h"

struct heads {
    struct translator t;
    const char *src_path, *tgt_path, *mask, *out, *best, *tokenize, *theme;
    int limit; /* lines; 0: all */
    bool json;
    struct picture_file file;
    struct lines src, tgt;
    /* progress */
    bool terminal, quiet;
    const char *phase; /* what is measured now */
    double began;      /* when the phase began */
    double shown;      /* when it was last shown */
};

/* ---- progress ---- */

/* On a terminal a line that is updated, elsewhere a line every half minute. */
static bool on_event(void *user, const char *what, double done)
{
    struct heads *c = user;
    double time = cli_now();
    if (c->phase != what) {
        c->phase = what;
        c->began = c->shown = time;
    }
    bool due = time - c->shown >= (c->terminal ? 0.2 : 30);
    if (due && !c->quiet && done > 0) {
        char left[CLI_NUMBER_MAX];
        c->shown = time;
        fprintf(stderr, "%s%s: %.0f%%, %s left%s", c->terminal ? "\r" : "", what, 100 * done,
                cli_duration(left, (time - c->began) * (1 - done) / done),
                c->terminal ? "\x1b[K" : "\n");
    }
    return interrupt_number() == 0;
}

static void progress_end(const struct heads *c)
{
    if (c->terminal && !c->quiet) fputs("\r\x1b[K", stderr);
}

/* ---- text ---- */

static void cut(struct lines *l, int limit)
{
    for (; limit && l->n > limit; l->n--) free(l->v[l->n - 1]);
}

static int read_text(struct heads *c)
{
    if (!lines_read_file(&c->src, c->src_path)) return CLI_FAILURE;
    if (c->tgt_path && (!lines_read_file(&c->tgt, c->tgt_path) ||
                        !lines_match(&c->src, c->src_path, &c->tgt, c->tgt_path))) {
        return CLI_FAILURE;
    }
    if (c->src.n == 0) return cli_failure("nothing to measure: %s has no lines", c->src_path);
    cut(&c->src, c->limit);
    cut(&c->tgt, c->limit);
    return CLI_DONE;
}

static int keep_translation(struct heads *c, const char *text)
{
    c->tgt.v[c->tgt.n] = strdup(text);
    if (!c->tgt.v[c->tgt.n]) return cli_failure("out of memory after %d lines", c->tgt.n);
    c->tgt.n++;
    return CLI_DONE;
}

/* The translations of the source, unless they are given. */
static int translate(struct heads *c)
{
    const struct heed_answer *out = NULL;
    const char *const *line = (const char *const *)c->src.v;
    int code = CLI_DONE;
    if (c->tgt_path)
        return translator_check(&c->t, line,
                                c->src.n < TRANSLATOR_BLOCK ? c->src.n : TRANSLATOR_BLOCK);
    c->tgt.v = calloc((size_t)c->src.n, sizeof *c->tgt.v);
    if (!c->tgt.v) return cli_failure("out of memory: %d lines", c->src.n);
    for (int i = 0, n; i < c->src.n && code == CLI_DONE; i += n) {
        n = c->src.n - i < TRANSLATOR_BLOCK ? c->src.n - i : TRANSLATOR_BLOCK;
        code = translator_run(&c->t, line + i, NULL, n, &out);
        for (int k = 0; k < n && code == CLI_DONE; k++)
            code = keep_translation(c, out[k].result->text);
        if (interrupt_number()) return cli_failure("stopped before anything was measured");
    }
    translator_progress_end(&c->t);
    return code;
}

/* ---- results ---- */

static int show(const struct heads *c, const struct heed_heads *h)
{
    struct heed_error err = {0};
    char *text = NULL;
    enum heed_picture kind = picture_kind(&c->file, c->json);
    if (heed_heads_picture(h, kind, &text, &err) != HEED_OK) return cli_failure("%s", err.text);
    int code = picture_show(&c->file, text, picture_theme(c->theme));
    free(text);
    return code;
}

/* Draws the lines of one head in a sentence to DIR/NAME.svg. */
static int draw_example(struct heads *c, const struct heed_heads *h,
                        const struct heed_head_example *x)
{
    const struct heed_head *head = &h->head[x->head];
    const struct heed_attention_view view = {head->use, HEED_DRAW_LINES, head->layer, head->head, 0,
                                             0};
    struct heed_error err = {0};
    struct heed_attention *a = NULL;
    struct picture_file file;
    char *text = NULL, path[CLI_PATH_MAX];
    struct heed_request request = translator_request(&c->t, c->src.v[x->sentence]);
    request.given = c->tgt.v[x->sentence];
    if (snprintf(path, sizeof path, "%s/%s.svg", c->best, x->name) >= (int)sizeof path) {
        return cli_failure("the name of the directory %s is too long", c->best);
    }
    int code = picture_file_init(&file, path, PICTURE_SVG);
    if (code == CLI_DONE &&
        (heed_attention_of(c->t.session, &request, &a, &err) != HEED_OK ||
         heed_attention_picture(a, HEED_PICTURE_SVG, &view, &text, &err) != HEED_OK)) {
        code = cli_failure("line %d of %s: %s", x->sentence + 1, c->src_path, err.text);
    }
    if (code == CLI_DONE) code = picture_file_write(&file, text, HEED_THEME_LIGHT);
    heed_attention_free(a);
    free(text);
    return code;
}

static int draw_best(struct heads *c, const struct heed_heads *h)
{
    int code = CLI_DONE;
    for (int i = 0; i < h->examples && code == CLI_DONE; i++)
        code = draw_example(c, h, &h->example[i]);
    return code;
}

/* Before anything is measured. */
static int make_best(const struct heads *c)
{
    if (!c->best || mkdir(c->best, 0777) == 0 || errno == EEXIST) return CLI_DONE;
    return cli_failure("cannot make the directory %s: %s", c->best, strerror(errno));
}

static int study(struct heads *c, struct heed_heads **out)
{
    struct heed_error err = {0};
    const struct heed_heads_options o = {.src = (const char *const *)c->src.v,
                                         .tgt = (const char *const *)c->tgt.v,
                                         .n = c->src.n,
                                         .to = c->t.o.to,
                                         .mask = strcmp(c->mask, "bleu") == 0   ? HEED_MASK_BLEU
                                                 : strcmp(c->mask, "loss") == 0 ? HEED_MASK_LOSS
                                                                                : HEED_MASK_NONE,
                                         .tokenize = c->tokenize,
                                         .event = on_event,
                                         .user = c};
    enum heed_status status = heed_heads_of(c->t.engine, c->t.dir, &o, out, &err);
    progress_end(c);
    return status == HEED_OK ? CLI_DONE : cli_failure("%s", err.text);
}

static int run(struct heads *c)
{
    struct heed_heads *h = NULL;
    c->terminal = cli_terminal(STDERR_FILENO);
    c->quiet = c->t.quiet;
    interrupt_catch();
    int code = make_best(c);
    if (code == CLI_DONE) code = read_text(c);
    if (code == CLI_DONE) code = translator_open(&c->t);
    if (code == CLI_DONE) code = translate(c);
    if (code == CLI_DONE) code = study(c, &h);
    if (code == CLI_DONE && h->sentences == 0) {
        code = cli_failure("stopped before anything was measured");
    }
    if (code == CLI_DONE) code = show(c, h);
    if (code == CLI_DONE && c->best) code = draw_best(c, h);
    if (code == CLI_DONE && interrupt_number()) {
        code = cli_failure("stopped: %lld of %lld sentences were measured", (long long)h->sentences,
                           (long long)h->sentences_all);
    }
    heed_heads_free(h);
    return code;
}

int cmd_heads(int argc, char **argv)
{
    struct heads c = {.mask = "loss", .tokenize = "13a", .theme = "light"};
    translator_init(&c.t);
    struct option option[TRANSLATOR_OPTIONS + 9] = {
        [TRANSLATOR_OPTIONS] = {"src", "FILE", "text, a sentence a line; plain, .gz or .xz",
                                .string = &c.src_path, .required = true},
        {"tgt", "FILE", "its translation; without it, the model's own", .string = &c.tgt_path},
        {"lines", "N", "take the first N lines; 0: all", .integer = &c.limit, .max = 1e9},
        {"mask", NULL, "what is measured without each head; bleu: loss too", .string = &c.mask,
         .choices = "loss|bleu|none"},
        scores_option(&c.tokenize),
        {"out", "FILE", "write a picture, .svg or .png, or the numbers, .json", .string = &c.out},
        {"json", NULL, "print the numbers as JSON", .flag = &c.json},
        {"best", "DIR", "draw the sentences that show best what heads do", .string = &c.best},
        picture_theme_option(&c.theme),
    };
    translator_options(&c.t, option);
    const struct usage usage = {
        .command = "heads",
        .summary = "what every head of a model does, and what is lost without it",
        .synopsis = "[--model DIR] --src FILE [--tgt FILE] [options]",
        .about =
            "For every head of encoder self-attention, decoder self-attention and\n"
            "cross-attention, over the sentences of --src and their translations: entropy, "
            "distance\n"
            "and where the weight goes; the role that this makes; how much alike heads are; and\n"
            "what is lost when the head is masked: loss a token, with --mask bleu also BLEU of\n"
            "greedy translations against --tgt, which takes much longer.\n\n"
            "Ctrl-C ends it with what was measured so far, which is marked as such, and exit\n"
            "code 1.",
        .example = "  heed heads --to de --src test.en --tgt test.de --lines 200\n"
                   "  heed heads --model model --src test.en --mask none --out heads.svg\n"
                   "  heed heads --to de --src test.en --best pictures --out heads.json",
        .option = option,
        .n = sizeof option / sizeof option[0],
    };
    int code = options_parse(&usage, argc, argv);
    if (code == OPTIONS_GO_ON) {
        code = translator_check_options(&c.t, c.tgt_path ? "--tgt" : NULL);
        if (code == CLI_DONE && !c.tgt_path && strcmp(c.mask, "bleu") == 0) {
            code = cli_misuse("--mask bleu needs --tgt: BLEU compares with a translation");
        }
        if (code == CLI_DONE && c.out) {
            code = picture_file_init(&c.file, c.out, PICTURE_SVG | PICTURE_PNG | PICTURE_JSON);
        }
        if (code == CLI_DONE) code = out_file_check(c.out, "--src", c.src_path);
        if (code == CLI_DONE) code = run(&c);
    }
    translator_close(&c.t);
    lines_release(&c.src);
    lines_release(&c.tgt);
    return code;
}
