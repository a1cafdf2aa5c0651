/*
 * beam.c - the search for one sentence; see beam.h.
 */
#include "decode/beam.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"

double beam_penalty(float alpha, int n)
{
    return pow((5.0 + n) / 6.0, (double)alpha);
}

static void hypotheses_bind(struct hypothesis *h, int n, int longest, char **at)
{
    for (int i = 0; i < n; i++) {
        h[i].id = (int32_t *)*at;
        *at += (size_t)longest * sizeof *h[i].id;
        h[i].token_score = (float *)*at;
        *at += (size_t)longest * sizeof *h[i].token_score;
    }
}

enum heed_status beam_init(struct beam *b, const struct beam_options *o, int longest,
                           const int32_t *prefix, int prefix_n, struct heed_error *err)
{
    assert(o->width >= 1 && o->width <= BEAM_MAX && o->nbest >= 1 && o->nbest <= o->width);
    size_t n = 3 * (size_t)o->width;
    size_t tokens = (size_t)longest * (sizeof(int32_t) + sizeof(float));
    size_t bytes = n * (sizeof(struct hypothesis) + tokens);
    *b = (struct beam){
        .o = *o, .longest = longest, .prefix = prefix, .prefix_n = prefix_n, .live = 1};
    b->block = calloc(1, bytes);
    if (!b->block) return error_memory(err, bytes, "the hypotheses of a sentence");
    b->alive = b->block;
    b->next = b->alive + o->width;
    b->done = b->next + o->width;
    char *at = (char *)(b->alive + n);
    hypotheses_bind(b->alive, (int)n, longest, &at);
    return HEED_OK;
}

void beam_release(struct beam *b)
{
    free(b->block);
    *b = (struct beam){0};
}

/* ---- what is not allowed ---- */

static bool is_banned(const struct beam *b, int32_t id)
{
    for (int i = 0; i < b->o.banned_n; i++)
        if (b->o.banned[i] == id) return true;
    return false;
}

/* Whether the tokens of h with id behind them end in an n-gram that h has already. */
static bool repeats(const struct hypothesis *h, int32_t id, int n)
{
    const int32_t *last = h->id + h->n - (n - 1);
    for (int i = 0; i + n <= h->n; i++)
        if (h->id[i + n - 1] == id && !memcmp(h->id + i, last, (n - 1) * sizeof id)) return true;
    return false;
}

int beam_forced(const struct beam *b)
{
    int n = b->alive[0].n;
    return n < b->prefix_n ? b->prefix[n] : -1;
}

static bool allowed(const struct beam *b, const struct hypothesis *h, int32_t id)
{
    if (h->n < b->prefix_n) return id == b->prefix[h->n];
    if (id == b->o.eos) return h->n >= b->o.min_length;
    return !is_banned(b, id) &&
           !(b->o.no_repeat && h->n >= b->o.no_repeat && repeats(h, id, b->o.no_repeat));
}

int beam_candidates_free(const struct beam_options *o)
{
    int drawn = o->top_k ? o->top_k : BEAM_SAMPLED;
    return (o->temperature > 0 ? drawn : o->width) + 1 + o->banned_n;
}

int beam_candidates(const struct beam *b)
{
    int n = beam_candidates_free(&b->o);
    return b->o.no_repeat ? n + b->alive[0].n : n;
}

/* ---- a step ---- */

struct candidate {
    double logp;
    int parent, place; /* place in the parent's list: its order among equals */
};

static bool before(const struct candidate *x, const struct candidate *y)
{
    if (x->logp != y->logp) return x->logp > y->logp;
    return x->parent != y->parent ? x->parent < y->parent : x->place < y->place;
}

/* h = parent with one token more */
static void extend(struct hypothesis *h, const struct hypothesis *parent, int32_t id, float score)
{
    int n = parent->n;
    memcpy(h->id, parent->id, n * sizeof *h->id);
    memcpy(h->token_score, parent->token_score, n * sizeof *h->token_score);
    h->id[n] = id;
    h->token_score[n] = score;
    h->n = n + 1;
    h->logp = parent->logp + (double)score;
}

/* Puts a hypothesis among the done ones, best first but behind the first `ahead`; the earlier first
 * among equals. The last of them goes when there are more than width. */
static void finish(struct beam *b, const struct hypothesis *h, int ahead)
{
    double score = h->logp / beam_penalty(b->o.length_penalty, h->n);
    int at = b->done_n;
    while (at > ahead && score > b->done[at - 1].score) at--;
    if (at == b->o.width) return;
    if (b->done_n < b->o.width) b->done_n++;
    struct hypothesis spare = b->done[b->done_n - 1];
    memmove(b->done + at + 1, b->done + at, (b->done_n - 1 - at) * sizeof *b->done);
    b->done[at] = spare;
    struct hypothesis *d = &b->done[at];
    memcpy(d->id, h->id, h->n * sizeof *d->id);
    memcpy(d->token_score, h->token_score, h->n * sizeof *d->token_score);
    d->n = h->n, d->logp = h->logp, d->score = score;
}

