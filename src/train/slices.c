/*
 * slices.c - see slices.h.
 */
#include "train/slices.h"

#include <assert.h>

enum { ALIGN = 16 }; /* elements: a cache line of f32 */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Units [first, first + n) of a span. */
static struct span units(const struct slices *s, int span, int first, int n)
{
    size_t all = s->span[span].n, unit = s->unit[span];
    size_t from = least((size_t)first * unit, all), to = least((size_t)(first + n) * unit, all);
    return (struct span){s->span[span].at + from, to - from};
}

struct span slices_of(const struct slices *s, int span, int rank)
{
    return units(s, span, rank * s->units, s->units);
}

struct span slices_unit(const struct slices *s, int span, int i)
{
    return units(s, span, s->rank * s->units + i, 1);
}

void slices_init(struct slices *s, const struct heed_config *c, int shards, int rank, int ranks)
{
    assert(shards % ranks == 0 && rank < ranks);
    *s = (struct slices){.rank = rank, .ranks = ranks, .shards = shards, .units = shards / ranks};
    s->spans = parameters_spans(c, s->span);
    for (int i = 0; i < s->spans; i++) {
        size_t each = (s->span[i].n + (size_t)shards - 1) / (size_t)shards;
        s->unit[i] = (each + ALIGN - 1) / ALIGN * ALIGN;
        struct span own = slices_of(s, i, rank);
        s->part[i] = (struct flat_part){own.at, own.n, s->own};
        s->own += own.n;
    }
}
