/*
 * network.c - sockets and HTTP/1.1; see network.h.
 */
#define _GNU_SOURCE /* accept4 */
#include "serve/network.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "serve/connection.h"

/* ---- phases of a connection ---- */

static void set_phase(struct http_call *h, enum phase phase)
{
    pthread_mutex_lock(&h->network->lock);
    h->peer->phase = phase;
    h->peer->since = worker_now();
    pthread_mutex_unlock(&h->network->lock);
}

static void name_address(struct peer *p, const struct sockaddr *address)
{
    socklen_t n =
        address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    if (getnameinfo(address, n, p->address, sizeof p->address, NULL, 0, NI_NUMERICHOST) != 0) {
        strcpy(p->address, "-");
    }
}

static void peer_open(struct network *n, struct MHD_Connection *connection, void **context)
{
    struct peer *p = calloc(1, sizeof *p);
    *context = p;
    if (!p) return;
    p->fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    name_address(
        p, MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr);
    p->since = worker_now();
    pthread_mutex_lock(&n->lock);
    p->next = n->first;
    if (p->next) p->next->before = p;
    n->first = p;
    pthread_mutex_unlock(&n->lock);
    metrics_connections(&n->server->metrics, 1);
}

static void peer_close(struct network *n, struct peer *p)
{
    if (!p) return;
    pthread_mutex_lock(&n->lock);
    *(p->before ? &p->before->next : &n->first) = p->next;
    if (p->next) p->next->before = p->before;
    pthread_mutex_unlock(&n->lock);
    metrics_connections(&n->server->metrics, -1);
    free(p);
}

static void on_connection(void *cls, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        peer_open(cls, connection, context);
    } else {
        peer_close(cls, *context);
    }
}

/* ---- calls that wait ---- */

/* With the lock of the task held, or that of the watched runs. */
static void suspend(void *call)
{
    struct http_call *h = call;
    struct epoll_event gone = {.events = EPOLLRDHUP | EPOLLONESHOT};
    pthread_mutex_lock(&h->network->lock);
    h->peer->waits = h;
    h->peer->wait = gone.data.u64 = ++h->network->waits;
    h->waiting = true;
    epoll_ctl(h->network->epoll, EPOLL_CTL_ADD, h->peer->fd, &gone);
    pthread_mutex_unlock(&h->network->lock);
    MHD_suspend_connection(h->connection);
}

static void wake(void *call)
{
    MHD_resume_connection(((struct http_call *)call)->connection);
}

/* A call that was suspended goes on. */
static void stop_waiting(struct http_call *h)
{
    if (!h->waiting) return;
    pthread_mutex_lock(&h->network->lock);
    h->peer->waits = NULL;
    h->waiting = false;
    epoll_ctl(h->network->epoll, EPOLL_CTL_DEL, h->peer->fd, NULL);
    pthread_mutex_unlock(&h->network->lock);
}

/* ---- replies ---- */

static void add_header(struct MHD_Response *r, const char *name, const char *value)
{
    if (value) MHD_add_response_header(r, name, value);
}

static void add_cors(struct server *s, struct MHD_Response *r)
{
    if (!s->o.cors) return;
    add_header(r, "Access-Control-Allow-Origin", s->o.cors);
    add_header(r, "Access-Control-Allow-Headers", "Authorization, Content-Type");
    add_header(r, "Access-Control-Allow-Methods", "GET, POST");
    add_header(r, "Access-Control-Max-Age", "86400");
    if (strcmp(s->o.cors, "*") != 0) add_header(r, "Vary", "Origin");
}

static void add_headers(struct server *s, const struct reply *reply, struct MHD_Response *r)
{
    char seconds[16];
    add_header(r, "Content-Type", reply->type);
    add_header(r, "ETag", reply->etag);
    add_header(r, "Cache-Control", reply->cache ? reply->cache : "no-store");
    add_header(r, "Content-Security-Policy", reply->policy ? reply->policy : "default-src 'none'");
    add_header(r, "X-Content-Type-Options", "nosniff");
    add_header(r, "Referrer-Policy", "no-referrer");
    add_header(r, "Allow", reply->allow);
    if (reply->retry_after) {
        snprintf(seconds, sizeof seconds, "%d", reply->retry_after);
        add_header(r, "Retry-After", seconds);
    }
    if (s->draining) add_header(r, "Connection", "close");
    add_cors(s, r);
}

