/*
 * pool.c - consecutive pairs of the corpus as ids in memory, and the plan of their batches.
 *
 * A pool is filled block by block: a few megabytes of lines are read, a few threads tokenize a
 * share of them each, and the shares are joined in file order, so that the result does not depend
 * on the number of threads.
 */
#include "corpus/pool.h"

#include "base/array.h"
#include "base/error.h"
#include "base/random.h"
#include "base/utf8.h"
#include "tokens/subword.h"
#include "tokens/tokenizer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bytes of text in a block; the least bytes that are shared among threads; the most threads. */
enum { BLOCK_BYTES = 4 << 20, THREAD_BYTES = 32 << 10, THREADS_MAX = 4 };

/* A line that has more bytes than this for each token allowed is known to be too long without
 * tokenizing it: no piece of a vocabulary is as long. */
enum { TOKEN_BYTES_MAX = 64 };

/* Bytes that a pair counts in addition to its text, so that memory is bounded for a corpus of very
 * short lines too. */
enum { PAIR_BYTES = 16 };

struct block_pair {
    size_t at; /* offset of the source in the text; the target follows it */
    size_t src_len, tgt_len;
};

/* Pairs of lines that are to be tokenized. */
struct block {
    char *text;
    size_t bytes, bytes_cap;
    struct block_pair *pair;
    size_t n, cap;
    int64_t first; /* number of the first pair, counted in the corpus */
};

/* The tokenizer of one thread: one of the two is set. */
struct worker {
    struct encoder *encoder;
    struct subword *subword; /* with subword dropout */
};

/* The share of a block that one thread tokenizes. */
struct share {
    const struct block *block;
    const struct pool_options *o;
    size_t from, to; /* pairs of the block */
    struct worker worker;
    struct heed_ids ids;    /* the result, in the form of struct pool */
    struct pool_pair *pair; /* [to - from] */
    size_t n;
    struct batch_counts counts;
    enum heed_status status;
    struct heed_error err;
};

/* Whether pair x goes into a pool that has *used bytes; adds its bytes to *used if so. pool_fill
 * and pool_skip share this rule and so cut a corpus at the same places. A pool takes at least one
 * pair. */
static bool pool_takes(const struct pool_options *o, size_t *used, const struct pair *x)
{
    size_t bytes = x->src_len + x->tgt_len + PAIR_BYTES;
    if (!x->src || (*used > 0 && *used + bytes > o->text_bytes)) return false;
    *used += bytes;
    return true;
}

static enum heed_status block_add(struct block *b, const struct pair *x, struct heed_error *err)
{
    size_t bytes = b->bytes + x->src_len + x->tgt_len;
    enum heed_status st =
        array_reserve(&b->text, &b->bytes_cap, bytes + 1, 1, "a block of text", err);
    if (!st)
        st = array_reserve(&b->pair, &b->cap, b->n + 1, sizeof *b->pair, "a block of lines", err);
    if (st) return st;
    memcpy(b->text + b->bytes, x->src, x->src_len);
    memcpy(b->text + b->bytes + x->src_len, x->tgt, x->tgt_len);
    b->pair[b->n++] = (struct block_pair){b->bytes, x->src_len, x->tgt_len};
    b->bytes = bytes;
    return HEED_OK;
}

/* Reads the next block. *full: the pool takes no more pairs. *last: the corpus has ended. */
static enum heed_status block_read(struct block *b, struct pairs *in, const struct pool_options *o,
                                   size_t *used, bool *full, bool *last, struct heed_error *err)
{
    b->bytes = b->n = 0;
    b->first = pairs_taken(in);
    size_t end = *used + BLOCK_BYTES;
    struct pair x;
    while (*used < end && !atomic_load(o->stop)) {
        enum heed_status st = pairs_peek(in, &x, err);
        if (st) return st;
        *last = !x.src;
        *full = !pool_takes(o, used, &x);
        if (*full) break;
        if ((st = block_add(b, &x, err))) return st;
        pairs_take(in);
    }
    return HEED_OK;
}

