/*
 * linear.c - trees as sequences; see linear.h.
 *
 * Call order of tree_restore: words_read, symbols_read, align (which word each tag stands for),
 * build, prune.
 */
#include "tree/linear.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/minmax.h"

void tree_print_linear(FILE *to, const struct tree *t)
{
    int open = -1;
    bool first = true;
    for (int i = 0; i <= t->n; i++) {
        int parent = i < t->n ? t->node[i].parent : -1;
        for (; open != parent; open = t->node[open].parent) {
            if (!tree_is_tag(t, open) && !tree_is_frame(t, open)) fputs(" )", to);
        }
        if (i == t->n) return;
        bool is_tag = tree_is_tag(t, i), is_word = t->node[i].is_word;
        if (!is_word) open = i;
        if (tree_is_frame(t, i) || (is_word && tree_is_tag(t, t->node[i].parent))) continue;
        if (!first) fputc(' ', to);
        first = false;
        if (!is_tag && !is_word) fputc('(', to);
        fputs(is_word ? "XX" : t->node[i].text, to); /* a word that has no tag */
    }
}

/* ---- restoring ---- */

enum symbol_kind { SYMBOL_OPEN, SYMBOL_CLOSE, SYMBOL_TAG };

struct symbol {
    enum symbol_kind kind;
    const char *text; /* label or tag */
    int word;         /* the word that a tag stands for; -1: none */
};

struct restoring {
    struct tree *tree;
    char *room; /* the free part of the tree's text */
    const char **word;
    size_t word_cap;
    int words;
    bool *has_tag; /* [words] a symbol stands for it */
    struct symbol *symbol;
    size_t symbol_cap;
    int symbols, tags;
};

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Reads the words. Brackets in them are written as the Penn Treebank does: -LRB- and -RRB-. */
static enum heed_status words_read(struct restoring *r, const char *text, struct heed_error *err)
{
    for (;;) {
        while (is_space(*text)) text++;
        if (!*text) return HEED_OK;
        enum heed_status status = array_reserve(&r->word, &r->word_cap, (size_t)r->words + 1,
                                                sizeof *r->word, "the words of a tree", err);
        if (status) return status;
        r->word[r->words++] = r->room;
        for (; *text && !is_space(*text); text++) {
            const char *bracket = *text == '(' ? "-LRB-" : *text == ')' ? "-RRB-" : NULL;
            if (bracket) {
                memcpy(r->room, bracket, 5);
                r->room += 5;
            } else {
                *r->room++ = *text;
            }
        }
        *r->room++ = '\0';
    }
}

static enum heed_status symbols_read(struct restoring *r, const char *text, struct heed_error *err)
{
    while (*text) {
        struct symbol s = {.kind = SYMBOL_TAG, .word = -1};
        if (is_space(*text)) {
            text++;
            continue;
        }
        if (*text == '(' || *text == ')') s.kind = *text++ == '(' ? SYMBOL_OPEN : SYMBOL_CLOSE;
        size_t n = s.kind == SYMBOL_CLOSE ? 0 : strcspn(text, "() \t\n\v\f\r");
        s.text = n ? r->room : "X"; /* a bracket without a label */
        memcpy(r->room, text, n);
        r->room += n;
        *r->room++ = '\0';
        text += n;
        enum heed_status status = array_reserve(&r->symbol, &r->symbol_cap, (size_t)r->symbols + 1,
                                                sizeof *r->symbol, "the symbols of a tree", err);
        if (status) return status;
        r->symbol[r->symbols++] = s;
        r->tags += s.kind == SYMBOL_TAG;
    }
    return HEED_OK;
}

/* ---- tags and words ---- */

/* The tag of a punctuation mark; NULL: the word is none. */
static const char *punctuation_tag(const char *word)
{
    static const struct {
        const char *word, *tag;
    } marks[] = {
        {",", ","},  {".", "."}, {"?", "."},   {"!", "."},  {":", ":"},   {";", ":"},
        {"--", ":"}, {"-", ":"}, {"...", ":"}, {"`", "``"}, {"``", "``"}, {"''", "''"},
    };
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        if (strcmp(word, marks[i].word) == 0) return marks[i].tag;
    }
    return NULL;
}

static bool is_punctuation_tag(const char *tag)
{
    return strcmp(tag, ",") == 0 || strcmp(tag, ".") == 0 || strcmp(tag, ":") == 0 ||
           strcmp(tag, "``") == 0 || strcmp(tag, "''") == 0;
}

static bool is_number(const char *word)
{
    return (word[0] >= '0' && word[0] <= '9') && !strpbrk(word, "abcdefghijklmnopqrstuvwxyz");
}

/* The tag of a word, given what the model wrote for it, or NULL. A word is punctuation or not
 * whatever the model wrote: PARSEVAL leaves out words by their tags. An apostrophe may be both. */