/* libmicrohttpd asks for more of a stream. A stream that waits is suspended, and libmicrohttpd asks
 * again when it was woken. */
static ssize_t read_stream(void *cls, uint64_t position, char *to, size_t most)
{
    struct http_call *h = cls;
    struct call *c = &h->call;
    (void)position;
    stop_waiting(h);
    if (c->out.n == 0) {
        enum stream_step step = c->next(c);
        if (c->out.failed) return MHD_CONTENT_READER_END_WITH_ERROR;
        if (step == STREAM_END && c->out.n == 0) return MHD_CONTENT_READER_END_OF_STREAM;
        if (step == STREAM_WAIT) return 0;
    }
    size_t n = c->out.n < most ? c->out.n : most;
    memcpy(to, c->out.v, n);
    c->out.n -= n;
    memmove(c->out.v, c->out.v + n, c->out.n);
    return (ssize_t)n;
}

static enum MHD_Result send_reply(struct http_call *h)
{
    struct reply *reply = &h->call.reply;
    struct MHD_Response *r;
    if (h->call.streams) {
        enum { BLOCK = 16 << 10 };
        r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, read_stream, h, NULL);
        set_phase(h, PHASE_ANSWER);
    } else if (reply->fixed) {
        r = MHD_create_response_from_buffer(reply->n, (void *)(uintptr_t)reply->fixed,
                                            MHD_RESPMEM_PERSISTENT);
        set_phase(h, PHASE_SENDING);
    } else {
        r = MHD_create_response_from_buffer(reply->n, reply->text, MHD_RESPMEM_MUST_FREE);
        if (r) reply->text = NULL;
        set_phase(h, PHASE_SENDING);
    }
    if (!r) return MHD_NO;
    add_headers(h->network->server, reply, r);
    enum MHD_Result queued = MHD_queue_response(h->connection, (unsigned)reply->status, r);
    MHD_destroy_response(r);
    return queued;
}

/* ---- requests ---- */

static enum MHD_Result add_query(void *cls, enum MHD_ValueKind kind, const char *name,
                                 const char *value)
{
    (void)kind;
    return fields_add(cls, name, value ? value : "") ? MHD_YES : MHD_NO;
}

static const char *header(struct http_call *h, const char *name)
{
    return MHD_lookup_connection_value(h->connection, MHD_HEADER_KIND, name);
}

static struct http_call *http_call_new(struct network *n, struct MHD_Connection *connection,
                                       const char *url, const char *method)
{
    struct peer *p =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    struct http_call *h = p ? calloc(1, sizeof *h) : NULL;
    if (!h) return NULL;
    pthread_mutex_lock(&n->lock);
    bool stopped = n->stopped;
    n->calls += !stopped;
    pthread_mutex_unlock(&n->lock);
    if (stopped) { /* a request that was on its way when its connection was cut off */
        free(h);
        return NULL;
    }
    h->network = n;
    h->connection = connection;
    h->peer = p;
    h->began = worker_now();
    struct call *c = &h->call;
    c->server = n->server;
    c->method = method;
    c->path = url;
    c->suspend = suspend;
    c->wake = wake;
    c->content_type = header(h, "Content-Type");
    c->accept = header(h, "Accept");
    c->authorization = header(h, "Authorization");
    c->if_none_match = header(h, "If-None-Match");
    MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, add_query, &c->query);
    metrics_in_flight(&n->server->metrics, 1);
    return h;
}

/* Whether one address has as many calls that wait as it may. */
static bool is_crowding(struct http_call *h)
{
    int most = h->network->server->o.max_per_client, n = 0;
    pthread_mutex_lock(&h->network->lock);
    for (struct peer *p = h->network->first; most && p; p = p->next) {
        n += p->waits && !strcmp(p->address, h->peer->address);
    }
    pthread_mutex_unlock(&h->network->lock);
    return most && n >= most;
}

