/*
 * bench_serve.c - what the server costs beside the library: tokens a second of many clients beside
 * one call of heed_translate with the same lines, and the latency of a lone request.
 *
 * usage: bench_serve [MODEL [LANGUAGE [FILE [LINES [CLIENTS]]]]]
 *
 * FILE has a sentence a line; without it a few sentences are repeated with numbers in them. The
 * server runs in this process, its clients and the library in others, so that each uses the machine
 * as it does when in use.
 */
#include <sys/mman.h>
#include <sys/wait.h>

#include "bench.h"
#include "http_load.h"
#include "serve/serve.h"

static const char *const sentence[] = {
    "A dog runs through the city and looks for something to eat.",
    "Where is the station?",
    "I would like to drink a cup of tea with milk, please.",
    "The old man who lived by the sea went out every morning to look for fish.",
    "How much does it cost to travel from Berlin to Hamburg by train?",
    "Open the file and press the button to save your changes before you close the program.",
    "She did not know what to say, so she said nothing.",
    "The children are playing in the garden behind the house.",
    "Nobody believed him when he told them what had happened that night in the mountains.",
    "Thank you very much for your help!"};

struct texts {
    char **v;
    int n;
};

static void add(struct texts *t, const char *text)
{
    t->v = realloc(t->v, (size_t)(t->n + 1) * sizeof *t->v);
    if (!t->v || !(t->v[t->n++] = strdup(text))) bench_die("out of memory");
}

static void read_texts(struct texts *t, const char *path, int most)
{
    struct heed_error err = {0};
    struct heed_lines *lines = heed_lines_open(path, &err);
    const char *line;
    size_t n;
    if (!lines) bench_die("%s", err.text);
    while (t->n < most && heed_lines_next(lines, &line, &n, &err) == HEED_OK && line) {
        char *copy = strndup(line, n);
        if (!copy) bench_die("out of memory");
        add(t, copy);
        free(copy);
    }
    heed_lines_free(lines);
}

static void make_texts(struct texts *t, int most)
{
    char text[256];
    for (int i = 0; i < most; i++) {
        snprintf(text, sizeof text, "%s (%d)", sentence[i % 10], i / 10 + 1);
        add(t, i < 10 ? sentence[i] : text);
    }
}

/* {"text": "...", "target": "de"} for each text. */
static void make_bodies(struct texts *out, const struct texts *t, const char *to)
{
    for (int i = 0; i < t->n; i++) {
        char *body = malloc(2 * strlen(t->v[i]) + 64), *p = body;
        if (!body) bench_die("out of memory");
        p += sprintf(p, "{\"text\":\"");
        for (const char *c = t->v[i]; *c; c++) {
            if (*c == '"' || *c == '\\') *p++ = '\\';
            *p++ = (unsigned char)*c < ' ' ? ' ' : *c;
        }
        sprintf(p, "\",\"target\":\"%s\"}", to);
        add(out, body);
        free(body);
    }
}

/* What a process that measures hands to this one. */
struct measured {
    double wall, p50, p99;
    long long tokens;
    int good;
};

struct job {
    const char *model, *to;
    const struct texts *text; /* or bodies of requests */
    int n, port, clients;
    double rate;
    void (*measure)(const struct job *, struct measured *);
};

static struct measured in_a_process(struct job j)
{
    struct measured *m =
        mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status = 0;
    if (m == MAP_FAILED) bench_die("out of memory");
    pid_t child = fork();
    if (child == 0) {
        j.measure(&j, m);
        _exit(0);
    }
    waitpid(child, &status, 0);
    if (status) bench_die("a process that measures has failed");
    struct measured out = *m;
    munmap(m, sizeof *m);
    return out;
}

