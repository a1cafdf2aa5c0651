/*
 * walk.c - see walk.h.
 */
#include "model/walk.h"

#include <stdio.h>
#include <string.h>

void walk_enter(struct walk *k, const char *format, int layer)
{
    snprintf(k->prefix, sizeof k->prefix, format, layer);
}

size_t walk_into(struct walk *k, const char *format, int index)
{
    size_t before = strlen(k->prefix);
    snprintf(k->prefix + before, sizeof k->prefix - before, format, index);
    return before;
}

void walk_leave(struct walk *k, size_t prefix)
{
    k->prefix[prefix] = '\0';
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
