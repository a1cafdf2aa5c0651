/*
 * search.c - beam search over all sentences that are open.
 *
 * Each hypothesis has a list of KV cache rows, one per position. When hypotheses branch or end,
 * lists are copied and cache rows stay where they are. Position t of a sentence with a beam of
 * width W takes W rows of its blocks of the cache (room.h); where attention looks back at P
 * positions only (kv_cache_positions), those of position t - P.
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
#include "decode/room.h"

enum {
    SOURCE_ROWS = 32, /* source tokens of open sentences for each hypothesis of a step */
    CACHE_ROWS = 128, /* positions in the cache for each hypothesis of a step */
    JOIN_SHARE = 8,   /* sentences join others when 1 / JOIN_SHARE of the rows is free: to
                       * encode one at a time costs more */
    EXTRA_LENGTH = 50 /* an output may be this much longer than its source (paper 6.1) */
};

/* A sentence that is open. */
struct slot {
    struct sentence *sentence;
    struct beam beam;
    struct share share;
    int32_t *at, *next; /* [width][longest] lists of cache rows before and after a step */
    float *attention;   /* of the tokens so far; NULL: not asked for */
};

struct queue {
    struct sentence *first, *last;
};

/* The arrays of a step. */
struct rows {
    int32_t *first, *memory, *memory_len, *state;                         /* by sentence */
    int32_t *id, *pos, *want, *cache_at, *cache_before, *self, *self_len; /* by hypothesis */
    int32_t *self_at; /* the lists of cache rows, end to end */
    int32_t *best;    /* [rows][candidates + wants] */
    float *best_score;
    float *attention; /* [rows * heads][max_length] */
};

struct search {
    struct search_options o; /* rows and source_rows: of all open sentences */
    struct room room;
    struct rows a;
    void *block;       /* a's arrays */
    struct slot *slot; /* [room.rows] */
    int open;          /* slots in use */
    int width;         /* hypotheses that the open sentences can have together */
    struct queue waiting, finished;
};

static const struct heed_config *config_of(const struct search *s)
{
    return &s->room.p->config;
}

int search_longest(const struct search *s)
{
    return config_of(s)->max_length - 1;
}

int search_room(const struct search *s, int width)
{
    return int_max(s->o.rows / width, 1);
}

/* The most tokens of an output, its end mark included. */
static int output_longest(const struct search *s, const struct sentence *x)
{
    int usual = int_max((int)x->src.n + 1 + EXTRA_LENGTH, x->beam.min_length + 1);
    int longest = int_max(x->longest ? x->longest : usual, constraints_length(&x->must));
    return int_min(longest, config_of(s)->max_length);
}

/* Blocks of the cache that a sentence may need. */
static int blocks_needed(const struct search *s, const struct sentence *x)
{
    return room_blocks(&s->room, x->beam.width, output_longest(s, x));
}

static void queue_put(struct queue *q, struct sentence *x)
{
    x->next = NULL;
    if (q->last)
        q->last->next = x;
    else
        q->first = x;
    q->last = x;
}

static struct sentence *queue_take(struct queue *q)
{
    struct sentence *x = q->first;
    if (x) q->first = x->next;
    if (!q->first) q->last = NULL;
    return x;
}

void translation_release(struct translation *t)
{
    free(t->ids.v);
    free(t->token_score);
    free(t->attention);
    free(t->beam);
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
    size_t rows = s->room.rows, list = s->room.cached;
    size_t best = rows * (s->room.candidates + BEAM_REQUIRED), want = rows * BEAM_REQUIRED;
    size_t attention = rows * config_of(s)->heads * config_of(s)->max_length;
    int32_t *at = base;
    struct rows *a = &s->a;
    a->first = take(&at, rows + 1), a->memory = take(&at, rows), a->memory_len = take(&at, rows);
    a->state = take(&at, rows);
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
    s->slot = calloc(s->room.rows, sizeof *s->slot);
    if (!s->block || !s->slot) return error_memory(err, bytes, "a search");
    host_layout(s, s->block);
    return HEED_OK;
}

