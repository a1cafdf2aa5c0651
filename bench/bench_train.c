/*
 * bench_train.c - one optimizer step of the paper's model, or of another form of it, timed on given
 * batches.
 *
 *     bench_train [--config small|base|big] [--precision f32|bf16] [--device DEVICE]
 *                 [--threads N] [--rounds N] [--trace] [--set FIELD=VALUE]... [BATCHES]
 *
 * --set: a field of config.json, as in --set norm=pre.
 * BATCHES: a batch a line, `source:target` lengths of its sentences. The work of a step is forward,
 * label-smoothed loss, backward and Adam, with dropout 0.1 on sub-layer outputs, embeddings and
 * attention weights. Prints mean milliseconds a step, target tokens/s, the share of the
 * arithmetic peak that the model's own operations reach, and the peak memory of the process; of a
 * device the memory in use. The peak is measured after each round: that of f32, or of bf16 where
 * AMX computes it. --rounds goes through the batches so often and prints a line for each.
 * --trace: then once more on a device, and prints what each op took.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "bench.h"
#include "cli/waiting.h"
#include "corpus/batch.h"
#include "model/flops.h"
#include "model/run.h"
#include "sets.h"
#include "train/optimizer.h"

struct work {
    struct packed *batch[BENCH_BATCHES];
    int n;
    int rows_src, rows_tgt, sentences; /* the most of any batch */
    double tokens, flops;              /* of all batches */
};

static void fill(struct heed_ids *ids, int n, const struct heed_config *c, uint64_t *state)
{
    if (n >= c->max_length)
        bench_die("a sentence has %d tokens, expected at most %d", n + 1, c->max_length);
    ids->n = n;
    ids->v = malloc((n + 1) * sizeof *ids->v);
    if (!ids->v) bench_die("out of memory");
    for (int i = 0; i < n; i++) ids->v[i] = 4 + (int32_t)random_below(state, c->vocab_size - 4);
}

/* Lengths count the marks, so a sentence gets one id less. */
static struct packed *fill_batch(const struct bench_batch *b, const struct heed_config *c,
                                 uint64_t *state)
{
    static struct heed_ids src[BENCH_SENTENCES], tgt[BENCH_SENTENCES];
    struct heed_error err;
    for (int i = 0; i < b->n; i++) {
        fill(&src[i], b->src[i] - 1, c, state);
        fill(&tgt[i], b->tgt[i] - 1, c, state);
    }
    struct packed *p = packed_make(src, tgt, b->n, 1, 2, &err);
    for (int i = 0; i < b->n; i++) free(src[i].v), free(tgt[i].v);
    if (!p) bench_die("%s", err.text);
    return p;
}

static void read_work(struct work *w, const char *path, const struct heed_config *c)
{
    static struct bench_batch list[BENCH_BATCHES];
    uint64_t state = 1;
    w->n = bench_read(list, path);
    for (int i = 0; i < w->n; i++) {
        struct packed *b = w->batch[i] = fill_batch(&list[i], c, &state);
        if (b->rows_src > w->rows_src) w->rows_src = b->rows_src;
        if (b->rows_tgt > w->rows_tgt) w->rows_tgt = b->rows_tgt;
        if (b->n > w->sentences) w->sentences = b->n;
        w->tokens += b->rows_tgt;
        w->flops += model_flops(c, b);
    }
}

/* next: the batch of the step after this one */
static double step(struct run *r, struct optimizer *opt, const struct packed *b,
                   const struct packed *next, int64_t n)
{
    struct heed_error err = {0};
    struct loss loss = {0};
    struct update u;
    struct loss_options o = {.label_smoothing = 0.1f,
                             .backward = true,
                             .dropout = true,
                             .seed = (uint64_t)n,
                             .experts = expert_training};
    r->be->op->zero(r->be, r->grad.p, r->p->n * type_size(r->grad.type));
    if (!r->next.n) run_ahead(r, b);
    run_loss_begin(r, &o);
    struct adam h = {1e-4, 0.9, 0.98, 1e-9, n, 1 / (double)b->rows_tgt, 0, 0};
    optimizer_begin(opt, r->grad, h);
    run_ahead(r, next);
    if (optimizer_done(opt, &u, &err) || run_loss_take(r, &loss, &err)) bench_die("%s", err.text);
    return loss.smoothed / (double)loss.tokens;
}

enum { SETS = 16 };

struct options {
    const char *config, *precision, *device, *path;
    int threads, rounds;
    bool trace;
    char *set[SETS + 1]; /* FIELD=VALUE; the last is NULL */
    int sets;
};

