/*
 * cmd_vocab.c - `heed vocab`: raw text in, a SentencePiece model out.
 */
#include <stdio.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "heed.h"

static int run(const struct words *files, const struct heed_tokenizer_options *o, const char *out,
               bool quiet)
{
    struct heed_error err = {0};
    if (heed_tokenizer_train(files->v, files->n, o, out, &err) != HEED_OK) {
        return cli_failure("%s", err.text);
    }
    struct heed_tokenizer *t = heed_tokenizer_load(out, &err);
    if (!t) return cli_failure("%s", err.text);
    char pieces[CLI_NUMBER_MAX];
    if (!quiet) fprintf(stderr, "%s: %s pieces\n", out, cli_count(pieces, heed_tokenizer_size(t)));
    heed_tokenizer_free(t);
    return CLI_DONE;
}

int cmd_vocab(int argc, char **argv)
{
    struct words files = {0}, tags = {0};
    struct heed_tokenizer_options o = {.vocab_size = -1};
    int64_t seed = 1;
    const char *out = NULL;
    bool quiet = false;
    const struct option option[] = {
        {"size", "N", "pieces in all, the 256 bytes and the tags included",
         .integer = &o.vocab_size, .min = 1, .max = 1000000, .required = true},
        {"out", "FILE", "where the vocabulary goes", .string = &out, .required = true},
        {"tag", "TAG", "a piece that is never split, such as '>>de<<'", .words = &tags},
        {"sample", "N", "train on N lines, drawn evenly from all files; 0: on all lines",
         .integer64 = &o.sample, .max = 1e12},
        {"seed", "N", "decides which lines --sample draws", .integer64 = &seed, .max = 1e15},
        {"quiet", NULL, "print errors only", .flag = &quiet},
    };
    const struct usage usage = {
        .command = "vocab",
        .summary = "train a subword vocabulary on raw text",
        .synopsis = "--size N --out FILE [options] TEXT...",
        .about =
            "TEXT is plain, .gz or .xz, a sentence a line; tabs separate sentences as well, so\n"
            "that files of pairs serve. One vocabulary serves both languages. Of much text, a\n"
            "sample of two million lines is enough.",
        .example = "  heed vocab --size 8000 --out vocab.model train.en train.zh",
        .option = option,
        .n = sizeof option / sizeof option[0],
        .rest = &files,
        .rest_name = "TEXT file",
        .rest_min = 1,
    };
    int code = options_parse(&usage, argc, argv);
    if (code == OPTIONS_GO_ON) {
        o.tags = tags.v;
        o.tags_n = tags.n;
        o.seed = (uint64_t)seed;
        code = run(&files, &o, out, quiet);
    }
    words_release(&files);
    words_release(&tags);
    return code;
}
