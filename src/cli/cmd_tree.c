/*
 * cmd_tree.c - `heed tree`: draws constituency trees, and turns them into what a model is trained
 * on and back.
 *
 * Call order: options, check; restore, or read_trees and then print or draw.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/lines.h"
#include "cli/options.h"
#include "cli/picture.h"
#include "heed.h"

struct tree_command {
    struct words paths;
    const char *print, *words, *out;
    int number;
    bool clean, dark;
    struct picture_file picture;
};

static const char *input_path(const struct tree_command *c)
{
    return c->paths.n ? c->paths.v[0] : "-";
}

static const char *input_name(const struct tree_command *c)
{
    return strcmp(input_path(c), "-") == 0 ? "standard input" : input_path(c);
}

static int check(struct tree_command *c)
{
    if (c->paths.n > 1) return cli_misuse("tree takes one FILE, found %d", c->paths.n);
    if (c->words && strcmp(c->words, "-") == 0) {
        return cli_misuse("--restore is -, expected a file: standard input is what is restored");
    }
    if (c->words && (c->print || c->out || c->clean || c->number)) {
        return cli_misuse("--restore prints trees in brackets; no other option goes with it");
    }
    if (c->print && c->out) return cli_misuse("--print and --out are given, expected one of them");
    if (c->dark && !c->out) return cli_misuse("--dark is for a PNG, --out FILE.png");
    return c->out ? picture_file_init(&c->picture, c->out, PICTURE_SVG | PICTURE_PNG) : CLI_DONE;
}

/* ---- what a model wrote becomes trees ---- */

static int restore_lines(const struct lines *linear, const struct lines *words)
{
    for (int i = 0; i < linear->n; i++) {
        struct heed_error err = {0};
        char *tree = NULL;
        if (heed_tree_restore(linear->v[i], words->v[i], &tree, &err) != HEED_OK) {
            return cli_failure("%s", err.text);
        }
        puts(tree);
        free(tree);
    }
    return cli_flush();
}

static int restore(const struct tree_command *c)
{
    struct lines linear = {0}, words = {0};
    int code = CLI_FAILURE;
    if (lines_read_file(&words, c->words) && lines_read_file(&linear, input_path(c)) &&
        lines_match(&linear, input_name(c), &words, c->words)) {
        code = restore_lines(&linear, &words);
    }
    lines_release(&linear);
    lines_release(&words);
    return code;
}

/* ---- trees are printed or drawn ---- */

/* The whole file as one text; NULL after a sentence. */
static char *read_text(const char *path)
{
    struct lines lines = {0};
    char *text = NULL;
    size_t n = 1;
    bool good = lines_read_file(&lines, path);
    for (int i = 0; i < lines.n; i++) n += strlen(lines.v[i]) + 1;
    if (good) {
        text = malloc(n);
        if (!text) cli_failure("out of memory: %zu bytes for the trees", n);
    }
    if (text) {
        char *at = text;
        for (int i = 0; i < lines.n; i++) at += sprintf(at, "%s\n", lines.v[i]);
        *at = '\0';
    }
    lines_release(&lines);
    return text;
}

/* The trees of the input; NULL after a sentence. */
static struct heed_trees *read_trees(const struct tree_command *c)
{
    struct heed_error err = {0};
    struct heed_trees *trees = NULL;
    char *text = read_text(input_path(c));
    if (!text) return NULL;
    enum heed_status status = heed_trees_read(text, input_name(c), &trees, &err);
    free(text);
    if (!status && c->clean) status = heed_trees_clean(trees, &err);
    if (!status) return trees;
    cli_failure("%s", err.text);
    heed_trees_free(trees);
    return NULL;
}

