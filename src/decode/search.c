/*
 * search.c - beam search over packed batches of whatever is open.
 *
 * Each hypothesis has a list of cache rows, one a position. When hypotheses part or end, the lists
 * are copied and the rows stay where they are. Position t of a batch takes rows
 * [t * rows, (t+1) * rows), so on a CPU memory is touched only as far as outputs get.
 */
#include "decode/search.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "corpus/pack.h"

enum {
    SOURCE_ROWS = 64,      /* of a batch for each sentence, end marks included, ... */
    SOURCE_MEAN = 32,      /* ... or so many, where the caller says how many there are in all */
    CANDIDATES_MAX = 4096, /* that every device can find */
    CACHE_ROWS = 128,      /* positions for each hypothesis, at least those of one sentence */
    EXTRA_LENGTH = 50      /* an output may be so much longer than its source (paper 6.1) */
};

/* A sentence of the batch that is still open. */
struct slot {
    struct beam beam;
    int which;              /* index into the caller's arrays */
    int memory, memory_len; /* its rows of the memory */
    int row;                /* of the first hypothesis in a position of the cache */
    int32_t *at, *next;     /* [width][longest] lists of cache rows, now and after the step */
    float *attention;       /* of the tokens so far, when it is watched */
};

/* The arrays of a step. */
struct rows {
    int32_t *first, *memory, *memory_len;                  /* by sentence */
    int32_t *id, *pos, *want, *cache_at, *self, *self_len; /* by hypothesis */
    int32_t *self_at;                                      /* the lists, end to end */
    int32_t *best;                                         /* [rows][candidates + wants] */
    float *best_score;
    float *weights; /* [rows * heads][max_length] where attention is watched */
};

struct search {
    struct backend *be;
    const struct parameters *p;
    struct search_options o;
    struct run *run;
    struct cache cache;
    void *cache_block;
    int source_rows, rows, cached, candidates; /* what there is room for */
    struct slot *slot;                         /* [rows / width] */
    int open;                                  /* slots in use */
    int rows_now;                              /* hypotheses of the batch at its start */
    struct rows a;
    void *block; /* a's arrays and the slots' lists */
    int watch;   /* 1 + a decoder layer; 0: none */
};

static int max(int a, int b)
{
    return a > b ? a : b;
}

int search_longest(const struct search *s)
{
    return s->p->config.max_length - 1;
}

/* Tokens of an output, its end mark included. */
static int output_longest(const struct search *s, const struct heed_ids *src,
                          const struct beam_wish *wish)
{
    int usual = max((int)src->n + 1 + EXTRA_LENGTH, s->o.beam.min_length + 1);
    int longest = s->o.longest ? s->o.longest : usual;
    if (wish) longest = max(longest, beam_least(wish));
    return longest < s->p->config.max_length ? longest : s->p->config.max_length;
}

void translation_release(struct translation *t)
{
    free(t->ids.v);
    free(t->token_score);
    free(t->attention);
    *t = (struct translation){0};
}

void search_no_repeat(struct search *s, int n)
{
    s->o.beam.no_repeat = n;
}

void search_watch(struct search *s, int layer)
{
    s->watch = layer + 1;
}

/* ---- life ---- */

static int32_t *take(int32_t **at, size_t n)
{
    int32_t *p = *at;
    if (p) *at += n;
    return p;
}

static size_t host_layout(struct search *s, int32_t *base)
{
    size_t rows = s->rows, slots = rows / s->o.beam.width, list = s->cached;
    size_t best = rows * (s->candidates + BEAM_REQUIRED), want = rows * BEAM_REQUIRED;
    size_t weights = s->o.watched ? rows * s->p->config.heads * s->p->config.max_length : 0;
    int32_t *at = base;
    struct rows *a = &s->a;
    a->first = take(&at, slots + 1), a->memory = take(&at, slots), a->memory_len = take(&at, slots);
    a->id = take(&at, rows), a->pos = take(&at, rows), a->cache_at = take(&at, rows),
    a->want = take(&at, want);
    a->self = take(&at, rows), a->self_len = take(&at, rows), a->self_at = take(&at, list);
    a->best = take(&at, best), a->best_score = (float *)take(&at, best);
    a->weights = (float *)take(&at, weights);
    return (3 * slots + 1 + 5 * rows + want + list + 2 * best + weights) * sizeof *base;
}

