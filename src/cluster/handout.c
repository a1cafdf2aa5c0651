/*
 * handout.c - blocks of work from rank 0 to all ranks, and their answers in order; see heed.h.
 *
 * Rank 0 keeps two blocks at every other rank, so that none waits while rank 0 computes a block of
 * its own, and holds back answers until those before them are there. A message is the number of its
 * block, then the bytes of the block or of the answer; a block numbered END has none and says that
 * there are no more.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "cluster/cluster.h"

enum { AT_A_RANK = 2, WINDOW_PER_RANK = 4, NAP_NS = 200000 };
static const int64_t END = -1;

/* ---- messages ---- */

/* A message that is being sent; {0} is none. */
struct parcel {
    char *bytes;
    struct transfers t;
};

static void parcel_release(struct parcel *p)
{
    free(p->bytes);
    transfers_release(&p->t);
    *p = (struct parcel){0};
}

/* Sends a block or an answer; the parcel must be free. */
static enum heed_status parcel_send(struct heed_cluster *c, struct parcel *p, int64_t number,
                                    const char *data, size_t bytes, int to, int tag,
                                    struct heed_error *err)
{
    p->bytes = malloc(sizeof number + bytes);
    if (!p->bytes) return error_memory(err, sizeof number + bytes, "a block of work");
    memcpy(p->bytes, &number, sizeof number);
    if (bytes) memcpy(p->bytes + sizeof number, data, bytes);
    return cluster_send(c, &p->t, p->bytes, sizeof number + bytes, to, tag, err);
}

