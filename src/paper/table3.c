/*
 * table3.c - the variations of the base model in the paper's table 3: its rows A to E, in the
 * paper's proportions to the base model that the options describe, and the base model with another
 * seed, which shows how much a row differs by chance.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "model/config.h"
#include "paper/report.h"
#include "paper/training.h"

/* The paper's figures, newstest2013 English to German: perplexity per word piece, BLEU, parameters
 * in millions (those of rows that the paper leaves out are those of its base model). */
static const struct paper {
    const char *name, *changes;
    double perplexity, bleu, parameters;
} PAPER[] = {
    {"base", "the model that the others are compared with", 4.92, 25.8, 65},
    {"A1", "1 head", 5.29, 24.9, 65},
    {"A2", "half the heads", 5.00, 25.5, 65},
    {"A3", "twice the heads", 4.91, 25.8, 65},
    {"A4", "four times the heads", 5.01, 25.4, 65},
    {"B1", "a quarter of d_k", 5.16, 25.1, 58},
    {"B2", "half of d_k", 5.01, 25.4, 60},
    {"C1", "a third of the layers", 6.11, 23.7, 36},
    {"C2", "two thirds of the layers", 5.19, 25.3, 50},
    {"C3", "four thirds of the layers", 4.88, 25.5, 80},
    {"C4", "half of d_model", 5.75, 24.5, 28},
    {"C5", "twice d_model", 4.66, 26.0, 168},
    {"C6", "half of d_ff", 5.12, 25.4, 53},
    {"C7", "twice d_ff", 4.75, 26.2, 90},
    {"D1", "P_drop 0", 5.77, 24.6, 65},
    {"D2", "P_drop 0.2", 4.95, 25.5, 65},
    {"D3", "no label smoothing", 4.67, 25.3, 65},
    {"D4", "label smoothing 0.2", 5.47, 25.7, 65},
    {"E", "learned positions", 4.92, 25.7, 65},
    {"big", "twice as wide, P_drop 0.3", 4.33, 26.4, 213},
    {"seed", "the base model with another seed", NAN, NAN, NAN}, /* not in the paper */
};
enum { ROWS = sizeof PAPER / sizeof *PAPER };

/* ---- rows ---- */

static int at_least_1(int n)
{
    return n > 1 ? n : 1;
}

/* What `heed train` is to be told for the row with this name; "": nothing. */
static void changes(const struct heed_study *s, const char *name, char out[ROW_TEXT])
{
    const struct heed_config *c = &s->o.train.config;
    int h = c->heads, n = c->encoder_layers, m = c->decoder_layers;
    int dk = config_d_k(c), dv = config_d_v(c);
    int row = name[1] - '0';
    out[0] = '\0';
    if (strcmp(name, "big") == 0) {
        snprintf(out, ROW_TEXT, "--d-model %d --d-ff %d --heads %d --dropout 0.3", 2 * c->d_model,
                 2 * c->d_ff, 2 * h);
    } else if (strcmp(name, "seed") == 0) {
        snprintf(out, ROW_TEXT, "--seed %llu", (unsigned long long)s->o.seed + 1);
    } else if (name[0] == 'A') {
        int heads = row == 1 ? 1 : row == 2 ? at_least_1(h / 2) : row == 3 ? 2 * h : 4 * h;
        snprintf(out, ROW_TEXT, "--heads %d --d-k %d --d-v %d", heads, at_least_1(h * dk / heads),
                 at_least_1(h * dv / heads));
    } else if (name[0] == 'B') {
        snprintf(out, ROW_TEXT, "--d-k %d", at_least_1(row == 1 ? dk / 4 : dk / 2));
    } else if (name[0] == 'C' && row <= 3) {
        int thirds = row == 3 ? 4 : row;
        snprintf(out, ROW_TEXT, "--encoder-layers %d --decoder-layers %d",
                 at_least_1((n * thirds + 1) / 3), at_least_1((m * thirds + 1) / 3));
    } else if (strcmp(name, "C4") == 0) {
        snprintf(out, ROW_TEXT, "--d-model %d --d-k %d --d-v %d", c->d_model / 2,
                 at_least_1(dk / 2), at_least_1(dv / 2));
    } else if (strcmp(name, "C5") == 0) {
        snprintf(out, ROW_TEXT, "--d-model %d --d-k %d --d-v %d", 2 * c->d_model, 2 * dk, 2 * dv);
    } else if (name[0] == 'C') {
        snprintf(out, ROW_TEXT, "--d-ff %d", row == 6 ? at_least_1(c->d_ff / 2) : 2 * c->d_ff);
    } else if (name[0] == 'D') {
        snprintf(out, ROW_TEXT, "--%s %s", row <= 2 ? "dropout" : "label-smoothing",
                 row % 2 ? "0" : "0.2");
    } else if (name[0] == 'E') {
        snprintf(out, ROW_TEXT, "--position learned");
    }
}

