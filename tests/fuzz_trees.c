/*
 * fuzz_trees.c - libFuzzer entry: any text as bracketed trees, and as what a model wrote. Either a
 * sentence comes back or trees that are the same when they are printed and read again; and whatever
 * was written becomes a tree over exactly the words of its source.
 */
#include "fuzz.h"

static const char *const words[] = {"(NP",    ")",  "(S",    "-NONE-", "NN", "-LRB-", "(TOP",
                                    "NP-SBJ", "``", "(X=1 ", "'",      ",",  ".",     NULL};

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char tree[] = "( (S (NP-SBJ (DT The) (NN dog)) (VP (VBZ runs) (-NONE- *)) (. .)))";
    static const char written[] = "The dog , runs .\n(S (NP DT NN ) , (VP VBZ ) . )";
    if (!fuzz_begin(argc, argv, words)) return 0;
    fuzz_seed("tree", tree, strlen(tree));
    fuzz_seed("written", written, strlen(written));
    return 0;
}

static char *tree_text(const struct heed_trees *t, int i, enum heed_tree_form form)
{
    char *text = NULL;
    must(heed_tree_text(t, i, form, &text, NULL) == HEED_OK, "a tree has every form");
    return text;
}

static struct heed_trees *trees_of(const char *text)
{
    struct heed_trees *t = NULL;
    struct heed_error err = {0};
    must(heed_trees_read(text, "again", &t, &err) == HEED_OK, "what was printed is read again");
    must(heed_trees_count(t) == 1, "and is one tree");
    return t;
}

static void read_and_draw(const char *text)
{
    struct heed_trees *t = NULL;
    struct heed_error err = {0};
    enum heed_status status = heed_trees_read(text, "trees", &t, &err);
    if (status) {
        must_explain(status, &err);
        must(!t && strncmp(err.text, "trees: line ", 12) == 0, "a failure names the place");
        return;
    }
    for (int i = 0; i < heed_trees_count(t); i++) {
        char *brackets = tree_text(t, i, HEED_TREE_BRACKETS), *picture = NULL;
        struct heed_trees *same = trees_of(brackets);
        char *again = tree_text(same, 0, HEED_TREE_BRACKETS);
        must(strcmp(brackets, again) == 0, "and is the same");
        status = heed_tree_picture(t, i, HEED_PICTURE_SVG, &picture, &err);
        if (status) must_explain(status, &err);
        free(tree_text(t, i, HEED_TREE_LINEAR));
        free(picture);
        free(again);
        free(brackets);
        heed_trees_free(same);
    }
    must(heed_trees_clean(t, NULL) == HEED_OK, "trees can be cleaned");
    heed_trees_free(t);
}

/* The number of words of a text. */
static size_t word_count(const char *text)
{
    size_t n = 0;
    for (const char *at = text + strspn(text, " \t\n\v\f\r"); *at; n++) {
        at += strcspn(at, " \t\n\v\f\r");
        at += strspn(at, " \t\n\v\f\r");
    }
    return n;
}

static void restore(const char *linear, const char *source)
{
    char *tree = NULL;
    must(heed_tree_restore(linear, source, &tree, NULL) == HEED_OK, "any text becomes a tree");
    if (word_count(source) == 0) {
        must(!*tree, "without words there is none");
    } else {
        struct heed_trees *t = trees_of(tree);
        char *found = tree_text(t, 0, HEED_TREE_WORDS);
        must(word_count(found) == word_count(source), "over exactly the words");
        free(found);
        heed_trees_free(t);
    }
    free(tree);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text) abort();
    memcpy(text, data, size);
    text[size] = '\0';
    read_and_draw(text);
    char *line = strchr(text, '\n');
    if (line) {
        *line = '\0';
        restore(line + 1, text);
    }
    free(text);
    return 0;
}
