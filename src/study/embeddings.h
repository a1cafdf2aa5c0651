/*
 * embeddings.h - the vectors of a model's vocabulary; see heed_embeddings in heed.h.
 */
#ifndef HEED_STUDY_EMBEDDINGS_H
#define HEED_STUDY_EMBEDDINGS_H
#include "heed.h"

struct heed_embeddings {
    const struct heed_model *m;
    int v, d;
    float *row;    /* [v][d] less the mean of all, of length 1; a vector of zeros stays 0 */
    bool *is_word; /* [v] the piece is neither a mark nor a tag nor a byte */
};

/* Adds `sign` times the vector of a word to sum [d], and its pieces to ids. */
enum heed_status embeddings_add(const struct heed_embeddings *e, const char *word, double sign,
                                double *sum, struct heed_ids *ids, struct heed_error *err);

/* Fills x and y [n] with the coordinates of n vectors [n][d] on their two principal components, and
 * share with the part of their variance along each. The mean of the vectors becomes the origin; of
 * each component the direction is chosen in which the point farthest from it lies. */
enum heed_status principal_components(double *x, double *y, double share[2], double *vector, int n,
                                      int d, struct heed_error *err);

#endif
