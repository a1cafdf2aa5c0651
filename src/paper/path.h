/*
 * path.h - how many layers, or steps of a recurrent layer, the gradient passes through between two
 * positions (paper 4, table 1: maximum path length).
 */
#ifndef HEED_PAPER_PATH_H
#define HEED_PAPER_PATH_H
#include "paper/layers.h"

enum { PATH_LENGTH = 40, PATH_WIDTH = 32, PATH_WINDOW = 4, PATH_LAYERS = 32 };
enum { PATH_DISTANCES = 6 };
extern const int path_distance[PATH_DISTANCES]; /* positions between input and output */

/* path[i]: the fewest layers of this kind, stacked, or for LAYER_RECURRENT the fewest dependent
 * steps of one layer, after which the gradient of the last output with respect to the input
 * path_distance[i] positions before is not 0; 0: more than PATH_LAYERS. Restricted self-attention
 * has a window of PATH_WINDOW. */
enum heed_status path_measure(struct backend *be, enum layer_kind kind, uint64_t seed,
                              int path[PATH_DISTANCES], struct heed_error *err);

#endif