static enum heed_status host_open(struct search *s, struct heed_error *err)
{
    size_t bytes = host_layout(s, NULL), slots = s->rows / s->o.beam.width;
    s->block = malloc(bytes);
    s->slot = calloc(slots, sizeof *s->slot);
    if (!s->block || !s->slot) return error_memory(err, bytes, "a search");
    host_layout(s, s->block);
    return HEED_OK;
}

static enum heed_status cache_open(struct search *s, struct heed_error *err)
{
    const struct heed_config *c = &s->p->config;
    size_t rows = (size_t)s->cached + 1;
    size_t layer = rows * 2 * c->d_model * type_size(s->p->precision.keys);
    struct backend *be = s->be;
    enum heed_status status =
        be->op->alloc(be, &s->cache_block, layer * c->decoder_layers, USED_IN_PART, err);
    for (int l = 0; l < c->decoder_layers && !status; l++)
        s->cache.layer[l] = mat_make((char *)s->cache_block + l * layer, (int)rows, 2 * c->d_model,
                                     s->p->precision.keys);
    return status;
}

/* For so many sentences at once. */
static enum heed_status search_make(struct search **out, struct backend *be,
                                    const struct parameters *p, const struct search_options *o,
                                    int sentences, struct heed_error *err)
{
    const struct heed_config *c = &p->config;
    const struct beam_options *b = &o->beam;
    struct search *s = calloc(1, sizeof *s);
    if (!s) return error_memory(err, sizeof *s, "a search");
    s->be = be;
    s->p = p;
    s->o = *o;
    s->rows = sentences * b->width;
    s->source_rows =
        max(o->batch_tokens ? o->batch_tokens : sentences * SOURCE_ROWS, c->max_length);
    s->cached = max(s->rows * CACHE_ROWS, b->width * c->max_length);
    s->candidates = beam_candidates_max(b, c->max_length);
    if (s->candidates > CANDIDATES_MAX) s->candidates = CANDIDATES_MAX;
    if (s->candidates > c->vocab_size) s->candidates = c->vocab_size;
    struct run_options r = {.rows_src = s->source_rows,
                            .rows_tgt = s->rows,
                            .sentences = s->rows / b->width,
                            .candidates = s->candidates,
                            .wants = BEAM_REQUIRED,
                            .cached = s->cached,
                            .watched = o->watched};
    enum heed_status status = host_open(s, err);
    if (!status) status = run_open(&s->run, be, p, &r, err);
    if (!status) status = cache_open(s, err);
    if (status) {
        search_free(s);
        return status;
    }
    *out = s;
    return HEED_OK;
}

/* A device may have less memory than it could make use of. */
enum heed_status search_open(struct search **out, struct backend *be, const struct parameters *p,
                             const struct search_options *o, struct heed_error *err)
{
    int rows = o->rows ? o->rows : be->op->step_rows;
    int n = max(o->batch_tokens ? o->batch_tokens / SOURCE_MEAN : rows / o->beam.width, 1);
    enum heed_status status = search_make(out, be, p, o, n, err);
    for (; status == HEED_ENOMEM && n > 1; status = search_make(out, be, p, o, n, err)) n /= 2;
    return status;
}

static void slot_close(struct slot *k)
{
    beam_release(&k->beam);
    free(k->at);
    free(k->next);
    free(k->attention);
}

void search_free(struct search *s)
{
    if (!s) return;
    for (int i = 0; i < s->open; i++) slot_close(&s->slot[i]);
    s->be->op->free(s->be, s->cache_block);
    run_free(s->run);
    free(s->slot);
    free(s->block);
    free(s);
}

/* ---- one batch ---- */

static size_t attention_bytes(const struct search *s, const struct slot *k, int tokens)
{
    return (size_t)tokens * s->p->config.heads * k->memory_len * sizeof *k->attention;
}

static enum heed_status slot_open(struct search *s, int which, const struct beam_wish *wish,
                                  int longest, const struct packed *b, int i,
                                  struct heed_error *err)
{
    struct slot *k = &s->slot[s->open];
    int width = s->o.beam.width;
    size_t bytes = (size_t)width * longest * sizeof *k->at;
    *k = (struct slot){.which = which,
                       .memory = b->src_off[i],
                       .memory_len = b->src_len[i],
                       .row = s->open * width,
                       .at = malloc(bytes),
                       .next = malloc(bytes)};
    s->open++;
    if (s->watch) k->attention = malloc(attention_bytes(s, k, longest));
    if (!k->at || !k->next || (s->watch && !k->attention))
        return error_memory(err, bytes, "the search for a sentence");
    struct beam_options o = s->o.beam;
    /* what is drawn depends on the sentence, not on its place */
    for (int j = 0; j < k->memory_len; j++)
        o.seed = random_at(o.seed, (uint64_t)j, (uint64_t)b->src[k->memory + j]);
    return beam_init(&k->beam, &o, longest, wish, err);
}

