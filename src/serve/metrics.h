/*
 * metrics.h - counters, in the text format of Prometheus.
 */
#ifndef HEED_SERVE_METRICS_H
#define HEED_SERVE_METRICS_H
#include <pthread.h>

enum {
    METRICS_ROUTES = 32,
    METRICS_CODES = 14, /* kinds of HTTP status that are told apart */
    METRICS_BUCKETS = 12
};

struct metrics {
    pthread_mutex_t lock;
    const char *route[METRICS_ROUTES]; /* pattern of the route; "other": none matched */
    long long requests[METRICS_ROUTES][METRICS_CODES];
    long long seconds_bucket[METRICS_BUCKETS]; /* of translations that were answered */
    double seconds_sum;
    long long seconds_count;
    int in_flight, connections;
};

void metrics_init(struct metrics *m);
void metrics_release(struct metrics *m);
/* One more, or one less, that is under way. */
void metrics_in_flight(struct metrics *m, int by);
void metrics_connections(struct metrics *m, int by);
/* A request was answered. route: the pattern, or NULL; seconds < 0: it was no translation. */
void metrics_answered(struct metrics *m, const char *route, int status, double seconds);

#endif
