/*
 * cmd_attention.c - `heed attention`: the attention of a translation as pictures, a page and
 * numbers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/picture.h"
#include "cli/translator.h"

struct attention {
    struct translator t;
    struct words texts;
    const char *tgt, *out, *kind, *theme;
    int layer, head; /* from 1; 0: the last layer but one; the mean of the heads, or all of them */
    bool all, lines, json, terminal;
    struct {
        bool kind, layer, head, theme;
    } given;
    struct picture_file file;
};

/* ---- what is asked for ---- */

static const char *const kinds[] = {
    [HEED_USE_ENCODER] = "encoder", [HEED_USE_DECODER] = "decoder", [HEED_USE_CROSS] = "cross"};

/* The first option that was given and chooses what a picture shows; NULL: none was. */
static const char *view_option(const struct attention *c)
{
    return c->given.kind    ? "--kind"
           : c->given.layer ? "--layer"
           : c->given.head  ? "--head"
           : c->lines       ? "--lines"
           : c->all         ? "--all"
                            : NULL;
}

static bool prints_picture(const struct attention *c)
{
    return c->terminal || !(c->out || c->json);
}

/* CLI_MISUSE after a sentence where an option contradicts another or has no effect. */
static int check_options(struct attention *c)
{
    int code = c->out ? picture_file_init(&c->file, c->out,
                                          PICTURE_SVG | PICTURE_PNG | PICTURE_HTML | PICTURE_JSON)
                      : CLI_DONE;
    if (code != CLI_DONE) return code;
    bool draws = prints_picture(c) || (c->out && c->file.kind != HEED_PICTURE_JSON);
    if (c->json && c->terminal) {
        return cli_misuse("--json and --terminal both print, expected one of them");
    }
    if (!draws && view_option(c)) {
        return cli_misuse("JSON has the numbers of every kind, layer and head: %s has no effect",
                          view_option(c));
    }
    if (c->all && (c->given.layer || c->given.head)) {
        return cli_misuse("--all shows every layer and head: %s has no effect",
                          c->given.layer ? "--layer" : "--head");
    }
    if (c->all && c->lines) return cli_misuse("--all and --lines are two pictures, expected one");
    if (c->lines && prints_picture(c)) {
        return cli_misuse("--lines needs --out FILE: a terminal shows no lines");
    }
    if (c->given.theme && !c->file.png) {
        return cli_misuse("--theme is for a .png: an .svg and an .html follow the reader's theme");
    }
    return CLI_DONE;
}

/* The view that the options ask for, of this model. */
static int view_of(const struct attention *c, struct heed_attention_view *v)
{
    const struct heed_config *config = heed_model_config(c->t.model);
    int use = 0;
    while (strcmp(kinds[use], c->kind) != 0) use++;
    int layers = use == HEED_USE_ENCODER ? config->encoder_layers : config->decoder_layers;
    if (c->layer > layers) {
        return cli_misuse("--layer is %d, expected 1 to %d", c->layer, layers);
    }
    if (c->head > config->heads) {
        return cli_misuse("--head is %d, expected 1 to %d", c->head, config->heads);
    }
    bool every = c->all && !c->given.kind;
    bool page = c->out && c->file.kind == HEED_PICTURE_HTML; /* which begins with lines */
    *v = (struct heed_attention_view){
        .use = every ? HEED_USES : (enum heed_attention_use)use,
        .drawing = c->all             ? HEED_DRAW_GRID
                   : c->lines || page ? HEED_DRAW_LINES
                                      : HEED_DRAW_MAP,
        .layer = c->layer     ? c->layer - 1
                 : layers > 1 ? layers - 2
                              : 0,
        .head = c->head - 1,
    };
    return CLI_DONE;
}

/* ---- the terminal ---- */

static bool contains(const char *text, const char *word)
{
    return text && strstr(text, word);
}

/* How many colours to print in: none where NO_COLOR says so (no-color.org), and where the output is
 * no terminal, unless --terminal asks for what a terminal would show. */
static int colours(bool asked)
{
    const char *term = getenv("TERM"), *depth = getenv("COLORTERM"), *none = getenv("NO_COLOR");
    if ((none && *none) || !(asked || cli_terminal(STDOUT_FILENO))) return 0;
    if (contains(depth, "truecolor") || contains(depth, "24bit")) return 1 << 24;
    return contains(term, "256color") ? 256 : 0;
}

static int columns(void)
{
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 0;
}

/* ---- the command ---- */

static int print(const struct attention *c, const struct heed_attention *a,
                 struct heed_attention_view v)
{
    struct heed_error err = {0};
    char *text = NULL;
    v.colours = colours(c->terminal);
    v.columns = columns();
    enum heed_picture kind = c->json ? HEED_PICTURE_JSON : HEED_PICTURE_TERMINAL;
    if (heed_attention_picture(a, kind, &v, &text, &err) != HEED_OK) {
        return cli_failure("%s", err.text);
    }
    fputs(text, stdout);
    free(text);
    return cli_flush();
}

