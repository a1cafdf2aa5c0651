/*
 * head.c - the output layer and the loss (paper 3.4, 5.4).
 *
 * Logits [T,V] would be the largest matrix of all, so they exist for one chunk of rows at a time:
 * product, cross-entropy, and both products of the gradient, then the next chunk.
 */
#include "model/layers.h"

static const struct mat none;
static const struct activation identity;

/* Each pass over the [V,D] gradient must be worth it, whatever the device likes best. */
enum { CHUNK_MIN = 128 };

int head_chunk(const struct ops *op, const struct heed_config *c)
{
    int rows = op->chunk / c->vocab_size / CHUNK_MIN * CHUNK_MIN;
    return rows < CHUNK_MIN ? CHUNK_MIN : rows > op->chunk_rows ? op->chunk_rows : rows;
}

void head_loss(struct run *r, struct mat x, const int32_t *target, float label_smoothing,
               struct mat dx)
{
    const struct ops *op = r->be->op;
    struct mat e = r->p->w.embed;
    for (int row = 0; row < x.rows; row += r->s.logits.rows) {
        int n = x.rows - row < r->s.logits.rows ? x.rows - row : r->s.logits.rows;
        struct mat part = mat_rows(x, row, n), logits = mat_rows(r->s.logits, 0, n);
        op->linear(r->be, logits, part, e, none, identity);
        op->xent(r->be, logits, target + row, label_smoothing, dx.p != NULL,
                 mat_rows(r->s.loss, row, n));
        if (dx.p)
            op->linear_bwd(r->be, mat_rows(dx, row, n), 0, none, r->g.embed, logits, part, e,
                           identity);
    }
}
