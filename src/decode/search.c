/*
 * search.c - greedy search over packed batches of whatever is open.
 *
 * Paper 6.1 bounds an output by its input's length + 50. Each sentence owns a run of cache rows as
 * long as its bound; finished sentences are dropped from the arrays of a step, nothing is moved.
 */
#include "decode/search.h"

#include <assert.h>
#include <stdlib.h>

#include "base/error.h"
#include "text/pack.h"

enum { SENTENCES = 128, ROWS = 2048, EXTRA_LENGTH = 50 };

struct search {
    const struct parameters *p;
    struct search_marks marks;
    struct run *run;
    struct cache cache;
    void *cache_block;
    int rows; /* source rows of a batch, end marks included */
};

/* The sentences of one batch that are still open, in arrays ready for a step. */
struct open_set {
    int n;
    int which[SENTENCES]; /* index into the caller's arrays */
    int limit[SENTENCES]; /* longest output */
    int32_t id[SENTENCES], pos[SENTENCES];
    int32_t self[SENTENCES], self_len[SENTENCES], cache_at[SENTENCES];
    int32_t memory[SENTENCES], memory_len[SENTENCES];
};

int search_longest(const struct search *s)
{
    return s->p->config.max_length - 1;
}

enum heed_status search_open(struct search **out, const struct parameters *p,
                             struct search_marks marks, struct heed_error *err)
{
    struct search *s = calloc(1, sizeof *s);
    if (!s) return error_memory(err, sizeof *s, "a search");
    const struct heed_config *c = &p->config;
    s->p = p;
    s->marks = marks;
    s->rows = c->max_length > ROWS ? c->max_length : ROWS;
    struct run_options o = {
        .rows_src = s->rows, .rows_tgt = SENTENCES, .sentences = SENTENCES, .candidates = 1};
    int cache_rows = s->rows + EXTRA_LENGTH * SENTENCES;
    size_t layer = (size_t)cache_rows * 2 * c->d_model * type_size(p->precision.act);
    enum heed_status status = run_open(&s->run, p, &o, err);
    if (!status) status = p->be->op->alloc(p->be, &s->cache_block, layer * c->decoder_layers, err);
    if (status) {
        search_free(s);
        return status;
    }
    for (int l = 0; l < c->decoder_layers; l++)
        s->cache.layer[l] = mat_make((char *)s->cache_block + l * layer, cache_rows, 2 * c->d_model,
                                     p->precision.act);
    *out = s;
    return HEED_OK;
}

void search_free(struct search *s)
{
    if (!s) return;
    s->p->be->op->free(s->p->be, s->cache_block);
    run_free(s->run);
    free(s);
}

static bool append(struct heed_ids *ids, int32_t id)
{
    if (ids->n == ids->cap) {
        size_t cap = ids->cap ? 2 * ids->cap : 32;
        int32_t *v = realloc(ids->v, cap * sizeof *v);
        if (!v) return false;
        ids->v = v;
        ids->cap = cap;
    }
    ids->v[ids->n++] = id;
    return true;
}

/* ---- one batch ---- */

/* The sentences src[which[..n)] as source rows and as the set of open ones. */
static void batch_begin(const struct search *s, struct packed *b, struct open_set *o,
                        const struct heed_ids *src, const int *which, int n)
{
    int cache_row = 0;
    *o = (struct open_set){.n = n};
    for (int i = 0; i < n; i++) {
        const struct heed_ids *ids = &src[which[i]];
        pack_add(b, ids->v, (int)ids->n, NULL, 0, s->marks.bos, s->marks.eos);
        int limit = b->src_len[i] + EXTRA_LENGTH;
        o->which[i] = which[i];
        o->limit[i] = limit < s->p->config.max_length ? limit : s->p->config.max_length;
        o->id[i] = s->marks.bos;
        o->self[i] = o->cache_at[i] = cache_row;
        o->self_len[i] = 1;
        o->memory[i] = b->src_off[i];
        o->memory_len[i] = b->src_len[i];
        cache_row += o->limit[i];
    }
}

