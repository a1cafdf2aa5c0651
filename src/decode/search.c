/*
 * search.c - beam search over packed batches of the sentences that are still open.
 *
 * Each hypothesis has a list of KV cache rows, one per position. When hypotheses branch or end,
 * lists are copied and cache rows stay where they are. Position t of a batch of R hypotheses takes
 * the cache rows [t * R, (t+1) * R), so on a CPU memory is touched only as far as outputs get.
 * Where attention looks back at P positions only (kv_cache_positions), position t takes the rows of
 * position t - P.
 *
 * Memory is allocated when the search is opened, for as many hypotheses as the device prefers, and
 * again when a sentence comes whose beam alone needs more.
 */
#include "decode/search.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/minmax.h"
#include "base/random.h"
#include "corpus/pack.h"

enum {
    SOURCE_ROWS = 32,      /* source tokens of a batch for each hypothesis of a step */
    CACHE_ROWS = 128,      /* positions in the cache for each hypothesis of a step */
    CANDIDATES_MAX = 4096, /* most next tokens that the op topk finds on every device */
    EXTRA_LENGTH = 50      /* an output may be this much longer than its source (paper 6.1) */
};

/* A sentence of the batch that is still open. */
struct slot {
    const struct sentence *sentence;
    struct beam beam;
    int encoded;            /* its number in the batch that was encoded */
    int memory, memory_len; /* its rows of the encoder's output */
    int row;                /* place of its first hypothesis among those of a cache position */
    int32_t *at, *next;     /* [width][longest] lists of cache rows before and after a step */
    float *attention;       /* of the tokens so far; NULL: not asked for */
};

/* The arrays of a step. */
struct rows {
    int32_t *first, *memory, *memory_len, *encoded;                       /* by sentence */
    int32_t *id, *pos, *want, *cache_at, *cache_before, *self, *self_len; /* by hypothesis */
    int32_t *self_at; /* the lists of cache rows, end to end */
    int32_t *best;    /* [rows][candidates + wants] */
    float *best_score;
    float *attention; /* [rows * heads][max_length] */
};

struct search {
    struct backend *be;
    const struct parameters *p;
    struct search_options o; /* rows and source_rows: the largest batch */
    /* what there is memory for; run is NULL where there is none */
    int rows, source_rows, cached, candidates;
    int positions; /* of a hypothesis that have a row in the cache, at most */
    struct run *run;
    struct cache cache;
    void *cache_block;
    struct slot *slot; /* [rows] */
    struct rows a;
    void *block; /* a's arrays */
    /* the batch */
    int open;      /* slots in use */
    int rows_wide; /* hypotheses that all sentences of the batch can have together */
};

int search_longest(const struct search *s)
{
    return s->p->config.max_length - 1;
}

/* The most tokens of an output, its end mark included. */
static int output_longest(const struct search *s, const struct sentence *x)
{
    int usual = int_max((int)x->src.n + 1 + EXTRA_LENGTH, x->beam.min_length + 1);
    int longest = int_max(x->longest ? x->longest : usual, constraints_length(&x->must));
    return int_min(longest, s->p->config.max_length);
}

/* Positions of a hypothesis of a sentence that have a row in the cache at a time, at most. */
static int cached_positions(const struct search *s, const struct sentence *x)
{
    return int_min(output_longest(s, x), s->positions);
}

void translation_release(struct translation *t)
{
    free(t->ids.v);
    free(t->token_score);
    free(t->attention);
    *t = (struct translation){0};
}

/* ---- memory ---- */

static int32_t *take(int32_t **at, size_t n)
{
    int32_t *p = *at;
    if (p) *at += n;
    return p;
}

/* Places the arrays of a step at base, or counts their bytes where base is NULL. */
static size_t host_layout(struct search *s, int32_t *base)
{
    size_t rows = s->rows, list = s->cached;
    size_t best = rows * (s->candidates + BEAM_REQUIRED), want = rows * BEAM_REQUIRED;
    size_t attention = rows * s->p->config.heads * s->p->config.max_length;
    int32_t *at = base;
    struct rows *a = &s->a;
    a->first = take(&at, rows + 1), a->memory = take(&at, rows), a->memory_len = take(&at, rows);
    a->encoded = take(&at, rows);
    a->id = take(&at, rows), a->pos = take(&at, rows), a->want = take(&at, want);
    a->cache_at = take(&at, rows), a->cache_before = take(&at, rows);
    a->self = take(&at, rows), a->self_len = take(&at, rows), a->self_at = take(&at, list);
    a->best = take(&at, best), a->best_score = (float *)take(&at, best);
    a->attention = (float *)take(&at, attention);
    return (10 * rows + 1 + want + list + 2 * best + attention) * sizeof *base;
}

