/*
 * cluster_model.c - predicts the step time of a training by many ranks.
 *
 *   cluster_model [--NAME VALUE]...     see OPTION below for names, units and defaults
 *
 * Each rank computes a batch of its own size in `step` ms; what is predicted is what the exchange
 * of train/exchange.c adds to it. With N ranks, g of them on each of H hosts:
 *
 *   1. gradients: each rank sends (N-1)/N of them to their owners, span by span. A span is sent
 * when backward has passed it, so a part of the time is hidden behind the backward of the rank's
 * last shard; the embeddings, which backward reaches last, never are;
 *   2. a report: one small message to each rank, with the loss and the norm of the gradient;
 *   3. parameters: each owner sends its slice to all others. Nothing is hidden.
 *
 * The time of a span is that of the slowest of three links, which all work at once: those inside a
 * host, a rank's own between hosts, and a host's that its ranks share; and a cost for each message.
 * Large messages ask before they are sent, so the latency counts three times in 1 and 3, once in 2.
 *
 * --levels 2 predicts an exchange that does not exist yet: sums inside each host first, so that 1/g
 * as many bytes leave it. Ranks of a host have consecutive shards, and so the tree of sums, and
 * with it every bit, would stay the same.
 *
 * docs/cluster.md compares predictions with measurements by cluster_link.sh.
 */
#include "bench.h"
#include "model/parameters.h"

struct setting {
    double step, tokens, backward, units, idle; /* of one rank */
    double vocab, gradient, parameter;          /* of the model */
    double per_host, levels, overlap;           /* of the exchange */
    double inside, between, host, message;      /* of the links */
    double latency_inside, latency_between;
    const char *preset, *ranks;
};

struct option {
    const char *name, *help;
    size_t at; /* in struct setting */
    bool text;
};

#define NUMBER(member) offsetof(struct setting, member), false
#define TEXT(member)   offsetof(struct setting, member), true
static const struct option OPTION[] = {
    {"preset", "model", TEXT(preset)},
    {"vocab", "pieces of its vocabulary", NUMBER(vocab)},
    {"gradient", "bytes of an element of the gradient as it is sent", NUMBER(gradient)},
    {"parameter", "bytes of a parameter as it is sent", NUMBER(parameter)},
    {"step", "ms that a rank computes in a step", NUMBER(step)},
    {"tokens", "target tokens of that step", NUMBER(tokens)},
    {"backward", "part of that time which is backward", NUMBER(backward)},
    {"units", "shards of a rank; only the last one's backward hides the exchange", NUMBER(units)},
    {"idle", "ms that a step waits for the slowest rank", NUMBER(idle)},
    {"ranks", "numbers of ranks, separated by commas", TEXT(ranks)},
    {"per-host", "ranks on a host", NUMBER(per_host)},
    {"levels", "2: sums inside a host before those between hosts", NUMBER(levels)},
    {"overlap", "speed of the exchange during backward, 0 (nothing moves) to 1 (full)",
     NUMBER(overlap)},
    {"inside", "GB/s that a rank sends inside its host", NUMBER(inside)},
    {"between", "GB/s that a rank sends to other hosts", NUMBER(between)},
    {"host", "GB/s that all ranks of a host send to others together; 0: no limit", NUMBER(host)},
    {"message", "microseconds of work for each message", NUMBER(message)},
    {"latency-inside", "microseconds inside a host", NUMBER(latency_inside)},
    {"latency-between", "microseconds between hosts", NUMBER(latency_between)},
};
enum { OPTIONS = sizeof OPTION / sizeof *OPTION };

/* One H200: docs/performance.md. NVLink 4 and a 400 Gb/s adapter for each GPU. */
static const struct setting DEFAULT = {
    .preset = "base",
    .vocab = 37000,
    .gradient = 4,
    .parameter = 4,
    .step = 22.4,
    .tokens = 25000,
    .backward = 0.63,
    .units = 1,
    .ranks = "8,16,32,64,128,256",
    .per_host = 8,
    .levels = 1,
    .overlap = 1,
    .inside = 450,
    .between = 50,
    .message = 5,
    .latency_inside = 5,
    .latency_between = 10,
};

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* ---- the exchange ---- */

struct job {
    const struct setting *s;
    double ranks, hosts, per_host;
};

/* Seconds in which all ranks exchange the slices of `bytes` bytes. */
static double exchange(const struct job *j, double bytes)
{
    const struct setting *s = j->s;
    double g = j->per_host, in, out, messages;
    if (s->levels > 1) {
        in = bytes * (g - 1) / g;
        out = bytes / g * (j->hosts - 1) / j->hosts;
        messages = g - 1 + j->hosts - 1;
    } else {
        in = bytes * (g - 1) / j->ranks;
        out = bytes * (j->ranks - g) / j->ranks;
        messages = j->ranks - 1;
    }
    double within = in / (s->inside * 1e9), across = out / (s->between * 1e9);
    if (s->host > 0) across = larger(across, out * g / (s->host * 1e9));
    double links = s->levels > 1 ? within + across : larger(within, across);
    return links + messages * s->message * 1e-6;
}

