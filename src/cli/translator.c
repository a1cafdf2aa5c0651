/*
 * translator.c - options, model and session of the commands that translate; see translator.h.
 */
#include "cli/translator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

const char TRANSLATOR_UNTAGGED[] = "";

void translator_init(struct translator *t)
{
    *t = (struct translator){
        .device = cli_device(), .weights = "stored", .o = heed_translate_defaults()};
}

void translator_options(struct translator *t, struct option *out)
{
    struct heed_translate_options *o = &t->o;
    const struct option option[TRANSLATOR_OPTIONS] = {
        {"model", "DIR", "the directory of a model (default: the one installed with heed)",
         .string = &t->dir},
        {"to", "LANG", "language to translate to, for a model of several", .string = &o->to},
        {"beam", "N", "hypotheses of the beam search; 1: greedy search", .integer = &o->beam,
         .min = 1, .max = 64, .given = &t->given.beam},
        {"length-penalty", "X", "the larger, the longer translations are; 0: none",
         .number = &o->length_penalty, .max = 10},
        {"min-length", "N", "fewest tokens of a translation", .integer = &o->min_length, .max = 1e6,
         .given = &t->given.min_length},
        {"max-length", "N", "most tokens of a translation; 0: 50 more than the text",
         .integer = &o->max_length, .max = 1e6, .given = &t->given.max_length},
        {"no-repeat-ngram", "N", "no N tokens in a row come twice; 0: repeats are allowed",
         .integer = &o->no_repeat_ngram, .max = 1e6, .given = &t->given.no_repeat_ngram},
        {"temperature", "T", "sample --beam translations instead of searching; 0: search",
         .number = &o->temperature, .max = 100, .given = &t->given.temperature},
        {"top-k", "N", "sample from the N likeliest tokens; 0: from 256", .integer = &o->top_k,
         .max = 256, .given = &t->given.top_k},
        {"top-p", "P", "sample from the tokens that make up this probability; 0: all",
         .number = &o->top_p, .max = 1, .given = &t->given.top_p},
        {"seed", "N", "the same seed samples the same", .integer64 = &t->seed, .max = 1e15,
         .given = &t->given.seed},
        {"weights", NULL, "type of the weights; smaller is faster", .string = &t->weights,
         .choices = "stored|f32|bf16|int8"},
        {"device", "DEVICE", "cpu, cpu:avx2 (see heed --version), cuda:N or ref, the slow oracle",
         .string = &t->device},
        {"threads", "N", "0: all cores", .integer = &t->threads, .max = 4096},
        {"quiet", NULL, "print errors only", .flag = &t->quiet},
    };
    memcpy(out, option, sizeof option);
}

void translator_line_options(struct translator *t, struct option *out)
{
    const struct option option[TRANSLATOR_LINE_OPTIONS] = {
        {"prefix", "TEXT", "every translation begins with this", .string = &t->prefix},
        {"require", "TEXT", "phrase in every translation; up to 16 of these",
         .words = &t->required},
        {"ban", "TEXT", "phrase in no translation; up to 256 of these", .words = &t->banned},
        {"batch-tokens", "N", "source tokens translated at once; 0: what suits the device",
         .integer = &t->session_options.batch_tokens, .max = 1e6},
    };
    memcpy(out, option, sizeof option);
}

/* A given option that has an effect only on a search; NULL: none was given. */
static const char *search_option(const struct translator *t)
{
    return t->given.beam              ? "--beam"
           : t->given.nbest           ? "--nbest"
           : t->given.min_length      ? "--min-length"
           : t->given.max_length      ? "--max-length"
           : t->given.no_repeat_ngram ? "--no-repeat-ngram"
           : t->given.temperature     ? "--temperature"
           : t->prefix                ? "--prefix"
           : t->required.n            ? "--require"
           : t->banned.n              ? "--ban"
                                      : NULL;
}

int translator_check_options(const struct translator *t, const char *scored)
{
    const char *sampling = t->given.top_k   ? "--top-k"
                           : t->given.top_p ? "--top-p"
                           : t->given.seed  ? "--seed"
                                            : NULL;
    if (sampling && !(t->o.temperature > 0)) {
        return cli_misuse("%s needs --temperature: without it nothing is sampled", sampling);
    }
    if (scored && search_option(t)) {
        return cli_misuse("with %s nothing is searched for: %s has no effect", scored,
                          search_option(t));
    }
    if (t->o.nbest > t->o.beam) {
        return cli_misuse("--nbest is %d, expected at most --beam, which is %d", t->o.nbest,
                          t->o.beam);
    }
    if (t->dir && !*t->dir) return cli_misuse("--model is '', expected a directory");
    return CLI_DONE;
}

