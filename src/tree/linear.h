/*
 * linear.h - trees as sequences that a model can write, and back.
 *
 *     (TOP (S (NP (DT The) (NN dog)) (VP (VBZ runs)) (. .)))
 *     (S (NP DT NN ) (VP VBZ ) . )
 *
 * A constituent is "(" with its label, and ")"; a word is its tag (Vinyals et al., 2015, have XX in
 * place of tags). The words are left out: they are those of the source. So the symbols are few, and
 * whatever a model writes can be made a tree over the words.
 */
#ifndef HEED_TREE_LINEAR_H
#define HEED_TREE_LINEAR_H
#include "tree/tree.h"

/* The tree must be clean; its frame is left out. */
void tree_print_linear(FILE *to, const struct tree *t);

/* Makes a tree whose words are exactly those of `words`, which are separated by whitespace, from
 * any text. Brackets that are missing are added, those that are too many are ignored, and tags are
 * aligned with words as well as their number allows. t->n is 0 where there are no words. */
enum heed_status tree_restore(struct tree *t, const char *linear, const char *words,
                              struct heed_error *err);

#endif
