/*
 * crew.c - threads that tokenize pairs into a pool; see crew.h.
 *
 * Each thread appends to arrays of its own, and a group notes which part of them is its result.
 */
#include "corpus/crew.h"

#include "base/array.h"
#include "base/error.h"
#include "base/parallel.h"
#include "base/random.h"
#include "base/utf8.h"
#include "tokens/subword.h"
#include "tokens/tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* A line that has more bytes than this for each token allowed is known to be too long without
 * tokenizing it: no piece of a vocabulary is as long. */
enum { TOKEN_BYTES_MAX = 64 };

/* One thread: its tokenizer, of which one of the two kinds is set, and its results. */
struct worker {
    struct encoder *encoder;
    struct subword *subword; /* with subword dropout */
    struct heed_ids ids;
    struct pool_pair *pair; /* `at` counts in ids */
    size_t n, cap;
};

struct crew {
    struct worker worker[PARALLEL_MAX];
    int n;
    struct group *group; /* [groups_cap] */
    size_t groups_cap;
};

/* The result of one group: pairs and ids of a worker. */
struct group {
    const struct worker *worker;
    size_t pair, pairs, id, ids; /* first and number */
    struct batch_counts counts;
    enum heed_status status;
    struct heed_error err;
};

struct encoding {
    struct crew *crew;
    const struct crew_job *job;
};

static enum heed_status worker_init(struct worker *w, const struct crew_options *o,
                                    struct heed_error *err)
{
    if (o->subword_dropout > 0)
        return subword_new(&w->subword, o->tokenizer, o->subword_dropout, err);
    w->encoder = encoder_new(o->tokenizer, err);
    return w->encoder ? HEED_OK : HEED_ENOMEM;
}

enum heed_status crew_open(struct crew **out, const struct crew_options *o, struct heed_error *err)
{
    struct crew *c = calloc(1, sizeof *c);
    if (!c) return error_memory(err, sizeof *c, "the threads that tokenize");
    int n = parallel_threads(o->threads);
    for (; c->n < n; c->n++) {
        enum heed_status st = worker_init(&c->worker[c->n], o, err);
        if (st) {
            crew_free(c);
            return st;
        }
    }
    *out = c;
    return HEED_OK;
}

void crew_free(struct crew *c)
{
    if (!c) return;
    for (int i = 0; i < c->n; i++) {
        struct worker *w = &c->worker[i];
        encoder_free(w->encoder);
        subword_free(w->subword);
        free(w->ids.v);
        free(w->pair);
    }
    free(c->group);
    free(c);
}

int crew_threads(const struct crew *c)
{
    return c->n;
}

static bool blank(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!strchr(" \t\r\v\f", text[i]) || text[i] == 0) return false;
    return true;
}

/* Appends the ids of one side of a pair to w->ids. *tokens is their number, or -1 where the side is
 * too long. random decides the subword dropout of this side. */
static enum heed_status side_encode(struct worker *w, int longest, const char *text, size_t len,
                                    uint64_t random, int *tokens, struct heed_error *err)
{
    *tokens = -1;
    if (len / TOKEN_BYTES_MAX > (size_t)longest) return HEED_OK;
    size_t before = w->ids.n;
    enum heed_status st = w->subword ? subword_run(w->subword, text, len, random, &w->ids, err)
                                     : encoder_run(w->encoder, text, len, &w->ids, err);
    size_t n = w->ids.n - before;
    if (!st && n < (size_t)longest) *tokens = (int)n;
    return st;
}