static bool declares_too_much(struct http_call *h)
{
    const char *length = header(h, "Content-Length");
    return length && strtoull(length, NULL, 10) > (unsigned long long)h->call.server->o.max_body;
}

static enum MHD_Result count_framing(void *cls, enum MHD_ValueKind kind, const char *name,
                                     const char *value)
{
    int *n = cls;
    (void)kind;
    (void)value;
    *n += !strcasecmp(name, "Content-Length") || !strcasecmp(name, "Transfer-Encoding");
    return MHD_YES;
}

/* Whether another program, such as a proxy, might see the end of the body at another place (RFC
 * 9112, 6.3): it would take what is behind that for another request. */
static bool is_ambiguous(struct http_call *h)
{
    int n = 0;
    const char *encoding = header(h, "Transfer-Encoding");
    MHD_get_connection_values(h->connection, MHD_HEADER_KIND, count_framing, &n);
    return n > 1 || (encoding && strcasecmp(encoding, "chunked") != 0);
}

/* The headers have come. A reply at this time closes the connection, so that a body that is too
 * large need not be read. */
static enum MHD_Result begin(struct http_call *h)
{
    set_phase(h, PHASE_BODY);
    if (is_ambiguous(h)) {
        reply_error(&h->call, 400, "Content-Length and Transfer-Encoding do not say one length");
        return send_reply(h);
    }
    if (declares_too_much(h)) h->call.too_large = true;
    return h->call.too_large && route_refuse(&h->call) ? send_reply(h) : MHD_YES;
}

static void take_body(struct http_call *h, const char *data, size_t n)
{
    struct call *c = &h->call;
    if (c->body.n + n > (size_t)c->server->o.max_body) c->too_large = true;
    if (!c->too_large) buffer_put(&c->body, data, n);
}

/* The request is complete, or a call that was suspended goes on. */
static enum MHD_Result answer(struct http_call *h)
{
    struct call *c = &h->call;
    if (!c->task) {
        set_phase(h, PHASE_ANSWER);
        c->crowds = is_crowding(h);
        route_call(c);
    }
    stop_waiting(h);
    if (c->task && !c->streams && !c->reply.status) {
        if (task_sleep(c->task, c->suspend, h)) return MHD_YES;
        route_finish(c);
    }
    return c->reply.status ? send_reply(h) : MHD_NO;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *n, void **context)
{
    struct http_call *h = *context;
    (void)version;
    if (!h) {
        *context = h = http_call_new(cls, connection, url, method);
        return h ? begin(h) : MHD_NO;
    }
    if (*n == 0) return answer(h);
    take_body(h, data, *n);
    *n = 0;
    return MHD_YES;
}

static void on_completed(void *cls, struct MHD_Connection *connection, void **context,
                         enum MHD_RequestTerminationCode code)
{
    struct network *n = cls;
    struct http_call *h = *context;
    (void)connection;
    if (!h) return;
    struct call *c = &h->call;
    double seconds = worker_now() - h->began;
    bool translation = c->task && c->reply.status == 200;
    int status = code == MHD_REQUEST_TERMINATED_COMPLETED_OK ? c->reply.status : 499;
    stop_waiting(h);
    metrics_in_flight(&n->server->metrics, -1);
    metrics_answered(&n->server->metrics, c->route, status, translation ? seconds : -1);
    access_log_write(n->server->access_log, h->peer->address, c, status, seconds);
    set_phase(h, PHASE_IDLE);
    call_release(c);
    pthread_mutex_lock(&n->lock);
    n->calls--;
    pthread_mutex_unlock(&n->lock);
    free(h);
    *context = NULL;
}

/* ---- opening and closing ---- */

