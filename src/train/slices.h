/*
 * slices.h - how the ranks of a cluster divide the flat parameters.
 *
 * Each span of the parameters (parameters_spans) is cut into as many units as a step has shards,
 * and a rank owns consecutive units of every span: so each rank gets its part of a span as soon as
 * backward has passed it. The units do not depend on the number of ranks; sums over parameters,
 * such as the norm of the gradient, are computed by unit.
 *
 * A rank holds Adam's moments of its own parameters alone, one span after another, in arrays of
 * `own` elements. With one rank these are the flat arrays themselves.
 */
#ifndef HEED_TRAIN_SLICES_H
#define HEED_TRAIN_SLICES_H
#include "model/parameters.h"
#include "store/weights.h"

struct slices {
    int rank, ranks;
    int shards, units; /* of all ranks, and of each of them */
    int spans;
    struct span span[SPANS_MAX];
    size_t unit[SPANS_MAX]; /* elements of a unit; the last ones of a span may have fewer */
    struct flat_part part[SPANS_MAX]; /* the own parameters of each span */
    size_t own;                       /* in all */
};

/* ranks divides shards. */
void slices_init(struct slices *s, const struct heed_config *c, int shards, int rank, int ranks);
/* The parameters of a span that a rank owns. */
struct span slices_of(const struct slices *s, int span, int rank);
/* Unit i, from 0, of the own parameters of a span. */
struct span slices_unit(const struct slices *s, int span, int i);

/* n elements of a flat array. */
static inline struct mat slices_mat(struct mat m, size_t at, size_t n)
{
    return mat_make((char *)m.p + at * type_size(m.type), 1, (int)n, m.type);
}

#endif
