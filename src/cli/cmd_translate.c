/*
 * cmd_translate.c - `heed translate`: a line in, a line out, in order.
 *
 * Lines are translated in blocks, since many lines share every decoding step, which is fast. A
 * block ends early only where a person or a program waits for the answer to each line.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/handout.h"
#include "cli/launch.h"
#include "cli/lines.h"
#include "cli/options.h"
#include "cli/text.h"
#include "cli/translator.h"

struct translate {
    struct translator t;
    struct words texts;
    const char *score_only; /* a file of translations, NULL: search */
    struct reader given;    /* reads that file */
    struct reader in;       /* standard input */
    bool json, interactive;
    int64_t line, mended, controls;
    int64_t unspelled; /* lines with characters that the vocabulary cannot spell */
};

/* The links between words in Pharaoh's form, "0-0 1-2 2-1": the number of a source word, then that
 * of a target word, both from 0. */
static void print_links(const struct heed_alignment *a)
{
    const char *space = "";
    for (int i = 0; i < a->targets; i++) {
        if (a->link[i] < 0) continue;
        printf("%s%d-%d", space, a->link[i], i);
        space = " ";
    }
}

/* A line for each line, with the links between words behind the translation where the user asks
 * for them. */
static void print_plain(const struct translate *c, const struct heed_result *r)
{
    text_print(stdout, r->text, r->len);
    if (c->t.o.align) fputs(" ||| ", stdout);
    if (r->alignment) print_links(r->alignment);
    putchar('\n');
}

/* A line for each translation in the form of Moses' n-best lists: the number of the source line
 * from 0, the translation, what its score is made of, and the score. */
static void print_nbest(int64_t line, const struct heed_answer *a)
{
    const struct heed_result *r = a->result;
    for (int k = 0; k < a->n && !a->status; k++) {
        printf("%lld ||| ", (long long)line - 1);
        text_print(stdout, r[k].text, r[k].len);
        printf(" ||| logp= %.9g tokens= %d ||| %.9g", r[k].logp, r[k].tokens, r[k].score);
        if (r[k].alignment) {
            fputs(" ||| ", stdout);
            print_links(r[k].alignment);
        }
        putchar('\n');
    }
}

static void print_flags(unsigned flags)
{
    const char *comma = "";
    fputs(", \"flags\": [", stdout);
    for (int i = 0; heed_flag_name(i); i++) {
        if (!(flags & 1u << i)) continue;
        printf("%s\"%s\"", comma, heed_flag_name(i));
        comma = ", ";
    }
    putchar(']');
}

/* Every token with its log-probability. */
static void print_tokens(const struct translate *c, const struct heed_result *r)
{
    const struct heed_tokenizer *t = heed_model_tokenizer(c->t.model);
    fputs(", \"pieces\": [", stdout);
    for (int i = 0; i < r->tokens; i++) {
        const char *piece = heed_tokenizer_piece(t, r->id[i]);
        fputs(i ? ", [" : "[", stdout);
        text_print_json(piece, strlen(piece));
        printf(", %.9g]", r->token_logp[i]);
    }
    putchar(']');
}

static void print_words(const char *name, const char *text, const struct heed_span *word, int n)
{
    printf(", \"%s\": [", name);
    for (int i = 0; i < n; i++) {
        if (i) fputs(", ", stdout);
        text_print_json(text + word[i].at, word[i].len);
    }
    putchar(']');
}

/* The words of both sides, and pairs of their places. */
static void print_alignment(const char *source, const struct heed_result *r)
{
    const struct heed_alignment *a = r->alignment;
    const char *comma = "";
    print_words("source_words", source, a->source, a->sources);
    print_words("target_words", r->text, a->target, a->targets);
    fputs(", \"alignment\": [", stdout);
    for (int i = 0; i < a->targets; i++) {
        if (a->link[i] < 0) continue;
        printf("%s[%d, %d]", comma, a->link[i], i);
        comma = ", ";
    }
    putchar(']');
}

static void print_texts(const char *name, const char *const *text, int n)
{
    if (n == 0) return;
    printf(", \"%s\": [", name);
    for (int i = 0; i < n; i++) {
        if (i) fputs(", ", stdout);
        text_print_json(text[i], strlen(text[i]));
    }
    putchar(']');
}

