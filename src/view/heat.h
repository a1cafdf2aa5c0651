/*
 * heat.h - a matrix of numbers as a heat map in an SVG.
 */
#ifndef HEED_VIEW_HEAT_H
#define HEED_VIEW_HEAT_H
#include "view/svg.h"

/* The values between which colours are chosen: from 0 where no value is below 0, else from as far
 * below 0 as above. */
struct heat_range {
    double lo, hi;
};
struct heat_range heat_range(const struct heed_heat_map *m);

/* The size of a map with its title, axes and key, drawn into `width` pixels. */
double heat_height(const struct heed_heat_map *m, double width);
/* Draws it with its upper left corner at (x, y). */
void heat_draw(struct svg *s, const struct heed_heat_map *m, double x, double y, double width);

#endif
