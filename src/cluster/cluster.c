/*
 * cluster.c - opening and leaving a job, messages, and small exchanges; see cluster.h.
 */
#include "cluster/cluster.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"

/* ---- messages ---- */

static enum heed_status wire_failed(const struct heed_cluster *c, int peer, struct heed_error *err)
{
    return error_set(err, HEED_EIO, "MPI cannot exchange messages with rank %d on host %s", peer,
                     c->host ? c->host[peer] : "unknown");
}

/* Adds one request for each part of a message that MPI takes at once. */
static enum heed_status transfer(struct heed_cluster *c, struct transfers *t, char *data,
                                 size_t bytes, int peer, int tag, bool sends,
                                 struct heed_error *err)
{
    for (size_t at = 0; at < bytes; at += WIRE_BYTES_MAX) {
        size_t n = bytes - at < WIRE_BYTES_MAX ? bytes - at : WIRE_BYTES_MAX;
        enum heed_status s =
            array_reserve(&t->v, &t->cap, (size_t)t->n + 1, sizeof *t->v, "messages", err);
        if (s) return s;
        pthread_mutex_lock(&c->lock);
        bool good = sends ? wire_send(c->wire, &t->v[t->n], data + at, n, peer, tag)
                          : wire_receive(c->wire, &t->v[t->n], data + at, n, peer, tag);
        pthread_mutex_unlock(&c->lock);
        if (!good) return wire_failed(c, peer, err);
        t->n++;
    }
    return HEED_OK;
}

enum heed_status cluster_send(struct heed_cluster *c, struct transfers *t, const void *data,
                              size_t bytes, int to, int tag, struct heed_error *err)
{
    return transfer(c, t, (char *)data, bytes, to, tag, true, err);
}

enum heed_status cluster_receive(struct heed_cluster *c, struct transfers *t, void *data,
                                 size_t bytes, int from, int tag, struct heed_error *err)
{
    return transfer(c, t, data, bytes, from, tag, false, err);
}

enum heed_status cluster_test(struct heed_cluster *c, struct transfers *t, bool *done,
                              struct heed_error *err)
{
    bool good = true;
    pthread_mutex_lock(&c->lock);
    while (t->n && good) {
        good = wire_test(c->wire, &t->v[t->n - 1]);
        if (!good || t->v[t->n - 1]) break;
        t->n--;
    }
    pthread_mutex_unlock(&c->lock);
    if (!good) return error_set(err, HEED_EIO, "a message of MPI failed");
    *done = t->n == 0;
    return HEED_OK;
}

/* The first moments of waiting only give way to other processes, because most messages are there by
 * then; later ones sleep, because ranks may share a core. */
enum { YIELDS = 200, NAP_NS = 50000 };

