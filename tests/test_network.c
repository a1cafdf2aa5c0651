/*
 * test_network.c - HTTP as clients speak it that are old, slow, broken or hostile: each gets a
 * reply that says what is wrong or is cut off, and the server goes on.
 */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "serve/serve.h"

enum { REPLY_MAX = 1 << 16, PATIENCE = 1 };

static struct server *open_server(const char *model, int patience)
{
    struct heed_error err = {0};
    struct serve_options o = serve_defaults();
    o.port = 0;
    o.threads = 1;
    o.patience = patience;
    o.model = &model;
    o.models = model != NULL;
    struct server *s = serve_open(&o, &err);
    if (!s) fail_msg("%s", err.text);
    return s;
}

static int start(void **state)
{
    *state = open_server(NULL, PATIENCE);
    return 0;
}

static int stop(void **state)
{
    serve_free(*state);
    return 0;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A connection whose reads give up after ten seconds. */
static int dial(struct server *s)
{
    int port = atoi(strrchr(serve_url(s), ':') + 1), fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct timeval most = {.tv_sec = 10};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_return_code(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most), 0);
    assert_return_code(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

/* Whether all bytes went out; the server may have closed the connection. */
static bool put(int fd, const char *bytes, size_t n)
{
    for (ssize_t sent; n; bytes += sent, n -= (size_t)sent) {
        sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent <= 0) return false;
    }
    return true;
}

/* What comes before the server closes the connection; must be freed. */
static char *read_all(int fd)
{
    char *reply = calloc(1, REPLY_MAX);
    size_t n = 0;
    assert_non_null(reply);
    for (ssize_t got; n < REPLY_MAX - 1; n += (size_t)got) {
        got = recv(fd, reply + n, REPLY_MAX - 1 - n, 0);
        if (got <= 0) break;
    }
    close(fd);
    return reply;
}

/* The reply to a request whose connection the server closes. */
static char *ask_bytes(struct server *s, const char *request, size_t n)
{
    int fd = dial(s);
    put(fd, request, n);
    return read_all(fd);
}

/* The reply to a request has these parts, one after the other; up to NULL. */
static void expect(struct server *s, const char *request, ...)
{
    char *reply = ask_bytes(s, request, strlen(request)), *at = reply;
    va_list ap;
    va_start(ap, request);
    for (const char *part; (part = va_arg(ap, const char *)); at += strlen(part)) {
        char *found = strstr(at, part);
        if (!found) fail_msg("no %s in the reply to\n%.200s\n%.600s", part, request, reply);
        at = found;
    }
    va_end(ap);
    free(reply);
}

#define CLOSE "Host: x\r\nConnection: close\r\n"
#define JSON  "Content-Type: application/json\r\n"

static void test_versions_and_methods(void **state)
{
    struct server *s = *state;
    expect(s, "GET /health HTTP/1.0\r\n\r\n", "200 OK", "\r\n\r\n{\"status\":\"ok\"}", NULL);
    expect(s, "OPTIONS /health HTTP/1.1\r\n" CLOSE "\r\n", " 405 ", "Allow: GET", NULL);
    expect(s, "TRACE /health HTTP/1.1\r\n" CLOSE "\r\n", " 405 ", NULL);
    expect(s, "GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /nothing HTTP/1.1\r\n" CLOSE "\r\n",
           " 200 ", "{\"status\":\"ok\"}", " 404 ", "{\"error\":", NULL);
    static const char head[] = "HEAD /health HTTP/1.1\r\n" CLOSE "\r\n";
    char *reply = ask_bytes(s, head, sizeof head - 1);
    assert_non_null(strstr(reply, " 200 "));
    assert_string_equal(strstr(reply, "\r\n\r\n"), "\r\n\r\n");
    free(reply);
}

static void test_bodies(void **state)
{
    struct server *s = *state;
    expect(s, "POST /translate HTTP/1.1\r\n" CLOSE "\r\n", " 400 ", "missing q parameter", NULL);
    expect(s, "POST /v1/translate HTTP/1.1\r\n" CLOSE "\r\n", " 415 ", NULL);
    expect(s, "POST /v1/translate HTTP/1.1\r\n" CLOSE JSON "\r\n", " 400 ", "Invalid JSON", NULL);
    expect(s,
           "POST /detect HTTP/1.1\r\n" CLOSE "Content-Length: 3\r\nExpect: 100-continue\r\n"
           "Content-Type: application/x-www-form-urlencoded\r\n\r\nq=a",
           "100 Continue", " 200 ", "\"language\":\"en\"", NULL);
    expect(s,
           "POST /detect HTTP/1.1\r\n" CLOSE "Transfer-Encoding: chunked\r\n"
           "Content-Type: application/x-www-form-urlencoded\r\n\r\n1\r\nq\r\n2\r\n=a\r\n0\r\n\r\n",
           " 200 ", "\"language\":\"en\"", NULL);
}

/* A proxy in front of the server might read the next request from another place. */
static void test_ambiguous_lengths(void **state)
{
    static const char *const headers[] = {
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
        "Content-Length: 3\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        char request[512];
        snprintf(request, sizeof request,
                 "POST /detect HTTP/1.1\r\nHost: x\r\n"
                 "Content-Type: application/x-www-form-urlencoded\r\n%s\r\n"
                 "3\r\nq=a\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n",
                 headers[i]);
        char *reply = ask_bytes(*state, request, strlen(request));
        assert_non_null(strstr(reply, " 400 "));
        assert_null(strstr(reply, "\"status\":\"ok\""));
        free(reply);
    }
}

/* A request with a body of n bytes. */
static char *post(struct server *s, const char *path, const char *type, const char *body, size_t n)
{
    char *request = malloc(n + 512);
    assert_non_null(request);
    int head = snprintf(request, 512,
                        "POST %s HTTP/1.1\r\n" CLOSE "Content-Type: %s\r\n"
                        "Content-Length: %zu\r\n\r\n",
                        path, type, n);
    memcpy(request + head, body, n);
    char *reply = ask_bytes(s, request, (size_t)head + n);
    free(request);
    return reply;
}

static void expect_post(struct server *s, const char *path, const char *type, const char *body,
                        size_t n, const char *status, const char *part)
{
    char *reply = post(s, path, type, body, n);
    if (!strstr(reply, status) || !strstr(reply, part)) {
        fail_msg("%s with %.60s: no %s and %s in\n%.600s", path, body, status, part, reply);
    }
    free(reply);
}

static void test_bytes_that_are_no_text(void **state)
{
    static const char *const paths[] = {"/translate", "/detect", "/v1/translate"};
    static const char key[] = "{\"q\\u0000\":\"a\",\"text\":\"a\"}", latin1[] = "{\"q\":\"\xe4\"}";
    const char *json = "application/json", *form = "application/x-www-form-urlencoded";
    char *deep = malloc(100000);
    assert_non_null(deep);
    memset(deep, '[', 100000);
    for (int i = 0; i < 3; i++) {
        expect_post(*state, paths[i], json, key, sizeof key - 1, " 400 ", "NUL byte in object key");
        expect_post(*state, paths[i], json, latin1, sizeof latin1 - 1, " 400 ", "Invalid JSON");
        expect_post(*state, paths[i], json, "\0", 1, " 400 ", "Invalid JSON");
        expect_post(*state, paths[i], json, deep, 100000, " 400 ", "maximum parsing depth");
    }
    free(deep);
    expect_post(*state, "/detect", form, "q=%ff\xe4%00", 9, " 200 ", "\"language\":\"en\"");
    expect_post(*state, "/detect", form, "%ff=%00&q", 9, " 400 ", "missing q parameter");
    expect_post(*state, "/detect", "text/\xe4", "q=a", 3, " 415 ", "text/\xef\xbf\xbd");
    expect(*state, "GET /\xe4%ff HTTP/1.1\r\n" CLOSE "\r\n", " 404 ", "/\xef\xbf\xbd\xef\xbf\xbd",
           NULL);
}

static void test_long_headers(void **state)
{
    enum { LONG = 1 << 20 };
    char *request = malloc(LONG);
    assert_non_null(request);
    size_t n = (size_t)sprintf(request, "GET /health HTTP/1.1\r\nHost: x\r\n");
    while (n < LONG - 20) n += (size_t)sprintf(request + n, "X-%zu: y\r\n", n);
    free(ask_bytes(*state, request, n));
    memset(request + 5, 'a', LONG - 5);
    free(ask_bytes(*state, request, LONG));
    free(request);
    expect(*state, "GET /health HTTP/1.0\r\n\r\n", " 200 ", NULL);
}

/* Sends the bytes of a request again and again, a few a second, until it is cut off; returns how
 * many seconds that took. */
static double drip(struct server *s, const char *request)
{
    int fd = dial(s);
    double began = now();
    char byte;
    assert_true(put(fd, request, strlen(request)));
    for (;;) {
        const struct timespec tick = {.tv_nsec = 50 * 1000 * 1000};
        ssize_t got = recv(fd, &byte, 1, MSG_DONTWAIT);
        if (got == 0 || !put(fd, "a", 1) || now() - began > 10 * PATIENCE) break;
        nanosleep(&tick, NULL);
    }
    close(fd);
    return now() - began;
}

static void test_slow_clients(void **state)
{
    double seconds = drip(*state, "GET /health HTTP/1.1\r\nX-Slow: ");
    assert_true(seconds > 0.5 * PATIENCE && seconds < 3 * PATIENCE);
    seconds = drip(*state, "POST /detect HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n");
    assert_true(seconds > 0.5 * PATIENCE && seconds < 3 * PATIENCE);
    expect(*state, "GET /health HTTP/1.0\r\n\r\n", " 200 ", NULL);
}

/* Whether the metrics of the server have a line within two seconds. */
static bool says_soon(struct server *s, const char *line)
{
    bool found = false;
    for (int i = 0; i < 100 && !found; i++) {
        const struct timespec tick = {.tv_nsec = 20 * 1000 * 1000};
        static const char metrics[] = "GET /metrics HTTP/1.0\r\n\r\n";
        char *reply = ask_bytes(s, metrics, sizeof metrics - 1);
        found = strstr(reply, line);
        free(reply);
        nanosleep(&tick, NULL);
    }
    return found;
}

/* A client that sends part of a request and goes away at once keeps no connection. */
static void test_gone(void **state)
{
    static const char *const requests[] = {"GET /hea", "POST /detect HTTP/1.1\r\nHost: x\r\n",
                                           "POST /detect HTTP/1.1\r\nContent-Length: 9\r\n\r\nq"};
    struct server *s = open_server(NULL, 60);
    (void)state;
    for (int i = 0; i < 30; i++) {
        int fd = dial(s);
        put(fd, requests[i % 3], strlen(requests[i % 3]));
        close(fd);
    }
    assert_true(says_soon(s, "\nheed_http_connections 1\n"));
    serve_free(s);
}

/* A client that closes its side of the connection while it waits has given up. */
static void test_half_closed(void **state)
{
    enum { LINES = 2000 };
    static const char *const asks[] = {"", "Accept: text/event-stream\r\n"};
    char *text = malloc(LINES * 40 + 400);
    (void)state;
    assert_non_null(text);
    struct server *s = open_server("models/default", PATIENCE);
    for (int i = 0; i < 2; i++) {
        int fd = dial(s), n = 0, body;
        char head[256];
        n += sprintf(text + n, "{\"target\":\"de\",\"text\":\"");
        for (int k = 0; k < LINES; k++) n += sprintf(text + n, "%d dogs run.\\n", k);
        n += sprintf(text + n, "\"}");
        body = sprintf(
            head, "POST /v1/translate HTTP/1.1\r\nHost: x\r\n%s" JSON "Content-Length: %d\r\n\r\n",
            asks[i], n);
        assert_true(put(fd, head, (size_t)body) && put(fd, text, (size_t)n));
        shutdown(fd, SHUT_WR);
        char *reply = read_all(fd);
        assert_null(strstr(reply, i ? "event: done" : "translations"));
        free(reply);
        assert_true(says_soon(s, "heed_queue_requests{model=\"default\"} 0\n"));
    }
    serve_free(s);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions_and_methods),
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_ambiguous_lengths),
        cmocka_unit_test(test_bytes_that_are_no_text),
        cmocka_unit_test(test_long_headers),
        cmocka_unit_test(test_slow_clients),
        cmocka_unit_test(test_gone),
        cmocka_unit_test(test_half_closed),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