static enum heed_status host_open(struct search *s, struct heed_error *err)
{
    size_t bytes = host_layout(s, NULL);
    s->block = malloc(bytes);
    s->slot = calloc(s->rows, sizeof *s->slot);
    if (!s->block || !s->slot) return error_memory(err, bytes, "a search");
    host_layout(s, s->block);
    return HEED_OK;
}

static enum heed_status cache_open(struct search *s, struct heed_error *err)
{
    const struct heed_config *c = &s->p->config;
    size_t rows = (size_t)s->cached + 1;
    struct mat one = kv_cache_rows(c, &s->p->precision, NULL, (int)rows);
    size_t layer = rows * one.cols * type_size(one.type);
    struct backend *be = s->be;
    enum heed_status status =
        be->op->alloc(be, &s->cache_block, layer * c->decoder_layers, USED_IN_PART, err);
    for (int l = 0; l < c->decoder_layers && !status; l++)
        s->cache.layer[l] =
            kv_cache_rows(c, &s->p->precision, (char *)s->cache_block + l * layer, (int)rows);
    return status;
}

static void memory_free(struct search *s)
{
    s->be->op->free(s->be, s->cache_block);
    run_free(s->run);
    free(s->slot);
    free(s->block);
    s->cache_block = s->block = NULL;
    s->run = NULL;
    s->slot = NULL;
}

/* Memory for the largest batch, and at least for `rows` hypotheses and `cached` rows of the cache.
 * Does nothing where there is as much already. */
static enum heed_status memory_open(struct search *s, int rows, int cached, struct heed_error *err)
{
    const struct heed_config *c = &s->p->config;
    if (s->run && rows <= s->rows && cached <= s->cached) return HEED_OK;
    memory_free(s);
    s->rows = int_max(s->o.rows, rows);
    s->source_rows = int_max(s->o.source_rows, c->max_length);
    s->cached = int_max(s->o.rows * int_min(CACHE_ROWS, s->positions), cached);
    s->candidates =
        int_min(beam_candidates_max(c->max_length), int_min(CANDIDATES_MAX, c->vocab_size));
    struct run_options r = {.rows_src = s->source_rows,
                            .rows_tgt = s->rows,
                            .sentences = s->rows,
                            .candidates = s->candidates,
                            .wants = BEAM_REQUIRED,
                            .cached = s->cached};
    enum heed_status status = host_open(s, err);
    if (!status) status = cache_open(s, err);
    if (!status) status = run_open(&s->run, s->be, s->p, &r, err);
    if (status) memory_free(s);
    return status;
}

/* Memory for each of the sentences by itself. */
static enum heed_status memory_for(struct search *s, const struct sentence *sentence, int n,
                                   struct heed_error *err)
{
    int rows = 0, cached = 0;
    for (int i = 0; i < n; i++) {
        rows = int_max(rows, sentence[i].beam.width);
        cached = int_max(cached, sentence[i].beam.width * cached_positions(s, &sentence[i]));
    }
    return memory_open(s, rows, cached, err);
}

enum heed_status search_open(struct search **out, struct backend *be, const struct parameters *p,
                             const struct search_options *o, struct heed_error *err)
{
    struct search *s = calloc(1, sizeof *s);
    if (!s) return error_memory(err, sizeof *s, "a search");
    s->be = be;
    s->p = p;
    s->o = *o;
    s->positions = kv_cache_positions(&p->config);
    if (!s->o.rows) s->o.rows = be->op->step_rows;
    if (!s->o.source_rows) s->o.source_rows = s->o.rows * SOURCE_ROWS;
    enum heed_status status = memory_open(s, 1, 1, err);
    while (status == HEED_ENOMEM && s->o.rows > 1) { /* a device may have less than it prefers */
        s->o.rows /= 2;
        s->o.source_rows /= 2;
        status = memory_open(s, 1, 1, err);
    }
    if (status) {
        search_free(s);
        return status;
    }
    *out = s;
    return HEED_OK;
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
    memory_free(s);
    free(s);
}

/* ---- one batch ---- */

static size_t attention_bytes(const struct search *s, const struct slot *k, int tokens)
{
    return (size_t)tokens * s->p->config.heads * k->memory_len * sizeof *k->attention;
}

