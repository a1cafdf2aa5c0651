/*
 * test_link.c - which way ranks exchange gradients, and the exchange over a link, whose sums must
 * have the same bits for any number of ranks. The ranks are threads, and the link between them
 * copies memory.
 */
#include <pthread.h>
#include <stdio.h>

#include "toy.h"
#include "train/exchange.h"
#include "train/link.h"

/* ---- the decision ---- */

enum { RANKS = 4 };
static const char HOST[RANKS][CLUSTER_HOST_MAX] = {"a", "a", "b", "b"};

/* Ranks with a GPU each, and NCCL. */
static void offers(struct link_offer offer[RANKS])
{
    memset(offer, 0, RANKS * sizeof *offer);
    for (int i = 0; i < RANKS; i++) {
        offer[i].loaded = true;
        offer[i].info.device.bytes[15] = (unsigned char)i;
        strcpy(offer[i].info.library, "NCCL 2.30.7");
    }
}

static struct link_choice decided(enum heed_link link, enum heed_sum sum,
                                  const struct link_offer *offer, int ranks)
{
    struct link_choice c;
    struct heed_error err = {0};
    struct link_wish wish = {link, sum};
    if (link_decide(&c, &wish, offer, HOST, ranks, &err)) fail_msg("%s", err.text);
    return c;
}

static void refused(enum heed_link link, enum heed_sum sum, const struct link_offer *offer,
                    int ranks, const char *sentence)
{
    struct link_choice c;
    struct heed_error err = {0};
    struct link_wish wish = {link, sum};
    assert_int_equal(link_decide(&c, &wish, offer, HOST, ranks, &err), HEED_EUNSUPPORTED);
    assert_string_equal(err.text, sentence);
}

static void test_own_gpus(void **state)
{
    (void)state;
    struct link_offer offer[RANKS];
    offers(offer);
    struct link_choice c = decided(HEED_LINK_AUTO, HEED_SUM_EXACT, offer, RANKS);
    assert_true(c.open);
    assert_string_equal(c.text, "gradients go from GPU to GPU by NCCL 2.30.7");
    c = decided(HEED_LINK_AUTO, HEED_SUM_FAST, offer, RANKS);
    assert_true(c.open);
    assert_string_equal(c.text, "gradients go from GPU to GPU by NCCL 2.30.7, which chooses the "
                                "order of additions");
    c = decided(HEED_LINK_HOST, HEED_SUM_EXACT, offer, RANKS);
    assert_false(c.open);
    assert_string_equal(c.text, "gradients go through host memory");
    refused(HEED_LINK_HOST, HEED_SUM_FAST, offer, RANKS,
            "sum is fast, which needs NCCL, but gradients would go through host memory: link is "
            "host");
}

/* NCCL would refuse ranks that share a GPU, so it is used for them only if it is asked for. */
static void test_shared_gpu(void **state)
{
    (void)state;
    struct link_offer offer[RANKS];
    offers(offer);
    offer[3].info.device = offer[1].info.device;
    struct link_choice c = decided(HEED_LINK_AUTO, HEED_SUM_EXACT, offer, RANKS);
    assert_false(c.open);
    assert_string_equal(c.text, "gradients go through host memory: ranks 1 and 3 share a GPU");
    assert_true(decided(HEED_LINK_NCCL, HEED_SUM_EXACT, offer, RANKS).open);
    assert_true(decided(HEED_LINK_NCCL, HEED_SUM_FAST, offer, RANKS).open);
    refused(HEED_LINK_AUTO, HEED_SUM_FAST, offer, RANKS,
            "sum is fast, which needs NCCL, but gradients would go through host memory: ranks 1 "
            "and 3 share a GPU");
}

static void test_not_loaded(void **state)
{
    (void)state;
    struct link_offer offer[RANKS];
    offers(offer);
    offer[2].loaded = false;
    strcpy(offer[2].why, "NCCL cannot be loaded: no such file");
    struct link_choice c = decided(HEED_LINK_AUTO, HEED_SUM_EXACT, offer, RANKS);
    assert_false(c.open);
    assert_string_equal(c.text, "gradients go through host memory: rank 2 on host b: NCCL cannot "
                                "be loaded: no such file");
    refused(HEED_LINK_NCCL, HEED_SUM_EXACT, offer, RANKS,
            "link is nccl, but rank 2 on host b: NCCL cannot be loaded: no such file");
}

static void test_one_rank(void **state)
{
    (void)state;
    struct link_offer offer[RANKS];
    offers(offer);
    assert_false(decided(HEED_LINK_AUTO, HEED_SUM_EXACT, offer, 1).open);
    struct link_choice c = decided(HEED_LINK_NCCL, HEED_SUM_EXACT, offer, 1);
    assert_true(c.open);
    assert_string_equal(c.text, "");
}

