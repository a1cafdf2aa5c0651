/*
 * cmd_score.c - `heed score`: scores of a translation on standard input or in a file, and several
 * translations compared.
 *
 * Call order: options, choose_metrics, read_texts; then score_one, score_lines or score_many.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/lines.h"
#include "cli/options.h"
#include "cli/scores.h"
#include "cli/text.h"

enum { METRICS_MAX = 8 };

/* A text of lines, and what a sentence calls it. */
struct text_file {
    const char *name;
    struct lines lines;
};

struct score {
    struct words ref_paths, metric_names, system_paths;
    struct heed_scoring how;
    bool sentences, json;
    int samples;
    int64_t seed;
    bool samples_given, seed_given, tokenize_given;

    enum heed_metric metric[METRICS_MAX];
    int metrics;
    struct text_file *ref, *system;
    const char *const **ref_lines, *const *
                                       *system_lines; /* their lines, as the library takes them */
    int refs, systems, n;
};

/* ---- what is asked for ---- */

/* "bleu, chrf, chrf++ or ter" */
static void metric_list(char *out, size_t size)
{
    size_t n = 0;
    const char *name;
    for (int m = 0; (name = heed_metric_name((enum heed_metric)m)) && n < size; m++) {
        bool last = !heed_metric_name((enum heed_metric)(m + 1));
        n += (size_t)snprintf(out + n, size - n, "%s%s", m == 0 ? "" : last ? " or " : ", ", name);
    }
}

static int unknown_metric(const char *name)
{
    char all[128];
    const char *guess = NULL, *known;
    for (int m = 0; (known = heed_metric_name((enum heed_metric)m)); m++) {
        guess = heed_nearer(name, guess, known);
    }
    metric_list(all, sizeof all);
    if (guess) {
        return cli_misuse("--metric is '%s', expected %s; did you mean %s?", name, all, guess);
    }
    return cli_misuse("--metric is '%s', expected %s", name, all);
}

static int add_metric(struct score *c, const char *name)
{
    const char *known;
    int m = 0;
    while ((known = heed_metric_name((enum heed_metric)m)) && strcmp(known, name) != 0) m++;
    if (!known) return unknown_metric(name);
    for (int i = 0; i < c->metrics; i++) {
        if ((int)c->metric[i] == m) return cli_misuse("--metric %s is given twice", name);
    }
    c->metric[c->metrics++] = (enum heed_metric)m;
    return CLI_DONE;
}

static bool has_metric(const struct score *c, enum heed_metric m)
{
    for (int i = 0; i < c->metrics; i++) {
        if (c->metric[i] == m) return true;
    }
    return false;
}

static int choose_metrics(struct score *c)
{
    int code = CLI_DONE;
    for (int i = 0; i < c->metric_names.n && code == CLI_DONE; i++) {
        code = add_metric(c, c->metric_names.v[i]);
    }
    if (code == CLI_DONE && c->metrics == 0) {
        code = add_metric(c, "bleu");
        if (code == CLI_DONE) code = add_metric(c, "chrf");
    }
    return code;
}

static int check(const struct score *c)
{
    for (int i = 0; i < c->ref_paths.n; i++) {
        if (strcmp(c->ref_paths.v[i], "-") == 0) {
            return cli_misuse("--ref is -, expected a file: standard input is the translation");
        }
    }
    int from_stdin = 0;
    for (int i = 0; i < c->system_paths.n; i++) {
        from_stdin += strcmp(c->system_paths.v[i], "-") == 0;
    }
    if (from_stdin > 1) return cli_misuse("- is given twice; standard input is one translation");
    if (c->sentences && c->systems > 1) {
        return cli_misuse("--sentences scores one translation, found %d", c->systems);
    }
    if (c->systems < 2 && (c->samples_given || c->seed_given)) {
        return cli_misuse("--%s is for comparing two or more translations, found %d",
                          c->samples_given ? "samples" : "seed", c->systems);
    }
    if (has_metric(c, HEED_METRIC_PARSEVAL) && (c->metrics > 1 || c->refs > 1)) {
        return cli_misuse(
            "--metric parseval compares trees with one --ref, and takes no other metric");
    }
    if (c->tokenize_given && !has_metric(c, HEED_METRIC_BLEU)) {
        return cli_misuse("--tokenize is for BLEU, which is not among the metrics");
    }
    return CLI_DONE;
}

/* ---- reading ---- */

static bool text_read(struct text_file *t, const char *const **lines, const char *path)
{
    t->name = strcmp(path, "-") == 0 ? "standard input" : path;
    bool good = lines_read_file(&t->lines, path);
    *lines = (const char *const *)t->lines.v;
    return good;
}

