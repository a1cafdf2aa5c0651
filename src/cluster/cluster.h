/*
 * cluster.h - the processes of a job that trains or translates together, its ranks.
 *
 * Messages are sent and received without waiting, and waited for later (struct transfers). The
 * small exchanges below, in which every rank takes part, wait. A thread of the cluster moves on the
 * messages that are under way while the caller computes, and exchanges a sign of life with every
 * other rank once a second (pulse.c). Where one has been silent for too long, the job ends, also
 * where the caller waits for a message that will never come.
 *
 * A NULL cluster is a job of one rank; the functions that take part in exchanges then do nothing.
 */
#ifndef HEED_CLUSTER_H
#define HEED_CLUSTER_H
#include <pthread.h>
#include <stdatomic.h>

#include "cluster/wire.h"
#include "heed.h"

enum { CLUSTER_HOST_MAX = 64 };

/* What messages are about. A tag of TAG_FREE or above may be used by other modules. */
enum { TAG_PULSE = 1, TAG_EXCHANGE, TAG_BLOCK, TAG_ANSWER, TAG_NEVER_SENT, TAG_FREE = 64 };

struct pulse; /* signs of life; see pulse.c */

struct heed_cluster {
    struct wire *wire;
    pthread_mutex_t lock; /* held during each call of the wire */
    int rank, ranks;
    int local_rank;                 /* among the ranks on the same host */
    char (*host)[CLUSTER_HOST_MAX]; /* [ranks] names of their hosts */
    struct heed_cluster_options o;
    bool failed;     /* an error ended the work of this rank */
    bool shared;     /* ... and all ranks know of it */
    double waited;   /* seconds spent waiting for messages */
    atomic_int busy; /* messages are under way while the caller computes */
    struct pulse *pulse;
};

static inline int cluster_rank(const struct heed_cluster *c)
{
    return c ? c->rank : 0;
}

static inline int cluster_ranks(const struct heed_cluster *c)
{
    return c ? c->ranks : 1;
}

/* Messages that are under way. {0} is none. */
struct transfers {
    wire_request *v;
    int n;
    size_t cap;
};

/* Adds a message of any size. The bytes must stay valid until cluster_wait. */
enum heed_status cluster_send(struct heed_cluster *c, struct transfers *t, const void *data,
                              size_t bytes, int to, int tag, struct heed_error *err);
enum heed_status cluster_receive(struct heed_cluster *c, struct transfers *t, void *data,
                                 size_t bytes, int from, int tag, struct heed_error *err);
/* Waits for all of them; then there are none. */
enum heed_status cluster_wait(struct heed_cluster *c, struct transfers *t, struct heed_error *err);
/* The same without waiting: *done says whether all are complete. */
enum heed_status cluster_test(struct heed_cluster *c, struct transfers *t, bool *done,
                              struct heed_error *err);
void transfers_release(struct transfers *t);

/* Whether the thread of the cluster should move messages on often: the caller computes while
 * messages are under way. */
void cluster_busy(struct heed_cluster *c, bool busy);

/* out[ranks] = the `bytes` bytes of every rank, in their order. */
enum heed_status cluster_all(struct heed_cluster *c, void *out, const void *mine, size_t bytes,
                             struct heed_error *err);
/* data becomes that of rank 0. */
enum heed_status cluster_from_first(struct heed_cluster *c, void *data, size_t bytes,
                                    struct heed_error *err);
/* Rank 0 gets the bytes of every rank, one after the other: *all, malloced, and size[ranks]. The
 * others get nothing. */
enum heed_status cluster_to_first(struct heed_cluster *c, const void *mine, size_t bytes,
                                  char **all, size_t *size, struct heed_error *err);
/* Texts of every rank, each NUL-terminated: text[ranks], malloced in one block. */
enum heed_status cluster_texts(struct heed_cluster *c, const char *mine, char ***text,
                               struct heed_error *err);

/* Ends a part of the work that may have failed on some ranks: the status, and the sentence, of the
 * first rank where it did, on all ranks. */
enum heed_status cluster_agree(struct heed_cluster *c, enum heed_status status,
                               struct heed_error *err);
/* Notes that an error is one that all ranks have come to by themselves. */
void cluster_same_error(struct heed_cluster *c);
/* Notes that the work of this rank has ended with an error, and puts rank and host in front of its
 * sentence unless all ranks know of it. Returns the status. */
enum heed_status cluster_failed(struct heed_cluster *c, enum heed_status status,
                                struct heed_error *err);

/* Shared with pulse.c alone. */
enum heed_status pulse_open(struct heed_cluster *c, struct heed_error *err);
/* Waits until every rank has come to this call. */
void pulse_close(struct heed_cluster *c);

#endif
