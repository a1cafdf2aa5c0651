/*
 * ngram.c - counts n-grams exactly, without storing or comparing them.
 *
 * Each sequence of symbols has a number. It is found in a hash table, whose key is the number of
 * the sequence without its last symbol, paired with that symbol. So an n-gram costs one lookup once
 * the (n-1)-grams are known, and a word costs one lookup per character; two sequences have the same
 * number exactly if they are equal. Only sequences of the references enter the table. A sequence of
 * the hypothesis that is not in the table matches nothing, and neither does a longer one that
 * starts with it.
 *
 * Call order: table_reserve, table_clear, the numbers of the references (pair_add), then those of
 * the hypothesis (pair_find).
 */
#include "score/ngram.h"

#include "base/array.h"
#include "base/error.h"
#include "base/random.h"

#include <stdlib.h>
#include <string.h>

/* Numbers of the empty sequence and of any sequence that no reference has. The number of every
 * other sequence is the index of its slot plus one. */
enum { ROOT = 0, NONE = NGRAM_UNKNOWN };

struct ngram_slot {
    uint64_t key; /* 0: free */
    int32_t id;   /* ROOT in a free slot */
    int32_t left; /* occurrences in the references that the hypothesis has not used up */
    int32_t ref;  /* the reference that `here` is about */
    int32_t here; /* its occurrences so far */
};

enum heed_status ngram_references(struct ngram *g, int refs, struct heed_error *err)
{
    size_t before = g->ref_cap;
    enum heed_status status = array_reserve(&g->ref, &g->ref_cap, (size_t)refs, sizeof *g->ref,
                                            "the references of a line", err);
    if (status) return status;
    if (before < g->ref_cap) memset(g->ref + before, 0, (g->ref_cap - before) * sizeof *g->ref);
    g->refs = refs;
    return HEED_OK;
}

/* ---- the table of pairs ---- */

/* Symbols of all references. */
static size_t ref_symbols(const struct ngram *g)
{
    size_t n = 0;
    for (int r = 0; r < g->refs; r++) n += g->ref[r].n;
    return n;
}

/* Makes room for one pair per symbol of the references. */
static enum heed_status table_reserve(struct ngram *g, struct heed_error *err)
{
    size_t pairs = ref_symbols(g);
    if (pairs > INT32_MAX / 4) {
        return error_set(err, HEED_EARG,
                         "the references of a line have %zu characters; at most %d can be scored",
                         pairs, INT32_MAX / 4);
    }
    size_t slots = 16;
    while (slots < 2 * pairs) slots *= 2;
    g->mask = slots - 1;
    if (slots <= g->cap) return HEED_OK;
    struct ngram_slot *slot = realloc(g->slot, slots * sizeof *slot);
    if (!slot) return error_memory(err, slots * sizeof *slot, "the n-grams of a line");
    g->slot = slot;
    g->cap = slots;
    return HEED_OK;
}

static void table_clear(struct ngram *g)
{
    memset(g->slot, 0, (g->mask + 1) * sizeof *g->slot);
}

static uint64_t pair_key(int32_t prefix, int32_t symbol)
{
    return (uint64_t)(prefix + 1) << 32 | (uint32_t)symbol;
}

/* The slot of the pair, or the free slot where it would go. At most half of the slots are taken. */
static struct ngram_slot *pair_slot(const struct ngram *g, uint64_t key)
{
    size_t i = random_mix(key) & g->mask;
    while (g->slot[i].key && g->slot[i].key != key) i = (i + 1) & g->mask;
    return &g->slot[i];
}

static struct ngram_slot *pair_add(const struct ngram *g, int32_t prefix, int32_t symbol)
{
    uint64_t key = pair_key(prefix, symbol);
    struct ngram_slot *s = pair_slot(g, key);
    if (!s->key) *s = (struct ngram_slot){.key = key, .id = (int32_t)(s - g->slot) + 1};
    return s;
}

