/*
 * length.c - sentences longer than those of training, for each kind of position (paper 3.5 hopes
 * that sinusoids extrapolate).
 *
 * Models are trained on pairs of which no sentence has more than L tokens (--train-length), and are
 * scored on the test text in buckets: up to L tokens, L to 2 L, and so on. The length of a pair is
 * that of its longer side.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "paper/report.h"
#include "paper/training.h"

/* Longer texts are translated sentence by sentence, which would hide what is measured. */
enum { LONGEST = 100, LENGTH = 25, BUCKETS = 4 };

static const char *const KIND[] = {"sinusoid", "learned", "rope", "relative", "alibi", "none"};
enum { KINDS = sizeof KIND / sizeof *KIND };

static enum heed_status plan(struct heed_study *s, struct heed_error *err)
{
    struct heed_train_options *o = &s->o.train;
    if (!o->train_length) o->train_length = LENGTH;
    if (o->train_length > LONGEST / 2)
        return error_set(err, HEED_EARG,
                         "--train-length is %d, expected at most %d, so that there are longer "
                         "sentences that are translated in one piece",
                         o->train_length, LONGEST / 2);
    enum heed_status st = HEED_OK;
    for (int i = 0; i < KINDS && !st; i++) {
        st = study_add_row(s, i, KIND[i], err, "--position %s, trained on at most %d tokens",
                           KIND[i], o->train_length);
        if (!st) snprintf(s->row[i].options, ROW_TEXT, "--position %s", KIND[i]);
    }
    return st;
}

/* ---- buckets ---- */

/* The numbers of the sentences of each bucket. */
struct buckets {
    int *index[BUCKETS], n[BUCKETS];
    int count; /* that there are */
};

static enum heed_status tokens_of(const struct heed_tokenizer *t, const char *text, int *tokens,
                                  struct heed_error *err)
{
    struct heed_ids ids = {0};
    enum heed_status st = heed_encode(t, text, strlen(text), &ids, err);
    *tokens = (int)ids.n + 1; /* the end mark */
    free(ids.v);
    return st;
}

static void buckets_release(struct buckets *b)
{
    for (int i = 0; i < BUCKETS; i++) free(b->index[i]);
}

static enum heed_status buckets_fill(struct buckets *b, const struct heed_study *s,
                                     const struct heed_tokenizer *tokenizer,
                                     const struct test_text *t, struct heed_error *err)
{
    int length = s->o.train.train_length;
    enum heed_status st = HEED_OK;
    *b = (struct buckets){.count = LONGEST / length < BUCKETS ? LONGEST / length : BUCKETS};
    for (int i = 0; i < b->count && !st; i++) {
        b->index[i] = malloc((size_t)t->n * sizeof *b->index[i]);
        if (!b->index[i]) st = error_memory(err, (size_t)t->n * sizeof *b->index[i], "buckets");
    }
    for (int i = 0; i < t->n && !st; i++) {
        int src = 0, ref = 0;
        st = tokens_of(tokenizer, t->src[i], &src, err);
        if (!st) st = tokens_of(tokenizer, t->ref[i], &ref, err);
        int at = ((src > ref ? src : ref) - 1) / length;
        if (!st && at < b->count) b->index[at][b->n[at]++] = i;
    }
    return st;
}

static enum heed_status score_buckets(struct heed_study *s, const struct heed_model *m,
                                      json_t *list, bool *done, struct heed_error *err)
{
    struct test_text t = {0};
    struct buckets b = {0};
    int length = s->o.train.train_length;
    struct heed_session *session = heed_session_open(m, NULL, err);
    if (!session) return err->status;
    enum heed_status st = test_text_read(&t, s, err);
    if (!st) st = buckets_fill(&b, s, heed_model_tokenizer(m), &t, err);
    *done = !st;
    for (int i = 0; i < b.count && !st && *done; i++) {
        struct test_scores x = {0};
        if (!b.n[i]) continue;
        st = test_score(s, session, &t, b.index[i], b.n[i], &x, done, err);
        json_t *bucket = json_pack("{si si si}", "from", i * length + 1, "to", (i + 1) * length,
                                   "sentences", b.n[i]);
        result_set(bucket, "nll", x.nll);
        result_set(bucket, "bleu", x.bleu.value);
        result_set(bucket, "chrf", x.chrf.value);
        json_object_set_new(bucket, "signature", json_string(x.bleu.signature));
        json_array_append_new(list, bucket);
    }
    heed_session_free(session);
    buckets_release(&b);
    test_text_release(&t);
    return st;
}

static enum heed_status compute(struct heed_study *s, const struct row *r, json_t *result,
                                bool *done, struct heed_error *err)
{
    char dir[FILE_PATH_MAX];
    enum heed_status st = training_run(s, r, (struct training_saves){0}, result, done, err);
    bool diverged = json_is_string(json_object_get(result, "diverged"));
    if (st || !*done || diverged) return st;
    *done = false;
    st = training_model_dir(s, r, dir, err);
    if (st) return st;
    struct heed_model *m = heed_model_load(s->engine, dir, HEED_WEIGHTS_AS_STORED, err);
    if (!m) return err->status;
    json_t *list = json_array();
    st = score_buckets(s, m, list, done, err);
    json_object_set_new(result, "buckets", list);
    heed_model_free(m);
    return st;
}

/* ---- report ---- */

static const json_t *bucket_of(const struct row *r, int i)
{
    return json_array_get(json_object_get(r->result, "buckets"), (size_t)i);
}