/* Seconds and output tokens of one call with all lines, and the median seconds of a lone line. */
static void measure_library(const struct job *j, struct measured *out)
{
    enum { LONE = 50 };
    struct heed_error err = {0};
    struct heed_engine *e = heed_engine_open("cpu", 0, &err);
    struct heed_model *m = e ? heed_model_load(e, j->model, HEED_WEIGHTS_AS_STORED, &err) : NULL;
    struct heed_session *s = m ? heed_session_open(m, NULL, &err) : NULL;
    if (!s) bench_die("%s", err.text);
    struct heed_translate_options o = heed_translate_defaults();
    struct heed_request *r = calloc((size_t)j->n, sizeof *r);
    const struct heed_answer *answer;
    double seconds[LONE];
    o.to = j->to;
    for (int i = 0; r && i < j->n; i++) {
        r[i] = (struct heed_request){.text = j->text->v[i], .options = &o};
    }
    if (!r || heed_translate(s, r, 1, &answer, &err)) bench_die("%s", err.text);
    double start = bench_now();
    if (heed_translate(s, r, j->n, &answer, &err)) bench_die("%s", err.text);
    out->wall = bench_now() - start;
    for (int i = 0; i < j->n; i++) out->tokens += answer[i].result->tokens;
    for (int i = 0; i < LONE; i++) {
        start = bench_now();
        if (heed_translate(s, &r[i % j->n], 1, &answer, &err)) bench_die("%s", err.text);
        seconds[i] = bench_now() - start;
    }
    qsort(seconds, LONE, sizeof *seconds, http_compare_seconds);
    out->p50 = seconds[LONE / 2];
    free(r);
    heed_session_free(s);
    heed_model_free(m);
    heed_engine_free(e);
}

static void measure_clients(const struct job *j, struct measured *out)
{
    struct http_load l = {.port = j->port,
                          .path = "/v1/translate",
                          .type = "application/json",
                          .body = (const char *const *)j->text->v,
                          .n = j->n,
                          .clients = j->clients,
                          .rate = j->rate};
    http_load_run(&l);
    for (int i = 0; i < j->n; i++) out->good += l.status[i] == 200;
    out->wall = l.wall;
    out->p99 = http_load_quantile(&l, 0.99);
    out->p50 = http_load_quantile(&l, 0.5);
}

int main(int argc, char **argv)
{
    const char *model = argc > 1 ? argv[1] : "models/default", *to = argc > 2 ? argv[2] : "de";
    int lines = argc > 4 ? atoi(argv[4]) : 1000, clients = argc > 5 ? atoi(argv[5]) : 64;
    struct texts text = {0}, body = {0};
    struct heed_error err = {0};
    if (argc > 3) {
        read_texts(&text, argv[3], lines);
    } else {
        make_texts(&text, lines);
    }
    make_bodies(&body, &text, to);
    struct job library = {
        .model = model, .to = to, .text = &text, .n = text.n, .measure = measure_library};
    struct measured file = in_a_process(library);
    printf("heed_translate, %d lines in one call: %.2f s, %.0f tokens/s\n", text.n, file.wall,
           (double)file.tokens / file.wall);
    struct serve_options o = serve_defaults();
    o.model = &model;
    o.models = 1;
    o.port = 0;
    struct server *s = serve_open(&o, &err);
    if (!s) bench_die("%s", err.text);
    struct job load = {.text = &body,
                       .n = text.n < 50 ? text.n : 50,
                       .port = atoi(strrchr(serve_url(s), ':') + 1),
                       .clients = 1,
                       .measure = measure_clients};
    in_a_process(load); /* warms up */
    struct measured one = in_a_process(load);
    printf("a lone request: %.1f ms, heed_translate %.1f ms (medians)\n", one.p50 * 1e3,
           file.p50 * 1e3);
    load.n = text.n;
    load.clients = clients;
    struct measured many = in_a_process(load);
    printf("%d clients: %d of %d answered, %.2f s, %.0f tokens/s (%.0f%%); p50 %.0f ms, p99 %.0f "
           "ms\n",
           clients, many.good, text.n, many.wall, (double)file.tokens / many.wall,
           100 * file.wall / many.wall, many.p50 * 1e3, many.p99 * 1e3);
    load.rate = 0.8 * text.n / many.wall;
    load.clients = 4 * clients;
    struct measured random = in_a_process(load);
    printf("random arrivals, %.1f a second: %d answered; p50 %.0f ms, p99 %.0f ms\n", load.rate,
           random.good, random.p50 * 1e3, random.p99 * 1e3);
    serve_free(s);
    return many.good == text.n ? 0 : 1;
}
