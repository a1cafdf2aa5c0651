/*
 * bars.h - horizontal bars from 0: a group for each named row, a bar for each series in it.
 */
#ifndef HEED_VIEW_BARS_H
#define HEED_VIEW_BARS_H
#include "view/svg.h"

struct bars {
    const char *heading, *note; /* note: a line below the heading; NULL: none */
    const char *x_label;        /* with its unit */
    const char *const *row;     /* [rows] */
    int rows;
    const char *const *series; /* [n] */
    int n;
    const double *value; /* [rows][n]; what is not finite has no bar */
};

/* *out is malloced and NUL-terminated. */
enum heed_status bars_picture(const struct bars *b, char **out, struct heed_error *err);

#endif
