/*
 * exchange.c - sums of gradients over shards and ranks; see exchange.h.
 *
 * The gradients of a rank's shards are computed one after the other. spare[l] holds the sum of 2^l
 * of them that waits for its sibling in the tree, like the bits of a counter.
 *
 * Over a link, each span of the gradient is a group of transfers: the slices of the other ranks are
 * sent to them, and the own slices of their gradients arrive. Without a link, and where the memory
 * of the device is not that of the host, gradients and parameters go through arrays in host memory,
 * and nothing is sent before the last backward is done.
 */
#include "train/exchange.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { LEVELS_MAX = 16 };
enum { TAG_GRADIENT = TAG_FREE, TAG_PARAMETER = TAG_GRADIENT + SPANS_MAX };
enum { TAG_VECTOR = TAG_PARAMETER + SPANS_MAX, TAG_COLLECT = TAG_VECTOR + SPANS_MAX };

struct exchange {
    struct heed_cluster *cluster;
    const struct slices *slices;
    struct run *run;
    struct exchange_options o;
    struct link_part *part; /* [2 * ranks] a group of transfers; NULL: there is no link */
    int levels;
    void *spare[LEVELS_MAX]; /* gradients, see above */
    void *first;             /* the gradient that the run was opened with */
    char *landing;           /* in host memory: the own slices of the other ranks' gradients; not
                              * with a link */
    char *arrived;           /* the same on the device; not where the link adds */
    char *mirror;            /* [n] gradients, then parameters, in host memory; NULL: not needed */
    struct transfers receive[SPANS_MAX], send;
    struct mat sum[SPANS_MAX];
    struct gradient_watch watch;
    enum heed_status status; /* of exchange_watch, which cannot return it */
    struct heed_error err;
};

static size_t element(const struct exchange *x)
{
    return type_size(x->run->grad.type);
}

/* ---- sums within a rank ---- */

/* Adds the sums that wait in the lowest levels to n elements of the gradient. */
static void fold(struct exchange *x, int levels, size_t at, size_t n)
{
    struct backend *be = x->run->be;
    struct mat g = x->run->grad, y = g;
    for (int l = 0; l < levels && n; l++) {
        y.p = x->spare[l];
        be->op->accumulate(be, slices_mat(g, at, n), slices_mat(y, at, n));
    }
}

static bool is_last(const struct exchange *x, int shard)
{
    return shard == x->slices->units - 1;
}

/* Whether slices are sent while backward goes on. */
static bool overlaps(const struct exchange *x)
{
    return x->o.link || (x->slices->ranks > 1 && !x->mirror);
}

/* ---- gradients among ranks ---- */

/* Where the slice of another rank's gradient lands, in elements. */
static size_t landing_at(const struct slices *s, int span, int from)
{
    const struct flat_part *own = &s->part[span];
    size_t others = (size_t)(s->ranks - 1), place = (size_t)(from < s->rank ? from : from - 1);
    return own->to * others + place * own->n;
}

static enum heed_status expect_gradients(struct exchange *x, struct heed_error *err)
{
    const struct slices *s = x->slices;
    enum heed_status status = HEED_OK;
    for (int i = 0; i < s->spans; i++)
        for (int r = 0; r < s->ranks && !status; r++) {
            if (r == s->rank) continue;
            status = cluster_receive(x->cluster, &x->receive[i],
                                     x->landing + landing_at(s, i, r) * element(x),
                                     s->part[i].n * element(x), r, TAG_GRADIENT + i, err);
        }
    return status;
}

/* Sends the slices of a span that is final to their owners. gradient: in host memory. */
static enum heed_status send_gradient(struct exchange *x, const char *gradient, int span,
                                      struct heed_error *err)
{
    const struct slices *s = x->slices;
    enum heed_status status = HEED_OK;
    for (int i = 1; i < s->ranks && !status; i++) {
        int to = (s->rank + i) % s->ranks;
        struct span slice = slices_of(s, span, to);
        status = cluster_send(x->cluster, &x->send, gradient + slice.at * element(x),
                              slice.n * element(x), to, TAG_GRADIENT + span, err);
    }
    return status;
}

static void add_part(struct exchange *x, int *n, enum link_kind kind, struct mat m, int rank)
{
    if (m.cols) x->part[(*n)++] = (struct link_part){kind, m, rank};
}

