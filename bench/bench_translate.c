/*
 * bench_translate.c - translation with the paper's model, timed at fixed lengths.
 *
 *     bench_translate [--config small|base|big] [--vocab N] [--weights f32|bf16|int8]
 *                     [--device DEVICE] [--threads N] [--beam N] [--batch N] [--paced] [--trace]
 *
 * From ids to ids with random weights; the vocabulary has 32,000 pieces, or N. Sources have 28
 * tokens, their end mark included, outputs exactly 32: the end mark is not allowed before there are
 * 32 (min_length), and there the output is cut (longest). Prints a line for each beam and batch,
 * without those options for beams 1 and 4 and batches 1, 8 and 32: milliseconds of the best batch,
 * output tokens/s, and the peak memory of the process by then, without what drawing the weights
 * took.
 *
 * --trace: before that, what each op takes on a device.
 *
 * --paced translates a batch for each line of the standard input and prints its milliseconds, so
 * that several processes can be measured at once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bench.h"
#include "cli/waiting.h"
#include "decode/search.h"
#include "store/weights.h"

enum { SOURCE = 28, OUTPUT = 32, BATCH_MAX = 1024, RUNS = 5 };
enum { BOS = 1, EOS = 2, FIRST_WORD = 4 };

struct options {
    const char *config, *weights, *device;
    int threads, beam, batch; /* 0: all cores, the usual beams, the usual batches */
    int vocab;
    bool paced, trace;
};

/* A search and what it translates. */
struct work {
    struct search *search;
    int n;
    struct sentence sentence[BATCH_MAX];
    struct translation out[BATCH_MAX];
    int32_t ids[BATCH_MAX][SOURCE - 1];
};

static void options_read(struct options *o, char **argv)
{
    for (int i = 1; argv[i]; i++) {
        const char *value = argv[i + 1];
        if (!strcmp(argv[i], "--paced") || !strcmp(argv[i], "--trace")) {
            *(argv[i][2] == 'p' ? &o->paced : &o->trace) = true;
            continue;
        }
        if (!value) bench_die("%s is no option, or has no value", argv[i]);
        if (!strcmp(argv[i], "--config"))
            o->config = value;
        else if (!strcmp(argv[i], "--weights"))
            o->weights = value;
        else if (!strcmp(argv[i], "--device"))
            o->device = value;
        else if (!strcmp(argv[i], "--vocab"))
            o->vocab = atoi(value);
        else if (!strcmp(argv[i], "--threads"))
            o->threads = atoi(value);
        else if (!strcmp(argv[i], "--beam"))
            o->beam = atoi(value);
        else if (!strcmp(argv[i], "--batch"))
            o->batch = atoi(value);
        else
            bench_die("%s is no option", argv[i]);
        i++;
    }
    if (o->beam < 0 || o->beam > BEAM_MAX)
        bench_die("beam is %d, expected 1 to %d", o->beam, BEAM_MAX);
    if (o->batch < 0 || o->batch > BATCH_MAX)
        bench_die("batch is %d, expected 1 to %d", o->batch, BATCH_MAX);
}

/* Resets the peak memory of the process; where the kernel cannot do that, it counts from the start.
 */
static void peak_reset(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (!f) return;
    fputs("5", f);
    fclose(f);
}

static enum type type_named(const char *weights)
{
    if (!strcmp(weights, "f32")) return TYPE_PACKED_F32;
    if (!strcmp(weights, "bf16")) return TYPE_PACKED_BF16;
    if (!strcmp(weights, "int8")) return TYPE_PACKED_I8;
    bench_die("weights are %s, expected f32, bf16 or int8", weights);
}

/* Writes random weights to a file, from which they are loaded like any others. */
static struct parameters *weights_open(struct backend *be, const struct heed_config *c,
                                       const struct options *o)
{
    struct heed_error err;
    struct parameters *p;
    char path[] = "/tmp/bench_translate-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0) bench_die("cannot make %s: %s", path, strerror(errno));
    close(fd);
    if (parameters_open(&p, be, c, precision_f32, &err) || parameters_init(p, 1, &err) ||
        weights_save(p, &(struct flat){.prefix = "", .m = p->master}, 1, path, &err))
        bench_die("%s", err.text);
    parameters_free(p);
    double began = bench_now();
    peak_reset();
    if (weights_open_packed(&p, be, c, type_named(o->weights), path, &err))
        bench_die("%s", err.text);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    if (!o->paced)
        printf("loaded in %.3f s, peak memory %.0f MiB\n", bench_now() - began,
               (double)usage.ru_maxrss / 1024);
    unlink(path);
    return p;
}

