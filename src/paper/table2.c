/*
 * table2.c - BLEU and the cost of training of the base and the big model (paper 6.1).
 *
 * The paper estimates operations as time of training times number of GPUs times what a GPU
 * sustains. Here they are counted: model_flops of every batch.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "paper/report.h"
#include "paper/training.h"
#include "train/checkpoint.h"

/* The paper's figures on newstest2014, English to German; operations NaN: not given. */
static const struct paper {
    const char *name;
    double bleu, flops;
} PAPER[] = {
    {"ByteNet", 23.75, NAN},
    {"GNMT + RL", 24.6, 2.3e19},
    {"ConvS2S", 25.16, 9.6e18},
    {"MoE", 26.03, 2.0e19},
    {"GNMT + RL, ensemble", 26.30, 1.8e20},
    {"ConvS2S, ensemble", 26.36, 7.7e19},
    {"Transformer (base model)", 27.3, 3.3e18},
    {"Transformer (big)", 28.4, 2.3e19},
};
enum { PAPERS = sizeof PAPER / sizeof *PAPER, PAPER_BASE = 6, MODELS = 2 };

/* The single models before the Transformer, by their operations. */
static const int SINGLE[] = {2, 3, 1};
enum { SINGLES = sizeof SINGLE / sizeof *SINGLE };

/* The mean of the last AVERAGED of SAVES checkpoints is scored. */
enum { AVERAGED = 5, SAVES = 20 };

static enum heed_status plan(struct heed_study *s, struct heed_error *err)
{
    const struct heed_config *c = &s->o.train.config;
    enum heed_status st = study_add_row(s, 0, "base", err, "the base model");
    if (!st) st = study_add_row(s, 1, "big", err, "the big model: twice as wide, dropout 0.3");
    if (!st)
        snprintf(s->row[1].options, ROW_TEXT, "--d-model %d --d-ff %d --heads %d --dropout 0.3",
                 2 * c->d_model, 2 * c->d_ff, 2 * c->heads);
    return st;
}

/* The mean of the newest checkpoints, in runs/NAME/average. */
static enum heed_status average(struct heed_study *s, const struct row *r, char out[FILE_PATH_MAX],
                                json_t *result, struct heed_error *err)
{
    char dir[FILE_PATH_MAX], run[FILE_PATH_MAX];
    char *path = malloc((size_t)AVERAGED * FILE_PATH_MAX);
    const char *list[AVERAGED];
    int64_t *step = NULL;
    int n = 0;
    enum heed_status st = path ? HEED_OK : error_memory(err, FILE_PATH_MAX, "names");
    if (!st) st = training_model_dir(s, r, dir, err);
    if (!st) st = study_run_dir(s, r, run, err);
    if (!st) st = file_join(out, FILE_PATH_MAX, run, "average", err);
    if (!st) st = checkpoint_list(dir, &step, &n, err);
    n = n < AVERAGED ? n : AVERAGED;
    for (int i = 0; i < n && !st; i++) {
        char *at = path + (size_t)i * FILE_PATH_MAX;
        st = training_checkpoint_dir(s, r, step[i], at, err);
        list[i] = at;
    }
    if (!st) st = heed_average(list, n, out, err);
    if (!st) json_object_set_new(result, "averaged", json_integer(n));
    free(step);
    free(path);
    return st;
}

static enum heed_status compute(struct heed_study *s, const struct row *r, json_t *result,
                                bool *done, struct heed_error *err)
{
    char dir[FILE_PATH_MAX];
    struct training_saves saves = {(s->o.train.steps + SAVES - 1) / SAVES, AVERAGED};
    enum heed_status st = training_run(s, r, saves, result, done, err);
    bool diverged = json_is_string(json_object_get(result, "diverged"));
    if (st || !*done || diverged) return st;
    st = average(s, r, dir, result, err);
    return st ? st : training_score(s, dir, result, done, err);
}

/* ---- report ---- */