/* Nine digits are enough to read back the same float. */
static void print_json(const struct translate *c, const char *source, int64_t line,
                       const struct heed_answer *a)
{
    const struct heed_result *r = a->result;
    printf("{\"line\": %lld, \"source\": ", (long long)line);
    text_print_json(source, strlen(source));
    fputs(", \"translations\": [", stdout);
    for (int k = 0; k < a->n && !a->status; k++) {
        fputs(k ? ", {\"text\": " : "{\"text\": ", stdout);
        text_print_json(r[k].text, r[k].len);
        printf(", \"score\": %.9g, \"logp\": %.9g, \"tokens\": %d", r[k].score, r[k].logp,
               r[k].tokens);
        print_tokens(c, &r[k]);
        putchar('}');
    }
    putchar(']');
    if (r->alignment) print_alignment(source, r);
    print_flags(r->flags);
    print_texts("copied", r->copied, r->copied_n);
    print_texts("left_out", r->left_out, r->left_out_n);
    if (a->status) {
        fputs(", \"error\": ", stdout);
        text_print_json(a->why, strlen(a->why));
    }
    puts("}");
}

/* A line that could not be scored stays empty. */
static void print_score(const struct heed_answer *a)
{
    const struct heed_result *r = a->result;
    if (!a->status) printf("%.9g %.9g %d", r->score, r->logp, r->tokens);
    putchar('\n');
}

/* The first few texts of a list, for a person: "a, b: copied" */
static void say_texts(const char *before, const char *const *text, int n, const char *what)
{
    enum { MOST = 8 };
    if (n == 0) return;
    fputs(before, stderr);
    for (int i = 0; i < n && i < MOST; i++) {
        if (i) fputs(", ", stderr);
        text_say(text[i]);
    }
    if (n > MOST) fprintf(stderr, " and %d more", n - MOST);
    fprintf(stderr, ": %s", what);
}

/* Says what the vocabulary cannot spell of a line, for the first few of such lines; report() counts
 * the others. */
enum { UNSPELLED_SAID = 10 };
static void say_unspelled(struct translate *c, const struct heed_result *r)
{
    if (!(r->flags & HEED_FLAG_UNSPELLED) || c->unspelled++ >= UNSPELLED_SAID || c->t.quiet) return;
    fprintf(stderr, "%sline %lld: the vocabulary cannot spell ", c->t.progress ? "\r\x1b[K" : "",
            (long long)c->line);
    say_texts("", r->copied, r->copied_n, "copied");
    say_texts(r->copied_n ? "; " : "", r->left_out, r->left_out_n, "left out");
    fputc('\n', stderr);
}

static int show_block(void *user, const char *const *text, const char *const *given,
                      const struct heed_answer *answer, int n)
{
    struct translate *c = user;
    for (int i = 0; i < n; i++) {
        const struct heed_answer *a = &answer[i];
        c->controls += text_has_controls(text[i]);
        c->line++;
        say_unspelled(c, a->result);
        if (c->json) {
            print_json(c, text[i], c->line, a);
        } else if (given) {
            print_score(a);
        } else if (c->t.o.nbest > 1) {
            print_nbest(c->line, a);
        } else {
            print_plain(c, a->result);
        }
    }
    return cli_flush();
}

static int translate_block(struct translate *c, const char *const *text, const char *const *given,
                           int n)
{
    const struct heed_answer *answer = NULL;
    int code = translator_run(&c->t, text, given, n, &answer);
    return code == CLI_DONE ? show_block(c, text, given, answer, n) : code;
}

/* A user who gives the name of a file as TEXT most likely wants what is in the file. */
static void remark_file(const char *text)
{
    struct stat found;
    if (stat(text, &found) != 0 || !S_ISREG(found.st_mode)) return;
    fprintf(stderr,
            "%s is a file, and its name was translated; what is in it is translated from standard "
            "input: < %s\n",
            text, text);
}

static int translate_words(struct translate *c)
{
    const struct words *w = &c->texts;
    int code = CLI_DONE;
    for (int i = 0, n; i < w->n && code == CLI_DONE; i += n) {
        n = w->n - i < TRANSLATOR_BLOCK ? w->n - i : TRANSLATOR_BLOCK;
        for (int k = i; k < i + n; k++) {
            c->mended += !text_is_valid(w->v[k]);
            if (!c->t.quiet) remark_file(w->v[k]);
        }
        code = translate_block(c, w->v + i, NULL, n);
    }
    return code;
}

/* Reads as many lines of the file of translations as the block has, which is read after `before`
 * other lines. */
static int read_given(struct translate *c, const struct lines *block, struct lines *given,
                      int64_t before)
{
    int had = -1;
    while (given->n < block->n && given->n > had) {
        had = given->n;
        if (!reader_lines(&c->given, given, block->n - given->n)) return CLI_FAILURE;
    }
    if (given->n == block->n) return CLI_DONE;
    return cli_failure("%s ends after %lld lines, standard input goes on", c->score_only,
                       (long long)before + given->n);
}