/* NULL where no reference has the pair. */
static struct ngram_slot *pair_find(const struct ngram *g, int32_t prefix, int32_t symbol)
{
    if (prefix == NONE) return NULL;
    struct ngram_slot *s = pair_slot(g, pair_key(prefix, symbol));
    return s->key ? s : NULL;
}

/* ---- words ---- */

static int32_t word_extend(const struct ngram *g, int32_t prefix, int32_t c, bool add)
{
    const struct ngram_slot *s = add ? pair_add(g, prefix, c) : pair_find(g, prefix, c);
    return s ? s->id : NONE;
}

static void words_number(const struct ngram *g, struct metric_text *t, bool add)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n;) {
        if (metric_is_space(t->c[i])) {
            i++;
            continue;
        }
        int32_t word = ROOT;
        for (; i < t->n && !metric_is_space(t->c[i]); i++) {
            word = word_extend(g, word, t->c[i], add);
        }
        t->c[n++] = word;
    }
    t->n = n;
}

enum heed_status ngram_words(struct ngram *g, struct heed_error *err)
{
    enum heed_status status = table_reserve(g, err);
    if (status) return status;
    table_clear(g);
    for (int r = 0; r < g->refs; r++) words_number(g, &g->ref[r], true);
    words_number(g, &g->hyp, false);
    return HEED_OK;
}

/* ---- n-grams ---- */

/* Sets n ids to ROOT, the 0-gram that every n-gram begins with. */
static enum heed_status ids_start(int32_t **id, size_t *cap, size_t n, struct heed_error *err)
{
    enum heed_status status = array_reserve(id, cap, n, sizeof **id, "the n-grams of a line", err);
    for (size_t i = 0; i < n && !status; i++) (*id)[i] = ROOT;
    return status;
}

/* An n-gram may match as often as the reference has it that has it most often. */
static void slot_count(struct ngram_slot *s, int32_t ref)
{
    s->here = s->ref == ref ? s->here + 1 : 1;
    s->ref = ref;
    if (s->left < s->here) s->left = s->here;
}

static void ref_count(struct ngram *g, int n)
{
    size_t at = 0; /* where the ids of a reference begin */
    for (int r = 0; r < g->refs; r++) {
        const struct metric_text *ref = &g->ref[r];
        for (size_t i = 0; i + (size_t)n <= ref->n; i++) {
            int32_t *id = &g->ref_id[at + i];
            struct ngram_slot *s = pair_add(g, *id, ref->c[i + (size_t)n - 1]);
            slot_count(s, r);
            *id = s->id;
        }
        at += ref->n;
    }
}

static long hyp_match(struct ngram *g, int n)
{
    const struct metric_text *hyp = &g->hyp;
    long match = 0;
    for (size_t i = 0; i + (size_t)n <= hyp->n; i++) {
        struct ngram_slot *s = pair_find(g, g->hyp_id[i], hyp->c[i + (size_t)n - 1]);
        g->hyp_id[i] = s ? s->id : NONE;
        if (s && s->left) {
            s->left--;
            match++;
        }
    }
    return match;
}

enum heed_status ngram_match(struct ngram *g, double *match, int order, struct heed_error *err)
{
    enum heed_status status = table_reserve(g, err);
    if (!status) status = ids_start(&g->hyp_id, &g->hyp_id_cap, g->hyp.n, err);
    if (!status) status = ids_start(&g->ref_id, &g->ref_id_cap, ref_symbols(g), err);
    if (status) return status;
    for (int n = 1; n <= order; n++) {
        table_clear(g);
        ref_count(g, n);
        match[n - 1] += (double)hyp_match(g, n);
    }
    return HEED_OK;
}

long ngram_total(const struct metric_text *t, int n)
{
    return t->n >= (size_t)n ? (long)t->n - n + 1 : 0;
}

void ngram_room_release(void *room)
{
    struct ngram *g = room;
    metric_text_release(&g->hyp);
    for (size_t r = 0; r < g->ref_cap; r++) metric_text_release(&g->ref[r]);
    free(g->ref);
    free(g->slot);
    free(g->hyp_id);
    free(g->ref_id);
}