static enum heed_status plan(struct heed_study *s, struct heed_error *err)
{
    enum heed_status st = HEED_OK;
    for (int i = 0; i < ROWS && !st; i++) {
        const struct paper *p = &PAPER[i];
        char options[ROW_TEXT];
        changes(s, p->name, options);
        st = study_add_row(s, i, p->name, err, "%s%s%s", p->changes, *options ? ": " : "", options);
        if (!st) memcpy(s->row[s->rows - 1].options, options, sizeof options);
    }
    return st;
}

static enum heed_status compute(struct heed_study *s, const struct row *r, json_t *result,
                                bool *done, struct heed_error *err)
{
    char dir[FILE_PATH_MAX];
    enum heed_status st = training_run(s, r, (struct training_saves){0}, result, done, err);
    bool diverged = json_is_string(json_object_get(result, "diverged"));
    if (st || !*done || diverged) return st;
    st = training_model_dir(s, r, dir, err);
    return st ? st : training_score(s, dir, result, done, err);
}

/* ---- report ---- */

/* Differences from the base model that count as none. In this run they are at least those between
 * two seeds of the base model, where both are trained. */
static const double BLEU_SAME = 0.3, PAPER_BLEU_SAME = 0.15, PERPLEXITY_SAME = 0.01;

struct noise {
    double bleu, perplexity; /* the second as a difference of logarithms */
};

/* -1: worse than the base model, 0: alike, 1: better */
static int side(double difference, double same)
{
    return difference > same ? 1 : difference < -same ? -1 : 0;
}

static int bleu_side(double bleu, double base, double same)
{
    return side(bleu - base, same);
}

/* A lower perplexity is better. */
static int perplexity_side(double perplexity, double base, double same)
{
    return side(log(base / perplexity), same);
}

static const char *verdict(int paper, int here)
{
    return paper == here ? "yes" : paper == -here ? "**no**" : "unclear";
}

static const json_t *result_of(const struct heed_study *s, const char *name)
{
    for (int i = 0; i < s->rows; i++)
        if (strcmp(s->row[i].name, name) == 0) return s->row[i].result;
    return NULL;
}

static struct noise noise_of(const struct heed_study *s, const json_t *base)
{
    const json_t *seed = result_of(s, "seed");
    double bleu = fabs(result_number(seed, "bleu") - result_number(base, "bleu"));
    double perplexity =
        fabs(log(result_number(seed, "perplexity") / result_number(base, "perplexity")));
    return (struct noise){fmax(BLEU_SAME, bleu), fmax(PERPLEXITY_SAME, perplexity)};
}

/* Whether the row is on the paper's side of the base model; NULL: there is nothing to compare. */
static const char *perplexity_verdict(const struct row *r, const json_t *base, struct noise noise)
{
    const struct paper *p = &PAPER[r->number];
    double x = result_number(r->result, "perplexity"), y = result_number(base, "perplexity");
    if (r->result == base || isnan(p->perplexity) || !isfinite(x) || !isfinite(y)) return NULL;
    return verdict(perplexity_side(p->perplexity, PAPER[0].perplexity, PERPLEXITY_SAME),
                   perplexity_side(x, y, noise.perplexity));
}

static const char *bleu_verdict(const struct row *r, const json_t *base, struct noise noise)
{
    const struct paper *p = &PAPER[r->number];
    double x = result_number(r->result, "bleu"), y = result_number(base, "bleu");
    if (r->result == base || isnan(p->bleu) || !isfinite(x) || !isfinite(y)) return NULL;
    return verdict(bleu_side(p->bleu, PAPER[0].bleu, PAPER_BLEU_SAME), bleu_side(x, y, noise.bleu));
}

static void write_row(const struct row *r, const json_t *base, struct noise noise, FILE *md)
{
    const struct paper *p = &PAPER[r->number];
    const char *mark = *r->options ? "`" : "";
    const char *perplexity = perplexity_verdict(r, base, noise);
    const char *bleu = bleu_verdict(r, base, noise);
    char count[REPORT_COUNT];
    fprintf(md, "| %s | %s | %s%s%s | %s ", r->name, p->changes, mark, r->options, mark,
            report_count(count, result_number(r->result, "parameters")));
    report_cell(md, p->parameters, 0);
    fputs(isnan(p->parameters) ? "" : "M ", md);
    report_cell(md, result_number(r->result, "perplexity"), 2);
    report_cell(md, p->perplexity, 2);
    report_cell(md, result_number(r->result, "bleu"), 2);
    report_cell(md, p->bleu, 1);
    fprintf(md, "| %s | %s |\n", perplexity ? perplexity : "", bleu ? bleu : "");
}

/* "A1, A2", the rows whose verdict is this one; "none" */
static void write_names(const struct heed_study *s, const json_t *base, struct noise noise,
                        bool of_bleu, const char *wanted, FILE *md)
{
    const char *comma = "";
    for (int i = 0; i < s->rows; i++) {
        const struct row *r = &s->row[i];
        const char *found =
            of_bleu ? bleu_verdict(r, base, noise) : perplexity_verdict(r, base, noise);
        if (!found || strcmp(found, wanted) != 0) continue;
        fprintf(md, "%s%s", comma, r->name);
        comma = ", ";
    }
    if (!*comma) fputs("none", md);
}

