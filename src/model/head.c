/*
 * head.c - see head.h.
 */
#include "model/head.h"

/* Each pass over the [V,D] gradient must be worth it, whatever chunk the device prefers. */
enum { CHUNK_MIN = 128 };

int head_chunk(const struct ops *op, const struct heed_config *c, enum type logits)
{
    int chunk = logits == TYPE_BF16 ? op->chunk_bf16 : op->chunk;
    int rows = chunk / c->vocab_size / CHUNK_MIN * CHUNK_MIN;
    return rows < CHUNK_MIN ? CHUNK_MIN : rows > op->chunk_rows ? op->chunk_rows : rows;
}

void head_layout(struct head_acts *a, struct layout *l, const struct ops *op, int rows)
{
    int chunk = head_chunk(op, l->config, l->precision.act);
    a->logits = layout_take(l, chunk < rows ? chunk : layout_padded(rows), l->config->vocab_size,
                            l->precision.act);
    a->loss = layout_take(l, rows, 2, l->precision.master);
}

bool head_next(const struct pass *p, struct mat w, const struct head_acts *a, struct mat x,
               struct chunk *c)
{
    c->row += c->logits.rows;
    int left = x.rows - c->row, n = left < a->logits.rows ? left : a->logits.rows;
    if (left <= 0) return false;
    c->x = mat_rows(x, c->row, n);
    c->logits = mat_top(a->logits, n);
    linear(p, c->logits, c->x, w);
    return true;
}

void head_loss(const struct pass *p, struct mat w, struct mat g, const struct head_acts *a,
               struct mat dx, struct mat x, const int32_t *target, float label_smoothing)
{
    for (struct chunk c = {0}; head_next(p, w, a, x, &c);) {
        struct mat loss = mat_rows(a->loss, c.row, c.x.rows);
        p->be->op->xent(p->be, c.logits, target + c.row, label_smoothing, dx.p != NULL, loss);
        if (dx.p) linear_backward(p, mat_rows(dx, c.row, c.x.rows), 0, g, c.logits, c.x, w);
    }
}
