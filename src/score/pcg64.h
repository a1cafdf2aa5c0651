/*
 * pcg64.h - numpy's default random generator, so that bootstrap resampling draws the same sentences
 * as sacreBLEU and arrives at the same p-values.
 *
 * PCG64 is a 128-bit linear congruential generator whose state is permuted to a 64-bit word
 * (O'Neill, 2014, "XSL-RR"). numpy makes the state of a seed by hashing it (SeedSequence), and
 * draws whole numbers from 32-bit halves of the words by Lemire's method.
 *
 * Call order: pcg64_seed, pcg64_below...
 */
#ifndef HEED_SCORE_PCG64_H
#define HEED_SCORE_PCG64_H
#include <stdbool.h>
#include <stdint.h>

struct pcg64 {
    unsigned __int128 state, increment;
    uint32_t half; /* the high half of a word whose low half was drawn */
    bool has_half;
};

/* ---- from a seed to a state ---- */

enum { SEED_POOL = 4, SEED_WORDS = 8 };

static inline uint32_t seed_hash(uint32_t value, uint32_t *factor, uint32_t multiplier)
{
    value ^= *factor;
    *factor *= multiplier;
    value *= *factor;
    return value ^ value >> 16;
}

static inline uint32_t seed_mix(uint32_t x, uint32_t y)
{
    uint32_t z = 0xca01f9ddu * x - 0x4973f715u * y;
    return z ^ z >> 16;
}

static inline void seed_words(uint32_t out[SEED_WORDS], uint64_t seed)
{
    const uint32_t entropy[SEED_POOL] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t pool[SEED_POOL], factor = 0x43b0d7e5u;
    for (int i = 0; i < SEED_POOL; i++) pool[i] = seed_hash(entropy[i], &factor, 0x931e8875u);
    for (int from = 0; from < SEED_POOL; from++) {
        for (int to = 0; to < SEED_POOL; to++) {
            if (from == to) continue;
            pool[to] = seed_mix(pool[to], seed_hash(pool[from], &factor, 0x931e8875u));
        }
    }
    factor = 0x8b51f9ddu;
    for (int i = 0; i < SEED_WORDS; i++) {
        out[i] = seed_hash(pool[i % SEED_POOL], &factor, 0x58f38dedu);
    }
}

/* ---- drawing ---- */

static inline void pcg64_step(struct pcg64 *r)
{
    const unsigned __int128 multiplier =
        (unsigned __int128)0x2360ed051fc65da4u << 64 | 0x4385df649fccf645u;
    r->state = r->state * multiplier + r->increment;
}

static inline struct pcg64 pcg64_seed(uint64_t seed)
{
    uint32_t w[SEED_WORDS];
    uint64_t word[SEED_WORDS / 2];
    seed_words(w, seed);
    for (int i = 0; i < SEED_WORDS / 2; i++) word[i] = (uint64_t)w[2 * i + 1] << 32 | w[2 * i];
    struct pcg64 r = {.increment = ((unsigned __int128)word[2] << 64 | word[3]) << 1 | 1};
    pcg64_step(&r);
    r.state += (unsigned __int128)word[0] << 64 | word[1];
    pcg64_step(&r);
    return r;
}

static inline uint32_t pcg64_next32(struct pcg64 *r)
{
    if (r->has_half) {
        r->has_half = false;
        return r->half;
    }
    pcg64_step(r);
    uint64_t x = (uint64_t)(r->state >> 64) ^ (uint64_t)r->state;
    unsigned turn = (unsigned)(r->state >> 122);
    x = x >> turn | x << (-turn & 63);
    r->half = (uint32_t)(x >> 32);
    r->has_half = true;
    return (uint32_t)x;
}

/* Uniform in [0, n); n is at least 1. Without a bias: the few words that would make some numbers
 * likelier than others are drawn again. */
static inline uint32_t pcg64_below(struct pcg64 *r, uint32_t n)
{
    if (n == 1) return 0;
    uint64_t m = (uint64_t)pcg64_next32(r) * n;
    uint32_t unfair = -n % n; /* 2^32 mod n */
    while ((uint32_t)m < unfair) m = (uint64_t)pcg64_next32(r) * n;
    return (uint32_t)(m >> 32);
}

#endif