/* Encodes the sentences src[which[..n)] and opens a slot for each. */
static enum heed_status batch_begin(struct search *s, const struct heed_ids *src,
                                    const struct beam_wish *wish, const int *which, int n,
                                    struct heed_error *err)
{
    struct packed b;
    size_t bytes = pack_words(n, s->source_rows, 0) * sizeof(int32_t);
    int32_t *words = malloc(bytes);
    if (!words) return error_memory(err, bytes, "a batch of sentences");
    pack_begin(&b, words, n, s->source_rows, 0);
    enum heed_status status = HEED_OK;
    for (int i = 0; i < n; i++) {
        const struct heed_ids *ids = &src[which[i]];
        pack_add(&b, ids->v, (int)ids->n, NULL, 0, s->o.bos, s->o.beam.eos);
    }
    for (int i = 0; i < n && !status; i++) {
        const struct beam_wish *w = wish ? &wish[which[i]] : NULL;
        status = slot_open(s, which[i], w, output_longest(s, &src[which[i]], w), &b, i, err);
    }
    s->rows_now = n * s->o.beam.width;
    if (!status) status = run_encode(s->run, &b, err);
    free(words);
    return status;
}

/* The rows of one sentence, behind the n that are there; *used: of self_at. Returns how many. */
static int slot_rows(const struct search *s, struct slot *k, int n, int wants, int *used)
{
    const struct rows *a = &s->a;
    for (int i = 0; i < k->beam.live; i++, n++) {
        const struct hypothesis *h = &k->beam.alive[i];
        beam_wanted(&k->beam, i, a->want + n * wants, wants);
        int32_t *list = k->at + i * k->beam.longest;
        a->id[n] = h->n ? h->id[h->n - 1] : s->o.bos;
        a->pos[n] = h->n;
        a->cache_at[n] = list[h->n] = h->n * s->rows_now + k->row + i;
        a->self[n] = *used;
        a->self_len[n] = h->n + 1;
        memcpy(a->self_at + *used, list, (h->n + 1) * sizeof *list);
        *used += h->n + 1;
    }
    return n;
}

/* The lists of those that live on, from their parents'. */
static void slot_lists(struct slot *k)
{
    int longest = k->beam.longest;
    for (int i = 0; i < k->beam.live; i++) {
        const struct hypothesis *h = &k->beam.alive[i];
        memcpy(k->next + i * longest, k->at + h->parent * longest, h->n * sizeof *k->at);
    }
    int32_t *swap = k->at;
    k->at = k->next;
    k->next = swap;
}

/* Keeps what row n, the only one of its sentence, gave to the source. */
static void slot_watch(const struct search *s, struct slot *k, int n)
{
    int heads = s->p->config.heads, stride = s->p->config.max_length;
    char *to = (char *)k->attention + attention_bytes(s, k, k->beam.alive[0].n);
    size_t bytes = k->memory_len * sizeof *k->attention;
    for (int h = 0; h < heads; h++)
        memcpy(to + h * bytes, s->a.weights + ((size_t)n * heads + h) * stride, bytes);
}

static enum heed_status translation_make(struct translation *t, const struct hypothesis *h, int eos,
                                         struct heed_error *err)
{
    t->ended = h->n && h->id[h->n - 1] == eos;
    t->ids.n = h->n - t->ended;
    t->ids.v = malloc((h->n + 1) * sizeof *t->ids.v);
    t->token_score = malloc((h->n + 1) * sizeof *t->token_score);
    if (!t->ids.v || !t->token_score)
        return error_memory(err, h->n * sizeof *t->ids.v, "a translation");
    memcpy(t->ids.v, h->id, t->ids.n * sizeof *t->ids.v);
    memcpy(t->token_score, h->token_score, h->n * sizeof *t->token_score);
    t->logp = h->logp;
    t->score = h->score;
    return HEED_OK;
}

static enum heed_status slot_finish(const struct search *s, struct slot *k, struct translation *out,
                                    struct heed_error *err)
{
    int nbest = s->o.beam.nbest, n = k->beam.done_n < nbest ? k->beam.done_n : nbest;
    enum heed_status status = HEED_OK;
    out[(size_t)k->which * nbest].broken = k->beam.broken;
    for (int i = 0; i < n && !status; i++)
        status = translation_make(&out[(size_t)k->which * nbest + i], &k->beam.done[i],
                                  s->o.beam.eos, err);
    if (n && !status) {
        out[(size_t)k->which * nbest].attention = k->attention;
        k->attention = NULL;
    }
    return status;
}

