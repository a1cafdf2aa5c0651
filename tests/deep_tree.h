/*
 * deep_tree.h - a bracketed tree of a hundred thousand brackets in each other, for tests of code
 * that must not recurse.
 */
#ifndef HEED_TESTS_DEEP_TREE_H
#define HEED_TESTS_DEEP_TREE_H
#include <stdlib.h>
#include <string.h>

enum { DEEP_TREE = 100000 };

/* "(X (X (X ... (NN a)...)))"; the caller frees it. NULL: out of memory. */
static inline char *deep_tree(void)
{
    char *text = malloc(4 * DEEP_TREE + 16);
    if (!text) return NULL;
    for (int i = 0; i < DEEP_TREE; i++) memcpy(text + (size_t)i * 3, "(X ", 3);
    memcpy(text + (size_t)DEEP_TREE * 3, "(NN a)", 6);
    memset(text + (size_t)DEEP_TREE * 3 + 6, ')', DEEP_TREE);
    text[4 * DEEP_TREE + 6] = '\0';
    return text;
}

#endif
