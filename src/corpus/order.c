/*
 * order.c - the order in which an epoch reads the pairs of a corpus; see order.h.
 *
 * A Feistel network permutes the numbers of an even number of bits: a round adds a pseudo-random
 * function of one half to the other half, and so can be undone. The network has the least bits that
 * n numbers need; where its result is not below n, it is applied to the result again (cycle
 * walking), less than four times on average.
 */
#include "corpus/order.h"

#include <assert.h>
#include <math.h>

#include "base/random.h"

enum { ROUNDS = 6 };

/* Stand in place of an epoch's number where random_at makes keys from the seed. */
static const uint64_t PLACES_SITE = UINT64_MAX, PART_SITE = UINT64_MAX - 1;

struct permutation permutation_of(uint64_t n, uint64_t key)
{
    struct permutation p = {.n = n, .key = key, .half = 1};
    assert(n > 0 && n <= UINT64_C(1) << 62);
    while (UINT64_C(1) << (2 * p.half) < n) p.half++;
    return p;
}

uint64_t permutation_at(const struct permutation *p, uint64_t i)
{
    uint64_t mask = (UINT64_C(1) << p->half) - 1;
    assert(i < p->n);
    do {
        uint64_t left = i >> p->half, right = i & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            uint64_t mixed = left ^ (random_mix(random_mix(p->key + round) ^ right) & mask);
            left = right;
            right = mixed;
        }
        i = left << p->half | right;
    } while (i >= p->n);
    return i;
}

int64_t order_draws(int64_t pairs, double weight)
{
    double draws = round((double)pairs * weight);
    return draws < 1 ? 1 : (int64_t)draws;
}

struct order order_of(const struct order_part *part, int n, uint64_t seed, int64_t epoch)
{
    struct order o = {.part = part, .n = n, .seed = seed, .epoch = (uint64_t)epoch};
    for (int i = 0; i < n; i++) o.places += part[i].draws;
    o.permutation =
        permutation_of((uint64_t)o.places, random_at(seed, PLACES_SITE, (uint64_t)epoch));
    return o;
}

struct draw order_at(const struct order *o, int64_t place)
{
    int64_t i = (int64_t)permutation_at(&o->permutation, (uint64_t)place);
    struct draw d = {0};
    while (i >= o->part[d.part].draws) i -= o->part[d.part++].draws;
    const struct order_part *part = &o->part[d.part];
    uint64_t pairs = (uint64_t)part->pairs;
    /* Numbers of this draw and of the part's first draw in the epoch, counted through all epochs */
    unsigned __int128 first = (unsigned __int128)o->epoch * (uint64_t)part->draws;
    unsigned __int128 draw = first + (uint64_t)i;
    uint64_t pass = (uint64_t)(draw / pairs);
    d.pair = (int64_t)(draw % pairs);
    d.repeat = (int64_t)(pass - (uint64_t)(first / pairs));
    if (part->draws % part->pairs == 0) return d; /* whole passes: the places are order enough */
    uint64_t key = random_at(random_at(o->seed, PART_SITE, (uint64_t)d.part), pass, 0);
    struct permutation p = permutation_of(pairs, key);
    d.pair = (int64_t)permutation_at(&p, (uint64_t)d.pair);
    return d;
}
