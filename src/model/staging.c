/*
 * staging.c - see staging.h.
 */
#include "model/staging.h"

#include <string.h>

const int32_t *stage(struct staging *s, const int32_t *array, int n)
{
    if (!array) return NULL;
    memcpy(s->host + s->used, array, (size_t)n * sizeof *array);
    s->used += (size_t)n;
    return s->device + s->used - n;
}

const int32_t *stage_padded(struct staging *s, const int32_t *array, int n, int all, int32_t fill)
{
    const int32_t *at = stage(s, array, n);
    for (int i = n; i < all; i++) s->host[s->used++] = fill;
    return at;
}

const int32_t *stage_count(struct staging *s, int n)
{
    const int32_t *at = s->device + s->used;
    for (int i = 0; i < n; i++) s->host[s->used++] = i;
    return at;
}

struct packed stage_batch(struct staging *s, const struct packed *b, const int32_t *device)
{
    struct packed d = *b;
    s->device = device;
    s->used = 0;
    d.src = stage(s, b->src, b->rows_src);
    d.src_pos = stage(s, b->src_pos, b->rows_src);
    d.src_off = stage(s, b->src_off, b->n + 1);
    d.src_len = stage(s, b->src_len, b->n);
    d.tgt_in = stage(s, b->tgt_in, b->rows_tgt);
    d.tgt_out = stage(s, b->tgt_out, b->rows_tgt);
    d.tgt_pos = stage(s, b->tgt_pos, b->rows_tgt);
    d.tgt_off = stage(s, b->tgt_off, b->n + 1);
    d.tgt_len = stage(s, b->tgt_len, b->n);
    return d;
}