/* Opens a slot for a sentence, the i-th of the packed batch b. */
static enum heed_status slot_open(struct search *s, const struct sentence *x,
                                  const struct packed *b, int i, struct heed_error *err)
{
    struct slot *k = &s->slot[s->open++];
    int longest = output_longest(s, x);
    size_t bytes = (size_t)x->beam.width * longest * sizeof *k->at;
    *k = (struct slot){.sentence = x,
                       .encoded = i,
                       .memory = b->src_off[i],
                       .memory_len = b->src_len[i],
                       .row = s->rows_wide,
                       .at = malloc(bytes),
                       .next = malloc(bytes)};
    s->rows_wide += x->beam.width;
    if (x->attention_layer) k->attention = malloc(attention_bytes(s, k, longest));
    if (!k->at || !k->next || (x->attention_layer && !k->attention))
        return error_memory(err, bytes, "the search for a sentence");
    struct beam_options o = x->beam;
    /* what is sampled depends on the sentence, not on its place in the text */
    for (int j = 0; j < k->memory_len; j++)
        o.seed = random_at(o.seed, (uint64_t)j, (uint64_t)b->src[k->memory + j]);
    return beam_init(&k->beam, &o, &x->must, s->o.eos, longest, err);
}

/* Encodes n sentences and opens a slot for each. */
static enum heed_status batch_begin(struct search *s, const struct sentence *const *x, int n,
                                    struct heed_error *err)
{
    struct packed b;
    size_t bytes = pack_words(n, s->source_rows, 0) * sizeof(int32_t);
    int32_t *words = malloc(bytes);
    if (!words) return error_memory(err, bytes, "a batch of sentences");
    pack_begin(&b, words, n, s->source_rows, 0);
    enum heed_status status = HEED_OK;
    for (int i = 0; i < n; i++)
        pack_add(&b, x[i]->src.v, (int)x[i]->src.n, NULL, 0, s->o.bos, s->o.eos);
    s->rows_wide = 0;
    for (int i = 0; i < n && !status; i++) status = slot_open(s, x[i], &b, i, err);
    if (!status) status = run_encode(s->run, &b, err);
    free(words);
    return status;
}

/* Appends the rows of one sentence to the n rows of a step, and its lists to the *used entries of
 * self_at. Returns the number of rows. */
static int slot_rows(const struct search *s, struct slot *k, int n, int wants, int *used)
{
    const struct rows *a = &s->a;
    for (int i = 0; i < k->beam.live; i++, n++) {
        const struct hypothesis *h = &k->beam.alive[i];
        beam_wanted(&k->beam, i, a->want + n * wants, wants);
        int32_t *list = k->at + i * k->beam.longest;
        a->id[n] = h->n ? h->id[h->n - 1] : s->o.bos;
        a->pos[n] = h->n;
        a->cache_at[n] = list[h->n] = h->n % s->positions * s->rows_wide + k->row + i;
        a->cache_before[n] = h->n ? list[h->n - 1] : -1;
        a->self[n] = *used;
        a->self_len[n] = int_min(h->n + 1, s->positions);
        memcpy(a->self_at + *used, list + h->n + 1 - a->self_len[n], a->self_len[n] * sizeof *list);
        *used += a->self_len[n];
    }
    return n;
}

/* Copies the lists of the parents to the hypotheses that live on. */
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

