/*
 * batch.c - a stream of packed batches from parallel text. Third stage of the walk.
 *
 * Batches are double-buffered. There are two stages, each of them a pool of tokenized pairs with
 * the plan of its batches: the caller takes batches from one stage while a background thread
 * prepares the other. So at most two pools are in memory, and training does not wait for text.
 * batch_next itself packs a batch: it copies some hundred kilobytes, in less than a thousandth of
 * the time of a training step. The background thread starts with the first batch_next, so that
 * several streams are opened without their second pools being in the way of the first ones.
 *
 * A corpus that fits into one pool is tokenized once, and from then on both stages plan over that
 * pool. Under subword dropout it is tokenized again for every epoch.
 *
 * The mutex of a stream guards `ready` of a stage and the fields marked as shared below. A stage
 * belongs to the caller while it is ready and to the background thread while it is not. All other
 * fields of the producer belong to the background thread. The mutex of batch_shared is held while a
 * stream fills a pool: all threads that tokenize work for one stream, then for the next.
 *
 * A pair with a sentence longer than batch_tokens fits into no batch. It is dropped, like a pair
 * with a sentence longer than max_length.
 */
#include "corpus/batch.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "corpus/crew.h"
#include "corpus/pack.h"
#include "corpus/plan.h"
#include "corpus/shuffle.h"
#include "tokens/tokenizer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Tokens of a pool that a whole corpus may fit into: about 64 MB of ids. */
static const size_t POOL_TOKENS = 16 << 20;
/* Pools of a larger corpus have so many batches, and at most so many tokens: few enough to be there
 * soon, and enough that their last batch, which is not full, counts little. */
enum { POOL_BATCHES = 64 };
static const size_t DRAWN_TOKENS = 4 << 20;
/* A stream gives up after so many epochs without a usable pair. A shard of a corpus that has hardly
 * any may have none in one epoch, and some in the next. */
enum { BARREN_EPOCHS = 16 };
/* Bytes of text per token, roughly, in any language. Pools are measured in bytes of text. */
enum { TOKEN_BYTES = 4 };

/* Stands in place of a pool's number where random_at gives an epoch its seed of subword dropout. */
static const uint64_t SUBWORD_SITE = UINT64_MAX;

struct stage {
    struct pool *pool; /* one of batches.pool */
    struct plan plan;
    int64_t epoch, number; /* the epoch, and the number of the pool in it */
    bool ready;
};

struct batch_shared {
    struct crew *crew;
    struct shuffle *shuffle; /* NULL: the corpus is read from its start to its end */
    pthread_mutex_t filling; /* held by the stream that uses the two */
};

struct batches {
    struct batch_options o;
    struct batch_shared *shared, *own; /* own: freed with the stream; NULL: the caller's */
    struct pool_options fill;
    struct stage stage[2];
    struct pool pool[2];

    /* the producer */
    struct pairs *pairs;   /* NULL: pairs are drawn by shared->shuffle */
    struct pool *whole;    /* the pool that holds the whole corpus; NULL: the corpus is streamed */
    int64_t epoch, number; /* the pool to prepare next */
    struct batch_counts so_far; /* counts of the epoch being read */
    bool complete;              /* so_far counts from the first pool of the epoch on */
    int barren;                 /* epochs in a row without a usable pair */
    pthread_t thread;
    bool started;
    atomic_bool stop;

    /* shared, guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool over; /* no stage becomes ready any more: the corpus has ended, or status is an error */
    enum heed_status status;
    struct heed_error err;
    struct batch_counts counts;

    /* the caller */
    int turn;         /* the stage that batches are taken from */
    int64_t at;       /* the number of its next batch */
    bool finished;    /* the last batch was handed out */
    double waited;    /* seconds that stage_wait took */
    double epochs;    /* how many were read, up to the batch that was handed out last */
    int64_t *of_file; /* [corpus.n] pairs of each file */
    struct packed packed;
    int32_t *words;
    size_t words_cap;
};

/* ---- what streams share ---- */

static int shards_of(const struct batch_options *o)
{
    return o->shards > 0 ? o->shards : 1;
}