static int read_texts(struct score *c)
{
    c->ref = calloc((size_t)c->refs, sizeof *c->ref);
    c->system = calloc((size_t)c->systems, sizeof *c->system);
    c->ref_lines = calloc((size_t)c->refs, sizeof *c->ref_lines);
    c->system_lines = calloc((size_t)c->systems, sizeof *c->system_lines);
    if (!c->ref || !c->system || !c->ref_lines || !c->system_lines) {
        return cli_failure("out of memory");
    }
    bool good = true;
    for (int i = 0; i < c->refs && good; i++) {
        good = text_read(&c->ref[i], &c->ref_lines[i], c->ref_paths.v[i]);
    }
    for (int i = 0; i < c->systems && good; i++) {
        const char *path = c->system_paths.n ? c->system_paths.v[i] : "-";
        good = text_read(&c->system[i], &c->system_lines[i], path);
    }
    const struct text_file *ref = c->ref;
    for (int i = 1; i < c->refs && good; i++) {
        good = lines_match(&c->ref[i].lines, c->ref[i].name, &ref->lines, ref->name);
    }
    for (int i = 0; i < c->systems && good; i++) {
        good = lines_match(&c->system[i].lines, c->system[i].name, &ref->lines, ref->name);
    }
    if (!good) return CLI_FAILURE;
    c->n = ref->lines.n;
    if (c->n == 0) return cli_failure("nothing to score: %s has no lines", ref->name);
    return CLI_DONE;
}

static void release(struct score *c)
{
    for (int i = 0; c->ref && i < c->refs; i++) lines_release(&c->ref[i].lines);
    for (int i = 0; c->system && i < c->systems; i++) lines_release(&c->system[i].lines);
    free(c->ref);
    free(c->system);
    free(c->ref_lines);
    free(c->system_lines);
    words_release(&c->ref_paths);
    words_release(&c->metric_names);
    words_release(&c->system_paths);
}

/* What is wrong with a tree is said of its line; the file is that of the reference, since a line
 * that is no tree in a hypothesis is counted and not refused. */
static int failure(const struct score *c, const struct heed_error *err)
{
    if (err->status == HEED_EFORMAT) return cli_failure("%s: %s", c->ref[0].name, err->text);
    return cli_failure("%s", err->text);
}

/* ---- one translation ---- */

static int score_one(struct score *c)
{
    struct heed_score s[METRICS_MAX];
    struct heed_error err = {0};
    for (int i = 0; i < c->metrics; i++) {
        c->how.metric = c->metric[i];
        if (heed_score_corpus(&c->how, c->system_lines[0], c->ref_lines, c->refs, c->n, &s[i],
                              &err) != HEED_OK) {
            return failure(c, &err);
        }
    }
    for (int i = 0; i < c->metrics; i++) {
        if (!c->json) {
            score_print(c->metric[i], &s[i]);
            continue;
        }
        fputs(i == 0 ? "{" : ",\n ", stdout);
        score_print_json(c->metric[i], &s[i]);
    }
    if (c->json) puts("}");
    return cli_flush();
}

/* s: [metrics][n] */
static void print_lines(const struct score *c, const struct heed_score *s)
{
    for (int line = 0; line < c->n; line++) {
        for (int i = 0; i < c->metrics; i++) {
            const struct heed_score *score = &s[(size_t)i * (size_t)c->n + (size_t)line];
            if (c->json) {
                fputs(i == 0 ? "{" : ", ", stdout);
                score_print_json(c->metric[i], score);
            } else {
                printf("%s%.2f", i == 0 ? "" : "\t", score->value);
            }
        }
        puts(c->json ? "}" : "");
    }
}

static int score_lines(struct score *c)
{
    struct heed_score *s = calloc((size_t)c->metrics * (size_t)c->n, sizeof *s);
    if (!s) return cli_failure("out of memory: %d lines", c->n);
    struct heed_error err = {0};
    enum heed_status status = HEED_OK;
    for (int i = 0; i < c->metrics && !status; i++) {
        c->how.metric = c->metric[i];
        status = heed_score_sentences(&c->how, c->system_lines[0], c->ref_lines, c->refs, c->n,
                                      s + (size_t)i * (size_t)c->n, &err);
    }
    if (!status) print_lines(c, s);
    free(s);
    return status ? failure(c, &err) : cli_flush();
}

/* ---- several translations ---- */

static void print_comparison(const struct score *c, enum heed_metric m,
                             const struct heed_comparison *of)
{
    const double significant = 0.05;
    for (int i = 0; i < c->systems; i++) {
        printf("%s %.2f  mean %.2f \u00b1 %.2f  ", heed_metric_title(m), of[i].score.value,
               of[i].mean, of[i].interval);
        if (i == 0) {
            printf("%-12s", "baseline");
        } else {
            printf("p %.4f %s  ", of[i].p, of[i].p < significant ? "*" : " ");
        }
        text_print(stdout, c->system[i].name, strlen(c->system[i].name));
        putchar('\n');
    }
    printf("%*s %s\n", (int)strlen(heed_metric_title(m)), "", of[0].score.signature);
}