/* A backend of the CPU has no link. */
static void test_cpu(void **state)
{
    (void)state;
    struct heed_error err = {0};
    struct backend *be;
    struct link_choice c;
    struct link_wish wish = {HEED_LINK_AUTO, HEED_SUM_EXACT};
    assert_int_equal(cpu_open(&be, NULL, 1, &err), HEED_OK);
    assert_int_equal(link_choose(&c, NULL, be, &wish, &err), HEED_OK);
    assert_false(c.open);
    wish.link = HEED_LINK_NCCL;
    assert_int_equal(link_choose(&c, NULL, be, &wish, &err), HEED_EUNSUPPORTED);
    assert_string_equal(err.text,
                        "link is nccl, but the device 'cpu' has no NCCL, which is for GPUs");
    be->op->close(be);
}

/* ---- a link between threads ---- */

enum { SHARDS = 8, PARTS_MAX = 2 * SHARDS };

/* What all ranks share. Each group of transfers is done when the last rank has come to it. */
struct hub {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int ranks, came, groups;
    struct link_part part[SHARDS][PARTS_MAX];
    int n[SHARDS];
    bool opened[SHARDS];
};

/* A backend that is not the host's, as a GPU's. */
struct linked {
    struct backend base;
    struct backend *inside; /* ref, whose functions need a backend of its own */
    struct ops op;
    struct hub *hub;
    int rank;
};

static struct linked *linked_of(struct backend *be)
{
    return (struct linked *)be;
}

static struct link_part *find(struct hub *h, int rank, enum link_kind kind, int peer, size_t n)
{
    for (int i = 0; i < h->n[rank]; i++) {
        struct link_part *p = &h->part[rank][i];
        if (p->kind == kind && p->rank == peer && (size_t)p->x.cols == n) return p;
    }
    return NULL;
}

/* From the last rank to the first, which is not the order of the tree. */
static void add_all(struct hub *h, const struct link_part *to)
{
    size_t n = (size_t)to->x.cols;
    double *sum = calloc(n, sizeof *sum);
    for (int r = h->ranks - 1; r >= 0; r--) {
        struct link_part *p = find(h, r, LINK_SUM, to->rank, n);
        assert_non_null(p);
        for (size_t i = 0; i < n; i++) sum[i] += ((double *)p->x.p)[i];
    }
    memcpy(to->x.p, sum, n * sizeof *sum);
    free(sum);
}

static void deliver(struct hub *h)
{
    for (int r = 0; r < h->ranks; r++)
        for (int i = 0; i < h->n[r]; i++) {
            struct link_part *p = &h->part[r][i];
            size_t n = (size_t)p->x.cols;
            if (p->kind == LINK_SUM && p->rank == r) add_all(h, p);
            if (p->kind == LINK_SEND) assert_non_null(find(h, p->rank, LINK_RECEIVE, r, n));
            if (p->kind != LINK_RECEIVE) continue;
            struct link_part *from = find(h, p->rank, LINK_SEND, r, n);
            assert_non_null(from);
            memcpy(p->x.p, from->x.p, n * type_size(p->x.type));
        }
}

static void hub_move(struct backend *be, const struct link_part *part, int n)
{
    struct linked *l = linked_of(be);
    struct hub *h = l->hub;
    pthread_mutex_lock(&h->lock);
    assert_true(n <= PARTS_MAX);
    if (n) memcpy(h->part[l->rank], part, (size_t)n * sizeof *part);
    h->n[l->rank] = n;
    int group = h->groups;
    if (++h->came == h->ranks) {
        deliver(h);
        h->came = 0;
        h->groups++;
        pthread_cond_broadcast(&h->changed);
    }
    while (h->groups == group) pthread_cond_wait(&h->changed, &h->lock);
    pthread_mutex_unlock(&h->lock);
}

static void hub_wait(struct backend *be)
{
    (void)be;
}

static void linked_accumulate(struct backend *be, struct mat x, struct mat y)
{
    struct backend *ref = linked_of(be)->inside;
    ref->op->accumulate(ref, x, y);
}

static const struct link_ops hub_link = {.move = hub_move, .wait = hub_wait};

static void linked_open(struct linked *l, struct hub *h, int rank)
{
    struct heed_error err = {0};
    assert_int_equal(ref_open(&l->inside, &err), HEED_OK);
    l->op = *l->inside->op;
    l->op.host = false;
    l->op.link = &hub_link;
    l->op.accumulate = linked_accumulate;
    l->base.op = &l->op;
    l->hub = h;
    l->rank = rank;
}

/* ---- the exchange ---- */

/* One rank of an exchange, and what comes of it. */
struct rank {
    struct hub *hub;
    int rank, ranks;
    bool fast;
    double *sum;        /* [n] of all ranks: each fills its slices */
    double *parameters; /* [n] of this rank, after they were gathered */
};

static struct heed_config config(void)
{
    struct heed_config c = toy_config;
    c.norm = HEED_NORM_PRE; /* with a span that is smaller than the number of shards */
    return c;
}

/* The gradient of element i of a shard: numbers whose sum depends on the order. */
static double gradient(int shard, size_t i)
{
    return (double)random_at(9, (uint64_t)shard, i) / (double)(1u << (shard * 3 + 1));
}