static void write_table(const struct heed_study *s, FILE *md)
{
    char count[REPORT_COUNT];
    fputs("| model | options | parameters | steps | source tokens | target tokens | training "
          "operations | perplexity | checkpoints averaged | BLEU | chrF |\n"
          "|---|---|---|---|---|---|---|---|---|---|---|\n",
          md);
    for (int i = 0; i < s->rows; i++) {
        const struct row *r = &s->row[i];
        const json_t *x = r->result;
        if (!x) continue;
        fprintf(md, "| %s | %s%s%s | %s ", r->name, *r->options ? "`" : "", r->options,
                *r->options ? "`" : "", report_count(count, result_number(x, "parameters")));
        fprintf(md, "| %s ", report_count(count, result_number(x, "steps")));
        fprintf(md, "| %s ", report_count(count, result_number(x, "source_tokens")));
        fprintf(md, "| %s ", report_count(count, result_number(x, "target_tokens")));
        fprintf(md, "| %.3g ", result_number(x, "flops"));
        report_cell(md, result_number(x, "perplexity"), 2);
        report_cell(md, result_number(x, "averaged"), 0);
        report_cell(md, result_number(x, "bleu"), 2);
        report_cell(md, result_number(x, "chrf"), 2);
        fputs("|\n", md);
    }
    const char *signature = json_string_value(json_object_get(s->row[0].result, "signature"));
    fprintf(md, "\n%s%s%s", signature ? "BLEU: " : "", signature ? signature : "",
            signature ? "\n\n" : "");
    fputs("The paper's figures (newstest2014, English to German):\n\n| model | BLEU | training "
          "operations |\n|---|---|---|\n",
          md);
    for (int i = 0; i < PAPERS; i++) {
        fprintf(md, "| %s | %.4g | ", PAPER[i].name, PAPER[i].bleu);
        if (isfinite(PAPER[i].flops))
            fprintf(md, "%.2g |\n", PAPER[i].flops);
        else
            fputs("- |\n", md);
    }
    fputc('\n', md);
}

static enum heed_status draw(struct heed_study *s, FILE *md, struct heed_error *err)
{
    double flops[MODELS], bleu[MODELS], single_flops[SINGLES], single[SINGLES];
    double paper_flops[MODELS], paper_bleu[MODELS];
    int n = 0;
    for (int i = 0; i < s->rows; i++) {
        if (!s->row[i].result) continue;
        flops[n] = result_number(s->row[i].result, "flops");
        bleu[n++] = result_number(s->row[i].result, "bleu");
    }
    for (int i = 0; i < MODELS; i++) {
        paper_flops[i] = PAPER[PAPER_BASE + i].flops;
        paper_bleu[i] = PAPER[PAPER_BASE + i].bleu;
    }
    for (int i = 0; i < SINGLES; i++) {
        single_flops[i] = PAPER[SINGLE[i]].flops;
        single[i] = PAPER[SINGLE[i]].bleu;
    }
    const struct curve curve[] = {
        {"this run: base, big", flops, bleu, n},
        {"paper: base, big", paper_flops, paper_bleu, MODELS},
        {"paper: ConvS2S, MoE, GNMT + RL", single_flops, single, SINGLES}};
    const struct curves panel = {.title = "BLEU against operations of training",
                                 .x_label = "floating-point operations",
                                 .y_label = "BLEU",
                                 .x_log = true,
                                 .y_zero = true,
                                 .points = true,
                                 .curve = curve,
                                 .n = 3};
    return report_curves(s, md, "bleu.svg", &panel, 1, "Table 2: what training costs", err);
}

static enum heed_status report(struct heed_study *s, FILE *md, struct heed_error *err)
{
    const json_t *base = s->row[0].result, *big = s->row[1].result;
    fprintf(
        md,
        "BLEU of the test text with beam 4 and length penalty 0.6; the mean of the last %d "
        "checkpoints (a\ncheckpoint is saved every %dth of the steps; the paper averages 5, and "
        "20 of the big model).\nOperations are counted, a multiplication and an addition as two: "
        "3 x 2 x the multiply-adds of all\nmatrix products of a forward pass, over all batches. "
        "The paper's are estimated from the time of\ntraining and what a GPU sustains.\n\n",
        AVERAGED, SAVES);
    if (!base && !big) return HEED_OK;
    write_table(s, md);
    if (base && big) {
        double difference = result_number(big, "bleu") - result_number(base, "bleu");
        fprintf(
            md,
            "The big model takes %.1f times the operations of the base model (the paper's: %.1f) "
            "and scores\n%+.2f BLEU (the paper's: %+.1f): the paper's ordering is %s on this "
            "corpus and budget.\n\n",
            result_number(big, "flops") / result_number(base, "flops"),
            PAPER[PAPER_BASE + 1].flops / PAPER[PAPER_BASE].flops, difference,
            PAPER[PAPER_BASE + 1].bleu - PAPER[PAPER_BASE].bleu,
            difference > 0 ? "confirmed" : "not confirmed");
    }
    return draw(s, md, err);
}

const struct experiment table2_experiment = {
    .name = "table2",
    .title = "Table 2: BLEU and what training costs",
    .trains = true,
    .plan = plan,
    .settings = training_settings,
    .compute = compute,
    .finish = training_finish,
    .report = report,
};