static void print_comparison_json(const struct score *c, enum heed_metric m,
                                  const struct heed_comparison *of)
{
    printf("\"%s\": {\"signature\": \"%s\", \"systems\": [", heed_metric_name(m),
           of[0].score.signature);
    for (int i = 0; i < c->systems; i++) {
        fputs(i == 0 ? "\n  {\"name\": " : ",\n  {\"name\": ", stdout);
        text_print_json(c->system[i].name, strlen(c->system[i].name));
        printf(", \"score\": %.4f, \"mean\": %.4f, \"interval\": %.4f", of[i].score.value,
               of[i].mean, of[i].interval);
        if (i > 0) printf(", \"p\": %.4f", of[i].p);
        putchar('}');
    }
    printf("]}");
}

static int score_many(struct score *c)
{
    struct heed_comparison *of = calloc((size_t)c->systems, sizeof *of);
    if (!of) return cli_failure("out of memory");
    struct heed_error err = {0};
    enum heed_status status = HEED_OK;
    for (int i = 0; i < c->metrics && !status; i++) {
        c->how.metric = c->metric[i];
        status = heed_score_systems(&c->how, c->system_lines, c->systems, c->ref_lines, c->refs,
                                    c->n, c->samples, (uint64_t)c->seed, of, &err);
        if (status) break;
        if (c->json) {
            fputs(i == 0 ? "{" : ",\n ", stdout);
            print_comparison_json(c, c->metric[i], of);
        } else {
            print_comparison(c, c->metric[i], of);
        }
    }
    if (!status && c->json) puts("}");
    free(of);
    return status ? failure(c, &err) : cli_flush();
}

static int run(struct score *c)
{
    c->refs = c->ref_paths.n;
    c->systems = c->system_paths.n ? c->system_paths.n : 1;
    int code = choose_metrics(c);
    if (code == CLI_DONE) code = check(c);
    if (code == CLI_DONE) code = read_texts(c);
    if (code != CLI_DONE) return code;
    if (c->systems > 1) return score_many(c);
    return c->sentences ? score_lines(c) : score_one(c);
}

int cmd_score(int argc, char **argv)
{
    struct score c = {.how = {.tokenize = "13a"}, .samples = 1000, .seed = 12345};
    struct option tokenize = scores_option(&c.how.tokenize);
    tokenize.given = &c.tokenize_given;
    const struct option option[] = {
        {"ref", "FILE", "a reference, a sentence a line; plain, .gz or .xz", .words = &c.ref_paths,
         .required = true},
        {"metric", "NAME", "bleu, chrf, chrf++, ter or parseval; default bleu and chrf",
         .words = &c.metric_names},
        tokenize,
        {"lowercase", NULL, "compare in lower case, as TER always does", .flag = &c.how.lowercase},
        {"sentences", NULL, "print the scores of each sentence: a line each, a column a metric",
         .flag = &c.sentences},
        {"json", NULL, "print JSON", .flag = &c.json},
        {.help = "two or more translations"},
        {"samples", "N", "resamplings of the bootstrap", .integer = &c.samples, .min = 1,
         .max = 1000000, .given = &c.samples_given},
        {"seed", "N", "seed of the bootstrap", .integer64 = &c.seed, .min = 0, .max = 1e18,
         .given = &c.seed_given},
    };
    const struct usage usage = {
        .command = "score",
        .summary = "score translations: BLEU, chrF, chrF++, TER",
        .synopsis = "--ref FILE [options] [TRANSLATION...] [< TRANSLATION]",
        .about =
            "The scores are those of sacreBLEU with the signature that is printed. Where there "
            "are\n"
            "several references, give --ref for each. Give --tokenize zh where they are Chinese.\n"
            "Two or more translations are compared by paired bootstrap resampling: p is how "
            "likely\n"
            "a difference from the first as large as this would be if both were equally good; a *\n"
            "marks those below 0.05.\n"
            "With --metric parseval the lines are bracketed trees: labelled precision, recall and "
            "F1\n"
            "by the rules of EVALB.",
        .example = "  heed translate --model model < test.en | heed score --ref test.de\n"
                   "  heed score --ref test.de --metric bleu --metric ter old.de new.de",
        .option = option,
        .n = sizeof option / sizeof option[0],
        .rest = &c.system_paths,
        .rest_name = "TRANSLATION",
    };
    int code = options_parse(&usage, argc, argv);
    if (code == OPTIONS_GO_ON) code = run(&c);
    release(&c);
    return code;
}
