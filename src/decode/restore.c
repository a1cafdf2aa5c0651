/*
 * restore.c - puts what the vocabulary could not spell of a text into its translation; see
 * restore.h.
 *
 * A stretch is a part of the text that the model was not given (struct unspelled), a spot the place
 * in the translation that it is copied to. Stretches are chosen in the order of the text and then
 * sorted by their spots; one pass writes the translation with them. No step looks at the whole text
 * for each stretch: a line may have a million of them.
 */
#include "decode/restore.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "decode/join.h"
#include "tokens/characters.h"

/* ---- the place of a stretch ---- */

bool restore_needs_alignment(const struct spelling *s)
{
    struct heed_span all = text_trimmed(s->read, strlen(s->read));
    for (int i = 0; i < s->n; i++)
        if (s->v[i].copied && s->v[i].at > all.at && s->v[i].at < all.at + all.len) return true;
    return false;
}

/* An opening tag such as <b> belongs to the word behind it, a closing tag such as </b> to the word
 * before it. */
static bool is_opening(const char *stretch, size_t len)
{
    return len > 2 && stretch[0] == '<' && stretch[1] != '/' && stretch[len - 1] == '>' &&
           stretch[len - 2] != '/';
}

static bool is_closing(const char *stretch, size_t len)
{
    return len > 2 && stretch[0] == '<' && stretch[1] == '/';
}

/* Whether a stretch belongs to the word behind it, and not to the one before. */
static bool leans_forward(const char *text, struct heed_span x)
{
    bool before = !char_is_space(char_before(text, x.at));
    bool behind = !char_is_space(char_behind(text, x.at + x.len));
    return before == behind ? is_opening(text + x.at, x.len) : behind;
}

/* The links of a word of the source. */
struct linked {
    int first, last; /* the first and the last word of the translation that link to it; -1: none */
    int before;      /* the nearest word of the source up to this one that has links; -1: none */
    int behind;      /* the same from this one on; the number of source words: none */
};

static void linked_find(struct linked *x, const struct heed_alignment *a)
{
    for (int i = 0; i < a->sources; i++) x[i] = (struct linked){-1, -1, -1, a->sources};
    for (int j = 0; j < a->targets; j++) {
        if (a->link[j] < 0) continue;
        struct linked *word = &x[a->link[j]];
        if (word->first < 0) word->first = j;
        word->last = j;
    }
    for (int i = 0, k = a->sources - 1; i < a->sources; i++, k--) {
        x[i].before = x[i].first >= 0 ? i : i > 0 ? x[i - 1].before : -1;
        x[k].behind = x[k].first >= 0 ? k : i > 0 ? x[k + 1].behind : a->sources;
    }
}

/* The words of the source between which a stretch stood. */
struct gap {
    int before, behind; /* equal where the stretch stood inside of a word */
    bool forward;       /* the stretch belongs to the word behind it */
};

/* The best place for a stretch, as a number of words before it. Candidates are the places behind a
 * word linked to `before` and those in front of a word linked to `behind`; a place between two such
 * words is best. Otherwise the best place has the fewest words in the wrong order: words linked to
 * [0, split) behind it, or words linked to the rest before it. Only the words from the first to the
 * last linked one are looked at, so the time for a stretch does not grow with the text. */
static int place_between(const struct heed_alignment *a, const struct linked *x, int before,
                         int behind, int split, bool forward)
{
    int from = a->targets, to = -1, at = -1, wrong = 0;
    long best = 0;
    for (int k = 0; k < 2; k++) {
        int word = k ? behind : before;
        if (word < 0 || word >= a->sources || x[word].first < 0) continue;
        if (x[word].first < from) from = x[word].first;
        if (x[word].last > to) to = x[word].last;
    }
    for (int j = from; j <= to + 1; j++) {
        bool left = j > 0 && before >= 0 && a->link[j - 1] == before;
        bool right = j < a->targets && a->link[j] == behind;
        long value = (left && right ? 2L * a->targets : 0) - wrong * 2L + (forward ? right : left);
        if ((left || right) && (at < 0 || value > best)) best = value, at = j;
        if (j < a->targets && a->link[j] >= 0) wrong += a->link[j] < split ? -1 : 1;
    }
    return at;
}

static struct gap gap_of(const struct spelling *s, const struct unspelled *x,
                         const struct heed_alignment *a)
{
    int behind = spans_ended(a->source, a->sources, x->at), before = behind - 1;
    if (behind < a->sources && a->source[behind].at < x->at) before = behind;
    return (struct gap){before, behind, leans_forward(s->text, x->where)};
}

/* The number of words of the translation that come before a stretch. Where neither of the words
 * beside it has a link, the nearest words that have one decide. */
