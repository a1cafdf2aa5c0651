/*
 * arena.h - one allocation, laid out by running the same code twice.
 *
 * First with base NULL to measure (every arena_take returns NULL and only counts), then with base
 * set to bind. Sizes and pointers cannot drift apart.
 */
#ifndef HEED_BASE_ARENA_H
#define HEED_BASE_ARENA_H
#include <stddef.h>

struct arena {
    char *base;
    size_t used; /* bytes */
};

/* The next `bytes` bytes, aligned to a cache line. */
static inline void *arena_take(struct arena *a, size_t bytes)
{
    size_t at = a->used;
    a->used += (bytes + 63) / 64 * 64;
    return a->base ? a->base + at : NULL;
}

#endif
