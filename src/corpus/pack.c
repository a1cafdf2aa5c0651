/*
 * pack.c - lays sentences end to end in one block of memory.
 */
#include "corpus/pack.h"

#include "base/error.h"
#include "corpus/batch.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

size_t pack_words(int n, int rows_src, int rows_tgt)
{
    return 2 * (size_t)rows_src + 3 * (size_t)rows_tgt + 4 * (size_t)n + 2;
}

void pack_begin(struct packed *p, int32_t *words, int n, int rows_src, int rows_tgt)
{
    *p = (struct packed){0};
    p->src = words;
    p->src_pos = p->src + rows_src;
    p->tgt_in = p->src_pos + rows_src;
    p->tgt_out = p->tgt_in + rows_tgt;
    p->tgt_pos = p->tgt_out + rows_tgt;
    p->src_off = p->tgt_pos + rows_tgt;
    p->tgt_off = p->src_off + n + 1;
    p->src_len = p->tgt_off + n + 1;
    p->tgt_len = p->src_len + n;
    *(int32_t *)p->src_off = 0;
    *(int32_t *)p->tgt_off = 0;
}

static void positions(int32_t *pos, int n)
{
    for (int i = 0; i < n; i++) pos[i] = i;
}

/* The pointers in struct packed are const for its readers. They are cast here because pack_begin
 * made them from writable memory. */
void pack_add(struct packed *p, const int32_t *src, int src_n, const int32_t *tgt, int tgt_n,
              int bos, int eos)
{
    int i = p->n++;
    int32_t *row = (int32_t *)p->src + p->rows_src;
    int rows = src_n + 1;
    if (src_n) memcpy(row, src, (size_t)src_n * sizeof *row);
    row[src_n] = eos;
    positions((int32_t *)p->src_pos + p->rows_src, rows);
    p->rows_src += rows;
    ((int32_t *)p->src_len)[i] = rows;
    ((int32_t *)p->src_off)[i + 1] = p->rows_src;
    if (rows > p->max_src) p->max_src = rows;

    rows = tgt ? tgt_n + 1 : 0;
    if (tgt) {
        int32_t *in = (int32_t *)p->tgt_in + p->rows_tgt,
                *out = (int32_t *)p->tgt_out + p->rows_tgt;
        in[0] = bos;
        if (tgt_n) {
            memcpy(in + 1, tgt, (size_t)tgt_n * sizeof *in);
            memcpy(out, tgt, (size_t)tgt_n * sizeof *out);
        }
        out[tgt_n] = eos;
        positions((int32_t *)p->tgt_pos + p->rows_tgt, rows);
    }
    p->rows_tgt += rows;
    ((int32_t *)p->tgt_len)[i] = rows;
    ((int32_t *)p->tgt_off)[i + 1] = p->rows_tgt;
    if (rows > p->max_tgt) p->max_tgt = rows;
}

/* Rows of n sentences with a mark each; -1 where the number does not fit an int. */
static int rows_of(const struct heed_ids *ids, int n)
{
    size_t rows = 0;
    for (int i = 0; i < n && rows <= INT_MAX; i++) rows += ids[i].n + 1;
    return rows <= INT_MAX ? (int)rows : -1;
}

/* Allocates an empty batch and, in the same block behind the struct, the arrays of n sentences. */
static struct packed *packed_new(int n, int rows_src, int rows_tgt, struct heed_error *err)
{
    size_t bytes = sizeof(struct packed) + pack_words(n, rows_src, rows_tgt) * sizeof(int32_t);
    struct packed *p = malloc(bytes);
    if (p)
        pack_begin(p, (int32_t *)(p + 1), n, rows_src, rows_tgt);
    else
        error_memory(err, bytes, "a batch");
    return p;
}

struct packed *packed_make(const struct heed_ids *src, const struct heed_ids *tgt, int n, int bos,
                           int eos, struct heed_error *err)
{
    static const int32_t none[1]; /* ids of an empty target; NULL would mean no target at all */
    int rows_src = rows_of(src, n), rows_tgt = tgt ? rows_of(tgt, n) : 0;
    if (rows_src < 0 || rows_tgt < 0) {
        error_set(err, HEED_EARG, "%d sentences have more than %d tokens together", n, INT_MAX);
        return NULL;
    }
    struct packed *p = packed_new(n, rows_src, rows_tgt, err);
    for (int i = 0; p && i < n; i++) {
        const int32_t *t = !tgt ? NULL : tgt[i].n ? tgt[i].v : none;
        pack_add(p, src[i].v, (int)src[i].n, t, tgt ? (int)tgt[i].n : 0, bos, eos);
    }
    return p;
}

/* A batch that batch_next lends fills its arrays, so that they can be copied as one block. */
struct packed *packed_copy(const struct packed *p, struct heed_error *err)
{
    struct packed *copy = packed_new(p->n, p->rows_src, p->rows_tgt, err);
    if (!copy) return NULL;
    memcpy(copy + 1, p->src, pack_words(p->n, p->rows_src, p->rows_tgt) * sizeof(int32_t));
    copy->n = p->n;
    copy->rows_src = p->rows_src;
    copy->rows_tgt = p->rows_tgt;
    copy->max_src = p->max_src;
    copy->max_tgt = p->max_tgt;
    return copy;
}

void packed_free(struct packed *p)
{
    free(p);
}