static int place(const struct gap *g, const struct heed_alignment *a, const struct linked *x)
{
    if (g->behind == a->sources) return a->targets;
    if (g->before < 0) return 0;
    int before = x[g->before].before, behind = x[g->behind].behind;
    if (before < 0 && behind == a->sources) return a->targets;
    int back = g->before - before, ahead = behind - g->behind;
    int step = behind == a->sources || (before >= 0 && back < ahead) ? back : ahead;
    return place_between(a, x, g->before - step, g->behind + step, g->behind, g->forward);
}

/* ---- spaces around a stretch ---- */

/* Whether a space goes between a stretch and the character `now` beside it in the translation;
 * `was` is the character beside it in the source. There is one where there was one, and where a
 * word now stands to which the stretch was not joined; but none before punctuation or behind an
 * opening bracket. before: the side in front of the stretch; belongs: the stretch belongs to what
 * is on this side. */
static bool wants_space(int32_t was, int32_t now, bool before, bool belongs)
{
    bool joined = before ? char_opens(now) : char_follows(now);
    if (char_is_space(now) || joined) return false;
    return char_is_space(was) || (char_is_spaced(now) && !char_is_spaced(was) && !belongs);
}

/* ---- the text ---- */

/* Where a stretch goes: it replaces the white space [start, end) of the translation. */
struct spot {
    size_t start, end;
    int which; /* index of the stretch */
};

static int compare_spots(const void *a, const void *b)
{
    const struct spot *x = a, *y = b;
    return x->start != y->start ? (x->start < y->start ? -1 : 1) : x->which - y->which;
}

static bool is_banned(const char *text, size_t len, const struct heed_request *r)
{
    for (int i = 0; i < r->banned_n; i++)
        if (text_has(text, len, r->banned[i], strlen(r->banned[i]))) return true;
    return false;
}

/* The spot of a stretch before which there are `at` words of the translation. */
static struct spot spot_at(int at, int which, size_t len, const struct heed_alignment *a)
{
    const struct heed_span *word = a->target;
    return (struct spot){at > 0 ? word[at - 1].at + word[at - 1].len : 0,
                         at < a->targets ? word[at].at : len, which};
}

/* Finds the spots of the n stretches spot[].which by the alignment. Stretches inside of the same
 * word have the same spot, which is computed once. */
static enum heed_status spots_align(struct spot *spot, int n, const struct spelling *s, size_t len,
                                    const struct heed_alignment *a, struct heed_error *err)
{
    struct linked *x = malloc(((size_t)a->sources + 1) * sizeof *x);
    struct gap last[2] = {{-1, -1, false}, {-1, -1, true}};
    int at[2] = {0, 0};
    if (!x) return error_memory(err, a->sources * sizeof *x, "a translation");
    linked_find(x, a);
    for (int i = 0; i < n; i++) {
        struct gap g = gap_of(s, &s->v[spot[i].which], a);
        struct gap *same = &last[g.forward];
        if (g.before != same->before || g.behind != same->behind) at[g.forward] = place(&g, a, x);
        *same = g;
        spot[i] = spot_at(at[g.forward], spot[i].which, len, a);
    }
    free(x);
    return HEED_OK;
}

/* The same without an alignment: all stretches stood at an end of what was read. */
static void spots_at_ends(struct spot *spot, int n, const struct spelling *s, size_t len)
{
    struct heed_span all = text_trimmed(s->read, strlen(s->read));
    for (int i = 0; i < n; i++) {
        size_t end = s->v[spot[i].which].at > all.at ? len : 0;
        spot[i].start = spot[i].end = end;
    }
}

/* Fills spot[s->n] with the stretches that are copied, in the order of the text; returns how many.
 */
static int spots_choose(struct spot *spot, const struct spelling *s, const struct heed_request *r)
{
    int n = 0;
    for (int i = 0; i < s->n && !r->given; i++) {
        const struct heed_span *x = &s->v[i].where;
        if (s->v[i].copied && !is_banned(s->text + x->at, x->len, r)) spot[n++].which = i;
    }
    return n;
}

/* The translation with its stretches. */
struct restored {
    char *text;
    ptrdiff_t *from; /* where each byte comes from: its place in the translation as it was found, or
                      * -1 - its place in the source */
    size_t n;
};

static void put(struct restored *to, char c, ptrdiff_t from)
{
    to->from[to->n] = from;
    to->text[to->n++] = c;
    to->text[to->n] = '\0';
}

static void put_stretch(struct restored *to, const struct spelling *s, struct heed_span x,
                        const char *text, size_t end)
{
    size_t behind = x.at + x.len;
    if (wants_space(char_before(s->text, x.at), char_before(to->text, to->n), true,
                    is_closing(s->text + x.at, x.len)))
        put(to, ' ', (ptrdiff_t)end);
    for (size_t i = x.at; i < behind; i++) put(to, s->text[i], -1 - (ptrdiff_t)i);
    if (wants_space(char_behind(s->text, behind), char_behind(text, end), false,
                    is_opening(s->text + x.at, x.len)))
        put(to, ' ', (ptrdiff_t)end);
}