/* One position of every open sentence; those that are over leave. */
static enum heed_status batch_step(struct search *s, struct translation *out,
                                   struct heed_error *err)
{
    struct rows *a = &s->a;
    struct step step = {.sentences = s->open,
                        .first = a->first,
                        .memory = a->memory,
                        .memory_len = a->memory_len,
                        .width = s->o.beam.width,
                        .id = a->id,
                        .pos = a->pos,
                        .cache = &s->cache,
                        .cache_at = a->cache_at,
                        .self = a->self,
                        .self_len = a->self_len,
                        .self_at = a->self_at,
                        .want = a->want,
                        .watch = s->watch};
    int n = 0, best = 1, wants = 0;
    for (int i = 0; i < s->open; i++) {
        best = max(best, beam_candidates(&s->slot[i].beam));
        wants = max(wants, beam_wants(&s->slot[i].beam));
    }
    if (s->o.beam.no_repeat) best = (best + 7) / 8 * 8; /* so that steps are of few kinds */
    if (best > s->candidates) best = s->candidates;
    step.wants = wants;
    for (int i = 0; i < s->open; i++) {
        struct slot *k = &s->slot[i];
        a->first[i] = n;
        a->memory[i] = k->memory, a->memory_len[i] = k->memory_len;
        n = slot_rows(s, k, n, wants, &step.self_rows);
    }
    a->first[s->open] = n;
    enum heed_status status = run_step(s->run, &step, best, a->best, a->best_score, err);
    if (!status && s->watch) status = run_watched(s->run, n, a->weights, err);
    int open = 0;
    for (int i = 0; i < s->open; i++) {
        struct slot *k = &s->slot[i];
        size_t at = (size_t)a->first[i] * (best + wants);
        if (!status && s->watch) slot_watch(s, k, a->first[i]);
        if (!status) beam_advance(&k->beam, a->best + at, a->best_score + at, best, wants);
        if (!status && !k->beam.live) status = slot_finish(s, k, out, err);
        if (status || !k->beam.live) {
            slot_close(k);
            continue;
        }
        slot_lists(k);
        s->slot[open++] = *k;
    }
    s->open = open;
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

/* Sentences worth translating, shortest first; returns how many. */
static int sort_by_length(struct by_length *key, const struct heed_ids *src,
                          const struct beam_wish *wish, int n)
{
    int m = 0;
    for (int i = 0; i < n; i++)
        if (src[i].n || (wish && wish[i].prefix.n)) key[m++] = (struct by_length){(int)src[i].n, i};
    qsort(key, m, sizeof *key, compare_length);
    return m;
}

/* How many of the sentences key[..m) make the next batch; their indices. */
static int batch_choose(const struct search *s, const struct by_length *key, int m,
                        const struct heed_ids *src, const struct beam_wish *wish, int *which)
{
    int n = 0, rows = 0, most = 0, width = s->o.beam.width;
    for (; n < m && (n + 1) * width <= s->rows; n++) {
        int i = key[n].index;
        int longest = output_longest(s, &src[i], wish ? &wish[i] : NULL);
        assert(key[n].length <= search_longest(s) && longest <= s->p->config.max_length);
        if (longest > most) most = longest;
        rows += key[n].length + 1;
        if (n && (rows > s->source_rows || (size_t)(n + 1) * width * most > (size_t)s->cached))
            break;
        which[n] = i;
    }
    return n;
}

enum heed_status search_run(struct search *s, const struct heed_ids *src,
                            const struct beam_wish *wish, int n, struct translation *out,
                            struct heed_error *err)
{
    struct by_length *key = malloc((n + 1) * sizeof *key);
    int *which = malloc(s->rows * sizeof *which);
    enum heed_status status = HEED_OK;
    if (!key || !which) status = error_memory(err, n * sizeof *key, "the order of sentences");
    int m = status ? 0 : sort_by_length(key, src, wish, n);
    for (int at = 0, count; at < m && !status; at += count) {
        count = batch_choose(s, key + at, m - at, src, wish, which);
        status = batch_begin(s, src, wish, which, count, err);
        while (s->open && !status) status = batch_step(s, out, err);
        for (; s->open; s->open--) slot_close(&s->slot[s->open - 1]); /* after a failure */
    }
    free(which);
    free(key);
    return status;
}
