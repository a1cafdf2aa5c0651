/*
 * parseval.c - labelled precision, recall and F1 of bracketed trees, by the rules of EVALB with its
 * parameters COLLINS.prm (Sekine and Collins, 1997).
 *
 * 1. Words with the tags -NONE- , : `` '' . are left out, in both trees.
 * 2. What is left must be the same words; otherwise, and where the hypothesis is no tree, the line
 *    is an error, which counts in no figure but the number of errors.
 * 3. A constituent is its label without function tags and its words, from one to another.
 *    Constituents without words, those called TOP or S1, and a root that is called ROOT or nothing
 *    are left out.
 * 4. PRT is the same label as ADVP.
 * 5. Two constituents match if labels and words are the same; each matches once.
 *
 * Tags are no constituents. Their accuracy is printed beside the score.
 */
#include "base/array.h"
#include "base/error.h"
#include "score/metric.h"
#include "tree/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MATCHED, GOLD, FOUND, EXACT, WORDS, TAGS, LINES, ERRORS, COUNTS };

struct constituent {
    int first, end; /* words */
    const char *label;
    size_t len;
};

/* A tree, and what is compared of it. */
struct parse {
    struct tree tree;
    const char **word, **tag;
    size_t word_cap, tag_cap;
    int words;
    struct constituent *constituent;
    size_t constituent_cap;
    int constituents;
    int *words_before; /* [nodes + 1] words before each node that are compared */
    size_t before_cap;
};

struct parseval {
    struct parse hyp, ref;
};

static void parse_release(struct parse *p)
{
    tree_release(&p->tree);
    free(p->word);
    free(p->tag);
    free(p->constituent);
    free(p->words_before);
}

static void parseval_room_release(void *room)
{
    struct parseval *p = room;
    parse_release(&p->hyp);
    parse_release(&p->ref);
}

static bool is_ignored(const char *label, size_t len)
{
    static const char *const names[] = {"TOP", "S1", "-NONE-", ",", ":", "``", "''", "."};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (len == strlen(names[i]) && memcmp(label, names[i], len) == 0) return true;
    }
    return false;
}

static enum heed_status parse_reserve(struct parse *p, struct heed_error *err)
{
    static const char what[] = "the constituents of a tree";
    size_t n = (size_t)p->tree.n;
    enum heed_status status = array_reserve(&p->word, &p->word_cap, n, sizeof *p->word, what, err);
    if (!status) status = array_reserve(&p->tag, &p->tag_cap, n, sizeof *p->tag, what, err);
    if (!status) {
        status = array_reserve(&p->constituent, &p->constituent_cap, n, sizeof *p->constituent,
                               what, err);
    }
    if (!status) {
        status = array_reserve(&p->words_before, &p->before_cap, n + 1, sizeof *p->words_before,
                               what, err);
    }
    return status;
}

/* Collects the words and constituents of the tree that are compared. Returns false if a word has no
 * tag. */
static bool parse_collect(struct parse *p)
{
    const struct tree *t = &p->tree;
    p->words = p->constituents = 0;
    for (int i = 0; i < t->n; i++) {
        p->words_before[i] = p->words;
        if (!t->node[i].is_word) continue;
        if (t->node[i].parent < 0 || !tree_is_tag(t, t->node[i].parent)) return false;
        const char *tag = t->node[t->node[i].parent].text;
        if (is_ignored(tag, strlen(tag))) continue;
        p->tag[p->words] = tag;
        p->word[p->words++] = t->node[i].text;
    }
    p->words_before[t->n] = p->words;
    for (int i = 0; i < t->n; i++) {
        const struct tree_node *node = &t->node[i];
        struct constituent c = {p->words_before[i], p->words_before[node->end], node->text,
                                strcspn(node->text, "-=")};
        if (node->is_word || tree_is_tag(t, i) || c.first == c.end) continue;
        if (tree_is_frame(t, i) || is_ignored(c.label, c.len)) continue;
        bool is_prt = c.len == 3 && strncmp(c.label, "PRT", 3) == 0;
        if (is_prt) c = (struct constituent){c.first, c.end, "ADVP", 4};
        p->constituent[p->constituents++] = c;
    }
    return true;
}

static int constituent_compare(const void *a, const void *b)
{
    const struct constituent *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    if (x->len != y->len) return x->len < y->len ? -1 : 1;
    return memcmp(x->label, y->label, x->len);
}

