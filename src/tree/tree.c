/*
 * tree.c - reads, changes and prints bracketed trees; see tree.h.
 */
#include "tree/tree.h"

#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

void tree_release(struct tree *t)
{
    free(t->node);
    free(t->text);
    *t = (struct tree){0};
}

/* ---- reading ---- */

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool ends_token(char c)
{
    return c == '\0' || c == '(' || c == ')' || is_space(c);
}

static void source_step(struct tree_source *s)
{
    bool continues = ((unsigned char)s->at[1] & 0xc0) == 0x80; /* the same character of UTF-8 */
    if (*s->at == '\n') {
        s->line++;
        s->column = 1;
    } else {
        s->column += !continues;
    }
    s->at++;
}

__attribute__((format(printf, 3, 4))) static enum heed_status misshapen(const struct tree_source *s,
                                                                        struct heed_error *err,
                                                                        const char *format, ...)
{
    char what[128];
    va_list ap;
    va_start(ap, format);
    vsnprintf(what, sizeof what, format, ap);
    va_end(ap);
    return error_set(err, HEED_EFORMAT, "%s%sline %d, column %d: %s", s->name ? s->name : "",
                     s->name ? ": " : "", s->line, s->column, what);
}

/* Finds the end of the tree at s, which is then known to have matching brackets. Returns NULL at
 * the end of the text; *status is HEED_EFORMAT where there is no tree. */
static const char *tree_extent(struct tree_source *s, enum heed_status *status,
                               struct heed_error *err)
{
    while (is_space(*s->at)) source_step(s);
    if (!*s->at) return NULL;
    if (*s->at == ')') {
        *status = misshapen(s, err, "')' without a '(' before it");
        return NULL;
    }
    if (*s->at != '(') {
        int n = 0;
        while (n < 40 && !ends_token(s->at[n])) n++;
        *status = misshapen(s, err, "'%.*s' is outside of brackets, expected '('", n, s->at);
        return NULL;
    }
    struct tree_source end = *s;
    long open = 0;
    do {
        open += (*end.at == '(') - (*end.at == ')');
        source_step(&end);
    } while (open && *end.at);
    if (open) {
        *status = misshapen(s, err, "the tree that begins here lacks %ld closing bracket%s", open,
                            open == 1 ? "" : "s");
        return NULL;
    }
    const char *from = s->at;
    *s = end;
    s->at = from;
    return end.at;
}

enum heed_status tree_add(struct tree *t, const char *text, int parent, bool is_word,
                          struct heed_error *err)
{
    if (t->n == INT_MAX / 2) {
        return error_set(err, HEED_EFORMAT, "a tree has more than %d nodes", t->n);
    }
    enum heed_status status = array_reserve(&t->node, &t->cap, (size_t)t->n + 1, sizeof *t->node,
                                            "the nodes of a tree", err);
    if (status) return status;
    t->node[t->n] =
        (struct tree_node){.text = text, .parent = parent, .end = t->n + 1, .is_word = is_word};
    t->n++;
    return HEED_OK;
}

void tree_close(struct tree *t, int i)
{
    t->node[i].end = t->n;
}

/* Copies the token at `at` to the tree's text, which has room for it; *room is where it goes, and
 * then behind it. */
static const char *token_copy(const char *at, char **room)
{
    char *token = *room;
    while (!ends_token(*at)) *(*room)++ = *at++;
    *(*room)++ = '\0';
    return token;
}

enum heed_status tree_read(struct tree *t, struct tree_source *s, struct heed_error *err)
{
    enum heed_status status = HEED_OK;
    t->n = 0;
    const char *end = tree_extent(s, &status, err);
    if (!end) return status;
    /* A token and its NUL take no more room than the token and what is before it. */
    status = array_reserve(&t->text, &t->text_cap, (size_t)(end - s->at) + 1, 1,
                           "the words of a tree", err);
    char *room = t->text;
    int open = -1;
    while (s->at < end && !status) {
        char c = *s->at;
        if (c == '(') {
            s->at++;
            status = tree_add(t, token_copy(s->at, &room), open, false, err);
            open = t->n - 1;
        } else if (c == ')') {
            s->at++;
            tree_close(t, open);
            open = t->node[open].parent;
        } else if (is_space(c)) {
            s->at++;
        } else {
            status = tree_add(t, token_copy(s->at, &room), open, true, err);
        }
        if (c == '(' || (c != ')' && !is_space(c))) {
            while (!ends_token(*s->at)) s->at++;
        }
    }
    if (status) t->n = 0;
    return status;
}