static enum heed_weights weights_named(const char *name)
{
    return !strcmp(name, "f32")    ? HEED_WEIGHTS_F32
           : !strcmp(name, "bf16") ? HEED_WEIGHTS_BF16
           : !strcmp(name, "int8") ? HEED_WEIGHTS_INT8
                                   : HEED_WEIGHTS_AS_STORED;
}

static bool is_tag(const char *text, size_t len)
{
    return len >= 5 && !memcmp(text, ">>", 2) && !memcmp(text + len - 2, "<<", 2);
}

/* The languages of a model of several, by the tags of its vocabulary: "en, de, zh" */
static void languages_list(struct translator *t)
{
    const struct heed_tokenizer *k = heed_model_tokenizer(t->model);
    size_t n = 0;
    for (int32_t id = 0; id < heed_tokenizer_size(k); id++) {
        const char *piece = heed_tokenizer_piece(k, id);
        size_t len = strlen(piece);
        if (!is_tag(piece, len)) continue;
        if (n + len >= sizeof t->languages) return;
        n += (size_t)sprintf(t->languages + n, "%s%.*s", n ? ", " : "", (int)len - 4, piece + 2);
    }
}

/* Whether a line begins with a tag of the vocabulary. */
static bool is_tagged(const struct heed_tokenizer *k, const char *line)
{
    const char *end = strstr(line, "<<");
    size_t len = end ? (size_t)(end - line) + 2 : 0;
    if (!is_tag(line, len)) return false;
    for (int32_t id = 0; id < heed_tokenizer_size(k); id++) {
        const char *piece = heed_tokenizer_piece(k, id);
        if (!strncmp(piece, line, len) && !piece[len]) return true;
    }
    return false;
}

/* A first line without language tag means that --to is missing. After a line that had a tag, a line
 * without is wrong by itself, and an empty text is translated in its place. */
int translator_check(struct translator *t, const char *const *line, int n)
{
    const struct heed_tokenizer *k = heed_model_tokenizer(t->model);
    bool must = !t->o.to && t->languages[0];
    for (int i = 0; i < n; i++) {
        bool blank = line[i][strspn(line[i], " \t\r")] == '\0';
        bool lacks = must && !blank && !is_tagged(k, line[i]);
        if (lacks && !t->tagged) {
            return cli_misuse("--to is missing: this model translates to %s, and line %lld does "
                              "not begin with a tag such as >>%.*s<<",
                              t->languages, (long long)t->checked + i + 1,
                              (int)strcspn(t->languages, ","), t->languages);
        }
        t->tagged = t->tagged || !blank;
        t->request[i] = translator_request(t, lacks ? TRANSLATOR_UNTAGGED : line[i]);
    }
    t->checked += n;
    return CLI_DONE;
}

static bool has_language(const struct heed_tokenizer *k, const char *language)
{
    size_t n = strlen(language);
    for (int32_t id = 0; id < heed_tokenizer_size(k); id++) {
        const char *piece = heed_tokenizer_piece(k, id);
        size_t len = strlen(piece);
        if (is_tag(piece, len) && len == n + 4 && !memcmp(piece + 2, language, n)) return true;
    }
    return false;
}

static int language_check(struct translator *t)
{
    languages_list(t);
    if (!t->o.to || has_language(heed_model_tokenizer(t->model), t->o.to)) return CLI_DONE;
    if (!t->languages[0]) {
        return cli_failure("--to is '%s', expected none: this model translates to one language",
                           t->o.to);
    }
    return cli_failure("--to is '%s', expected a language that this model translates to: %s",
                       t->o.to, t->languages);
}

struct heed_request translator_request(const struct translator *t, const char *line)
{
    return (struct heed_request){.text = line,
                                 .options = &t->o,
                                 .prefix = t->prefix,
                                 .required = t->required.v,
                                 .required_n = t->required.n,
                                 .banned = t->banned.v,
                                 .banned_n = t->banned.n};
}

static int block_open(struct translator *t)
{
    t->request = calloc(TRANSLATOR_BLOCK, sizeof *t->request);
    t->answer = calloc(TRANSLATOR_BLOCK, sizeof *t->answer);
    return t->request && t->answer ? CLI_DONE
                                   : cli_failure("out of memory: %d lines", TRANSLATOR_BLOCK);
}

/* Refuses options that make no sense for any line before a line is read: they are checked with an
 * empty text, for which nothing is searched. */