static bool blank(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!strchr(" \t\r\v\f", text[i]) || text[i] == 0) return false;
    return true;
}

/* Appends the ids of one side of a pair to s->ids. *tokens is their number, or -1 where the side is
 * too long. random decides the subword dropout of this side. */
static enum heed_status side_encode(struct share *s, const char *text, size_t len, uint64_t random,
                                    int *tokens)
{
    *tokens = -1;
    if (len / TOKEN_BYTES_MAX > (size_t)s->o->longest) return HEED_OK;
    size_t before = s->ids.n;
    enum heed_status st = s->worker.subword
                              ? subword_run(s->worker.subword, text, len, random, &s->ids, &s->err)
                              : encoder_run(s->worker.encoder, text, len, &s->ids, &s->err);
    size_t n = s->ids.n - before;
    if (!st && n < (size_t)s->o->longest) *tokens = (int)n;
    return st;
}

static enum heed_status pair_encode(struct share *s, size_t i)
{
    const struct block_pair *x = &s->block->pair[i];
    uint64_t number = (uint64_t)s->block->first + i;
    if (number % (uint64_t)s->o->shards != (uint64_t)s->o->shard) return HEED_OK;
    const char *src = s->block->text + x->at, *tgt = src + x->src_len;
    if (blank(src, x->src_len) || blank(tgt, x->tgt_len)) {
        s->counts.empty++;
        return HEED_OK;
    }
    size_t at = s->ids.n;
    int src_n, tgt_n = -1;
    enum heed_status st =
        side_encode(s, src, x->src_len, random_at(s->o->random, number, 0), &src_n);
    if (!st && src_n >= 0)
        st = side_encode(s, tgt, x->tgt_len, random_at(s->o->random, number, 1), &tgt_n);
    if (st) return st;
    if (src_n > 0 && tgt_n > 0) {
        s->pair[s->n++] = (struct pool_pair){at, src_n, tgt_n};
        s->counts.pairs++;
        if (!utf8_valid(src, x->src_len) || !utf8_valid(tgt, x->tgt_len)) s->counts.invalid++;
        return HEED_OK;
    }
    if (src_n < 0 || tgt_n < 0)
        s->counts.longer++;
    else
        s->counts.empty++;
    s->ids.n = at;
    return HEED_OK;
}

static void *share_run(void *arg)
{
    struct share *s = arg;
    for (size_t i = s->from; i < s->to && !s->status && !atomic_load(s->o->stop); i++)
        s->status = pair_encode(s, i);
    return NULL;
}

static enum heed_status share_init(struct share *s, const struct block *b,
                                   const struct pool_options *o, size_t from, size_t to,
                                   struct heed_error *err)
{
    *s = (struct share){.block = b, .o = o, .from = from, .to = to};
    size_t bytes = (to - from + 1) * sizeof *s->pair;
    s->pair = malloc(bytes);
    return s->pair ? HEED_OK : error_memory(err, bytes, "the pairs of a block");
}

/* Appends the ids and pairs of a share to the pool. */
static enum heed_status share_join(struct pool *p, const struct share *s, struct heed_error *err)
{
    if (s->status && err) *err = s->err;
    if (s->status || s->n == 0) return s->status;
    enum heed_status st = array_reserve(&p->ids.v, &p->ids.cap, p->ids.n + s->ids.n,
                                        sizeof *p->ids.v, "the ids of a corpus", err);
    if (!st)
        st = array_reserve(&p->pair, &p->cap, p->n + s->n, sizeof *p->pair, "the pairs of a corpus",
                           err);
    if (st) return st;
    memcpy(p->ids.v + p->ids.n, s->ids.v, s->ids.n * sizeof *p->ids.v);
    for (size_t i = 0; i < s->n; i++) {
        p->pair[p->n] = s->pair[i];
        p->pair[p->n++].at += p->ids.n;
    }
    p->ids.n += s->ids.n;
    return HEED_OK;
}