enum heed_status cluster_wait(struct heed_cluster *c, struct transfers *t, struct heed_error *err)
{
    double began = clock_now();
    bool done = false;
    enum heed_status s = HEED_OK;
    for (int i = 0; !(s = cluster_test(c, t, &done, err)) && !done; i++) {
        if (i < YIELDS)
            sched_yield();
        else
            nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
    c->waited += clock_now() - began;
    return s;
}

void transfers_release(struct transfers *t)
{
    free(t->v);
    *t = (struct transfers){0};
}

/* ---- exchanges ---- */

enum heed_status cluster_all(struct heed_cluster *c, void *out, const void *mine, size_t bytes,
                             struct heed_error *err)
{
    struct transfers t = {0};
    char *to = out;
    enum heed_status s = HEED_OK;
    memmove(to + cluster_rank(c) * bytes, mine, bytes);
    for (int i = 1; i < cluster_ranks(c) && !s; i++) {
        int next = (c->rank + i) % c->ranks, last = (c->rank + c->ranks - i) % c->ranks;
        s = cluster_receive(c, &t, to + last * bytes, bytes, last, TAG_EXCHANGE, err);
        if (!s) s = cluster_send(c, &t, to + c->rank * bytes, bytes, next, TAG_EXCHANGE, err);
    }
    if (!s && t.n) s = cluster_wait(c, &t, err);
    transfers_release(&t);
    return s;
}

enum heed_status cluster_from_first(struct heed_cluster *c, void *data, size_t bytes,
                                    struct heed_error *err)
{
    struct transfers t = {0};
    enum heed_status s = HEED_OK;
    if (cluster_rank(c) > 0) s = cluster_receive(c, &t, data, bytes, 0, TAG_EXCHANGE, err);
    for (int i = 1; cluster_rank(c) == 0 && i < cluster_ranks(c) && !s; i++)
        s = cluster_send(c, &t, data, bytes, i, TAG_EXCHANGE, err);
    if (!s && t.n) s = cluster_wait(c, &t, err);
    transfers_release(&t);
    return s;
}

enum heed_status cluster_to_first(struct heed_cluster *c, const void *mine, size_t bytes,
                                  char **all, size_t *size, struct heed_error *err)
{
    struct transfers t = {0};
    size_t sum = 0;
    char *joined = NULL;
    enum heed_status s = cluster_all(c, size, &bytes, sizeof bytes, err);
    for (int i = 0; i < cluster_ranks(c); i++) sum += size[i];
    if (!s && cluster_rank(c) > 0) {
        s = cluster_send(c, &t, mine, bytes, 0, TAG_EXCHANGE, err);
    } else if (!s && !(joined = malloc(sum + 1))) {
        s = error_memory(err, sum, "what all ranks send");
    }
    size_t at = bytes;
    if (joined && bytes) memcpy(joined, mine, bytes);
    for (int i = 1; joined && i < cluster_ranks(c) && !s; at += size[i++])
        s = cluster_receive(c, &t, joined + at, size[i], i, TAG_EXCHANGE, err);
    if (!s && t.n) s = cluster_wait(c, &t, err);
    transfers_release(&t);
    if (s)
        free(joined);
    else if (joined)
        *all = joined;
    return s;
}

enum heed_status cluster_texts(struct heed_cluster *c, const char *mine, char ***text,
                               struct heed_error *err)
{
    int ranks = cluster_ranks(c);
    size_t longest = 0, *size = malloc((size_t)ranks * sizeof *size), own = strlen(mine) + 1;
    if (!size) return error_memory(err, (size_t)ranks * sizeof *size, "texts of ranks");
    enum heed_status s = cluster_all(c, size, &own, sizeof own, err);
    for (int i = 0; i < ranks && !s; i++) longest = size[i] > longest ? size[i] : longest;
    free(size);
    if (s) return s;
    /* the pointers, the text of this rank padded to the longest, the texts of all */
    size_t pointers = (size_t)ranks * sizeof **text, bytes = pointers + (ranks + 1) * longest;
    char **v = calloc(1, bytes);
    if (!v) return error_memory(err, bytes, "texts of ranks");
    char *padded = (char *)v + pointers, *all = padded + longest;
    memcpy(padded, mine, own);
    s = cluster_all(c, all, padded, longest, err);
    for (int i = 0; i < ranks; i++) v[i] = all + i * longest;
    if (s)
        free(v);
    else
        *text = v;
    return s;
}

/* ---- errors ---- */

enum heed_status cluster_agree(struct heed_cluster *c, enum heed_status status,
                               struct heed_error *err)
{
    if (cluster_ranks(c) == 1) return status;
    struct heed_error mine = {0}, *all = calloc((size_t)c->ranks, sizeof *all);
    if (!all) return error_memory(err, (size_t)c->ranks * sizeof *all, "errors of ranks");
    if (status && err) mine = *err;
    mine.status = status;
    enum heed_status s = cluster_all(c, all, &mine, sizeof mine, err);
    for (int i = 0; i < c->ranks && !s; i++) {
        s = all[i].status;
        if (!s) continue;
        all[i].text[sizeof all[i].text - 1] = '\0';
        c->failed = c->shared = true;
        /* What fails on the first rank most likely fails on all. */
        if (i)
            error_set(err, s, "rank %d on host %s: %s", i, c->host[i], all[i].text);
        else
            error_set(err, s, "%s", all[i].text);
    }
    free(all);
    return s;
}

void cluster_same_error(struct heed_cluster *c)
{
    if (c) c->failed = c->shared = true;
}

enum heed_status cluster_failed(struct heed_cluster *c, enum heed_status status,
                                struct heed_error *err)
{
    if (cluster_ranks(c) == 1 || !status || c->failed) return status;
    c->failed = true;
    struct heed_error why = {0};
    if (err) why = *err;
    return error_set(err, status, "rank %d on host %s: %s", c->rank, c->host[c->rank], why.text);
}

bool heed_cluster_reports(const struct heed_cluster *c)
{
    return cluster_rank(c) == 0 || (c->failed && !c->shared);
}

/* ---- life ---- */

/* What ranks tell each other first. Its form is the same in all versions. */
struct hello {
    char host[CLUSTER_HOST_MAX], version[64];
};

static enum heed_status greet(struct heed_cluster *c, struct heed_error *err)
{
    struct hello mine = {0}, *all = calloc((size_t)c->ranks, sizeof *all);
    c->host = calloc((size_t)c->ranks, sizeof *c->host);
    if (!all || !c->host) {
        free(all);
        return error_memory(err, (size_t)c->ranks * sizeof *all, "the ranks of a cluster");
    }
    gethostname(mine.host, sizeof mine.host - 1);
    snprintf(mine.version, sizeof mine.version, "%s", heed_version());
    enum heed_status s = cluster_all(c, all, &mine, sizeof mine, err);
    for (int i = 0; i < c->ranks && !s; i++) {
        memcpy(c->host[i], all[i].host, sizeof c->host[i] - 1);
        if (i < c->rank && strcmp(all[i].host, mine.host) == 0) c->local_rank++;
    }
    for (int i = 1; i < c->ranks && !s; i++)
        if (strcmp(all[i].version, all[0].version) != 0)
            s = error_set(err, HEED_EARG, "rank %d on host %s is heed %s, rank 0 on host %s is %s",
                          i, c->host[i], all[i].version, c->host[0], all[0].version);
    free(all);
    return s;
}

static void cluster_release(struct heed_cluster *c)
{
    pthread_mutex_destroy(&c->lock);
    free(c->host);
    free(c);
}

struct heed_cluster *heed_cluster_open(const struct heed_cluster_options *o, struct heed_error *err)
{
    if (!o) {
        error_null(err, "options");
        return NULL;
    }
    struct heed_cluster *c = calloc(1, sizeof *c);
    if (!c) {
        error_memory(err, sizeof *c, "a cluster");
        return NULL;
    }
    c->o = *o;
    atomic_init(&c->busy, 0);
    pthread_mutex_init(&c->lock, NULL);
    enum heed_status s = wire_open(&c->wire, &c->rank, &c->ranks, err);
    if (s) {
        cluster_release(c);
        return NULL;
    }
    if (o->ranks && c->ranks != o->ranks)
        s = error_set(err, HEED_EARG,
                      "%d processes were started, but MPI knows of %d: start them with mpirun of "
                      "Open MPI, or with srun --mpi=pmix",
                      o->ranks, c->ranks);
    if (!s) s = greet(c, err);
    if (!s) s = pulse_open(c, err);
    if (s) {
        wire_close(c->wire);
        cluster_release(c);
        return NULL;
    }
    return c;
}

void heed_cluster_free(struct heed_cluster *c)
{
    if (!c) return;
    if (c->failed && !c->shared) heed_cluster_abort(c);
    pulse_close(c);
    wire_close(c->wire);
    cluster_release(c);
}

/* Another thread may be in a call of MPI that does not return; then the launcher ends the others
 * when this process has failed. */
void heed_cluster_abort(struct heed_cluster *c)
{
    enum { PATIENCE_S = 1 };
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    if (c && pthread_mutex_timedlock(&c->lock, &until) == 0) wire_abort(c->wire);
    _Exit(EXIT_FAILURE);
}

enum heed_status heed_cluster_agree(struct heed_cluster *c, enum heed_status status,
                                    struct heed_error *err)
{
    return cluster_failed(c, cluster_agree(c, status, err), err);
}

int heed_cluster_rank(const struct heed_cluster *c)
{
    return cluster_rank(c);
}

int heed_cluster_ranks(const struct heed_cluster *c)
{
    return cluster_ranks(c);
}

int heed_cluster_local_rank(const struct heed_cluster *c)
{
    return c ? c->local_rank : 0;
}

const char *heed_cluster_host(const struct heed_cluster *c, int rank)
{
    return c && rank >= 0 && rank < c->ranks ? c->host[rank] : NULL;
}