static int request_check(struct translator *t)
{
    struct heed_error err = {0};
    const struct heed_answer *out = NULL;
    struct heed_request empty = translator_request(t, "");
    if (heed_translate(t->session, &empty, 1, &out, &err) != HEED_OK) {
        return cli_failure("%s", err.text);
    }
    return out->status ? cli_misuse("%s", out->why) : CLI_DONE;
}

int translator_open(struct translator *t)
{
    struct heed_error err = {0};
    if (!t->dir && !(t->dir = default_model(t->default_dir))) {
        return cli_misuse("--model is missing, and no model came with heed: there is none in %s",
                          t->default_dir);
    }
    t->engine = cli_engine_open(t->device, t->threads);
    if (!t->engine) return CLI_FAILURE;
    t->model = heed_model_load(t->engine, t->dir, weights_named(t->weights), &err);
    if (!t->model) return cli_failure("%s", err.text);
    t->o.seed = (uint64_t)t->seed;
    int code = language_check(t);
    if (code != CLI_DONE) return code;
    t->session = heed_session_open(t->model, &t->session_options, &err);
    if (!t->session) return cli_failure("%s", err.text);
    code = block_open(t);
    if (code == CLI_DONE) code = request_check(t);
    /* for a person who waits for a file to fill; lines on the screen are progress enough */
    t->progress = !t->quiet && cli_terminal(STDERR_FILENO) && !cli_terminal(STDOUT_FILENO);
    t->start = cli_now();
    return code;
}

void translator_close(struct translator *t)
{
    heed_session_free(t->session);
    heed_model_free(t->model);
    heed_engine_free(t->engine);
    free(t->request);
    free(t->answer);
    words_release(&t->required);
    words_release(&t->banned);
}

double translator_seconds(const struct translator *t)
{
    return cli_now() - t->start;
}

static void show_progress(const struct translator *t)
{
    char lines[CLI_NUMBER_MAX], speed[CLI_NUMBER_MAX], tokens[CLI_NUMBER_MAX];
    double seconds = translator_seconds(t);
    fprintf(stderr, "\r%s lines  %s lines/s  %s tokens/s\x1b[K", cli_count(lines, t->lines),
            cli_count(speed, (int64_t)((double)t->lines / seconds)),
            cli_count(tokens, (int64_t)((double)t->tokens / seconds)));
}

void translator_progress_end(struct translator *t)
{
    if (t->progress && t->lines) fputc('\n', stderr);
    t->progress = false;
}

/* Names the lines that could not be translated. */
static void report_refused(struct translator *t, int n)
{
    for (int i = 0; i < n; i++) {
        struct heed_answer *a = &t->answer[i];
        if (t->request[i].text == TRANSLATOR_UNTAGGED) {
            a->status = HEED_EARG;
            a->why = "it does not begin with the tag of a language, as lines before it did";
        }
        if (!a->status) continue;
        t->refused++;
        cli_failure("line %lld: %s", (long long)t->lines + i + 1, a->why);
    }
}

int translator_ask(struct translator *t, int n, const struct heed_answer **out)
{
    struct heed_error err = {0};
    if (heed_translate(t->session, t->request, n, out, &err) != HEED_OK) {
        return cli_failure("%s", err.text);
    }
    return CLI_DONE;
}

const struct heed_answer *translator_accept(struct translator *t, const struct heed_answer *answer,
                                            int n)
{
    memcpy(t->answer, answer, (size_t)n * sizeof *answer);
    report_refused(t, n);
    for (int i = 0; i < n; i++) t->tokens += t->answer[i].result->tokens;
    t->lines += n;
    if (t->progress) show_progress(t);
    return t->answer;
}

int translator_run(struct translator *t, const char *const *line, const char *const *given, int n,
                   const struct heed_answer **out)
{
    const struct heed_answer *answer = NULL;
    int code = translator_check(t, line, n);
    if (code != CLI_DONE) return code;
    for (int i = 0; i < n && given; i++) t->request[i].given = given[i];
    code = translator_ask(t, n, &answer);
    if (code == CLI_DONE) *out = translator_accept(t, answer, n);
    return code;
}

int translator_verdict(const struct translator *t)
{
    char refused[CLI_NUMBER_MAX], lines[CLI_NUMBER_MAX];
    if (!t->refused) return CLI_DONE;
    return cli_failure("%s of %s line%s could not be translated", cli_count(refused, t->refused),
                       cli_count(lines, t->lines), t->lines == 1 ? "" : "s");
}