static void counts_add(struct batch_counts *a, const struct batch_counts *b)
{
    a->pairs += b->pairs;
    a->empty += b->empty;
    a->longer += b->longer;
    a->invalid += b->invalid;
}

/* Runs the first share in this thread and every other in a thread of its own, or here where that
 * cannot be started. */
static void shares_run(struct share *share, int n)
{
    pthread_t thread[THREADS_MAX];
    bool started[THREADS_MAX] = {false};
    for (int i = 1; i < n; i++)
        started[i] = pthread_create(&thread[i], NULL, share_run, &share[i]) == 0;
    share_run(&share[0]);
    for (int i = 1; i < n; i++) {
        if (started[i])
            pthread_join(thread[i], NULL);
        else
            share_run(&share[i]);
    }
}

/* The workers that fill a pool. They serve block after block, because an encoder remembers the
 * words it has seen. */
struct crew {
    struct worker worker[THREADS_MAX];
    int n;
};

static void crew_release(struct crew *c)
{
    for (int i = 0; i < c->n; i++) {
        encoder_free(c->worker[i].encoder);
        subword_free(c->worker[i].subword);
    }
}

static enum heed_status worker_init(struct worker *w, const struct pool_options *o,
                                    struct heed_error *err)
{
    *w = (struct worker){0};
    if (o->subword_dropout > 0)
        return subword_new(&w->subword, o->tokenizer, o->subword_dropout, err);
    w->encoder = encoder_new(o->tokenizer, err);
    return w->encoder ? HEED_OK : HEED_ENOMEM;
}

static enum heed_status crew_init(struct crew *c, const struct pool_options *o,
                                  struct heed_error *err)
{
    long wanted = o->threads ? o->threads : sysconf(_SC_NPROCESSORS_ONLN);
    int n = wanted < 1 ? 1 : wanted < THREADS_MAX ? (int)wanted : THREADS_MAX;
    for (c->n = 0; c->n < n; c->n++) {
        enum heed_status st = worker_init(&c->worker[c->n], o, err);
        if (st) {
            crew_release(c);
            return st;
        }
    }
    return HEED_OK;
}

static enum heed_status block_encode(struct pool *p, const struct block *b, const struct crew *crew,
                                     const struct pool_options *o, struct heed_error *err)
{
    struct share share[THREADS_MAX];
    enum heed_status st = HEED_OK;
    size_t from = 0;
    int n = b->bytes < THREAD_BYTES ? 1 : crew->n, made = 0;
    for (; made < n && !st; made++) {
        size_t to = from, end = b->bytes / (size_t)n * (size_t)(made + 1);
        while (to < b->n && (made == n - 1 || b->pair[to].at < end)) to++;
        st = share_init(&share[made], b, o, from, to, err);
        share[made].worker = crew->worker[made];
        from = to;
    }
    if (!st) shares_run(share, n);
    for (int i = 0; i < made; i++) {
        if (!st) st = share_join(p, &share[i], err);
        counts_add(&p->counts, &share[i].counts);
        free(share[i].ids.v);
        free(share[i].pair);
    }
    return st;
}

enum heed_status pool_fill(struct pool *p, struct pairs *in, const struct pool_options *o,
                           struct heed_error *err)
{
    struct block block = {0};
    struct crew crew;
    size_t used = 0;
    bool full = false;
    p->ids.n = p->n = 0;
    p->counts = (struct batch_counts){0};
    enum heed_status st = crew_init(&crew, o, err);
    if (st) return st;
    while (!st && !full && !atomic_load(o->stop)) {
        st = block_read(&block, in, o, &used, &full, &p->last, err);
        if (!st) st = block_encode(p, &block, &crew, o, err);
    }
    crew_release(&crew);
    free(block.text);
    free(block.pair);
    return st;
}

