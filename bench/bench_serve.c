/*
 * bench_serve.c - what the server costs beside the library: tokens a second of many clients beside
 * one call of heed_translate with the same lines, and the latency of a lone request.
 *
 * usage: bench_serve [MODEL [LANGUAGE [FILE [LINES [CLIENTS]]]]]
 *
 * FILE has a sentence a line; without it a few sentences are repeated with numbers in them. The
 * server runs in this process, its clients in another, so that both use the machine as they do when
 * in use.
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

/* Seconds and output tokens of one call with all lines, and the median seconds of a lone line. */
static void measure_library(const char *model, const char *to, const struct texts *t, double *all,
                            long long *tokens, double *lone)
{
    enum { LONE = 50 };
    struct heed_error err = {0};
    struct heed_engine *e = heed_engine_open("cpu", 0, &err);
    struct heed_model *m = e ? heed_model_load(e, model, HEED_WEIGHTS_AS_STORED, &err) : NULL;
    struct heed_session *s = m ? heed_session_open(m, NULL, &err) : NULL;
    if (!s) bench_die("%s", err.text);
    struct heed_translate_options o = heed_translate_defaults();
    struct heed_request *r = calloc((size_t)t->n, sizeof *r);
    const struct heed_answer *answer;
    double seconds[LONE];
    o.to = to;
    for (int i = 0; r && i < t->n; i++) {
        r[i] = (struct heed_request){.text = t->v[i], .options = &o};
    }
    if (!r || heed_translate(s, r, 1, &answer, &err)) bench_die("%s", err.text);
    double start = bench_now();
    if (heed_translate(s, r, t->n, &answer, &err)) bench_die("%s", err.text);
    *all = bench_now() - start;
    *tokens = 0;
    for (int i = 0; i < t->n; i++) *tokens += answer[i].result->tokens;
    for (int i = 0; i < LONE; i++) {
        start = bench_now();
        if (heed_translate(s, &r[i % t->n], 1, &answer, &err)) bench_die("%s", err.text);
        seconds[i] = bench_now() - start;
    }
    qsort(seconds, LONE, sizeof *seconds, http_compare_seconds);
    *lone = seconds[LONE / 2];
    free(r);
    heed_session_free(s);
    heed_model_free(m);
    heed_engine_free(e);
}

struct measured {
    double wall, p50, p99;
    int good;
};

/* Runs the clients in a process of their own. */
static struct measured measure_clients(int port, const struct texts *body, int n, int clients,
                                       double rate)
{
    struct measured *m =
        mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) bench_die("out of memory");
    pid_t child = fork();
    if (child == 0) {
        struct http_load l = {.port = port,
                              .path = "/v1/translate",
                              .type = "application/json",
                              .body = (const char *const *)body->v,
                              .n = n,
                              .clients = clients,
                              .rate = rate};
        http_load_run(&l);
        for (int i = 0; i < n; i++) m->good += l.status[i] == 200;
        m->wall = l.wall;
        m->p99 = http_load_quantile(&l, 0.99);
        m->p50 = http_load_quantile(&l, 0.5);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    struct measured out = *m;
    munmap(m, sizeof *m);
    return out;
}

int main(int argc, char **argv)
{
    const char *model = argc > 1 ? argv[1] : "models/default", *to = argc > 2 ? argv[2] : "de";
    int lines = argc > 4 ? atoi(argv[4]) : 1000, clients = argc > 5 ? atoi(argv[5]) : 64;
    struct texts text = {0}, body = {0};
    struct heed_error err = {0};
    double all, lone;
    long long tokens;
    if (argc > 3) {
        read_texts(&text, argv[3], lines);
    } else {
        make_texts(&text, lines);
    }
    make_bodies(&body, &text, to);
    measure_library(model, to, &text, &all, &tokens, &lone);
    printf("heed_translate, %d lines in one call: %.2f s, %.0f tokens/s\n", text.n, all,
           (double)tokens / all);
    struct serve_options o = serve_defaults();
    o.model = &model;
    o.models = 1;
    o.port = 0;
    struct server *s = serve_open(&o, &err);
    if (!s) bench_die("%s", err.text);
    int port = atoi(strrchr(serve_url(s), ':') + 1);
    struct measured one = measure_clients(port, &body, text.n < 50 ? text.n : 50, 1, 0);
    printf("a lone request: %.1f ms, heed_translate %.1f ms (medians)\n", one.p50 * 1e3,
           lone * 1e3);
    struct measured many = measure_clients(port, &body, text.n, clients, 0);
    printf("%d clients: %d of %d answered, %.2f s, %.0f tokens/s (%.0f%%); p50 %.0f ms, p99 %.0f "
           "ms\n",
           clients, many.good, text.n, many.wall, (double)tokens / many.wall, 100 * all / many.wall,
           many.p50 * 1e3, many.p99 * 1e3);
    double rate = 0.8 * text.n / many.wall;
    struct measured random = measure_clients(port, &body, text.n, 4 * clients, rate);
    printf("random arrivals, %.1f a second: %d answered; p50 %.0f ms, p99 %.0f ms\n", rate,
           random.good, random.p50 * 1e3, random.p99 * 1e3);
    serve_free(s);
    return many.good == text.n ? 0 : 1;
}
