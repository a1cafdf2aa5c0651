/*
 * schedule.c - does training need a warm-up (paper 5.3)?
 *
 * Three courses of the learning rate, each with the norm after the sub-layer, as in the paper, and
 * before it: the paper's, with warm-up; the same peak from the first step to the last; and the
 * paper's formula without its warm-up, d_model^-0.5 * step^-0.5, which is warm-up over one step.
 */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "paper/report.h"
#include "paper/training.h"
#include "train/optimizer.h"

static const struct course {
    const char *name, *about, *norm;
    bool constant, warmup;
} COURSE[] = {
    {"warmup", "warm-up, then 1/sqrt(step): the paper", "post", false, true},
    {"constant", "constant at the paper's peak", "post", true, false},
    {"none", "1/sqrt(step) without warm-up", "post", false, false},
    {"warmup-pre", "warm-up, norm before the sub-layer", "pre", false, true},
    {"constant-pre", "constant, norm before the sub-layer", "pre", true, false},
    {"none-pre", "without warm-up, norm before the sub-layer", "pre", false, false},
};
enum { COURSES = sizeof COURSE / sizeof *COURSE, POINTS = 256 };

static enum heed_status plan(struct heed_study *s, struct heed_error *err)
{
    const struct heed_train_options *o = &s->o.train;
    double paper = schedule_paper_peak(o->config.d_model, o->warmup);
    double peak = o->peak_lr > 0 ? (double)o->peak_lr : paper;
    double no_warmup = o->peak_lr > 0 ? peak * sqrt((double)o->warmup) : 0;
    enum heed_status st = HEED_OK;
    for (int i = 0; i < COURSES && !st; i++) {
        const struct course *c = &COURSE[i];
        st = study_add_row(s, i, c->name, err, "%s", c->about);
        if (st) return st;
        char *options = s->row[s->rows - 1].options;
        if (c->constant)
            snprintf(options, ROW_TEXT, "--norm %s --schedule constant --warmup 1 --lr %.9g",
                     c->norm, peak);
        else if (c->warmup)
            snprintf(options, ROW_TEXT, "--norm %s", c->norm);
        else
            snprintf(options, ROW_TEXT, "--norm %s --warmup 1 --lr %.9g", c->norm, no_warmup);
    }
    return st;
}

static enum heed_status compute(struct heed_study *s, const struct row *r, json_t *result,
                                bool *done, struct heed_error *err)
{
    return training_run(s, r, (struct training_saves){0}, result, done, err);
}

/* ---- report ---- */

/* The losses of a row over the steps; returns how many there are. */
static int loss_curve(const json_t *result, double *step, double *loss)
{
    const json_t *list = json_object_get(result, "loss");
    int n = 0;
    for (size_t i = 0; i < json_array_size(list) && n < POINTS; i++) {
        const json_t *point = json_array_get(list, i), *y = json_array_get(point, 1);
        step[n] = json_number_value(json_array_get(point, 0));
        loss[n++] = json_is_number(y) ? json_number_value(y) : NAN;
    }
    return n;
}

static double last_loss(const json_t *result)
{
    double step[POINTS], loss[POINTS];
    int n = loss_curve(result, step, loss);
    return n ? loss[n - 1] : NAN;
}

static void write_table(const struct heed_study *s, FILE *md)
{
    fputs("| row | learning rate | options | last training loss | perplexity | steps skipped | "
          "went back | diverged |\n|---|---|---|---|---|---|---|---|\n",
          md);
    for (int i = 0; i < s->rows; i++) {
        const struct row *r = &s->row[i];
        if (!r->result) continue;
        const char *why = json_string_value(json_object_get(r->result, "diverged"));
        fprintf(md, "| %s | %s | `%s` ", r->name, r->about, r->options);
        report_cell(md, last_loss(r->result), 3);
        report_cell(md, result_number(r->result, "perplexity"), 2);
        report_cell(md, result_number(r->result, "skipped"), 0);
        report_cell(md, result_number(r->result, "rollbacks"), 0);
        fprintf(md, "| %s |\n", why ? why : "no");
    }
    fputc('\n', md);
}

struct picture {
    double step[COURSES][POINTS], loss[COURSES][POINTS];
    struct curve curve[2][COURSES]; /* with the norm after and before the sub-layer */
    int n[2];
};

static enum heed_status draw(struct heed_study *s, FILE *md, struct heed_error *err)
{
    struct picture *p = calloc(1, sizeof *p);
    if (!p) return error_memory(err, sizeof *p, "a picture");
    for (int i = 0; i < s->rows; i++) {
        const struct course *c = &COURSE[s->row[i].number];
        bool pre = strcmp(c->norm, "pre") == 0;
        int n = loss_curve(s->row[i].result, p->step[i], p->loss[i]);
        if (n) p->curve[pre][p->n[pre]++] = (struct curve){c->name, p->step[i], p->loss[i], n};
    }
    struct curves panel[2];
    int panels = 0;
    for (int pre = 0; pre < 2; pre++) {
        if (!p->n[pre]) continue;
        panel[panels++] = (struct curves){.title = pre ? "Norm before the sub-layer"
                                                       : "Norm after the sub-layer (the paper)",
                                          .x_label = "step",
                                          .y_label = "training loss, nats a token, label-smoothed",
                                          .curve = p->curve[pre],
                                          .n = p->n[pre]};
    }
    enum heed_status st = panels ? report_curves(s, md, "loss.svg", panel, panels,
                                                 "Training loss with and without warm-up", err)
                                 : HEED_OK;
    free(p);
    return st;
}

static void write_finding(const struct heed_study *s, int with, int without, const char *which,
                          FILE *md)
{
    const json_t *a = s->row[with].result, *b = s->row[without].result;
    if (!a || !b) return;
    double x = result_number(a, "perplexity"), y = result_number(b, "perplexity");
    bool diverged = json_is_string(json_object_get(b, "diverged"));
    fprintf(md, "- %s: without warm-up training %s", which,
            diverged ? "diverged.\n" : "did not diverge; ");
    if (!diverged)
        fprintf(md, "its perplexity is %.2f beside %.2f with it, which is %s.\n", y, x,
                y > 1.02 * x   ? "worse"
                : x > 1.02 * y ? "better"
                               : "the same within 2%");
}

static enum heed_status report(struct heed_study *s, FILE *md, struct heed_error *err)
{
    fputs(
        "The paper (5.3) raises the learning rate over the first 4,000 of 100,000 steps and lets "
        "it fall with\nthe inverse square root of the step; it gives no figures without. Here "
        "three courses of the learning\nrate train the same model on the same batches. The trainer "
        "skips a step whose gradient is not finite or\nmore than ten times the usual norm, and "
        "goes "
        "back to its last checkpoint after five of them in a row,\nso that a run which would "
        "diverge "
        "may be saved: the table counts both.\n\n",
        md);
    write_table(s, md);
    write_finding(s, 0, 2, "Norm after the sub-layer (the paper)", md);
    write_finding(s, 3, 5, "Norm before the sub-layer", md);
    fputc('\n', md);
    return draw(s, md, err);
}

const struct experiment schedule_experiment = {
    .name = "schedule",
    .title = "Training with and without warm-up (paper 5.3)",
    .trains = true,
    .plan = plan,
    .settings = training_settings,
    .compute = compute,
    .finish = training_finish,
    .report = report,
};
