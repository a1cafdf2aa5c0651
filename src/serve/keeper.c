/*
 * keeper.c - the thread that watches over connections, models and runs; see network.h.
 */
#define _GNU_SOURCE /* accept4 */
#include <microhttpd.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve/connection.h"

enum { TICK_MS = 200 };

/* How often the patience of the server each phase of a connection may take; 0: any time. A client
 * that sends its request, or reads its reply, one byte at a time is cut off. */
static const double PHASE_MOST[PHASES] = {[PHASE_IDLE] = 1, [PHASE_BODY] = 1, [PHASE_SENDING] = 2};

/* While no more connections are taken: seconds after which one that has no request is closed; and,
 * where what is under way is ended, any. */
static const double IDLE_MOST_DRAINING = 0.5, MOST_STOPPING = 0.5;

/* Seconds after which libmicrohttpd has dealt with all bytes of a connection that it has read. */
static const double ENDED_AFTER = 0.5;

/* The client of a suspended call has closed its side of the connection, as one that has given up
 * does: the call is ended. */
static void on_gone(struct network *n, uint64_t wait)
{
    pthread_mutex_lock(&n->lock);
    for (struct peer *p = n->first; p; p = p->next) {
        if (p->wait != wait || !p->waits) continue;
        struct call *c = &p->waits->call;
        if (c->task) task_cancel(c->task);
        c->gone = true; /* runs_tick ends the stream of a run */
    }
    pthread_mutex_unlock(&n->lock);
}

/* Whether a client has closed its side of a connection before its request was complete. A packet
 * that has the last bytes and the end of a connection is one edge-triggered event: libmicrohttpd
 * reads the bytes and would notice the end when the connection has been idle for long. */
static bool has_ended(const struct peer *p, double now)
{
    char byte;
    bool comes = p->phase == PHASE_IDLE || p->phase == PHASE_BODY;
    return comes && now - p->since > ENDED_AFTER &&
           recv(p->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Cuts off connections that take too long. libmicrohttpd closes them then, and cannot close one
 * while this holds the lock, because it tells peer_close first. */
static void cut_slow(struct network *n)
{
    double now = worker_now();
    bool draining = n->server->draining;
    pthread_mutex_lock(&n->lock);
    for (struct peer *p = n->first; p; p = p->next) {
        double most = PHASE_MOST[p->phase] * n->server->o.patience;
        if (draining && p->phase == PHASE_IDLE) most = IDLE_MOST_DRAINING;
        if (n->server->stopping_now) most = MOST_STOPPING;
        bool late = most > 0 && now - p->since > most;
        if (late || has_ended(p, now)) shutdown(p->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&n->lock);
}

static void cancel_all(struct network *n)
{
    pthread_mutex_lock(&n->lock);
    for (struct peer *p = n->first; p; p = p->next) {
        if (p->waits && p->waits->call.task) task_cancel(p->waits->call.task);
    }
    pthread_mutex_unlock(&n->lock);
}

/* Stops listening. Connections that the kernel has taken already are answered still. */
static void stop_listening(struct network *n)
{
    int fd = MHD_quiesce_daemon(n->daemon);
    if (fd < 0) return;
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    int one;
    while ((one = accept4(fd, (struct sockaddr *)&address, &size, SOCK_CLOEXEC | SOCK_NONBLOCK)) >=
           0) {
        MHD_add_connection(n->daemon, one, (struct sockaddr *)&address, size);
        size = sizeof address;
    }
    close(fd);
}

/* Sets `stopped` where nothing is under way. */
static void stop_when_idle(struct network *n)
{
    pthread_mutex_lock(&n->lock);
    bool idle = n->calls == 0;
    for (struct peer *p = n->first; p && idle; p = p->next) {
        idle = p->phase == PHASE_IDLE && worker_now() - p->since > IDLE_MOST_DRAINING;
    }
    if (idle) n->stopped = true;
    pthread_mutex_unlock(&n->lock);
}

static void reopen_log(struct server *s)
{
    struct heed_error err = {0};
    if (access_log_reopen(s->access_log, &err) && s->o.say) s->o.say(s->o.user, err.text);
}

/* deaf_since: when it stopped listening; 0: it listens. */
static void tick(struct network *n, double *deaf_since, double *models_next)
{
    struct server *s = n->server;
    double now = worker_now();
    if (s->draining && !*deaf_since) {
        stop_listening(n);
        *deaf_since = now;
    }
    if (s->stopping_now) cancel_all(n);
    cut_slow(n);
    runs_tick(s->runs, s->draining);
    /* connections that were taken last may not have come to libmicrohttpd's thread yet */
    bool settled = s->stopping_now || now - *deaf_since > IDLE_MOST_DRAINING;
    if (*deaf_since && settled) stop_when_idle(n);
    bool reload = atomic_exchange(&n->reload, false);
    if (reload) reopen_log(s);
    if (s->models && reload) models_reload(s->models);
    if (s->models && (reload || now > *models_next)) {
        models_tick(s->models);
        *models_next = now + 1;
    }
}

void *keeper_run(void *network)
{
    enum { EVENTS = 64 };
    struct network *n = network;
    struct epoll_event event[EVENTS];
    double deaf_since = 0, models_next = worker_now() + 1, next = worker_now();
    while (!n->end) {
        int found = epoll_wait(n->epoll, event, EVENTS, TICK_MS);
        bool told = false;
        for (int i = 0; i < found; i++) {
            uint64_t count;
            if (event[i].data.u64) {
                on_gone(n, event[i].data.u64);
            } else {
                told = read(n->event, &count, sizeof count) > 0;
            }
        }
        if (!told && worker_now() < next) continue;
        next = worker_now() + TICK_MS * 1e-3;
        tick(n, &deaf_since, &models_next);
    }
    return NULL;
}
