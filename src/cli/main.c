/*
 * main.c - the program: a table of commands.
 *
 * Exit codes: 0 done, 1 failure, 2 wrong usage. Errors are one sentence on stderr, "heed: ...".
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/waiting.h"
#include "heed.h"

static const struct command {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"vocab", "train a subword vocabulary on raw text", cmd_vocab},
    {"train", "train a translation model on parallel text", cmd_train},
    {"translate", "translate lines of text", cmd_translate},
    {"serve", "translate over HTTP, with a page to translate and look inside", cmd_serve},
    {"attention", "draw the attention of a translation", cmd_attention},
    {"positions", "draw how a model tells positions apart", cmd_positions},
    {"heads", "what every head of a model does, and what is lost without it", cmd_heads},
    {"neighbours", "which words a model has close to each other", cmd_neighbours},
    {"score", "score translations: BLEU, chrF, chrF++, TER", cmd_score},
    {"tree", "draw constituency trees, and prepare them for training", cmd_tree},
    {"evaluate", "translate a test set and score the translation", cmd_evaluate},
    {"reproduce", "measure a table or a claim of the paper anew", cmd_reproduce},
    {"average", "average the weights of checkpoints", cmd_average},
    {"quantize", "make a model smaller and faster", cmd_quantize},
};

enum { COMMANDS = sizeof commands / sizeof commands[0] };

static int help(void)
{
    puts(
        "heed - the Transformer of \"Attention Is All You Need\": raw parallel text in, a trained\n"
        "translator out\n\nusage: heed COMMAND [options]\n\ncommands:");
    for (int i = 0; i < COMMANDS; i++) {
        printf("  %-12s%s\n", commands[i].name, commands[i].summary);
    }
    puts("\n`heed help COMMAND` explains one; `heed --version` prints the version, and which "
         "kernels\n"
         "the CPU has. The environment variable HEED_DEVICE is the default of --device, such as\n"
         "cpu:avx2: no newer instructions than AVX2. HEED_ISA=avx2 says the same. Exit codes: 0 "
         "done,\n"
         "1 failure, 2 wrong usage.\n\n"
         "example:\n"
         "  heed translate --to de \"A dog runs.\"\n"
         "  heed vocab --size 8000 --out vocab.model train.tsv\n"
         "  heed train --pairs train.tsv --vocab vocab.model --preset small --out model\n"
         "  echo \"A dog runs.\" | heed translate --model model");
    return cli_flush();
}

/* "CPU kernels: avx2 (of vnni, avx512, avx2, baseline)" */
static int version(void)
{
    const char *device = cli_device(), *name;
    bool held = strncmp(device, "cpu:", strlen("cpu:")) == 0;
    struct heed_engine *e = held ? cli_engine_open(device, 1) : NULL;
    if (held && !e) return CLI_FAILURE;
    heed_engine_free(e);
    printf("heed %s\nCPU kernels: %s (of", heed_version(),
           held ? device + strlen("cpu:") : heed_cpu_kernels(0));
    for (int i = 0; (name = heed_cpu_kernels(i)); i++) printf("%s %s", i ? "," : "", name);
    puts(")");
    return cli_flush();
}

static const struct command *find(const char *name)
{
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    }
    return NULL;
}

static int unknown(const char *name)
{
    const char *guess = NULL;
    for (int i = 0; i < COMMANDS; i++) guess = heed_nearer(name, guess, commands[i].name);
    if (guess) return cli_misuse("there is no command %s; did you mean %s?", name, guess);
    return cli_misuse("there is no command %s; see heed --help", name);
}

/* If the program is started with stdin, stdout or stderr closed, the next file that it opens would
 * get the number of that descriptor, and output for stdout would go into the file. So each closed
 * one is opened here, on /dev/null and in the wrong direction: reading from such a stdin and
 * writing to such a stdout fail, as they should. */
static void occupy_standard_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        int wrong_way = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", wrong_way) < 0) return;
    }
}

int main(int argc, char **argv)
{
    occupy_standard_descriptors();
    cli_read_isa();
    /* then write fails on a closed pipe or at the limit of a file's size, like on a full disk */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);

    const char *name = argc > 1 ? argv[1] : NULL;
    if (!name) return cli_misuse("no command given; see heed --help");
    if (strcmp(name, "--version") == 0) return version();
    bool asks_help =
        strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0;
    if (asks_help && argc == 2) return help();
    if (asks_help) name = argv[2];

    const struct command *c = find(name);
    if (!c) return unknown(name);
    if (asks_help) return c->run(3, (char *[]){argv[0], argv[2], "--help", NULL});
    return c->run(argc, argv);
}
