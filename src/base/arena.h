/*
 * arena.h - many blocks in one allocation, laid out by running the same code twice.
 *
 * The first run, with base NULL, measures: every arena_take only counts bytes and returns NULL. The
 * second run, with base set to memory of that size, returns the pointers. So the sizes always match
 * the pointers.
 *
 * Under AddressSanitizer a red zone lies behind each block, so that an access that runs from one
 * block into the next is found. The memory may be freed without further ado, and laid out again.
 */
#ifndef HEED_BASE_ARENA_H
#define HEED_BASE_ARENA_H
#include <stdbool.h>
#include <stddef.h>

#ifndef __has_feature /* clang has __has_feature; GCC defines __SANITIZE_ADDRESS__ */
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
enum { ARENA_RED_ZONE = 64 };
#else
#define ASAN_POISON_MEMORY_REGION(p, bytes)   ((void)(p), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(p, bytes) ((void)(p), (void)(bytes))
enum { ARENA_RED_ZONE = 0 };
#endif

struct arena {
    char *base;
    bool host;   /* host memory, not a GPU's, so that red zones can be marked */
    size_t used; /* bytes */
};

/* The next `bytes` bytes, aligned to a cache line. */
static inline void *arena_take(struct arena *a, size_t bytes)
{
    size_t at = a->used;
    a->used += (bytes + 63) / 64 * 64 + ARENA_RED_ZONE;
    if (!a->base) return NULL;
    if (a->host) {
        ASAN_UNPOISON_MEMORY_REGION(a->base + at, bytes);
        ASAN_POISON_MEMORY_REGION(a->base + at + bytes, a->used - at - bytes);
    }
    return a->base + at;
}

#endif