/* Bytes of text of a pool with so many tokens. */
static size_t pool_bytes(size_t tokens)
{
    /* A plan has 32-bit indices. */
    if (tokens > UINT32_MAX / TOKEN_BYTES) tokens = UINT32_MAX / TOKEN_BYTES;
    return tokens * TOKEN_BYTES;
}

static size_t whole_bytes(const struct batch_options *o)
{
    return pool_bytes(o->pool_tokens ? o->pool_tokens : POOL_TOKENS);
}

static size_t drawn_bytes(const struct batch_options *o)
{
    size_t tokens = 2 * POOL_BATCHES * (size_t)o->batch_tokens;
    if (tokens > DRAWN_TOKENS) tokens = DRAWN_TOKENS;
    return pool_bytes(o->pool_tokens ? o->pool_tokens : tokens);
}

static bool is_weighted(const struct heed_corpus *c)
{
    bool weighted = c->temperature > 0 && c->temperature != 1 && c->n > 1;
    for (int i = 0; c->weight && !(c->temperature > 0) && i < c->n; i++)
        weighted = weighted || c->weight[i] != 1;
    return weighted;
}

/* *fits: one pool takes the whole corpus. */
static enum heed_status corpus_fits(const struct batch_options *o, bool *fits,
                                    struct heed_error *err)
{
    struct pool_options fill = {.text_bytes = whole_bytes(o)};
    struct pairs *pairs;
    enum heed_status st = pairs_open(&pairs, &o->corpus, err);
    if (st) return st;
    st = pool_skip(pairs, &fill, fits, err);
    pairs_free(pairs);
    return st;
}

static enum heed_status shared_open(struct batch_shared *s, const struct batch_options *o,
                                    struct heed_error *err)
{
    const struct crew_options crew = {o->tokenizer, o->subword_dropout, o->threads};
    bool fits = !o->shuffle;
    enum heed_status st = crew_open(&s->crew, &crew, err);
    if (!st && o->shuffle && shards_of(o) == 1 && !is_weighted(&o->corpus))
        st = corpus_fits(o, &fits, err);
    if (st || fits) return st;
    const struct shuffle_options shuffle = {.corpus = o->corpus,
                                            .index = o->index,
                                            .shards = shards_of(o),
                                            .threads = crew_threads(s->crew),
                                            .text_bytes = drawn_bytes(o),
                                            .seed = o->seed,
                                            .watch = o->watch};
    return shuffle_open(&s->shuffle, &shuffle, err);
}

static enum heed_status options_check(const struct batch_options *o, struct heed_error *err)
{
    const struct batch_cursor *c = &o->start;
    if (o->batch_tokens < 2 || o->max_length < 2)
        return error_set(err, HEED_EARG,
                         "batch_tokens is %d and max_length is %d, expected at least 2 of each (a "
                         "token and its mark)",
                         o->batch_tokens, o->max_length);
    if (o->shard < 0 || o->shard >= shards_of(o))
        return error_set(err, HEED_EARG, "the shard is %d, expected 0 to %d", o->shard,
                         shards_of(o) - 1);
    if (c->epoch < 0 || c->pool < 0 || c->batch < 0)
        return error_set(
            err, HEED_EARG,
            "the data cursor is epoch %lld, pool %lld, batch %lld, expected none below 0",
            (long long)c->epoch, (long long)c->pool, (long long)c->batch);
    return HEED_OK;
}

enum heed_status batch_share(struct batch_shared **out, const struct batch_options *o,
                             struct heed_error *err)
{
    enum heed_status st = options_check(o, err);
    if (st) return st;
    struct batch_shared *s = calloc(1, sizeof *s);
    if (!s) return error_memory(err, sizeof *s, "a corpus");
    pthread_mutex_init(&s->filling, NULL);
    if ((st = shared_open(s, o, err))) {
        batch_unshare(s);
        return st;
    }
    *out = s;
    return HEED_OK;
}

void batch_unshare(struct batch_shared *s)
{
    if (!s) return;
    shuffle_free(s->shuffle);
    crew_free(s->crew);
    pthread_mutex_destroy(&s->filling);
    free(s);
}

/* ---- the producer ---- */