/* Keeps the attention of row n, the only one of its sentence, to the source. */
static void slot_attention(const struct search *s, struct slot *k, int n)
{
    int heads = s->p->config.heads, stride = s->p->config.max_length;
    char *to = (char *)k->attention + attention_bytes(s, k, k->beam.alive[0].n);
    size_t bytes = k->memory_len * sizeof *k->attention;
    for (int h = 0; h < heads; h++)
        memcpy(to + h * bytes, s->a.attention + ((size_t)n * heads + h) * stride, bytes);
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

static enum heed_status slot_finish(struct slot *k, struct heed_error *err)
{
    struct translation *out = k->sentence->out;
    int n = int_min(k->beam.done_n, k->beam.o.nbest);
    enum heed_status status = HEED_OK;
    out->broken = k->beam.broken;
    for (int i = 0; i < n && !status; i++)
        status = translation_make(&out[i], &k->beam.done[i], k->beam.eos, err);
    if (n && !status) {
        out->attention = k->attention;
        k->attention = NULL;
    }
    return status;
}

/* What the open sentences ask of a step together; returns the number of best next tokens. */
static int step_needs(const struct search *s, struct step *step)
{
    int best = 1;
    bool no_repeat = false;
    for (int i = 0; i < s->open; i++) {
        const struct beam *b = &s->slot[i].beam;
        best = int_max(best, beam_candidates(b));
        no_repeat = no_repeat || b->o.no_repeat;
        step->wants = int_max(step->wants, beam_wants(b));
        step->width = int_max(step->width, b->o.width);
    }
    /* With no_repeat the number grows at each step; CUDA graphs are captured per number. */
    if (no_repeat) best = (best + 7) / 8 * 8;
    return int_min(best, s->candidates);
}

/* Decodes one position of every open sentence; those that are finished leave the batch. All
 * sentences of a batch have the same attention_layer. */
static enum heed_status batch_step(struct search *s, struct heed_error *err)
{
    struct rows *a = &s->a;
    int layer = s->slot[0].sentence->attention_layer, n = 0;
    struct step step = {.sentences = s->open,
                        .first = a->first,
                        .memory = a->memory,
                        .memory_len = a->memory_len,
                        .encoded = a->encoded,
                        .id = a->id,
                        .pos = a->pos,
                        .cache = &s->cache,
                        .cache_at = a->cache_at,
                        .cache_before = a->cache_before,
                        .self = a->self,
                        .self_len = a->self_len,
                        .self_at = a->self_at,
                        .want = a->want,
                        .watch = layer};
    int best = step_needs(s, &step), wants = step.wants;
    for (int i = 0; i < s->open; i++) {
        struct slot *k = &s->slot[i];
        a->first[i] = n;
        a->memory[i] = k->memory, a->memory_len[i] = k->memory_len;
        a->encoded[i] = k->encoded;
        n = slot_rows(s, k, n, wants, &step.self_rows);
    }
    a->first[s->open] = n;
    enum heed_status status = run_step(s->run, &step, best, a->best, a->best_score, err);
    if (!status && layer) status = run_watched(s->run, n, a->attention, err);
    int open = 0;
    for (int i = 0; i < s->open; i++) {
        struct slot *k = &s->slot[i];
        size_t at = (size_t)a->first[i] * (best + wants);
        if (!status && layer) slot_attention(s, k, a->first[i]);
        if (!status) beam_advance(&k->beam, a->best + at, a->best_score + at, best, wants);
        if (!status && !k->beam.live) status = slot_finish(k, err);
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

/* Those that share a batch have the same attention_layer and about the same length. */
static int compare_sentences(const void *a, const void *b)
{
    const struct sentence *x = *(const struct sentence *const *)a;
    const struct sentence *y = *(const struct sentence *const *)b;
    if (x->attention_layer != y->attention_layer) return x->attention_layer - y->attention_layer;
    return x->src.n != y->src.n ? (x->src.n < y->src.n ? -1 : 1) : (x > y) - (x < y);
}

/* The sentences that have something to translate, in the order of their batches; returns how many.
 */
static int sort_sentences(const struct sentence **order, const struct sentence *sentence, int n)
{
    int m = 0;
    for (int i = 0; i < n; i++)
        if (sentence[i].src.n || sentence[i].must.prefix.n) order[m++] = &sentence[i];
    qsort(order, m, sizeof *order, compare_sentences);
    return m;
}

/* How many of the m sentences make the next batch. One sentence always does. */
static int batch_size(const struct search *s, const struct sentence *const *x, int m)
{
    int n = 0, rows = 0, source = 0, longest = 0;
    for (; n < m; n++) {
        assert((int)x[n]->src.n <= search_longest(s));
        rows += x[n]->beam.width;
        source += (int)x[n]->src.n + 1;
        longest = int_max(longest, cached_positions(s, x[n]));
        bool fits = rows <= s->o.rows && source <= s->o.source_rows &&
                    (size_t)rows * longest <= (size_t)s->cached;
        if (n && (!fits || x[n]->attention_layer != x[0]->attention_layer)) break;
    }
    return n;
}

enum heed_status search_run(struct search *s, const struct sentence *sentence, int n,
                            struct heed_error *err)
{
    const struct sentence **order = malloc((n + 1) * sizeof *order);
    if (!order) return error_memory(err, n * sizeof *order, "the order of sentences");
    enum heed_status status = memory_for(s, sentence, n, err);
    int m = status ? 0 : sort_sentences(order, sentence, n);
    for (int at = 0, count; at < m && !status; at += count) {
        count = batch_size(s, order + at, m - at);
        status = batch_begin(s, order + at, count, err);
        while (s->open && !status) status = batch_step(s, err);
        for (; s->open; s->open--) slot_close(&s->slot[s->open - 1]); /* after a failure */
    }
    free(order);
    return status;
}