static const char *choose_tag(const char *word, const char *written)
{
    const char *mark = punctuation_tag(word);
    if (mark) return mark;
    if (strcmp(word, "'") == 0) return written && strcmp(written, "''") == 0 ? "''" : "POS";
    if (written && !is_punctuation_tag(written) && strcmp(written, "-NONE-") != 0) return written;
    return is_number(word) ? "CD" : "NN";
}

/* How badly a tag fits a word. */
static int misfit(const char *tag, const char *word)
{
    enum { PUNCTUATION = 3, NUMBER = 1 };
    const char *mark = strcmp(word, "'") == 0 ? choose_tag(word, tag) : punctuation_tag(word);
    if (mark || is_punctuation_tag(tag)) {
        return mark && strcmp(mark, tag) == 0 ? 0 : PUNCTUATION;
    }
    return is_number(word) == (strcmp(tag, "CD") == 0) ? 0 : NUMBER;
}

/* The tags and words are aligned like two strings: a word or a tag without partner costs 1, a pair
 * its misfit. Punctuation marks and numbers are the fixed points. from[t][w] is the last step to
 * the first t tags and w words. */
enum step { STEP_PAIR, STEP_TAG, STEP_WORD };

static void align_trace(struct restoring *r, const uint8_t *from)
{
    size_t width = (size_t)r->words + 1;
    int tag = r->tags, word = r->words, i = r->symbols;
    while (tag > 0 || word > 0) {
        enum step step = (enum step)from[(size_t)tag * width + (size_t)word];
        if (step == STEP_WORD) {
            word--;
            continue;
        }
        for (i--; r->symbol[i].kind != SYMBOL_TAG;) i--;
        tag--;
        if (step == STEP_PAIR) r->symbol[i].word = --word;
    }
}

static enum heed_status align(struct restoring *r, struct heed_error *err)
{
    size_t width = (size_t)r->words + 1, cells = ((size_t)r->tags + 1) * width;
    uint8_t *from = malloc(cells);
    int *cost = malloc(2 * width * sizeof *cost);
    if (!from || !cost) {
        free(from);
        free(cost);
        return error_memory(err, cells, "the tags of a tree");
    }
    int *above = cost, *row = cost + width;
    for (int w = 0; w <= r->words; w++) above[w] = w;
    memset(from, STEP_WORD, width);
    for (int i = 0, t = 0; i < r->symbols; i++) {
        if (r->symbol[i].kind != SYMBOL_TAG) continue;
        uint8_t *step = from + (size_t)++t * width;
        row[0] = t;
        step[0] = STEP_TAG;
        for (int w = 1; w <= r->words; w++) {
            int pair = above[w - 1] + misfit(r->symbol[i].text, r->word[w - 1]);
            int best = int_min(pair, 1 + int_min(above[w], row[w - 1]));
            step[w] = best == 1 + row[w - 1] ? STEP_WORD : best == pair ? STEP_PAIR : STEP_TAG;
            row[w] = best;
        }
        int *swap = above;
        above = row;
        row = swap;
    }
    align_trace(r, from);
    free(from);
    free(cost);
    return HEED_OK;
}

/* Where a table of all pairs would be too large: the first tag is that of the first word. */
static void align_in_order(struct restoring *r)
{
    for (int i = 0, w = 0; i < r->symbols && w < r->words; i++) {
        if (r->symbol[i].kind == SYMBOL_TAG) r->symbol[i].word = w++;
    }
}

/* ---- building ---- */

enum { FRAME, WRAPPER, FIRST }; /* nodes: TOP, an S for what is not in one constituent, the rest */

static enum heed_status word_add(struct restoring *r, int parent, int word, const char *written,
                                 struct heed_error *err)
{
    const char *text = r->word[word];
    enum heed_status status = tree_add(r->tree, choose_tag(text, written), parent, false, err);
    if (!status) status = tree_add(r->tree, text, r->tree->n - 1, true, err);
    return status;
}

/* Adds words from *next on that no symbol stands for, at most up to `end`. */
static enum heed_status strays_add(struct restoring *r, int parent, int *next, int end,
                                   struct heed_error *err)
{
    enum heed_status status = HEED_OK;
    while (*next < end && !r->has_tag[*next] && !status) {
        status = word_add(r, parent, (*next)++, NULL, err);
    }
    return status;
}

/* Sets the ends of all nodes from their parents. */
static void set_ends(struct tree *t)
{
    for (int i = 0; i < t->n; i++) t->node[i].end = i + 1;
    for (int i = t->n - 1; i > 0; i--) {
        struct tree_node *parent = &t->node[t->node[i].parent];
        parent->end = int_max(parent->end, t->node[i].end);
    }
}