static enum heed_status nothing_usable(const struct batches *s, struct heed_error *err)
{
    const struct batch_counts *c = &s->so_far;
    return error_set(err, HEED_EFORMAT,
                     "no usable pair in %s%s: %lld have an empty side, %lld are longer than the %d "
                     "tokens that %s allows",
                     s->o.corpus.src[0], s->o.corpus.n > 1 ? " and the files after it" : "",
                     (long long)c->empty, (long long)c->longer, s->fill.longest,
                     s->o.batch_tokens < s->o.max_length ? "batch_tokens" : "max_length");
}

static void counts_note(struct batches *s, const struct pool *p)
{
    struct batch_counts *c = &s->so_far;
    c->pairs += p->counts.pairs;
    c->empty += p->counts.empty;
    c->longer += p->counts.longer;
    c->invalid += p->counts.invalid;
    pthread_mutex_lock(&s->lock);
    c->all = p->last && s->complete;
    if (!s->counts.all) s->counts = *c;
    pthread_mutex_unlock(&s->lock);
}

static void epoch_begin(struct batches *s)
{
    s->number = 0;
    s->so_far = (struct batch_counts){0};
    s->complete = true;
    if (s->pairs) pairs_rewind(s->pairs);
}

static enum heed_status pool_next(struct batches *s, struct pool *p, struct heed_error *err)
{
    struct batch_shared *by = s->shared;
    pthread_mutex_lock(&by->filling);
    enum heed_status st = s->pairs ? pool_fill(p, s->pairs, by->crew, &s->fill, err)
                                   : shuffle_fill(by->shuffle, p, by->crew, s->o.shard, s->epoch,
                                                  s->number, &s->fill, err);
    pthread_mutex_unlock(&by->filling);
    return st;
}

/* Fills g's pool with the next pairs of the epoch. */
static enum heed_status stage_fill(struct batches *s, struct stage *g, struct heed_error *err)
{
    g->pool = s->whole;
    if (g->pool) return HEED_OK;
    g->pool = &s->pool[g - s->stage];
    s->fill.random = random_at(s->o.seed, (uint64_t)s->epoch, SUBWORD_SITE);
    enum heed_status st = pool_next(s, g->pool, err);
    if (st || atomic_load(&s->stop)) return st;
    counts_note(s, g->pool);
    if (!g->pool->last) return HEED_OK;
    s->barren = s->complete && s->so_far.pairs == 0 ? s->barren + 1 : 0;
    if (s->barren == (shards_of(&s->o) > 1 ? BARREN_EPOCHS : 1)) return nothing_usable(s, err);
    if (s->pairs && s->number == 0 && s->o.subword_dropout == 0) s->whole = g->pool;
    return HEED_OK;
}

/* Fills g with the next pool that has at least one batch, and plans its batches. Without shuffling
 * there may be no such pool before the corpus ends; then the plan is empty. */
static enum heed_status stage_prepare(struct batches *s, struct stage *g, struct heed_error *err)
{
    do {
        enum heed_status st = stage_fill(s, g, err);
        if (st || atomic_load(&s->stop)) return st;
        g->epoch = s->epoch;
        g->number = s->number;
        uint64_t random = random_at(s->o.seed, (uint64_t)g->epoch, (uint64_t)g->number);
        plan_release(&g->plan);
        st = plan_make(&g->plan, g->pool, s->o.batch_tokens, s->o.shuffle, random, err);
        if (st) return st;
        s->number++;
        if (g->pool->last) {
            s->epoch++;
            epoch_begin(s);
        }
    } while (g->plan.n == 0 && (s->o.shuffle || !g->pool->last));
    return HEED_OK;
}

/* Skips to the pool that the start cursor names, without tokenizing the text before it. A cursor
 * behind the last pool means the beginning of the next epoch. */
static enum heed_status start_seek(struct batches *s, struct heed_error *err)
{
    int64_t pool = s->o.start.pool;
    s->epoch = s->o.start.epoch;
    s->complete = pool == 0;
    bool last = !s->pairs && pool >= shuffle_pools(s->shared->shuffle, s->o.shard);
    if (!s->pairs) s->number = pool;
    for (; s->number < pool && !last; s->number++) {
        enum heed_status st = pool_skip(s->pairs, &s->fill, &last, err);
        if (st) return st;
    }
    if (last) {
        s->epoch++;
        epoch_begin(s);
    }
    return HEED_OK;
}

