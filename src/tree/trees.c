/*
 * trees.c - the trees of a text, behind heed.h.
 */
#include "tree/trees.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "tree/linear.h"

static enum heed_status read_all(struct heed_trees *t, const char *text, const char *name,
                                 struct heed_error *err)
{
    struct tree_source s = {.name = name, .at = text, .line = 1, .column = 1};
    for (;;) {
        struct tree tree = {0};
        enum heed_status status = tree_read(&tree, &s, err);
        if (!status && tree.n) {
            status = array_reserve(&t->tree, &t->cap, (size_t)t->n + 1, sizeof *t->tree,
                                   "the trees of a text", err);
        }
        if (status || tree.n == 0) {
            tree_release(&tree);
            return status;
        }
        t->tree[t->n++] = tree;
    }
}

enum heed_status heed_trees_read(const char *text, const char *name, struct heed_trees **out,
                                 struct heed_error *err)
{
    if (!text) return error_null(err, "text");
    if (!out) return error_null(err, "out");
    struct heed_trees *t = calloc(1, sizeof *t);
    if (!t) return error_memory(err, sizeof *t, "the trees of a text");
    enum heed_status status = read_all(t, text, name, err);
    if (status) {
        heed_trees_free(t);
    } else {
        *out = t;
    }
    return status;
}

void heed_trees_free(struct heed_trees *t)
{
    if (!t) return;
    for (int i = 0; i < t->n; i++) tree_release(&t->tree[i]);
    free(t->tree);
    free(t);
}

int heed_trees_count(const struct heed_trees *t)
{
    return t ? t->n : 0;
}

enum heed_status heed_trees_clean(struct heed_trees *t, struct heed_error *err)
{
    enum heed_status status = t ? HEED_OK : error_null(err, "trees");
    for (int i = 0; !status && i < t->n; i++) status = tree_clean(&t->tree[i], err);
    return status;
}

const struct tree *trees_at(const struct heed_trees *t, int i, struct heed_error *err)
{
    if (!t) {
        error_null(err, "trees");
        return NULL;
    }
    if (i < 0 || i >= t->n) {
        error_set(err, HEED_EARG, "there is no tree %d: expected 0 to %d", i, t->n - 1);
        return NULL;
    }
    return &t->tree[i];
}

static void tree_write(FILE *f, const struct tree *t, enum heed_tree_form form)
{
    switch (form) {
    case HEED_TREE_BRACKETS:
        tree_print(f, t);
        break;
    case HEED_TREE_WORDS:
        tree_print_words(f, t);
        break;
    case HEED_TREE_LINEAR:
        tree_print_linear(f, t);
        break;
    }
}

static enum heed_status tree_text(const struct tree *t, enum heed_tree_form form, char **out,
                                  struct heed_error *err)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (f) tree_write(f, t, form);
    bool bad = !f || ferror(f);
    if (f && fclose(f)) bad = true;
    if (bad) {
        free(text);
        return error_memory(err, n, "the text of a tree");
    }
    *out = text;
    return HEED_OK;
}

/* A copy without traces and function tags. */
static enum heed_status clean_copy(struct tree *to, const struct tree *from, struct heed_error *err)
{
    char *text = NULL;
    enum heed_status status = tree_text(from, HEED_TREE_BRACKETS, &text, err);
    struct tree_source s = {.at = text, .line = 1, .column = 1};
    if (!status) status = tree_read(to, &s, err);
    if (!status) status = tree_clean(to, err);
    free(text);
    return status;
}

enum heed_status heed_tree_text(const struct heed_trees *t, int i, enum heed_tree_form form,
                                char **out, struct heed_error *err)
{
    const struct tree *tree = trees_at(t, i, err);
    if (!tree) return HEED_EARG;
    if (!out) return error_null(err, "out");
    if (form == HEED_TREE_BRACKETS) return tree_text(tree, form, out, err);
    struct tree clean = {0};
    enum heed_status status = clean_copy(&clean, tree, err);
    if (!status) status = tree_text(&clean, form, out, err);
    tree_release(&clean);
    return status;
}

enum heed_status heed_tree_restore(const char *linear, const char *words, char **out,
                                   struct heed_error *err)
{
    if (!linear) return error_null(err, "linear");
    if (!words) return error_null(err, "words");
    if (!out) return error_null(err, "out");
    struct tree t = {0};
    enum heed_status status = tree_restore(&t, linear, words, err);
    if (!status) status = tree_text(&t, HEED_TREE_BRACKETS, out, err);
    tree_release(&t);
    return status;
}
