/*
 * attention_page.c - one page that needs no other file: page.html with its style sheets, its
 * module (explore.js) and the weights in place of its marks.
 */
#include <assert.h>
#include <string.h>

#include "view/attention.h"
#include "view/theme.h"

/* The files of this directory, embedded by cmake/embed.cmake. */
extern const char page_html[], page_css[], explore_css[], explore_js[];

/* Writes the text up to a mark, and returns what follows the mark. */
static const char *write_until(FILE *f, const char *text, const char *mark)
{
    const char *at = strstr(text, mark);
    assert(at); /* page.html has all marks */
    fwrite(text, 1, (size_t)(at - text), f);
    return at + strlen(mark);
}

void attention_page(FILE *f, const struct heed_attention *a, const struct heed_attention_view *v)
{
    const char *rest = write_until(f, page_html, "@STYLE@");
    theme_variables(f);
    fputs(page_css, f);
    fputs(explore_css, f);
    rest = write_until(f, rest, "@DATA@");
    attention_json_view(f, a, v);
    rest = write_until(f, rest, "@SCRIPT@");
    fputs(explore_js, f);
    fputs(rest, f);
}
