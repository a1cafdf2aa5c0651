/*
 * document.c - texts cut into lines and put together again; see document.h.
 */
#include "serve/document.h"

#include <stdlib.h>
#include <string.h>

#include "serve/html.h"

/* Bytes of the line end at this place: LF, or CR LF; 0: it is none. */
static size_t line_end(const char *text)
{
    if (text[0] == '\n') return 1;
    return text[0] == '\r' && text[1] == '\n' ? 2 : 0;
}

/* Length of a line without its end. */
static size_t line_length(const char *line)
{
    size_t n = 0;
    while (line[n] && !line_end(line + n)) n++;
    return n;
}

static bool cut_lines(struct document *d)
{
    int lines = 1;
    for (const char *p = d->text; (p = strchr(p, '\n')); p++) lines++;
    d->copy = strdup(d->text);
    d->line = calloc((size_t)lines, sizeof *d->line);
    if (!d->copy || !d->line) return false;
    for (size_t at = 0; d->lines < lines; d->lines++) {
        size_t n = line_length(d->text + at);
        d->line[d->lines] = (struct document_line){.text = d->copy + at, .at = at};
        d->copy[at + n] = '\0';
        at += n + line_end(d->text + at + n);
    }
    return true;
}

static bool cut_html(struct document *d)
{
    d->html = html_open(d->text, d->n);
    if (!d->html) return false;
    d->lines = html_lines(d->html);
    d->line = calloc((size_t)d->lines + 1, sizeof *d->line);
    if (!d->line) return false;
    for (int i = 0; i < d->lines; i++) {
        d->line[i].text = html_line(d->html, i);
        d->line[i].align = html_line_has_tags(d->html, i);
    }
    return true;
}

struct document *document_open(const char *text, size_t n, bool html)
{
    struct document *d = calloc(1, sizeof *d);
    if (!d) return NULL;
    d->text = strndup(text, n);
    d->n = n;
    if (d->text && (html ? cut_html(d) : cut_lines(d))) return d;
    document_free(d);
    return NULL;
}

void document_free(struct document *d)
{
    if (!d) return;
    html_free(d->html);
    free(d->text);
    free(d->copy);
    free(d->line);
    free(d);
}

/* Pieces of byte fallback may spell a line end. It becomes a space, because an additional line
 * would shift all lines that follow; `heed translate` does the same. */
static void put_line(struct buffer *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len;) {
        size_t n = strcspn(text + i, "\n\r");
        if (n > len - i) n = len - i;
        buffer_put(out, text + i, n);
        i += n;
        if (i++ < len) buffer_text(out, " ");
    }
}

void document_join(struct buffer *out, const struct document *d,
                   const struct heed_result *const *result, size_t *at)
{
    if (d->html) {
        html_join(out, d->html, result);
        return;
    }
    size_t start = out->n;
    for (int i = 0; i < d->lines; i++) {
        if (at) at[i] = out->n - start;
        if (result[i]) put_line(out, result[i]->text, result[i]->len);
        const char *end = d->text + d->line[i].at + strlen(d->line[i].text);
        buffer_put(out, end, line_end(end));
    }
}