static void write_findings(const struct heed_study *s, const json_t *base, struct noise noise,
                           FILE *md)
{
    static const char *const what[] = {"Perplexity", "BLEU"};
    bool seeds = result_of(s, "seed") != NULL;
    fprintf(md,
            "A row confirms the paper where it is on the same side of the base model: better, "
            "worse or alike.\nIn the paper's figures alike is less than %.2f BLEU or %.0f%% of "
            "perplexity. Here it is at most %.2f BLEU\nor %.1f%% of perplexity: %s.\nUnclear is a "
            "row that is alike in one of the two only.\n\n",
            PAPER_BLEU_SAME, 100 * PERPLEXITY_SAME, noise.bleu, 100 * expm1(noise.perplexity),
            seeds ? "two seeds of the base model differ by no more"
                  : "as each row is one training, two seeds may differ by more");
    for (int k = 0; k < 2; k++) {
        fprintf(md, "- %s: confirmed by ", what[k]);
        write_names(s, base, noise, k, "yes", md);
        fputs("; contradicted by ", md);
        write_names(s, base, noise, k, "**no**", md);
        fputs("; unclear in ", md);
        write_names(s, base, noise, k, "unclear", md);
        fputs(".\n", md);
    }
    for (int i = 0; i < s->rows; i++) {
        const char *why = json_string_value(json_object_get(s->row[i].result, "diverged"));
        if (why) fprintf(md, "- %s: %s.\n", s->row[i].name, why);
    }
    fputc('\n', md);
}

static enum heed_status draw(struct heed_study *s, const json_t *base, FILE *md,
                             struct heed_error *err)
{
    static const char *const series[] = {"this run", "paper"};
    char label[ROWS][ROW_NAME + 64];
    const char *name[ROWS];
    double bleu[ROWS][2], perplexity[ROWS][2];
    int n = 0;
    for (int i = 0; i < s->rows; i++) {
        const json_t *x = s->row[i].result;
        const struct paper *p = &PAPER[s->row[i].number];
        if (!x || x == base) continue;
        snprintf(label[n], sizeof label[n], "%s: %s", p->name, p->changes);
        name[n] = label[n];
        bleu[n][0] = result_number(x, "bleu") - result_number(base, "bleu");
        bleu[n][1] = p->bleu - PAPER[0].bleu;
        perplexity[n][0] =
            100 * (result_number(x, "perplexity") / result_number(base, "perplexity") - 1);
        perplexity[n++][1] = 100 * (p->perplexity / PAPER[0].perplexity - 1);
    }
    if (!n) return HEED_OK;
    struct bars b = {.heading = "Table 3: BLEU beside the base model's",
                     .x_label = "BLEU more than the base model",
                     .row = name,
                     .rows = n,
                     .series = series,
                     .n = 2,
                     .value = bleu[0]};
    enum heed_status st = report_bars(s, md, "bleu.svg", &b, err);
    b.heading = "Table 3: perplexity beside the base model's";
    b.x_label = "per cent more than the base model's; less is better";
    b.value = perplexity[0];
    return st ? st : report_bars(s, md, "perplexity.svg", &b, err);
}

static enum heed_status report(struct heed_study *s, FILE *md, struct heed_error *err)
{
    const json_t *base = result_of(s, "base");
    fputs(
        "The paper's figures are those of newstest2013 after 100,000 steps (big: 300,000) of about "
        "25,000\nsource and target tokens on WMT 2014 English to German, 4.5 million pairs. What "
        "compares is the\ndifference from the base model, not the figure. Perplexity is that of "
        "the validation text, per\ntoken of this vocabulary; BLEU is that of the test text, with "
        "beam 4 and length penalty 0.6, without\naveraging checkpoints, as in the paper. P_drop is "
        "the dropout of sub-layer outputs and embeddings. Each\nrow is `heed train` with the "
        "options above and those of its column.\n\n"
        "| row | change | options | parameters | paper | perplexity | paper | BLEU | paper | "
        "perplexity as in the paper | BLEU as in the paper |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|\n",
        md);
    struct noise noise = noise_of(s, base);
    for (int i = 0; i < s->rows; i++)
        if (s->row[i].result) write_row(&s->row[i], base, noise, md);
    fputc('\n', md);
    const json_t *first = base ? base : s->rows ? s->row[0].result : NULL;
    const char *signature = json_string_value(json_object_get(first, "signature"));
    if (signature) fprintf(md, "BLEU: %s\n\n", signature);
    if (!base) return HEED_OK;
    write_findings(s, base, noise, md);
    return draw(s, base, md, err);
}

const struct experiment table3_experiment = {
    .name = "table3",
    .title = "Table 3: variations of the base model",
    .trains = true,
    .plan = plan,
    .settings = training_settings,
    .compute = compute,
    .finish = training_finish,
    .report = report,
};
