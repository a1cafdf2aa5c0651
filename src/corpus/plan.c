/*
 * plan.c - the plan of the batches of a pool; see plan.h.
 */
#include "corpus/plan.h"

#include "base/error.h"
#include "base/random.h"

#include <stdlib.h>

/* What the pairs of a pool are sorted by. */
struct plan_key {
    int32_t tgt, src;
    uint32_t rank; /* place after the shuffle, which orders pairs of equal lengths */
    uint32_t pair;
};

static int key_compare(const void *x, const void *y)
{
    const struct plan_key *a = x, *b = y;
    if (a->tgt != b->tgt) return a->tgt < b->tgt ? -1 : 1;
    if (a->src != b->src) return a->src < b->src ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static enum heed_status order_shuffle(uint32_t *order, const struct pool *p, uint64_t *random,
                                      struct heed_error *err)
{
    struct plan_key *key = malloc((p->n + 1) * sizeof *key);
    if (!key) return error_memory(err, (p->n + 1) * sizeof *key, "sorting a pool");
    for (size_t i = p->n; i > 1; i--) {
        size_t j = random_below(random, i);
        uint32_t x = order[i - 1];
        order[i - 1] = order[j];
        order[j] = x;
    }
    for (size_t i = 0; i < p->n; i++) {
        const struct pool_pair *x = &p->pair[order[i]];
        key[i] = (struct plan_key){x->tgt, x->src, (uint32_t)i, order[i]};
    }
    qsort(key, p->n, sizeof *key, key_compare);
    for (size_t i = 0; i < p->n; i++) order[i] = key[i].pair;
    free(key);
    return HEED_OK;
}

/* Cuts the order into batches: a batch takes the next pairs as long as both of its sides stay
 * within batch_tokens rows. */
static void spans_cut(struct plan *plan, const struct pool *p, int batch_tokens)
{
    int64_t src = 0, tgt = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const struct pool_pair *x = &p->pair[plan->order[i]];
        src += x->src + 1;
        tgt += x->tgt + 1;
        if (i == 0 || src > batch_tokens || tgt > batch_tokens) {
            plan->span[plan->n++] = (struct plan_span){i, 0};
            src = x->src + 1;
            tgt = x->tgt + 1;
        }
        plan->span[plan->n - 1].n++;
    }
}

static void spans_shuffle(struct plan *plan, uint64_t *random)
{
    for (size_t i = plan->n; i > 1; i--) {
        size_t j = random_below(random, i);
        struct plan_span x = plan->span[i - 1];
        plan->span[i - 1] = plan->span[j];
        plan->span[j] = x;
    }
}

enum heed_status plan_make(struct plan *out, const struct pool *p, int batch_tokens, bool shuffle,
                           uint64_t random, struct heed_error *err)
{
    struct plan plan = {0};
    plan.order = malloc((p->n + 1) * sizeof *plan.order);
    plan.span = malloc((p->n + 1) * sizeof *plan.span);
    if (!plan.order || !plan.span) {
        plan_release(&plan);
        return error_memory(err, (p->n + 1) * sizeof *plan.span, "the order of a pool");
    }
    for (size_t i = 0; i < p->n; i++) plan.order[i] = (uint32_t)i;
    enum heed_status st = shuffle ? order_shuffle(plan.order, p, &random, err) : HEED_OK;
    if (st) {
        plan_release(&plan);
        return st;
    }
    spans_cut(&plan, p, batch_tokens);
    if (shuffle) spans_shuffle(&plan, &random);
    *out = plan;
    return HEED_OK;
}

void plan_release(struct plan *p)
{
    free(p->order);
    free(p->span);
    *p = (struct plan){0};
}