/* ---- kinds of nodes ---- */

bool tree_is_tag(const struct tree *t, int i)
{
    const struct tree_node *node = &t->node[i];
    return !node->is_word && node->end == i + 2 && t->node[i + 1].is_word;
}

bool tree_is_frame(const struct tree *t, int i)
{
    static const char *const names[] = {"", "TOP", "ROOT", "S1"};
    if (i != 0 || t->node[0].is_word || tree_is_tag(t, 0)) return false;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        if (strcmp(t->node[0].text, names[k]) == 0) return true;
    }
    return false;
}

enum heed_status tree_depth(const struct tree *t, int *depth, struct heed_error *err)
{
    size_t bytes = (size_t)t->n * sizeof(int);
    int *at = malloc(bytes ? bytes : 1), deepest = 0;
    if (!at) return error_memory(err, bytes, "the nodes of a tree");
    for (int i = 0; i < t->n; i++) {
        at[i] = t->node[i].parent < 0 ? 1 : at[t->node[i].parent] + 1;
        if (at[i] > deepest) deepest = at[i];
    }
    free(at);
    *depth = deepest;
    return HEED_OK;
}

size_t tree_category(const char *label)
{
    size_t n = strcspn(label, "-=");
    return n ? n : strlen(label); /* -NONE- and -LRB- begin with it */
}

/* ---- changing ---- */

void tree_drop(struct tree *t, const bool *drop)
{
    /* Until the end, `end` of a node that stays holds its new number, and that of one that goes the
     * new number of its nearest ancestor that stays. */
    int n = 0;
    for (int i = 0; i < t->n; i++) {
        struct tree_node node = t->node[i];
        int parent = node.parent < 0 ? -1 : t->node[node.parent].end;
        t->node[i].end = drop[i] ? parent : n;
        t->node[i].parent = parent;
        n += !drop[i];
    }
    n = 0;
    for (int i = 0; i < t->n; i++) {
        if (!drop[i]) t->node[n++] = t->node[i];
    }
    t->n = n;
    for (int i = 0; i < n; i++) t->node[i].end = i + 1;
    for (int i = n - 1; i > 0; i--) {
        struct tree_node *parent = &t->node[t->node[i].parent];
        if (parent->end < t->node[i].end) parent->end = t->node[i].end;
    }
}

enum heed_status tree_clean(struct tree *t, struct heed_error *err)
{
    if (t->n == 0) return HEED_OK;
    bool *drop = malloc((size_t)t->n * sizeof *drop);
    if (!drop) return error_memory(err, (size_t)t->n, "the nodes of a tree");
    for (int i = t->n - 1; i >= 0; i--) drop[i] = !t->node[i].is_word;
    for (int i = t->n - 1; i > 0; i--) { /* a node that stays keeps its parent */
        const struct tree_node *parent = &t->node[t->node[i].parent];
        if (t->node[i].is_word && strcmp(parent->text, "-NONE-") == 0) drop[i] = true;
        if (!drop[i]) drop[t->node[i].parent] = false;
    }
    drop[0] = false;
    /* The labels are in the tree's own text, from where they are cut. */
    for (int i = 0; i < t->n; i++) {
        if (t->node[i].is_word || tree_is_tag(t, i)) continue;
        t->text[t->node[i].text - t->text + (ptrdiff_t)tree_category(t->node[i].text)] = '\0';
    }
    tree_drop(t, drop);
    free(drop);
    return HEED_OK;
}

/* ---- printing ---- */

void tree_print(FILE *to, const struct tree *t)
{
    for (int i = 0, open = -1; i < t->n; i++) {
        const struct tree_node *node = &t->node[i];
        for (; open != node->parent; open = t->node[open].parent) fputc(')', to);
        if (i > 0) fputc(' ', to);
        if (!node->is_word) {
            fputc('(', to);
            open = i;
        }
        fputs(node->text, to);
    }
    /* What is open at the end are the ancestors of the last node. */
    if (t->n == 0) return;
    int i = t->node[t->n - 1].is_word ? t->node[t->n - 1].parent : t->n - 1;
    for (; i >= 0; i = t->node[i].parent) fputc(')', to);
}

void tree_print_words(FILE *to, const struct tree *t)
{
    bool first = true;
    for (int i = 0; i < t->n; i++) {
        if (!t->node[i].is_word) continue;
        if (!first) fputc(' ', to);
        fputs(t->node[i].text, to);
        first = false;
    }
}