/* A row that has buckets; they have the same sentences in all rows. NULL: none has. */
static const struct row *first_scored(const struct heed_study *s)
{
    for (int i = 0; i < s->rows; i++)
        if (bucket_of(&s->row[i], 0)) return &s->row[i];
    return NULL;
}

static int bucket_count(const struct row *r)
{
    return (int)json_array_size(json_object_get(r->result, "buckets"));
}

static void write_table(const struct heed_study *s, const struct row *like, const char *key,
                        const char *what, int decimals, FILE *md)
{
    int n = bucket_count(like);
    fprintf(md, "| %s |", what);
    for (int i = 0; i < n; i++) {
        const json_t *b = bucket_of(like, i);
        fprintf(md, " %.0f to %.0f tokens (%.0f) |", result_number(b, "from"),
                result_number(b, "to"), result_number(b, "sentences"));
    }
    fputs("\n|---|", md);
    for (int i = 0; i < n; i++) fputs("---|", md);
    fputc('\n', md);
    for (int i = 0; i < s->rows; i++) {
        const struct row *r = &s->row[i];
        if (!r->result) continue;
        fprintf(md, "| %s ", r->name);
        for (int k = 0; k < n; k++) report_cell(md, result_number(bucket_of(r, k), key), decimals);
        fputs("|\n", md);
    }
    fputc('\n', md);
}

static enum heed_status draw(struct heed_study *s, const struct row *like, FILE *md,
                             struct heed_error *err)
{
    double at[BUCKETS], nll[KINDS][BUCKETS], bleu[KINDS][BUCKETS];
    struct curve loss[KINDS], score[KINDS];
    int n = bucket_count(like), rows = 0;
    for (int k = 0; k < n; k++) at[k] = result_number(bucket_of(like, k), "to");
    for (int i = 0; i < s->rows; i++) {
        const struct row *r = &s->row[i];
        if (!bucket_of(r, 0)) continue;
        for (int k = 0; k < n; k++) {
            nll[rows][k] = result_number(bucket_of(r, k), "nll");
            bleu[rows][k] = result_number(bucket_of(r, k), "bleu");
        }
        loss[rows] = (struct curve){r->name, at, nll[rows], n};
        score[rows] = (struct curve){r->name, at, bleu[rows], n};
        rows++;
    }
    const struct curves panel[] = {
        {.title = "Loss of the references",
         .x_label = "tokens of the longer side, at most",
         .y_label = "-log p, nats a token",
         .points = true,
         .curve = loss,
         .n = rows},
        {.title = "BLEU",
         .x_label = "tokens of the longer side, at most",
         .y_label = "BLEU",
         .y_zero = true,
         .points = true,
         .curve = score,
         .n = rows},
    };
    char heading[128];
    snprintf(heading, sizeof heading, "Beyond the trained length of %d tokens",
             s->o.train.train_length);
    return report_curves(s, md, "length.svg", panel, 2, heading, err);
}

static void write_findings(const struct heed_study *s, const struct row *like, FILE *md)
{
    int last = bucket_count(like) - 1;
    const struct row *best = NULL;
    double least = INFINITY;
    if (last < 1) return;
    for (int i = 0; i < s->rows; i++) {
        double nll = result_number(bucket_of(&s->row[i], last), "nll");
        if (nll < least) {
            least = nll;
            best = &s->row[i];
        }
    }
    fputs("From the first to the last bucket the loss grows by", md);
    const char *comma = " ";
    for (int i = 0; i < s->rows; i++) {
        const struct row *r = &s->row[i];
        double growth =
            result_number(bucket_of(r, last), "nll") - result_number(bucket_of(r, 0), "nll");
        if (!isfinite(growth)) continue;
        fprintf(md, "%s%.2f (%s)", comma, growth, r->name);
        comma = ", ";
    }
    fputs(".\n", md);
    if (best)
        fprintf(md, "The least loss on the longest sentences has `--position %s`, %.2f.\n",
                best->name, least);
    const json_t *base = bucket_of(&s->row[0], 0), *far = bucket_of(&s->row[0], last);
    if (base && far)
        fprintf(
            md,
            "Sinusoids, which the paper chose because they may extrapolate, go from %.1f to %.1f "
            "BLEU.\n",
            result_number(base, "bleu"), result_number(far, "bleu"));
    fputc('\n', md);
}

static enum heed_status report(struct heed_study *s, FILE *md, struct heed_error *err)
{
    const struct row *like = first_scored(s);
    fprintf(
        md,
        "The paper (3.5) chose sinusoids over learned positions, with nearly the same BLEU, "
        "because they may\nlet the model extrapolate to sentences longer than those of training. "
        "Here each model is trained on\npairs of at most %d tokens a side and scored on the test "
        "text by the length of the longer side\n(number of sentences in parentheses); pairs of "
        "more than %d tokens are left out.\n\n",
        s->o.train.train_length, LONGEST);
    if (!like) return HEED_OK;
    write_table(s, like, "nll", "loss", 3, md);
    write_table(s, like, "bleu", "BLEU", 2, md);
    write_findings(s, like, md);
    return draw(s, like, md, err);
}

const struct experiment length_experiment = {
    .name = "length",
    .title = "Sentences longer than those of training",
    .trains = true,
    .plan = plan,
    .settings = training_settings,
    .compute = compute,
    .finish = training_finish,
    .report = report,
};
