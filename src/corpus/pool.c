/*
 * pool.c - pairs of the corpus as ids in memory; see pool.h.
 *
 * A pool is filled block by block: a few megabytes of lines are read, and then tokenized.
 */
#include "corpus/pool.h"

#include "base/array.h"
#include "base/error.h"
#include "corpus/crew.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of text in a block; the least bytes that are shared among threads. */
enum { BLOCK_BYTES = 4 << 20, THREAD_BYTES = 32 << 10 };

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

/* Whether pair x goes into a pool that has *used bytes; adds its bytes to *used if so. pool_fill
 * and pool_skip share this rule and so cut a corpus at the same places. A pool takes at least one
 * pair. */
static bool pool_takes(const struct pool_options *o, size_t *used, const struct pair *x)
{
    size_t bytes = x->src_len + x->tgt_len + POOL_PAIR_BYTES;
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

/* A pair of the block, for struct crew_job. */
static enum heed_status block_get(void *from, int thread, size_t i, struct pair *out,
                                  uint64_t *number, struct heed_error *err)
{
    const struct block *b = from;
    const struct block_pair *x = &b->pair[i];
    const char *src = b->text + x->at;
    (void)thread, (void)err;
    *out = (struct pair){src, src + x->src_len, x->src_len, x->tgt_len};
    *number = (uint64_t)b->first + i;
    return HEED_OK;
}

enum heed_status pool_fill(struct pool *p, struct pairs *in, struct crew *crew,
                           const struct pool_options *o, struct heed_error *err)
{
    struct block block = {0};
    size_t used = 0;
    bool full = false;
    enum heed_status st = HEED_OK;
    pool_clear(p);
    while (!st && !full && !atomic_load(o->stop)) {
        st = block_read(&block, in, o, &used, &full, &p->last, err);
        struct crew_job job = {.n = block.n,
                               .few = block.bytes < THREAD_BYTES,
                               .longest = o->longest,
                               .seed = o->random,
                               .stop = o->stop,
                               .from = &block,
                               .get = block_get};
        if (!st) st = crew_encode(crew, &job, p, err);
    }
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

void pool_clear(struct pool *p)
{
    p->ids.n = p->n = 0;
    p->counts = (struct batch_counts){0};
}

void pool_release(struct pool *p)
{
    free(p->ids.v);
    free(p->pair);
    *p = (struct pool){0};
}