/* Words that no symbol stands for are added behind the word before them. A full stop at the end
 * belongs to the whole sentence. */
static enum heed_status build(struct restoring *r, struct heed_error *err)
{
    struct tree *t = r->tree;
    int open = WRAPPER, next = 0, last = r->words;
    const char *mark = punctuation_tag(r->word[last - 1]);
    if (mark && strcmp(mark, ".") == 0) last--;
    enum heed_status status = tree_add(t, "TOP", -1, false, err);
    if (!status) status = tree_add(t, "S", FRAME, false, err);
    for (int i = 0; i < r->symbols && !status; i++) {
        const struct symbol *s = &r->symbol[i];
        if (s->kind == SYMBOL_OPEN) {
            status = tree_add(t, s->text, open, false, err);
            open = t->n - 1;
        } else if (s->kind == SYMBOL_CLOSE && open != WRAPPER) {
            open = t->node[open].parent;
        } else if (s->kind == SYMBOL_TAG && s->word >= 0) {
            status = strays_add(r, open, &next, s->word, err);
            if (!status) status = word_add(r, open, next++, s->text, err);
            if (!status) status = strays_add(r, open, &next, last, err);
        }
    }
    /* The rest goes to the constituent that holds all the others, if there is one. */
    if (status) return status;
    set_ends(t);
    bool one = t->n > FIRST && t->node[FIRST].end == t->n && !tree_is_tag(t, FIRST);
    status = strays_add(r, one ? FIRST : WRAPPER, &next, r->words, err);
    set_ends(t);
    return status;
}

/* The only child of node i, which is a constituent; 0: there is none such. */
static int only_child(const struct tree *t, int i)
{
    if (t->node[i].end == i + 1 || t->node[i + 1].end != t->node[i].end) return 0;
    return t->node[i + 1].is_word || tree_is_tag(t, i + 1) ? 0 : i + 1;
}

/* Whether node i, its only child and the only child of that have the same label. Two in a row occur
 * in treebanks, many where a model repeats itself. */
static bool is_repeated(const struct tree *t, int i)
{
    int child = only_child(t, i), grandchild = child ? only_child(t, child) : 0;
    return grandchild && strcmp(t->node[i].text, t->node[child].text) == 0 &&
           strcmp(t->node[i].text, t->node[grandchild].text) == 0;
}

/* Removes constituents without words, repeated ones, and the wrapper if it holds one constituent.
 */
static enum heed_status prune(struct tree *t, struct heed_error *err)
{
    bool *drop = malloc((size_t)t->n);
    if (!drop) return error_memory(err, (size_t)t->n, "the nodes of a tree");
    for (int i = 0; i < t->n; i++) drop[i] = !t->node[i].is_word;
    for (int i = t->n - 1; i > 0; i--) {
        if (!drop[i]) drop[t->node[i].parent] = false;
    }
    drop[FRAME] = false;
    tree_drop(t, drop);

    for (int i = 0; i < t->n; i++) drop[i] = i != FRAME && is_repeated(t, i);
    if (only_child(t, WRAPPER)) drop[WRAPPER] = true;
    tree_drop(t, drop);
    free(drop);
    return HEED_OK;
}

static enum heed_status restore(struct restoring *r, const char *linear, const char *words,
                                struct heed_error *err)
{
    enum { TABLE_MAX = 1 << 24 };
    /* A bracket in a word becomes five characters; a symbol gets a NUL and is at least one. */
    size_t bytes = 6 * strlen(words) + 2 * strlen(linear) + 2;
    enum heed_status status =
        array_reserve(&r->tree->text, &r->tree->text_cap, bytes, 1, "the words of a tree", err);
    if (status) return status;
    r->room = r->tree->text;
    status = words_read(r, words, err);
    if (status || r->words == 0) return status;
    status = symbols_read(r, linear, err);
    if (status) return status;
    r->has_tag = calloc((size_t)r->words, sizeof *r->has_tag);
    if (!r->has_tag) return error_memory(err, (size_t)r->words, "the words of a tree");
    if ((size_t)r->tags * (size_t)r->words < TABLE_MAX) {
        status = align(r, err);
    } else {
        align_in_order(r);
    }
    for (int i = 0; i < r->symbols; i++) {
        if (r->symbol[i].word >= 0) r->has_tag[r->symbol[i].word] = true;
    }
    if (!status) status = build(r, err);
    return status ? status : prune(r->tree, err);
}

enum heed_status tree_restore(struct tree *t, const char *linear, const char *words,
                              struct heed_error *err)
{
    struct restoring r = {.tree = t};
    t->n = 0;
    enum heed_status status = restore(&r, linear, words, err);
    free(r.word);
    free(r.has_tag);
    free(r.symbol);
    if (status) t->n = 0;
    return status;
}
