/*
 * html.h - HTML whose text is translated and whose markup stays, byte for byte.
 *
 * The markup is cut into lines to translate at block elements (p, li, td, br ...). Tags inside of a
 * line (b, a, img ...) are taken out of it, and put back into the translation around the words that
 * come from theirs, as the alignment says; where they do not nest as elements do, they stay in
 * their order. Script, style, pre, textarea, code, comments and elements with translate="no" are
 * not translated, nor are attributes.
 */
#ifndef HEED_SERVE_HTML_H
#define HEED_SERVE_HTML_H
#include <stdbool.h>
#include <stddef.h>

#include "heed.h"
#include "serve/buffer.h"

struct html;

/* text is kept by the caller as long as the HTML lives. NULL: out of memory. */
struct html *html_open(const char *text, size_t n);
void html_free(struct html *h);
/* The lines to be translated: their number, their plain text, whether tags belong into them. */
int html_lines(const struct html *h);
const char *html_line(const struct html *h, int i);
bool html_line_has_tags(const struct html *h, int i);
/* Appends the HTML with a result for each line; NULL: the line has none, and is left out. */
void html_join(struct buffer *out, const struct html *h, const struct heed_result *const *result);

#endif
