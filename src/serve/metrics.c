/*
 * metrics.c - counters; see metrics.h.
 */
#include "serve/metrics.h"

#include <string.h>

#include "serve/server.h"

static const int code[METRICS_CODES] = {200, 204, 304, 400, 403, 404, 405,
                                        409, 413, 415, 429, 499, 503, 500};

/* Upper ends of the buckets, in seconds; the last has none. */
static const double bucket_end[METRICS_BUCKETS - 1] = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                                       1,    2.5,   5,    10,  30};

void metrics_init(struct metrics *m)
{
    *m = (struct metrics){0};
    pthread_mutex_init(&m->lock, NULL);
}

void metrics_release(struct metrics *m)
{
    pthread_mutex_destroy(&m->lock);
}

void metrics_in_flight(struct metrics *m, int by)
{
    pthread_mutex_lock(&m->lock);
    m->in_flight += by;
    pthread_mutex_unlock(&m->lock);
}

void metrics_connections(struct metrics *m, int by)
{
    pthread_mutex_lock(&m->lock);
    m->connections += by;
    pthread_mutex_unlock(&m->lock);
}

/* Statuses that are not listed count as the last one, which is 500. */
static int code_number(int status)
{
    int i = 0;
    while (i < METRICS_CODES - 1 && code[i] != status) i++;
    return i;
}

void metrics_answered(struct metrics *m, const char *route, int status, double seconds)
{
    int r = 0, b = 0;
    if (!route) route = "other";
    pthread_mutex_lock(&m->lock);
    while (r < METRICS_ROUTES - 1 && m->route[r] && strcmp(m->route[r], route) != 0) r++;
    m->route[r] = route;
    m->requests[r][code_number(status)]++;
    if (seconds >= 0) {
        while (b < METRICS_BUCKETS - 1 && seconds > bucket_end[b]) b++;
        m->seconds_bucket[b]++;
        m->seconds_sum += seconds;
        m->seconds_count++;
    }
    pthread_mutex_unlock(&m->lock);
}

/* ---- GET /metrics ---- */

static void heading(struct buffer *b, const char *name, const char *type, const char *help)
{
    buffer_format(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void write_requests(struct buffer *b, struct metrics *m)
{
    heading(b, "heed_http_requests_total", "counter", "HTTP requests by route and status.");
    for (int r = 0; r < METRICS_ROUTES && m->route[r]; r++) {
        for (int i = 0; i < METRICS_CODES; i++) {
            if (!m->requests[r][i]) continue;
            buffer_format(b, "heed_http_requests_total{route=\"%s\",code=\"%d\"} %lld\n",
                          m->route[r], code[i], m->requests[r][i]);
        }
    }
    heading(b, "heed_http_requests_in_flight", "gauge", "HTTP requests that are being answered.");
    buffer_format(b, "heed_http_requests_in_flight %d\n", m->in_flight);
    heading(b, "heed_http_connections", "gauge", "Open connections.");
    buffer_format(b, "heed_http_connections %d\n", m->connections);
    heading(b, "heed_translation_seconds", "histogram", "Time from a request to its translation.");
    long long sum = 0;
    for (int i = 0; i < METRICS_BUCKETS - 1; i++) {
        sum += m->seconds_bucket[i];
        buffer_format(b, "heed_translation_seconds_bucket{le=\"%g\"} %lld\n", bucket_end[i], sum);
    }
    buffer_format(b, "heed_translation_seconds_bucket{le=\"+Inf\"} %lld\n", m->seconds_count);
    buffer_format(b, "heed_translation_seconds_sum %.6f\nheed_translation_seconds_count %lld\n",
                  m->seconds_sum, m->seconds_count);
}

/* One line for each model; names of models are quoted as Prometheus quotes. */
static void write_models(struct buffer *b, struct models *all, const char *name, const char *type,
                         const char *help, long long (*value)(const struct worker_counts *))
{
    struct model *m;
    heading(b, name, type, help);
    for (int i = 0; (m = models_at(all, i)); i++) {
        struct worker_counts n = model_count(m);
        buffer_format(b, "%s{model=\"", name);
        for (const char *c = m->name; *c; c++) {
            if (*c == '"' || *c == '\\') buffer_text(b, "\\");
            buffer_put(b, *c == '\n' ? " " : c, 1);
        }
        buffer_format(b, "\"} %lld\n", value(&n));
        model_release(m);
    }
}

static long long lines_of(const struct worker_counts *n)
{
    return n->lines;
}

static long long tokens_of(const struct worker_counts *n)
{
    return n->tokens;
}

static long long tasks_of(const struct worker_counts *n)
{
    return n->tasks;
}

static long long waiting_of(const struct worker_counts *n)
{
    return n->lines_waiting;
}

void api_metrics(struct call *c)
{
    struct server *s = c->server;
    struct buffer b = {0};
    int loaded = 0, failed = 0;
    pthread_mutex_lock(&s->metrics.lock);
    write_requests(&b, &s->metrics);
    pthread_mutex_unlock(&s->metrics.lock);
    if (s->models) {
        write_models(&b, s->models, "heed_lines_total", "counter", "Lines translated.", lines_of);
        write_models(&b, s->models, "heed_tokens_total", "counter", "Tokens of the translations.",
                     tokens_of);
        write_models(&b, s->models, "heed_queue_requests", "gauge",
                     "Requests that wait for a translation or are being translated.", tasks_of);
        write_models(&b, s->models, "heed_queue_lines", "gauge", "Lines of these requests.",
                     waiting_of);
        models_loads(s->models, &loaded, &failed);
        heading(&b, "heed_model_loads_total", "counter", "Models that were loaded anew.");
        buffer_format(&b,
                      "heed_model_loads_total{result=\"loaded\"} %d\n"
                      "heed_model_loads_total{result=\"failed\"} %d\n",
                      loaded, failed);
    }
    reply_text(c, "text/plain; version=0.0.4; charset=utf-8", buffer_take(&b));
}
