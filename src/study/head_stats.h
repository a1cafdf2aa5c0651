/*
 * head_stats.h - what the attention weights of a head show: sums over queries, their means, and the
 * role that follows.
 */
#ifndef HEED_STUDY_HEAD_STATS_H
#define HEED_STUDY_HEAD_STATS_H
#include "heed.h"

/* A query and what it sees. */
struct head_query {
    int keys;        /* keys of the sentence that it sees, the first ones; at least 2 */
    int centre;      /* see enum heed_role */
    double diagonal; /* the key on the diagonal, between two keys in general */
    int first; /* keys at the front that count as first; 0: none, where the query is among them
                */
    int end;   /* keys at the end that count as the end; 0: none */
};

/* A sum, and how many queries it is over: not every query has, for example, a next key. */
struct head_mean {
    double sum, n;
};
struct head_sums {
    struct head_mean entropy, relative, distance, previous, same, next, diagonal, first, end;
};

void head_sums_add(struct head_sums *s, const float *weight, const struct head_query *q);
/* Adds the sums of other queries. */
void head_sums_join(struct head_sums *s, const struct head_sums *other);
/* The means and the role; other members of *h are left as they are. */
void head_means(struct heed_head *h, const struct head_sums *s);
/* The number that a role goes by: a share of weight; the relative entropy of HEED_ROLE_BROAD, and
 * what is left of 1 for HEED_ROLE_SELECTIVE; 0 for mixed. */
double head_share(const struct heed_head *h, enum heed_role role);

/* Adds to sum [n][n] the cosine of each pair i < j of n rows of weights; norm [n] is a buffer. */
void head_cosines_add(double *sum, double *norm, const float *const *row, int n, int keys);

#endif
