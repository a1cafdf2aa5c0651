/*
 * cmd_translate.c - `heed translate`: a line in, a line out, in order.
 *
 * Lines are taken in blocks, since the library is faster the more sentences it may choose from; a
 * block ends early when no more input is waiting, so that a person or a program at the other end
 * gets an answer to each line.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/lines.h"
#include "cli/options.h"
#include "heed.h"

enum { BLOCK = 1024 };

/* A byte-fallback piece may spell a line end, and one more line would shift all that follow. */
static void print_line(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        putchar(text[i] == '\n' || text[i] == '\r' || text[i] == '\0' ? ' ' : text[i]);
    }
    putchar('\n');
}

static bool is_blank(const char *text)
{
    return text[strspn(text, " \t\v\f\r\n")] == '\0';
}

/* A blank line is not translated and comes out empty. */
static int translate_block(struct heed_session *s, const char *const *text, int n)
{
    const char *some[BLOCK];
    int m = 0;
    for (int i = 0; i < n; i++) {
        if (!is_blank(text[i])) some[m++] = text[i];
    }
    struct heed_error err = {0};
    const struct heed_result *out = NULL;
    if (m && heed_translate(s, some, m, &out, &err) != HEED_OK) {
        return cli_failure("%s", err.text);
    }
    for (int i = 0, k = 0; i < n; i++) {
        if (is_blank(text[i])) {
            putchar('\n');
        } else {
            print_line(out[k].text, out[k].len);
            k++;
        }
    }
    return cli_flush();
}

static int translate_words(struct heed_session *s, const struct words *w)
{
    int code = CLI_DONE;
    for (int i = 0; i < w->n && code == CLI_DONE; i += BLOCK) {
        code = translate_block(s, w->v + i, w->n - i < BLOCK ? w->n - i : BLOCK);
    }
    return code;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void show_progress(int64_t lines, double seconds)
{
    char count[CLI_NUMBER_MAX], speed[CLI_NUMBER_MAX];
    fprintf(stderr, "\r%s lines  %s lines/s\x1b[K", cli_count(count, lines),
            cli_count(speed, (int64_t)((double)lines / seconds)));
}

/* As in the text a model is trained on. */
static void drop_byte_order_mark(char *line)
{
    static const char mark[] = "\xef\xbb\xbf";
    size_t n = sizeof mark - 1;
    if (strncmp(line, mark, n) == 0) memmove(line, line + n, strlen(line + n) + 1);
}

static int translate_stdin(struct heed_session *s, bool progress)
{
    double start = now();
    int64_t total = 0;
    struct reader in;
    reader_init(&in, STDIN_FILENO, "standard input");
    struct lines block = {0};
    int code = CLI_DONE;
    while (code == CLI_DONE) {
        lines_clear(&block);
        if (!reader_lines(&in, &block, BLOCK)) {
            code = CLI_FAILURE;
        } else if (block.n == 0) {
            break;
        } else {
            if (total == 0) drop_byte_order_mark(block.v[0]);
            code = translate_block(s, (const char *const *)block.v, block.n);
            if (code != CLI_DONE) break;
            total += block.n;
            if (progress) show_progress(total, now() - start);
        }
    }
    if (progress && total) fputc('\n', stderr);
    lines_release(&block);
    reader_release(&in);
    return code;
}

static int run(const char *dir, const char *device, int threads, const struct words *texts,
               bool quiet)
{
    /* a person waits for a file to fill; lines on the screen speak for themselves */
    bool progress = !quiet && isatty(STDERR_FILENO) && !isatty(STDOUT_FILENO);
    struct heed_error err = {0};
    struct heed_engine *engine = heed_engine_open(device, threads, &err);
    struct heed_model *model = engine ? heed_model_load(engine, dir, &err) : NULL;
    struct heed_session *session = model ? heed_session_open(model, &err) : NULL;
    int code;
    if (!session) {
        code = cli_failure("%s", err.text);
    } else if (texts->n) {
        code = translate_words(session, texts);
    } else {
        code = translate_stdin(session, progress);
    }
    heed_session_free(session);
    heed_model_free(model);
    heed_engine_free(engine);
    return code;
}

int cmd_translate(int argc, char **argv)
{
    struct words texts = {0};
    const char *dir = NULL, *device = "cpu";
    int threads = 0;
    bool quiet = false;
    const struct option option[] = {
        {"model", "DIR", "the directory of a trained model", .string = &dir, .required = true},
        {"device", "DEVICE", "cpu, cuda:N, or ref (slow, the oracle)", .string = &device},
        {"threads", "N", "0 means all cores", .integer = &threads, .max = 4096},
        {"quiet", NULL, "print errors only", .flag = &quiet},
    };
    const struct usage usage = {
        .command = "translate",
        .summary = "translate lines of text",
        .synopsis = "--model DIR [options] [TEXT...] < SOURCE > TRANSLATION",
        .about = "Translates each TEXT or, without one, each line of standard input; a line out "
                 "for every\n"
                 "line in. A translation does not depend on the lines around it or on the threads.",
        .example = "  heed translate --model model \"A dog runs.\"\n"
                   "  heed translate --model model < test.en > test.de",
        .option = option,
        .n = sizeof option / sizeof option[0],
        .rest = &texts,
        .rest_name = "TEXT",
    };
    int code = options_parse(&usage, argc, argv);
    if (code == OPTIONS_GO_ON) code = run(dir, device, threads, &texts, quiet);
    words_release(&texts);
    return code;
}