static int write_out(const struct attention *c, const struct heed_attention *a,
                     const struct heed_attention_view *v)
{
    struct heed_error err = {0};
    char *text = NULL;
    if (heed_attention_picture(a, c->file.kind, v, &text, &err) != HEED_OK) {
        return cli_failure("%s", err.text);
    }
    int code = picture_file_write(&c->file, text, picture_theme(c->theme));
    free(text);
    return code;
}

static int run(struct attention *c)
{
    struct heed_error err = {0};
    struct heed_attention *a = NULL;
    struct heed_attention_view view;
    struct heed_request request = translator_request(&c->t, c->texts.v[0]);
    request.given = c->tgt;
    int code = translator_open(&c->t);
    if (code == CLI_DONE) code = view_of(c, &view);
    if (code == CLI_DONE) code = translator_check(&c->t, (const char *const *)c->texts.v, 1);
    if (code == CLI_DONE && heed_attention_of(c->t.session, &request, &a, &err) != HEED_OK) {
        code = cli_failure("%s", err.text);
    }
    if (code == CLI_DONE && c->out) code = write_out(c, a, &view);
    if (code == CLI_DONE && (c->json || prints_picture(c))) code = print(c, a, view);
    heed_attention_free(a);
    return code;
}

int cmd_attention(int argc, char **argv)
{
    struct attention c = {.kind = "cross", .theme = "light"};
    translator_init(&c.t);
    struct option option[TRANSLATOR_OPTIONS + 11] = {
        [TRANSLATOR_OPTIONS] = {.help = "pictures"},
        {"kind", NULL, "whose attention: the encoder's or the decoder's to itself, or cross",
         .string = &c.kind, .choices = "encoder|decoder|cross", .given = &c.given.kind},
        {"layer", "N", "layer, counted from 1; 0: the last but one", .integer = &c.layer,
         .max = 1e6, .given = &c.given.layer},
        {"head", "N", "head, counted from 1; 0: the mean of all, or all lines", .integer = &c.head,
         .max = 1e6, .given = &c.given.head},
        {"lines", NULL, "words in two columns and lines between them, a colour for each head",
         .flag = &c.lines},
        {"all", NULL, "small maps of all layers and heads", .flag = &c.all},
        {"out", "FILE", "write a picture (.svg, .png), a page (.html) or all numbers (.json)",
         .string = &c.out},
        {"theme", NULL, "of a .png; an .svg and an .html follow the reader's", .string = &c.theme,
         .choices = "light|dark", .given = &c.given.theme},
        {"json", NULL, "print all numbers", .flag = &c.json},
        {"terminal", NULL, "print a picture in colour, also with --out or into a pipe",
         .flag = &c.terminal},
        {"translation", "TEXT", "show this translation instead of searching for one",
         .string = &c.tgt},
    };
    translator_options(&c.t, option);
    const struct usage usage = {
        .command = "attention",
        .summary = "draw the attention of a translation",
        .synopsis = "[--model DIR] [options] TEXT",
        .about =
            "Translates TEXT and shows how much attention its tokens gave to each other: each\n"
            "token of the translation to those of TEXT (--kind cross), the tokens of TEXT to each\n"
            "other (encoder), or each token of the translation to those before it (decoder). A "
            "map\n"
            "has a row for each token that looks and a column for each token that is looked at.\n"
            "Without --out the picture is printed. A page (.html) shows every kind, layer and\n"
            "head, and the lines of a word that is pointed at; it needs no other file.\n\n"
            "For a translation that was found with --prefix, --require or --ban, give what heed\n"
            "translate printed as --translation.",
        .example = "  heed attention --to de \"A dog runs.\"\n"
                   "  heed attention --to de --out dog.html \"A dog runs.\"\n"
                   "  heed attention --to de --kind encoder --lines --out dog.svg \"A dog runs.\"\n"
                   "  heed attention --model model --all --out dog.png \"A dog runs.\"",
        .option = option,
        .n = sizeof option / sizeof option[0],
        .rest = &c.texts,
        .rest_name = "TEXT",
        .rest_min = 1,
    };
    int code = options_parse(&usage, argc, argv);
    if (code == OPTIONS_GO_ON) {
        code = c.texts.n > 1
                   ? cli_misuse("attention takes one TEXT, found %d: put it in quotes", c.texts.n)
                   : translator_check_options(&c.t, c.tgt ? "--translation" : NULL);
        if (code == CLI_DONE) code = check_options(&c);
        if (code == CLI_DONE) code = run(&c);
    }
    translator_close(&c.t);
    words_release(&c.texts);
    return code;
}
