/*
 * shuffle.c - pools of pairs from anywhere in the corpus; see shuffle.h.
 *
 * The pairs of a pool are read in the order of the files: a disk reads them faster so, and a block
 * of compressed text with several of them is decoded once.
 */
#include "corpus/shuffle.h"

#include "base/error.h"
#include "corpus/files.h"
#include "corpus/order.h"

#include <math.h>
#include <stdlib.h>

/* Pairs that are tokenized before they are joined in the pool. */
enum { BLOCK_PAIRS = 16384 };

struct shuffle {
    struct shuffle_options o;
    struct files *files;
    struct order_part *part; /* [corpus.n] */
    int64_t *first;          /* [corpus.n] number of the first pair of each file in the corpus */
    int64_t pairs;           /* of the corpus */
    int64_t places;          /* of an epoch */
    int64_t pool_pairs;
    struct reader *reader; /* [threads] */
    struct draw *draw;     /* [pool_pairs] those of the pool being filled */
};

/* How often a pair of file i is drawn in an epoch, on average. */
static double weight_of(const struct shuffle *s, int i)
{
    const struct heed_corpus *c = &s->o.corpus;
    if (!(c->temperature > 0)) return c->weight ? c->weight[i] : 1;
    double sum = 0;
    for (int k = 0; k < c->n; k++) sum += pow((double)s->part[k].pairs, 1 / c->temperature);
    double share = pow((double)s->part[i].pairs, 1 / c->temperature) / sum;
    return share * (double)s->pairs / (double)s->part[i].pairs;
}

static enum heed_status parts_set(struct shuffle *s, struct heed_error *err)
{
    double bytes = 0;
    int n = s->o.corpus.n;
    for (int i = 0; i < n; i++) {
        s->first[i] = s->pairs;
        s->part[i].pairs = files_pairs(s->files, i);
        s->pairs += s->part[i].pairs;
    }
    for (int i = 0; i < n; i++) {
        struct order_part *p = &s->part[i];
        p->draws = order_draws(p->pairs, weight_of(s, i));
        s->places += p->draws;
        bytes += (double)p->draws *
                 ((double)files_bytes(s->files, i) / (double)p->pairs + POOL_PAIR_BYTES);
    }
    if (s->places < s->o.shards)
        return error_set(err, HEED_EARG,
                         "an epoch of %s%s has %lld pairs, expected at least one for each of %d "
                         "shards",
                         s->o.corpus.src[0], n > 1 ? " and the files after it" : "",
                         (long long)s->places, s->o.shards);
    double pairs = (double)s->o.text_bytes / (bytes / (double)s->places);
    double most = (double)((s->places + s->o.shards - 1) / s->o.shards);
    s->pool_pairs = (int64_t)(pairs < 1 ? 1 : pairs < most ? pairs : most);
    return HEED_OK;
}

enum heed_status shuffle_open(struct shuffle **out, const struct shuffle_options *o,
                              struct heed_error *err)
{
    size_t n = (size_t)o->corpus.n;
    struct shuffle *s = calloc(1, sizeof *s);
    if (!s) return error_memory(err, sizeof *s, "a shuffled corpus");
    s->o = *o;
    s->part = calloc(n, sizeof *s->part);
    s->first = calloc(n, sizeof *s->first);
    s->reader = calloc((size_t)o->threads, sizeof *s->reader);
    enum heed_status st = HEED_OK;
    if (!s->part || !s->first || !s->reader)
        st = error_memory(err, (size_t)o->threads * sizeof *s->reader, "a shuffled corpus");
    if (!st) st = files_open(&s->files, &o->corpus, o->index, o->threads, &o->watch, err);
    if (!st) st = parts_set(s, err);
    if (!st && !(s->draw = malloc((size_t)s->pool_pairs * sizeof *s->draw)))
        st = error_memory(err, (size_t)s->pool_pairs * sizeof *s->draw, "a pool");
    if (st) {
        shuffle_free(s);
        return st;
    }
    *out = s;
    return HEED_OK;
}