static enum heed_status pair_encode(struct worker *w, const struct crew_job *job,
                                    const struct pair *x, uint64_t number,
                                    struct batch_counts *counts, struct heed_error *err)
{
    if (blank(x->src, x->src_len) || blank(x->tgt, x->tgt_len)) {
        counts->empty++;
        return HEED_OK;
    }
    size_t at = w->ids.n;
    int src_n, tgt_n = -1;
    enum heed_status st = side_encode(w, job->longest, x->src, x->src_len,
                                      random_at(job->seed, number, 0), &src_n, err);
    if (!st && src_n >= 0)
        st = side_encode(w, job->longest, x->tgt, x->tgt_len, random_at(job->seed, number, 1),
                         &tgt_n, err);
    if (!st && src_n > 0 && tgt_n > 0)
        st = array_reserve(&w->pair, &w->cap, w->n + 1, sizeof *w->pair, "the pairs of a corpus",
                           err);
    if (st) return st;
    if (src_n > 0 && tgt_n > 0) {
        w->pair[w->n++] = (struct pool_pair){at, src_n, tgt_n};
        counts->pairs++;
        if (!utf8_valid(x->src, x->src_len) || !utf8_valid(x->tgt, x->tgt_len)) counts->invalid++;
        return HEED_OK;
    }
    if (src_n < 0 || tgt_n < 0)
        counts->longer++;
    else
        counts->empty++;
    w->ids.n = at;
    return HEED_OK;
}

static void group_encode(void *arg, int thread, long i)
{
    const struct encoding *e = arg;
    const struct crew_job *job = e->job;
    struct worker *w = &e->crew->worker[thread];
    struct group *g = &e->crew->group[i];
    size_t first = (size_t)i * CREW_GROUP,
           n = job->n - first < CREW_GROUP ? job->n - first : CREW_GROUP;
    *g = (struct group){.worker = w, .pair = w->n, .id = w->ids.n};
    if (job->begin) g->status = job->begin(job->from, thread, first, n, &g->err);
    for (size_t k = first; k < first + n && !g->status && !atomic_load(job->stop); k++) {
        struct pair x;
        uint64_t number;
        g->status = job->get(job->from, thread, k, &x, &number, &g->err);
        if (!g->status) g->status = pair_encode(w, job, &x, number, &g->counts, &g->err);
    }
    g->pairs = w->n - g->pair;
    g->ids = w->ids.n - g->id;
}

static void counts_add(struct batch_counts *a, const struct batch_counts *b)
{
    a->pairs += b->pairs;
    a->empty += b->empty;
    a->longer += b->longer;
    a->invalid += b->invalid;
}

/* Appends the ids and pairs of a group to the pool. */
static enum heed_status group_join(struct pool *p, const struct group *g, struct heed_error *err)
{
    if (g->status && err) *err = g->err;
    if (g->status) return g->status;
    counts_add(&p->counts, &g->counts);
    if (!g->pairs) return HEED_OK;
    enum heed_status st = array_reserve(&p->ids.v, &p->ids.cap, p->ids.n + g->ids, sizeof *p->ids.v,
                                        "the ids of a corpus", err);
    if (!st)
        st = array_reserve(&p->pair, &p->cap, p->n + g->pairs, sizeof *p->pair,
                           "the pairs of a corpus", err);
    if (st) return st;
    memcpy(p->ids.v + p->ids.n, g->worker->ids.v + g->id, g->ids * sizeof *p->ids.v);
    for (size_t i = 0; i < g->pairs; i++) {
        p->pair[p->n] = g->worker->pair[g->pair + i];
        p->pair[p->n].at += p->ids.n - g->id;
        p->n++;
    }
    p->ids.n += g->ids;
    return HEED_OK;
}

enum heed_status crew_encode(struct crew *c, const struct crew_job *job, struct pool *p,
                             struct heed_error *err)
{
    size_t groups = (job->n + CREW_GROUP - 1) / CREW_GROUP;
    enum heed_status st = array_reserve(&c->group, &c->groups_cap, groups, sizeof *c->group,
                                        "the threads that tokenize", err);
    if (st) return st;
    for (int i = 0; i < c->n; i++) c->worker[i].n = c->worker[i].ids.n = 0;
    struct encoding e = {c, job};
    parallel_run(job->few ? 1 : c->n, (long)groups, group_encode, &e);
    for (size_t i = 0; i < groups && !st; i++) st = group_join(p, &c->group[i], err);
    return st;
}
