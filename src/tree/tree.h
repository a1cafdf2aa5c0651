/*
 * tree.h - constituency trees in the bracketed form of the Penn Treebank:
 *
 *     (S (NP (DT The) (NN dog)) (VP (VBZ runs)) (. .))
 *
 * A node is a constituent (S), a tag with its word (DT) or a word. Nodes are an array in preorder,
 * so that everything is done in loops: brackets may be nested as deep as memory allows.
 *
 * Call order: tree_read for each tree of a text; any of the others; tree_release.
 */
#ifndef HEED_TREE_TREE_H
#define HEED_TREE_TREE_H
#include <stdio.h>

#include "heed.h"

struct tree_node {
    const char *text; /* a label, or a word */
    int parent;       /* -1: the root */
    int end;          /* the node after its last descendant */
    bool is_word;
};

/* {0} is empty. */
struct tree {
    struct tree_node *node; /* [n]; node[0] is the root */
    int n;
    size_t cap;
    char *text; /* memory of the labels and words */
    size_t text_cap;
};
void tree_release(struct tree *t);

/* A text of trees, and how far it was read. Lines and columns count from 1, columns in characters.
 */
struct tree_source {
    const char *name; /* what an error begins with; NULL: nothing */
    const char *at;
    int line, column;
};
/* Reads the next tree, which may span lines; n is 0 at the end of the text. HEED_EFORMAT where
 * brackets do not match or a word is outside of them. */
enum heed_status tree_read(struct tree *t, struct tree_source *s, struct heed_error *err);

/* A constituent whose only child is a word. */
bool tree_is_tag(const struct tree *t, int i);
/* A root that only holds the tree: its label is missing, or TOP, ROOT or S1. */
bool tree_is_frame(const struct tree *t, int i);
/* How many nodes there are at most from the root down to a word. */
enum heed_status tree_depth(const struct tree *t, int *depth, struct heed_error *err);
/* The length of a label without its function tags: that of NP in NP-SBJ-1 and S=2. */
size_t tree_category(const char *label);

/* Adds a node as the last one; parent: its parent. The text must live as long as the tree. */
enum heed_status tree_add(struct tree *t, const char *text, int parent, bool is_word,
                          struct heed_error *err);
/* Closes the node i: all nodes after it so far are its descendants. */
void tree_close(struct tree *t, int i);
/* Removes the nodes for which drop[i] is set; their children become those of their parents. The
 * root must stay. */
void tree_drop(struct tree *t, const bool *drop);
/* Leaves out traces (-NONE-), constituents without words and function tags. */
enum heed_status tree_clean(struct tree *t, struct heed_error *err);

/* The tree in brackets on one line, without a line end. */
void tree_print(FILE *to, const struct tree *t);
/* Its words with spaces between them. */
void tree_print_words(FILE *to, const struct tree *t);

#endif
