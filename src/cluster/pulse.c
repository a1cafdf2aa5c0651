/*
 * pulse.c - the thread of a cluster: signs of life, and progress of messages; see cluster.h.
 *
 * A rank that is killed is noticed by the launcher at once. A host that loses its link is not:
 * packets vanish, and TCP waits for minutes. So every rank sends one byte to every other once a
 * second, and the job ends when a rank has not been heard of for SILENCE_S. The thread does so
 * however long the caller computes. Rank 0 gives up first and the others a little later, in their
 * order, so that one of them speaks for all; on a host that was cut off each rank ends by itself.
 *
 * The last byte that a rank sends says that it leaves.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "cluster/cluster.h"

/* Seconds. A thread that was itself stopped for PAUSED_S, with its whole job or its machine, has no
 * reason to think that others are gone. */
static const double EVERY_S = 1, SILENCE_S = 6, SILENCE_MORE_S = 0.3, SILENCE_MOST_S = 8,
                    PAUSED_S = 3;
/* Nanoseconds between two looks, while messages are under way and otherwise. */
enum { BUSY_NS = 500000, IDLE_NS = 100000000 };
enum { ALIVE = 'a', LEAVES = 'z' };

struct peer {
    wire_request in, out;
    char received, sent;
    double heard;
    bool left, told; /* it has said that it leaves; it was told that we do */
};

struct pulse {
    struct peer *peer; /* [ranks] */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool closing, asked; /* asked: there may be something to do; both guarded by lock */
    double looked, sent;
};

/* ---- one look ---- */

static bool peer_listen(struct heed_cluster *c, int i, double now)
{
    struct peer *p = &c->pulse->peer[i];
    while (!p->left) {
        if (p->in && !wire_test(c->wire, &p->in)) return false;
        if (p->in) return true;
        p->heard = now;
        p->left = p->received == LEAVES;
        if (p->left) return true;
        if (!wire_receive(c->wire, &p->in, &p->received, 1, i, TAG_PULSE)) return false;
    }
    return true;
}

static bool peer_speak(struct heed_cluster *c, int i, bool due, bool closing)
{
    struct peer *p = &c->pulse->peer[i];
    if (p->out && !wire_test(c->wire, &p->out)) return false;
    if (p->out || p->told || !(due || closing)) return true;
    p->sent = closing ? LEAVES : ALIVE;
    p->told = closing;
    return wire_send(c->wire, &p->out, &p->sent, 1, i, TAG_PULSE);
}

/* The first rank that has been silent for too long, or with which MPI cannot exchange messages; -1:
 * all are well. *over: all ranks leave and know that we do. */
static int look(struct heed_cluster *c, bool closing, bool *over)
{
    struct pulse *p = c->pulse;
    double now = clock_now(), limit = SILENCE_S + SILENCE_MORE_S * c->rank;
    bool due = now - p->sent >= EVERY_S, paused = now - p->looked > PAUSED_S;
    int lost = -1;
    if (limit > SILENCE_MOST_S) limit = SILENCE_MOST_S;
    *over = closing;
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < c->ranks && lost < 0; i++) {
        struct peer *x = &p->peer[i];
        if (i == c->rank) continue;
        if (paused) x->heard = now;
        if (!peer_listen(c, i, now) || !peer_speak(c, i, due, closing)) lost = i;
        if (!x->left && now - x->heard > limit) lost = i;
        if (!x->left || !x->told || x->out) *over = false;
    }
    pthread_mutex_unlock(&c->lock);
    if (due) p->sent = now;
    p->looked = now;
    return lost;
}

static void end_job(struct heed_cluster *c, int lost)
{
    char text[sizeof((struct heed_error *)0)->text];
    double silent = clock_now() - c->pulse->peer[lost].heard;
    snprintf(text, sizeof text,
             "rank %d on host %s has not answered rank %d on host %s for %.0f seconds", lost,
             c->host[lost], c->rank, c->host[c->rank], silent);
    if (c->o.lost) c->o.lost(c->o.user, text);
    heed_cluster_abort(c);
}

/* ---- the thread ---- */

/* Waits for the time of the next look; true where the cluster closes. */
static bool rest(struct heed_cluster *c)
{
    struct pulse *p = c->pulse;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += IDLE_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&p->lock);
    while (!p->asked && !p->closing)
        if (pthread_cond_timedwait(&p->wake, &p->lock, &until) == ETIMEDOUT) break;
    p->asked = false;
    bool closing = p->closing;
    pthread_mutex_unlock(&p->lock);
    return closing;
}

/* Any call of MPI moves on the messages that are under way. */
static void move_messages(struct heed_cluster *c)
{
    bool found;
    int from;
    size_t bytes;
    double began = clock_now();
    while (atomic_load(&c->busy) && clock_now() - began < (double)IDLE_NS * 1e-9) {
        pthread_mutex_lock(&c->lock);
        wire_probe(c->wire, TAG_NEVER_SENT, &found, &from, &bytes);
        pthread_mutex_unlock(&c->lock);
        nanosleep(&(struct timespec){.tv_nsec = BUSY_NS}, NULL);
    }
}

static void *run(void *arg)
{
    struct heed_cluster *c = arg;
    bool over = false;
    while (!over) {
        bool closing = rest(c);
        move_messages(c);
        int lost = look(c, closing, &over);
        if (lost >= 0) end_job(c, lost);
        if (closing && !over) nanosleep(&(struct timespec){.tv_nsec = BUSY_NS}, NULL);
    }
    return NULL;
}

/* Wakes the thread, and tells it to end if `closing`. */
static void wake(struct pulse *p, bool closing)
{
    pthread_mutex_lock(&p->lock);
    p->asked = true;
    p->closing |= closing;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

void cluster_busy(struct heed_cluster *c, bool busy)
{
    if (cluster_ranks(c) == 1) return;
    bool was = atomic_exchange(&c->busy, busy);
    if (busy && !was) wake(c->pulse, false);
}

/* ---- life ---- */

static void pulse_release(struct pulse *p)
{
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p->peer);
    free(p);
}

enum heed_status pulse_open(struct heed_cluster *c, struct heed_error *err)
{
    struct pulse *p = calloc(1, sizeof *p);
    if (p) p->peer = calloc((size_t)c->ranks, sizeof *p->peer);
    if (!p || !p->peer) {
        free(p);
        return error_memory(err, (size_t)c->ranks * sizeof *p->peer, "the ranks of a cluster");
    }
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    p->looked = clock_now();
    for (int i = 0; i < c->ranks; i++) {
        struct peer *x = &p->peer[i];
        x->heard = p->looked;
        if (i == c->rank) continue;
        pthread_mutex_lock(&c->lock);
        wire_receive(c->wire, &x->in, &x->received, 1, i, TAG_PULSE);
        pthread_mutex_unlock(&c->lock);
    }
    c->pulse = p;
    int why = pthread_create(&p->thread, NULL, run, c);
    if (!why) return HEED_OK;
    c->pulse = NULL;
    pulse_release(p);
    return error_set(err, HEED_ENOMEM, "cannot start a thread: %s", strerror(why));
}

void pulse_close(struct heed_cluster *c)
{
    wake(c->pulse, true);
    pthread_join(c->pulse->thread, NULL);
    pulse_release(c->pulse);
    c->pulse = NULL;
}
