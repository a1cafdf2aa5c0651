/*
 * theme.h - the colours of svg.h in both themes, and the style sheets made of them.
 */
#ifndef HEED_VIEW_THEME_H
#define HEED_VIEW_THEME_H
#include "view/svg.h"

struct rgb {
    unsigned char r, g, b;
};
struct rgb theme_rgb(enum svg_colour c, bool dark);

/* The class of a shape that is filled with the colour; with "-line" behind it, of one that is drawn
 * with it. */
enum { THEME_CLASS = 16 };
void theme_class(char out[THEME_CLASS], enum svg_colour c);

/* Writes every colour as a variable of CSS, --ink or --w12, for a light and a dark color scheme. */
void theme_variables(FILE *f);
/* Writes the rules of the colours that are used. important: they win over the document's own. */
void theme_rules(FILE *f, const bool *fills, const bool *strokes, bool dark, bool important);

#endif