static void restore(struct restored *to, const struct spelling *s, const char *text, size_t len,
                    const struct spot *spot, int n)
{
    size_t at = 0;
    to->text[0] = '\0';
    for (int i = 0; i < n; i++) {
        for (; at < spot[i].start; at++) put(to, text[at], (ptrdiff_t)at);
        at = spot[i].end;
        put_stretch(to, s, s->v[spot[i].which].where, text, at);
    }
    for (; at < len; at++) put(to, text[at], (ptrdiff_t)at);
}

/* ---- the lists of the result ---- */

/* Adds a stretch to a list of the result. */
static enum heed_status list_add(const char *const **list, int *n, const struct spelling *s,
                                 int which, struct heed_error *err)
{
    struct strings all = {(char **)*list, *n};
    struct heed_span x = s->v[which].where;
    enum heed_status status = strings_add(&all, s->text + x.at, x.len, err);
    *list = (const char *const *)all.v;
    *n = all.n;
    return status;
}

/* Lists every stretch: as copied, where it is one of the n spots, or else as left out. Stretches
 * and spots are in the order of the text. */
static enum heed_status list_stretches(struct heed_result *r, const struct spelling *s,
                                       const struct spot *spot, int n, struct heed_error *err)
{
    enum heed_status status = HEED_OK;
    if (s->n) r->flags |= HEED_FLAG_UNSPELLED;
    for (int i = 0, k = 0; i < s->n && !status; i++) {
        bool copied = k < n && spot[k].which == i;
        k += copied;
        status = copied ? list_add(&r->copied, &r->copied_n, s, i, err)
                        : list_add(&r->left_out, &r->left_out_n, s, i, err);
    }
    return status;
}

enum heed_status restore_given(struct heed_result *r, const struct spelling *s,
                               struct heed_error *err)
{
    const struct spot none = {0};
    return list_stretches(r, s, &none, 0, err);
}

/* ---- the alignment of the result ---- */

/* The word that the byte at `at` is in, or -1. */
static int word_at(const struct heed_span *word, int n, size_t at)
{
    int i = spans_ended(word, n, at);
    return i < n && word[i].at <= at ? i : -1;
}

/* The source word that a byte of the restored translation comes from, or -1. */
static int origin(const struct restored *x, size_t at, const struct spelling *s,
                  const struct heed_alignment *a, const struct spans *words)
{
    ptrdiff_t from = x->from[at];
    if (from < 0) return word_at(words->v, (int)words->n, (size_t)(-1 - from));
    int target = word_at(a->target, a->targets, (size_t)from);
    if (target < 0 || a->link[target] < 0) return -1;
    const struct heed_span *read = &a->source[a->link[target]];
    return word_at(words->v, (int)words->n, s->origin[read->at + read->len - 1]);
}

/* The alignment of the whole text and the restored translation. */
static enum heed_status realign(struct heed_alignment **out, const struct restored *x,
                                const struct spelling *s, const struct heed_alignment *a,
                                struct heed_error *err)
{
    struct spans words[2] = {0};
    int *link;
    enum heed_status status = words_split(&words[0], s->text, strlen(s->text), err);
    if (!status) status = words_split(&words[1], x->text, x->n, err);
    if (!status && !(*out = alignment_make(words, &link, err))) status = HEED_ENOMEM;
    for (size_t i = 0; i < words[1].n && !status; i++)
        link[i] = origin(x, words[1].v[i].at + words[1].v[i].len - 1, s, a, &words[0]);
    free(words[0].v);
    free(words[1].v);
    return status;
}

enum heed_status restore_text(struct heed_result *r, const struct spelling *s,
                              const struct heed_alignment *a, const struct heed_request *request,
                              struct heed_alignment **out, struct heed_error *err)
{
    size_t room = r->len + strlen(s->text) + 2 * (size_t)s->n + 1; /* a space on either side */
    struct spot *spot = malloc((s->n + 1) * sizeof *spot);
    struct restored x = {malloc(room), malloc(room * sizeof *x.from), 0};
    enum heed_status status = HEED_OK;
    int n = 0;
    if (!spot || !x.text || !x.from)
        status = error_memory(err, room * sizeof *x.from, "a translation");
    if (!status) {
        n = spots_choose(spot, s, request);
        status = list_stretches(r, s, spot, n, err);
    }
    if (!status && !a) spots_at_ends(spot, n, s, r->len);
    if (!status && a) status = spots_align(spot, n, s, r->len, a, err);
    if (!status) {
        qsort(spot, n, sizeof *spot, compare_spots);
        restore(&x, s, r->text, r->len, spot, n);
    }
    if (!status && out) status = realign(out, &x, s, a, err);
    if (!status) {
        free((char *)r->text);
        r->text = x.text;
        r->len = x.n;
        x.text = NULL;
    }
    free(spot);
    free(x.text);
    free(x.from);
    return status;
}