static bool stage_ends(const struct batches *s, const struct stage *g)
{
    return g->pool->last && !s->o.shuffle;
}

static void *produce(void *arg)
{
    struct batches *s = arg;
    struct heed_error err = {0};
    enum heed_status st = HEED_OK;
    bool end = stage_ends(s, &s->stage[0]); /* batch_open prepared it */
    for (int i = 1; !st && !end; i ^= 1) {
        struct stage *g = &s->stage[i];
        pthread_mutex_lock(&s->lock);
        while (g->ready && !atomic_load(&s->stop)) pthread_cond_wait(&s->changed, &s->lock);
        pthread_mutex_unlock(&s->lock);
        if (!atomic_load(&s->stop)) st = stage_prepare(s, g, &err);
        if (atomic_load(&s->stop)) return NULL;
        if (st) break;
        end = stage_ends(s, g);
        pthread_mutex_lock(&s->lock);
        g->ready = true;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
    }
    pthread_mutex_lock(&s->lock);
    s->over = true;
    s->status = st;
    s->err = err;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Notes how much was read, when the next batch is number s->at of stage g. */
static void progress_note(struct batches *s, const struct stage *g)
{
    double part = g->plan.n && s->at < (int64_t)g->plan.n ? (double)s->at / (double)g->plan.n : 1;
    if (!s->pairs) part = shuffle_progress(s->shared->shuffle, s->o.shard, g->number, part);
    s->epochs = (double)g->epoch + part;
}

/* Pairs of each file. A corpus that is read from its start and shuffled fits into its first pool,
 * so the file has been read to its end. */
static enum heed_status files_note(struct batches *s, struct heed_error *err)
{
    int n = s->o.corpus.n;
    s->of_file = malloc((size_t)n * sizeof *s->of_file);
    if (!s->of_file) return error_memory(err, (size_t)n * sizeof *s->of_file, "a corpus");
    for (int i = 0; i < n; i++)
        s->of_file[i] =
            s->pairs ? pairs_of_file(s->pairs, i) : shuffle_pairs(s->shared->shuffle, i);
    return HEED_OK;
}

struct batch_file batch_file(const struct batches *s, int i)
{
    double weight = s->shared->shuffle ? shuffle_weight(s->shared->shuffle, i) : 1;
    return (struct batch_file){s->of_file[i], weight, s->epochs * weight};
}

/* The first stage is prepared here and not in the background thread, so that batch_open reports a
 * problem with the files. */
static enum heed_status stream_start(struct batches *s, struct heed_error *err)
{
    enum heed_status st = HEED_OK;
    if (!s->shared->shuffle) st = pairs_open(&s->pairs, &s->o.corpus, err);
    if (!st) st = start_seek(s, err);
    if (st) return st;
    if (!s->o.shuffle && s->epoch > 0) { /* the one pass there is without shuffling is over */
        s->finished = true;
        return HEED_OK;
    }
    struct stage *g = &s->stage[0];
    if ((st = stage_prepare(s, g, err))) return st;
    bool there = g->epoch == s->o.start.epoch && g->number == s->o.start.pool;
    s->at = there ? s->o.start.batch : 0;
    g->ready = true;
    progress_note(s, g);
    return files_note(s, err);
}

static enum heed_status producer_start(struct batches *s, struct heed_error *err)
{
    int why = s->started ? 0 : pthread_create(&s->thread, NULL, produce, s);
    if (why) return error_set(err, HEED_ENOMEM, "cannot start a thread: %s", strerror(why));
    s->started = true;
    return HEED_OK;
}

enum heed_status batch_open(struct batches **out, const struct batch_options *o,
                            struct heed_error *err)
{
    enum heed_status st = options_check(o, err);
    if (st) return st;
    struct batches *s = calloc(1, sizeof *s);
    if (!s) return error_memory(err, sizeof *s, "a stream of batches");
    s->o = *o;
    s->fill = (struct pool_options){
        .text_bytes = whole_bytes(o),
        .longest = o->max_length < o->batch_tokens ? o->max_length : o->batch_tokens,
        .stop = &s->stop,
    };
    atomic_init(&s->stop, false);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (!o->shared) st = batch_share(&s->own, o, err);
    s->shared = o->shared ? o->shared : s->own;
    if (!st) st = stream_start(s, err);
    if (st) {
        batch_free(s);
        return st;
    }
    *out = s;
    return HEED_OK;
}

void batch_free(struct batches *s)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    atomic_store(&s->stop, true);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (s->started) pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    for (int i = 0; i < 2; i++) {
        plan_release(&s->stage[i].plan);
        pool_release(&s->pool[i]);
    }
    pairs_free(s->pairs);
    batch_unshare(s->own);
    free(s->of_file);
    free(s->words);
    free(s);
}

