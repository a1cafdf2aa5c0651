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

/* Candidates that a hypothesis of n tokens needs: as many as can be taken, and one for each token
 * that may be forbidden: the end mark, the last token of each banned phrase and, where n-grams must
 * not repeat, one token for each that is there. */
static int candidates(const struct beam *b, int n)
{
    int sampled = b->o.top_k ? b->o.top_k : BEAM_SAMPLED;
    int taken = b->o.temperature > 0 ? sampled : b->o.width;
    return taken + 1 + b->must.banned_n + (b->o.no_repeat ? n : 0);
}

int beam_candidates_max(int longest)
{
    _Static_assert(BEAM_SAMPLED >= BEAM_MAX, "sampling takes the most candidates");
    return BEAM_SAMPLED + 1 + BEAM_BANNED + longest;
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

/* A living hypothesis with one more token. */
struct candidate {
    double logp;
    int parent, place; /* index of the token among the parent's candidates: breaks ties */
    int met;           /* tokens of the required phrases that it has */
    int turn;          /* its rank among the candidates with the same `met` */
};

/* Nodes of a trace that a step adds at most: `width` hypotheses live on, each that lived before has
 * at most one end, and `width` are kept of those that fall out of the beam. */
enum { NODES_A_STEP = 3 };

int constraints_length(const struct constraints *c)
{
    size_t n = c->prefix.n;
    for (int i = 0; i < c->required_n; i++) n += c->required[i].n;
    return (int)n + (c->required_n > 0); /* the end mark */
}

enum heed_status beam_init(struct beam *b, const struct beam_options *o,
                           const struct constraints *must, int eos, int longest,
                           struct heed_error *err)
{
    assert(o->width >= 1 && o->width <= BEAM_MAX && o->nbest >= 1 && o->nbest <= o->width);
    *b = (struct beam){.o = *o, .eos = eos, .longest = longest, .live = 1};
    if (must) b->must = *must;
    size_t n = 3 * (size_t)o->width, tokens = (size_t)longest * (sizeof(int32_t) + sizeof(float));
    size_t known = (size_t)o->width * (candidates(b, longest) + beam_wants(b));
    size_t bytes = known * sizeof *b->candidate + n * (sizeof(struct hypothesis) + tokens);
    b->block = calloc(1, bytes);
    if (!b->block) return error_memory(err, bytes, "the hypotheses of a sentence");
    b->candidate = b->block;
    b->alive = (struct hypothesis *)(b->candidate + known);
    b->next = b->alive + o->width;
    b->done = b->next + o->width;
    char *at = (char *)(b->alive + n);
    hypotheses_bind(b->alive, (int)n, longest, &at);
    b->alive[0].node = -1;
    if (!o->trace) return HEED_OK;
    size_t nodes = (size_t)NODES_A_STEP * o->width * longest;
    b->node = malloc(nodes * sizeof *b->node);
    return b->node ? HEED_OK : error_memory(err, nodes * sizeof *b->node, "the trace of a search");
}

void beam_release(struct beam *b)
{
    free(b->block);
    free(b->node);
    *b = (struct beam){0};
}

/* ---- constraints ---- */

/* Whether h with id behind it ends in a phrase of n tokens. */
static bool completes(const struct hypothesis *h, int32_t id, const int32_t *phrase, int n)
{
    return phrase[n - 1] == id && h->n >= n - 1 &&
           !memcmp(h->id + h->n - (n - 1), phrase, (n - 1) * sizeof id);
}

static bool is_banned(const struct beam *b, const struct hypothesis *h, int32_t id)
{
    for (int i = 0; i < b->must.banned_n; i++)
        if (completes(h, id, b->must.banned[i].v, (int)b->must.banned[i].n)) return true;
    return false;
}

/* Whether h with id behind it ends in an n-gram that h has already. */
static bool repeats(const struct hypothesis *h, int32_t id, int n)
{
    for (int i = 0; i + n <= h->n; i++)
        if (completes(h, id, h->id + i, n)) return true;
    return false;
}

/* How many tokens of a phrase the n tokens of an output have: all, if the phrase is in it anywhere;
 * else as many of the first ones as the output ends in. */
static int progress(const int32_t *id, int n, const struct heed_ids *phrase)
{
    int most = (int)phrase->n;
    for (int i = 0; i + most <= n; i++)
        if (!memcmp(id + i, phrase->v, most * sizeof *id)) return most;
    for (int k = most - 1 < n ? most - 1 : n; k > 0; k--)
        if (!memcmp(id + n - k, phrase->v, k * sizeof *id)) return k;
    return 0;
}

/* The tokens of the required phrases that an output has: all tokens of the complete phrases, and
 * those of the incomplete phrase with the most, so that the next token of that phrase always
 * raises the sum. *all: every phrase is complete. */
static int met(const struct beam *b, const int32_t *id, int n, bool *all)
{
    int sum = 0, part = 0;
    *all = true;
    for (int i = 0; i < b->must.required_n; i++) {
        int k = progress(id, n, &b->must.required[i]);
        if (k == (int)b->must.required[i].n) {
            sum += k;
        } else {
            *all = false;
            if (k > part) part = k;
        }
    }
    return sum + part;
}

static bool in_prefix(const struct beam *b)
{
    return b->alive[0].n < (int)b->must.prefix.n;
}

/* Whether id may follow h. `wanted`: id comes from beam_wanted; such a token may repeat an n-gram.
 */
static bool allowed(const struct beam *b, const struct hypothesis *h, int32_t id, bool wanted)
{
    bool all;
    if (in_prefix(b)) return id == b->must.prefix.v[h->n];
    if (id == b->eos) return h->n >= b->o.min_length && (met(b, h->id, h->n, &all), all);
    bool again = b->o.no_repeat && h->n >= b->o.no_repeat && repeats(h, id, b->o.no_repeat);
    return !is_banned(b, h, id) && (wanted || !again);
}

int beam_wants(const struct beam *b)
{
    return b->must.required_n ? b->must.required_n : b->must.prefix.n > 0;
}

void beam_wanted(const struct beam *b, int i, int32_t *id, int n)
{
    const struct hypothesis *h = &b->alive[i];
    int m = 0;
    if (in_prefix(b)) {
        id[m++] = b->must.prefix.v[h->n];
    } else {
        for (int k = 0; k < b->must.required_n; k++) {
            const struct heed_ids *phrase = &b->must.required[k];
            int have = progress(h->id, h->n, phrase);
            if (have < (int)phrase->n) id[m++] = phrase->v[have];
        }
    }
    while (m < n) id[m++] = -1;
}

int beam_candidates(const struct beam *b)
{
    return candidates(b, b->alive[0].n);
}

/* ---- a step ---- */

/* Adds a node to the trace, where there is one: parent with one more token. Returns its number. */
static int trace(struct beam *b, const struct hypothesis *parent, int32_t id, float score,
                 bool kept)
{
    if (!b->node) return -1;
    double logp = parent->logp + (double)score;
    b->node[b->nodes] = (struct heed_beam_node){
        .parent = parent->node,
        .id = id,
        .logp = score,
        .score = (float)(logp / beam_penalty(b->o.length_penalty, parent->n + 1)),
        .kept = kept,
        .finished = id == b->eos,
        .result = -1};
    return b->nodes++;
}

/* h = parent with one more token. */
static void extend(struct beam *b, struct hypothesis *h, const struct hypothesis *parent,
                   int32_t id, float score)
{
    int n = parent->n;
    memcpy(h->id, parent->id, n * sizeof *h->id);
    memcpy(h->token_score, parent->token_score, n * sizeof *h->token_score);
    h->id[n] = id;
    h->token_score[n] = score;
    h->n = n + 1;
    h->logp = parent->logp + (double)score;
    h->node = trace(b, parent, id, score, true);
}

/* Sorts a hypothesis into the finished outputs by its score, but behind the first `ahead` of them;
 * among equal scores the earlier output comes first. The last one is dropped when there are more
 * than width. */
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
    d->n = h->n, d->logp = h->logp, d->score = score, d->node = h->node;
}

