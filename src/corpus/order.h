/*
 * order.h - the order in which an epoch reads the pairs of a corpus, computed pair by pair.
 *
 * An epoch has a number of places, and each place draws a pair. The order of the places is a
 * pseudo-random permutation that is a function of (seed, epoch), so that any part of an epoch can
 * be computed without the rest, and nothing is stored.
 *
 * A corpus is made of parts, which are its files. A part of weight w has w times as many places as
 * pairs. Its draws are numbered through all epochs, and n draws in a row that begin at a multiple
 * of its n pairs draw every pair once: with a weight of 0.5, two epochs read each pair once.
 */
#ifndef HEED_CORPUS_ORDER_H
#define HEED_CORPUS_ORDER_H
#include <stdint.h>

/* A permutation of 0 to n - 1. */
struct permutation {
    uint64_t n, key;
    int half; /* bits of a half of the numbers that the Feistel network permutes */
};

struct permutation permutation_of(uint64_t n, uint64_t key);
uint64_t permutation_at(const struct permutation *p, uint64_t i);

struct order_part {
    int64_t pairs;
    int64_t draws; /* an epoch */
};

/* Draws of an epoch that give each of n pairs a weight: at least one. */
int64_t order_draws(int64_t pairs, double weight);

struct order {
    const struct order_part *part;
    int n;          /* parts, at least one */
    int64_t places; /* an epoch: the sum of the draws */
    uint64_t seed, epoch;
    struct permutation permutation; /* of the places */
};

/* part is kept; each has at least one pair and one draw. */
struct order order_of(const struct order_part *part, int n, uint64_t seed, int64_t epoch);

struct draw {
    int part;
    int64_t pair;   /* of the part, from 0 */
    int64_t repeat; /* how many passes over the part the epoch had begun before this draw's pass */
};

struct draw order_at(const struct order *o, int64_t place);

#endif