/* The same over the link, and the own slices of the others' gradients arrive. */
static int slices_to_move(struct exchange *x, int span)
{
    const struct slices *s = x->slices;
    struct mat all = {.p = x->arrived, .type = x->run->grad.type};
    int n = 0;
    for (int i = 1; i < s->ranks; i++) {
        int to = (s->rank + i) % s->ranks, from = (s->rank + s->ranks - i) % s->ranks;
        struct span theirs = slices_of(s, span, to);
        add_part(x, &n, LINK_SEND, slices_mat(x->run->grad, theirs.at, theirs.n), to);
        add_part(x, &n, LINK_RECEIVE, slices_mat(all, landing_at(s, span, from), s->part[span].n),
                 from);
    }
    return n;
}

/* Each owner gets the sum of its slice instead, in its own gradient. */
static int slices_to_sum(struct exchange *x, int span)
{
    int n = 0;
    for (int i = 0; i < x->slices->ranks; i++) {
        struct span slice = slices_of(x->slices, span, i);
        add_part(x, &n, LINK_SUM, slices_mat(x->run->grad, slice.at, slice.n), i);
    }
    return n;
}

static void span_is_final(void *user, int span)
{
    struct exchange *x = user;
    if (x->status) return;
    fold(x, x->levels, x->slices->span[span].at, x->slices->span[span].n);
    if (x->o.link) {
        struct backend *be = x->run->be;
        int n = x->o.fast ? slices_to_sum(x, span) : slices_to_move(x, span);
        be->op->link->move(be, x->part, n);
        return;
    }
    cluster_busy(x->cluster, true);
    x->status = send_gradient(x, x->run->grad.p, span, &x->err);
}

/* All of the gradient by way of host memory. */
static enum heed_status send_mirrored(struct exchange *x, struct heed_error *err)
{
    struct backend *be = x->run->be;
    be->op->download(be, x->mirror, x->run->grad.p, x->run->p->n * element(x));
    enum heed_status s = be->op->sync(be, err);
    for (int i = 0; i < x->slices->spans && !s; i++) s = send_gradient(x, x->mirror, i, err);
    return s;
}

enum heed_status exchange_begin(struct exchange *x, int shard, struct heed_error *err)
{
    struct backend *be = x->run->be;
    be->op->zero(be, x->run->grad.p, x->run->p->n * element(x));
    x->status = HEED_OK;
    if (!is_last(x, shard) || x->slices->ranks == 1 || x->o.link) return HEED_OK;
    return expect_gradients(x, err);
}

const struct gradient_watch *exchange_watch(struct exchange *x)
{
    return overlaps(x) ? &x->watch : NULL;
}

enum heed_status exchange_end(struct exchange *x, int shard, struct heed_error *err)
{
    if (x->status && err) *err = x->err;
    if (x->status) return x->status;
    if (!is_last(x, shard)) {
        int l = 0;
        while (shard >> l & 1) l++;
        fold(x, l, 0, x->run->p->n);
        x->spare[l] = run_swap_gradient(x->run, x->spare[l]);
        return HEED_OK;
    }
    if (overlaps(x)) return HEED_OK;
    fold(x, x->levels, 0, x->run->p->n);
    return x->slices->ranks > 1 ? send_mirrored(x, err) : HEED_OK;
}

/* Adds up the slices of all ranks: ((0+1)+(2+3))+... */
static void sum_ranks(struct exchange *x, int span)
{
    const struct slices *s = x->slices;
    struct backend *be = x->run->be;
    const struct flat_part *own = &s->part[span];
    struct mat all = {.p = x->arrived, .type = x->run->grad.type};
    struct mat mine = slices_mat(x->run->grad, own->at, own->n);
    x->sum[span] = mine;
    if (x->o.fast) return;
    for (int d = 1; d < s->ranks; d *= 2)
        for (int r = 0; r < s->ranks; r += 2 * d) {
            struct mat v[2];
            for (int k = 0; k < 2; k++) {
                int from = r + k * d;
                v[k] = from == s->rank ? mine : slices_mat(all, landing_at(s, span, from), own->n);
            }
            be->op->accumulate(be, v[0], v[1]);
        }
    if (s->rank) x->sum[span] = slices_mat(all, landing_at(s, span, 0), own->n);
}