static void *rank_run(void *arg)
{
    struct rank *k = arg;
    struct heed_config c = config();
    struct heed_error err = {0};
    struct linked l;
    struct parameters *p;
    struct run *run;
    struct slices s;
    struct exchange *x;
    struct exchange_options o = {.link = true, .fast = k->fast};
    struct heed_cluster cluster = {.rank = k->rank, .ranks = k->ranks};
    const struct mat *sum;
    linked_open(&l, k->hub, k->rank);
    struct run_options options = {.rows_src = 16, .rows_tgt = 16, .sentences = 4, .train = true};
    assert_int_equal(parameters_open(&p, &l.base, &c, precision_f64, &err), HEED_OK);
    assert_int_equal(run_open(&run, &l.base, p, &options, &err), HEED_OK);
    slices_init(&s, &c, SHARDS, k->rank, k->ranks);
    assert_int_equal(exchange_open(&x, &cluster, &s, run, &o, &err), HEED_OK);
    for (int step = 0; step < 2; step++) {
        for (int i = 0; i < s.units; i++) {
            assert_int_equal(exchange_begin(x, i, &err), HEED_OK);
            double *g = run->grad.p;
            for (size_t e = 0; e < p->n; e++) g[e] += gradient(k->rank * s.units + i, e);
            const struct gradient_watch *w = exchange_watch(x);
            for (int span = s.spans - 1; span >= 0 && i == s.units - 1; span--)
                w->final(w->user, span);
            assert_int_equal(exchange_end(x, i, &err), HEED_OK);
        }
        assert_int_equal(exchange_sum(x, &sum, &err), HEED_OK);
    }
    for (int i = 0; i < s.spans; i++) {
        if (!s.part[i].n) continue;
        memcpy(k->sum + s.part[i].at, sum[i].p, s.part[i].n * sizeof *k->sum);
        for (size_t e = 0; e < s.part[i].n; e++)
            ((double *)p->master.p)[s.part[i].at + e] = (double)(s.part[i].at + e);
    }
    assert_int_equal(exchange_gather(x, &err), HEED_OK);
    memcpy(k->parameters, p->master.p, p->n * sizeof *k->parameters);
    exchange_free(x);
    run_free(run);
    parameters_free(p);
    l.inside->op->close(l.inside);
    return NULL;
}

/* Sums over `ranks` ranks; every rank must have all parameters afterwards. */
static double *exchanged(int ranks, bool fast)
{
    struct heed_config c = config();
    size_t n = parameters_count(&c);
    struct hub hub = {.ranks = ranks};
    struct rank rank[SHARDS];
    pthread_t thread[SHARDS];
    double *sum = calloc(n, sizeof *sum), *parameters = calloc(n * SHARDS, sizeof *parameters);
    pthread_mutex_init(&hub.lock, NULL);
    pthread_cond_init(&hub.changed, NULL);
    for (int r = 0; r < ranks; r++) {
        rank[r] = (struct rank){&hub, r, ranks, fast, sum, parameters + (size_t)r * n};
        assert_int_equal(pthread_create(&thread[r], NULL, rank_run, &rank[r]), 0);
    }
    for (int r = 0; r < ranks; r++) pthread_join(thread[r], NULL);
    for (int r = 0; r < ranks; r++)
        for (size_t i = 0; i < n; i++)
            if (parameters[(size_t)r * n + i] != (double)i)
                fail_msg("parameter %zu of rank %d of %d is %g", i, r, ranks,
                         parameters[(size_t)r * n + i]);
    pthread_cond_destroy(&hub.changed);
    pthread_mutex_destroy(&hub.lock);
    free(parameters);
    return sum;
}

static void test_exchange(void **state)
{
    (void)state;
    struct heed_config c = config();
    size_t n = parameters_count(&c), other = 0;
    double *one = exchanged(1, false);
    for (size_t i = 0; i < n; i++) {
        double g[SHARDS];
        for (int k = 0; k < SHARDS; k++) g[k] = gradient(k, i);
        double tree = ((g[0] + g[1]) + (g[2] + g[3])) + ((g[4] + g[5]) + (g[6] + g[7]));
        assert_true(one[i] == tree);
    }
    for (int ranks = 2; ranks <= SHARDS; ranks *= 2) {
        double *sum = exchanged(ranks, false), *fast = exchanged(ranks, true);
        assert_memory_equal(sum, one, n * sizeof *sum);
        for (size_t i = 0; i < n; i++) {
            assert_true(fabs(fast[i] - one[i]) <= 1e-12 * fabs(one[i]));
            other += fast[i] != one[i];
        }
        free(sum);
        free(fast);
    }
    assert_true(other >
                0); /* the order of additions matters, so that the bits above say something */
    free(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_gpus),   cmocka_unit_test(test_shared_gpu),
        cmocka_unit_test(test_not_loaded), cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_cpu),        cmocka_unit_test(test_exchange),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
