/*
 * html_parts.h - HTML in parts, between html.c, which reads it, and html_place.c, which puts tags
 * into a translation.
 */
#ifndef HEED_SERVE_HTML_PARTS_H
#define HEED_SERVE_HTML_PARTS_H
#include "serve/html.h"

enum tag_kind {
    TAG_OPEN,
    TAG_CLOSE,
    TAG_ALONE /* an element without content, or one whose content is not translated */
};

/* A tag inside of a line. */
struct tag {
    const char *text; /* [n] as it came */
    size_t n;
    enum tag_kind kind;
    const char *name; /* [name_n] in text */
    size_t name_n;
    size_t place; /* bytes of the line's plain text before it */
    int partner;  /* number of the tag that closes it, or that it closes; -1: none */
    bool spaced;  /* white space followed it, which belongs to the plain text before it now */
};

struct tagged_line {
    char *text; /* plain, NUL-terminated */
    size_t n;
    struct tag *tag; /* [tags] */
    int tags;
    bool nested; /* every tag has its partner, and elements nest */
};

enum {
    TAGS_MOST = 256, /* of a line: a line that has more is cut */
    DEPTH_MOST = 32  /* elements inside of each other in a line, else their tags stay in order */
};

/* Appends the translation of a line with its tags in place; characters that mean markup are
 * escaped. */
void html_place(struct buffer *out, const struct tagged_line *line, const struct heed_result *r);

#endif