static enum heed_status tree_text(const struct tree_command *c, const struct heed_trees *t, int i,
                                  char **out, struct heed_error *err)
{
    if (c->out) return heed_tree_picture(t, i, c->picture.kind, out, err);
    if (!c->print) return heed_tree_picture(t, i, HEED_PICTURE_TERMINAL, out, err);
    enum heed_tree_form form = strcmp(c->print, "brackets") == 0 ? HEED_TREE_BRACKETS
                               : strcmp(c->print, "words") == 0  ? HEED_TREE_WORDS
                                                                 : HEED_TREE_LINEAR;
    return heed_tree_text(t, i, form, out, err);
}

static int show(const struct tree_command *c, const struct heed_trees *t, int first, int end)
{
    for (int i = first; i < end; i++) {
        struct heed_error err = {0};
        char *text = NULL;
        if (tree_text(c, t, i, &text, &err) != HEED_OK) {
            return cli_failure("%s: %s", input_name(c), err.text);
        }
        int code = CLI_DONE;
        if (c->out) {
            code =
                picture_file_write(&c->picture, text, c->dark ? HEED_THEME_DARK : HEED_THEME_LIGHT);
        } else {
            fputs(text, stdout);
            /* a drawing ends with a line end, and a blank line stands between two */
            if (c->print || i + 1 < end) putchar('\n');
        }
        free(text);
        if (code != CLI_DONE) return code;
    }
    return cli_flush();
}

static int show_trees(const struct tree_command *c)
{
    struct heed_trees *t = read_trees(c);
    if (!t) return CLI_FAILURE;
    int n = heed_trees_count(t), code;
    if (n == 0) {
        code = cli_failure("%s has no trees", input_name(c));
    } else if (c->number > n) {
        code = cli_failure("%s has %d tree%s, and no tree %d", input_name(c), n, n == 1 ? "" : "s",
                           c->number);
    } else if (c->out && !c->number && n > 1) {
        code = cli_failure("%s has %d trees; choose the one to draw with --number N", input_name(c),
                           n);
    } else {
        code = show(c, t, c->number ? c->number - 1 : 0, c->number ? c->number : n);
    }
    heed_trees_free(t);
    return code;
}

static int run(struct tree_command *c)
{
    int code = check(c);
    if (code != CLI_DONE) return code;
    return c->words ? restore(c) : show_trees(c);
}

int cmd_tree(int argc, char **argv)
{
    struct tree_command c = {0};
    const struct option option[] = {
        {"number", "N", "only the N-th tree", .integer = &c.number, .min = 1, .max = 2e9},
        {"clean", NULL, "leave out traces and function tags", .flag = &c.clean},
        {"out", "FILE", "draw to a file, .svg or .png", .string = &c.out},
        {"dark", NULL, "a PNG on a dark background", .flag = &c.dark},
        {.help = "as training text"},
        {"print", NULL, "print each tree on a line instead of drawing it", .string = &c.print,
         .choices = "brackets|words|linear"},
        {"restore", "WORDS", "FILE is what a model wrote: make it trees over the lines of WORDS",
         .string = &c.words},
    };
    const struct usage usage = {
        .command = "tree",
        .summary = "draw constituency trees, and prepare them for training",
        .synopsis = "[options] [FILE]",
        .about =
            "FILE, or standard input, holds trees in brackets as in the Penn Treebank:\n"
            "(S (NP (DT The) (NN dog)) (VP (VBZ runs)) (. .)). A tree may span lines.\n"
            "A parser is a translator from words to linear trees, (S (NP DT NN ) (VP VBZ ) . ):\n"
            "--print words is its source, --print linear its target, and --restore turns any line\n"
            "that it writes into a tree over exactly the words of the source.",
        .example = "  heed tree trees.mrg\n"
                   "  heed tree --number 3 --clean --out tree.svg trees.mrg\n"
                   "  heed tree --print linear train.mrg > train.linear\n"
                   "  heed translate --model model < words | heed tree --restore words > trees",
        .option = option,
        .n = sizeof option / sizeof option[0],
        .rest = &c.paths,
        .rest_name = "FILE",
    };
    int code = options_parse(&usage, argc, argv);
    if (code == OPTIONS_GO_ON) code = run(&c);
    words_release(&c.paths);
    return code;
}