/* ---- sampling ---- */

/* The index among n candidates of the token that output `rank` samples to follow h, or -1 where no
 * candidate is allowed. */
static int draw(const struct beam *b, const struct hypothesis *h, int rank, const int32_t *id,
                const float *score, int n)
{
    const struct beam_options *o = &b->o;
    double weight[BEAM_SAMPLED], sum = 0;
    int place[BEAM_SAMPLED], m = 0, most = o->top_k ? o->top_k : BEAM_SAMPLED;
    for (int i = 0; i < n && m < most && score[i] > -INFINITY; i++) {
        if (!allowed(b, h, id[i], false)) continue;
        place[m] = i;
        sum += weight[m] = exp((double)(score[i] - score[place[0]]) / (double)o->temperature);
        m++;
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

/* Samples the next token of every output. Up to the end of the prefix there is one hypothesis, from
 * which all outputs start. Returns how many live on. */
static int sample(struct beam *b, const int32_t *id, const float *score, int best, int stride)
{
    int first = b->alive[0].n == (int)b->must.prefix.n, live = 0;
    for (int i = 0; i < (first ? b->o.width : b->live); i++) {
        int parent = first ? 0 : i, rank = first ? i : b->alive[i].rank;
        const struct hypothesis *h = &b->alive[parent];
        int at = draw(b, h, rank, id + parent * stride, score + parent * stride, best);
        if (at < 0) continue;
        at += parent * stride;
        struct hypothesis *to = &b->next[live];
        extend(b, to, h, id[at], score[at]);
        to->parent = parent;
        to->rank = rank;
        if (id[at] == b->eos)
            finish(b, to, 0);
        else
            live++;
    }
    return live;
}

/* ---- search ---- */

static int compare_within(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->met != y->met) return x->met > y->met ? -1 : 1;
    if (x->logp != y->logp) return x->logp > y->logp ? -1 : 1;
    return x->parent != y->parent ? x->parent - y->parent : x->place - y->place;
}

static int compare_turns(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return x->turn != y->turn ? x->turn - y->turn : y->met - x->met;
}

/* Fills c with the allowed candidates of one hypothesis; returns how many. They are the first `own`
 * of the `best` ids and the wanted ids behind these, which may repeat one of the former. */
static int collect_row(const struct beam *b, int parent, const int32_t *id, const float *score,
                       int own, int best, struct candidate *c)
{
    const struct hypothesis *h = &b->alive[parent];
    int n = 0, all = own + beam_wants(b);
    for (int k = 0; k < all; k++) {
        int at = k < own ? k : best + k - own;
        bool again = false;
        for (int i = 0; i < n && k >= own; i++) again |= id[c[i].place] == id[at];
        if (again || score[at] == -INFINITY || !allowed(b, h, id[at], k >= own)) continue;
        bool unused;
        h->id[h->n] = id[at];
        c[n++] = (struct candidate){.logp = h->logp + (double)score[at],
                                    .parent = parent,
                                    .place = at,
                                    .met = met(b, h->id, h->n + 1, &unused)};
    }
    return n;
}

/* Fills b->candidate in the order in which candidates are taken; returns how many. A beam looks at
 * no more of the best than it asked for, so that the other sentences of a batch, which may have
 * asked for more, do not change its result. */
static int collect(struct beam *b, const int32_t *id, const float *score, int best, int wants)
{
    struct candidate *c = b->candidate;
    int n = 0, own = beam_candidates(b), stride = best + wants;
    if (own > best) own = best;
    for (int i = 0; i < b->live; i++)
        n += collect_row(b, i, id + i * stride, score + i * stride, own, best, c + n);
    qsort(c, n, sizeof *c, compare_within);
    if (!b->must.required_n) return n;
    for (int i = 1; i < n; i++) c[i].turn = c[i].met == c[i - 1].met ? c[i - 1].turn + 1 : 0;
    qsort(c, n, sizeof *c, compare_turns);
    return n;
}

/* One step of the beam search; returns how many hypotheses live on. */
static int search(struct beam *b, const int32_t *id, const float *score, int best, int wants)
{
    int live = 0, taken = 0, n = collect(b, id, score, best, wants);
    for (; taken < n && live < b->o.width; taken++) {
        const struct candidate *c = &b->candidate[taken];
        int at = c->parent * (best + wants) + c->place;
        struct hypothesis *h = &b->next[live];
        extend(b, h, &b->alive[c->parent], id[at], score[at]);
        h->parent = c->parent;
        if (id[at] == b->eos)
            finish(b, h, 0);
        else
            live++;
    }
    for (int i = taken; b->node && i < n && i < taken + b->o.width; i++) {
        const struct candidate *c = &b->candidate[i];
        int at = c->parent * (best + wants) + c->place;
        trace(b, &b->alive[c->parent], id[at], score[at], false);
    }
    return live;
}

/* Whether no living hypothesis can come before the last of the nbest finished outputs. The highest
 * score it can reach is its present logp at the longest length. */
static bool none_can_win(const struct beam *b, int live)
{
    if (b->done_n < b->o.nbest) return false;
    double top = -INFINITY;
    for (int i = 0; i < live; i++) top = fmax(top, b->next[i].logp);
    return top / beam_penalty(b->o.length_penalty, b->longest) <= b->done[b->o.nbest - 1].score;
}

/* Whether the model's scores are finite. The best score of a row is finite unless its logits are
 * not. */
static bool is_finite(const struct beam *b, const float *score, int stride)
{
    for (int i = 0; i < b->live; i++)
        if (!isfinite(score[(size_t)i * stride])) return false;
    return true;
}

void beam_advance(struct beam *b, const int32_t *id, const float *score, int best, int wants)
{
    if (!is_finite(b, score, best + wants)) {
        b->broken = true;
        b->live = b->done_n = 0;
        return;
    }
    bool sampled = b->o.temperature > 0 && !in_prefix(b);
    int live =
        sampled ? sample(b, id, score, best, best + wants) : search(b, id, score, best, wants);
    struct hypothesis *swap = b->alive;
    bool over =
        !live || b->done_n >= b->o.width || (b->o.temperature == 0 && none_can_win(b, live));
    bool cut = !over && b->next[0].n >= b->longest;
    /* Outputs that reached their longest length without an end come behind those that have one. */
    for (int i = 0, ended = b->done_n; cut && i < live && b->done_n < b->o.nbest; i++)
        finish(b, &b->next[i], ended);
    b->alive = b->next;
    b->next = swap;
    b->live = over || cut ? 0 : live;
}

const struct hypothesis *beam_best(const struct beam *b)
{
    /* Living hypotheses have equally many tokens, so the likeliest has the highest score. */
    const struct hypothesis *best = &b->alive[0];
    for (int i = 1; i < b->live; i++)
        if (b->alive[i].logp > best->logp) best = &b->alive[i];
    double score = best->logp / beam_penalty(b->o.length_penalty, best->n);
    return b->done_n && b->done[0].score > score ? &b->done[0] : best;
}