void shuffle_free(struct shuffle *s)
{
    if (!s) return;
    for (int i = 0; s->reader && i < s->o.threads; i++) reader_release(&s->reader[i]);
    files_free(s->files);
    free(s->part);
    free(s->first);
    free(s->reader);
    free(s->draw);
    free(s);
}

/* Places of a shard in an epoch. */
static int64_t shard_places(const struct shuffle *s, int shard)
{
    return (s->places - shard + s->o.shards - 1) / s->o.shards;
}

int64_t shuffle_pools(const struct shuffle *s, int shard)
{
    return (shard_places(s, shard) + s->pool_pairs - 1) / s->pool_pairs;
}

int64_t shuffle_pairs(const struct shuffle *s, int i)
{
    return s->part[i].pairs;
}

double shuffle_weight(const struct shuffle *s, int i)
{
    return (double)s->part[i].draws / (double)s->part[i].pairs;
}

double shuffle_progress(const struct shuffle *s, int shard, int64_t number, double part)
{
    double places = (double)shard_places(s, shard);
    double before = (double)number * (double)s->pool_pairs, here = places - before;
    if (here > (double)s->pool_pairs) here = (double)s->pool_pairs;
    return (before + part * here) / places;
}

static int draw_compare(const void *x, const void *y)
{
    const struct draw *a = x, *b = y;
    if (a->part != b->part) return a->part < b->part ? -1 : 1;
    if (a->pair != b->pair) return a->pair < b->pair ? -1 : 1;
    return a->repeat < b->repeat ? -1 : a->repeat > b->repeat;
}

/* A few draws in a row, for struct crew_job. */
struct block {
    struct shuffle *s;
    const struct draw *draw;
};

static enum heed_status block_begin(void *from, int thread, size_t first, size_t n,
                                    struct heed_error *err)
{
    const struct block *b = from;
    struct files_place place[CREW_GROUP];
    _Static_assert((int)CREW_GROUP <= (int)READER_MAX, "a reader takes a group");
    for (size_t i = 0; i < n; i++)
        place[i] = (struct files_place){b->draw[first + i].part, b->draw[first + i].pair};
    return reader_begin(&b->s->reader[thread], b->s->files, place, n, err);
}

/* The subword dropout of a pair is decided by its number in the corpus; where it comes twice in an
 * epoch, it is another one the second time. */
static enum heed_status block_get(void *from, int thread, size_t i, struct pair *out,
                                  uint64_t *number, struct heed_error *err)
{
    const struct block *b = from;
    const struct draw *d = &b->draw[i];
    *number =
        (uint64_t)(b->s->first[d->part] + d->pair) + (uint64_t)d->repeat * (uint64_t)b->s->pairs;
    return reader_get(&b->s->reader[thread], b->s->files, i % CREW_GROUP, out, err);
}

enum heed_status shuffle_fill(struct shuffle *s, struct pool *p, struct crew *crew, int shard,
                              int64_t epoch, int64_t number, const struct pool_options *o,
                              struct heed_error *err)
{
    struct order order = order_of(s->part, s->o.corpus.n, s->o.seed, epoch);
    int64_t from = number * s->pool_pairs, left = shard_places(s, shard) - from;
    size_t n = (size_t)(left < s->pool_pairs ? left : s->pool_pairs);
    enum heed_status st = files_unchanged(s->files, err);
    pool_clear(p);
    p->last = number + 1 >= shuffle_pools(s, shard);
    for (size_t i = 0; i < n && !st; i++)
        s->draw[i] = order_at(&order, shard + (from + (int64_t)i) * s->o.shards);
    if (!st) qsort(s->draw, n, sizeof *s->draw, draw_compare);
    for (size_t at = 0; at < n && !st && !atomic_load(o->stop); at += BLOCK_PAIRS) {
        struct block block = {s, s->draw + at};
        struct crew_job job = {.n = n - at < BLOCK_PAIRS ? n - at : BLOCK_PAIRS,
                               .longest = o->longest,
                               .seed = o->random,
                               .stop = o->stop,
                               .from = &block,
                               .begin = block_begin,
                               .get = block_get};
        st = crew_encode(crew, &job, p, err);
    }
    return st;
}
