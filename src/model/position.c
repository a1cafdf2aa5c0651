/*
 * position.c - sinusoid: PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos of the same
 * (paper 3.5). rope: the numbers 2i and 2i+1 of each query and key are rotated by the angle pos /
 * 10000^(2i/d_k), so that their product depends on how far apart they are (Su et al. 2021,
 * RoFormer).
 */
#include "model/position.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "model/config.h"
#include "model/precision.h"

/* Columns of the table; 0: there is none. */
static int table_width(const struct heed_config *c)
{
    switch (c->position) {
    case HEED_POSITION_SINUSOID:
        return c->d_model;
    case HEED_POSITION_ROPE:
        return config_d_k(c);
    default:
        return 0;
    }
}

void position_fill(void *table, enum type type, int rows, int d, enum heed_position kind)
{
    int sine_at = kind == HEED_POSITION_ROPE; /* the columns of the sine: even (0) or odd (1) */
    for (int c = 0; c < d; c++) {
        double length = pow(10000, (double)(c & ~1) / d);
        for (int pos = 0; pos < rows; pos++) {
            double angle = pos / length;
            master_put(table, type, (size_t)pos * d + c,
                       (c & 1) == sine_at ? sin(angle) : cos(angle));
        }
    }
}

enum heed_status position_open(struct mat *table, struct backend *be, const struct heed_config *c,
                               enum type type, struct heed_error *err)
{
    int width = table_width(c);
    size_t bytes = (size_t)c->max_length * width * type_size(type);
    *table = (struct mat){0};
    if (!width) return HEED_OK;
    void *host = malloc(bytes);
    if (!host) return error_memory(err, bytes, "the table of positions");
    position_fill(host, type, c->max_length, width, c->position);
    *table = mat_make(NULL, c->max_length, width, type);
    enum heed_status status = be->op->alloc(be, &table->p, bytes, USED_WHOLE, err);
    if (!status) be->op->upload(be, table->p, host, bytes);
    if (!status) status = be->op->sync(be, err);
    free(host);
    return status;
}

void position_walk(struct walk *k, struct mat *learned, const struct heed_config *c,
                   const char *stack)
{
    if (c->position != HEED_POSITION_LEARNED) return;
    walk_enter(k, stack, 0);
    walk_tensor(k, "position.weight", ROLE_TABLE, learned, c->max_length, c->d_model);
}

struct mat position_added(const struct pass *p, struct mat learned)
{
    switch (p->config->position) {
    case HEED_POSITION_SINUSOID:
        return p->positions;
    case HEED_POSITION_LEARNED:
        return learned;
    default:
        return (struct mat){0};
    }
}

void position_rotate(const struct pass *p, struct mat queries_keys, const int32_t *pos, bool back)
{
    if (p->config->position != HEED_POSITION_ROPE) return;
    p->be->op->rotate(p->be, queries_keys, pos, p->positions, back);
}
