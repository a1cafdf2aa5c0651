/*
 * cmd_positions.c - `heed positions`: how a model tells positions apart, as a picture.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/loaded.h"
#include "cli/options.h"
#include "cli/picture.h"

struct positions {
    const char *dir, *out, *theme;
    int d_model, length;
    bool d_model_given, json;
    struct picture_file file;
};

static int show(const struct positions *c, const struct heed_positions *p)
{
    struct heed_error err = {0};
    char *text = NULL;
    enum heed_picture kind = picture_kind(&c->file, c->json);
    if (heed_positions_picture(p, kind, &text, &err) != HEED_OK) {
        return cli_failure("%s", err.text);
    }
    int code = picture_show(&c->file, text, picture_theme(c->theme));
    free(text);
    return code;
}

static int run(const struct positions *c)
{
    struct heed_error err = {0};
    struct loaded l = {0};
    struct heed_positions *p = NULL;
    int code = c->dir ? loaded_open(&l, c->dir) : CLI_DONE;
    if (code == CLI_DONE) {
        code = heed_positions_of(l.model, c->d_model, c->length, &p, &err) == HEED_OK
                   ? show(c, p)
                   : cli_failure("%s", err.text);
    }
    heed_positions_free(p);
    loaded_close(&l);
    return code;
}

int cmd_positions(int argc, char **argv)
{
    struct positions c = {.d_model = 512, .length = 128, .theme = "light"};
    const struct option option[] = {
        {"model", "DIR", "the positions of this model (default: the paper's sinusoid)",
         .string = &c.dir},
        {"d-model", "N", "dimensions of the sinusoid, an even number", .integer = &c.d_model,
         .min = 2, .max = 4096, .given = &c.d_model_given},
        {"length", "N", "positions, and distances between them", .integer = &c.length, .min = 8,
         .max = 1024},
        {"out", "FILE", "write a picture, .svg or .png, or the numbers, .json", .string = &c.out},
        {"json", NULL, "print the numbers as JSON", .flag = &c.json},
        picture_theme_option(&c.theme),
    };
    const struct usage usage = {
        .command = "positions",
        .summary = "draw how a model tells positions apart",
        .synopsis = "[--model DIR] [options]",
        .about =
            "Draws the encoding of positions as a heat map, and how alike two positions are\n"
            "over their distance. Without --model: the paper's sinusoid, with what the paper says\n"
            "of it measured. A model shows its own kind: sinusoid and rope the sines and cosines,\n"
            "learned its tables, relative the lengths of its vectors, alibi its slopes.",
        .example = "  heed positions\n"
                   "  heed positions --d-model 512 --out positions.svg\n"
                   "  heed positions --model model --length 64 --out positions.json",
        .option = option,
        .n = sizeof option / sizeof option[0],
    };
    int code = options_parse(&usage, argc, argv);
    if (code != OPTIONS_GO_ON) return code;
    if (c.dir && c.d_model_given) {
        return cli_misuse("--d-model has no effect with --model, which has its own");
    }
    code = c.out ? picture_file_init(&c.file, c.out, PICTURE_SVG | PICTURE_PNG | PICTURE_JSON)
                 : CLI_DONE;
    return code == CLI_DONE ? run(&c) : code;
}
