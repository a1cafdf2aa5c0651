/*
 * cmd_neighbours.c - `heed neighbours`: which words a model has close to each other.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/loaded.h"
#include "cli/options.h"
#include "cli/picture.h"
#include "cli/text.h"

struct neighbours {
    const char *dir, *side, *out, *theme;
    int count;
    bool map, json;
    struct words words;
    struct picture_file file;
    struct loaded l;
    struct heed_embeddings *e;
    struct heed_neighbour *found; /* [count] */
};

static bool is_sign(const char *word)
{
    return strcmp(word, "+") == 0 || strcmp(word, "-") == 0;
}

/* ---- lists ---- */

/* A piece as a reader knows it: without the mark of a space, and with a hyphen before a piece that
 * goes on inside a word. Chinese is written without spaces, so that its pieces have no hyphen. */
static void print_piece(const char *piece)
{
    static const char space[] = "\xe2\x96\x81"; /* U+2581 */
    size_t n = sizeof space - 1;
    bool begins = strncmp(piece, space, n) == 0;
    if (begins && piece[n]) piece += n;
    bool latin = (unsigned char)piece[0] < 0xe0; /* up to U+07FF */
    if (!begins && latin) putchar('-');
    text_print(stdout, piece, strlen(piece));
}

static void print_found(const struct neighbours *c, int n)
{
    for (int i = 0; i < n; i++) {
        printf("  %.3f  ", (double)c->found[i].cosine);
        print_piece(c->found[i].piece);
        putchar('\n');
    }
}

static void print_found_json(const struct neighbours *c, int n)
{
    fputs(", \"neighbours\": [", stdout);
    for (int i = 0; i < n; i++) {
        printf("%s\n  {\"piece\": ", i ? "," : "");
        text_print_json(c->found[i].piece, strlen(c->found[i].piece));
        printf(", \"cosine\": %.6f}", (double)c->found[i].cosine);
    }
    fputs("]}", stdout);
}

/* Says which words have several pieces: their vectors are means. */
static int tell_pieces(const struct neighbours *c)
{
    const struct heed_tokenizer *t = heed_model_tokenizer(c->l.model);
    struct heed_error err = {0};
    for (int i = 0; i < c->words.n; i++) {
        struct heed_ids ids = {0};
        if (is_sign(c->words.v[i])) continue;
        if (heed_embeddings_pieces(c->e, c->words.v[i], &ids, &err) != HEED_OK) {
            free(ids.v);
            return cli_failure("%s", err.text);
        }
        if (ids.n > 1) {
            fprintf(stderr, "%s is the mean of %zu pieces:", c->words.v[i], ids.n);
            for (size_t k = 0; k < ids.n; k++)
                fprintf(stderr, " %s", heed_tokenizer_piece(t, ids.v[k]));
            fputc('\n', stderr);
        }
        free(ids.v);
    }
    return CLI_DONE;
}

static int look_up(const struct neighbours *c, const char *const *plus, int plus_n,
                   const char *const *minus, int minus_n, int *n)
{
    struct heed_error err = {0};
    return heed_neighbours(c->e, plus, plus_n, minus, minus_n, c->count, c->found, n, &err) ==
                   HEED_OK
               ? CLI_DONE
               : cli_failure("%s", err.text);
}

static int list_each(const struct neighbours *c)
{
    int code = CLI_DONE, n = 0;
    if (c->json) putchar('[');
    for (int i = 0; i < c->words.n && code == CLI_DONE; i++) {
        const char *word = c->words.v[i];
        code = look_up(c, &word, 1, NULL, 0, &n);
        if (code != CLI_DONE) break;
        if (c->json) {
            fputs(i ? ",\n {\"word\": " : "{\"word\": ", stdout);
            text_print_json(word, strlen(word));
            print_found_json(c, n);
        } else {
            text_print(stdout, word, strlen(word));
            putchar('\n');
            print_found(c, n);
        }
    }
    if (c->json) fputs("]\n", stdout);
    return code;
}

/* ---- a - b + c ---- */

/* Sorts the words of "a - b + c" into those that are added and those that are taken away. */
static int solve(const struct neighbours *c)
{
    const char **plus = calloc((size_t)c->words.n, sizeof *plus);
    const char **minus = calloc((size_t)c->words.n, sizeof *minus);
    int plus_n = 0, minus_n = 0, n = 0, code = CLI_DONE;
    bool minus_next = false;
    if (!plus || !minus) code = cli_failure("out of memory");
    for (int i = 0; i < c->words.n && code == CLI_DONE; i++) {
        const char *word = c->words.v[i];
        if (is_sign(word))
            minus_next = *word == '-';
        else if (minus_next)
            minus[minus_n++] = word;
        else
            plus[plus_n++] = word;
    }
    if (code == CLI_DONE) code = look_up(c, plus, plus_n, minus, minus_n, &n);
    if (code == CLI_DONE && c->json) {
        fputs("{\"plus\": [", stdout);
        for (int i = 0; i < plus_n; i++) {
            if (i) fputs(", ", stdout);
            text_print_json(plus[i], strlen(plus[i]));
        }
        fputs("], \"minus\": [", stdout);
        for (int i = 0; i < minus_n; i++) {
            if (i) fputs(", ", stdout);
            text_print_json(minus[i], strlen(minus[i]));
        }
        putchar(']');
        print_found_json(c, n);
        putchar('\n');
    } else if (code == CLI_DONE) {
        for (int i = 0; i < c->words.n; i++) {
            if (i) putchar(' ');
            text_print(stdout, c->words.v[i], strlen(c->words.v[i]));
        }
        putchar('\n');
        print_found(c, n);
    }
    free(plus);
    free(minus);
    return code;
}

