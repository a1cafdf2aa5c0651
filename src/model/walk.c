/*
 * walk.c - see walk.h.
 */
#include "model/walk.h"

#include <stdio.h>

void walk_enter(struct walk *k, const char *format, int layer)
{
    snprintf(k->prefix, sizeof k->prefix, format, layer);
}

void walk_tensor(struct walk *k, const char *name, enum role role, struct mat *slot, int rows,
                 int cols)
{
    char full[NAME_MAX_BYTES];
    snprintf(full, sizeof full, "%s%s", k->prefix, name);
    k->visit(k, full, role, slot, rows, cols);
    k->at += (size_t)rows * cols;
    k->index++;
}