/* Receives a message with this tag, if one has arrived: *data is then malloced. */
static enum heed_status message_take(struct heed_cluster *c, int tag, char **data, size_t *bytes,
                                     int *from, struct heed_error *err)
{
    bool found = false;
    struct transfers t = {0};
    pthread_mutex_lock(&c->lock);
    bool good = wire_probe(c->wire, tag, &found, from, bytes);
    pthread_mutex_unlock(&c->lock);
    if (!good) return error_set(err, HEED_EIO, "MPI cannot look for messages");
    if (!found) return HEED_OK;
    char *message = malloc(*bytes);
    if (!message) return error_memory(err, *bytes, "a block of work");
    enum heed_status s = cluster_receive(c, &t, message, *bytes, *from, tag, err);
    if (!s) s = cluster_wait(c, &t, err);
    transfers_release(&t);
    if (s)
        free(message);
    else
        *data = message;
    return s;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

static enum heed_status stopped(enum heed_status s, struct heed_error *err)
{
    return s ? error_set(err, s, "the work of this rank has failed") : HEED_OK;
}

/* ---- rank 0 ---- */

struct answer {
    char *bytes; /* NULL: not there yet */
    size_t n;
};

struct giver {
    struct heed_cluster *c;
    const struct heed_handout *h;
    struct answer *answer; /* [window] of block i at i % window */
    int64_t window, given, taken;
    struct parcel *parcel; /* [ranks * AT_A_RANK] */
    int *at_rank;          /* [ranks] blocks without an answer */
    bool over;             /* there are no more blocks */
};

static enum heed_status answers_receive(struct giver *g, bool *some, struct heed_error *err)
{
    char *message;
    do {
        size_t bytes;
        int from;
        int64_t number;
        message = NULL;
        enum heed_status s = message_take(g->c, TAG_ANSWER, &message, &bytes, &from, err);
        if (s) return s;
        if (!message) continue;
        memcpy(&number, message, sizeof number);
        memmove(message, message + sizeof number, bytes - sizeof number);
        g->answer[number % g->window] = (struct answer){message, bytes - sizeof number};
        g->at_rank[from]--;
        *some = true;
    } while (message);
    return HEED_OK;
}

static enum heed_status answers_take(struct giver *g, struct heed_error *err)
{
    while (g->taken < g->given) {
        struct answer *a = &g->answer[g->taken % g->window];
        if (!a->bytes) return HEED_OK;
        enum heed_status s = g->h->take(g->h->user, a->bytes, a->n);
        free(a->bytes);
        a->bytes = NULL;
        if (s) return stopped(s, err);
        g->taken++;
    }
    return HEED_OK;
}

/* A parcel of a rank that is not being sent any more. There is one, because a rank that has
 * answered a block has received it. */
static enum heed_status parcel_find(struct giver *g, int rank, struct parcel **out,
                                    struct heed_error *err)
{
    for (int i = 0; i < AT_A_RANK; i++) {
        struct parcel *p = &g->parcel[rank * AT_A_RANK + i];
        bool done = true;
        enum heed_status s = p->bytes ? cluster_test(g->c, &p->t, &done, err) : HEED_OK;
        if (s) return s;
        if (!done) continue;
        parcel_release(p);
        *out = p;
        return HEED_OK;
    }
    *out = NULL;
    return HEED_OK;
}

/* Gives the next block to a rank; to rank 0 itself only where the others have enough. */
static enum heed_status block_give(struct giver *g, int rank, struct heed_error *err)
{
    char *block = NULL;
    size_t bytes = 0;
    struct parcel *p = NULL;
    enum heed_status s = rank ? parcel_find(g, rank, &p, err) : HEED_OK;
    if (s || (rank && !p)) return s;
    s = g->h->next(g->h->user, &block, &bytes);
    if (s) return stopped(s, err);
    g->over = !block;
    if (!block) return HEED_OK;
    int64_t number = g->given++;
    if (rank) {
        s = parcel_send(g->c, p, number, block, bytes, rank, TAG_BLOCK, err);
        g->at_rank[rank]++;
    } else {
        struct answer *a = &g->answer[number % g->window];
        s = stopped(g->h->work(g->h->user, block, bytes, &a->bytes, &a->n), err);
    }
    free(block);
    return s;
}

static bool has_room(const struct giver *g)
{
    return !g->over && g->given - g->taken < g->window;
}

static enum heed_status give_all(struct giver *g, struct heed_error *err)
{
    enum heed_status s = HEED_OK;
    while (!s && !(g->over && g->taken == g->given)) {
        int64_t before = g->given;
        bool some = false;
        s = answers_receive(g, &some, err);
        if (!s) s = answers_take(g, err);
        for (int k = 0; k < AT_A_RANK; k++)
            for (int r = 1; r < g->c->ranks && !s; r++)
                if (g->at_rank[r] <= k && has_room(g)) s = block_give(g, r, err);
        if (!s && has_room(g)) s = block_give(g, 0, err);
        if (!s && !some && g->given == before && g->taken < g->given &&
            !g->answer[g->taken % g->window].bytes)
            nap();
    }
    return s;
}

static enum heed_status tell_end(struct giver *g, struct heed_error *err)
{
    enum heed_status s = HEED_OK;
    for (int r = 1; r < g->c->ranks && !s; r++) {
        struct parcel *p = NULL;
        while (!s && !p) s = parcel_find(g, r, &p, err);
        if (!s) s = parcel_send(g->c, p, END, NULL, 0, r, TAG_BLOCK, err);
        if (!s) s = cluster_wait(g->c, &p->t, err);
    }
    return s;
}

static enum heed_status give(struct heed_cluster *c, const struct heed_handout *h,
                             struct heed_error *err)
{
    struct giver g = {.c = c, .h = h, .window = (int64_t)WINDOW_PER_RANK * c->ranks};
    size_t ranks = (size_t)c->ranks;
    g.answer = calloc((size_t)g.window, sizeof *g.answer);
    g.parcel = calloc(ranks * AT_A_RANK, sizeof *g.parcel);
    g.at_rank = calloc(ranks, sizeof *g.at_rank);
    enum heed_status s = g.answer && g.parcel && g.at_rank
                             ? HEED_OK
                             : error_memory(err, ranks * sizeof *g.parcel, "blocks of work");
    if (!s) s = give_all(&g, err);
    if (!s) s = tell_end(&g, err);
    /* After a failure messages may still be on their way from this memory, and the job ends. */
    for (size_t i = 0; i < ranks * AT_A_RANK && !s; i++) parcel_release(&g.parcel[i]);
    for (int64_t i = 0; i < g.window && g.answer; i++) free(g.answer[i].bytes);
    free(g.answer);
    free(g.parcel);
    free(g.at_rank);
    return s;
}

/* ---- the other ranks ---- */

/* An answer is on its way while the next block is computed. */
static enum heed_status serve(struct heed_cluster *c, const struct heed_handout *h,
                              struct heed_error *err)
{
    struct parcel sent = {0};
    enum heed_status s = HEED_OK;
    for (int64_t number = 0; !s && number != END;) {
        char *block = NULL, *answer = NULL;
        size_t bytes, n = 0;
        int from;
        s = message_take(c, TAG_BLOCK, &block, &bytes, &from, err);
        if (s) break;
        if (!block) {
            nap();
            continue;
        }
        memcpy(&number, block, sizeof number);
        if (number != END)
            s = stopped(h->work(h->user, block + sizeof number, bytes - sizeof number, &answer, &n),
                        err);
        if (!s) s = cluster_wait(c, &sent.t, err);
        if (!s) parcel_release(&sent);
        if (!s && number != END) s = parcel_send(c, &sent, number, answer, n, 0, TAG_ANSWER, err);
        free(block);
        free(answer);
    }
    return s;
}

enum heed_status heed_cluster_hand_out(struct heed_cluster *c, const struct heed_handout *h,
                                       struct heed_error *err)
{
    if (!c || !h) return error_null(err, c ? "the work" : "cluster");
    return cluster_failed(c, c->rank ? serve(c, h, err) : give(c, h, err), err);
}