static double latency(const struct job *j)
{
    double inside = j->s->latency_inside, between = j->s->latency_between;
    if (j->hosts == 1) return inside * 1e-6;
    return (j->s->levels > 1 ? inside + between : between) * 1e-6;
}

/* When something that takes `work` seconds of the link is done that begins at `from`: until
 * `backward` ends the link does `overlap` of its work. */
static double finish(double from, double work, double backward, double overlap)
{
    double before = larger(0, backward - from) * overlap;
    if (work <= before) return from + work / overlap;
    return larger(from, backward) + work - before;
}

struct prediction {
    double hidden, gradients, report, parameters; /* seconds; all but `hidden` are waited for */
    double step;
};

static struct prediction predict(const struct job *j, const struct span *span, int spans)
{
    const struct setting *s = j->s;
    struct prediction p = {.step = (s->step + s->idle) * 1e-3};
    double backward = s->step * 1e-3 * s->backward / s->units;
    double layers = 0, passed = 0, done = 0, busy = 0;
    if (j->ranks == 1) return p;
    for (int i = 1; i < spans; i++) layers += (double)span[i].n;
    for (int i = spans - 1; i >= 0; i--) {
        if (i) passed += (double)span[i].n;
        double final = i ? backward * passed / layers : backward;
        double work = exchange(j, (double)span[i].n * s->gradient);
        done = finish(larger(done, final), work, backward, s->overlap);
        p.parameters += exchange(j, (double)span[i].n * s->parameter);
        busy += work;
    }
    p.gradients = done - backward + 3 * latency(j);
    p.hidden = larger(0, busy - (done - backward));
    p.report = latency(j) + (j->ranks - 1) * s->message * 1e-6;
    p.parameters += 3 * latency(j);
    p.step += p.gradients + p.report + p.parameters;
    return p;
}

/* ---- the table ---- */

static void print(const struct setting *s, const struct span *span, int spans)
{
    double n = 0;
    for (int i = 0; i < spans; i++) n += (double)span[i].n;
    printf("%s: %.1f million parameters, %.1f MB of gradients, %.1f MB of parameters\n", s->preset,
           n * 1e-6, n * s->gradient * 1e-6, n * s->parameter * 1e-6);
    printf("%6s %6s %10s %10s %12s %12s %14s %11s\n", "ranks", "hosts", "step ms", "hidden ms",
           "gradients ms", "parameters ms", "tokens/s", "efficiency");
    for (const char *at = s->ranks; *at;) {
        char *end;
        double ranks = (double)strtoul(at, &end, 10);
        if (end == at || ranks < 1) bench_die("--ranks is '%s', expected numbers", s->ranks);
        double per_host = ranks < s->per_host ? ranks : s->per_host;
        struct job j = {s, ranks, ranks / per_host, per_host};
        struct prediction p = predict(&j, span, spans);
        printf("%6.0f %6.0f %10.2f %10.2f %12.2f %12.2f %14.0f %10.1f%%\n", ranks, j.hosts,
               p.step * 1e3, p.hidden * 1e3, p.gradients * 1e3, p.parameters * 1e3,
               ranks * s->tokens / p.step, 100 * s->step * 1e-3 / p.step);
        at = end + (*end == ',');
    }
}

static void usage(void)
{
    for (int i = 0; i < OPTIONS; i++) {
        const char *at = (const char *)&DEFAULT + OPTION[i].at;
        printf("  --%-16s %s", OPTION[i].name, OPTION[i].help);
        if (OPTION[i].text)
            printf(" (%s)\n", *(const char *const *)at);
        else
            printf(" (%g)\n", *(const double *)at);
    }
}

static void set(struct setting *s, const char *name, const char *value)
{
    for (int i = 0; i < OPTIONS; i++) {
        if (strncmp(name, "--", 2) != 0 || strcmp(name + 2, OPTION[i].name) != 0) continue;
        char *at = (char *)s + OPTION[i].at, *end = NULL;
        if (!value) bench_die("%s has no value", name);
        if (OPTION[i].text) {
            *(const char **)at = value;
            return;
        }
        *(double *)at = strtod(value, &end);
        if (end == value || *end || *(double *)at < 0)
            bench_die("%s is '%s', expected a number of at least 0", name, value);
        return;
    }
    bench_die("there is no option %s; --help lists them", name);
}

int main(int argc, char **argv)
{
    struct setting s = DEFAULT;
    struct heed_config config;
    struct heed_error err = {0};
    struct span span[SPANS_MAX];
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        usage();
        return 0;
    }
    for (int i = 1; i < argc; i += 2) set(&s, argv[i], argv[i + 1]);
    if (heed_config_preset(&config, s.preset, &err)) bench_die("%s", err.text);
    config.vocab_size = (int32_t)s.vocab;
    print(&s, span, parameters_spans(&config, span));
    return 0;
}