struct batch_counts batch_counted(struct batches *s)
{
    pthread_mutex_lock(&s->lock);
    struct batch_counts c = s->counts;
    pthread_mutex_unlock(&s->lock);
    return c;
}

/* The stage with the next batch, or NULL at the end. */
static enum heed_status stage_wait(struct batches *s, struct stage **out, struct heed_error *err)
{
    *out = NULL;
    while (!s->finished) {
        struct stage *g = &s->stage[s->turn];
        double began = clock_now();
        pthread_mutex_lock(&s->lock);
        while (!g->ready && !s->over) pthread_cond_wait(&s->changed, &s->lock);
        s->waited += clock_now() - began;
        bool ready = g->ready;
        if (!ready && s->status && err) *err = s->err;
        pthread_mutex_unlock(&s->lock);
        if (!ready) return s->status;
        if (s->at < (int64_t)g->plan.n) {
            *out = g;
            return HEED_OK;
        }
        s->finished = stage_ends(s, g);
        s->at = 0;
        s->turn ^= 1;
        pthread_mutex_lock(&s->lock);
        g->ready = false;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
    }
    return HEED_OK;
}

double batch_waited(const struct batches *s)
{
    return s->waited;
}

static enum heed_status span_pack(struct batches *s, const struct stage *g,
                                  const struct plan_span *span, struct heed_error *err)
{
    const uint32_t *order = g->plan.order + span->first;
    const struct pool *p = g->pool;
    int n = (int)span->n, src = n, tgt = n;
    for (int i = 0; i < n; i++) {
        src += p->pair[order[i]].src;
        tgt += p->pair[order[i]].tgt;
    }
    size_t need = pack_words(n, src, tgt);
    if (need > s->words_cap) {
        free(s->words);
        s->words_cap = need + need / 2;
        s->words = malloc(s->words_cap * sizeof *s->words);
        if (!s->words) {
            s->words_cap = 0;
            return error_memory(err, need * sizeof *s->words, "a batch");
        }
    }
    int bos = tokenizer_bos(s->o.tokenizer), eos = tokenizer_eos(s->o.tokenizer);
    pack_begin(&s->packed, s->words, n, src, tgt);
    for (int i = 0; i < n; i++) {
        const struct pool_pair *x = &p->pair[order[i]];
        const int32_t *ids = p->ids.v + x->at;
        pack_add(&s->packed, ids, x->src, ids + x->src, x->tgt, bos, eos);
    }
    return HEED_OK;
}

enum heed_status batch_next(struct batches *s, const struct packed **b, struct batch_cursor *after,
                            struct heed_error *err)
{
    struct stage *g;
    enum heed_status st = s->finished ? HEED_OK : producer_start(s, err);
    if (!st) st = stage_wait(s, &g, err);
    if (st) return st;
    if (!g) {
        *b = NULL;
        *after = (struct batch_cursor){.epoch = 1};
        return HEED_OK;
    }
    if ((st = span_pack(s, g, &g->plan.span[s->at], err))) return st;
    s->at++;
    progress_note(s, g);
    *after = (struct batch_cursor){g->epoch, g->number, s->at};
    if (s->at == (int64_t)g->plan.n)
        *after = g->pool->last ? (struct batch_cursor){.epoch = g->epoch + 1}
                               : (struct batch_cursor){g->epoch, g->number + 1, 0};
    *b = &s->packed;
    return HEED_OK;
}
