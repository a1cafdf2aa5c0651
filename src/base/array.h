/*
 * array.h - arrays that grow. {pointer, capacity} are fields of whoever owns the array; a NULL
 * pointer with capacity 0 is an empty one, and free() releases it.
 */
#ifndef HEED_BASE_ARRAY_H
#define HEED_BASE_ARRAY_H
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* Makes room for `need` elements of `size` bytes. array is the address of the pointer to the first
 * element, and *cap the number of elements there is room for; both are as before on failure. `what`
 * names the array in the error. Room for half as many again is added, so that appending n elements
 * one by one moves O(n) of them. */
static inline enum heed_status array_reserve(void *array, size_t *cap, size_t need, size_t size,
                                             const char *what, struct heed_error *err)
{
    const size_t least = 16;
    void *old, *grown;
    if (need <= *cap) return HEED_OK;
    size_t room = need < least ? least : need + need / 2;
    memcpy(&old, array, sizeof old); /* array may be the address of a pointer to any type */
    grown = realloc(old, room * size);
    if (!grown) return error_memory(err, room * size, what);
    memcpy(array, &grown, sizeof grown);
    *cap = room;
    /* cppcheck-suppress memleak ; the pointer is in *array */
    return HEED_OK;
}

#endif
