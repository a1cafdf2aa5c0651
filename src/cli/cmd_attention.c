/*
 * cmd_attention.c - `heed attention`: the attention of a translation as a picture.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/out_file.h"
#include "cli/translator.h"

struct attention {
    struct translator t;
    struct words texts;
    const char *tgt, *out;
    int layer, head; /* from 1; 0: the layer of alignments, the mean of the heads */
};

static int write_file(const char *path, const char *text)
{
    struct out_file out;
    int code = out_file_open(&out, path);
    if (code != CLI_DONE) return code;
    fputs(text, out.to);
    return out_file_finish(&out);
}

static int show(const struct attention *c, const struct heed_attention *a)
{
    struct heed_error err = {0};
    char *picture = NULL;
    int layer = c->layer ? c->layer - 1 : a->align_layer;
    enum heed_picture kind = c->out ? HEED_PICTURE_SVG : HEED_PICTURE_TERMINAL;
    if (c->layer > a->layers) {
        return cli_misuse("--layer is %d, expected 1 to %d", c->layer, a->layers);
    }
    if (c->head > a->heads) {
        return cli_misuse("--head is %d, expected 1 to %d", c->head, a->heads);
    }
    if (heed_attention_picture(a, kind, layer, c->head - 1, &picture, &err) != HEED_OK) {
        return cli_failure("%s", err.text);
    }
    int code = CLI_DONE;
    if (c->out) {
        code = write_file(c->out, picture);
    } else {
        fputs(picture, stdout);
        code = cli_flush();
    }
    free(picture);
    return code;
}

static int run(struct attention *c)
{
    struct heed_error err = {0};
    struct heed_attention *a = NULL;
    struct heed_request request = translator_request(&c->t, c->texts.v[0]);
    request.given = c->tgt;
    int code = translator_open(&c->t);
    if (code == CLI_DONE) code = translator_check(&c->t, (const char *const *)c->texts.v, 1);
    if (code == CLI_DONE) {
        code = heed_attention_of(c->t.session, &request, &a, &err) == HEED_OK
                   ? show(c, a)
                   : cli_failure("%s", err.text);
    }
    heed_attention_free(a);
    return code;
}

int cmd_attention(int argc, char **argv)
{
    struct attention c = {0};
    translator_init(&c.t);
    struct option option[TRANSLATOR_OPTIONS + 4] = {
        [TRANSLATOR_OPTIONS] = {"out", "FILE", "write an SVG; without it the picture is printed",
                                .string = &c.out},
        {"layer", "N", "decoder layer, counted from 1; 0: the last but one", .integer = &c.layer,
         .max = 1e6},
        {"head", "N", "attention head, counted from 1; 0: the mean of all", .integer = &c.head,
         .max = 1e6},
        {"translation", "TEXT", "show this translation instead of searching for one",
         .string = &c.tgt},
    };
    translator_options(&c.t, option);
    const struct usage usage = {
        .command = "attention",
        .summary = "draw the attention of a translation",
        .synopsis = "[--model DIR] [options] TEXT",
        .about =
            "Translates TEXT and shows how much attention each token of the translation gave to\n"
            "each token of TEXT: a row for each token of the translation, a column for each token\n"
            "of TEXT; darker is more.\n\n"
            "For a translation that was found with --prefix, --require or --ban, give what heed\n"
            "translate printed as --translation.",
        .example =
            "  heed attention --to de \"A dog runs.\"\n"
            "  heed attention --model model --layer 2 --head 1 --out dog.svg \"A dog runs.\"",
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
        if (code == CLI_DONE) code = run(&c);
    }
    translator_close(&c.t);
    words_release(&c.texts);
    return code;
}