/* Moves sentence `from` of the open set to place `to`, one position further on. */
static void open_advance(struct open_set *o, int to, int from, int32_t id)
{
    o->which[to] = o->which[from];
    o->limit[to] = o->limit[from];
    o->id[to] = id;
    o->pos[to] = o->pos[from] + 1;
    o->self[to] = o->self[from];
    o->self_len[to] = o->self_len[from] + 1;
    o->cache_at[to] = o->cache_at[from] + 1;
    o->memory[to] = o->memory[from];
    o->memory_len[to] = o->memory_len[from];
}

static enum heed_status decode_batch(struct search *s, struct open_set *o, struct heed_ids *out,
                                     float *score, struct heed_error *err)
{
    int32_t best[SENTENCES];
    float best_score[SENTENCES];
    while (o->n) {
        struct step step = {o->n,    o->id,       o->pos,    &s->cache,    o->cache_at,
                            o->self, o->self_len, o->memory, o->memory_len};
        enum heed_status status = run_step(s->run, &step, 1, best, best_score, err);
        if (status) return status;
        int open = 0;
        for (int i = 0; i < o->n; i++) {
            int w = o->which[i];
            score[w] += best_score[i];
            if (best[i] == s->marks.eos) continue;
            if (!append(&out[w], best[i]))
                return error_memory(err, 2 * out[w].n * sizeof best[i], "a translation");
            if (o->self_len[i] < o->limit[i]) open_advance(o, open++, i, best[i]);
        }
        o->n = open;
    }
    return HEED_OK;
}

static enum heed_status batch_greedy(struct search *s, const struct heed_ids *src, const int *which,
                                     int n, struct heed_ids *out, float *score,
                                     struct heed_error *err)
{
    struct open_set o;
    struct packed b;
    size_t bytes = pack_words(n, s->rows, 0) * sizeof(int32_t);
    int32_t *words = malloc(bytes);
    if (!words) return error_memory(err, bytes, "a batch of sentences");
    pack_begin(&b, words, n, s->rows, 0);
    batch_begin(s, &b, &o, src, which, n);
    enum heed_status status = run_encode(s->run, &b, err);
    if (!status) status = decode_batch(s, &o, out, score, err);
    free(words);
    return status;
}

/* ---- batches by length ---- */

struct by_length {
    int length, index;
};

static int compare_length(const void *a, const void *b)
{
    const struct by_length *x = a, *y = b;
    return x->length != y->length ? (x->length < y->length ? -1 : 1)
                                  : (x->index > y->index) - (x->index < y->index);
}

/* Sentences worth translating, shortest first; returns how many. An empty one stays empty. */
static int sort_by_length(struct by_length *key, const struct heed_ids *src, int n)
{
    int m = 0;
    for (int i = 0; i < n; i++)
        if (src[i].n) key[m++] = (struct by_length){(int)src[i].n, i};
    qsort(key, m, sizeof *key, compare_length);
    return m;
}

enum heed_status search_greedy(struct search *s, const struct heed_ids *src, int n,
                               struct heed_ids *out, float *score, struct heed_error *err)
{
    struct by_length *key = malloc((n + 1) * sizeof *key);
    if (!key) return error_memory(err, n * sizeof *key, "the order of sentences");
    for (int i = 0; i < n; i++) out[i].n = 0, score[i] = 0;
    int m = sort_by_length(key, src, n);
    enum heed_status status = HEED_OK;
    for (int at = 0; at < m && !status;) {
        int which[SENTENCES], count = 0, rows = 0;
        while (at < m && count < SENTENCES && rows + key[at].length + 1 <= s->rows) {
            assert(key[at].length <= search_longest(s));
            rows += key[at].length + 1;
            which[count++] = key[at++].index;
        }
        status = batch_greedy(s, src, which, count, out, score, err);
    }
    free(key);
    return status;
}
