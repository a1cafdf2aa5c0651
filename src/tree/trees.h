/*
 * trees.h - the trees of a text; what is public of them is in heed.h.
 */
#ifndef HEED_TREE_TREES_H
#define HEED_TREE_TREES_H
#include "tree/tree.h"

struct heed_trees {
    struct tree *tree; /* [n] */
    int n;
    size_t cap;
};

/* NULL after HEED_EARG where there is no such tree. */
const struct tree *trees_at(const struct heed_trees *t, int i, struct heed_error *err);

#endif
