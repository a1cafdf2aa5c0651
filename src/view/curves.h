/*
 * curves.h - lines of several series over a horizontal axis, each axis linear or logarithmic.
 */
#ifndef HEED_VIEW_CURVES_H
#define HEED_VIEW_CURVES_H
#include "view/svg.h"

/* Points that are not finite, and on a logarithmic axis those that are not above 0, are left out
 * and interrupt the line. */
struct curve {
    const char *name; /* NULL: not in the legend */
    const double *x, *y;
    int n;
};

/* One panel: a title, a legend, the curves and their axes. Curve i has the colour and the dashes of
 * series i. */
struct curves {
    const char *title;
    const char *x_label, *y_label; /* with their units; y_label is drawn above the vertical axis */
    bool x_log, y_log;
    bool y_zero; /* the vertical axis begins at 0 */
    bool points; /* each point is marked, and shows its values as a tooltip */
    const struct curve *curve;
    int n;
};

/* Draws a panel into the rectangle. */
void curves_panel(struct svg *s, const struct curves *c, double x, double y, double w, double h);

/* A document of some panels, two side by side where there are several, below a heading and, where
 * it is not NULL, a line that says how the numbers came about. *out is malloced. */
enum heed_status curves_picture(const struct curves *panel, int n, const char *heading,
                                const char *note, char **out, struct heed_error *err);

#endif