enum heed_status pool_skip(struct pairs *in, const struct pool_options *o, bool *last,
                           struct heed_error *err)
{
    size_t used = 0;
    struct pair x;
    for (;;) {
        enum heed_status st = pairs_peek(in, &x, err);
        if (st) return st;
        *last = !x.src;
        if (!pool_takes(o, &used, &x)) return HEED_OK;
        pairs_take(in);
    }
}

void pool_release(struct pool *p)
{
    free(p->ids.v);
    free(p->pair);
    *p = (struct pool){0};
}

/* What the pairs of a pool are sorted by. */
struct plan_key {
    int32_t tgt, src;
    uint32_t rank; /* place after the shuffle, which orders pairs of equal lengths */
    uint32_t pair;
};

static int key_compare(const void *x, const void *y)
{
    const struct plan_key *a = x, *b = y;
    if (a->tgt != b->tgt) return a->tgt < b->tgt ? -1 : 1;
    if (a->src != b->src) return a->src < b->src ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static enum heed_status order_shuffle(uint32_t *order, const struct pool *p, uint64_t *random,
                                      struct heed_error *err)
{
    struct plan_key *key = malloc((p->n + 1) * sizeof *key);
    if (!key) return error_memory(err, (p->n + 1) * sizeof *key, "sorting a pool");
    for (size_t i = p->n; i > 1; i--) {
        size_t j = random_below(random, i);
        uint32_t x = order[i - 1];
        order[i - 1] = order[j];
        order[j] = x;
    }
    for (size_t i = 0; i < p->n; i++) {
        const struct pool_pair *x = &p->pair[order[i]];
        key[i] = (struct plan_key){x->tgt, x->src, (uint32_t)i, order[i]};
    }
    qsort(key, p->n, sizeof *key, key_compare);
    for (size_t i = 0; i < p->n; i++) order[i] = key[i].pair;
    free(key);
    return HEED_OK;
}

/* Cuts the order into batches: a batch takes the next pairs as long as both of its sides stay
 * within batch_tokens rows. */
static void spans_cut(struct plan *plan, const struct pool *p, int batch_tokens)
{
    int64_t src = 0, tgt = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const struct pool_pair *x = &p->pair[plan->order[i]];
        src += x->src + 1;
        tgt += x->tgt + 1;
        if (i == 0 || src > batch_tokens || tgt > batch_tokens) {
            plan->span[plan->n++] = (struct plan_span){i, 0};
            src = x->src + 1;
            tgt = x->tgt + 1;
        }
        plan->span[plan->n - 1].n++;
    }
}

static void spans_shuffle(struct plan *plan, uint64_t *random)
{
    for (size_t i = plan->n; i > 1; i--) {
        size_t j = random_below(random, i);
        struct plan_span x = plan->span[i - 1];
        plan->span[i - 1] = plan->span[j];
        plan->span[j] = x;
    }
}

enum heed_status plan_make(struct plan *out, const struct pool *p, int batch_tokens, bool shuffle,
                           uint64_t random, struct heed_error *err)
{
    struct plan plan = {0};
    plan.order = malloc((p->n + 1) * sizeof *plan.order);
    plan.span = malloc((p->n + 1) * sizeof *plan.span);
    if (!plan.order || !plan.span) {
        plan_release(&plan);
        return error_memory(err, (p->n + 1) * sizeof *plan.span, "the order of a pool");
    }
    for (size_t i = 0; i < p->n; i++) plan.order[i] = (uint32_t)i;
    enum heed_status st = shuffle ? order_shuffle(plan.order, p, &random, err) : HEED_OK;
    if (st) {
        plan_release(&plan);
        return st;
    }
    spans_cut(&plan, p, batch_tokens);
    if (shuffle) spans_shuffle(&plan, &random);
    *out = plan;
    return HEED_OK;
}

void plan_release(struct plan *p)
{
    free(p->order);
    free(p->span);
    *p = (struct plan){0};
}