enum heed_status exchange_sum(struct exchange *x, const struct mat **sum, struct heed_error *err)
{
    const struct slices *s = x->slices;
    struct backend *be = x->run->be;
    enum heed_status status = HEED_OK;
    bool messages = s->ranks > 1 && !x->o.link;
    *sum = x->sum;
    if (x->o.link) be->op->link->wait(be);
    for (int i = s->spans - 1; i >= 0 && !status; i--) {
        size_t others = (size_t)(s->ranks - 1) * element(x);
        size_t at = others * s->part[i].to, bytes = others * s->part[i].n;
        if (messages) status = cluster_wait(x->cluster, &x->receive[i], err);
        if (status || !s->part[i].n) continue;
        if (x->mirror) be->op->upload(be, x->arrived + at, x->landing + at, bytes);
        sum_ranks(x, i);
    }
    if (!status && messages) status = cluster_wait(x->cluster, &x->send, err);
    if (messages) cluster_busy(x->cluster, false);
    return status;
}

/* ---- parameters among ranks ---- */

/* An array of which each rank has updated its slices. */
struct gathered {
    struct mat m;
    bool vectors; /* it is the master of shared parameters */
    int tag;
};

/* The slice of a span that a rank has updated, in elements of the array. */
static struct span gathered_slice(const struct exchange *x, const struct gathered *a, int span,
                                  int rank)
{
    struct span s = slices_of(x->slices, span, rank);
    if (!a->vectors) return s;
    size_t at = parameters_vectors_before(x->run->p, s.at);
    return (struct span){at, parameters_vectors_before(x->run->p, s.at + s.n) - at};
}

static enum heed_status send_slices(struct exchange *x, const struct gathered *a, char *all,
                                    struct heed_error *err)
{
    const struct slices *s = x->slices;
    size_t size = type_size(a->m.type);
    struct transfers t = {0};
    enum heed_status status = HEED_OK;
    for (int i = 0; i < s->spans; i++) {
        struct span own = gathered_slice(x, a, i, s->rank);
        for (int k = 1; k < s->ranks && !status; k++) {
            int to = (s->rank + k) % s->ranks, from = (s->rank + s->ranks - k) % s->ranks;
            struct span theirs = gathered_slice(x, a, i, from);
            status = cluster_receive(x->cluster, &t, all + theirs.at * size, theirs.n * size, from,
                                     a->tag + i, err);
            if (!status)
                status = cluster_send(x->cluster, &t, all + own.at * size, own.n * size, to,
                                      a->tag + i, err);
        }
    }
    if (!status) status = cluster_wait(x->cluster, &t, err);
    transfers_release(&t);
    return status;
}

/* The same over the link. Ops that are called later find the parameters of all ranks. */
static void move_slices(struct exchange *x, const struct gathered *a)
{
    const struct slices *s = x->slices;
    struct backend *be = x->run->be;
    for (int i = 0; i < s->spans; i++) {
        struct span own = gathered_slice(x, a, i, s->rank);
        int n = 0;
        for (int k = 1; k < s->ranks; k++) {
            int to = (s->rank + k) % s->ranks, from = (s->rank + s->ranks - k) % s->ranks;
            struct span theirs = gathered_slice(x, a, i, from);
            add_part(x, &n, LINK_SEND, slices_mat(a->m, own.at, own.n), to);
            add_part(x, &n, LINK_RECEIVE, slices_mat(a->m, theirs.at, theirs.n), from);
        }
        be->op->link->move(be, x->part, n);
    }
    be->op->link->wait(be);
}

static enum heed_status gather(struct exchange *x, const struct gathered *a, struct heed_error *err)
{
    const struct slices *s = x->slices;
    struct backend *be = x->run->be;
    size_t size = type_size(a->m.type);
    if (x->o.link) {
        move_slices(x, a);
        return HEED_OK;
    }
    if (!x->mirror) return send_slices(x, a, a->m.p, err);
    for (int i = 0; i < s->spans; i++) {
        struct span own = gathered_slice(x, a, i, s->rank);
        be->op->download(be, x->mirror + own.at * size, (char *)a->m.p + own.at * size,
                         own.n * size);
    }
    enum heed_status status = be->op->sync(be, err);
    if (!status) status = send_slices(x, a, x->mirror, err);
    if (!status) be->op->upload(be, a->m.p, x->mirror, (size_t)a->m.cols * size);
    return status;
}

