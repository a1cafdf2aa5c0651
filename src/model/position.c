/*
 * position.c - sinusoid: PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos of the same
 * (paper 3.5).
 */
#include "model/position.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "model/precision.h"

static void fill_sinusoid(void *table, enum type type, int rows, int d)
{
    for (int c = 0; c < d; c++) {
        double length = pow(10000, (double)(c & ~1) / d);
        for (int pos = 0; pos < rows; pos++) {
            double angle = pos / length;
            master_put(table, type, (size_t)pos * d + c, c & 1 ? cos(angle) : sin(angle));
        }
    }
}

enum heed_status position_open(struct mat *table, struct backend *be, const struct heed_config *c,
                               enum type type, struct heed_error *err)
{
    *table = (struct mat){0};
    if (c->position != HEED_POSITION_SINUSOID) return HEED_OK;
    size_t bytes = (size_t)c->max_length * c->d_model * type_size(type);
    void *host = malloc(bytes);
    if (!host) return error_memory(err, bytes, "the table of positions");
    fill_sinusoid(host, type, c->max_length, c->d_model);
    *table = mat_make(NULL, c->max_length, c->d_model, type);
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
    walk_tensor(k, "position.weight", ROLE_POSITION, learned, c->max_length, c->d_model);
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