static int listen_at(const struct addrinfo *a)
{
    int one = 1, fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static enum heed_status open_listener(struct network *n, struct heed_error *err)
{
    const struct serve_options *o = &n->server->o;
    char port[16];
    struct addrinfo *found = NULL, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    snprintf(port, sizeof port, "%d", o->port);
    int code = getaddrinfo(o->host, port, &hints, &found);
    n->listener = code ? -1 : listen_at(found);
    if (n->listener < 0) {
        err->status = HEED_EIO;
        snprintf(err->text, sizeof err->text, "cannot listen at %.200s, port %d: %s", o->host,
                 o->port, code ? gai_strerror(code) : strerror(errno));
        if (!code) freeaddrinfo(found);
        return err->status;
    }
    bool v6 = found->ai_family == AF_INET6;
    freeaddrinfo(found);
    struct sockaddr_storage at;
    socklen_t size = sizeof at;
    getsockname(n->listener, (struct sockaddr *)&at, &size);
    int number =
        ntohs(v6 ? ((struct sockaddr_in6 *)&at)->sin6_port : ((struct sockaddr_in *)&at)->sin_port);
    snprintf(n->url, sizeof n->url,
             v6 && strchr(o->host, ':') ? "http://[%.90s]:%d/" : "http://%.90s:%d/", o->host,
             number);
    return HEED_OK;
}

/* What libmicrohttpd would print is nothing that whoever runs the server can change. */
static void ignore_log(void *cls, const char *format, va_list ap)
{
    (void)cls;
    (void)format;
    (void)ap;
}

static struct MHD_Daemon *start_daemon(struct network *n)
{
    enum { IDLE_SECONDS = 30, HEADERS_MOST = 64 << 10 };
    const struct serve_options *o = &n->server->o;
    return MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL,
        on_request, n, MHD_OPTION_EXTERNAL_LOGGER, ignore_log, NULL, MHD_OPTION_LISTEN_SOCKET,
        n->listener, MHD_OPTION_CONNECTION_LIMIT, (unsigned)o->max_connections,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, 2 * (unsigned)o->max_per_client,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)HEADERS_MOST, MHD_OPTION_NOTIFY_COMPLETED, on_completed, n,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, n, MHD_OPTION_END);
}

struct network *network_open(struct server *s, struct heed_error *err)
{
    struct network *n = calloc(1, sizeof *n);
    *err = (struct heed_error){HEED_ENOMEM, "out of memory for the server"};
    if (!n) return NULL;
    n->server = s;
    n->listener = -1;
    pthread_mutex_init(&n->lock, NULL);
    n->epoll = epoll_create1(EPOLL_CLOEXEC);
    n->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (n->epoll < 0 || n->event < 0 || open_listener(n, err)) goto fail;
    *err = (struct heed_error){HEED_EIO, "cannot start the HTTP server"};
    struct epoll_event changed = {.events = EPOLLIN, .data.u64 = 0};
    epoll_ctl(n->epoll, EPOLL_CTL_ADD, n->event, &changed);
    n->daemon = start_daemon(n);
    if (!n->daemon) goto fail;
    n->keeper_runs = pthread_create(&n->keeper, NULL, keeper_run, n) == 0;
    if (n->keeper_runs) return n;
fail:
    network_free(n);
    return NULL;
}

const char *network_url(const struct network *n)
{
    return n->url;
}

void network_notify(struct network *n, bool reload)
{
    uint64_t one = 1;
    if (reload) n->reload = true;
    if (write(n->event, &one, sizeof one) < 0) return; /* the keeper has not read the last one */
}

bool network_stopped(const struct network *n)
{
    return n->stopped;
}

void network_free(struct network *n)
{
    if (!n) return;
    if (n->keeper_runs) {
        /* libmicrohttpd cannot be stopped while a connection is suspended */
        const struct timespec tick = {.tv_nsec = 10 * 1000 * 1000};
        n->server->draining = n->server->stopping_now = true;
        network_notify(n, false);
        while (!n->stopped) nanosleep(&tick, NULL);
        n->end = true;
        network_notify(n, false);
        pthread_join(n->keeper, NULL);
    }
    if (n->daemon) {
        MHD_stop_daemon(n->daemon);
    } else if (n->listener >= 0) {
        close(n->listener);
    }
    if (n->epoll >= 0) close(n->epoll);
    if (n->event >= 0) close(n->event);
    pthread_mutex_destroy(&n->lock);
    free(n);
}