/* Scores the next lines of the file of translations as translations of these lines. */
static int score_block(struct translate *c, const struct lines *block)
{
    struct lines given = {0};
    int code = read_given(c, block, &given, c->line);
    if (code == CLI_DONE) {
        code = translate_block(c, (const char *const *)block->v, (const char *const *)given.v,
                               block->n);
    }
    c->mended += given.mended;
    lines_release(&given);
    return code;
}

/* Fails where the file of translations has more lines than standard input had. */
static int score_end(struct translate *c)
{
    struct lines more = {0};
    int code = !reader_lines(&c->given, &more, 1) ? CLI_FAILURE
               : more.n ? cli_failure("standard input ends after %lld lines, %s goes on",
                                      (long long)c->line, c->score_only)
                        : CLI_DONE;
    lines_release(&more);
    return code;
}

static int translate_stdin(struct translate *c)
{
    struct lines block = {0};
    c->in.answer = c->interactive || cli_terminal(STDIN_FILENO);
    int code = reader_open(&c->in, "-") ? CLI_DONE : CLI_FAILURE;
    while (code == CLI_DONE) {
        lines_clear(&block);
        if (!reader_lines(&c->in, &block, TRANSLATOR_BLOCK)) {
            code = CLI_FAILURE;
        } else if (block.n == 0) {
            break;
        } else {
            code = c->score_only ? score_block(c, &block)
                                 : translate_block(c, (const char *const *)block.v, NULL, block.n);
        }
    }
    if (code == CLI_DONE && c->score_only) code = score_end(c);
    c->mended += block.mended;
    lines_release(&block);
    return code;
}

/* Says what was odd about the text. */
static void report(const struct translate *c)
{
    char count[CLI_NUMBER_MAX];
    if (c->t.quiet) return;
    if (c->unspelled > UNSPELLED_SAID) {
        fprintf(stderr, "%s more lines with what the vocabulary cannot spell\n",
                cli_count(count, c->unspelled - UNSPELLED_SAID));
    }
    if (!c->mended && !c->controls) return;
    if (c->mended) {
        fprintf(stderr, "%s line%s with invalid UTF-8 %s mended", cli_count(count, c->mended),
                c->mended == 1 ? "" : "s", c->mended == 1 ? "was" : "were");
    }
    if (c->controls) {
        fprintf(stderr, "%s%s line%s with control characters", c->mended ? "; " : "",
                cli_count(count, c->controls), c->controls == 1 ? "" : "s");
    }
    fputc('\n', stderr);
}

/* What remains when all lines are translated. */
static int finish(struct translate *c, int code)
{
    translator_progress_end(&c->t);
    if (code == CLI_DONE) report(c);
    return code == CLI_DONE ? translator_verdict(&c->t) : code;
}

static int run_alone(struct translate *c)
{
    int code = translator_open(&c->t);
    if (code != CLI_DONE) return code;
    code = c->score_only && !reader_open(&c->given, c->score_only) ? CLI_FAILURE
           : c->texts.n                                            ? translate_words(c)
                                                                   : translate_stdin(c);
    return finish(c, code);
}

/* ---- the ranks of a cluster ---- */

/* Rank 0 reads standard input for all. */
static int read_block(void *user, struct lines *text, struct lines *given, int max)
{
    struct translate *c = user;
    if (!reader_lines(&c->in, text, max)) return CLI_FAILURE;
    int code = c->score_only ? read_given(c, text, given, c->t.checked) : CLI_DONE;
    c->mended += text->mended + given->mended;
    return code;
}

static int run_shared(struct translate *c, struct heed_cluster *cluster)
{
    bool first = heed_cluster_rank(cluster) == 0;
    char device[LAUNCH_DEVICE_MAX];
    c->t.device = launch_device(cluster, c->t.device, device);
    struct handout h = {&c->t, cluster, read_block, show_block, c, .code = CLI_DONE};
    int code = first ? translator_open(&c->t) : CLI_DONE;
    if (first && code == CLI_DONE && !reader_open(&c->in, "-")) code = CLI_FAILURE;
    if (first && code == CLI_DONE && c->score_only && !reader_open(&c->given, c->score_only)) {
        code = CLI_FAILURE;
    }
    if (code != CLI_DONE) heed_cluster_abort(cluster);
    code = handout_run(&h);
    if (!first) return code;
    if (code == CLI_DONE && c->score_only) code = score_end(c);
    return finish(c, code);
}

