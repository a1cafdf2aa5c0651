/*
 * random.h - random numbers as a function of (seed, site, index): no generator state is stored, and
 * every number can be drawn again.
 */
#ifndef HEED_BASE_RANDOM_H
#define HEED_BASE_RANDOM_H
#include <stdint.h>

/* Goes in front of a function that CUDA kernels call as well. */
#ifdef __CUDACC__
#define ON_DEVICE __host__ __device__
#else
#define ON_DEVICE
#endif

/* A bijection of 64-bit words with good avalanche (splitmix64's finalizer). */
ON_DEVICE static inline uint64_t random_mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* An independent 64-bit word for each (seed, a, b). */
static inline uint64_t random_at(uint64_t seed, uint64_t a, uint64_t b)
{
    return random_mix(random_mix(random_mix(seed) ^ a) ^ b);
}

/* The next 64-bit word of a stream, whose state is a plain number that can be saved. */
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t z = random_mix(*state);
    *state += 0x9e3779b97f4a7c15ull;
    return z;
}

/* Uniform in [0, n), as the high half of a 128-bit product; the bias is at most n / 2^64. */
static inline uint64_t random_below(uint64_t *state, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)random_next(state) * n) >> 64);
}

/* Uniform in [0, 1) with 53 bits. */
static inline double random_unit(uint64_t *state)
{
    return (double)(random_next(state) >> 11) * 0x1p-53;
}

#endif