static void memory_free(struct search *s)
{
    room_close(&s->room);
    free(s->slot);
    free(s->block);
    s->block = NULL;
    s->slot = NULL;
}

/* Memory for as many rows as the options say, and at least for `rows` hypotheses and `blocks`
 * blocks of the cache. Does nothing where there is as much already. */
static enum heed_status memory_open(struct search *s, int rows, int blocks, struct heed_error *err)
{
    struct room *r = &s->room;
    if (r->run && rows <= r->rows && blocks <= r->cached / r->block_rows) return HEED_OK;
    memory_free(s);
    int usual = room_blocks(r, s->o.rows, CACHE_ROWS);
    enum heed_status status =
        room_open(r, int_max(s->o.rows, rows), int_max(s->o.source_rows, config_of(s)->max_length),
                  int_max(usual, blocks), err);
    if (!status) status = host_open(s, err);
    if (status) memory_free(s);
    return status;
}

enum heed_status search_open(struct search **out, struct backend *be, const struct parameters *p,
                             const struct search_options *o, struct heed_error *err)
{
    struct search *s = calloc(1, sizeof *s);
    if (!s) return error_memory(err, sizeof *s, "a search");
    s->o = *o;
    room_init(&s->room, be, p);
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

/* ---- a sentence that is open ---- */

static size_t attention_bytes(const struct search *s, const struct slot *k, int tokens)
{
    return (size_t)tokens * config_of(s)->heads * k->share.memory_len * sizeof *k->attention;
}

/* Opens a slot for a sentence, the i-th of the batch b, whose keys and values are at `at`. */
static enum heed_status slot_open(struct search *s, struct sentence *x, const struct packed *b,
                                  int i, struct memory_place at, struct heed_error *err)
{
    struct slot *k = &s->slot[s->open++];
    int longest = output_longest(s, x);
    size_t bytes = (size_t)x->beam.width * longest * sizeof *k->at;
    *k = (struct slot){.sentence = x,
                       .share = {.memory = at.row + b->src_off[i],
                                 .memory_len = b->src_len[i],
                                 .state = at.state + i,
                                 .reserved = blocks_needed(s, x)},
                       .at = malloc(bytes),
                       .next = malloc(bytes)};
    s->width += x->beam.width;
    enum heed_status status = room_enter(&s->room, &k->share, err);
    if (x->attention_layer) k->attention = malloc(attention_bytes(s, k, longest));
    if (!k->at || !k->next || (x->attention_layer && !k->attention))
        status = error_memory(err, bytes, "the search for a sentence");
    struct beam_options o = x->beam;
    /* what is sampled depends on the sentence, not on its place in the text */
    for (int j = 0; j < b->src_len[i]; j++)
        o.seed = random_at(o.seed, (uint64_t)j, (uint64_t)b->src[b->src_off[i] + j]);
    return status ? status : beam_init(&k->beam, &o, &x->must, s->o.eos, longest, err);
}

static void slot_close(struct search *s, struct slot *k)
{
    s->width -= k->sentence->beam.width;
    room_leave(&s->room, &k->share);
    beam_release(&k->beam);
    free(k->at);
    free(k->next);
    free(k->attention);
}

/* Appends the rows of one sentence to the n rows of a step, and its lists to the *used entries of
 * self_at. Returns the number of rows. */
static int slot_rows(struct search *s, struct slot *k, int n, int wants, int *used)
{
    const struct rows *a = &s->a;
    for (int i = 0; i < k->beam.live; i++, n++) {
        const struct hypothesis *h = &k->beam.alive[i];
        beam_wanted(&k->beam, i, a->want + n * wants, wants);
        int32_t *list = k->at + i * k->beam.longest;
        a->id[n] = h->n ? h->id[h->n - 1] : s->o.bos;
        a->pos[n] = h->n;
        a->cache_at[n] = list[h->n] = room_cache_row(&s->room, &k->share, h->n, k->beam.o.width, i);
        a->cache_before[n] = h->n ? list[h->n - 1] : -1;
        a->self[n] = *used;
        a->self_len[n] = int_min(h->n + 1, s->room.positions);
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
    int heads = config_of(s)->heads, stride = config_of(s)->max_length;
    char *to = (char *)k->attention + attention_bytes(s, k, k->beam.alive[0].n);
    size_t bytes = k->share.memory_len * sizeof *k->attention;
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

/* Hands over the trace, where there is one, with the places of the n best outputs in it. */
static void slot_trace(struct slot *k, int n)
{
    struct beam *b = &k->beam;
    struct translation *out = k->sentence->out;
    if (!b->node) return;
    for (int i = 0; i < n; i++) b->node[b->done[i].node].result = i;
    out->beam = b->node, out->beams = b->nodes;
    b->node = NULL;
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
        slot_trace(k, n);
    }
    return status;
}

/* ---- sentences that wait join those that are open ---- */

/* The decoder layer whose attention the open sentences ask for, counted from 1; 0: none. */
static int layer_watched(const struct search *s)
{
    int layer = 0;
    for (int i = 0; i < s->open && !layer; i++) layer = s->slot[i].sentence->attention_layer;
    return layer;
}

/* How many of the sentences that wait can be taken in. Where none is open, the first can. */
static int count_joining(const struct search *s, struct memory_place *at)
{
    int n = 0, width = s->width, blocks = 0, rows = 0, layer = layer_watched(s);
    bool crowded = s->open && (s->o.rows - width) * JOIN_SHARE < s->o.rows;
    for (const struct sentence *x = s->waiting.first; x && !crowded; x = x->next, n++) {
        struct memory_place place;
        assert((int)x->src.n <= search_longest(s));
        width += x->beam.width;
        blocks += blocks_needed(s, x);
        rows += (int)x->src.n + 1;
        bool fits = room_place(&s->room, n + 1, rows, &place) && blocks <= s->room.unreserved &&
                    (width <= s->o.rows || (!n && !s->open));
        if (!fits || (layer && x->attention_layer && x->attention_layer != layer)) break;
        if (!layer) layer = x->attention_layer;
        *at = place;
    }
    return n;
}

/* Encodes the first n sentences that wait and opens a slot for each. */
static enum heed_status join(struct search *s, int n, struct memory_place at,
                             struct heed_error *err)
{
    struct packed b;
    size_t bytes = pack_words(n, s->room.source_rows, 0) * sizeof(int32_t);
    int32_t *words = malloc(bytes);
    if (!words) return error_memory(err, bytes, "sentences to encode");
    pack_begin(&b, words, n, s->room.source_rows, 0);
    enum heed_status status = HEED_OK;
    for (int i = 0; i < n && !status; i++) {
        struct sentence *x = queue_take(&s->waiting);
        pack_add(&b, x->src.v, (int)x->src.n, NULL, 0, s->o.bos, s->o.eos);
        status = slot_open(s, x, &b, i, at, err);
    }
    if (!status) status = run_encode(s->room.run, &b, at, err);
    free(words);
    return status;
}

static enum heed_status take_in(struct search *s, struct heed_error *err)
{
    const struct sentence *x = s->waiting.first;
    struct memory_place at = {0};
    enum heed_status status = HEED_OK;
    if (!x) return status;
    if (!s->open) status = memory_open(s, x->beam.width, blocks_needed(s, x), err);
    int n = status ? 0 : count_joining(s, &at);
    assert(status || n || s->open);
    return n ? join(s, n, at, err) : status;
}

/* ---- a step ---- */

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
    return int_min(best, s->room.candidates);
}

/* Decodes one position of every open sentence; those that are finished are closed. */
static enum heed_status decode(struct search *s, struct heed_error *err)
{
    struct rows *a = &s->a;
    int layer = layer_watched(s), n = 0;
    struct step step = {.sentences = s->open,
                        .first = a->first,
                        .memory = a->memory,
                        .memory_len = a->memory_len,
                        .state = a->state,
                        .id = a->id,
                        .pos = a->pos,
                        .cache = &s->room.cache,
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
        a->memory[i] = k->share.memory, a->memory_len[i] = k->share.memory_len;
        a->state[i] = k->share.state;
        n = slot_rows(s, k, n, wants, &step.self_rows);
    }
    a->first[s->open] = n;
    enum heed_status status = run_step(s->room.run, &step, best, a->best, a->best_score, err);
    if (!status && layer) status = run_watched(s->room.run, n, a->attention, err);
    int open = 0;
    for (int i = 0; i < s->open; i++) {
        struct slot *k = &s->slot[i];
        size_t at = (size_t)a->first[i] * (best + wants);
        if (!status && k->attention) slot_attention(s, k, a->first[i]);
        if (!status) beam_advance(&k->beam, a->best + at, a->best_score + at, best, wants);
        if (!status && !k->beam.live) status = slot_finish(k, err);
        if (!status && !k->beam.live) {
            queue_put(&s->finished, k->sentence);
            slot_close(s, k);
            continue;
        }
        if (!status) slot_lists(k);
        s->slot[open++] = *k;
    }
    s->open = open;
    return status;
}

/* ---- the search ---- */

void search_drop_all(struct search *s)
{
    while (s->open) slot_close(s, &s->slot[--s->open]);
    s->waiting = s->finished = (struct queue){0};
}

void search_free(struct search *s)
{
    if (!s) return;
    search_drop_all(s);
    memory_free(s);
    free(s);
}

void search_add(struct search *s, struct sentence *x)
{
    bool empty = !x->src.n && !x->must.prefix.n;
    queue_put(empty ? &s->finished : &s->waiting, x);
}

enum heed_status search_advance(struct search *s, struct heed_error *err)
{
    enum heed_status status = take_in(s, err);
    if (!status && s->open) status = decode(s, err);
    if (status) search_drop_all(s);
    return status;
}

struct sentence *search_finished(struct search *s)
{
    return queue_take(&s->finished);
}

struct heed_ids search_so_far(const struct search *s, const struct sentence *x)
{
    int i = 0;
    while (i < s->open && s->slot[i].sentence != x) i++;
    if (i == s->open) return (struct heed_ids){0};
    const struct hypothesis *h = beam_best(&s->slot[i].beam);
    size_t n = (size_t)h->n - (h->n && h->id[h->n - 1] == s->o.eos);
    return (struct heed_ids){h->id, n, 0};
}

bool search_idle(const struct search *s)
{
    return !s->open && !s->waiting.first;
}

void search_drop(struct search *s, struct sentence *x)
{
    struct queue *queues[] = {&s->waiting, &s->finished};
    for (int q = 0; q < 2; q++) {
        struct queue all = *queues[q], kept = {0};
        for (struct sentence *y; (y = queue_take(&all));)
            if (y != x) queue_put(&kept, y);
        *queues[q] = kept;
    }
    int open = 0;
    for (int i = 0; i < s->open; i++) {
        if (s->slot[i].sentence == x)
            slot_close(s, &s->slot[i]);
        else
            s->slot[open++] = s->slot[i];
    }
    s->open = open;
}

static int compare_sentences(const void *a, const void *b)
{
    const struct sentence *x = *(struct sentence *const *)a, *y = *(struct sentence *const *)b;
    if (x->attention_layer != y->attention_layer) return x->attention_layer - y->attention_layer;
    return x->src.n != y->src.n ? (x->src.n > y->src.n ? -1 : 1) : (x > y) - (x < y);
}

/* The longest come first, because short ones are a better end: fewer steps are nearly empty. */
enum heed_status search_run(struct search *s, struct sentence *sentence, int n,
                            struct heed_error *err)
{
    struct sentence **order = malloc((n + 1) * sizeof *order);
    if (!order) return error_memory(err, n * sizeof *order, "the order of sentences");
    for (int i = 0; i < n; i++) order[i] = &sentence[i];
    qsort(order, n, sizeof *order, compare_sentences);
    for (int i = 0; i < n; i++) search_add(s, order[i]);
    free(order);
    enum heed_status status = HEED_OK;
    while (!search_idle(s) && !status) status = search_advance(s, err);
    while (search_finished(s)) continue;
    return status;
}