/* Texts of the command line and an interactive session are for rank 0 alone. */
static int run(struct translate *c)
{
    struct heed_cluster *cluster = NULL;
    int code = launch_open(&cluster);
    if (code != CLI_DONE) return code;
    bool several = heed_cluster_ranks(cluster) > 1;
    if (several && !c->texts.n && !c->interactive) {
        code = run_shared(c, cluster);
    } else if (heed_cluster_rank(cluster) == 0) {
        code = run_alone(c);
    }
    return launch_close(cluster, code);
}

/* CLI_DONE, or CLI_MISUSE after a sentence. */
static int check_options(const struct translate *c)
{
    if (c->score_only && c->texts.n) {
        return cli_misuse("--score-only takes its sources from standard input, not \"%s\"",
                          c->texts.v[0]);
    }
    if (c->interactive && c->texts.n) {
        return cli_misuse("--interactive answers lines of standard input, and \"%s\" is given",
                          c->texts.v[0]);
    }
    if (c->t.o.align && c->score_only && !c->json) {
        return cli_misuse("--align with --score-only needs --json");
    }
    return translator_check_options(&c->t, c->score_only ? "--score-only" : NULL);
}

int cmd_translate(int argc, char **argv)
{
    struct translate c = {0};
    translator_init(&c.t);
    struct option option[TRANSLATOR_OPTIONS + TRANSLATOR_LINE_OPTIONS + 5] = {
        [TRANSLATOR_OPTIONS +
         TRANSLATOR_LINE_OPTIONS] = {"nbest", "N",
                                     "translations of a line, best first; at most the beam",
                                     .integer = &c.t.o.nbest, .min = 1, .max = 64,
                                     .given = &c.t.given.nbest},
        {"score-only", "FILE", "score its lines as translations; prints score, logp, tokens",
         .string = &c.score_only},
        {"json", NULL, "print a JSON object a line, with the scores of every token",
         .flag = &c.json},
        {"align", NULL, "print which words come from which", .flag = &c.t.o.align},
        {"interactive", NULL, "answer each line before waiting for the next",
         .flag = &c.interactive},
    };
    translator_options(&c.t, option);
    translator_line_options(&c.t, option + TRANSLATOR_OPTIONS);
    const struct usage usage = {
        .command = "translate",
        .summary = "translate lines of text",
        .synopsis = "[--model DIR] [options] [TEXT...] < SOURCE > TRANSLATION",
        .about =
            "Translates each TEXT or, without one, each line of standard input, which is plain,\n"
            "gzip or xz; a line out for every line in. A long line is translated sentence by\n"
            "sentence. On a CPU a translation does not depend on the lines around it.\n\n"
            "With --nbest above 1 there is a line for each translation, in the form of Moses:\n"
            "  NUMBER ||| TRANSLATION ||| logp= X tokens= N ||| SCORE\n"
            "where NUMBER counts the lines of the source from 0. With --align ' ||| ' and links\n"
            "follow the translation, with --nbest only the best one: pairs SOURCE-TARGET of\n"
            "words, counted from 0, in the form of Pharaoh. Words are those of Unicode's UAX\n"
            "#29, marks of punctuation among them; --json lists them.\n\n"
            "A line that cannot be translated as asked stays empty (with --nbest there is none,\n"
            "in the JSON there is an \"error\") and is named on standard error; the exit code is\n"
            "then 1. What the vocabulary cannot spell, such as an emoji, markup or a word in\n"
            "another script, is copied; rare Chinese characters and invisible ones are left out.\n"
            "Standard error and the JSON say so.",
        .example =
            "  heed translate --to de \"A dog runs.\"\n"
            "  heed translate --model model < test.en > test.de\n"
            "  heed translate --model model --beam 8 --nbest 8 --json < test.en > test.jsonl\n"
            "  heed translate --model model --score-only test.de < test.en\n"
            "  heed translate --model model --require Hund --json --align \"A dog runs.\"\n"
            "  chat-program | heed translate --model model --interactive",
        .option = option,
        .n = sizeof option / sizeof option[0],
        .rest = &c.texts,
        .rest_name = "TEXT",
    };
    int code = options_parse(&usage, argc, argv);
    if (code == OPTIONS_GO_ON) {
        code = check_options(&c);
        if (code == CLI_DONE) code = run(&c);
    }
    reader_close(&c.given);
    reader_close(&c.in);
    translator_close(&c.t);
    words_release(&c.texts);
    return code;
}
