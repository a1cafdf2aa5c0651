/*
 * document.h - a text as a client sends it, cut into lines that a model translates, and put
 * together again. Line breaks stay where they are. Of HTML, the text between tags is translated;
 * see html.h.
 *
 * Call order: document_open; document_join for each translation; document_free.
 */
#ifndef HEED_SERVE_DOCUMENT_H
#define HEED_SERVE_DOCUMENT_H
#include <stdbool.h>
#include <stddef.h>

#include "heed.h"
#include "serve/buffer.h"

struct html;

struct document_line {
    const char *text; /* NUL-terminated, as the model reads it */
    size_t at;        /* of plain text: where the line begins in the document */
    bool align;       /* its translation is put together with the help of an alignment */
};

struct document {
    char *text; /* as it came */
    size_t n;
    char *copy;        /* of plain text: the lines, each with a NUL in place of its line break */
    struct html *html; /* NULL: plain text */
    struct document_line *line; /* [lines] at least one */
    int lines;
};

/* NULL: out of memory. */
struct document *document_open(const char *text, size_t n, bool html);
void document_free(struct document *d);

/* Appends the translation of a document that is made of a result for each line; NULL: the line has
 * none yet, and is left out. at: [lines] or NULL; of plain text, where each line begins in what was
 * appended. */
void document_join(struct buffer *out, const struct document *d,
                   const struct heed_result *const *result, size_t *at);

#endif
