/*
 * http_load.h - many clients of one HTTP server, in one thread: each has a connection that it
 * keeps, and posts one body after another. For a benchmark and for tests.
 */
#ifndef HEED_BENCH_HTTP_LOAD_H
#define HEED_BENCH_HTTP_LOAD_H
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct http_load {
    int port; /* at 127.0.0.1 */
    const char *path;
    const char *type;        /* Content-Type */
    const char *const *body; /* [n] what is posted, in this order */
    int n;
    int clients;
    double rate; /* requests a second, which arrive at random; 0: each client sends its next request
                  * when it has its answer */
    /* results: [n], to be freed by http_load_release */
    char **answer;   /* bodies of the replies; NULL: the connection was closed */
    int *status;     /* of HTTP; 0: the connection was closed */
    double *seconds; /* from the arrival of a request to its answer */
    double wall;     /* seconds from the first request to the last answer */
    int refused;     /* connections that could not be opened */
};

struct http_client {
    int fd, request; /* request -1: none */
    char *out, *in;
    size_t out_n, sent, in_n, in_cap;
};

static inline double http_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int http_connect(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0) return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0) return fd;
    close(fd);
    return -1;
}

/* A request as text. */
static inline char *http_format(const struct http_load *l, const char *body, size_t *n)
{
    size_t size = strlen(body) + strlen(l->path) + 256;
    char *text = malloc(size);
    if (!text) abort();
    *n = (size_t)snprintf(text, size,
                          "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\n"
                          "Content-Length: %zu\r\n\r\n%s",
                          l->path, l->type, strlen(body), body);
    return text;
}

/* Value of a header of a reply, or -1. */
static inline long http_header(const char *text, const char *end, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = text; p && p < end; p = strchr(p, '\n'), p = p ? p + 1 : p) {
        if (!strncasecmp(p, name, n) && p[n] == ':') return strtol(p + n + 1, NULL, 10);
    }
    return -1;
}

/* Whether a whole reply has come: sets its status and where its body begins. */
static inline bool http_complete(struct http_client *c, int *status, char **body)
{
    c->in[c->in_n] = '\0';
    char *end = strstr(c->in, "\r\n\r\n");
    if (!end) return false;
    long length = http_header(c->in, end, "Content-Length");
    if (length < 0 || c->in_n < (size_t)(end + 4 - c->in) + (size_t)length) return false;
    *status = (int)strtol(c->in + strcspn(c->in, " "), NULL, 10);
    *body = end + 4;
    (*body)[length] = '\0';
    return true;
}

static inline void http_begin(struct http_load *l, struct http_client *c, int epoll, int request)
{
    c->request = request;
    c->out = http_format(l, l->body[request], &c->out_n);
    c->sent = c->in_n = 0;
    while (c->sent < c->out_n) {
        ssize_t n = write(c->fd, c->out + c->sent, c->out_n - c->sent);
        if (n <= 0) break;
        c->sent += (size_t)n;
    }
    (void)epoll;
}

static inline void http_end(struct http_client *c)
{
    free(c->out);
    c->out = NULL;
    c->request = -1;
}

/* Opens the connection of a client; false: it cannot be opened. */
static inline bool http_open(struct http_load *l, struct http_client *c, int epoll)
{
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    c->fd = http_connect(l->port);
    if (c->fd < 0) {
        l->refused++;
        return false;
    }
    epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &e);
    return true;
}

/* Reads what has come; true: the request of the client is over. */
static inline bool http_read(struct http_load *l, struct http_client *c, int epoll,
                             const double *arrival)
{
    char *body;
    int request = c->request, status = 0;
    if (c->in_cap < c->in_n + 65537) c->in = realloc(c->in, c->in_cap = 2 * c->in_n + 131072);
    if (!c->in) abort();
    ssize_t n = read(c->fd, c->in + c->in_n, c->in_cap - c->in_n - 1);
    if (n <= 0) {
        close(c->fd); /* which takes it out of the epoll */
        c->fd = -1;
        http_end(c);
        (void)http_open(l, c, epoll);
        return request >= 0;
    }
    c->in_n += (size_t)n;
    if (request < 0 || !http_complete(c, &status, &body)) return false;
    l->status[request] = status;
    l->answer[request] = strdup(body);
    l->seconds[request] = http_now() - arrival[request];
    http_end(c);
    return true;
}

/* Times at which requests arrive: at random, `rate` a second. */
static inline void http_arrivals(const struct http_load *l, double *arrival, double start)
{
    uint64_t x = 88172645463325252u;
    for (int i = 0; i < l->n; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        double u = ((double)(x >> 11) + 1) / 9007199254740993.0;
        start += l->rate > 0 ? -log(u) / l->rate : 0;
        arrival[i] = start;
    }
}

/* Gives waiting requests to clients that have none; returns the milliseconds to the next arrival.
 */
static inline int http_dispatch(struct http_load *l, struct http_client *c, int epoll, int *next,
                                double *arrival)
{
    for (int i = 0; i < l->clients && *next < l->n; i++) {
        double now = http_now();
        if (arrival[*next] > now) return (int)((arrival[*next] - now) * 1e3) + 1;
        if (c[i].request >= 0 || c[i].fd < 0) continue;
        if (l->rate <= 0) arrival[*next] = now;
        http_begin(l, &c[i], epoll, (*next)++);
    }
    return 1000;
}

static inline void http_load_run(struct http_load *l)
{
    struct http_client *c = calloc((size_t)l->clients, sizeof *c);
    double *arrival = calloc((size_t)l->n + 1, sizeof *arrival), start = http_now();
    int epoll = epoll_create1(EPOLL_CLOEXEC), next = 0, over = 0;
    l->answer = calloc((size_t)l->n + 1, sizeof *l->answer);
    l->status = calloc((size_t)l->n + 1, sizeof *l->status);
    l->seconds = calloc((size_t)l->n + 1, sizeof *l->seconds);
    if (!c || !arrival || epoll < 0 || !l->answer || !l->status || !l->seconds) abort();
    int connected = 0;
    for (int i = 0; i < l->clients; i++) {
        c[i].request = -1;
        connected += http_open(l, &c[i], epoll);
    }
    http_arrivals(l, arrival, start);
    while (over < l->n && connected) {
        struct epoll_event e[64];
        int wait = http_dispatch(l, c, epoll, &next, arrival);
        int n = epoll_wait(epoll, e, 64, wait);
        for (int i = 0; i < n; i++) over += http_read(l, e[i].data.ptr, epoll, arrival);
        connected = 0;
        for (int i = 0; i < l->clients; i++) connected += c[i].fd >= 0;
    }
    l->wall = http_now() - start;
    for (int i = 0; i < l->clients; i++) {
        if (c[i].fd >= 0) close(c[i].fd);
        free(c[i].out);
        free(c[i].in);
    }
    close(epoll);
    free(c);
    free(arrival);
}

static inline void http_load_release(struct http_load *l)
{
    for (int i = 0; i < l->n; i++) free(l->answer[i]);
    free(l->answer);
    free(l->status);
    free(l->seconds);
}

static inline int http_compare_seconds(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The latency that a part of the requests that were answered did not exceed; sorts seconds. */
static inline double http_load_quantile(struct http_load *l, double part)
{
    qsort(l->seconds, (size_t)l->n, sizeof *l->seconds, http_compare_seconds);
    int i = (int)(part * (l->n - 1) + 0.5);
    return l->n ? l->seconds[i] : 0;
}

#endif