/* ---- sampling ---- */

/* The place among n candidates of the token that hypothesis `rank` draws, or -1: none is allowed.
 */
static int draw(const struct beam *b, const struct hypothesis *h, int rank, const int32_t *id,
                const float *score, int n)
{
    const struct beam_options *o = &b->o;
    double weight[BEAM_SAMPLED], sum = 0;
    int place[BEAM_SAMPLED], m = 0, most = o->top_k ? o->top_k : BEAM_SAMPLED;
    for (int i = 0; i < n && m < most && score[i] > -INFINITY; i++) {
        if (!allowed(b, h, id[i])) continue;
        place[m] = i;
        sum += weight[m++] = exp((double)(score[i] - score[0]) / (double)o->temperature);
    }
    if (o->top_p > 0 && o->top_p < 1) {
        double enough = sum * (double)o->top_p;
        int kept = 0;
        for (sum = 0; kept < m && sum < enough; kept++) sum += weight[kept];
        m = kept;
    }
    uint64_t state = random_at(o->seed, (uint64_t)rank, (uint64_t)h->n);
    double at = random_unit(&state) * sum;
    int i = 0;
    while (i + 1 < m && at >= weight[i]) at -= weight[i++];
    return m ? place[i] : -1;
}

/* All start from the one hypothesis there is behind the prefix; those that end leave. */
static int sample(struct beam *b, const int32_t *id, const float *score, int n, int stride)
{
    int first = b->alive[0].n == b->prefix_n, count = first ? b->o.width : b->live, live = 0;
    for (int i = 0; i < count; i++) {
        int parent = first ? 0 : i, rank = first ? i : b->alive[i].rank;
        const struct hypothesis *h = &b->alive[parent];
        int at = draw(b, h, rank, id + parent * stride, score + parent * stride, n);
        if (at < 0) continue;
        at += parent * stride;
        struct hypothesis *to = &b->next[live];
        extend(to, h, id[at], score[at]);
        to->parent = parent;
        to->rank = rank;
        if (id[at] == b->o.eos)
            finish(b, to, 0);
        else
            live++;
    }
    return live;
}

/* ---- search ---- */

/* What a living hypothesis can reach at most: not one more nat lost, at the longest length. */
static bool none_can_win(const struct beam *b)
{
    if (b->done_n < b->o.nbest) return false;
    double top = b->next[0].logp / beam_penalty(b->o.length_penalty, b->longest);
    return top <= b->done[b->o.nbest - 1].score;
}

static int search(struct beam *b, const int32_t *id, const float *score, int n, int stride)
{
    struct candidate head[BEAM_MAX]; /* the best of each row that was not taken yet */
    int rows = b->live, live = 0;
    for (int i = 0; i < rows; i++) head[i] = (struct candidate){-INFINITY, i, -1};
    for (int first = -1; live < b->o.width;) {
        /* the row that was taken from, or all of them, moves to its next candidate */
        for (int i = 0; i < rows; i++) {
            if (first >= 0 && i != first) continue;
            struct candidate *c = &head[i];
            do c->place++;
            while (c->place < n && !allowed(b, &b->alive[i], id[i * stride + c->place]));
            c->logp =
                c->place < n ? b->alive[i].logp + (double)score[i * stride + c->place] : -INFINITY;
        }
        struct candidate *best = &head[0];
        for (int i = 1; i < rows; i++)
            if (before(&head[i], best)) best = &head[i];
        if (best->logp == -INFINITY) break;
        first = best->parent;
        const struct hypothesis *parent = &b->alive[first];
        int at = first * stride + best->place;
        struct hypothesis *h = &b->next[live];
        extend(h, parent, id[at], score[at]);
        h->parent = first;
        if (id[at] == b->o.eos)
            finish(b, h, 0);
        else
            live++;
    }
    return live;
}

void beam_advance(struct beam *b, const int32_t *id, const float *score, int n, int stride)
{
    bool drawn = b->o.temperature > 0 && beam_forced(b) < 0;
    int live = drawn ? sample(b, id, score, n, stride) : search(b, id, score, n, stride);
    struct hypothesis *swap = b->alive;
    bool over = !live || b->done_n >= b->o.width || (b->o.temperature == 0 && none_can_win(b));
    bool cut = !over && b->next[0].n >= b->longest;
    /* Outputs that reached their longest length without an end come behind those that have one. */
    for (int i = 0, ended = b->done_n; cut && i < live && b->done_n < b->o.nbest; i++)
        finish(b, &b->next[i], ended);
    b->alive = b->next;
    b->next = swap;
    b->live = over || cut ? 0 : live;
}
