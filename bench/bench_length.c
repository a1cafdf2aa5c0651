/*
 * bench_length.c - how time and memory grow with the length n of a sentence.
 *
 *     bench_length [--config tiny|small|base|big] [--precision f32|bf16] [--device DEVICE]
 *                  [--threads N] [--name NAME] [--from N] [--to N] [--short N]
 *                  [--set FIELD=VALUE]...
 *
 * For n = from, 2 from, ... to (256 to 2,048) a line of numbers between tabs:
 *
 *   name, n
 *   step     milliseconds of an optimizer step on two pairs: n source tokens with a short target
 *            (--short, 256 tokens), and a short source with n target tokens
 *   run      MiB that the run of such a step allocates: activations, gradients, scratch
 *   process  MiB of the peak of this process, or of the device in use, during that step
 *   token    milliseconds of a decoding step at position n, with a short source
 *   cache    MiB of the KV cache of one hypothesis at position n
 *
 * The other side is short because attention between n source and n target tokens takes n^2 weights
 * for every kind but linear; --short 0 measures one pair of n and n tokens. Times are the best of a
 * few. --set: a field of config.json, as in --set attention=linear; max_length is n.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/minmax.h"
#include "bench.h"
#include "corpus/batch.h"
#include "model/run.h"
#include "train/optimizer.h"

enum { SETS = 16, MIB = 1 << 20 };

struct options {
    const char *config, *precision, *device, *name;
    int threads, from, to, few;
    char *set[SETS + 1]; /* FIELD=VALUE; the last is NULL */
    int sets;
};

static struct options options_read(int argc, char **argv)
{
    struct options o = {.config = "tiny",
                        .precision = "f32",
                        .device = "cpu",
                        .name = "paper",
                        .from = 256,
                        .to = 2048,
                        .few = 256};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--config"))
            o.config = argv[i + 1];
        else if (!strcmp(argv[i], "--precision"))
            o.precision = argv[i + 1];
        else if (!strcmp(argv[i], "--device"))
            o.device = argv[i + 1];
        else if (!strcmp(argv[i], "--name"))
            o.name = argv[i + 1];
        else if (!strcmp(argv[i], "--threads"))
            o.threads = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--from"))
            o.from = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--to"))
            o.to = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--short"))
            o.few = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--set") && o.sets < SETS)
            o.set[o.sets++] = argv[i + 1];
        else
            bench_die("no option %s", argv[i]);
    }
    return o;
}

/* ---- bytes that are allocated ---- */

/* A copy of the backend's table of ops, in which alloc counts. It is global because a backend has
 * no room for more. */
static struct ops counting;
static const struct ops *uncounted;
static size_t allocated;

static enum heed_status alloc_counted(struct backend *be, void **p, size_t bytes, enum use use,
                                      struct heed_error *err)
{
    allocated += bytes;
    return uncounted->alloc(be, p, bytes, use, err);
}

static void count_allocations(struct backend *be)
{
    uncounted = be->op;
    counting = *be->op;
    counting.alloc = alloc_counted;
    be->op = &counting;
}

/* ---- one length ---- */

struct model {
    struct backend *be;
    struct parameters *p;
    struct packed *pairs, *source; /* what is trained on, and a source to decode from */
    int n;
};

/* n - 1 ids, to which a mark is added */
static struct heed_ids ids_draw(int n, int vocab)
{
    uint64_t seed = 1;
    struct heed_ids ids = {.n = n - 1, .v = malloc(n * sizeof *ids.v)};
    if (!ids.v) bench_die("out of memory");
    for (int i = 0; i < n - 1; i++) ids.v[i] = 4 + (int32_t)random_below(&seed, vocab - 4);
    return ids;
}

/* `few` tokens on the other side of n; 0: n. */
static void batches_make(struct model *m, int n, int few, int vocab)
{
    struct heed_error err = {0};
    struct heed_ids a[] = {ids_draw(n, vocab), ids_draw(few ? few : n, vocab)}, b[] = {a[1], a[0]};
    m->pairs = packed_make(a, b, few ? 2 : 1, 1, 2, &err);
    m->source = packed_make(b, NULL, 1, 1, 2, &err);
    if (!m->pairs || !m->source) bench_die("%s", err.text);
    free(a[0].v);
    free(a[1].v);
}

static void model_open(struct model *m, const struct options *o, int n)
{
    struct heed_error err = {0};
    struct heed_config c;
    struct precision precision = strcmp(o->precision, "bf16") ? precision_f32 : precision_bf16;
    if (heed_config_preset(&c, o->config, &err)) bench_die("%s", err.text);
    c.vocab_size = 8000;
    bench_set(&c, o->set);
    c.max_length = int_max(n, o->few);
    if (heed_config_check(&c, &err)) bench_die("%s", err.text);
    m->n = n;
    if (backend_open(&m->be, o->device, o->threads, &err)) bench_die("%s", err.text);
    count_allocations(m->be);
    if (parameters_open(&m->p, m->be, &c, precision, &err) || parameters_init(m->p, 1, &err))
        bench_die("%s", err.text);
    batches_make(m, n, o->few, c.vocab_size);
}

static void model_close(struct model *m)
{
    packed_free(m->pairs);
    packed_free(m->source);
    parameters_free(m->p);
    m->be->op->close(m->be);
}