enum heed_status exchange_gather(struct exchange *x, struct heed_error *err)
{
    const struct parameters *p = x->run->p;
    if (x->slices->ranks == 1) return HEED_OK;
    struct gathered copy = {p->copy, false, TAG_PARAMETER};
    struct gathered master = {p->master, p->vector, TAG_VECTOR};
    enum heed_status s = p->vector ? gather(x, &copy, err) : HEED_OK;
    return s ? s : gather(x, &master, err);
}

enum heed_status exchange_collect(struct exchange *x, struct mat own, void *out,
                                  struct heed_error *err)
{
    const struct slices *s = x->slices;
    struct backend *be = x->run->be;
    size_t size = element(x), bytes = s->own * size;
    char *mine = malloc(bytes + 1), *to = out;
    struct transfers t = {0};
    if (!mine) return error_memory(err, bytes, "a part of Adam's moments");
    be->op->download(be, mine, own.p, bytes);
    enum heed_status status = be->op->sync(be, err);
    for (int i = 0; i < s->spans && !status; i++) {
        const struct flat_part *part = &s->part[i];
        if (s->rank) {
            status = cluster_send(x->cluster, &t, mine + part->to * size, part->n * size, 0,
                                  TAG_COLLECT + i, err);
            continue;
        }
        memcpy(to + part->at * size, mine + part->to * size, part->n * size);
        for (int r = 1; r < s->ranks && !status; r++) {
            struct span slice = slices_of(s, i, r);
            status = cluster_receive(x->cluster, &t, to + slice.at * size, slice.n * size, r,
                                     TAG_COLLECT + i, err);
        }
    }
    if (!status && t.n) status = cluster_wait(x->cluster, &t, err);
    transfers_release(&t);
    free(mine);
    return status;
}

/* ---- life ---- */

static enum heed_status take_memory(struct exchange *x, struct heed_error *err)
{
    struct backend *be = x->run->be;
    size_t whole = x->run->p->n * element(x);
    size_t others = (size_t)(x->slices->ranks - 1) * x->slices->own * element(x);
    enum heed_status s = HEED_OK;
    for (int l = 0; l < x->levels && !s; l++)
        s = be->op->alloc(be, &x->spare[l], whole, USED_WHOLE, err);
    if (s) return s;
    size_t parts = 2 * (size_t)x->slices->ranks * sizeof *x->part;
    if (x->o.link && !(x->part = malloc(parts))) return error_memory(err, parts, "gradients");
    if (x->slices->ranks == 1 || x->o.fast) return HEED_OK;
    void *arrived = NULL;
    s = be->op->alloc(be, &arrived, others, USED_WHOLE, err);
    if (s) return s;
    x->arrived = x->landing = arrived;
    if (be->op->host || x->o.link) return HEED_OK;
    x->landing = malloc(others + 1);
    x->mirror = malloc(whole);
    return x->landing && x->mirror ? HEED_OK : error_memory(err, whole + others, "gradients");
}

enum heed_status exchange_open(struct exchange **out, struct heed_cluster *c,
                               const struct slices *slices, struct run *r,
                               const struct exchange_options *o, struct heed_error *err)
{
    struct exchange *x = calloc(1, sizeof *x);
    if (!x) return error_memory(err, sizeof *x, "an exchange of gradients");
    x->cluster = c;
    x->slices = slices;
    x->run = r;
    x->o = *o;
    x->first = r->grad.p;
    x->watch = (struct gradient_watch){span_is_final, x};
    while (1 << x->levels < slices->units) x->levels++;
    enum heed_status s = take_memory(x, err);
    if (s) {
        exchange_free(x);
        return s;
    }
    *out = x;
    return HEED_OK;
}

void exchange_free(struct exchange *x)
{
    if (!x) return;
    struct backend *be = x->run->be;
    /* One of the spare gradients may be the run's own now. */
    void *current = run_swap_gradient(x->run, x->first);
    for (int l = 0; l < x->levels; l++)
        be->op->free(be, x->spare[l] == x->first ? current : x->spare[l]);
    be->op->free(be, x->arrived);
    if (x->landing != x->arrived) free(x->landing);
    free(x->mirror);
    free(x->part);
    for (int i = 0; i < SPANS_MAX; i++) transfers_release(&x->receive[i]);
    transfers_release(&x->send);
    free(x);
}