/* Words and signs must take turns. *signs: whether there are signs. */
static int check_signs(const struct words *w, bool *signs)
{
    *signs = false;
    for (int i = 0; i < w->n; i++) *signs = *signs || is_sign(w->v[i]);
    for (int i = 0; i < w->n && *signs; i++) {
        if (is_sign(w->v[i]) == (i % 2 == 1) && (w->n % 2 == 1)) continue;
        return cli_misuse("words and signs do not take turns, expected WORD - WORD + WORD");
    }
    return CLI_DONE;
}

/* ---- map ---- */

static int show_map(const struct neighbours *c)
{
    struct heed_error err = {0};
    struct heed_word_map *m = NULL;
    char *text = NULL;
    enum heed_picture kind = picture_kind(&c->file, c->json);
    int code = CLI_DONE;
    if (heed_word_map_of(c->e, c->words.v, c->words.n, &m, &err) != HEED_OK ||
        heed_word_map_picture(m, kind, &text, &err) != HEED_OK) {
        code = cli_failure("%s", err.text);
    } else {
        code = picture_show(&c->file, text, picture_theme(c->theme));
    }
    heed_word_map_free(m);
    free(text);
    return code;
}

static int run(struct neighbours *c, bool signs)
{
    struct heed_error err = {0};
    int code = loaded_open(&c->l, c->dir);
    if (code != CLI_DONE) return code;
    enum heed_side side = strcmp(c->side, "target") == 0 ? HEED_SIDE_TARGET : HEED_SIDE_SOURCE;
    c->e = heed_embeddings_open(c->l.model, side, &err);
    if (!c->e) return cli_failure("%s", err.text);
    c->found = calloc((size_t)c->count, sizeof *c->found);
    if (!c->found) return cli_failure("out of memory: %d neighbours", c->count);
    code = tell_pieces(c);
    if (code == CLI_DONE) code = c->map ? show_map(c) : signs ? solve(c) : list_each(c);
    return code == CLI_DONE ? cli_flush() : code;
}

int cmd_neighbours(int argc, char **argv)
{
    struct neighbours c = {.count = 10, .side = "source", .theme = "light"};
    const struct option option[] = {
        {"model", "DIR", "the directory of a model (default: the one installed with heed)",
         .string = &c.dir},
        {"side", NULL, "whose embeddings, where the model has two matrices", .string = &c.side,
         .choices = "source|target"},
        {"count", "N", "neighbours of each word", .integer = &c.count, .min = 1, .max = 1000},
        {"map", NULL, "draw the words on a plane instead", .flag = &c.map},
        {"out", "FILE", "with --map: a picture, .svg or .png, or the numbers, .json",
         .string = &c.out},
        {"json", NULL, "print JSON", .flag = &c.json},
        picture_theme_option(&c.theme),
    };
    const struct usage usage = {
        .command = "neighbours",
        .summary = "which words a model has close to each other",
        .synopsis = "[--model DIR] [options] WORD...",
        .about =
            "Lists the pieces of the vocabulary whose embeddings have the largest cosine with "
            "that\n"
            "of each WORD. A WORD of several pieces is the mean of them, and a phrase in quotes "
            "is\n"
            "a WORD too. A piece that goes on inside a word is printed with a hyphen before it.\n\n"
            "With WORD - WORD + WORD, the neighbours of that sum are listed, without the words\n"
            "themselves. --map draws the words on the two principal components of their\n"
            "embeddings.\n\n"
            "A translation model learns embeddings in order to translate, not to put words of one\n"
            "kind together: its neighbours are forms and translations of a word first.",
        .example = "  heed neighbours Hund dog\n"
                   "  heed neighbours king - man + woman\n"
                   "  heed neighbours --map --out words.svg dog cat Hund Katze red green rot",
        .option = option,
        .n = sizeof option / sizeof option[0],
        .rest = &c.words,
        .rest_name = "WORD",
        .rest_min = 1,
    };
    bool signs = false;
    int code = options_parse(&usage, argc, argv);
    if (code == OPTIONS_GO_ON) {
        code = check_signs(&c.words, &signs);
        if (code == CLI_DONE && c.map && signs) {
            code = cli_misuse("--map takes words, found a sign among them");
        }
        if (code == CLI_DONE && c.out && !c.map) code = cli_misuse("--out needs --map");
        if (code == CLI_DONE && c.out) {
            code = picture_file_init(&c.file, c.out, PICTURE_SVG | PICTURE_PNG | PICTURE_JSON);
        }
        if (code == CLI_DONE) code = run(&c, signs);
    }
    free(c.found);
    heed_embeddings_free(c.e);
    loaded_close(&c.l);
    words_release(&c.words);
    return code;
}