static void work_open(struct work *w, const struct parameters *p, int beam, int batch)
{
    struct heed_error err;
    struct search_options o = {.bos = BOS, .eos = EOS, .rows = beam * batch};
    uint64_t state = 1;
    if (search_open(&w->search, p->be, p, &o, &err)) bench_die("%s", err.text);
    w->n = batch;
    for (int i = 0; i < batch; i++) {
        w->sentence[i] = (struct sentence){
            .src = {w->ids[i], SOURCE - 1, 0},
            .beam = {.width = beam, .nbest = 1, .length_penalty = 0.6f, .min_length = OUTPUT},
            .longest = OUTPUT,
            .out = &w->out[i]};
        for (int k = 0; k < SOURCE - 1; k++)
            w->ids[i][k] =
                FIRST_WORD + (int32_t)random_below(&state, p->config.vocab_size - FIRST_WORD);
    }
}

/* Seconds of one batch. */
static double translate(struct work *w)
{
    struct translation *out = w->out;
    struct heed_error err;
    double began = bench_now();
    if (search_run(w->search, w->sentence, w->n, &err)) bench_die("%s", err.text);
    double seconds = bench_now() - began;
    for (int i = 0; i < w->n; i++) {
        if (out[i].ids.n != OUTPUT || out[i].ended)
            bench_die("an output has %zu tokens, expected %d", out[i].ids.n, OUTPUT);
        translation_release(&out[i]);
    }
    return seconds;
}

/* Whether to go on: after `runs` batches, or as long as lines come. */
static bool go_on(const struct options *o, int runs)
{
    if (!o->paced) return runs < RUNS;
    int c = getchar();
    while (c != '\n' && c != EOF) c = getchar();
    return c == '\n';
}

static void measure(const struct options *o, const struct parameters *p, int beam, int batch)
{
    static struct work w;
    struct rusage usage;
    double best = 0;
    work_open(&w, p, beam, batch);
    struct backend *be = p->be;
    bool trace = o->trace && be->op->trace;
    for (int i = 0; i < 2 && trace; i++) {
        struct bench_ceilings top = bench_measure(be);
        be->op->trace(be, NULL, 0);
        translate(&w);
        if (i)
            bench_table(be, top, 1);
        else
            be->op->trace(be, (struct op_time[1]){0}, 0);
    }
    translate(&w);
    if (o->paced) puts("ready"), fflush(stdout);
    for (int i = 0; go_on(o, i); i++) {
        double seconds = translate(&w);
        if (i == 0 || seconds < best) best = seconds;
        if (o->paced) printf("%.3f\n", seconds * 1e3), fflush(stdout);
    }
    getrusage(RUSAGE_SELF, &usage);
    search_free(w.search);
    printf("heed %s %s, %d threads, beam %d, batch %2d: %8.2f ms  %6.0f output tok/s  "
           "peak memory %.0f MiB\n",
           o->config, o->weights, o->threads ? o->threads : omp_get_num_procs(), beam, batch,
           best * 1e3, best > 0 ? batch * OUTPUT / best : 0, (double)usage.ru_maxrss / 1024);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    (void)argc;
    static const int beams[] = {1, 4}, batches[] = {1, 8, 32};
    struct options o = {.config = "base", .weights = "f32", .device = "cpu", .vocab = 32000};
    options_read(&o, argv);

    struct heed_error err;
    struct heed_config c;
    struct backend *be;
    struct parameters *p;
    if (heed_config_preset(&c, o.config, &err)) bench_die("%s", err.text);
    c.vocab_size = o.vocab;
    if (backend_open(&be, o.device, o.threads, &err)) bench_die("%s", err.text);
    p = weights_open(be, &c, &o);
    for (int i = 0; i < (o.batch ? 1 : 3); i++)
        for (int k = 0; k < (o.beam ? 1 : 2); k++)
            measure(&o, p, o.beam ? o.beam : beams[k], o.batch ? o.batch : batches[i]);
    parameters_free(p);
    be->op->close(be);
    return 0;
}