static struct options options_read(int argc, char **argv)
{
    struct options o = {.config = "base", .precision = "f32", .device = "cpu", .rounds = 1};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--trace"))
            o.trace = true;
        else if (!strcmp(argv[i], "--config") && i + 1 < argc)
            o.config = argv[++i];
        else if (!strcmp(argv[i], "--precision") && i + 1 < argc)
            o.precision = argv[++i];
        else if (!strcmp(argv[i], "--device") && i + 1 < argc)
            o.device = argv[++i];
        else if (!strcmp(argv[i], "--threads") && i + 1 < argc)
            o.threads = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--rounds") && i + 1 < argc)
            o.rounds = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--set") && i + 1 < argc && o.sets < SETS)
            o.set[o.sets++] = argv[++i];
        else
            o.path = argv[i];
    }
    return o;
}

/* The peak that a step is compared with; its rate is 0 where it is not known. */
struct peak {
    const char *name;
    double rate; /* GFLOP/s */
};

static struct peak peak_of(const struct options *o, bool bf16)
{
    struct bench_set set[2];
    if (strncmp(o->device, "cpu", 3)) return (struct peak){0};
    bench_sets(set, o->device[3] ? o->device + 4 : NULL);
    if (bf16 && set->isa.amx)
        return (struct peak){"bf16 peak of AMX", bench_peak_amx(o->threads, false)};
    return (struct peak){"f32 peak", bench_peak(o->threads)};
}

static void report(const struct options *o, const struct work *w, struct backend *be,
                   double seconds, struct peak peak, double loss)
{
    double reached = w->flops / seconds * 1e-9;
    printf("heed %s %s", o->config, o->precision);
    for (char *const *set = o->set; *set; set++) printf(" %s", *set);
    printf(": step %.2f ms  %.0f tgt tok/s  %.1f GFLOP/s", seconds / w->n * 1e3,
           w->tokens / seconds, reached);
    if (peak.rate > 0)
        printf(" (%.1f%% of the %s of %.1f)", 100 * reached / peak.rate, peak.name, peak.rate);
    printf("  peak memory %.0f MiB  loss %.3f\n", bench_memory(be), loss);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    double started = bench_now();
    struct options o = options_read(argc, argv);
    struct heed_error err = {0};
    struct heed_config c;
    static struct work w;
    if (heed_config_preset(&c, o.config, &err)) bench_die("%s", err.text);
    c.vocab_size = strcmp(o.config, "small") ? 37000 : 8000;
    c.dropout = c.attention_dropout = 0.1f;
    c.ff_dropout = 0;
    bench_set(&c, o.set);
    read_work(&w, o.path, &c);

    struct backend *be;
    struct parameters *p;
    struct run *r;
    struct optimizer *opt;
    struct precision precision = strcmp(o.precision, "bf16") ? precision_f32 : precision_bf16;
    struct run_options ro = {
        .rows_src = w.rows_src, .rows_tgt = w.rows_tgt, .sentences = w.sentences, .train = true};
    if (backend_open(&be, o.device, o.threads, &err) ||
        parameters_open(&p, be, &c, precision, &err) || parameters_init(p, 1, &err) ||
        run_open(&r, be, p, &ro, &err) || optimizer_open(&opt, p, NULL, &err))
        bench_die("%s", err.text);
    bool device = be->op->trace;
    int64_t n = 0;
    double loss = 0;
    for (int i = 0; i < 6; i++) {
        step(r, opt, w.batch[i % 4 % w.n], w.batch[i == 5 ? 0 : (i + 1) % 4 % w.n], ++n);
        if (device && i == 0) printf("first step after %.2f s\n", bench_now() - started);
    }
    for (int round = 0; round < o.rounds; round++) {
        double began = bench_now();
        for (int i = 0; i < w.n; i++) loss = step(r, opt, w.batch[i], w.batch[(i + 1) % w.n], ++n);
        double seconds = bench_now() - began;
        report(&o, &w, be, seconds, peak_of(&o, precision.act == TYPE_BF16), loss);
    }
    if (o.trace && device) {
        struct bench_ceilings top = bench_measure(be);
        be->op->trace(be, NULL, 0);
        for (int i = 0; i < w.n; i++) step(r, opt, w.batch[i], w.batch[(i + 1) % w.n], ++n);
        bench_table(be, top, w.n);
    }
    optimizer_free(opt);
    run_free(r);
    parameters_free(p);
    be->op->close(be);
    for (int i = 0; i < w.n; i++) packed_free(w.batch[i]);
    return 0;
}