/* Seconds of the fastest of some calls: one to warm up, then at least two and for a second. */
static double fastest(void (*call)(void *of), void *of)
{
    double best = 0, until = 0;
    for (int i = 0; i < 3 || bench_now() < until; i++) {
        double began = bench_now();
        call(of);
        double took = bench_now() - began;
        if (i == 0) until = bench_now() + 1;
        if (i == 1 || (i > 1 && took < best)) best = took;
    }
    return best;
}

/* ---- training ---- */

struct training {
    struct run *run;
    struct optimizer *optimizer;
    const struct packed *pairs;
    int64_t steps;
};

static void train_step(void *of)
{
    struct training *t = of;
    struct run *r = t->run;
    struct heed_error err = {0};
    struct loss loss = {0};
    struct update u;
    struct loss_options o = {.label_smoothing = 0.1f,
                             .backward = true,
                             .dropout = true,
                             .seed = (uint64_t)++t->steps,
                             .experts = expert_training};
    struct adam h = {1e-4, 0.9, 0.98, 1e-9, t->steps, 1 / (double)t->pairs->rows_tgt, 0, 0};
    r->be->op->zero(r->be, r->grad.p, r->p->n * type_size(r->grad.type));
    run_ahead(r, t->pairs);
    run_loss_begin(r, &o);
    optimizer_begin(t->optimizer, r->grad, h);
    if (optimizer_done(t->optimizer, &u, &err) || run_loss_take(r, &loss, &err))
        bench_die("%s", err.text);
}

static void measure_training(const struct model *m)
{
    struct heed_error err = {0};
    struct run_options o = {.rows_src = m->pairs->rows_src,
                            .rows_tgt = m->pairs->rows_tgt,
                            .sentences = m->pairs->n,
                            .train = true};
    struct training t = {.pairs = m->pairs};
    allocated = 0;
    if (run_open(&t.run, m->be, m->p, &o, &err)) bench_die("%s", err.text);
    double run = (double)allocated / MIB;
    if (optimizer_open(&t.optimizer, m->p, NULL, &err)) bench_die("%s", err.text);
    double seconds = fastest(train_step, &t);
    printf("\t%.3f\t%.2f\t%.1f", seconds * 1e3, run, bench_memory(m->be));
    fflush(stdout);
    optimizer_free(t.optimizer);
    run_free(t.run);
}

/* ---- decoding ---- */

struct decoding {
    struct run *run;
    struct step step;
};

static void decode_step(void *of)
{
    struct decoding *d = of;
    struct heed_error err = {0};
    int32_t id;
    float score;
    if (run_step(d->run, &d->step, 1, &id, &score, &err)) bench_die("%s", err.text);
}

/* The step at the last position of a hypothesis whose earlier positions are zeros in the cache. */
static void measure_decoding(const struct model *m)
{
    const struct heed_config *c = &m->p->config;
    struct heed_error err = {0};
    struct decoding d;
    struct cache cache = {0};
    int rows = int_min(m->n, kv_cache_positions(c));
    size_t bytes = 0;
    struct run_options o = {.rows_src = m->source->rows_src,
                            .rows_tgt = 1,
                            .sentences = 1,
                            .candidates = 1,
                            .cached = rows};
    if (run_open(&d.run, m->be, m->p, &o, &err)) bench_die("%s", err.text);
    for (int l = 0; l < c->decoder_layers; l++) {
        struct mat *layer = &cache.layer[l];
        *layer = kv_cache_rows(c, &m->p->precision, NULL, rows + 1); /* one for padding */
        size_t row = layer->cols * type_size(layer->type);
        if (m->be->op->alloc(m->be, &layer->p, row * layer->rows, USED_WHOLE, &err))
            bench_die("%s", err.text);
        m->be->op->zero(m->be, layer->p, row * layer->rows);
        bytes += row * rows;
    }
    int32_t *list = malloc(rows * sizeof *list), first[] = {0, 1}, zero = 0,
            source = m->source->rows_src;
    int32_t position = m->n - 1, last = rows - 1, before = rows > 1 ? rows - 2 : 0, id = 4;
    if (!list) bench_die("out of memory");
    for (int i = 0; i < rows; i++) list[i] = i;
    d.step = (struct step){.sentences = 1,
                           .first = first,
                           .memory = &zero,
                           .memory_len = &source,
                           .state = &zero,
                           .width = 1,
                           .id = &id,
                           .pos = &position,
                           .cache = &cache,
                           .cache_at = &last,
                           .cache_before = &before,
                           .self = &zero,
                           .self_len = &rows,
                           .self_at = list,
                           .self_rows = rows};
    if (run_encode(d.run, m->source, (struct memory_place){0}, &err)) bench_die("%s", err.text);
    double seconds = fastest(decode_step, &d);
    printf("\t%.4f\t%.4f\n", seconds * 1e3, (double)bytes / MIB);
    fflush(stdout);
    for (int l = 0; l < c->decoder_layers; l++) m->be->op->free(m->be, cache.layer[l].p);
    free(list);
    run_free(d.run);
}

int main(int argc, char **argv)
{
    struct options o = options_read(argc, argv);
    if (o.from < 2 || o.to < o.from || o.few < 0 || o.few == 1)
        bench_die("--from, --to and --short are %d, %d and %d", o.from, o.to, o.few);
    for (int n = o.from; n <= o.to; n *= 2) {
        struct model m;
        model_open(&m, &o, n);
        printf("%s\t%d", o.name, n);
        measure_training(&m);
        measure_decoding(&m);
        model_close(&m);
    }
    return 0;
}