static int parse_matches(struct parse *a, struct parse *b)
{
    int matched = 0;
    qsort(a->constituent, (size_t)a->constituents, sizeof *a->constituent, constituent_compare);
    qsort(b->constituent, (size_t)b->constituents, sizeof *b->constituent, constituent_compare);
    for (int i = 0, j = 0; i < a->constituents && j < b->constituents;) {
        int order = constituent_compare(&a->constituent[i], &b->constituent[j]);
        matched += order == 0;
        i += order <= 0;
        j += order >= 0;
    }
    return matched;
}

static bool same_words(const struct parse *a, const struct parse *b)
{
    if (a->words != b->words) return false;
    for (int i = 0; i < a->words; i++) {
        if (strcmp(a->word[i], b->word[i]) != 0) return false;
    }
    return true;
}

/* Reads a line that holds one tree whose words all have tags. */
static enum heed_status parse_read(struct parse *p, const char *line, int number,
                                   struct heed_error *err)
{
    struct tree_source s = {.at = line, .line = number, .column = 1};
    enum heed_status status = tree_read(&p->tree, &s, err);
    if (!status && p->tree.n == 0) {
        return error_set(err, HEED_EFORMAT, "line %d is blank, expected a tree", number);
    }
    if (!status) status = parse_reserve(p, err);
    if (status) return status;
    if (!parse_collect(p)) {
        return error_set(err, HEED_EFORMAT, "line %d has a word without a tag", number);
    }
    struct tree second = {0};
    status = tree_read(&second, &s, err);
    if (!status && second.n) {
        status = error_set(err, HEED_EFORMAT, "line %d has more than one tree", number);
    }
    tree_release(&second);
    return status;
}

static enum heed_status parseval_count(const struct scorer *s, double *counts, const char *hyp,
                                       const char *const *ref, int refs, struct heed_error *err)
{
    struct parseval *p = s->room;
    if (refs != 1) {
        return error_set(err, HEED_EARG, "PARSEVAL has one reference, found %d", refs);
    }
    enum heed_status status = parse_read(&p->ref, ref[0], s->line, err);
    if (status) return status;
    struct heed_error hyp_err = {0};
    status = parse_read(&p->hyp, hyp, s->line, &hyp_err);
    if (status == HEED_ENOMEM) return error_set(err, status, "%s", hyp_err.text);
    counts[LINES] = 1;
    if (status || p->hyp.words == 0 || !same_words(&p->hyp, &p->ref)) {
        counts[ERRORS] = 1;
        return HEED_OK;
    }
    counts[MATCHED] = parse_matches(&p->hyp, &p->ref);
    counts[GOLD] = p->ref.constituents;
    counts[FOUND] = p->hyp.constituents;
    counts[EXACT] = counts[MATCHED] == counts[GOLD] && counts[MATCHED] == counts[FOUND];
    counts[WORDS] = p->ref.words;
    for (int i = 0; i < p->ref.words; i++) {
        counts[TAGS] += strcmp(p->hyp.tag[i], p->ref.tag[i]) == 0;
    }
    return HEED_OK;
}

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

static void parseval_score(struct heed_score *s, const double *counts, bool sentence)
{
    (void)sentence;
    struct heed_parseval *p = &s->parseval;
    p->precision = percent(counts[MATCHED], counts[FOUND]);
    p->recall = percent(counts[MATCHED], counts[GOLD]);
    p->exact = percent(counts[EXACT], counts[LINES] - counts[ERRORS]);
    p->tags = percent(counts[TAGS], counts[WORDS]);
    p->matched = (long)counts[MATCHED];
    p->gold = (long)counts[GOLD];
    p->found = (long)counts[FOUND];
    p->lines = (long)counts[LINES];
    p->errors = (long)counts[ERRORS];
    double sum = p->precision + p->recall;
    s->value = sum > 0 ? 2 * p->precision * p->recall / sum : 0;
}

static void parseval_sign(char out[METRIC_SIGNATURE_MAX], const struct scorer *s, bool sentence)
{
    (void)s;
    (void)sentence;
    snprintf(out, METRIC_SIGNATURE_MAX, "labels:yes|punct:no|params:collins");
}

const struct metric metric_parseval = {
    .name = "parseval",
    .title = "F1",
    .counts = COUNTS,
    .room = sizeof(struct parseval),
    .room_release = parseval_room_release,
    .count = parseval_count,
    .score = parseval_score,
    .sign = parseval_sign,
};
